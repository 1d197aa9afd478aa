// Compares an instruction set with plain scalars, bit for bit, without Python: for processors
// that are only emulated. Prints the number of jobs and exits with 1 at the first difference.
//
//   aarch64-linux-gnu-g++ -std=gnu++17 -O2 -static -ffp-contract=off -fno-tree-slp-vectorize
//       -DRW_OTHER=neon native/compare_isa.cpp native/isa_neon.cpp native/isa_scalar.cpp
#include "job.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace ropewalk {
namespace scalar {
extern const Kernels kernels;
}
namespace RW_OTHER {
extern const Kernels kernels;
}
}  // namespace ropewalk

using namespace ropewalk;

namespace {

std::mt19937_64 numbers(1);

// Bit patterns of every kind, but no NaN: which of two NaNs survives is the processor's choice.
template <class U>
std::vector<U> patterns(size_t count, U exponent) {
    std::vector<U> out(count);
    for (U &value : out) {
        do value = U(numbers());
        while ((value & exponent) == exponent);
    }
    return out;
}

template <class F>
std::vector<F> angles(size_t count) {
    std::normal_distribution<double> normal;
    std::vector<F> out(count);
    for (F &value : out) value = F(normal(numbers));
    return out;
}

template <class U, class F>
bool same(Dtype dtype, U exponent, int64_t planes, int64_t offset, bool adjacent, bool inverse,
          bool normed) {
    const int64_t time = 3, heads = 2, dim = offset + 2 * planes + 3;
    const size_t count = size_t(time * heads * dim);
    std::vector<U> x = patterns<U>(count, exponent);
    if (normed)  // squares must not overflow
        for (U &value : x) value &= U(~(exponent & (exponent >> 1)));
    const std::vector<F> cos = angles<F>(size_t(time * planes)), sin = angles<F>(cos.size());
    const std::vector<F> weight = angles<F>(size_t(dim));
    std::vector<U> found[2] = {std::vector<U>(count), std::vector<U>(count)};
    for (int which = 0; which < 2; ++which) {
        Job job = {};
        job.dtype = dtype;
        job.batch = 1, job.time = time, job.head_dim = dim;
        job.planes = planes, job.offset = offset, job.adjacent = adjacent, job.inverse = inverse;
        job.cos = cos.data(), job.sin = sin.data();
        job.cos_time = job.sin_time = planes, job.cos_lane = job.sin_lane = 1;
        job.axes = 1, job.eps = 1e-6, job.sides = 1;
        Side &side = job.side[0];
        side.x = x.data(), side.y = found[which].data();
        side.heads = heads, side.lanes = dim;
        side.x_time = side.y_time = heads * dim, side.x_head = side.y_head = dim;
        side.x_lane = side.y_lane = 1;
        side.rotated = true;
        side.weight = normed ? weight.data() : nullptr;
        (which ? RW_OTHER::kernels : scalar::kernels).run[int(dtype)](job, 0, time);
    }
    // Infinity minus infinity may be a NaN of either sign.
    for (size_t i = 0; i < count; ++i) {
        const bool nan = (found[0][i] & exponent) == exponent && (found[1][i] & exponent) == exponent;
        if (found[0][i] != found[1][i] && !nan) return false;
    }
    return true;
}

bool same_table(int64_t planes) {
    std::vector<uint64_t> fractions(static_cast<size_t>(planes));
    for (uint64_t &f : fractions) f = numbers();
    std::vector<float> cos[2], sin[2];
    for (int which = 0; which < 2; ++which) {
        cos[which].resize(size_t(planes) * 9);
        sin[which].resize(size_t(planes) * 9);
        const TableJob job = {fractions.data(), planes, nullptr, 1000000007, 1.25, true,
                              cos[which].data(), sin[which].data(), planes};
        (which ? RW_OTHER::kernels : scalar::kernels).table(job, 0, 9);
    }
    return cos[0] == cos[1] && sin[0] == sin[1];
}

}  // namespace

int main() {
    int jobs = 0;
    for (const int64_t planes : {1, 3, 4, 8, 15, 16, 17, 32, 64})
        for (const int64_t offset : {0, 5})
            for (int bits = 0; bits < 8; ++bits) {
                const bool a = bits & 1, i = bits & 2, n = bits & 4;
                if (!same<uint32_t, float>(Dtype::f32, 0x7f800000u, planes, offset, a, i, n) ||
                    !same<uint64_t, double>(Dtype::f64, 0x7ff0000000000000u, planes, offset, a, i,
                                            n) ||
                    !same<uint16_t, float>(Dtype::bf16, 0x7f80u, planes, offset, a, i, n) ||
                    !same<uint16_t, float>(Dtype::f16, 0x7c00u, planes, offset, a, i, n) ||
                    !same_table(planes)) {
                    std::printf("differ: planes %d offset %d adjacent %d inverse %d norm %d\n",
                                int(planes), int(offset), a, i, n);
                    return 1;
                }
                jobs += 5;
            }
    std::printf("%d jobs, all equal\n", jobs);
    return 0;
}
