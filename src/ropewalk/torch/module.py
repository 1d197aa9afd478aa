"""`RotaryEmbedding`: a rope as a PyTorch module that holds nothing to save, cast or move."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from ..errors import InputError
from ..rope import Rope
from ..rotation.reference import ORDERS, Order, check_option
from ..tables import cos_sin, fill_rows
from . import cos_sin_operator
from .functional import rotate_qk, rotate_qk_

_FIRST_ROWS = 256
_MOST_ROWS = 131072
"""Beyond this, a position given by the caller does not make the tables grow."""


class RotaryEmbedding(torch.nn.Module):
    """Rotates queries and keys by a rope.

    The module has no parameters and no buffers: nothing of it lands in a state_dict, and
    neither a cast to half precision, nor a move, nor loading through the meta device can touch
    the frequencies. Tables are exact, float32 (float64 for float64 queries), made where they
    are first needed and grown without being formed anew; one module may serve all layers.

    Args:
        rope: the rotary embedding.
        max_length: rows of the tables, where it is known: they are then made once, and a
            position beyond them is an error. By default they grow.

    Example:
        >>> rotary = RotaryEmbedding(Rope(head_dim=128, theta=500000))
        >>> q, k = rotary(q, k)  # (batch, time, heads, head_dim), positions 0, 1, 2 …
        >>> q, k = rotary(q, k, offset=past)  # one more token
    """

    def __init__(self, rope: Rope, *, max_length: int | None = None) -> None:
        super().__init__()
        if not isinstance(rope, Rope):
            raise InputError(
                "rope",
                found=type(rope).__name__,
                expected="a Rope",
                fix="e.g. Rope(head_dim=128, theta=10000)",
            )
        if max_length is not None and (not isinstance(max_length, int) or max_length < 1):
            raise InputError(
                "max_length",
                found=repr(max_length),
                expected="a number of positions, at least 1",
                fix="leave it out to let the tables grow",
            )
        self._rope = rope
        # Formed here, because a tracer can't follow it.
        self._text = rope.to_json()
        self.max_length = max_length
        # Whether the frequencies are the same at every length.
        self._steady = not rope.scaling.length_dependent
        self._tables: dict[tuple[torch.device, torch.dtype], _GrowingTable] = {}

    @property
    def rope(self) -> Rope:
        """The rotary embedding; a module is made for one and keeps it."""
        return self._rope

    def __getstate__(self) -> dict[str, Any]:
        """Leave the tables out of copies and pickles."""
        return {**self.__dict__, "_tables": {}}

    def extra_repr(self) -> str:
        """Return what `repr` shows."""
        return repr(self._rope) + (f", max_length={self.max_length}" if self.max_length else "")

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        *,
        positions: Tensor | None = None,
        offset: int = 0,
        length: int | None = None,
        order: Order = "time_heads",
        inverse: bool = False,
        in_place: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return the rotated queries and keys.

        Args:
            q: shape (batch, time, heads, head_dim), or (batch, heads, time, head_dim) for
                ``order="heads_time"``.
            k: as ``q``, with its own number of heads.
            positions: position of each token, (time,) or (batch, time); integers, or floats
                for positions between tokens. By default they count from ``offset``.
            offset: position of the first token, where ``positions`` is not given.
            length: tokens of the whole text; matters to ropes that depend on it (dynamic NTK,
                LongRoPE), by default the largest position plus one.
            order: the order of the axes.
            inverse: turn back.
            in_place: write into ``q`` and ``k``.

        Raises:
            InputError: heads of another width than the rope's, and as `rotate_qk`.
        """
        shape = q.shape
        if order not in ORDERS:
            check_option("order", order)
        if shape[-1] != self._rope.head_dim:
            raise InputError(
                "q",
                found=f"heads of {shape[-1]} lanes",
                expected=f"{self._rope.head_dim}, the head_dim of the rope",
                fix="check head_dim and the order of the axes",
            )
        turn = rotate_qk_ if in_place else rotate_qk
        time = shape[ORDERS[order]]
        tabled = self._steady and not is_compiling()
        if tabled and positions is None:
            cos, sin = self._rows(offset + time, q)
            rows: Any = offset
        elif tabled and positions is not None and (count := self._rows_for(positions)):
            cos, sin = self._rows(count, q)
            rows = positions
        else:
            if positions is None:
                positions = torch.arange(offset, offset + time, device=q.device)
                if length is None and not self._steady:
                    length = offset + time
            cos, sin = self.cos_sin(positions, length=length, dtype=_wide(q))
            rows = None
        return turn(
            q,
            k,
            cos,
            sin,
            pairing=self._rope.pairing,
            order=order,
            rotary_offset=self._rope.rotary_offset,
            inverse=inverse,
            positions=rows,
        )

    def cos_sin(
        self, positions: Tensor, *, length: int | None = None, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return exact cos and sin at positions, shape positions.shape + (planes,).

        Traced by `torch.compile` and `torch.export`, unlike `ropewalk.cos_sin`.
        """
        wide = torch.float32 if dtype is None else dtype
        return cos_sin_operator.cos_sin(self._text, positions, length, wide)

    def _rows_for(self, positions: Tensor) -> int:
        """Return how many rows serve these positions, or 0: they are better formed singly."""
        if positions.is_floating_point():
            return 0
        if self.max_length is not None:
            return self.max_length
        # Asking a GPU for the largest position would stop its stream.
        if positions.device.type != "cpu" or not positions.numel():
            return 0
        low, high = (int(bound) for bound in positions.aminmax())
        return high + 1 if low >= 0 and high < _MOST_ROWS else 0

    def _rows(self, count: int, q: Tensor) -> tuple[Tensor, Tensor]:
        key = (q.device, _wide(q))
        table = self._tables.get(key)
        if table is None:
            table = self._tables.setdefault(
                key, _GrowingTable(self._rope, *key, grows=self.max_length is None)
            )
        if self.max_length is not None:
            if count > self.max_length:
                raise InputError(
                    "positions",
                    found=f"position {count - 1}",
                    expected=f"positions below max_length, {self.max_length}",
                    fix="make the module with a larger max_length, or without",
                )
            count = self.max_length
        return table.rows(count)


def _wide(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


class _GrowingTable:
    """Cos and sin from position 0 on, in one place on one device."""

    def __init__(
        self, rope: Rope, device: torch.device, dtype: torch.dtype, *, grows: bool
    ) -> None:
        self._rope, self._device, self._dtype, self._grows = rope, device, dtype, grows
        # One value, so that a reader on another thread sees cos and sin of one age.
        self._held: tuple[Tensor, Tensor] | None = None

    def rows(self, count: int) -> tuple[Tensor, Tensor]:
        """Return tables with at least ``count`` rows."""
        held = self._held
        if held is None or held[0].shape[0] < count:
            held = self._held = self._grown(held, count)
        return held

    def _grown(self, held: tuple[Tensor, Tensor] | None, count: int) -> tuple[Tensor, Tensor]:
        have = 0 if held is None else held[0].shape[0]
        room = max(count, 2 * have, _FIRST_ROWS) if self._grows else count
        rope = self._rope
        # The caller may be under no_grad, inference mode or a default device of its own.
        with torch.inference_mode(False), torch.no_grad():
            shape = (room - have, rope.planes)
            kind = np.float64 if self._dtype == torch.float64 else np.float32
            cos, sin = np.empty(shape, kind), np.empty(shape, kind)
            if kind == np.float64 or not fill_rows(rope, have, cos, sin):
                cos, sin = cos_sin(rope, np.arange(have, room), dtype=kind)
            new = tuple(torch.from_numpy(t).to(self._device) for t in (cos, sin))
            if held is None:
                return new[0], new[1]
            return torch.cat((held[0], new[0])), torch.cat((held[1], new[1]))


__all__ = ["RotaryEmbedding"]
