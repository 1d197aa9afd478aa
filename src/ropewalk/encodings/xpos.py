"""xPos: a rotation with an amplitude that falls with the distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..rope import Rope
from ..scaling.base import is_number
from ..tables import check_positions
from .base import Encoding, FloatArray, Parameters, distances
from .rotary import turned


@dataclass(frozen=True, kw_only=True)
class XPos(Encoding):
    """Queries times ``zeta^(n/base)``, keys times ``zeta^(-n/base)``, both rotated.

    With ``zeta_i = (2i/d + 0.4) / 1.4`` for plane i, so that scores fall with the distance,
    the fast planes first. It is no rotation: norms depend on the position. Only relative
    positions count, so any origin of ``n`` gives the same scores.

    For causal attention only: the scores of a key after its query grow with the distance,
    without bound (`notes`).

    Attributes:
        rope: the rotation.
        scale_base: tokens over which the amplitude falls by ``zeta``.

    Source: Sun et al. 2022, "A Length-Extrapolatable Transformer", arXiv 2212.10554, section 3.3.
    """

    kind: ClassVar[str] = "xpos"
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

    def zeta(self) -> npt.NDArray[np.float64]:
        """Return what a plane's products are multiplied by per `scale_base` tokens, (planes,)."""
        lanes = 2 * np.arange(self.rope.planes) / self.rope.rotary_dim
        out: npt.NDArray[np.float64] = (lanes + 0.4) / 1.4
        return out

    def scales(self, positions: Any, origin: int = 0) -> npt.NDArray[np.float64]:
        """Return what queries are multiplied by, ``positions.shape + (planes,)``; keys by 1/it.

        Args:
            positions: position ids.
            origin: the position of scale 1; the same for queries and keys. In the middle of
                the text it keeps the numbers small: at scale_base 512 float32 reaches 34,000
                tokens to either side.
        """
        at = np.asarray(positions)
        check_positions(at)
        away = at.astype(np.float64) - origin
        out: npt.NDArray[np.float64] = self.zeta() ** (away[..., None] / self.scale_base)
        return out

    def tables(self, positions: Any, origin: int = 0) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Return (cos, sin) for queries and (cos, sin) for keys, for `ropewalk.rotate`."""
        cos, sin = self.rope.cos_sin(np.asarray(positions), dtype=np.float64)
        scale = self.scales(positions, origin)
        return (cos * scale, sin * scale), (cos / scale, sin / scale)

    def notes(self) -> list[str]:
        """Return what to know before using it."""
        return [
            (
                "causal attention only: for a key after its query the score grows with the "
                f"distance, in the fastest plane by {1 / self.zeta()[0]:.4g} per "
                f"{self.scale_base:g} tokens"
            )
        ]

    def _scores(
        self,
        q: Any,
        k: Any,
        query_positions: Any,
        key_positions: Any,
        *,
        parameters: Parameters | None = None,
        length: int | None = None,
        scale: float | None = None,
    ) -> FloatArray:
        """See `Encoding.scores`.

        Each plane's product is multiplied by ``zeta^((i - j)/base)``: nothing but the distance
        is in the exponent, so a long text cannot overflow.
        """
        queries = turned(self.rope, q, query_positions, length)
        keys = turned(self.rope, k, key_positions, length)
        steps = distances(query_positions, key_positions) / self.scale_base
        first, planes = self.rope.rotary_offset, self.rope.planes
        rotated = range(first, first + 2 * planes)
        still = [lane for lane in range(queries.shape[-1]) if lane not in rotated]
        out: FloatArray = queries[..., still] @ keys[..., still].swapaxes(-1, -2)
        for plane, zeta in enumerate(self.zeta()):
            if self.rope.pairing == "half":
                lanes = [first + plane, first + plane + planes]
            else:
                lanes = [first + 2 * plane, first + 2 * plane + 1]
            out += zeta**steps * (queries[..., lanes] @ keys[..., lanes].swapaxes(-1, -2))
        return (queries.shape[-1] ** -0.5 if scale is None else scale) * out
