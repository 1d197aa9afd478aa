"""What contestants are given to do, and what the right answer is.

The right answer comes from ``ropewalk.rotation.reference``, the readable specification, and from
angles in float64. A contestant is checked before it is timed, so that no number belongs to a
wrong result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch

import ropewalk
from ropewalk.rotation import reference

Pairing = Literal["half", "adjacent"]
Pair = tuple[torch.Tensor, torch.Tensor]

THETA = 10000.0
# With more tokens than this, evenly spread ones are compared, the first and the last included.
_COMPARED_TOKENS = 4096
# Half a unit in the last place of 1.0 in float32, and of the float32 arithmetic of angles.
_HALF_ULP = 2.0**-24


class Task(Protocol):
    """Something to compute, with its right answer."""

    @property
    def moved_bytes(self) -> int:
        """Bytes of the result: what a plain copy would write."""

    def worst_error(self, result: Pair, *, own_angles: bool, exact: bool) -> float:
        """Return the largest error as a share of what is allowed; above 1 is wrong."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of q and k: (batch, tokens, heads, head_dim), with fewer heads in k."""

    batch: int
    tokens: int
    q_heads: int
    k_heads: int
    head_dim: int

    @property
    def elements(self) -> int:
        """Of q and k together."""
        return self.batch * self.tokens * (self.q_heads + self.k_heads) * self.head_dim

    def __str__(self) -> str:
        return f"{self.q_heads}+{self.k_heads} heads × {self.head_dim}"


class RotationTask:
    """Rotate q and k; or, as a gradient task, rotate them and take the gradient back.

    Attributes:
        q: (batch, tokens, q_heads, head_dim).
        k: (batch, tokens, k_heads, head_dim).
        cos: float32, (tokens, planes) for a batch of one, else (batch, tokens, planes).
        sin: as ``cos``.
        table_cos: float32, (rows, planes); ``positions`` pick the rows.
        table_sin: as ``table_cos``.
        positions: int64, (batch, tokens).
    """

    def __init__(
        self,
        shape: Shape,
        dtype: torch.dtype,
        pairing: Pairing,
        *,
        first_position: int = 0,
        gradient: bool = False,
    ) -> None:
        self.shape, self.dtype, self.pairing, self.gradient = shape, dtype, pairing, gradient
        self.rope = ropewalk.Rope(head_dim=shape.head_dim, theta=THETA)
        generator = torch.Generator().manual_seed(0)
        self.q = self._random(shape.q_heads, generator)
        self.k = self._random(shape.k_heads, generator)
        # Sequences of one batch are at different places, as in a server.
        starts = first_position + 37 * torch.arange(shape.batch)
        self.positions = starts[:, None] + torch.arange(shape.tokens)
        rows = torch.arange(int(self.positions.max()) + 1)
        self.table_cos, self.table_sin = ropewalk.cos_sin(self.rope, rows)
        picked = self.positions[0] if shape.batch == 1 else self.positions
        self.cos, self.sin = self.table_cos[picked], self.table_sin[picked]
        if gradient:
            self.grad_q = self._random(shape.q_heads, generator)
            self.grad_k = self._random(shape.k_heads, generator)

    def _random(self, heads: int, generator: torch.Generator) -> torch.Tensor:
        return random_heads(self.shape, heads, self.dtype, generator)

    @property
    def moved_bytes(self) -> int:
        """Of q and k, once; a gradient task moves them twice."""
        times: int = 2 if self.gradient else 1
        size: int = self.q.element_size()
        return self.shape.elements * size * times

    @cached_property
    def _out(self) -> Pair:
        return torch.empty_like(self.q), torch.empty_like(self.k)

    def cleared_out(self) -> Pair:
        """Return room for results, shared by all.

        It is zero, so that nobody passes the check with the result of the one before, and
        written to, so that nobody is charged for getting its pages.
        """
        return self._out[0].zero_(), self._out[1].zero_()

    @cached_property
    def leaves(self) -> Pair:
        """The tensors q and k, asking for gradients."""
        return self.q.detach().requires_grad_(), self.k.detach().requires_grad_()

    def doubled(self) -> Pair:
        """Return cos and sin as the usual code wants them: each value twice, in q's dtype.

        Shape (1 or batch, tokens, 1, head_dim).
        """
        pair = []
        for table in (self.cos, self.sin):
            if self.pairing == "half":
                wide = torch.cat([table, table], dim=-1)
            else:
                wide = table.repeat_interleave(2, dim=-1)
            wide = wide if wide.ndim == 3 else wide[None]
            pair.append(wide[:, :, None].to(self.dtype))
        return pair[0], pair[1]

    def worst_error(self, result: Pair, *, own_angles: bool = False, exact: bool = False) -> float:
        """Return the largest error as a share of what is allowed; above 1 is wrong.

        (a, b) becomes a cos - b sin: with cos, sin, each product and the sum rounded once to
        the dtype, the error is at most 3 u (|a| + |b|), u being half the dtype's eps. Who
        forms angles in float32 may be off by 4 · 2^-24 · position · (|a| + |b|) more. Where
        the same products are demanded (``exact``), no difference is allowed.
        """
        unit = torch.finfo(self.dtype).eps / 2
        share = 3 * unit + (4 * _HALF_ULP * int(self.positions.max()) if own_angles else 0.0)
        tokens = spread(self.shape.tokens, _COMPARED_TOKENS)
        cos, sin = self.cos[..., tokens, :], self.sin[..., tokens, :]
        sources = (self.grad_q, self.grad_k) if self.gradient else (self.q, self.k)
        worst = 0.0
        for source, got in zip(sources, result, strict=True):
            if got.shape != source.shape or got.dtype != source.dtype:
                return float("inf")
            x = source[:, tokens]
            want = reference.rotate(x, cos, sin, pairing=self.pairing, inverse=self.gradient)
            error = (got.detach()[:, tokens].double() - want.double()).abs()
            if error.isnan().any() or (exact and error.any()):
                return float("inf")
            worst = max(worst, float((error / (share * _both_lanes(x, self.pairing))).max()))
        return worst


