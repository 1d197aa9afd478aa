"""From one value per distance to one per pair of query and key.

Neighbouring positions are the rule, and then the pairs of one distance lie on a diagonal: what
depends on the distance is computed once per distance and laid out along the diagonals.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .base import PositionModule

_BLOCK = 256
"""Queries at a time where attention goes by distance: half a block above the diagonal is waste."""


class DistanceBiasModule(PositionModule):
    """Adds a number per head and distance to the scores; queries and keys stay as they are."""

    @abstractmethod
    def of_distance(self, distance: Tensor) -> Tensor:
        """Return the bias of distances (n,), query minus key position, as (heads, n)."""

    def bias(
        self,
        q: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        scale: float,
        length: int | None = None,
    ) -> Tensor:
        """See `PositionModule.bias`."""
        return along_diagonals(self.of_distance, query_positions, key_positions)


def along_diagonals(
    of_distance: Callable[[Tensor], Tensor], query_positions: Tensor, key_positions: Tensor
) -> Tensor:
    """Return ``of_distance(i - j)`` for each pair.

    Args:
        of_distance: takes distances (n,), gives (heads, n).
        query_positions: (queries,) or (batch, queries).
        key_positions: (keys,) or (batch, keys).

    Returns:
        (heads, queries, keys); (batch, heads, queries, keys) where the rows of a batch differ.
    """
    at, to = one_row(query_positions), one_row(key_positions)
    if neighbours(at) and neighbours(to):
        queries, keys = at.shape[0], to.shape[0]
        steps = torch.arange(queries + keys - 1, device=at.device)
        out: Tensor = _Diagonals.apply(of_distance(at[-1] - to[0] - steps), queries)
        return out
    distinct, index = torch.unique(at[..., :, None] - to[..., None, :], return_inverse=True)
    return of_distance(distinct)[:, index].movedim(0, -3)


def one_row(positions: Tensor) -> Tensor:
    """Return the positions, (batch, time), as (time,) where all rows are the same."""
    if positions.dim() == 2 and bool((positions == positions[:1]).all()):
        return positions[0]
    return positions


def neighbours(positions: Tensor) -> bool:
    """Return whether these are (time,), each position one more than the one before."""
    return positions.dim() == 1 and bool((positions.diff() == 1).all())


class _Diagonals(torch.autograd.Function):
    """(heads, queries + keys - 1), the farthest distance first -> (heads, queries, keys).

    Query i takes the ``keys`` values from ``queries - 1 - i`` on.
    """

    @staticmethod
    def forward(_ctx: Any, values: Tensor, queries: int) -> Tensor:
        """Return every query's stretch of the values."""
        return values.unfold(-1, values.shape[-1] - queries + 1, 1).flip(-2)

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the sums along the diagonals."""
        heads, queries, keys = gradients[0].shape
        count = queries + keys - 1
        # Rows of `count` entries with each query's stretch in its place, summed over queries.
        placed = gradients[0].new_zeros(heads, queries, count)
        placed.as_strided(
            (heads, queries, keys), (queries * count, max(count - 1, 1), 1), queries - 1
        ).copy_(gradients[0])
        return placed.sum(1), None


def attend_by_distance(
    module: DistanceBiasModule,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
    scale: float,
) -> Tensor | None:
    """Attend causally on a CPU without forming scores or biases; None where that cannot be.

    What is added to the scores of a block of queries, the mask included, is one row of numbers
    by distance, seen through overlapping strides: PyTorch's kernel then reads no more than
    that. It takes a mask of another dtype than the queries' on a CPU only.

    Args:
        module: the encoding.
        q: (batch, heads, queries, head_dim).
        k: (batch, heads, keys, head_dim).
        v: (batch, heads, keys, value_dim).
        query_positions: (queries,) or (batch, queries).
        key_positions: (keys,) or (batch, keys).
        scale: factor on products of queries and keys.

    Returns:
        (batch, heads, queries, value_dim); None unless positions are neighbours.
    """
    at, to = one_row(query_positions), one_row(key_positions)
    if q.device.type != "cpu" or not (neighbours(at) and neighbours(to)):
        return None
    queries, keys = q.shape[-2], k.shape[-2]
    past = keys - queries
    # Distances are counted from the causal diagonal, wherever the positions start.
    start = at[0] - to[0] - past
    steps = torch.arange(keys - 1, -min(_BLOCK, queries), -1)
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    added = module.of_distance(start + steps).to(dtype).masked_fill(steps < 0, float("-inf"))
    out = v.new_empty(*q.shape[:-1], v.shape[-1])
    # Autocast would copy the mask, overlaps and all, to round it.
    with torch.autocast("cpu", enabled=False):
        for first in range(0, queries, _BLOCK):
            end = min(first + _BLOCK, queries)
            seen = past + end
            # Row r of the strides is the last query but r: queries go in and out reversed.
            row = added[:, keys - seen : keys + end - first - 1].contiguous()
            mixed = scaled_dot_product_attention(
                q[..., first:end, :].flip(-2).to(v.dtype),
                k[..., :seen, :].to(v.dtype),
                v[..., :seen, :],
                attn_mask=row.unfold(-1, seen, 1)[None],
                scale=scale,
            )
            out[..., first:end, :] = mixed.flip(-2)
    return out
