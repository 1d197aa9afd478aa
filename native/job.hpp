// What one call asks for: pointers, strides and options, checked by the caller.
//
// Strides are in elements. A table's width is the number of planes: half the rotated lanes.
#pragma once

#include <cstdint>

namespace ropewalk {

enum class Dtype : int { f32, f64, bf16, f16 };

constexpr int kDtypes = 4;
constexpr int64_t kItemSize[kDtypes] = {4, 8, 2, 2};

// Scratch on a worker's stack is of this many lanes; wider heads go to the readable path.
constexpr int64_t kLargestHead = 2048;
constexpr int kLargestSides = 3;

// The processor's own prefetching ends at a page, and the arithmetic leaves it less room to look
// ahead than a plain loop over the same bytes has: in place, this makes a fifth of the time. An
// address past the end is harmless, but looked up: small work does without.
constexpr int64_t kAhead = 4096;

// One of queries, keys, values.
struct Side {
    const void *x;
    void *y;
    int64_t heads, lanes;  // lanes of a head: head_dim, but for values of another width
    int64_t x_batch, x_time, x_head, x_lane;
    // Where a side is written by slot, batch and time are the strides of block and of place
    // within the block.
    int64_t y_batch, y_time, y_head, y_lane;
    const void *weight;  // lanes of a root mean square norm (float, double for f64), or null
    bool rotated;        // values are copied as they are
    bool slotted;
    bool past;  // written past the caches; all of it is then aligned to 64 bytes
};

struct Job {
    Dtype dtype;
    int64_t batch, time, head_dim, planes, offset;
    bool adjacent, inverse;
    bool small;  // fits the first-level cache

    // Tables: of float (double for f64). Per token, or rows picked by position.
    const void *cos, *sin;
    int64_t cos_batch, cos_time, cos_lane;
    int64_t sin_batch, sin_time, sin_lane;

    // With positions, cos_time and sin_time are the strides of rows.
    const void *positions;  // or null
    bool wide_positions;    // int64, else int32
    int64_t position_axis, position_batch, position_time;
    const int32_t *plane_axes;  // axis of each plane, or null
    int64_t axes, rows;

    const int64_t *slots;  // or null; -1: nothing is written
    int64_t slot_batch, slot_time, block_size, capacity;

    double eps, weight_shift;

    int sides;
    Side side[kLargestSides];
};

// Rotates tokens first … last - 1 of the flattened (batch, time).
using Runner = void (*)(const Job &, int64_t first, int64_t last);

// Rows of cos and sin at integer positions: position = start + row, or positions[row].
struct TableJob {
    const uint64_t *fractions;  // of a turn, per plane
    int64_t planes;
    const int64_t *positions;  // or null
    int64_t start;
    double factor;
    bool backwards;  // the sine's sign is turned
    float *cos, *sin;
    int64_t row_stride;
};

using TableRunner = void (*)(const TableJob &, int64_t first, int64_t last);

struct Kernels {
    const char *name;
    Runner run[kDtypes];
    TableRunner table;
};

}  // namespace ropewalk
