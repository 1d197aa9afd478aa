"""Intervals over seeds: few values, so Student's t and no normal curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Two-sided 95 % quantiles of Student's t for 1, 2, 3 … degrees of freedom.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with half the width of its 95 % interval; None below two seeds."""

    value: float
    half: float | None

    @property
    def low(self) -> float:
        """Lower end; the mean itself where there is no interval."""
        return self.value - (self.half or 0.0)

    @property
    def high(self) -> float:
        """Upper end; the mean itself where there is no interval."""
        return self.value + (self.half or 0.0)

    @property
    def side(self) -> int:
        """1 where the whole interval is above 0, -1 where it is below, 0 where it holds 0."""
        return (self.low > 0) - (self.high < 0)

    def text(self, digits: int = 3, sign: bool = False) -> str:
        """Return e.g. ``2.143 ± 0.021``."""
        form = f"{'+' if sign else ''}.{digits}f"
        spread = "" if self.half is None else f" ± {self.half:.{digits}f}"
        return f"{self.value:{form}}{spread}"


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean and its interval by Student's t (Student 1908)."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Mean(mean, None)
    variance = math.fsum((v - mean) ** 2 for v in values) / (count - 1)
    quantile = _T[count - 2] if count - 2 < len(_T) else 1.96
    return Mean(mean, quantile * math.sqrt(variance / count))


def paired(values: Sequence[float], reference: Sequence[float]) -> Mean:
    """Return the mean difference of two lists that go by the same seeds."""
    return mean_of([a - b for a, b in zip(values, reference, strict=True)])


def ratio(values: Sequence[float], reference: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the geometric mean ratio with its interval, paired by seed; None below two."""
    logs = mean_of([math.log(a / b) for a, b in zip(values, reference, strict=True)])
    if logs.half is None:
        return None
    return math.exp(logs.value), math.exp(logs.low), math.exp(logs.high)
