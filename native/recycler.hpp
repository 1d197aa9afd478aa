// Memory for large fresh results that is kept when they are dropped, and used again.
//
// PyTorch's CPU allocator gives large memory back to the system at once, and the next result
// costs a page fault for each 4 KB, several times the price of the rotation that fills it. A model
// makes results of the same size in every layer. What is kept is bounded.
#pragma once

#include <cstddef>

namespace ropewalk {

struct Block {
    void *data = nullptr;
    size_t bytes = 0;
};

// A block of at least `bytes`, on large pages where the system has them; data is null where
// there is no memory, or no such system call.
Block take(size_t bytes);

void give_back(Block block);

// Bytes that are kept and in nobody's hands.
size_t held_bytes();

// Gives all of them to the system.
void release_all();

}  // namespace ropewalk
