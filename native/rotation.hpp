// The rotation of tokens. The specification is src/ropewalk/rotation/reference.py: two products
// and one sum per lane, never fused (the build turns contraction off), rounded once. So results
// are the same bits on every instruction set and for every number of threads.
#pragma once

#include "job.hpp"
#include "vectors.hpp"

#include <cmath>

namespace ropewalk {
namespace RW_ISA {
namespace {

// Cos and sin of one token. The second pair: the same, each 2N planes in the order that
// `turn_words` wants; null where it isn't used.
template <class F>
struct Row {
    const F *cos, *sin, *words_cos, *words_sin;
    int64_t ahead;  // bytes that are fetched ahead
};

// N planes at once: (a, b) -> (a cos - b sin, a sin + b cos); the inverse has -sin.
template <bool Inverse, class V>
inline void turn(V &a, V &b, const V c, const V s) {
    const V as = a * s, bs = b * s;
    const V first = Inverse ? a * c + bs : a * c - bs;
    const V second = Inverse ? b * c - as : b * c + as;
    a = first;
    b = second;
}

#if RW_BYTES > 0
// 2N planes of one head whose halves are apart, for bfloat16: a 32-bit word holds two lanes of
// one half, so that lanes need not change places, provided that the row holds the even planes
// of each 2N before the odd ones (`Tokens::prepare`).
template <bool Inverse, bool Past, int N>
inline void turn_words(const bf16 *x, bf16 *y, int64_t planes, Vector<float, N> even_cos,
                       Vector<float, N> odd_cos, Vector<float, N> even_sin,
                       Vector<float, N> odd_sin) {
    using Pairs = Lanes<bf16, N>;
    Vector<float, N> even_a, odd_a, even_b, odd_b;
    Pairs::load_pairs(x, even_a, odd_a);
    Pairs::load_pairs(x + planes, even_b, odd_b);
    turn<Inverse>(even_a, even_b, even_cos, even_sin);
    turn<Inverse>(odd_a, odd_b, odd_cos, odd_sin);
    Pairs::template store_pairs<Past>(y, even_a, odd_a);
    Pairs::template store_pairs<Past>(y + planes, even_b, odd_b);
}

// N planes (2N where lanes come as words) from plane i on.
template <class X, class Y, bool Adjacent, bool Inverse, bool Words, bool Past, int N, class F>
inline void turn_step(const X *x, Y *y, const F *cos, const F *sin, int64_t planes, int64_t i,
                      int64_t ahead) {
    using V = Vector<F, N>;
    const auto *lanes = reinterpret_cast<const char *>(x + (Adjacent ? 2 * i : i));
    __builtin_prefetch(lanes + ahead);
    __builtin_prefetch(lanes + ahead + (Adjacent ? N : planes) * int64_t(sizeof(X)));
    if constexpr (Words) {
        turn_words<Inverse, Past, N>(x + i, y + i, planes, read<V>(cos + i), read<V>(cos + i + N),
                               read<V>(sin + i), read<V>(sin + i + N));
    } else {
        using In = Lanes<X, N>;
        using Out = Lanes<Y, N>;
        const V c = read<V>(cos + i), s = read<V>(sin + i);
        V a, b;
        if constexpr (Adjacent) {
            In::load_pairs(x + 2 * i, a, b);
        } else {
            a = In::load(x + i);
            b = In::load(x + planes + i);
        }
        turn<Inverse>(a, b, c, s);
        if constexpr (Adjacent) {
            Out::template store_pairs<Past>(y + 2 * i, a, b);
        } else {
            Out::template store<Past>(y + i, a);
            Out::template store<Past>(y + planes + i, b);
        }
    }
}
#endif

// How many lanes of F a vector has, and whether rows are prepared for words.
#if RW_BYTES > 0
template <class F>
constexpr int kLanes = RW_BYTES / int(sizeof(F));
template <class X, class Y, bool Adjacent>
constexpr bool kWords = !Adjacent && IsBf16<X>::value && IsBf16<Y>::value;
#else
template <class X, class Y, bool Adjacent>
constexpr bool kWords = false;
#endif

// The rotated lanes of `heads` heads of one token; x and y are the first of them.
template <class X, class Y, bool Adjacent, bool Inverse, bool Past = false, class F>
inline void turn_heads(const X *x, int64_t x_head, int64_t x_lane, Y *y, int64_t y_head,
                       int64_t y_lane, int64_t heads, Row<F> row, int64_t planes) {
    for (int64_t h = 0; h < heads; ++h, x += x_head, y += y_head) {
        int64_t i = 0;
#if RW_BYTES > 0
        if (x_lane == 1 && y_lane == 1) {
            constexpr int N = kLanes<F>;
            if constexpr (kWords<X, Y, Adjacent>) {
                for (; i + 2 * N <= planes; i += 2 * N)
                    turn_step<X, Y, false, Inverse, true, Past, N>(x, y, row.words_cos, row.words_sin,
                                                             planes, i, row.ahead);
            }
            for (; i + N <= planes; i += N)
                turn_step<X, Y, Adjacent, Inverse, false, Past, N>(x, y, row.cos, row.sin, planes, i,
                                                                   row.ahead);
            if constexpr (N > 8) {
                constexpr int M = N / 2;
                for (; i + M <= planes; i += M)
                    turn_step<X, Y, Adjacent, Inverse, false, false, M>(x, y, row.cos, row.sin, planes,
                                                                 i, row.ahead);
            }
        }
#endif
        const int64_t step = Adjacent ? 2 : 1, other = Adjacent ? 1 : planes;
        for (; i < planes; ++i) {
            F a = widen(x[step * i * x_lane]), b = widen(x[(step * i + other) * x_lane]);
            turn<Inverse>(a, b, row.cos[i], row.sin[i]);
            narrow(a, y + step * i * y_lane);
            narrow(b, y + (step * i + other) * y_lane);
        }
    }
}

// Lanes that are not rotated.
template <class X, class Y>
inline void pass(const X *x, int64_t x_lane, Y *y, int64_t y_lane, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) narrow(widen(x[i * x_lane]), y + i * y_lane);
}
template <class T>
inline void pass(const T *x, int64_t x_lane, T *y, int64_t y_lane, int64_t first, int64_t last) {
    if (x == y || first >= last) return;
    if (x_lane == 1 && y_lane == 1) {
        std::memcpy(y + first, x + first, size_t(last - first) * sizeof(T));
    } else {
        for (int64_t i = first; i < last; ++i) y[i * y_lane] = x[i * x_lane];
    }
}

// x / sqrt(mean(x^2) + eps) * (shift + weight). The sum is over 16 partial sums, lane i into
// sum i mod 16, joined pairwise: an order that every instruction set can keep.
template <class X, class F>
inline void normalise(const X *x, int64_t x_lane, F *out, const F *weight, const Job &job) {
    constexpr int kSums = 16;
    F sums[kSums] = {};
    const int64_t lanes = job.head_dim;
    int64_t i = 0;
#if RW_BYTES > 0
    if (x_lane == 1) {
        constexpr int N = RW_BYTES / int(sizeof(F)), kParts = kSums / N;
        using V = Vector<F, N>;
        V parts[kParts] = {};
        for (; i + kSums <= lanes; i += kSums) {
            for (int p = 0; p < kParts; ++p) {
                const V v = Lanes<X, N>::load(x + i + p * N);
                write(out + i + p * N, v);
                parts[p] += v * v;
            }
        }
        std::memcpy(sums, parts, sizeof sums);
    }
#endif
    for (; i < lanes; ++i) {
        const F v = widen(x[i * x_lane]);
        out[i] = v;
        sums[i % kSums] += v * v;
    }
    for (int half = kSums / 2; half > 0; half /= 2)
        for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    const F scale = F(1) / std::sqrt(sums[0] / F(lanes) + F(job.eps));
    const F shift = F(job.weight_shift);
    for (int64_t j = 0; j < lanes; ++j) out[j] = out[j] * scale * (shift + weight[j]);
}

template <class T, bool Adjacent, bool Inverse>
struct Tokens {
    using F = typename Wide<T>::type;
    // Tokens whose rows are held at once.
    static constexpr int64_t kRows = 32, kHeld = 4096;
    const Job &job;
    Row<F> rows[kRows];
    F gathered[2 * kHeld], words[2 * kHeld];
    F scratch[kLargestHead];

