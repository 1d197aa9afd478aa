"""xPos in PyTorch, at any length and with keys that are cached for good."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import InputError
from ...tables import cos_sin
from ...torch.functional import rotate
from ..xpos import XPos
from .base import PositionModule

SEGMENT = 64
"""Length of a segment, in units of `XPos.scale_base`."""
_FLOAT16_MOST = 6.0
"""Units from the middle of a segment at which float16 stops: 3.5^6 is 1837."""


class XPosModule(PositionModule):
    """Turns queries and keys and scales them by powers of their positions.

    One power of the position overflows float32 at 36,000 tokens. So positions count from the
    middle of their segment, 64 * scale_base tokens: segment 0 lies around position 0, and a
    text of 32 * scale_base tokens (16,384 at 512) has no other. In a longer text, queries come
    once for each number of segments between query and key, with that many segments' decay. A
    key's numbers depend on its own position only.
    """

    encoding: XPos

    def keys(self, k: Tensor, positions: Tensor, length: int | None = None) -> tuple[Tensor, ...]:
        """See `PositionModule.keys`."""
        turned = self._turned(k, positions, -self._units(positions), length)
        return (turned,) * self._variants(positions)

    def queries(
        self, q: Tensor, positions: Tensor, length: int | None = None
    ) -> tuple[Tensor, ...]:
        """See `PositionModule.queries`; entry n is for keys n segments back."""
        units = self._units(positions)
        decay = self._segment_length() / self.encoding.scale_base
        return tuple(
            self._turned(q, positions, units + n * decay, length)
            for n in range(self._variants(positions))
        )

    def choice(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """See `PositionModule.choice`: how many segments the key lies back."""
        at, to = self._segments(query_positions), self._segments(key_positions)
        if not bool(at.any()):
            return None
        # A key ahead is behind the causal mask.
        back = (at[..., :, None] - to[..., None, :]).clamp(min=0)
        return back if back.dim() == 2 else back[:, None]

    def _segment_length(self) -> int:
        return max(1, int(SEGMENT * self.encoding.scale_base))

    def _segments(self, positions: Tensor) -> Tensor:
        """Return the number of each position's segment.

        Raises:
            InputError: a position so far below 0 that it is before segment 0.
        """
        size = self._segment_length()
        found = torch.div(positions + size // 2, size, rounding_mode="floor").long()
        if bool((found < 0).any()):
            raise InputError(
                "positions",
                found=f"position {positions.min().item():g}",
                expected=f"at least {-(size // 2)}",
                fix="count from 0; only differences matter",
            )
        return found

    def _units(self, positions: Tensor) -> Tensor:
        """Return the position from the middle of its segment, in units of scale_base."""
        middle = self._segments(positions) * self._segment_length()
        return (positions - middle).double() / self.encoding.scale_base

    def _variants(self, positions: Tensor) -> int:
        return int(self._segments(positions).max()) + 1

    def _turned(self, x: Tensor, positions: Tensor, units: Tensor, length: int | None) -> Tensor:
        """Return x turned by its positions and multiplied by ``zeta^units``."""
        if x.dtype == torch.float16 and float(units.abs().max()) > _FLOAT16_MOST:
            most = int(_FLOAT16_MOST * self.encoding.scale_base)
            raise InputError(
                "q or k",
                found="float16",
                expected=f"at most {most} tokens in float16",
                fix="use bfloat16 or float32, whose exponents reach further",
            )
        rope = self.encoding.rope
        precise = torch.float64 if x.dtype == torch.float64 else None
        cos, sin = cos_sin(rope, positions, length=length, dtype=precise)
        zeta = torch.from_numpy(self.encoding.zeta()).to(units.device)
        scale = (zeta ** units[..., None]).to(cos.dtype)
        return rotate(
            x,
            cos * scale,
            sin * scale,
            pairing=rope.pairing,
            order="heads_time",
            rotary_offset=rope.rotary_offset,
        )
