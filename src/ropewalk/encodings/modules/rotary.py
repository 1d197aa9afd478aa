"""RoPE in PyTorch, by the exact tables and the fast rotation."""

from __future__ import annotations

import torch
from torch import Tensor

from ...rope import Rope
from ...tables import cos_sin
from ...torch.functional import rotate
from ..rotary import Rotary
from .base import PositionModule


class RotaryModule(PositionModule):
    """Turns queries and keys by their positions."""

    encoding: Rotary

    def keys(self, k: Tensor, positions: Tensor, length: int | None = None) -> tuple[Tensor, ...]:
        """See `PositionModule.keys`."""
        return (turned(self.encoding.rope, k, positions, length),)

    def queries(
        self, q: Tensor, positions: Tensor, length: int | None = None
    ) -> tuple[Tensor, ...]:
        """See `PositionModule.queries`."""
        return self.keys(q, positions, length)


def turned(rope: Rope, x: Tensor, positions: Tensor, length: int | None) -> Tensor:
    """Return (batch, heads, time, head_dim) turned by positions (time,) or (batch, time)."""
    double = torch.float64 if x.dtype == torch.float64 else None
    cos, sin = cos_sin(rope, positions, length=length, dtype=double)
    return rotate(
        x,
        cos,
        sin,
        pairing=rope.pairing,
        order="heads_time",
        rotary_offset=rope.rotary_offset,
    )
