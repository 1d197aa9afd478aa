"""xPos: a rotation with an amplitude that falls with the distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..rope import Rope
from ..scaling.base import is_number
from ..tables import check_positions


@dataclass(frozen=True, kw_only=True)
class XPos:
    """Queries times ``zeta^(n/base)``, keys times ``zeta^(-n/base)``, both rotated.

    With ``zeta_i = (2i/d + 0.4) / 1.4`` for plane i, so that scores fall with the distance,
    the fast planes first. It is no rotation: norms depend on the position. Only relative
    positions count, so any origin of ``n`` gives the same scores.

    Attributes:
        rope: the rotation.
        scale_base: tokens over which the amplitude falls by ``zeta``.

    Source: Sun et al. 2022, "A Length-Extrapolatable Transformer", arXiv 2212.10554, section 3.3.
    """

    rope: Rope
    scale_base: float = 512.0

    def __post_init__(self) -> None:
        """Refuse a base that is no positive number."""
        if not is_number(self.scale_base) or self.scale_base <= 0:
            raise InputError(
                "scale_base",
                found=repr(self.scale_base),
                expected="a positive number of tokens",
                fix="use 512, as the paper does",
            )

    def scales(self, positions: Any) -> npt.NDArray[np.float64]:
        """Return what queries are multiplied by, ``positions.shape + (planes,)``; keys by 1/it."""
        at = np.asarray(positions)
        check_positions(at)
        lanes = 2 * np.arange(self.rope.planes) / self.rope.rotary_dim
        zeta = (lanes + 0.4) / 1.4
        out: npt.NDArray[np.float64] = zeta ** (at.astype(np.float64)[..., None] / self.scale_base)
        return out

    def tables(self, positions: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Return (cos, sin) for queries and (cos, sin) for keys, for `ropewalk.rotate`."""
        cos, sin = self.rope.cos_sin(np.asarray(positions), dtype=np.float64)
        scale = self.scales(positions)
        return (cos * scale, sin * scale), (cos / scale, sin / scale)
