"""The critical-dimension rule for the base."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import InputError
from .base import Scaling, check_factor, require_original_length
from .field import Array, Exact, Field, exact_arithmetic, ladder


def _base(field: Field, theta: float, original_length: int, factor: float) -> Any:
    original, turn = field.number(original_length), 2 * field.pi
    exponent = field.log(field.number(factor) * original / turn) / field.log(original / turn)
    return field.scalar_power(field.number(theta), exponent)


@dataclass(frozen=True, kw_only=True, repr=False)
class NTKCritical(Scaling):
    """The critical-dimension rule: base ``theta^(ln(L'/2π) / ln(L/2π))``.

    ``L`` is the original length and ``L' = factor * L`` the target. The plane that just
    completed one turn over ``L`` (the critical dimension) completes exactly one over ``L'``;
    slower planes, which the model never saw turn fully, stay within what they showed. The
    base grows much more than in `NTK`, which shares the name elsewhere.

    Source: Liu et al. 2023, Scaling Laws of RoPE-based Extrapolation, arXiv 2310.05209,
    equation 7; used as "NTK" by LongRoPE2, arXiv 2502.20082, section 2.3.
    Valid for ``factor >= 1`` and an original length above 2π, that is from 7.
    """

    kind: ClassVar[str] = "ntk-critical"
    factor: float

    def __post_init__(self) -> None:
        """Refuse a factor below 1, and an original length within one radian turn."""
        super().__post_init__()
        check_factor("ntk-critical: factor", self.factor)
        if require_original_length(self) <= 2 * math.pi:
            raise InputError(
                "ntk-critical: original_length",
                found=str(self.original_length),
                expected="at least 7, because the rule divides by ln(L/2π)",
                fix="give the trained length in tokens",
            )

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        base = _base(field, theta, require_original_length(self), self.factor)
        return ladder(field, base, rotary_dim)

    def base(self, theta: float) -> float:
        """Return the base that this scaling computes with, for a model with base ``theta``."""
        with exact_arithmetic():
            return float(_base(Exact(), theta, require_original_length(self), self.factor))

    @property
    def stretch(self) -> float:
        """The factor."""
        return float(self.factor)
