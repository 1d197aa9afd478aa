"""Which pairing weights have, seen in the weights alone.

The score of a query and a key at a distance is, in each plane of lanes (a, b), a cosine part and
a sine part; the sine part is made by query lane a with key lane b minus query lane b with key
lane a. Training shapes that difference in the planes that turn, and in no other pair of lanes.
So its energy is compared between the pairs of a pairing and pairs that are the same but for a
shift: lane i with i + planes + s, or 2i with 2(i + s) + 1. Weights that only vary smoothly from
lane to lane give as much at a shift of one as at none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..rope import Pairing
from .cross_cosines import HeadCosines
from .row_orders import Lanes as HeadLanes
from .stored_tensors import FloatArray

Lanes = npt.NDArray[np.intp]
Arrangement = Literal[
    "half",
    "adjacent",
    "queries half, keys adjacent",
    "queries adjacent, keys half",
    "half, keys moved by query heads",
    "adjacent, keys moved by query heads",
    "moved to adjacent twice",
    "moved to half twice",
]

SHIFTS = 4
"""Shifts to either side that a pairing is compared with."""
_FLOOR = 1e-12


@dataclass(frozen=True)
class Contrast:
    """How far the pairs of one arrangement stand out from shifted pairs.

    Attributes:
        arrangement: which lanes are taken as a plane.
        ratio: energy in the pairs over that in shifted pairs, geometric mean over heads.
        nearest: the same against shifts of one only.
        z: standard deviations above what any of the shifts would give.
        p: chance of such a z if no shift were special; not below what the number of heads and
            shifts allows.
        first: share of heads in which no shift has more.
        alignment: energy between the query and key lanes that the arrangement takes for the same
            lane, over that between lanes of the same index; 1 where these are the same.
    """

    arrangement: Arrangement
    ratio: float
    nearest: float
    z: float
    p: float
    first: float
    alignment: float = 1.0


def contrasts(heads: Sequence[HeadCosines]) -> list[Contrast]:
    """Compare every arrangement of query and key lanes; pairings first.

    Args:
        heads: of a model with at least two planes.
    """
    lanes = heads[0].cosines.shape[1]
    group = max(head.cosines.shape[0] for head in heads)
    out = []
    for name, (queries, keys) in _arrangements(lanes, group).items():
        energies = np.stack([_energies(head.cosines, queries, keys) for head in heads])
        contrast = _contrast(name, energies)
        out.append(dataclasses.replace(contrast, alignment=_alignment(heads, queries, keys)))
    return out


def norm_contrasts(heads: Sequence[HeadCosines]) -> list[Contrast]:
    """The plain statistic, for comparison: whether row norms of a pair agree.

    It is fooled by norms that vary smoothly from lane to lane, and never decides.
    """
    lanes = heads[0].cosines.shape[1]
    out = []
    for name, (queries, keys) in _arrangements(lanes, 1).items():
        if name in ("half", "adjacent"):
            likeness = [
                _likeness(head.query_norms, queries) * _likeness(head.key_norms[None], keys)
                for head in heads
            ]
            out.append(_contrast(name, np.stack(likeness)))
    return out


def _half(lanes: int) -> Lanes:
    """Lanes of plane p: row 0 the first, row 1 the second."""
    return np.arange(lanes, dtype=np.intp).reshape(2, -1)


def _adjacent(lanes: int) -> Lanes:
    return np.arange(lanes, dtype=np.intp).reshape(-1, 2).T.copy()


def _moved(lanes: int, group: int, to_adjacent: bool) -> Lanes:
    """Where the lanes of a key head land when its rows are permuted as ``group`` small heads.

    That is what converters do that take the number of query heads for the number of key heads.
    """
    small = lanes // group
    block, lane = np.divmod(np.arange(lanes, dtype=np.intp), small)
    planes = small // 2
    if to_adjacent:
        landed = block * small + 2 * (lane % planes) + lane // planes
        return np.take(landed, _half(lanes))
    landed = block * small + planes * (lane % 2) + lane // 2
    return np.take(landed, _adjacent(lanes))


def _twice(lanes: int, to: Pairing) -> Lanes:
    """Where the lanes of planes land when rows are moved to a pairing that they have already."""
    order = HeadLanes(lanes, 0, lanes).order(to)
    landed = np.argsort(order[order])
    return np.take(landed, _half(lanes) if to == "adjacent" else _adjacent(lanes))


def _arrangements(lanes: int, group: int) -> dict[Arrangement, tuple[Lanes, Lanes]]:
    half, adjacent = _half(lanes), _adjacent(lanes)
    out: dict[Arrangement, tuple[Lanes, Lanes]] = {
        "half": (half, half),
        "adjacent": (adjacent, adjacent),
        "queries half, keys adjacent": (half, adjacent),
        "queries adjacent, keys half": (adjacent, half),
    }
    if group > 1 and lanes % (2 * group) == 0 and lanes // group > 2:
        out["half, keys moved by query heads"] = (half, _moved(lanes, group, False))
        out["adjacent, keys moved by query heads"] = (adjacent, _moved(lanes, group, True))
    twice: tuple[tuple[Arrangement, Pairing], ...] = (
        ("moved to adjacent twice", "adjacent"),
        ("moved to half twice", "half"),
    )
    for name, to in twice:
        landed = _twice(lanes, to)
        # In small heads these are arrangements that are here already.
        if not any(np.array_equal(landed, known[0]) for known in out.values()):
            out[name] = (landed, landed)
    return out


def _shifts(planes: int) -> Iterator[int]:
    yield 0
    for step in range(1, min(SHIFTS, (planes - 1) // 2) + 1):
        yield -step
        yield step


def _energies(cosines: FloatArray, queries: Lanes, keys: Lanes) -> FloatArray:
    """Return the energy of the sine part, at each shift."""
    plane = np.arange(queries.shape[1])
    out = []
    for shift in _shifts(len(plane)):
        other = (plane + shift) % len(plane)
        sine = cosines[:, queries[0], keys[1][other]] - cosines[:, queries[1][other], keys[0]]
        out.append(np.mean(sine**2))
    return np.array(out)


def _alignment(heads: Sequence[HeadCosines], queries: Lanes, keys: Lanes) -> float:
    if np.array_equal(queries, keys):
        return 1.0
    taken = sum(np.mean(head.cosines[:, queries, keys] ** 2) for head in heads)
    stored = sum(np.mean(np.diagonal(head.cosines, axis1=1, axis2=2) ** 2) for head in heads)
    return float(taken / (stored + _FLOOR))


def _likeness(norms: FloatArray, lanes: Lanes) -> FloatArray:
    logs = np.log(np.maximum(norms, 1e-3 * np.median(norms) + _FLOOR))
    plane = np.arange(lanes.shape[1])
    return np.array(
        [
            1 / (np.mean((logs[:, lanes[0]] - logs[:, lanes[1][(plane + s) % len(plane)]]) ** 2)
                 + _FLOOR)
            for s in _shifts(len(plane))
        ]
    )  # fmt: skip


def _contrast(name: Arrangement, energies: FloatArray) -> Contrast:
    """Judge energies of shape (heads, shifts), the first shift 0.

    Under the null each shift of a head is as likely as another to have the largest; that gives
    the mean and the spread of the sum over heads.
    """
    heads, count = energies.shape
    if count < 2:
        return Contrast(name, 1.0, 1.0, 0.0, 1.0, 0.0)
    logs = np.log(energies + _FLOOR)
    above = (logs - logs.mean(axis=1, keepdims=True)) * count / (count - 1)
    spread = math.sqrt(float(above.var(axis=1).sum()))
    z = float(above[:, 0].sum()) / spread if spread > 0 else 0.0
    p = max(0.5 * math.erfc(z / math.sqrt(2)), float(count) ** -heads)
    return Contrast(
        name,
        math.exp(float(above[:, 0].mean())),
        math.exp(float((logs[:, 0] - logs[:, 1:3].mean(axis=1)).mean())),
        z,
        p,
        float((logs[:, :1] >= logs[:, 1:]).all(axis=1).mean()),
    )