    explicit Tokens(const Job &j) : job(j) {}

    int64_t position(int64_t axis, int64_t b, int64_t t) const {
        const int64_t at = axis * job.position_axis + b * job.position_batch + t * job.position_time;
        return job.wide_positions ? static_cast<const int64_t *>(job.positions)[at]
                                  : static_cast<const int32_t *>(job.positions)[at];
    }

    // Row r of the block is that of token t.
    void prepare(int64_t r, int64_t b, int64_t t) {
        const F *cos = static_cast<const F *>(job.cos), *sin = static_cast<const F *>(job.sin);
        const int64_t planes = job.planes;
        F *own_cos = gathered + 2 * r * planes, *own_sin = own_cos + planes;
        if (job.plane_axes) {
            for (int64_t p = 0; p < planes; ++p) {
                const int64_t at = position(job.plane_axes[p], b, t);
                own_cos[p] = cos[at * job.cos_time + p * job.cos_lane];
                own_sin[p] = sin[at * job.sin_time + p * job.sin_lane];
            }
            cos = own_cos, sin = own_sin;
        } else {
            if (job.positions) {
                const int64_t at = position(0, b, t);
                cos += at * job.cos_time;
                sin += at * job.sin_time;
            } else {
                cos += b * job.cos_batch + t * job.cos_time;
                sin += b * job.sin_batch + t * job.sin_time;
            }
            if (job.cos_lane != 1 || job.sin_lane != 1) {
                for (int64_t p = 0; p < planes; ++p) {
                    own_cos[p] = cos[p * job.cos_lane];
                    own_sin[p] = sin[p * job.sin_lane];
                }
                cos = own_cos, sin = own_sin;
            }
        }
        rows[r] = {cos, sin, nullptr, nullptr, job.small ? 0 : kAhead};
#if RW_BYTES > 0
        if constexpr (kWords<T, T, Adjacent>) {
            constexpr int N = kLanes<F>;
            F *words_cos = words + 2 * r * planes, *words_sin = words_cos + planes;
            for (int64_t i = 0; i + 2 * N <= planes; i += 2 * N) {
                Vector<F, N> even, odd;
                Lanes<F, N>::load_pairs(cos + i, even, odd);
                write(words_cos + i, even);
                write(words_cos + i + N, odd);
                Lanes<F, N>::load_pairs(sin + i, even, odd);
                write(words_sin + i, even);
                write(words_sin + i + N, odd);
            }
            rows[r].words_cos = words_cos;
            rows[r].words_sin = words_sin;
        }
#endif
    }

