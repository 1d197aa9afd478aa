"""No scaling: positions past the original length are extrapolated directly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import Scaling
from .field import Array, Field, ladder


@dataclass(frozen=True, kw_only=True, repr=False)
class Plain(Scaling):
    """Plain RoPE: ``theta^(-2i/rotary_dim)`` at every length.

    Source: Su et al. 2021, RoFormer, arXiv 2104.09864, section 3.2.2.
    """

    kind: ClassVar[str] = "plain"

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        return ladder(field, field.number(theta), rotary_dim)
