"""The library's rotation in one arithmetic, and how far rounding can take it off.

Everything here goes through `ropewalk.rotation.rotate` and `ropewalk.tables.cos_sin`, looked
up when called, so that what is judged is the library's own code. In the bounds, ε is the
spacing of numbers at 1.0 (2^-52 in float64, 2^-23 in float32), so one rounding is off by at
most ε/2; δ is how far an angle is off, in radians.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import rotation
from ..rope import Precision, Rope

FloatArray = npt.NDArray[Any]

DEGREES_ERROR = "δ = angle·ε"
TURN_ERROR = "(δ + 3ε)|x|"
SCORE_ERROR = "(2δ + (6 + d/2)ε)|q||k|"


@dataclass(frozen=True)
class Arithmetic:
    """``exact``: exact tables, rotated in float64. ``float32``: the common single precision."""

    precision: Precision = "exact"

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """The dtype of tables, vectors and scores."""
        return np.float64 if self.precision == "exact" else np.float32

    @property
    def epsilon(self) -> float:
        """ε: the distance from 1.0 to the next number."""
        return float(np.finfo(self.dtype).eps)

    def turn_degrees(self, x: Any, degrees: Any) -> FloatArray:
        """Turn vectors of one plane, shape (count, 2), by one angle or one angle each."""
        angles = np.radians(np.broadcast_to(degrees, (len(x),)).astype(np.float64))[:, None]
        return self._rotate(
            x, np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype), "half"
        )

    def turn(self, rope: Rope, x: Any, positions: Any) -> FloatArray:
        """Rotate vectors (count, head_dim) by the rope's tables at the given positions."""
        cos, sin = self.tables(rope, positions)
        return self._rotate(x, cos, sin, rope.pairing)

    def tables(self, rope: Rope, positions: Any) -> tuple[FloatArray, FloatArray]:
        """Return cos and sin of the rope, shape (count, planes)."""
        return rope.cos_sin(np.asarray(positions), precision=self.precision, dtype=self.dtype)

    def _rotate(self, x: Any, cos: Any, sin: Any, pairing: Any) -> FloatArray:
        vectors = np.asarray(x).astype(self.dtype)
        turned: FloatArray = rotation.rotate(vectors, cos, sin, pairing=pairing, order="time")
        return turned

    def degrees_error(self, degrees: float) -> float:
        """δ of `turn_degrees`: degrees to radians costs two roundings of the angle."""
        return math.radians(abs(degrees)) * self.epsilon

    def table_error(self, position: float) -> float:
        """δ of the rope's tables at an integer position.

        Exact: 2^-65 turns per token, then three roundings of an angle of at most π: 6ε is
        above 1.5πε. Float32: the frequency and its product with the position are rounded.
        """
        if self.precision == "exact":
            return 6 * self.epsilon + 2 * math.pi * abs(position) * 2.0**-65
        return (1 + 2 * abs(position)) * self.epsilon

    @property
    def table_error_formula(self) -> str:
        """`table_error` as text; p is the largest position."""
        return "δ = 6ε + 2π·p·2⁻⁶⁵" if self.precision == "exact" else "δ = (1 + 2p)ε"

    def turn_error(self, delta: float) -> float:
        """How far a turned unit vector is off, as text in ``TURN_ERROR``.

        Cos and sin are rounded (ε/√2 together), then two products and a sum per lane (ε per
        lane, √2 ε for both): below 3ε.
        """
        return delta + 3 * self.epsilon

    def score_error(self, delta: float, dim: int) -> float:
        """How far the score of two turned unit vectors of ``dim`` lanes is off.

        Two turned vectors, and an inner product of ``dim`` terms; text in ``SCORE_ERROR``.
        """
        return 2 * self.turn_error(delta) + dim / 2 * self.epsilon


def norms(x: Any) -> npt.NDArray[np.float64]:
    """Return the length of each vector along the last axis, computed in float64."""
    lengths: npt.NDArray[np.float64] = np.linalg.norm(np.asarray(x, dtype=np.float64), axis=-1)
    return lengths


def longest(x: Any) -> float:
    """Return the length of the longest vector."""
    return float(norms(x).max())