    // Normalised, then rotated.
    void norm_head(const Side &side, const T *x, T *y, Row<F> row) {
        const int64_t end = job.offset + 2 * job.planes;
        normalise(x, side.x_lane, scratch, static_cast<const F *>(side.weight), job);
        pass<F, T>(scratch, 1, y, side.y_lane, 0, job.offset);
        turn_heads<F, T, Adjacent, Inverse>(scratch + job.offset, 0, 1,
                                            y + job.offset * side.y_lane, 0, side.y_lane, 1, row,
                                            job.planes);
        pass<F, T>(scratch, 1, y, side.y_lane, end, job.head_dim);
    }

    // Heads h0 … h1 - 1 of one token.
    void token(const Side &side, int64_t b, int64_t t, Row<F> row, int64_t h0, int64_t h1) {
        const T *x = static_cast<const T *>(side.x) + b * side.x_batch + t * side.x_time +
                     h0 * side.x_head;
        T *y = static_cast<T *>(side.y) + h0 * side.y_head;
        if (side.slotted) {
            const int64_t slot = job.slots[b * job.slot_batch + t * job.slot_time];
            if (slot < 0) return;
            y += slot / job.block_size * side.y_batch + slot % job.block_size * side.y_time;
        } else {
            y += b * side.y_batch + t * side.y_time;
        }
        if (side.weight) {
            for (int64_t h = h0; h < h1; ++h, x += side.x_head, y += side.y_head)
                norm_head(side, x, y, row);
            return;
        }
        const int64_t end = side.rotated ? job.offset + 2 * job.planes : 0;
        if (x != y && end - job.offset != side.lanes) {
            for (int64_t h = 0; h < h1 - h0; ++h) {
                const T *from = x + h * side.x_head;
                T *to = y + h * side.y_head;
                if (side.rotated) pass(from, side.x_lane, to, side.y_lane, 0, job.offset);
                pass(from, side.x_lane, to, side.y_lane, end, side.lanes);
            }
        }
        if (!side.rotated) return;
        const T *from = x + job.offset * side.x_lane;
        T *to = y + job.offset * side.y_lane;
        if (side.past)
            turn_heads<T, T, Adjacent, Inverse, true>(from, side.x_head, side.x_lane, to,
                                                      side.y_head, side.y_lane, h1 - h0, row,
                                                      job.planes);
        else
            turn_heads<T, T, Adjacent, Inverse>(from, side.x_head, side.x_lane, to, side.y_head,
                                                side.y_lane, h1 - h0, row, job.planes);
    }

