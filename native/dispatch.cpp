#include "dispatch.hpp"

#include <atomic>

#if defined(RW_HAVE_AVX2)
#include <cpuid.h>
#endif

namespace ropewalk {

namespace scalar {
extern const Kernels kernels;
}
#if defined(RW_HAVE_SSE2)
namespace sse2 {
extern const Kernels kernels;
}
#endif
#if defined(RW_HAVE_NEON)
namespace neon {
extern const Kernels kernels;
}
#endif
#if defined(RW_HAVE_AVX2)
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

namespace {
bool has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
}
}  // namespace
#endif

const std::vector<const Kernels *> &available() {
    static const std::vector<const Kernels *> found = [] {
        std::vector<const Kernels *> list = {&scalar::kernels};
#if defined(RW_HAVE_SSE2)
        list.push_back(&sse2::kernels);
#endif
#if defined(RW_HAVE_NEON)
        list.push_back(&neon::kernels);
#endif
#if defined(RW_HAVE_AVX2)
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx2") && has_f16c()) {
            list.push_back(&avx2::kernels);
            if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
                list.push_back(&avx512::kernels);
        }
#endif
        return list;
    }();
    return found;
}

namespace {
std::atomic<const Kernels *> current{nullptr};
}

const Kernels &chosen() {
    const Kernels *kernels = current.load(std::memory_order_relaxed);
    return kernels ? *kernels : *available().back();
}

bool choose(const std::string &name) {
    for (const Kernels *kernels : available()) {
        if (name == kernels->name) {
            current.store(kernels);
            return true;
        }
    }
    return false;
}

}  // namespace ropewalk
