"""Llama 3.1's scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import InputError
from .base import Scaling, check_factor, check_positive, require_original_length
from .field import Array, Field, ladder


@dataclass(frozen=True, kw_only=True, repr=False)
class Llama3(Scaling):
    """Llama 3.1: by parts, linear in the turns, without a temperature.

    Planes with more than ``high_freq_factor`` turns over the original length are kept,
    planes with fewer than ``low_freq_factor`` divided by ``factor``; between, the share kept
    is ``(turns - low) / (high - low)``.

    Source: Meta's llama-models, ``apply_scaling``; the order of operations is that of
    transformers. Valid for ``factor >= 1`` and ``0 < low_freq_factor <= high_freq_factor``.
    """

    kind: ClassVar[str] = "llama3"
    factor: float
    low_freq_factor: float
    high_freq_factor: float

    def __post_init__(self) -> None:
        """Refuse factors that make no band."""
        super().__post_init__()
        check_factor("llama3: factor", self.factor)
        check_positive("llama3: low_freq_factor", self.low_freq_factor)
        check_positive("llama3: high_freq_factor", self.high_freq_factor)
        require_original_length(self)
        # Equal ones are valid: Llama 4's original files carry 1 and 1, a step without a ramp.
        if self.low_freq_factor > self.high_freq_factor:
            raise InputError(
                "llama3: low_freq_factor",
                found=f"{self.low_freq_factor:g}, with high_freq_factor {self.high_freq_factor:g}",
                expected="low_freq_factor no greater than high_freq_factor",
                fix="swap them; Llama 3.1 has low 1 and high 4",
            )

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        original = require_original_length(self)
        factor, low, high = map(
            field.number, (self.factor, self.low_freq_factor, self.high_freq_factor)
        )
        kept = ladder(field, field.number(theta), rotary_dim)
        wavelength = 2 * field.pi / kept
        longest_kept, shortest_interpolated = original / high, original / low
        out = field.where(wavelength > shortest_interpolated, kept / factor, kept)
        if low == high:
            return out
        share = (original / wavelength - low) / (high - low)
        blended = (1 - share) * out / factor + share * out
        between = (wavelength >= longest_kept) & (wavelength <= shortest_interpolated)
        return field.where(between, blended, out)

    @property
    def stretch(self) -> float:
        """The factor."""
        return float(self.factor)
