"""Three ways to write the rotation: a block-diagonal matrix, complex numbers, O(d) products.

The first two are written out here, from the definition and with NumPy's float64 only; the
third is the library's `rotate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..rope import PAIRINGS, Pairing, Rope
from .arithmetic import SCORE_ERROR, TURN_ERROR, Arithmetic, longest
from .check import Check, compare

GROUP = "one rotation in three forms, d = 16, both pairings"
SOURCE = "RoFormer, arXiv 2104.09864, equations 12, 15 and 34"

DIM = 16
THETA = 10000.0
_POSITIONS = (0, 1, 7, 100)

FloatArray = npt.NDArray[np.float64]


def angles_of(positions: Any) -> FloatArray:
    """Return position times theta^(-2i/d), shape (count, d/2), in plain float64."""
    frequencies = THETA ** (-2.0 * np.arange(DIM // 2) / DIM)
    return np.multiply.outer(np.asarray(positions, dtype=np.float64), frequencies)


def plane_lanes(pairing: Pairing) -> list[tuple[int, int]]:
    """Return the two lanes of each plane."""
    if pairing == "half":
        return [(i, i + DIM // 2) for i in range(DIM // 2)]
    return [(2 * i, 2 * i + 1) for i in range(DIM // 2)]


def matrix_form(x: FloatArray, positions: Any, pairing: Pairing) -> FloatArray:
    """Multiply each vector with its d x d matrix: a 2 x 2 rotation per plane, else zeros."""
    out = np.empty_like(x)
    for row, angles in enumerate(angles_of(positions)):
        r = np.zeros((DIM, DIM))
        for (a, b), angle in zip(plane_lanes(pairing), angles, strict=True):
            r[a, a], r[a, b] = np.cos(angle), -np.sin(angle)
            r[b, a], r[b, b] = np.sin(angle), np.cos(angle)
        out[row] = r @ x[row]
    return out


def complex_form(x: FloatArray, positions: Any, pairing: Pairing) -> FloatArray:
    """Multiply each plane, read as one complex number, with e^(i angle)."""
    first, second = np.array(plane_lanes(pairing)).T
    turned = (x[:, first] + 1j * x[:, second]) * np.exp(1j * angles_of(positions))
    out = np.empty_like(x)
    out[:, first], out[:, second] = turned.real, turned.imag
    return out


def complex_scores(q: FloatArray, k: FloatArray, positions: Any, pairing: Pairing) -> FloatArray:
    """Return Re sum_j q_j conj(k_j) e^(i (m - n) angle_j): the positions enter as m - n only."""
    first, second = np.array(plane_lanes(pairing)).T
    query, key = q[:, first] + 1j * q[:, second], k[:, first] + 1j * k[:, second]
    distance = np.subtract.outer(np.asarray(positions), np.asarray(positions))
    products = query[:, None, :] * key.conj()[None, :, :] * np.exp(1j * angles_of(distance))
    total: FloatArray = products.sum(axis=-1).real
    return total


def checks(arithmetic: Arithmetic) -> list[Check]:
    """Return the checks of this group."""
    return [check for pairing in PAIRINGS for check in _of_pairing(arithmetic, pairing)]


def _of_pairing(arithmetic: Arithmetic, pairing: Pairing) -> list[Check]:
    rope = Rope(head_dim=DIM, theta=THETA, pairing=pairing)
    rng = np.random.default_rng(3)
    # Rounded to the arithmetic at hand first, so that all forms turn the same vectors.
    q, k = rng.standard_normal((2, len(_POSITIONS), DIM)).astype(arithmetic.dtype)
    fast, fast_k = (arithmetic.turn(rope, x, _POSITIONS) for x in (q, k))
    q, k = q.astype(np.float64), k.astype(np.float64)
    by_matrix = matrix_form(q, _POSITIONS, pairing)
    by_complex = complex_form(q, _POSITIONS, pairing)

    largest = _POSITIONS[-1]
    # The written-out forms take position times frequency in float64: up to 2p 2^-52 off.
    written = 2 * largest * 2.0**-52
    delta = arithmetic.table_error(largest) + written
    deltas = f"{arithmetic.table_error_formula} + 2p·2⁻⁵², p = {largest}"
    one_turn = arithmetic.turn_error(delta) * longest(q)
    return [
        compare(
            GROUP,
            f"{pairing}: O(d) = matrix",
            formula="(a cos - b sin, a sin + b cos) per plane = block-diagonal R times x",
            computed=fast,
            expected=by_matrix,
            tolerance=one_turn,
            tolerance_formula=f"{TURN_ERROR}, {deltas}",
            source=SOURCE,
        ),
        compare(
            GROUP,
            f"{pairing}: O(d) = complex",
            formula="(a cos - b sin, a sin + b cos) per plane = (a + ib) e^(i angle)",
            computed=fast,
            expected=by_complex,
            tolerance=one_turn,
            tolerance_formula=f"{TURN_ERROR}, {deltas}",
            source=SOURCE,
        ),
        compare(
            GROUP,
            f"{pairing}: complex = matrix",
            formula="(a + ib) e^(i angle) per plane = block-diagonal R times x",
            computed=by_complex,
            expected=by_matrix,
            tolerance=2 * 3 * 2.0**-52 * longest(q),
            tolerance_formula=f"2·{TURN_ERROR} in float64 with δ = 0: one angle for both",
            source=SOURCE,
        ),
        compare(
            GROUP,
            f"{pairing}: scores by m - n, complex",
            formula="(R(m)q)·(R(n)k) = Re Σ q k* e^(i (m - n) angle)",
            computed=fast @ fast_k.T,
            expected=complex_scores(q, k, _POSITIONS, pairing),
            tolerance=2 * arithmetic.score_error(delta, DIM) * longest(q) * longest(k),
            tolerance_formula=f"2·{SCORE_ERROR}, {deltas}",
            source=SOURCE,
        ),
    ]
