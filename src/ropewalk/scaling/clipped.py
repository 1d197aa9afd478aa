"""Clipped RoPE: planes that never made a full turn in training stand still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import Scaling, require_original_length
from .field import Array, Field, ladder


@dataclass(frozen=True, kw_only=True, repr=False)
class Clipped(Scaling):
    """Frequencies below one turn per original length are 0, all others are kept.

    A plane that makes less than one full turn within the trained length shows angles beyond
    it that no training text had; standing still it shows none. Plane i is kept where
    ``original_length * theta^(-2i/d) >= 2 pi``. A trained model loses what those planes told
    it, within the original length too. With fewer than 7 tokens no plane is left.

    This is the common core of FoPE (Hua et al. 2024, arXiv 2412.17739, whose tables call it
    RoPE-A; FoPE adds a Fourier series per plane) and of HoPE (Chen et al. 2024, arXiv
    2410.21216). In numbers it is `Proportional` with a share that the length decides.
    """

    kind: ClassVar[str] = "clipped"

    def __post_init__(self) -> None:
        """Refuse a missing original length."""
        super().__post_init__()
        require_original_length(self)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        full = ladder(field, field.number(theta), rotary_dim)
        turning = full * require_original_length(self) >= 2 * field.pi
        return field.where(turning, full, full * 0)
