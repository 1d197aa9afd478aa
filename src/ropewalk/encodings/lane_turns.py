"""What looks like a rotation and is none: every lane has an angle of its own.

In a rotation the two lanes of a plane share one angle. V-JEPA 2 builds its table by tiling
while it pairs adjacent lanes, and HunYuan-VL cuts its doubled table into sections, so that the
two lanes of a plane may follow different axes. Norms are then not kept, and scores do not depend
on distances alone. Checkpoints were trained that way: it has to be repeated, not repaired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..axes import MultiAxisRope, Turn
from ..rope import Pairing, Precision, Rope


@dataclass(frozen=True, kw_only=True)
class LaneTurns:
    """Lane j becomes ``x_j cos(a_j) ± x_partner sin(a_j)``; no rotation unless partners agree.

    Attributes:
        head_dim: size of one attention head.
        ladders: as in `MultiAxisRope`.
        lanes: where the angle of each lane comes from; lanes behind pass.
        axes: names of the position axes.
        pairing: which lane is the partner, within a block.
        blocks: equal blocks of lanes, each paired within itself.
        reason: why this is no rotation, in a sentence.
    """

    head_dim: int
    ladders: tuple[Rope, ...]
    lanes: tuple[Turn, ...]
    axes: tuple[str, ...]
    pairing: Pairing
    blocks: int = 1
    reason: str = ""

    def cos_sin(self, positions: Any, *, precision: Precision = "exact") -> tuple[Any, Any]:
        """Return cos and sin of every lane, ``positions.shape[1:] + (lanes,)``."""
        one_each = MultiAxisRope(
            head_dim=2 * len(self.lanes), ladders=self.ladders, planes=self.lanes, axes=self.axes
        )
        return one_each.cos_sin(positions, precision=precision)

    def apply(self, x: Any, cos: Any, sin: Any) -> Any:
        """Return x (…, time, head_dim) after the turn; cos and sin broadcast against it."""
        lanes, size = len(self.lanes), len(self.lanes) // self.blocks
        within, start = np.arange(lanes) % size, np.arange(lanes) // size * size
        if self.pairing == "half":
            first = within < size // 2
            partner = start + np.where(first, within + size // 2, within - size // 2)
        else:
            first = within % 2 == 0
            partner = start + np.where(first, within + 1, within - 1)
        sign = np.where(first, -1.0, 1.0)
        turned = x[..., :lanes]
        signs = sign.astype(np.float32)
        if hasattr(x, "new_tensor"):
            signs = x.new_tensor(sign.tolist())
        out = turned * cos + turned[..., partner.tolist()] * signs * sin
        if lanes == x.shape[-1]:
            return out
        rest = x[..., lanes:]
        if hasattr(x, "new_tensor"):
            import torch

            return torch.cat([out, rest], dim=-1)
        return np.concatenate([out, rest], axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "rotation": False,
            "reason": self.reason,
            "head_dim": self.head_dim,
            "axes": list(self.axes),
            "ladders": [ladder.to_dict() for ladder in self.ladders],
            "lane_axes": [turn.axis for turn in self.lanes],
            "lane_rungs": [turn.rung for turn in self.lanes],
            "lane_ladders": [turn.ladder for turn in self.lanes],
            "pairing": self.pairing,
            "blocks": self.blocks,
        }
