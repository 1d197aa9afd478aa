"""ALiBi: every head takes off its own slope per token of distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import InputError
from .base import FloatArray, Parameters
from .distance_bias import DistanceBias


@dataclass(frozen=True, kw_only=True)
class ALiBi(DistanceBias):
    """Attention with linear biases: ``-slope[head] * (i - j)``; nothing is learned.

    Attributes:
        symmetric: take the distance without its sign, for attention in both directions. Else
            a key ahead of its query would gain, which the causal mask hides.

    Source: Press et al. 2021, arXiv 2108.12409, section 3; slopes of any head count from the
    authors' code.
    """

    kind: ClassVar[str] = "alibi"
    symmetric: bool = False

    def of_distance(
        self, distance: Any, heads: int, parameters: Parameters | None = None
    ) -> FloatArray:
        """See `DistanceBias.of_distance`."""
        away = np.asarray(distance, dtype=np.float64)
        if self.symmetric:
            away = np.abs(away)
        out: FloatArray = np.multiply.outer(-alibi_slopes(heads), away)
        return out


def alibi_slopes(heads: int) -> FloatArray:
    """Return the slope of each head, (heads,), largest first within each sequence.

    For a power of two n they are ``2^(-8h/n)``, h = 1 to n. For other counts: those of the
    largest power of two below, then every other one of its double, the first first.

    Raises:
        InputError: no positive number of heads.
    """
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
        raise InputError(
            "heads",
            found=repr(heads),
            expected="a positive number of heads",
            fix="pass the layer's number of query heads",
        )
    power = 2 ** int(math.log2(heads))
    own = -8.0 * np.arange(1, power + 1) / power
    doubled = -8.0 * np.arange(1, 2 * power + 1, 2) / (2 * power)
    out: FloatArray = 2.0 ** np.concatenate([own, doubled[: heads - power]])
    return out
