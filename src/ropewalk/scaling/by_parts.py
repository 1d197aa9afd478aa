"""NTK-by-parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .ramp import PartsScaling, Ramp


@dataclass(frozen=True, kw_only=True, repr=False)
class NTKByParts(PartsScaling):
    """NTK-by-parts: fast planes kept, slow ones interpolated, a ramp between, no temperature.

    ``h(f) = (1 - g) f / factor + g f`` with ``g`` rising from 0 at ``beta_slow`` turns over
    the original length to 1 at ``beta_fast``, linear in the turns.

    Source: Peng et al. 2023, YaRN, arXiv 2309.00071, section 3.2, definition 2. The index
    ramp is at hand through ``ramp="index"``.
    """

    kind: ClassVar[str] = "by-parts"
    ramp: Ramp = "rotations"
