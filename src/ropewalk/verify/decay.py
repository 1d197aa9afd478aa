"""The long-term decay of RoFormer: a bound on a magnitude, and what it does not say.

For h_j the product of query and key in plane j, read as complex numbers, and
S_j = sum of e^(i distance θ) over the planes before j, Abel summation gives
|score| ≤ max_j |h_(j+1) - h_j| · Σ_j |S_j|. The second factor tends to fall with the
distance. It bounds a magnitude from above: a score may be anything below, and stay there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..rope import Rope
from .arithmetic import SCORE_ERROR, Arithmetic, longest
from .check import Check, compare

GROUP = "distance Δ: an upper bound on a magnitude, not the score"
SOURCE = "RoFormer, arXiv 2104.09864, section 3.4.3, equations 35 to 37"

HEAD_DIM = 128
THETA = 10000.0
_PAIRS = 32

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class DecayCurve:
    """The bound by distance, next to the score of one pair of vectors.

    Attributes:
        head_dim: lanes of the head.
        theta: base of the frequencies.
        wavelength: tokens per turn of the slowest plane.
        distances: tokens between query and key.
        bound: mean of |S_j| over the planes: RoFormer's relative upper bound on |score|.
        pair_score: score of q = k = one lane of the slowest plane.
    """

    head_dim: int
    theta: float
    wavelength: float
    distances: tuple[int, ...]
    bound: tuple[float, ...]
    pair_score: tuple[float, ...]


def table_distances() -> tuple[int, ...]:
    """Return the printed distances: powers of 4, then half and a whole slowest wavelength."""
    turn = _wavelength(_rope(HEAD_DIM, THETA))
    return (0, *(4**power for power in range(7)), round(turn / 2), round(turn))


def decay_curve(
    distances: tuple[int, ...],
    *,
    head_dim: int = HEAD_DIM,
    theta: float = THETA,
    arithmetic: Arithmetic | None = None,
) -> DecayCurve:
    """Compute the bound and the pair's score at the given distances.

    Raises:
        InputError: a head_dim or theta that makes no rope.
    """
    arithmetic = arithmetic or Arithmetic()
    rope = _rope(head_dim, theta)
    key = np.zeros((1, head_dim))
    key[0, rope.lanes(rope.planes - 1)[0]] = 1.0
    query = np.repeat(key, len(distances), axis=0)
    scores = arithmetic.turn(rope, query, distances) @ arithmetic.turn(rope, key, [0])[0]
    return DecayCurve(
        head_dim=head_dim,
        theta=theta,
        wavelength=_wavelength(rope),
        distances=tuple(distances),
        bound=tuple((_abel_sums(arithmetic, rope, distances) / rope.planes).tolist()),
        pair_score=tuple(scores.astype(np.float64).tolist()),
    )


def checks(arithmetic: Arithmetic, curve: DecayCurve) -> list[Check]:
    """Return the checks of this group; ``curve`` is that of `table_distances`."""
    rope = _rope(curve.head_dim, curve.theta)
    far = max(curve.distances)
    slowest = 2 * math.pi / curve.wavelength
    score_error = arithmetic.score_error(arithmetic.table_error(far), curve.head_dim)
    score_text = f"{SCORE_ERROR}, {arithmetic.table_error_formula}, p = {far}"
    ratio, smallest = _largest_share_of_bound(arithmetic, rope, curve.distances)
    return [
        compare(
            GROUP,
            f"bound at Δ = 0: ({rope.planes} planes + 1)/2",
            formula="S_j = Σ over j planes of 1 = j",
            computed=[curve.bound[curve.distances.index(0)]],
            expected=(rope.planes + 1) / 2,
            tolerance=0.0,
            tolerance_formula="0: sums of whole numbers are exact",
            source=SOURCE,
        ),
        compare(
            GROUP,
            f"|score| / bound, {_PAIRS} random pairs",
            formula="|q·R k| ≤ max|h_(j+1) - h_j| · Σ|S_j|",
            computed=[ratio],
            expected=1.0,
            tolerance=score_error / smallest,
            tolerance_formula=f"({score_text}) / smallest bound",
            source=SOURCE,
            relation="at most",
        ),
        compare(
            GROUP,
            "slowest-plane pair: cos(Δθ)",
            formula="q = k = one lane of the slowest plane: score = cos(distance·θ_slowest)",
            computed=curve.pair_score,
            expected=[math.cos(d * slowest) for d in curve.distances],
            tolerance=score_error + 2 * math.pi * 2.0**-52,
            tolerance_formula=f"{score_text}, and 2π·2⁻⁵² for the angle of the cosine",
            source="counter-example to reading the bound as the score",
        ),
        compare(
            GROUP,
            f"the pair at Δ = {far}, a turn",
            formula="score = cos(2π) = 1",
            computed=[curve.pair_score[curve.distances.index(far)]],
            expected=1.0,
            tolerance=(0.5 * slowest) ** 2 / 2 + score_error,
            tolerance_formula=f"(θ_slowest/2)²/2 for half a token of rounding, + {score_text}",
            source="counter-example to reading the bound as the score",
        ),
    ]


def _rope(head_dim: int, theta: float) -> Rope:
    return Rope(head_dim=head_dim, theta=theta)


def _wavelength(rope: Rope) -> float:
    return 2 * math.pi / float(rope.inv_freq()[-1])


def _abel_sums(arithmetic: Arithmetic, rope: Rope, distances: tuple[int, ...]) -> FloatArray:
    """Return Σ|S_j|, j = 1 … planes, at each distance."""
    cos, sin = arithmetic.tables(rope, distances)
    partial = np.cumsum(cos.astype(np.float64) + 1j * sin.astype(np.float64), axis=-1)
    total: FloatArray = np.abs(partial).sum(axis=-1)
    return total


def _largest_share_of_bound(
    arithmetic: Arithmetic, rope: Rope, distances: tuple[int, ...]
) -> tuple[float, float]:
    """Return the largest |score| / bound over random unit pairs, and the smallest bound."""
    rng = np.random.default_rng(5)
    sums = _abel_sums(arithmetic, rope, distances)
    first, second = np.array([rope.lanes(plane) for plane in range(rope.planes)]).T
    shares, bounds = [], []
    for q, k in rng.standard_normal((_PAIRS, 2, rope.head_dim)):
        q, k = q / longest(q), k / longest(k)
        turned = arithmetic.turn(rope, np.tile(q, (len(distances), 1)), distances)
        scores = turned @ arithmetic.turn(rope, k[None], [0])[0]
        # The sum is closed with h = 0 after the last plane.
        h = np.append((q[first] + 1j * q[second]) * (k[first] - 1j * k[second]), 0.0)
        bound = np.abs(np.diff(h)).max() * sums
        shares.append(np.abs(scores) / bound)
        bounds.append(bound)
    return float(np.max(shares)), float(np.min(bounds))
