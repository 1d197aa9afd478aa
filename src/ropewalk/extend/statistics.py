"""Intervals: Wilson for shares, paired bootstrap over documents for differences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import InputError

FEWEST_DOCUMENTS = 5
"""Below this many documents a bootstrap interval says nothing, and none is given."""


@dataclass(frozen=True)
class Interval:
    """A two-sided 95 % interval."""

    low: float
    high: float


def wilson(hits: int, trials: int) -> Interval:
    """Return the Wilson score interval of a share.

    Source: Wilson 1927; z = 1.96 for 95 %. Unlike the normal interval it is honest near 0
    and 1: 10 of 10 gives 0.72 to 1.

    Raises:
        InputError: no trials, or hits outside 0 … trials.
    """
    if trials < 1 or not 0 <= hits <= trials:
        raise InputError(
            "wilson",
            found=f"{hits} hits of {trials} trials",
            expected="at least one trial and hits among them",
            fix="check the counts",
        )
    z = 1.959963984540054
    share = hits / trials
    middle = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # At the ends the interval touches 0 or 1 exactly; rounding must not say otherwise.
    low = 0.0 if hits == 0 else (middle - spread) / scale
    high = 1.0 if hits == trials else (middle + spread) / scale
    return Interval(low, high)


def paired_bootstrap(
    differences: npt.ArrayLike, *, resamples: int = 10_000, seed: int = 0
) -> Interval | None:
    """Return the 95 % percentile interval of the mean of per-document differences.

    Documents are drawn, not tokens: tokens of one document are correlated, and an interval
    over tokens would be far too narrow. Fewer than five documents give None.

    Args:
        differences: one number per document, the difference of two methods on it.
        resamples: bootstrap draws.
        seed: of the draws; the same input gives the same interval.
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.size < FEWEST_DOCUMENTS:
        return None
    draws = np.random.default_rng(seed).integers(0, values.size, (resamples, values.size))
    means = values[draws].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(low), float(high))
