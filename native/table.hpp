// Rows of cos and sin from 64-bit fractions of a turn, right to half a unit in the last place
// of 1.0 in float32 at every position.
//
// position * fraction, modulo 2^64, is the angle with whole turns dropped, exactly. Its two
// upper bits, after rounding, are the quadrant; the rest is an angle within an eighth of a turn,
// of which 51 bits are kept (error below 2^-52 turns). There the Taylor polynomials of sine
// (to x^13) and cosine (to x^14) are off by less than 3e-14.
#pragma once

#include "job.hpp"
#include "vectors.hpp"

namespace ropewalk {
namespace RW_ISA {
namespace {

constexpr double kTurn = 6.283185307179586476925286766559;

#if RW_BYTES > 0
template <int N>
struct Angles {
    using D = Vector<double, N>;
    using U = Vector<uint64_t, N>;
    using S = Vector<float, N>;
    static U read_fractions(const uint64_t *p) { return read<U>(p); }
    static void store(float *p, D v) { write(p, __builtin_convertvector(v, S)); }
};
#endif

struct OneAngle {
    using D = double;
    using U = uint64_t;
    static U read_fractions(const uint64_t *p) { return *p; }
    static void store(float *p, D v) { *p = float(v); }
};

template <class A, int N>
inline int64_t fill_planes(const TableJob &job, uint64_t position, float *cos, float *sin,
                           int64_t i) {
    using D = typename A::D;
    using U = typename A::U;
    for (; i + N <= job.planes; i += N) {
        const U angle = A::read_fractions(job.fractions + i) * position;
        const U shifted = angle + (uint64_t(1) << 61);
        const U quadrant = shifted >> 62;
        // The bits of 2^52 + value: an exact conversion that every instruction set has.
        const U bits = ((shifted & ((uint64_t(1) << 62) - 1)) >> 11) | 0x4330000000000000u;
        const D x = (bits_as<D>(bits) - (0x1p52 + 0x1p50)) * (kTurn * 0x1p-53);
        const D z = x * x;
        D s = z * (1.0 / 6227020800.0) - 1.0 / 39916800.0;
        s = s * z + 1.0 / 362880.0;
        s = s * z - 1.0 / 5040.0;
        s = s * z + 1.0 / 120.0;
        s = s * z - 1.0 / 6.0;
        s = s * z * x + x;
        D c = z * (-1.0 / 87178291200.0) + 1.0 / 479001600.0;
        c = c * z - 1.0 / 3628800.0;
        c = c * z + 1.0 / 40320.0;
        c = c * z - 1.0 / 720.0;
        c = c * z + 1.0 / 24.0;
        c = c * z - 0.5;
        c = c * z + 1.0;
        // (cos, sin) by quadrant: (c, s), (-s, c), (-c, -s), (s, -c).
        const U odd = U{} - (quadrant & 1);
        const U c_bits = bits_as<U>(c), s_bits = bits_as<U>(s);
        const U low = (odd & s_bits) | (~odd & c_bits), high = (odd & c_bits) | (~odd & s_bits);
        const U cos_sign = ((quadrant + 1) >> 1 & 1) << 63;
        const U sin_sign = ((quadrant >> 1) ^ uint64_t(job.backwards)) << 63;
        A::store(cos + i, bits_as<D>(U(low ^ cos_sign)) * job.factor);
        A::store(sin + i, bits_as<D>(U(high ^ sin_sign)) * job.factor);
    }
    return i;
}

void fill_table(const TableJob &job, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
        const auto position = uint64_t(job.positions ? job.positions[r] : job.start + r);
        float *cos = job.cos + r * job.row_stride, *sin = job.sin + r * job.row_stride;
        int64_t i = 0;
#if RW_BYTES > 0
        constexpr int N = RW_BYTES / 8;
        i = fill_planes<Angles<N>, N>(job, position, cos, sin, i);
#endif
        fill_planes<OneAngle, 1>(job, position, cos, sin, i);
    }
}

}  // namespace
}  // namespace RW_ISA
}  // namespace ropewalk