    void segment(int64_t b, int64_t first, int64_t last) {
        int64_t held = job.planes ? kHeld / job.planes : kRows;
        if (held > kRows) held = kRows;
        for (int64_t t0 = first; t0 < last; t0 += held) {
            const int64_t count = last - t0 < held ? last - t0 : held;
            for (int64_t r = 0; r < count; ++r) prepare(r, b, t0 + r);
            for (int s = 0; s < job.sides; ++s) {
                const Side &side = job.side[s];
                // Along the axis that lies closer in memory.
                if (side.x_time < side.x_head) {
                    for (int64_t h = 0; h < side.heads; ++h)
                        for (int64_t r = 0; r < count; ++r)
                            token(side, b, t0 + r, rows[r], h, h + 1);
                } else {
                    for (int64_t r = 0; r < count; ++r)
                        token(side, b, t0 + r, rows[r], 0, side.heads);
                }
            }
        }
    }
};

template <class T, bool Adjacent, bool Inverse>
void run_as(const Job &job, int64_t first, int64_t last) {
    Tokens<T, Adjacent, Inverse> tokens(job);
    while (first < last) {
        const int64_t b = first / job.time, t = first % job.time;
        const int64_t left = last - first, in_row = job.time - t;
        const int64_t count = left < in_row ? left : in_row;
        tokens.segment(b, t, t + count);
        first += count;
    }
#if RW_BYTES >= 32
    // Stores past the caches are ordered by nothing else.
    for (int s = 0; s < job.sides; ++s)
        if (job.side[s].past) _mm_sfence();
#endif
}

template <class T>
void run(const Job &job, int64_t first, int64_t last) {
    if (job.adjacent) {
        job.inverse ? run_as<T, true, true>(job, first, last)
                    : run_as<T, true, false>(job, first, last);
    } else {
        job.inverse ? run_as<T, false, true>(job, first, last)
                    : run_as<T, false, false>(job, first, last);
    }
}

}  // namespace
}  // namespace RW_ISA
}  // namespace ropewalk
