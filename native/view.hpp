// Tensors as they are handed over: an array of PyTorch, read through the table of C functions
// that its type offers (DLPack's exchange API, https://dmlc.github.io/dlpack), or a tuple
// (pointer, dtype, shape, strides in elements).
#pragma once

#include "job.hpp"

#include <Python.h>

namespace ropewalk {

constexpr int kLargestRank = 8;

enum class Element : int { f32, f64, bf16, f16, i32, i64, other };

struct View {
    char *data = nullptr;
    Element element = Element::other;
    int rank = 0;
    int64_t shape[kLargestRank];
    int64_t stride[kLargestRank];  // in elements

    int64_t size(int from_end) const { return shape[rank - from_end]; }
    int64_t step(int from_end) const { return stride[rank - from_end]; }
    int64_t item() const;
    // The addresses that the view touches: [low, high).
    void extent(const char *&low, const char *&high) const;
    // Whether two different indices share an element, as in an expanded tensor.
    bool repeats() const;
};

// Makes PyTorch's tensors readable. `guards` are callables: gradients on?, and those that must
// return None or 0 for a call to be plain eager work. `threads` counts PyTorch's threads.
// Returns false if the capsule is not understood.
bool attach_torch(PyObject *tensor_type, PyObject *capsule, PyObject *gradients, PyObject *guards,
                  PyObject *threads);

// False: nothing that can be read here (another device, another type, a lazy or wrapped tensor).
bool read_view(PyObject *source, View &view);

// Whether PyTorch is doing plain eager work without a gradient for these tensors (nulls are
// skipped). True for tuples.
bool plain_eager(PyObject *const *tensors, int count);

// A tensor on memory of the recycler, or None where that can't be. Arguments: tuples of integers
// and an Element.
PyObject *recycled_tensor(PyObject *shape, PyObject *strides, int element);

// PyTorch's thread count, or -1 if it isn't attached.
int torch_threads();

}  // namespace ropewalk
