"""Proportional RoPE: the ladder of the whole head, of which only the fast part turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import InputError
from .base import Scaling, check_factor, is_number
from .field import Array, Field, ladder


@dataclass(frozen=True, kw_only=True, repr=False)
class Proportional(Scaling):
    """Proportional RoPE (Gemma 4): frequencies over all lanes, zero but for the first share.

    With head_dim 512 and share 0.25, planes 0..63 have ``theta^(-2i/512)`` and planes
    64..255 stand still. Partial rotary is the opposite rule: its denominator is the number of
    rotated lanes. So here ``rotary_dim`` is the whole head.

    Source: Gemma 4 in transformers, ``_compute_proportional_rope_parameters``.
    Valid for a share in (0, 1] and ``factor >= 1``.
    """

    kind: ClassVar[str] = "proportional"
    share: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a share outside (0, 1] and a factor below 1."""
        super().__post_init__()
        check_factor("proportional: factor", self.factor)
        if not is_number(self.share) or not 0 < self.share <= 1:
            raise InputError(
                "proportional: share",
                found=repr(self.share),
                expected="a number in (0, 1]",
                fix="give the config's partial_rotary_factor",
            )

    def turning_planes(self, rotary_dim: int) -> int:
        """Return how many planes turn."""
        return int(self.share * rotary_dim // 2)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        full = ladder(field, field.number(theta), rotary_dim)
        turning = field.arange(rotary_dim // 2) < self.turning_planes(rotary_dim)
        return field.where(turning, full, full * 0) / field.number(self.factor)

    @property
    def stretch(self) -> float:
        """The factor."""
        return float(self.factor)
