#include "request.hpp"

#include "dispatch.hpp"
#include "threads.hpp"

#include <cstring>
#include <thread>

namespace ropewalk {
namespace {

// Below this a second thread costs more than it saves (bytes read).
constexpr int64_t kParallelBytes = 192 * 1024;
// Bytes of one piece of work: large enough for the processors' prefetching, small enough that
// a piece and its rows of the tables stay in the second-level cache.
constexpr int64_t kPieceBytes = 256 * 1024;
// From here on results are written past the caches (bytes read): they are not in a cache any more
// when they are used, and lines need not be read before they are written.
constexpr int64_t kPastBytes = 32 * 1024 * 1024;
// Below this the lock of the interpreter is kept (bytes read).
constexpr int64_t kHoldBytes = 64 * 1024;

// Where the time and head axes are, counted from the end; heads 0: there is no such axis.
struct Order {
    int time, heads;
};

bool read_order(PyObject *text, Order &order) {
    if (!text || !PyUnicode_Check(text)) return false;
    if (PyUnicode_CompareWithASCIIString(text, "time_heads") == 0)
        order = {3, 2};
    else if (PyUnicode_CompareWithASCIIString(text, "heads_time") == 0)
        order = {2, 3};
    else if (PyUnicode_CompareWithASCIIString(text, "time") == 0)
        order = {2, 0};
    else
        return false;
    return true;
}

bool read_pairing(PyObject *text, bool &adjacent) {
    if (!text || !PyUnicode_Check(text)) return false;
    adjacent = PyUnicode_CompareWithASCIIString(text, "adjacent") == 0;
    return adjacent || PyUnicode_CompareWithASCIIString(text, "half") == 0;
}

// The axes before time, heads and lanes as one axis.
bool collapse(const View &view, int inner, int64_t &size, int64_t &stride) {
    size = 1;
    stride = 0;
    for (int i = view.rank - inner - 1; i >= 0; --i) {
        if (view.shape[i] == 1) continue;
        if (size == 1)
            stride = view.stride[i];
        else if (view.stride[i] != stride * size)
            return false;
        size *= view.shape[i];
    }
    return true;
}

struct Axes {
    int64_t batch, time, heads, lanes;
    int64_t batch_step, time_step, head_step, lane_step;
};

bool read_axes(const View &view, Order order, Axes &axes) {
    const int inner = order.heads ? 3 : 2;
    if (view.rank < inner || !collapse(view, inner, axes.batch, axes.batch_step)) return false;
    axes.time = view.size(order.time);
    axes.time_step = view.step(order.time);
    axes.heads = order.heads ? view.size(order.heads) : 1;
    axes.head_step = order.heads ? view.step(order.heads) : 0;
    axes.lanes = view.size(1);
    axes.lane_step = view.step(1);
    return true;
}

bool dtype_of(const View &view, Dtype &dtype) {
    if (int(view.element) >= kDtypes) return false;
    dtype = Dtype(int(view.element));
    return true;
}

// Writing must be harmless: the very elements that are read, or none of them.
bool safe_output(const View &in, const View &out) {
    if (out.repeats()) return false;
    if (in.data == out.data) {
        for (int i = 0; i < in.rank; ++i)
            if (in.shape[i] > 1 && in.stride[i] != out.stride[i]) return false;
        return true;
    }
    const char *in_low, *in_high, *out_low, *out_high;
    in.extent(in_low, in_high);
    out.extent(out_low, out_high);
    return in_high <= out_low || out_high <= in_low;
}

bool same_shape(const View &a, const View &b) {
    return a.rank == b.rank &&
           std::memcmp(a.shape, b.shape, size_t(a.rank) * sizeof(int64_t)) == 0;
}

// cos or sin: (planes,), (time or 1, planes) or (batch or 1, time or 1, planes).
bool read_table(const View &view, const Job &job, int64_t &batch, int64_t &time, int64_t &lane) {
    if (view.rank < 1 || view.rank > 3 || view.size(1) != job.planes) return false;
    lane = view.step(1);
    time = batch = 0;
    if (view.rank >= 2 && view.size(2) != 1) {
        if (view.size(2) != job.time) return false;
        time = view.step(2);
    }
    if (view.rank == 3 && view.size(3) != 1) {
        if (view.size(3) != job.batch) return false;
        batch = view.step(3);
    }
    return true;
}

template <class I>
Outcome check_positions(const Job &job) {
    const auto *positions = static_cast<const I *>(job.positions);
    for (int64_t axis = 0; axis < job.axes; ++axis)
        for (int64_t b = 0; b < (job.position_batch ? job.batch : 1); ++b)
            for (int64_t t = 0; t < (job.position_time ? job.time : 1); ++t) {
                const int64_t at = positions[axis * job.position_axis + b * job.position_batch +
                                             t * job.position_time];
                if (at < 0 || at >= job.rows) return Outcome::outside_table;
            }
    return Outcome::done;
}

Outcome read_positions(const Request &request, const View &cos, const View &sin, Job &job) {
    const int64_t rows = cos.rank == 2 ? cos.size(2) : -1;
    if (rows < 0 || sin.rank != 2 || sin.size(2) != rows) return Outcome::unsupported;
    if (cos.size(1) != job.planes || sin.size(1) != job.planes) return Outcome::unsupported;
    job.cos_time = cos.step(2), job.cos_lane = cos.step(1);
    job.sin_time = sin.step(2), job.sin_lane = sin.step(1);
    job.rows = rows;
    if (PyLong_Check(request.positions)) {
        if (request.plane_axes) return Outcome::unsupported;
        const int64_t start = PyLong_AsLongLong(request.positions);
        if (start == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return Outcome::unsupported;
        }
        if (start < 0 || start > rows - job.time) return Outcome::outside_table;
        job.cos = static_cast<const char *>(job.cos) + start * job.cos_time * cos.item();
        job.sin = static_cast<const char *>(job.sin) + start * job.sin_time * sin.item();
        return Outcome::done;
    }
    View view;
    if (!read_view(request.positions, view)) return Outcome::unsupported;
    if (view.element != Element::i32 && view.element != Element::i64) return Outcome::unsupported;
    const int axes = request.plane_axes ? 1 : 0;
    const int rank = view.rank - axes;
    if (rank < 1 || rank > 2) return Outcome::unsupported;
    job.axes = axes ? view.shape[0] : 1;
    job.position_axis = axes ? view.stride[0] : 0;
    job.position_time = view.size(1) == 1 ? 0 : view.step(1);
    job.position_batch = rank == 1 || view.size(2) == 1 ? 0 : view.step(2);
    if (view.size(1) != 1 && view.size(1) != job.time) return Outcome::unsupported;
    if (rank == 2 && view.size(2) != 1 && view.size(2) != job.batch) return Outcome::unsupported;
    job.positions = view.data;
    job.wide_positions = view.element == Element::i64;
    if (request.plane_axes) {
        View planes;
        if (!read_view(request.plane_axes, planes)) return Outcome::unsupported;
        if (planes.element != Element::i32 || planes.rank != 1 || planes.shape[0] != job.planes ||
            (planes.stride[0] != 1 && planes.shape[0] > 1))
            return Outcome::unsupported;
        job.plane_axes = reinterpret_cast<const int32_t *>(planes.data);
        for (int64_t p = 0; p < job.planes; ++p)
            if (job.plane_axes[p] < 0 || job.plane_axes[p] >= job.axes)
                return Outcome::unsupported;
    }
    return job.wide_positions ? check_positions<int64_t>(job) : check_positions<int32_t>(job);
}

Outcome read_slots(const Request &request, Job &job) {
    View view;
    if (!read_view(request.slots, view) || view.element != Element::i64) return Outcome::unsupported;
    if (view.rank < 1 || view.rank > 2 || view.size(1) != job.time) return Outcome::unsupported;
    if ((view.rank == 2 ? view.size(2) : 1) != job.batch) return Outcome::unsupported;
    job.slots = reinterpret_cast<const int64_t *>(view.data);
    job.slot_time = view.step(1);
    job.slot_batch = view.rank == 2 ? view.step(2) : 0;
    for (int64_t b = 0; b < job.batch; ++b)
        for (int64_t t = 0; t < job.time; ++t) {
            const int64_t slot = job.slots[b * job.slot_batch + t * job.slot_time];
            if (slot >= job.capacity || slot < -1) return Outcome::outside_cache;
        }
    return Outcome::done;
}

// One of q, k, v: where it is read and written.
bool add_side(PyObject *in, PyObject *out, Order order, bool slotted, PyObject *weight,
              bool rotated, Job &job) {
    View x, y;
    Axes from;
    Dtype dtype;
    if (!read_view(in, x) || !read_axes(x, order, from) || !dtype_of(x, dtype)) return false;
    const bool first = job.sides == 0;
    if (first) {
        job.dtype = dtype;
        job.batch = from.batch, job.time = from.time, job.head_dim = from.lanes;
    } else if (dtype != job.dtype || from.batch != job.batch || from.time != job.time) {
        return false;
    }
    // Values may have heads of another width than the queries.
    if (rotated && from.lanes != job.head_dim) return false;
    Side &side = job.side[job.sides];
    side = {};
    side.x = x.data;
    side.heads = from.heads, side.lanes = from.lanes;
    side.x_batch = from.batch_step, side.x_time = from.time_step;
    side.x_head = from.head_step, side.x_lane = from.lane_step;
    side.rotated = rotated;
    side.slotted = slotted;
    if (in == out) {
        if (x.repeats()) return false;
        y = x;
    } else if (!read_view(out, y) || y.element != x.element) {
        return false;
    }
    side.y = y.data;
    if (slotted) {
        // (blocks, block_size, heads, lanes)
        if (y.rank != 4 || y.shape[2] != from.heads || y.shape[3] != from.lanes) return false;
        if (y.repeats()) return false;
        const int64_t capacity = y.shape[0] * y.shape[1];
        if (job.block_size && (job.block_size != y.shape[1] || job.capacity != capacity))
            return false;
        job.block_size = y.shape[1];
        job.capacity = capacity;
        const char *x_low, *x_high, *y_low, *y_high;
        x.extent(x_low, x_high);
        y.extent(y_low, y_high);
        if (capacity && x_low < y_high && y_low < x_high) return false;
        side.y_batch = y.stride[0], side.y_time = y.stride[1];
        side.y_head = y.stride[2], side.y_lane = y.stride[3];
    } else {
        Axes to;
        if (in != out && (!same_shape(x, y) || !safe_output(x, y))) return false;
        if (!read_axes(y, order, to)) return false;
        side.y_batch = to.batch_step, side.y_time = to.time_step;
        side.y_head = to.head_step, side.y_lane = to.lane_step;
    }
    if (weight) {
        View w;
        const Element wide = job.dtype == Dtype::f64 ? Element::f64 : Element::f32;
        if (!read_view(weight, w) || w.element != wide || w.rank != 1 ||
            w.shape[0] != job.head_dim || (w.stride[0] != 1 && w.shape[0] > 1))
            return false;
        side.weight = w.data;
    }
    ++job.sides;
    return true;
}

// Whether a side's results can be written past the caches: apart from the input, without gaps
// in a vector, each head on a boundary of 64 bytes.
bool aligned_apart(const Side &side, const Job &job) {
    if (!side.rotated || side.slotted || side.weight || side.x == side.y || side.y_lane != 1)
        return false;
    const int64_t size = kItemSize[int(job.dtype)];
    const int64_t places[] = {int64_t(reinterpret_cast<uintptr_t>(side.y)) + job.offset * size,
                              job.planes * size,
                              side.heads > 1 ? side.y_head * size : 0,
                              job.time > 1 ? side.y_time * size : 0,
                              job.batch > 1 ? side.y_batch * size : 0};
    for (const int64_t place : places)
        if (place % 64) return false;
    return true;
}

struct Running {
    const Job &job;
    Runner run;
};

void run_piece(void *context, int64_t first, int64_t last) {
    const auto *running = static_cast<const Running *>(context);
    running->run(running->job, first, last);
}

}  // namespace

Outcome perform(const Request &request) {
    const auto once = [](PyObject *out, PyObject *in) { return out == in ? nullptr : out; };
    PyObject *const inputs[] = {request.q,
                                request.k,
                                request.v,
                                once(request.q_out, request.q),
                                once(request.k_out, request.k),
                                once(request.v_out, request.v),
                                request.cos,
                                request.sin,
                                request.q_weight,
                                request.k_weight};
    if (!plain_eager(inputs, int(sizeof inputs / sizeof *inputs))) return Outcome::unsupported;
    Job job = {};
    Order order;
    if (!read_pairing(request.pairing, job.adjacent)) return Outcome::unsupported;
    if (!read_order(request.order, order)) return Outcome::unsupported;
    job.inverse = request.inverse;
    job.eps = request.eps;
    job.weight_shift = request.weight_shift;
    const bool slotted = request.slots != nullptr;
    if (!add_side(request.q, request.q_out, order, false, request.q_weight, true, job))
        return Outcome::unsupported;
    if (request.k &&
        !add_side(request.k, request.k_out, order, slotted, request.k_weight, true, job))
        return Outcome::unsupported;
    if (request.v && !add_side(request.v, request.v_out, order, slotted, nullptr, false, job))
        return Outcome::unsupported;
    // Two outputs that meet would be a race.
    if (job.sides > 1 && job.side[0].y == job.side[1].y && job.batch * job.time > 0)
        return Outcome::unsupported;

    View cos, sin;
    if (!read_view(request.cos, cos) || !read_view(request.sin, sin)) return Outcome::unsupported;
    const Element wide = job.dtype == Dtype::f64 ? Element::f64 : Element::f32;
    if (cos.element != wide || sin.element != wide || cos.rank < 1) return Outcome::unsupported;
    job.planes = cos.size(1);
    job.offset = request.rotary_offset;
    if (job.head_dim > kLargestHead || job.offset < 0 ||
        job.offset + 2 * job.planes > job.head_dim)
        return Outcome::unsupported;
    job.cos = cos.data;
    job.sin = sin.data;
    job.axes = 1;
    Outcome outcome = Outcome::done;
    if (request.positions) {
        outcome = read_positions(request, cos, sin, job);
    } else if (request.plane_axes ||
               !read_table(cos, job, job.cos_batch, job.cos_time, job.cos_lane) ||
               !read_table(sin, job, job.sin_batch, job.sin_time, job.sin_lane)) {
        outcome = Outcome::unsupported;
    }
    if (outcome == Outcome::done && slotted) outcome = read_slots(request, job);
    if (outcome != Outcome::done) return outcome;

    int64_t token_bytes = 0;
    for (int s = 0; s < job.sides; ++s)
        token_bytes += job.side[s].heads * job.side[s].lanes * kItemSize[int(job.dtype)];
    const int64_t tokens = job.batch * job.time;
    if (tokens == 0 || token_bytes == 0) return Outcome::done;
    if (tokens * token_bytes >= kPastBytes)
        for (int s = 0; s < job.sides; ++s) job.side[s].past = aligned_apart(job.side[s], job);
    Running running = {job, chosen().run[int(job.dtype)]};
    const int64_t bytes = tokens * token_bytes;
    job.small = bytes < kHoldBytes;
    if (job.small) {
        running.run(job, 0, tokens);
        return Outcome::done;
    }
    int threads = 1;
    if (bytes >= kParallelBytes) {
        threads = request.threads;
        if (threads <= 0) threads = torch_threads();
        if (threads <= 0) threads = int(std::thread::hardware_concurrency());
    }
    int64_t piece = kPieceBytes / token_bytes;
    // At least one piece for each thread.
    if (threads > 1 && piece > (tokens + threads - 1) / threads)
        piece = (tokens + threads - 1) / threads;
    Py_BEGIN_ALLOW_THREADS
    share(tokens, piece < 1 ? 1 : piece, threads, run_piece, &running);
    Py_END_ALLOW_THREADS
    return Outcome::done;
}

}  // namespace ropewalk
