// ropewalk._native: what Python sees. Arguments are checked in request.cpp; whatever is not
// plain work for these kernels is answered with a code, and Python takes the readable path.
#include "dispatch.hpp"
#include "recycler.hpp"
#include "request.hpp"
#include "threads.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace ropewalk;

namespace {

PyObject *or_null(nb::handle h) { return h.is_none() ? nullptr : h.ptr(); }

// -1 for what is no offset; such a request is unsupported, and Python says why.
int64_t offset_of(nb::handle h) {
    if (!PyLong_Check(h.ptr())) return -1;
    const int64_t value = PyLong_AsLongLong(h.ptr());
    if (value == -1) PyErr_Clear();
    return value;
}

int rotate(nb::handle q, nb::handle k, nb::handle q_out, nb::handle k_out, nb::handle cos,
           nb::handle sin, nb::handle pairing, nb::handle order, nb::handle rotary_offset,
           nb::handle inverse, nb::handle positions, nb::handle plane_axes, int threads) {
    Request request = {};
    request.q = q.ptr();
    request.k = or_null(k);
    request.q_out = q_out.ptr();
    request.k_out = or_null(k_out);
    request.cos = cos.ptr();
    request.sin = sin.ptr();
    request.pairing = pairing.ptr();
    request.order = order.ptr();
    request.rotary_offset = offset_of(rotary_offset);
    request.inverse = PyObject_IsTrue(inverse.ptr()) == 1;
    request.positions = or_null(positions);
    request.plane_axes = or_null(plane_axes);
    request.threads = threads;
    return int(perform(request));
}

int fused(nb::handle q, nb::handle k, nb::handle v, nb::handle q_out, nb::handle k_out,
          nb::handle v_out, nb::handle cos, nb::handle sin, nb::handle pairing, nb::handle order,
          nb::handle rotary_offset, nb::handle positions, nb::handle plane_axes, nb::handle q_weight,
          nb::handle k_weight, double eps, double weight_shift, nb::handle slots, int threads) {
    Request request = {};
    request.q = q.ptr();
    request.k = or_null(k);
    request.v = or_null(v);
    request.q_out = q_out.ptr();
    request.k_out = or_null(k_out);
    request.v_out = or_null(v_out);
    request.cos = cos.ptr();
    request.sin = sin.ptr();
    request.pairing = pairing.ptr();
    request.order = order.ptr();
    request.rotary_offset = offset_of(rotary_offset);
    request.positions = or_null(positions);
    request.plane_axes = or_null(plane_axes);
    request.q_weight = or_null(q_weight);
    request.k_weight = or_null(k_weight);
    request.eps = eps;
    request.weight_shift = weight_shift;
    request.slots = or_null(slots);
    request.threads = threads;
    return int(perform(request));
}

struct Filling {
    TableJob job;
    TableRunner run;
};

// Pointers to contiguous memory, checked by the caller (ropewalk/tables.py).
void fill_table(uintptr_t fractions, int64_t planes, uintptr_t positions, int64_t start,
                int64_t rows, double factor, bool backwards, uintptr_t cos, uintptr_t sin,
                int64_t row_stride, int threads) {
    Filling filling = {{reinterpret_cast<const uint64_t *>(fractions), planes,
                        reinterpret_cast<const int64_t *>(positions), start, factor, backwards,
                        reinterpret_cast<float *>(cos), reinterpret_cast<float *>(sin), row_stride},
                       chosen().table};
    // An angle costs about as much as a cache line; 2^14 of them are a piece worth a thread.
    const int64_t piece = planes ? (int64_t(1) << 14) / planes + 1 : 1;
    nb::gil_scoped_release release;
    share(rows, piece, threads, [](void *context, int64_t first, int64_t last) {
        auto *f = static_cast<Filling *>(context);
        f->run(f->job, first, last);
    }, &filling);
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Kernels *kernels : available()) names.emplace_back(kernels->name);
    return names;
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Compiled kernels; see ropewalk.rotation.native.";
    m.def("rotate", &rotate, nb::arg("q"), nb::arg("k").none(), nb::arg("q_out"),
          nb::arg("k_out").none(), nb::arg("cos"), nb::arg("sin"), nb::arg("pairing"),
          nb::arg("order"), nb::arg("rotary_offset"), nb::arg("inverse"),
          nb::arg("positions").none(), nb::arg("plane_axes").none(), nb::arg("threads"));
    m.def("fused", &fused, nb::arg("q"), nb::arg("k").none(), nb::arg("v").none(),
          nb::arg("q_out"), nb::arg("k_out").none(), nb::arg("v_out").none(), nb::arg("cos"),
          nb::arg("sin"), nb::arg("pairing"), nb::arg("order"), nb::arg("rotary_offset"),
          nb::arg("positions").none(), nb::arg("plane_axes").none(), nb::arg("q_weight").none(),
          nb::arg("k_weight").none(), nb::arg("eps"), nb::arg("weight_shift"),
          nb::arg("slots").none(), nb::arg("threads"));
    m.def("fill_table", &fill_table);
    m.def("instruction_sets", &instruction_sets);
    m.def("instruction_set", [] { return std::string(chosen().name); });
    m.def("use_instruction_set", &choose);
    m.def("use_openmp", [](const std::string &path) { return use_openmp(path.c_str()); });
    m.def("pool", [] { return std::string(pool_name()); });
    m.def("recycled", [](nb::handle shape, nb::handle strides, int element) {
        return nb::steal(recycled_tensor(shape.ptr(), strides.ptr(), element));
    });
    m.def("recycled_bytes", &held_bytes);
    m.def("release_recycled", &release_all);
    m.def("attach_torch", [](nb::handle type, nb::handle capsule, nb::handle gradients,
                             nb::handle guards, nb::handle threads) {
        return attach_torch(type.ptr(), capsule.ptr(), gradients.ptr(), guards.ptr(),
                            threads.ptr());
    });
}
