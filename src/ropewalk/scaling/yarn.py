"""YaRN: NTK-by-parts with a temperature on attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..errors import InputError
from .base import check_positive, is_number
from .ramp import PartsScaling

# Models have 0.707 to 1; far beyond, the square of the temperature is no number any more.
_LARGEST_SLOPE = 1e6


def temperature(factor: float, slope: float = 1.0) -> float:
    """Return ``0.1 * slope * ln(factor) + 1``, and 1 for factors up to 1.

    Source: Peng et al. 2023, YaRN, arXiv 2309.00071, equation 22 (slope 1); the slope is
    DeepSeek's ``mscale``.
    """
    return 1.0 if factor <= 1 else 0.1 * slope * math.log(factor) + 1.0


@dataclass(frozen=True, kw_only=True, repr=False)
class YaRN(PartsScaling):
    """YaRN: the bands of NTK-by-parts, and cos and sin multiplied by a number above 1.

    The number, most specific first: ``attention_factor`` as given; with both ``mscale`` and
    ``mscale_all_dim`` nonzero the ratio of the two temperatures; else ``0.1 ln(factor) + 1``.
    It multiplies q and k alike, so scores grow by its square. Models with latent attention
    (DeepSeek) multiply their softmax by another number, `softmax_multiplier`: the two are
    never merged.

    Source: Peng et al. 2023, YaRN, arXiv 2309.00071; ``mscale`` from DeepSeek-V2's code;
    ``truncate`` from gpt-oss, which spells ``beta_fast`` ntk_beta, ``beta_slow`` ntk_alpha,
    ``original_length`` initial_context_length and ``factor`` scaling_factor.
    """

    kind: ClassVar[str] = "yarn"
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def __post_init__(self) -> None:
        """Refuse amplitudes that are no positive numbers."""
        super().__post_init__()
        if self.attention_factor is not None:
            check_positive("yarn: attention_factor", self.attention_factor)
        for name in ("mscale", "mscale_all_dim"):
            value = getattr(self, name)
            if value is not None and (not is_number(value) or not 0 <= value <= _LARGEST_SLOPE):
                raise InputError(
                    f"yarn: {name}",
                    found=repr(value),
                    expected=f"a number from 0 to {_LARGEST_SLOPE:g}"
                    if is_number(value) and value > 0
                    else "a number of at least 0",
                    fix="correct the value or leave the field out",
                )

    def amplitude(self, length: int | None = None) -> float:
        """The number that cos and sin are multiplied by."""
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.mscale and self.mscale_all_dim:
            return temperature(self.factor, self.mscale) / temperature(
                self.factor, self.mscale_all_dim
            )
        return temperature(self.factor)

    def softmax_multiplier(self) -> float:
        """The number that latent-attention models multiply their softmax scale by.

        ``(0.1 * mscale_all_dim * ln(factor) + 1)^2``, and 1 without ``mscale_all_dim``.
        Source: DeepSeek-V2's code, ``softmax_scale * mscale * mscale``.
        """
        if not self.mscale_all_dim:
            return 1.0
        return temperature(self.factor, self.mscale_all_dim) ** 2
