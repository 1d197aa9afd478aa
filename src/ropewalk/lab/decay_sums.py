"""Sums over pairs of query and key by distance, which `ropewalk.lab.decay` is made of.

Pairs are those of the queries in the second half of a pass, so that every distance up to half
the length is seen by the same queries: with all queries, early ones, which share their attention
among few keys, would make even uniform attention fall with the distance. The first token's key is
left out and counted apart: heads park attention there, however far away it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import InputError
from ..rope import Rope

FloatArray = npt.NDArray[np.float64]
Scores = Callable[[int, int], Tensor]
"""Scores (heads, end - start, end) of the queries from start to end, position included."""

SINGLE, PER_OCTAVE, SHORTEST = 32, 4, 32
_BLOCK = 256
_BOUNDED_QUERIES = 16
_DIGITS = 5


@dataclass(frozen=True)
class Bins:
    """Distances 0 to length - 2: one each up to 32, then four to an octave.

    Attributes:
        length: tokens of a pass.
        first: smallest distance of each bin.
    """

    length: int
    first: tuple[int, ...]

    @classmethod
    def of(cls, length: int) -> Bins:
        """Return the bins of passes of a length.

        Raises:
            InputError: fewer tokens than the measurement needs.
        """
        if length < SHORTEST:
            raise InputError(
                "length",
                found=f"{length} tokens",
                expected=f"at least {SHORTEST}",
                fix="measure longer passes",
            )
        octaves = math.log2(max(1.0, (length - 1) / SINGLE))
        wide = [
            round(SINGLE * 2.0 ** (step / PER_OCTAVE))
            for step in range(1 + math.ceil(octaves * PER_OCTAVE))
        ]
        starts = {d for d in [*range(SINGLE), *wide] if d <= length - 2}
        return cls(length, tuple(sorted(starts)))

    @property
    def last(self) -> tuple[int, ...]:
        """Largest distance of each bin."""
        return (*(start - 1 for start in self.first[1:]), self.length - 2)

    @property
    def first_query(self) -> int:
        """Position of the first query that counts."""
        return self.length // 2

    @property
    def counts(self) -> FloatArray:
        """Pairs of one pass at each distance, (length - 1,)."""
        far = np.maximum(self.first_query, np.arange(self.length - 1) + 1)
        return (self.length - far).astype(np.float64)

    def total(self, by_distance: Any) -> Any:
        """Sum over the distances of each bin, along the last axis."""
        return np.add.reduceat(np.asarray(by_distance), self.first, axis=-1)

    def largest(self, by_distance: Any) -> Any:
        """Take the largest over the distances of each bin, along the last axis."""
        return np.maximum.reduceat(np.asarray(by_distance), self.first, axis=-1)

    def uniform(self) -> FloatArray:
        """Return the mean weight of each bin if every query shared its attention equally."""
        shares = np.zeros(self.length - 1)
        for query in range(self.first_query, self.length):
            shares[:query] += 1.0 / (query + 1)
        out: FloatArray = self.total(shares) / self.total(self.counts)
        return out


def diagonal_sums(values: Tensor, start: int) -> Tensor:
    """Sum over the pairs of each distance.

    Args:
        values: (heads, queries, length), of the queries from ``start`` on; zero where the key is
            ahead of the query and at key 0.
        start: position of the first query.

    Returns:
        (heads, length - 1), float64: distance 0 first.

    Read on past its end, the row of a query runs into the keys that are ahead of the next one,
    which are zero: so one strided view has the distances in its columns.
    """
    heads, queries, length = values.shape
    reversed_rows = pad(values.flip(-1), (0, 0, 0, 1)).contiguous()
    view = reversed_rows.as_strided(
        (heads, queries, length - 1), ((queries + 1) * length, length - 1, 1), length - 1 - start
    )
    return view.sum(1, dtype=torch.float64)


class WeightSums:
    """Attention weights and scores by distance, for any encoding.

    Args:
        bins: of distances.
        layers: how many are observed.
        heads: of a layer.
    """

    def __init__(self, bins: Bins, layers: int, heads: int) -> None:
        self.bins = bins
        shape = (layers, heads, bins.length - 1)
        self.weight, self.score, self.magnitude = (np.zeros(shape) for _ in range(3))
        self.first_token = np.zeros((layers, heads))
        self.passes = np.zeros(layers)

    def add(self, layer: int, scores: Scores) -> None:
        """Add one pass of one layer."""
        length = self.bins.length
        keys = torch.arange(length)
        for start in range(self.bins.first_query, length, _BLOCK):
            end = min(start + _BLOCK, length)
            found = pad(scores(start, end).float(), (0, length - end))
            ahead = keys > torch.arange(start, end)[:, None]
            weights = found.masked_fill(ahead, float("-inf")).softmax(-1)
            self.first_token[layer] += weights[..., 0].sum(-1, dtype=torch.float64).numpy()
            outside = ahead | (keys == 0)
            found = found.masked_fill(outside, 0.0)
            for total, values in (
                (self.weight, weights.masked_fill(outside, 0.0)),
                (self.score, found),
                (self.magnitude, found.abs()),
            ):
                total[layer] += diagonal_sums(values, start).numpy()
        self.passes[layer] += 1

    def to_dict(self) -> dict[str, Any]:
        """Return means over pairs, [layer][head][bin]."""
        bins, passes = self.bins, self.passes[0]
        pairs = bins.total(bins.counts) * passes
        queries = (bins.length - bins.first_query) * passes
        return {
            "distances": {
                "first": list(bins.first),
                "last": list(bins.last),
                "pairs": [int(n) for n in pairs],
            },
            "uniform": rounded(bins.uniform()),
            "weight": rounded(bins.total(self.weight) / pairs),
            "first_token": rounded(self.first_token / queries),
            "score": rounded(bins.total(self.score) / pairs),
            "score_magnitude": rounded(bins.total(self.magnitude) / pairs),
        }


class PlaneSums:
    """What each plane of a rope adds to the scores by distance, RoFormer's bound, and a control.

    With h = q conj(k) of a plane, before any turn and scaled as scores are, the plane adds
    Re(h e^(i d θ)) at distance d. All of it comes from sums over pairs of h by distance, which
    are correlations of q and k along the text.

    Args:
        rope: the rotary embedding.
        bins: of distances.
        layers: how many are observed.
        heads: query heads of a layer.
    """

    def __init__(self, rope: Rope, bins: Bins, layers: int, heads: int) -> None:
        self.rope, self.bins = rope, bins
        self.lanes = np.array([rope.lanes(plane) for plane in range(rope.planes)]).T
        self.rest = sorted(set(range(rope.head_dim)) - set(self.lanes.ravel().tolist()))
        angles = np.outer(np.arange(bins.length - 1), rope.direction * rope.inv_freq(bins.length))
        self.turns = np.exp(1j * angles)
        """e^(i d θ), (length - 1, planes)."""
        self.partial_sums = np.abs(np.cumsum(self.turns, axis=-1)).sum(-1)
        """Σ_j |S_j| of RoFormer's bound by distance, (length - 1,)."""
        self.cos = torch.from_numpy(self.turns.real).float()
        self.sin = torch.from_numpy(self.turns.imag).float()
        planes, count = rope.planes, len(bins.first)
        by_plane = (layers, heads, planes, count)
        self.turned, self.amplitude = np.zeros(by_plane), np.zeros(by_plane)
        self.unturned = np.zeros(by_plane, np.complex128)
        by_distance = (layers, heads, bins.length - 1)
        self.bounds, self.shares, self.largest = (np.zeros(by_distance) for _ in range(3))
        self.bounded = np.zeros(bins.length - 1)
        by_bin = (layers, heads, count)
        self.drawn, self.drawn_magnitude, self.drawn_square = (np.zeros(by_bin) for _ in range(3))
        self.of_means = np.zeros(by_bin)
        self.passes = np.zeros(layers)

    def add(self, layer: int, q: Tensor, k: Tensor, scale: float) -> None:
        """Add one pass of one layer.

        Args:
            layer: its place.
            q: (heads, length, head_dim), not turned.
            k: the same shape, not turned.
            scale: factor on scores.
        """
        factor = scale * self.rope.attention_factor(self.bins.length) ** 2
        turning = self._complex(q) * factor, self._complex(k)
        still = q[..., self.rest] * scale, k[..., self.rest]
        self._correlate(layer, *turning)
        self._bound(layer, turning[0], turning[1])
        self._shuffle(layer, turning, still)
        self.passes[layer] += 1

    def _complex(self, x: Tensor) -> Tensor:
        """Return planes as complex numbers, (heads, length, planes)."""
        first, second = self.lanes
        return torch.complex(x[..., first].float(), x[..., second].float())

    def _correlate(self, layer: int, q: Tensor, k: Tensor) -> None:
        """Sum h and |h| over the pairs of each distance, by Fourier transforms."""
        length, bins = self.bins.length, self.bins
        for head in range(q.shape[0]):
            a, b = (x[head].T.to(torch.complex128).clone() for x in (q, k))
            a[:, : bins.first_query] = 0
            b[:, 0] = 0
            h = _correlation(a, b)[:, : length - 1].numpy()
            self.unturned[layer, head] += bins.total(h)
            self.turned[layer, head] += bins.total((h * self.turns.T).real)
            sizes = _correlation(a.abs() + 0j, b.abs() + 0j).real[:, : length - 1]
            self.amplitude[layer, head] += bins.total(sizes.numpy())

    def _bound(self, layer: int, q: Tensor, k: Tensor) -> None:
        """Compare scores with RoFormer's bound, for a few queries and all their keys."""
        length = self.bins.length
        sums = torch.from_numpy(self.partial_sums).float()
        at = np.linspace(self.bins.first_query, length - 1, _BOUNDED_QUERIES).round().astype(int)
        for query in np.unique(at).tolist():
            keys = k[:, 1 : query + 1].flip(1)
            h = q[:, query, None] * keys.conj()
            # The sum is closed with h = 0 after the last plane.
            steps = torch.cat([h[..., 1:] - h[..., :-1], -h[..., -1:]], dim=-1).abs().amax(-1)
            bound = steps * sums[:query]
            score = (h.real * self.cos[:query] - h.imag * self.sin[:query]).sum(-1).abs()
            share = (score / bound.clamp(min=torch.finfo(torch.float32).tiny)).double().numpy()
            self.bounds[layer, :, :query] += bound.double().numpy()
            self.shares[layer, :, :query] += share
            most = self.largest[layer, :, :query]
            np.maximum(most, share, out=most)
            if layer == 0:
                self.bounded[:query] += 1

    def _shuffle(
        self, layer: int, turning: tuple[Tensor, Tensor], still: tuple[Tensor, Tensor]
    ) -> None:
        """Pair the queries with keys drawn at random, as if each distance lay between them."""
        length, start = self.bins.length, self.bins.first_query
        chance = np.random.default_rng([layer, int(self.passes[layer])])
        queries = np.arange(start, length)
        keys = 1 + chance.permutation(length - 1)[: len(queries)]
        low, high = np.array(self.bins.first), np.array(self.bins.last)
        distances = chance.integers(low, high + 1, (len(queries), len(low)))
        h = (turning[0][:, queries] * turning[1][:, keys].conj()).transpose(0, 1)
        fixed = (still[0][:, queries] * still[1][:, keys]).sum(-1).T
        cos, sin = (table[distances].transpose(1, 2) for table in (self.cos, self.sin))
        scores = (h.real @ cos - h.imag @ sin + fixed[..., None]).double()
        self.drawn[layer] += scores.sum(0).numpy()
        self.drawn_magnitude[layer] += scores.abs().sum(0).numpy()
        self.drawn_square[layer] += scores.square().sum(0).numpy()
        # The mean over all pairings is the product of the means.
        means = turning[0][:, start:].mean(1) * turning[1][:, 1:].mean(1).conj()
        rest = (still[0][:, start:].mean(1) * still[1][:, 1:].mean(1)).sum(-1)
        by_distance = (means.numpy() @ self.turns.T).real + rest.numpy()[:, None]
        counts = self.bins.counts
        self.of_means[layer] += self.bins.total(by_distance * counts) / self.bins.total(counts)

    def to_dict(self) -> dict[str, Any]:
        """Return means over pairs; per plane the mean over heads, [layer][plane][bin]."""
        bins, passes = self.bins, self.passes[0]
        pairs = bins.total(bins.counts) * passes
        bounded = bins.total(self.bounded)
        unturned, amplitude = np.abs(self.unturned) / pairs, self.amplitude / pairs
        draws = (bins.length - bins.first_query) * passes
        drawn = self.drawn / draws
        variance = np.maximum(self.drawn_square / draws - drawn**2, 0.0)
        return {
            "wavelengths": rounded(2 * np.pi / self.rope.inv_freq(bins.length)),
            "turned": rounded((self.turned / pairs).mean(1)),
            "unturned": rounded(unturned.mean(1)),
            "amplitude": rounded(amplitude.mean(1)),
            "heads": {
                name: {
                    "unturned": rounded(self._over(unturned, span)),
                    "amplitude": rounded(self._over(amplitude, span)),
                }
                for name, span in spans(bins.length).items()
            },
            "bound": rounded(bins.total(self.bounds) / bounded),
            "share_of_bound": {
                "mean": rounded(bins.total(self.shares) / bounded),
                "largest": rounded(bins.largest(self.largest)),
            },
            "shuffled": {
                "mean": rounded(drawn),
                "magnitude": rounded(self.drawn_magnitude / draws),
                "standard_error": rounded(np.sqrt(variance / draws)),
                "of_means": rounded(self.of_means / passes),
            },
        }

    def _over(self, values: FloatArray, span: tuple[int, int]) -> FloatArray:
        """Return the mean over the pairs of some bins, (layers, heads, planes)."""
        inside = within(self.bins.first, self.bins.last, span)
        pairs = self.bins.total(self.bins.counts)[inside]
        out: FloatArray = (values[..., inside] * pairs).sum(-1) / pairs.sum()
        return out


def spans(length: int) -> dict[str, tuple[int, int]]:
    """Return the distances that are called near and far, both ends included."""
    return {"near": (1, length // 16 - 1), "far": (length // 4, length // 2 - 1)}


def within(first: Any, last: Any, span: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Return which bins have their middle in a span."""
    middle = (np.asarray(first) + np.asarray(last)) / 2
    out: npt.NDArray[np.bool_] = (middle >= span[0]) & (middle <= span[1])
    return out


def rounded(values: Any) -> Any:
    """Return nested lists of numbers with five digits: files stay small."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0:
        return float(f"{array:.{_DIGITS}g}")
    return [rounded(part) for part in array]


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return Σ_i a[i] conj(b[i - d]) for each d along the last axis."""
    size = 2 * a.shape[-1]
    spectrum = torch.fft.fft(a, size) * torch.fft.fft(b, size).conj()
    return torch.fft.ifft(spectrum)
