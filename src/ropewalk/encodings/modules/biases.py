"""ALiBi, T5's buckets, KERPLE and FIRE in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from ..alibi import ALiBi, alibi_slopes
from ..learned_decay import FIRE_EPSILON, Fire, Kerple
from ..t5 import T5Buckets, bucket_starts, refuse_distances
from .base import PositionModule
from .by_distance import DistanceBiasModule, along_diagonals, neighbours, one_row


class ALiBiModule(DistanceBiasModule):
    """Takes off a slope per token of distance."""

    encoding: ALiBi

    def of_distance(self, distance: Tensor) -> Tensor:
        """See `DistanceBiasModule.of_distance`."""
        slopes = torch.from_numpy(-alibi_slopes(self.sizes.heads)).to(distance.device)
        away = distance.abs() if self.encoding.symmetric else distance
        return (slopes[:, None] * away).float()


class T5BucketsModule(DistanceBiasModule):
    """Adds a learned number per head and bucket of distances."""

    encoding: T5Buckets
    table: Tensor

    def of_distance(self, distance: Tensor) -> Tensor:
        """See `DistanceBiasModule.of_distance`.

        Raises:
            InputError: positions that are no integers.
        """
        return self.table[self.bucket(distance)].T

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance, as `T5Buckets.bucket`."""
        if distance.is_floating_point():
            refuse_distances(str(distance.dtype))
        one_way = self.encoding.one_way
        starts = torch.tensor(
            bucket_starts(one_way, self.encoding.max_distance), device=distance.device
        )
        found = torch.bucketize(distance.clamp(min=0), starts, right=True)
        if not self.encoding.bidirectional:
            return found
        ahead = torch.bucketize((-distance).clamp(min=0), starts, right=True) + one_way
        return torch.where(distance < 0, ahead, found)


class KerpleModule(DistanceBiasModule):
    """Takes off a learned logarithm of the distance."""

    encoding: Kerple
    log_r1: Tensor
    log_r2: Tensor

    def of_distance(self, distance: Tensor) -> Tensor:
        """See `DistanceBiasModule.of_distance`."""
        r1, r2 = self.log_r1.exp(), self.log_r2.exp()
        return -r1[:, None] * torch.log1p(r2[:, None] * distance.abs())


class FireModule(PositionModule):
    """Adds the output of a small network that sees the distance over the query's position.

    Up to position L the divisor is one number and the bias depends on the distance only. Each
    query beyond L has a row of its own.
    """

    encoding: Fire
    c: Tensor
    multiplier: Tensor
    hidden_weight: Tensor
    hidden_bias: Tensor
    out_weight: Tensor
    out_bias: Tensor

    def bias(
        self,
        q: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        scale: float,
        length: int | None = None,
    ) -> Tensor:
        """See `PositionModule.bias`."""
        at, to = one_row(query_positions), one_row(key_positions)
        limit = (self.multiplier * self.encoding.threshold).abs()
        near = int((at <= limit).sum()) if neighbours(at) else 0
        parts = []
        if near:
            divisor = self._psi(limit) + FIRE_EPSILON
            parts.append(
                along_diagonals(
                    lambda away: self._network(self._psi(away) / divisor), at[:near], to
                )
            )
        if near < at.shape[-1]:
            parts.append(self._rows(at[..., near:], to, limit))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)

    def _rows(self, at: Tensor, to: Tensor, limit: Tensor) -> Tensor:
        """Return the bias of queries that each have a divisor of their own."""
        away = at[..., :, None] - to[..., None, :]
        divisor = self._psi(torch.maximum(at.to(limit.dtype), limit)) + FIRE_EPSILON
        return self._network(self._psi(away) / divisor[..., None]).movedim(0, -3)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c * x).abs())

    def _network(self, inputs: Tensor) -> Tensor:
        """Return (heads, *inputs.shape).

        A network of one number with one hidden layer of ReLUs is a line between each two
        neighbouring kinks. Looking the line up costs a fraction of the layer's work per pair.
        """
        kinks, lines = self._lines()
        # Right of a kink counts as beyond it; on the kink both lines agree.
        found = torch.nn.functional.embedding(torch.bucketize(inputs.detach(), kinks), lines)
        slope, intercept = found.chunk(2, dim=-1)
        return (slope * inputs[..., None] + intercept).movedim(-1, 0)

    def _lines(self) -> tuple[Tensor, Tensor]:
        """Return the kinks, (hidden,) ascending, and slopes beside intercepts of the lines.

        The lines are (hidden + 1, 2 * heads); a lane without a weight has no kink and counts
        as one at 0.
        """
        # In float32 under autocast too: it is little work, and biases are added in float32.
        with torch.autocast(self.c.device.type, enabled=False):
            weight, offset = self.hidden_weight, self.hidden_bias
            with torch.no_grad():
                kinks = torch.where(weight == 0, 0, -offset / weight).sort().values
                inside = torch.cat([kinks[:1] - 1, (kinks[1:] + kinks[:-1]) / 2, kinks[-1:] + 1])
                active = (inside[:, None] * weight + offset > 0).to(weight.dtype)
            slopes = (active * weight) @ self.out_weight.T
            intercepts = (active * offset) @ self.out_weight.T + self.out_bias
            return kinks, torch.cat([slopes, intercepts], dim=-1)
