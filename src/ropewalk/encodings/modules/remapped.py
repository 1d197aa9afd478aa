"""RoPE with other relative positions in PyTorch: few rotations and a choice between them.

A relative position that depends on a pair in no simpler way would cost a rotation per pair.
These methods have two or three ways to place queries and keys, and each pair takes one of
them: distances of placed tokens are then the relative positions of the specification.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from ...rope import Rope
from ...tables import length_at
from ..remapped import DualChunk, Remapped, ReRoPE, SelfExtend
from .base import PositionModule
from .rotary import turned


class RemappedModule(PositionModule):
    """Turns queries and keys once per distinct set of places."""

    encoding: Remapped

    @abstractmethod
    def query_places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """Return the positions that queries turn by, one set per variant."""

    @abstractmethod
    def key_places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """Return the positions that keys turn by; where two variants share one tensor, once."""

    def keys(self, k: Tensor, positions: Tensor, length: int | None = None) -> tuple[Tensor, ...]:
        """See `PositionModule.keys`."""
        places = self.key_places(positions)
        return _turned_each(self.encoding.rope, k, positions, places, length)

    def queries(
        self, q: Tensor, positions: Tensor, length: int | None = None
    ) -> tuple[Tensor, ...]:
        """See `PositionModule.queries`."""
        places = self.query_places(positions)
        return _turned_each(self.encoding.rope, q, positions, places, length)


class ReRoPEModule(RemappedModule):
    """Far queries stand at the window and far keys at 0; with a leak both walk on, slower."""

    encoding: ReRoPE

    def query_places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """See `RemappedModule.query_places`."""
        window, leak = self.encoding.window, self.encoding.leak
        if leak is None:
            return positions, torch.full_like(positions, window)
        return positions, window + (positions.double() - window) / leak

    def key_places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """See `RemappedModule.key_places`."""
        leak = self.encoding.leak
        far = torch.zeros_like(positions) if leak is None else positions.double() / leak
        return positions, far

    def choice(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Variant 0 within the window, 1 beyond."""
        return _beyond(query_positions, key_positions, self.encoding.window)


class SelfExtendModule(RemappedModule):
    """Far queries and keys stand at the numbers of their groups."""

    encoding: SelfExtend

    def query_places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """See `RemappedModule.query_places`."""
        return positions, positions // self.encoding.group + self.encoding.shift

    def key_places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """See `RemappedModule.key_places`."""
        return positions, positions // self.encoding.group

    def choice(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Variant 0 within the window, 1 beyond."""
        return _beyond(query_positions, key_positions, self.encoding.window)


class DualChunkModule(RemappedModule):
    """Keys stand at their place within the chunk; queries at one of three."""

    encoding: DualChunk

    def query_places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """See `RemappedModule.query_places`."""
        within, largest = positions % self.encoding.chunk, self.encoding.largest
        successive = (within + self.encoding.chunk).clamp(max=largest)
        return within, successive, torch.full_like(positions, largest)

    def key_places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """See `RemappedModule.key_places`."""
        return (positions % self.encoding.chunk,) * 3

    def choice(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Variant 0 within a chunk, 1 to the chunk before, 2 further back."""
        chunk = self.encoding.chunk
        return _pairs(query_positions // chunk, key_positions // chunk).clamp(0, 2)


def _turned_each(
    rope: Rope, x: Tensor, positions: Tensor, places: tuple[Tensor, ...], length: int | None
) -> tuple[Tensor, ...]:
    """Turn by each set of places, by equal tensors once.

    A rope that depends on the length goes by the text, not by the largest place.
    """
    text = length_at(rope, positions.detach().cpu().numpy(), length)
    done: dict[int, Tensor] = {}
    for place in places:
        if id(place) not in done:
            done[id(place)] = turned(rope, x, place, text)
    return tuple(done[id(place)] for place in places)


def _pairs(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Return differences (queries, keys), or (batch, 1, queries, keys) for batched positions."""
    out = query_positions[..., :, None] - key_positions[..., None, :]
    return out.unsqueeze(-3) if out.dim() == 3 else out


def _beyond(query_positions: Tensor, key_positions: Tensor, window: int) -> Tensor:
    return (_pairs(query_positions, key_positions) >= window).long()
