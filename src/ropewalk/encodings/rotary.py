"""RoPE as one encoding among the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..rope import Rope
from ..rotation import rotate
from .base import Encoding, FloatArray, Parameters, dot


@dataclass(frozen=True, kw_only=True)
class Rotary(Encoding):
    """Queries and keys turned by their positions; any `Rope`, partial and stretched ones too.

    Attributes:
        rope: the rotary embedding.

    Source: Su et al. 2021, arXiv 2104.09864.
    """

    kind: ClassVar[str] = "rotary"
    rope: Rope

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
        """See `Encoding.scores`."""
        return dot(
            turned(self.rope, q, query_positions, length),
            turned(self.rope, k, key_positions, length),
            scale,
        )


def turned(rope: Rope, x: Any, positions: Any, length: int | None) -> FloatArray:
    """Return (heads, time, head_dim) turned by its positions, in float64."""
    cos, sin = rope.cos_sin(np.asarray(positions), length=length, dtype=np.float64)
    out: FloatArray = rotate(
        np.asarray(x, dtype=np.float64),
        cos,
        sin,
        pairing=rope.pairing,
        order="heads_time",
        rotary_offset=rope.rotary_offset,
    )
    return out
