// From Python's arguments to a checked job.
#pragma once

#include "job.hpp"
#include "view.hpp"

namespace ropewalk {

enum class Outcome : int {
    done = 0,
    unsupported = 1,       // nothing was written; the readable path decides or explains
    outside_table = 2,     // a position has no row; nothing was written
    outside_cache = 3,     // a slot is beyond the cache; nothing was written
};

// Null where absent. Objects are what `read_view` takes.
struct Request {
    PyObject *q, *k, *v;              // k, v may be null
    PyObject *q_out, *k_out, *v_out;  // k_out, v_out are caches where slots are given
    PyObject *cos, *sin;
    PyObject *pairing, *order;        // strings
    PyObject *positions;              // null, an integer, or a view
    PyObject *plane_axes;             // null or a view of int32
    PyObject *q_weight, *k_weight;    // null or views: root mean square norms
    PyObject *slots;                  // null or a view of int64
    int64_t rotary_offset;
    bool inverse;
    double eps, weight_shift;
    int threads;                      // 0: PyTorch's count, or all processors
};

Outcome perform(const Request &request);

}  // namespace ropewalk
