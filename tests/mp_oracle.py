"""The oracle of the core's tests: every formula again, plane by plane, with 60 digits.

Nothing here shares code with the package: the formulas are written from the papers, one
scalar at a time, in mpmath. Whole numbers and floats enter with the value they have.
"""

from __future__ import annotations

import mpmath

from ropewalk import (
    NTK,
    Clipped,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    NTKCritical,
    Plain,
    Proportional,
    Rope,
    YaRN,
)

mp = mpmath.MPContext()
mp.dps = 60


def frequencies(rope: Rope, length: int | None = None):
    """The rope's frequencies, radians per token, as mpmath numbers."""
    s, d, theta = rope.scaling, rope.rotary_dim, mp.mpf(rope.theta)

    def plain(i, base=theta):
        return base ** (-mp.mpf(2 * i) / d)

    planes = range(d // 2)
    if isinstance(s, Plain):
        return [plain(i) for i in planes]
    if isinstance(s, Linear):
        return [plain(i) / mp.mpf(s.factor) for i in planes]
    if isinstance(s, NTK):
        base = theta * mp.mpf(s.factor) ** (mp.mpf(d) / (d - 2))
        return [plain(i, base) for i in planes]
    if isinstance(s, NTKCritical):
        turns = mp.mpf(s.original_length) / (2 * mp.pi)
        base = theta ** (mp.log(turns * mp.mpf(s.factor)) / mp.log(turns))
        return [plain(i, base) for i in planes]
    if isinstance(s, DynamicNTK):
        text = max(length or 0, s.original_length)
        grown = 1 + mp.mpf(s.factor) * (mp.mpf(text) / s.original_length - 1)
        base = theta * grown ** (mp.mpf(d) / (d - 2))
        return [plain(i, base) for i in planes]
    if isinstance(s, LongRoPE):
        long = length is not None and length > s.original_length
        divisors = s.long_factor if long else s.short_factor
        return [plain(i) / mp.mpf(divisors[i]) for i in planes]
    if isinstance(s, Llama3):
        return [plain(i) * _llama3_kept(s, plain(i)) for i in planes]
    if isinstance(s, Proportional):
        turning = int(s.share * d // 2)
        return [plain(i) / mp.mpf(s.factor) if i < turning else mp.mpf(0) for i in planes]
    if isinstance(s, Clipped):
        return [f if s.original_length * f >= 2 * mp.pi else mp.mpf(0) for f in map(plain, planes)]
    if isinstance(s, NTKByParts | YaRN):
        out = []
        for i in planes:
            share = _interpolated(s, d, theta, i)
            out.append(plain(i) * (1 - share + share / mp.mpf(s.factor)))
        return out
    raise AssertionError(f"no oracle for {s!r}")


def amplitude(rope: Rope, length: int | None = None):
    """The number that cos and sin are multiplied by."""
    s = rope.scaling
    if isinstance(s, YaRN):
        if s.attention_factor is not None:
            return mp.mpf(s.attention_factor)

        def temperature(slope):
            return 1 + mp.mpf(slope) * mp.log(mp.mpf(s.factor)) / 10

        if s.mscale and s.mscale_all_dim:
            return temperature(s.mscale) / temperature(s.mscale_all_dim)
        return temperature(1)
    if isinstance(s, LongRoPE):
        long = length is not None and length > s.original_length
        by_list = s.long_mscale if long else s.short_mscale
        for given in (by_list, s.attention_factor):
            if given is not None:
                return mp.mpf(given)
        return mp.sqrt(1 + mp.log(mp.mpf(s.factor)) / mp.log(s.original_length))
    return mp.mpf(1)


def _llama3_kept(s: Llama3, frequency):
    """Share of the frequency that is left: from 1 / factor to 1, linear in the turns."""
    turns = s.original_length * frequency / (2 * mp.pi)
    low, high = mp.mpf(s.low_freq_factor), mp.mpf(s.high_freq_factor)
    if turns > high:
        return mp.mpf(1)
    if turns < low:
        return 1 / mp.mpf(s.factor)
    share = (turns - low) / (high - low)
    return share + (1 - share) / mp.mpf(s.factor)


def _interpolated(s, d, theta, i):
    """Share of interpolation of plane i, 0 to 1."""
    slow, fast = mp.mpf(s.beta_slow), mp.mpf(s.beta_fast)
    if s.ramp == "rotations":
        turns = s.original_length / (2 * mp.pi) * theta ** (-mp.mpf(2 * i) / d)
        return min(max((fast - turns) / (fast - slow), mp.mpf(0)), mp.mpf(1))

    def index_of(turns):
        return d / mp.mpf(2) * mp.log(s.original_length / (2 * mp.pi * turns), theta)

    first, last = index_of(fast), index_of(slow)
    if s.truncate is not False:
        first, last = mp.floor(first), mp.ceil(last)
    first, last = max(first, mp.mpf(0)), min(last, mp.mpf(d - 1))
    if first == last:
        last += mp.mpf(0.001)
    return min(max((i - first) / (last - first), mp.mpf(0)), mp.mpf(1))


def _longrope(planes: int, **fields) -> LongRoPE:
    short = tuple(1 + 0.013 * i for i in range(planes))
    long = tuple(1.05 + 0.71 * i for i in range(planes))
    return LongRoPE(short_factor=short, long_factor=long, **fields)


ROPES: dict[str, tuple[Rope, int | None]] = {
    "plain": (Rope(head_dim=128), None),
    "plain, one plane": (Rope(head_dim=2, theta=100.0), None),
    "plain, 256 lanes, theta 1e9": (Rope(head_dim=256, theta=1e9), None),
    "plain, theta 100": (Rope(head_dim=64, theta=100), None),
    "plain, theta 500000": (Rope(head_dim=128, theta=5e5), None),
    "plain, theta with digits": (Rope(head_dim=80, rotary_dim=20, theta=11158840.7), None),
    "linear": (Rope(head_dim=128, scaling=Linear(factor=8)), None),
    "linear, odd factor": (Rope(head_dim=64, theta=1e6, scaling=Linear(factor=3.7)), None),
    "ntk": (Rope(head_dim=128, scaling=NTK(factor=4)), None),
    "ntk, 4 lanes": (Rope(head_dim=4, theta=100, scaling=NTK(factor=2.5)), None),
    "ntk-critical": (
        Rope(head_dim=128, scaling=NTKCritical(factor=8, original_length=4096)),
        None,
    ),
    "dynamic, short": (
        Rope(head_dim=128, scaling=DynamicNTK(factor=8.3, original_length=2048)),
        2048,
    ),
    "dynamic, grown": (
        Rope(head_dim=128, scaling=DynamicNTK(factor=2, original_length=2048)),
        7001,
    ),
    "dynamic, no length": (
        Rope(head_dim=96, theta=1e6, scaling=DynamicNTK(factor=4, original_length=4096)),
        None,
    ),
    "by-parts": (Rope(head_dim=128, scaling=NTKByParts(factor=16, original_length=4096)), None),
    "by-parts, index": (
        Rope(
            head_dim=64,
            theta=1e9,
            scaling=NTKByParts(factor=3, original_length=512, ramp="index"),
        ),
        None,
    ),
    "yarn": (
        Rope(head_dim=128, theta=1e6, scaling=YaRN(factor=4, original_length=32768)),
        None,
    ),
    "yarn, DeepSeek-V3": (
        Rope(
            head_dim=64,
            pairing="adjacent",
            scaling=YaRN(factor=40, original_length=4096, mscale=1.0, mscale_all_dim=1.0),
        ),
        None,
    ),
    "yarn, mscale pair": (
        Rope(
            head_dim=64,
            scaling=YaRN(factor=40, original_length=4096, mscale=1.0, mscale_all_dim=0.707),
        ),
        None,
    ),
    "yarn, gpt-oss": (
        Rope(
            head_dim=64,
            theta=150000,
            scaling=YaRN(factor=32, original_length=4096, truncate=False),
        ),
        None,
    ),
    "yarn, given factor": (
        Rope(
            head_dim=256,
            theta=1e7,
            scaling=YaRN(
                factor=2.5, original_length=8192, beta_fast=20, beta_slow=2, attention_factor=1.33
            ),
        ),
        None,
    ),
    "yarn, step at one index": (
        Rope(
            head_dim=64,
            theta=1e4,
            # Both turn counts fall on the same index, below 0, so the ramp is a step there.
            scaling=YaRN(factor=4, original_length=6, beta_fast=32, beta_slow=1),
        ),
        None,
    ),
    "yarn, rotations": (
        Rope(head_dim=128, scaling=YaRN(factor=8, original_length=4096, ramp="rotations")),
        None,
    ),
    "llama3": (
        Rope(
            head_dim=128,
            theta=5e5,
            scaling=Llama3(factor=8, low_freq_factor=1, high_freq_factor=4, original_length=8192),
        ),
        None,
    ),
    "llama3, step": (
        Rope(
            head_dim=128,
            theta=5e5,
            scaling=Llama3(factor=16, low_freq_factor=1, high_freq_factor=1, original_length=8192),
        ),
        None,
    ),
    "longrope, short": (
        Rope(head_dim=96, scaling=_longrope(48, factor=32.0, original_length=4096)),
        4096,
    ),
    "longrope, long": (
        Rope(head_dim=128, rotary_dim=96, scaling=_longrope(48, factor=32.0, original_length=4096)),
        4097,
    ),
    "longrope, Phi-MoE": (
        Rope(
            head_dim=96,
            scaling=_longrope(48, original_length=4096, short_mscale=1.1, long_mscale=1.243),
        ),
        9000,
    ),
    "proportional": (
        Rope(head_dim=512, theta=1e6, scaling=Proportional(share=0.25, factor=8)),
        None,
    ),
    "clipped": (Rope(head_dim=128, theta=5e5, scaling=Clipped(original_length=8192)), None),
    "clipped, no plane left": (Rope(head_dim=8, scaling=Clipped(original_length=6)), None),
}
"""Ropes of every scaling, each with the length that it is evaluated at."""
