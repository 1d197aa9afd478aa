"""Linear position interpolation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import Scaling, check_factor
from .field import Array, Field, ladder


@dataclass(frozen=True, kw_only=True, repr=False)
class Linear(Scaling):
    """Position interpolation: every frequency divided by ``factor``.

    Dividing the frequencies equals dividing the positions, so no position exceeds what was
    trained, and neighbouring tokens move ``factor`` times closer in every plane.

    Source: Chen et al. 2023, Position Interpolation, arXiv 2306.15595, equation 4.
    Valid for ``factor >= 1``.
    """

    kind: ClassVar[str] = "linear"
    factor: float

    def __post_init__(self) -> None:
        """Refuse a factor below 1."""
        super().__post_init__()
        check_factor("linear: factor", self.factor)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        return ladder(field, field.number(theta), rotary_dim) / field.number(self.factor)

    @property
    def stretch(self) -> float:
        """The factor."""
        return float(self.factor)
