"""The formulas that engines share, in float64 NumPy, with what differs as arguments.

An engine's rule is one of these with its own defaults. They are written apart from `scaling`,
which refuses values that make no sense; an engine computes something from those too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Frequencies = npt.NDArray[np.float64]


class UndefinedError(ArithmeticError):
    """A formula that has no value for these numbers; the engine's own arithmetic stops there."""


def log(value: float) -> float:
    """Return the natural logarithm.

    Raises:
        UndefinedError: it has none.
    """
    if not value > 0:
        raise UndefinedError(f"the logarithm of {value:g}")
    return math.log(value)


def whole(value: float) -> int:
    """Return a number of planes or lanes, cut to a whole one.

    Raises:
        UndefinedError: it is infinite or none.
    """
    if not math.isfinite(value):
        raise UndefinedError(f"{value} planes")
    return int(value)


def ladder(theta: float, dim: int, denominator: int | None = None) -> Frequencies:
    """Return ``theta^(-2i/denominator)`` for i below dim / 2, in radians per token.

    Args:
        theta: the base.
        dim: rotated lanes.
        denominator: what exponents are divided by; None for ``dim``.
    """
    exponents = np.arange(0, dim, 2, dtype=np.float64) / (denominator or dim)
    return np.asarray(1.0 / np.float64(theta) ** exponents)


def blend_range(
    theta: float,
    dim: int,
    original: float,
    fast: float,
    slow: float,
    *,
    truncate: bool,
    top: float,
) -> tuple[float, float]:
    """Return the first and last plane of YaRN's blend, limited to [0, top]."""

    def plane(turns: float) -> float:
        return dim * log(original / (turns * 2 * math.pi)) / (2 * log(theta))

    low, high = plane(fast), plane(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, top)
    return low, high + 0.001 if low == high else high


def yarn(
    theta: float,
    dim: int,
    factor: float,
    original: float,
    *,
    fast: float = 32.0,
    slow: float = 1.0,
    truncate: bool = True,
    top: float | None = None,
    mixed: float = 1.0,
    inverted: bool = False,
) -> Frequencies:
    """Return YaRN's frequencies.

    Args:
        theta: the base.
        dim: rotated lanes.
        factor: the stretch.
        original: the length before it.
        fast: turns over it from which a plane is kept.
        slow: turns up to which a plane is interpolated.
        truncate: whether the range of the blend is rounded outwards.
        top: upper limit of the range; None for dim - 1, as in YaRN's own code.
        mixed: share of the unscaled frequencies (``extrapolation_factor``).
        inverted: keep the slow planes and interpolate the fast ones, as litgpt does.
    """
    kept = ladder(theta, dim)
    low, high = blend_range(
        theta, dim, original, fast, slow, truncate=truncate, top=dim - 1 if top is None else top
    )
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0.0, 1.0)
    keep = ramp if inverted else (1.0 - ramp) * mixed
    return np.asarray(kept / factor * (1.0 - keep) + kept * keep)


def llama3(kept: Frequencies, factor: float, low: float, high: float, length: float) -> Frequencies:
    """Return Llama 3's frequencies: kept, divided, and between by the number of turns."""
    turns = length * kept / (2 * math.pi)
    if low == high:
        return np.where(turns > high, kept, kept / factor)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray((1.0 - share) * kept / factor + share * kept)


def divided(kept: Frequencies, divisors: Sequence[float]) -> Frequencies:
    """Return the frequencies divided plane by plane (LongRoPE)."""
    return np.asarray(kept / np.asarray(divisors, dtype=np.float64))


def proportional(theta: float, head_dim: int, rotated: int, factor: float = 1.0) -> Frequencies:
    """Return a ladder over the whole head whose planes from ``rotated`` on stand still."""
    out = ladder(theta, head_dim) / factor
    out[rotated:] = 0.0
    return out


def grown_base(theta: float, dim: int, growth: float) -> float:
    """Return the base of NTK scaling: ``theta * growth^(dim / (dim - 2))``."""
    if growth <= 0:
        raise UndefinedError(f"the base would grow by {growth:g}")
    return float(theta * growth ** (dim / (dim - 2)))


def magnitude(factor: float, weight: float = 1.0) -> float:
    """Return YaRN's ``0.1 * weight * ln(factor) + 1``; 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else 0.1 * weight * log(factor) + 1.0


def longrope_magnitude(ratio: float, original: float) -> float:
    """Return LongRoPE's ``sqrt(1 + ln(ratio) / ln(original))``; 1 where nothing is stretched."""
    if ratio <= 1:
        return 1.0
    square = 1 + log(ratio) / log(original)
    if square < 0:
        raise UndefinedError(f"the square root of {square:g}")
    return math.sqrt(square)
