#include "view.hpp"

#include "recycler.hpp"

namespace ropewalk {
namespace {

// The parts of DLPack 1.x that are read here, laid out as its ABI prescribes.
struct DLDevice {
    int32_t type, id;
};
struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes;
};
struct DLTensor {
    void *data;
    DLDevice device;
    int32_t rank;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct ManagedTensor {
    uint32_t major, minor;
    void *context;
    void (*deleter)(ManagedTensor *self);
    uint64_t flags;
    DLTensor tensor;
};
struct ExchangeHeader {
    uint32_t major, minor;
    ExchangeHeader *previous;
};
struct ExchangeAPI {
    ExchangeHeader header;
    void *allocate;
    void *managed_from_object;
    int (*managed_to_object)(ManagedTensor *tensor, void **object);
    int (*tensor_from_object)(void *object, DLTensor *out);
    void *current_stream;
};
constexpr int32_t kCPU = 1;
enum : uint8_t { kInt = 0, kFloat = 2, kBfloat = 4 };

struct Torch {
    PyTypeObject *tensor = nullptr;
    const ExchangeAPI *api = nullptr;
    PyObject *gradients = nullptr, *threads = nullptr;
    PyObject *requires_grad = nullptr, *is_neg = nullptr;
    PyObject *guards[4] = {};
    int guard_count = 0;
};
Torch torch;

Element element_of(DLDataType type) {
    if (type.lanes != 1) return Element::other;
    switch (type.code << 8 | type.bits) {
        case kFloat << 8 | 32: return Element::f32;
        case kFloat << 8 | 64: return Element::f64;
        case kFloat << 8 | 16: return Element::f16;
        case kBfloat << 8 | 16: return Element::bf16;
        case kInt << 8 | 32: return Element::i32;
        case kInt << 8 | 64: return Element::i64;
        default: return Element::other;
    }
}

bool turned_sign(PyObject *source) {
    PyObject *found = PyObject_CallMethodNoArgs(source, torch.is_neg);
    const bool no = found == Py_False;
    Py_XDECREF(found);
    PyErr_Clear();
    return !no;
}

bool read_torch(PyObject *source, View &view) {
    DLTensor tensor;
    if (torch.api->tensor_from_object(source, &tensor) != 0) {
        PyErr_Clear();
        return false;
    }
    if (tensor.device.type != kCPU || tensor.rank > kLargestRank) return false;
    view.data = static_cast<char *>(tensor.data) + tensor.byte_offset;
    view.element = element_of(tensor.dtype);
    view.rank = tensor.rank;
    int64_t dense = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
        view.shape[i] = tensor.shape[i];
        view.stride[i] = tensor.strides ? tensor.strides[i] : dense;
        dense *= tensor.shape[i];
    }
    // The imaginary part of a conjugate is a view whose sign is turned when it is read, which
    // DLPack does not tell. Such a view steps over the real parts.
    return view.rank == 0 || view.stride[view.rank - 1] == 1 || !turned_sign(source);
}

bool read_numbers(PyObject *source, int64_t *out, int count) {
    if (!PyTuple_Check(source) || PyTuple_GET_SIZE(source) != count) return false;
    for (int i = 0; i < count; ++i) {
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(source, i));
        if (out[i] == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return false;
        }
    }
    return true;
}

bool read_tuple(PyObject *source, View &view) {
    if (PyTuple_GET_SIZE(source) != 4) return false;
    PyObject *shape = PyTuple_GET_ITEM(source, 2);
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > kLargestRank) return false;
    view.data = static_cast<char *>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(source, 0)));
    const long element = PyLong_AsLong(PyTuple_GET_ITEM(source, 1));
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    view.element = element < 0 || element > 6 ? Element::other : Element(element);
    view.rank = int(PyTuple_GET_SIZE(shape));
    return read_numbers(shape, view.shape, view.rank) &&
           read_numbers(PyTuple_GET_ITEM(source, 3), view.stride, view.rank);
}

}  // namespace

int64_t View::item() const {
    static constexpr int64_t sizes[] = {4, 8, 2, 2, 4, 8, 1};
    return sizes[int(element)];
}

void View::extent(const char *&low, const char *&high) const {
    int64_t below = 0, above = 0;
    for (int i = 0; i < rank; ++i) {
        const int64_t reach = (shape[i] - 1) * stride[i];
        (reach < 0 ? below : above) += reach;
    }
    low = data + below * item();
    high = data + (above + 1) * item();
}

