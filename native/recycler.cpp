#include "recycler.hpp"

#include <cstdlib>
#include <mutex>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace ropewalk {

#if defined(__linux__)
namespace {

constexpr size_t kLargePage = 2 * 1024 * 1024;

struct Kept {
    std::mutex lock;
    std::vector<Block> blocks;  // the most recently dropped last
    size_t bytes = 0;
};

// Never destroyed: tensors may be dropped after static objects are gone.
Kept &kept() {
    static auto *held = new Kept;
    return *held;
}

// A sixteenth of the machine's memory, or ROPEWALK_KEEP_MB.
size_t most_kept() {
    static const size_t most = [] {
        if (const char *asked = std::getenv("ROPEWALK_KEEP_MB"))
            return size_t(std::strtoull(asked, nullptr, 10)) << 20;
        return size_t(sysconf(_SC_PHYS_PAGES)) / 16 * size_t(sysconf(_SC_PAGESIZE));
    }();
    return most;
}

void unmap(Block block) { munmap(block.data, block.bytes); }

}  // namespace

Block take(size_t bytes) {
    // Whole large pages, and a multiple of an eighth of the size, so that lengths which differ
    // by a few tokens share blocks.
    size_t step = kLargePage;
    while (step * 8 < bytes) step *= 2;
    const size_t size = (bytes + step - 1) / step * step;
    {
        Kept &held = kept();
        std::lock_guard<std::mutex> hold(held.lock);
        for (size_t i = held.blocks.size(); i-- > 0;) {
            if (held.blocks[i].bytes != size) continue;
            const Block found = held.blocks[i];
            held.blocks.erase(held.blocks.begin() + std::ptrdiff_t(i));
            held.bytes -= size;
            return found;
        }
    }
    // One page more, so that the block can begin on a large page.
    const size_t wide = size + kLargePage;
    void *mapped = mmap(nullptr, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return {};
    char *const low = static_cast<char *>(mapped), *const high = low + wide;
    char *data = low + (kLargePage - reinterpret_cast<size_t>(low) % kLargePage) % kLargePage;
    if (data > low) munmap(low, size_t(data - low));
    if (data + size < high) munmap(data + size, size_t(high - data) - size);
    (void)madvise(data, size, MADV_HUGEPAGE);  // where it is refused, pages stay small
    return {data, size};
}

void give_back(Block block) {
    std::vector<Block> dropped;
    {
        Kept &held = kept();
        std::lock_guard<std::mutex> hold(held.lock);
        held.blocks.push_back(block);
        held.bytes += block.bytes;
        while (held.bytes > most_kept()) {
            dropped.push_back(held.blocks.front());
            held.bytes -= held.blocks.front().bytes;
            held.blocks.erase(held.blocks.begin());
        }
    }
    for (const Block &old : dropped) unmap(old);
}

size_t held_bytes() {
    Kept &held = kept();
    std::lock_guard<std::mutex> hold(held.lock);
    return held.bytes;
}

void release_all() {
    std::vector<Block> dropped;
    {
        Kept &held = kept();
        std::lock_guard<std::mutex> hold(held.lock);
        dropped.swap(held.blocks);
        held.bytes = 0;
    }
    for (const Block &old : dropped) unmap(old);
}

#else

Block take(size_t) { return {}; }
void give_back(Block) {}
size_t held_bytes() { return 0; }
void release_all() {}

#endif

}  // namespace ropewalk
