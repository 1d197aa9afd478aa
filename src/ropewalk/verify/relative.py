"""The score of a rotated query and a rotated key depends on their distance alone."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ..rope import Rope
from .arithmetic import DEGREES_ERROR, SCORE_ERROR, TURN_ERROR, Arithmetic, norms
from .check import Check, compare

GROUP = "scores depend on the distance n - m only; q = k = (1, 0) where d = 2"
SOURCE = "RoFormer, arXiv 2104.09864, equations 11 and 16"

SHIFT = 131072
"""Tokens by which all positions are moved."""

_DIM = 64
_TOKENS = 16
_UNIT = np.array([[1.0, 0.0]])


def checks(arithmetic: Arithmetic) -> list[Check]:
    """Return the checks of this group."""
    return [
        *_same_distance(arithmetic),
        *_by_the_difference(arithmetic),
        *_three_keys(arithmetic),
        _shifted(arithmetic),
    ]


def _score(arithmetic: Arithmetic, query_degrees: float, key_degrees: float) -> float:
    """The inner product of (1, 0) turned by one angle and (1, 0) turned by another."""
    query = arithmetic.turn_degrees(_UNIT, query_degrees)[0]
    key = arithmetic.turn_degrees(_UNIT, key_degrees)[0]
    return float(query @ key)


def _of_unit_vectors(arithmetic: Arithmetic, largest_degrees: float) -> dict[str, Any]:
    """Tolerance of a score of two turned unit vectors, and its text."""
    return {
        "tolerance": arithmetic.score_error(arithmetic.degrees_error(largest_degrees), 2),
        "tolerance_formula": f"{SCORE_ERROR}, d = 2, |q| = |k| = 1, {DEGREES_ERROR}",
        "source": SOURCE,
    }


def _same_distance(arithmetic: Arithmetic) -> list[Check]:
    out = [
        compare(
            GROUP,
            f"30° per token, m = {m}, n = {m + 2}",
            formula="(R(m)q)·(R(m + 2)k) = cos(2·30°) = 1/2 for every m",
            computed=[_score(arithmetic, 30 * m, 30 * (m + 2))],
            expected=0.5,
            **_of_unit_vectors(arithmetic, 30 * (m + 2)),
        )
        for m in (0, 1, 5, 10)
    ]
    out.append(
        compare(
            GROUP,
            "45° per token, m = 0, n = 2",
            formula="(R(0)q)·(R(2)k) = cos(2·45°) = 0",
            computed=[_score(arithmetic, 0, 90)],
            expected=0.0,
            **_of_unit_vectors(arithmetic, 90),
        )
    )
    return out


def _by_the_difference(arithmetic: Arithmetic) -> list[Check]:
    return [
        compare(
            GROUP,
            "m = 1, n = 3 directly, 30° and 90°",
            formula="(R(1)q)·(R(3)k) = (0.866, 0.5)·(0, 1): q turned by 30°, k by 90°",
            computed=[_score(arithmetic, 30, 90)],
            expected=0.5,
            **_of_unit_vectors(arithmetic, 90),
        ),
        compare(
            GROUP,
            "m = 1, n = 3 by q·R(2)k = cos 60°",
            formula="q·R(n - m)k = cos 60°",
            computed=[_score(arithmetic, 0, 60)],
            expected=math.cos(math.pi / 3),
            **_of_unit_vectors(arithmetic, 60),
        ),
    ]


def _three_keys(arithmetic: Arithmetic) -> list[Check]:
    root = math.sqrt(3) / 2
    angles = (0, 30, 60)
    turned = dict(
        zip(
            angles,
            arithmetic.turn_degrees(np.repeat(_UNIT, 3, axis=0), angles),
            strict=True,
        )
    )
    wanted = {0: (1.0, 0.0), 30: (root, 0.5), 60: (0.5, root)}
    out = [
        compare(
            GROUP,
            f"key turned by {angle}°",
            formula="R k = (cos, sin)",
            computed=turned[angle],
            expected=wanted[angle],
            tolerance=arithmetic.turn_error(arithmetic.degrees_error(angle)),
            tolerance_formula=f"{TURN_ERROR}, |x| = 1, {DEGREES_ERROR}",
            source=SOURCE,
        )
        for angle in angles
    ]
    out.extend(
        compare(
            GROUP,
            f"score of the keys at {a}° and {b}°",
            formula="cos of the angle between them",
            computed=[float(turned[a] @ turned[b])],
            expected={30: root, 60: 0.5}[b - a],
            **_of_unit_vectors(arithmetic, b),
        )
        for a, b in itertools.combinations(angles, 2)
    )
    return out


def _shifted(arithmetic: Arithmetic) -> Check:
    rope = Rope(head_dim=_DIM)
    rng = np.random.default_rng(2)
    q, k = rng.standard_normal((2, _TOKENS, _DIM))
    q, k = (x / norms(x)[:, None] for x in (q, k))  # scores are cosines
    positions = np.arange(_TOKENS)

    def scores(at: Any) -> Any:
        return arithmetic.turn(rope, q, at) @ arithmetic.turn(rope, k, at).T

    # Twice, for the scores before and after; the error before is the smaller one.
    delta = arithmetic.table_error(SHIFT + _TOKENS)
    return compare(
        GROUP,
        f"d = {_DIM}, all positions + {SHIFT}",
        formula="(R(m + s)q)·(R(n + s)k) = (R(m)q)·(R(n)k)",
        computed=scores(positions + SHIFT),
        expected=scores(positions),
        tolerance=2 * arithmetic.score_error(delta, _DIM),
        tolerance_formula=f"2·{SCORE_ERROR}, |q| = |k| = 1, {arithmetic.table_error_formula}, "
        f"p = {SHIFT + _TOKENS}",
        source=SOURCE,
    )
