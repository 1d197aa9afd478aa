// Sharing work among threads without a second pool that spins beside the caller's.
#pragma once

#include <cstdint>

namespace ropewalk {

using Work = void (*)(void *context, int64_t first, int64_t last);

// Calls work over [0, items) in pieces of `piece`, on up to `threads` threads, this one among
// them. Pieces are handed out as threads become free; work must not throw.
void share(int64_t items, int64_t piece, int threads, Work work, void *context);

// Uses the OpenMP runtime that is already loaded from `path` (PyTorch's) from now on: its
// threads are awake and counted already. Returns whether it was found.
bool use_openmp(const char *path);

// "openmp" or "own".
const char *pool_name();

}  // namespace ropewalk
