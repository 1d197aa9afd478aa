"""One identity, computed and judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Relation = Literal["equal", "at most", "differs"]

SHOWN = 3
"""Up to so many compared numbers are kept; of more, only the worst one is."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One identity on numbers.

    Attributes:
        group: the heading it stands under.
        name: what was computed, in words; unique within a report.
        formula: the identity as plain text.
        computed: the numbers found; where more than a few were compared, the worst one.
        expected: the numbers that each must be equal to, not above, or different from.
        compared: how many numbers were compared.
        difference: largest |computed - expected| (for ``at most``: largest excess, 0 if none).
        tolerance: what the difference is held against.
        tolerance_formula: how the tolerance is derived; ε is the spacing of numbers at 1.0.
        relation: ``equal`` and ``at most`` hold when the difference is at most the
            tolerance, ``differs`` when it is more.
        source: where the identity is stated.
    """

    group: str
    name: str
    formula: str
    computed: tuple[float, ...]
    expected: tuple[float, ...]
    compared: int
    difference: float
    tolerance: float
    tolerance_formula: str
    relation: Relation
    source: str

    @property
    def passed(self) -> bool:
        """Whether the identity holds; never for a difference that is no number."""
        if self.relation == "differs":
            return self.difference > self.tolerance
        return self.difference <= self.tolerance


def compare(
    group: str,
    name: str,
    *,
    formula: str,
    computed: Any,
    expected: Any,
    tolerance: float,
    tolerance_formula: str,
    source: str,
    relation: Relation = "equal",
) -> Check:
    """Compare two arrays of one shape (or an array with a number) and return the check."""
    found = np.asarray(computed, dtype=np.float64)
    wanted = np.broadcast_to(np.asarray(expected, dtype=np.float64), found.shape)
    found, wanted = found.ravel(), wanted.ravel()
    gap: npt.NDArray[np.float64] = found - wanted
    gap = np.maximum(gap, 0.0) if relation == "at most" else np.abs(gap)
    worst = int(np.argmax(gap))  # the first NaN, if there is one
    shown = slice(None)
    if found.size > SHOWN:
        shown = slice(worst, worst + 1)
    return Check(
        group=group,
        name=name,
        formula=formula,
        computed=tuple(found[shown].tolist()),
        expected=tuple(wanted[shown].tolist()),
        compared=found.size,
        difference=float(gap[worst]),
        tolerance=float(tolerance),
        tolerance_formula=tolerance_formula,
        relation=relation,
        source=source,
    )