def random_heads(
    shape: Shape, heads: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Return (batch, tokens, heads, head_dim) of normal numbers.

    They are slow to make, so those of the first 1,024 tokens are repeated.
    """
    first = torch.randn(
        shape.batch, min(shape.tokens, 1024), heads, shape.head_dim, generator=generator
    )
    x = torch.empty(shape.batch, shape.tokens, heads, shape.head_dim, dtype=dtype)
    for part in x.split(first.shape[1], dim=1):
        part.copy_(first[:, : part.shape[1]])
    return x


def spread(count: int, most: int) -> torch.Tensor:
    """Return at most ``most`` indices below ``count``, evenly spread, first and last included."""
    return torch.linspace(0, count - 1, min(count, most)).round().long().unique()


def _both_lanes(x: torch.Tensor, pairing: Pairing) -> torch.Tensor:
    """Return |a| + |b| of each lane's plane, in the place of both lanes."""
    size = x.double().abs()
    if pairing == "half":
        other = size.roll(x.shape[-1] // 2, dims=-1)
    else:
        other = size.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return (size + other).clamp_min(torch.finfo(torch.float32).tiny)


class TableTask:
    """Build cos and sin of positions 0 … rows - 1, float32, (rows, planes)."""

    def __init__(self, rows: int, planes: int) -> None:
        self.rows, self.planes = rows, planes
        self.rope = ropewalk.Rope(head_dim=2 * planes, theta=THETA)

    @property
    def moved_bytes(self) -> int:
        """Of cos and sin."""
        return 2 * 4 * self.rows * self.planes

    def worst_error(self, result: Pair, *, own_angles: bool = False, exact: bool = False) -> float:
        """Return the largest error as a share of what is allowed; above 1 is wrong.

        Allowed is half a unit in the last place of 1.0; with angles in float32, four times
        that for each position more.
        """
        rows = spread(self.rows, _COMPARED_TOKENS)
        # float64 suffices: below position 2^20 its angles are off by less than 2^-32.
        angles = rows.numpy()[:, None] * self.rope.inv_freq()
        allowed = _HALF_ULP * (1 + 4 * (self.rows if own_angles else 0)) + 2.0**-32
        worst = 0.0
        for got, want in zip(result, (np.cos(angles), np.sin(angles)), strict=True):
            if tuple(got.shape) != (self.rows, self.planes):
                return float("inf")
            error = np.abs(got[rows].double().numpy() - want)
            if np.isnan(error).any():
                return float("inf")
            worst = max(worst, float(error.max()) / allowed)
        return worst


@dataclass(frozen=True, slots=True)
class Prepared:
    """A contestant, ready to be timed.

    Attributes:
        call: the work; its first call acts on the task's own q and k.
        read: turns what ``call`` returned into results as the task has them.
    """

    call: Any
    read: Any