bool View::repeats() const {
    // Axes by growing stride: each must step past all that the smaller ones reach.
    int order[kLargestRank], count = 0;
    for (int i = 0; i < rank; ++i) {
        if (shape[i] <= 1) continue;
        int at = count++;
        for (; at > 0 && stride[order[at - 1]] > stride[i]; --at) order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t reach = 0;
    for (int i = 0; i < count; ++i) {
        if (stride[order[i]] <= reach) return true;
        reach += (shape[order[i]] - 1) * stride[order[i]];
    }
    return false;
}

bool attach_torch(PyObject *tensor_type, PyObject *capsule, PyObject *gradients, PyObject *guards,
                  PyObject *threads) {
    auto *api = static_cast<const ExchangeAPI *>(
        PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    if (!api) {
        PyErr_Clear();
        return false;
    }
    if (api->header.major != 1 || !api->tensor_from_object) return false;
    if (!PyTuple_Check(guards) || PyTuple_GET_SIZE(guards) > 4) return false;
    Torch made;
    made.tensor = reinterpret_cast<PyTypeObject *>(Py_NewRef(tensor_type));
    made.api = api;
    made.gradients = Py_NewRef(gradients);
    made.threads = Py_NewRef(threads);
    made.requires_grad = PyUnicode_InternFromString("requires_grad");
    made.is_neg = PyUnicode_InternFromString("is_neg");
    made.guard_count = int(PyTuple_GET_SIZE(guards));
    for (int i = 0; i < made.guard_count; ++i)
        made.guards[i] = Py_NewRef(PyTuple_GET_ITEM(guards, i));
    torch = made;
    return true;
}

bool read_view(PyObject *source, View &view) {
    if (Py_TYPE(source) == torch.tensor) return read_torch(source, view);
    return PyTuple_Check(source) && read_tuple(source, view);
}

bool plain_eager(PyObject *const *tensors, int count) {
    bool any = false;
    for (int i = 0; i < count; ++i) any |= tensors[i] && Py_TYPE(tensors[i]) == torch.tensor;
    if (!any) return true;
    for (int i = 0; i < torch.guard_count; ++i) {
        PyObject *found = PyObject_CallNoArgs(torch.guards[i]);
        if (!found) {
            PyErr_Clear();
            return false;
        }
        const int truth = PyObject_IsTrue(found);
        Py_DECREF(found);
        if (truth != 0) return false;
    }
    PyObject *on = PyObject_CallNoArgs(torch.gradients);
    if (!on) {
        PyErr_Clear();
        return false;
    }
    const bool gradients = on != Py_False;
    Py_DECREF(on);
    if (!gradients) return true;
    for (int i = 0; i < count; ++i) {
        if (!tensors[i] || Py_TYPE(tensors[i]) != torch.tensor) continue;
        PyObject *wanted = PyObject_GetAttr(tensors[i], torch.requires_grad);
        if (!wanted) {
            PyErr_Clear();
            return false;
        }
        const bool yes = wanted != Py_False;
        Py_DECREF(wanted);
        if (yes) return false;
    }
    return true;
}

namespace {

// A tensor's description and the numbers that it points to.
struct Recycled {
    ManagedTensor managed;
    int64_t shape[kLargestRank], strides[kLargestRank];
    Block block;
};

// Called by PyTorch when nobody holds the memory any more, on any thread.
void drop(ManagedTensor *managed) {
    auto *recycled = static_cast<Recycled *>(managed->context);
    give_back(recycled->block);
    delete recycled;
}

constexpr DLDataType kTypes[] = {{kFloat, 32, 1}, {kFloat, 64, 1}, {kBfloat, 16, 1},
                                 {kFloat, 16, 1}};

}  // namespace

PyObject *recycled_tensor(PyObject *shape, PyObject *strides, int element) {
    if (!torch.api || element < 0 || element >= kDtypes || !PyTuple_Check(shape) ||
        PyTuple_GET_SIZE(shape) > kLargestRank)
        Py_RETURN_NONE;
    auto *made = new Recycled{};
    const int rank = int(PyTuple_GET_SIZE(shape));
    if (!read_numbers(shape, made->shape, rank) || !read_numbers(strides, made->strides, rank)) {
        delete made;
        Py_RETURN_NONE;
    }
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= made->shape[i];
    made->block = take(size_t(count) * size_t(kItemSize[element]));
    if (!made->block.data) {
        delete made;
        Py_RETURN_NONE;
    }
    made->managed.major = 1;
    made->managed.context = made;
    made->managed.deleter = drop;
    made->managed.tensor = {made->block.data, {kCPU, 0},     rank, kTypes[element],
                            made->shape,      made->strides, 0};
    void *object = nullptr;
    if (torch.api->managed_to_object(&made->managed, &object) != 0 || !object) {
        PyErr_Clear();
        drop(&made->managed);
        Py_RETURN_NONE;
    }
    return static_cast<PyObject *>(object);
}

int torch_threads() {
    if (!torch.threads) return -1;
    PyObject *found = PyObject_CallNoArgs(torch.threads);
    if (!found) {
        PyErr_Clear();
        return -1;
    }
    const long count = PyLong_AsLong(found);
    Py_DECREF(found);
    return count < 1 ? 1 : int(count);
}

}  // namespace ropewalk
