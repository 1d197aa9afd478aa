"""A rotation keeps lengths and angles: RᵀR = I, |Rx| = |x|, and it can be turned back."""

from __future__ import annotations

import numpy as np

from .. import rotation
from ..rope import Rope
from .arithmetic import TURN_ERROR, Arithmetic, FloatArray, longest, norms
from .check import Check, compare

GROUP = "R is a rotation: RᵀR = I, |Rx| = |x|"
SOURCE = "RoFormer, arXiv 2104.09864, section 3.2.2"

ANGLES = (30, 45, 137)
"""Degrees; neither special nor in one quadrant."""

_POSITIONS = (0, 1, 2, 63, 4096, 131072)
_DIM = 64


def checks(arithmetic: Arithmetic) -> list[Check]:
    """Return the checks of this group."""
    return [*_orthogonal(arithmetic), *_lengths(arithmetic)]


def matrix(arithmetic: Arithmetic, degrees: float) -> FloatArray:
    """Return the 2 x 2 matrix by which the library's rotation multiplies a vector."""
    # Row j of the turned identity is R e_j, which is column j of R.
    r: FloatArray = arithmetic.turn_degrees(np.eye(2), degrees).astype(np.float64).T
    return r


def _orthogonal(arithmetic: Arithmetic) -> list[Check]:
    epsilon = arithmetic.epsilon
    out = []
    for angle in ANGLES:
        r = matrix(arithmetic, angle)
        out.append(
            compare(
                GROUP,
                f"RᵀR - I at {angle}°",
                formula="RᵀR = I",
                computed=r.T @ r,
                expected=np.eye(2),
                tolerance=4.5 * epsilon,
                tolerance_formula="4.5ε (below 1e-15 in float64): cos² + sin² from rounded values",
                source=SOURCE,
            )
        )
    out.append(
        compare(
            GROUP,
            "det R at " + ", ".join(f"{a}°" for a in ANGLES),
            formula="det R = cos² + sin² = +1; a reflection has -1",
            computed=[_determinant(matrix(arithmetic, a)) for a in ANGLES],
            expected=1.0,
            tolerance=4.5 * epsilon,
            tolerance_formula="4.5ε, as for RᵀR",
            source=SOURCE,
        )
    )
    return out


def _determinant(r: FloatArray) -> float:
    return float(r[0, 0] * r[1, 1] - r[0, 1] * r[1, 0])


def _lengths(arithmetic: Arithmetic) -> list[Check]:
    rope = Rope(head_dim=_DIM)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((len(_POSITIONS), _DIM)).astype(arithmetic.dtype)
    turned = arithmetic.turn(rope, x, _POSITIONS)
    cos, sin = arithmetic.tables(rope, _POSITIONS)
    back = rotation.rotate(turned, cos, sin, pairing=rope.pairing, order="time", inverse=True)
    first = x[:1]
    epsilon = arithmetic.epsilon
    return [
        compare(
            GROUP,
            f"length kept, d = {_DIM}, m to {_POSITIONS[-1]}",
            formula="|R x| = |x|",
            computed=norms(turned),
            expected=norms(x),
            tolerance=(3 + _DIM / 2) * epsilon * longest(x),
            tolerance_formula="(3 + d/2)ε|x|: 3ε for the turn, d/2 ε for the sum of squares",
            source=SOURCE,
        ),
        compare(
            GROUP,
            "position 0 turns nothing",
            formula="R at position 0 = I",
            computed=arithmetic.turn(rope, first, [0]),
            expected=first,
            tolerance=0.0,
            tolerance_formula="0: cos 0 = 1 and sin 0 = 0 are exact",
            source=SOURCE,
        ),
        compare(
            GROUP,
            "turned and turned back",
            formula="R(-m) R(m) x = x",
            computed=back,
            expected=x,
            tolerance=2 * arithmetic.turn_error(0.0) * longest(x),
            tolerance_formula=f"2·{TURN_ERROR} with δ = 0: both turns use one table",
            source=SOURCE,
        ),
    ]
