"""Transformer-XL's relative attention in PyTorch, with the relative shift."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import Sizes
from ..transformer_xl import TransformerXL
from .base import PositionModule
from .by_distance import neighbours, one_row


class TransformerXLModule(PositionModule):
    """Compares queries with keys and with the vector of the distance.

    Keys can be cached for good. The vectors of the distances depend on nothing but the
    parameters, yet each step needs one more and takes the product with all of them anew.
    """

    encoding: TransformerXL
    u: Tensor
    v: Tensor
    w_r: Tensor

    def __init__(self, encoding: TransformerXL, sizes: Sizes, seed: int = 0) -> None:
        super().__init__(encoding, sizes, seed)
        self._sines: Tensor | None = None

    def queries(
        self, q: Tensor, positions: Tensor, length: int | None = None
    ) -> tuple[Tensor, ...]:
        """See `PositionModule.queries`."""
        return ((q + self.u[:, None]).to(q.dtype),)

    def bias(
        self,
        q: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        scale: float,
        length: int | None = None,
    ) -> Tensor:
        """See `PositionModule.bias`; (batch, heads, queries, keys)."""
        compared = ((q + self.v[:, None]) * scale).to(q.dtype)
        at, to = one_row(query_positions), one_row(key_positions)
        if neighbours(at) and neighbours(to) and bool(at[-1] == to[-1]):
            # One row of zeros in front of the farthest distance makes room for the shift.
            rows = self._rows(self._falling(to.shape[0]))
            rows = torch.nn.functional.pad(rows, (0, 0, 1, 0)).to(q.dtype)
            return relative_shift(compared @ rows.transpose(-1, -2))
        distinct, index = torch.unique(at[..., :, None] - to[..., None, :], return_inverse=True)
        sines = torch.from_numpy(
            self.encoding.distance_vectors(distinct.cpu().numpy(), self.sizes.width)
        )
        rows = self._rows(sines.to(self.w_r)).to(q.dtype)
        products = compared @ rows.transpose(-1, -2)
        index = index if index.dim() == 2 else index[:, None]
        return products.gather(-1, index.expand(*products.shape[:-1], -1))

    def _rows(self, sines: Tensor) -> Tensor:
        """Return distance vectors as keys are, (heads, distances, head_dim)."""
        projected = sines @ self.w_r
        return projected.view(-1, self.sizes.heads, self.sizes.head_dim).transpose(0, 1)

    def _falling(self, count: int) -> Tensor:
        """Return R of the distances count - 1, ..., 1, 0; kept and grown as texts get longer."""
        kept = self._sines
        if kept is None or kept.shape[0] < count or kept.device != self.w_r.device:
            most = count if kept is None else max(count, 2 * kept.shape[0])
            distances = torch.arange(most - 1, -1, -1).numpy()
            kept = torch.from_numpy(self.encoding.distance_vectors(distances, self.sizes.width)).to(
                self.w_r.device
            )
            self._sines = kept
        return kept[kept.shape[0] - count :].to(self.w_r.dtype)


def relative_shift(products: Tensor) -> Tensor:
    """Move the products of each query and distance to the key at that distance.

    Args:
        products: (..., queries, keys + 1): column 0 is nothing, column c is distance
            ``keys - c``.

    Returns:
        (..., queries, keys), a view: entry (i, j) is the product of query i and distance
        ``keys - queries + i - j``. Where that is negative the entry means nothing, and the
        causal mask hides it.

    Query i's row has to move left by ``queries - 1 - i`` columns. Read on without the row ends,
    with rows one entry shorter, each row begins one entry earlier than the one before.
    """
    queries, columns = products.shape[-2:]
    line = products.reshape(*products.shape[:-2], queries * columns)
    return line[..., queries:].unflatten(-1, (queries, columns - 1))
