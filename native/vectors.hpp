// Vectors of a width that the including file sets, and how each dtype is read into them.
//
// Written over the vector types of GCC and Clang, so that one text serves AVX-512, AVX2, SSE2
// and NEON; RW_BYTES is the width, 0 asks for plain scalars. Everything lives in a namespace of
// the instruction set: the linker must never take a function compiled for a larger one.
#pragma once

#include <cstdint>
#include <cstring>

#if RW_BYTES >= 32
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ropewalk {
namespace RW_ISA {
namespace {

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

template <class To, class From>
inline To bits_as(const From &value) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To out;
    std::memcpy(&out, &value, sizeof out);
    return out;
}

// The type that lanes are computed in.
template <class T>
struct Wide {
    using type = float;
};
template <>
struct Wide<double> {
    using type = double;
};

template <class T>
struct IsBf16 {
    static constexpr bool value = false;
};
template <>
struct IsBf16<bf16> {
    static constexpr bool value = true;
};

// ---- one lane -------------------------------------------------------------------------

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(bf16 x) { return bits_as<float>(uint32_t(x.bits) << 16); }

inline float widen(f16 x) {
    const uint32_t sign = uint32_t(x.bits & 0x8000u) << 16;
    const uint32_t exponent = (x.bits >> 10) & 31u, fraction = x.bits & 0x3ffu;
    if (exponent == 31) {
        // A signalling NaN becomes a quiet one, as the processors' instructions do it.
        const uint32_t quiet = fraction ? 0x400000u : 0u;
        return bits_as<float>(sign | 0x7f800000u | quiet | fraction << 13);
    }
    if (exponent != 0) return bits_as<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = float(fraction) * 0x1p-24f;  // subnormal: exact
    return bits_as<float>(sign | bits_as<uint32_t>(small));
}

inline void narrow(float x, float *y) { *y = x; }
inline void narrow(double x, double *y) { *y = x; }

inline void narrow(float x, bf16 *y) {
    const uint32_t bits = bits_as<uint32_t>(x);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    y->bits = nan ? uint16_t(0x7fc0u) : uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline void narrow(float x, f16 *y) {
    const uint32_t bits = bits_as<uint32_t>(x), magnitude = bits & 0x7fffffffu;
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) {
        y->bits = uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    } else if (magnitude >= 0x47800000u) {  // 65536 and above
        y->bits = uint16_t(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // below 2^-14: subnormal
        // Adding 1/2 leaves multiples of 2^-24 in the fraction, rounded to even.
        const float shifted = bits_as<float>(magnitude) + 0.5f;
        y->bits = uint16_t(sign | (bits_as<uint32_t>(shifted) - 0x3f000000u));
    } else {
        const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
        y->bits = uint16_t(sign | ((rounded - 0x38000000u) >> 13));
    }
}

#if RW_BYTES > 0
// ---- several lanes --------------------------------------------------------------------

template <class E, int N>
struct VectorOf {
    typedef E type __attribute__((vector_size(sizeof(E) * N)));
};
template <class E, int N>
using Vector = typename VectorOf<E, N>::type;

template <int... I>
struct Indices {};
template <int N, int... I>
struct Count : Count<N - 1, N - 1, I...> {};
template <int... I>
struct Count<0, I...> {
    using type = Indices<I...>;
};

template <class V, class E>
inline V read(const E *p) {
    V out;
    std::memcpy(&out, p, sizeof out);
    return out;
}
// A store past the caches, where the processor has one and the place is aligned to it, is for
// results too large to be found in a cache again: the line is not read before it is written.
template <bool Past, class V, class E>
inline void write(E *p, const V &v) {
#if RW_BYTES == 64
    if constexpr (Past && sizeof(V) == 64) {
        _mm512_stream_si512(reinterpret_cast<__m512i *>(p), bits_as<__m512i>(v));
        return;
    }
#endif
#if RW_BYTES >= 32
    if constexpr (Past && sizeof(V) == 32) {
        _mm256_stream_si256(reinterpret_cast<__m256i *>(p), bits_as<__m256i>(v));
        return;
    }
#endif
    std::memcpy(p, &v, sizeof v);
}
template <class V, class E>
inline void write(E *p, const V &v) {
    write<false>(p, v);
}

// Every second lane of 2N, from lane `First` on.
template <int First, class V, int... I>
inline V every_second(const V &low, const V &high, Indices<I...>) {
    return __builtin_shufflevector(low, high, (2 * I + First)...);
}
// Lanes of a and b in turn: the half of the result that begins at lane `First` of a and b.
template <int First, int N, class V, int... I>
inline V in_turn(const V &a, const V &b, Indices<I...>) {
    return __builtin_shufflevector(a, b, (First + I / 2 + (I % 2) * N)...);
}

// load, store: N lanes in order. load_pairs, store_pairs: 2N lanes as N planes of neighbours.
template <class T, int N>
struct Lanes;

template <class F, int N>
struct PlainLanes {
    using V = Vector<F, N>;
    using I = typename Count<N>::type;
    static V load(const F *p) { return read<V>(p); }
    template <bool Past = false>
    static void store(F *p, V v) {
        write<Past>(p, v);
    }
    static void load_pairs(const F *p, V &a, V &b) {
        const V low = read<V>(p), high = read<V>(p + N);
        a = every_second<0>(low, high, I());
        b = every_second<1>(low, high, I());
    }
    template <bool Past = false>
    static void store_pairs(F *p, V a, V b) {
        write<Past>(p, in_turn<0, N>(a, b, I()));
        write<Past>(p + N, in_turn<N / 2, N>(a, b, I()));
    }
};
template <int N>
struct Lanes<float, N> : PlainLanes<float, N> {};
template <int N>
struct Lanes<double, N> : PlainLanes<double, N> {};

template <int N>
struct Lanes<bf16, N> {
    using V = Vector<float, N>;
    using U = Vector<uint32_t, N>;
    using S = Vector<uint16_t, N>;
    static V load(const bf16 *p) {
        return (V)(__builtin_convertvector(read<S>(p), U) << 16);
    }
    // The rounded value, in the upper half of each 32 bits; the lower half is not cleared.
    static U round(V v) {
        const U bits = (U)v;
        const U rounded = bits + 0x7fffu + (bits >> 16 & 1u);
        return v != v ? U{} + 0x7fc00000u : rounded;
    }
    template <bool Past = false>
    static void store(bf16 *p, V v) {
        write<Past>(p, __builtin_convertvector(round(v) >> 16, S));
    }
    // A pair is one 32-bit word: no lanes need to change places.
    static void load_pairs(const bf16 *p, V &a, V &b) {
        const U words = read<U>(p);
        a = (V)(words << 16);
        b = (V)(words & 0xffff0000u);
    }
    template <bool Past = false>
    static void store_pairs(bf16 *p, V a, V b) {
        write<Past>(p, U((round(a) >> 16) | (round(b) & 0xffff0000u)));
    }
};

template <int N>
struct Lanes<f16, N> {
    using V = Vector<float, N>;
    using S = Vector<uint16_t, N>;
    using I = typename Count<N>::type;
    static V widen_all(S s);
    static S narrow_all(V v);
    static V load(const f16 *p) { return widen_all(read<S>(p)); }
    template <bool Past = false>
    static void store(f16 *p, V v) {
        write<Past>(p, narrow_all(v));
    }
    static void load_pairs(const f16 *p, V &a, V &b) {
        const S low = read<S>(p), high = read<S>(p + N);
        a = widen_all(every_second<0>(low, high, I()));
        b = widen_all(every_second<1>(low, high, I()));
    }
    template <bool Past = false>
    static void store_pairs(f16 *p, V a, V b) {
        const S first = narrow_all(a), second = narrow_all(b);
        write<Past>(p, in_turn<0, N>(first, second, I()));
        write<Past>(p + N, in_turn<N / 2, N>(first, second, I()));
    }
};

template <int N>
inline typename Lanes<f16, N>::V Lanes<f16, N>::widen_all(S s) {
#if RW_BYTES == 64
    if constexpr (N == 16) return (V)_mm512_cvtph_ps((__m256i)s);
#endif
#if RW_BYTES >= 32
    if constexpr (N == 8) return (V)_mm256_cvtph_ps((__m128i)s);
#elif defined(__aarch64__)
    if constexpr (N == 4) return (V)vcvt_f32_f16(bits_as<float16x4_t>(s));
#endif
    V out;
    for (int i = 0; i < N; ++i) out[i] = widen(f16{s[i]});
    return out;
}

template <int N>
inline typename Lanes<f16, N>::S Lanes<f16, N>::narrow_all(V v) {
#if RW_BYTES == 64
    if constexpr (N == 16) return (S)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
#endif
#if RW_BYTES >= 32
    if constexpr (N == 8) return (S)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__aarch64__)
    if constexpr (N == 4) return bits_as<S>(vcvt_f16_f32(bits_as<float32x4_t>(v)));
#endif
    S out;
    for (int i = 0; i < N; ++i) {
        f16 lane;
        narrow(v[i], &lane);
        out[i] = lane.bits;
    }
    return out;
}
#endif  // RW_BYTES > 0

}  // namespace
}  // namespace RW_ISA
}  // namespace ropewalk
