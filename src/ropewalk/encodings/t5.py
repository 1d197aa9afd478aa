"""T5's relative bias: a learned number per head and bucket of distances."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .base import FloatArray, Parameters, Sizes, given
from .distance_bias import DistanceBias


@dataclass(frozen=True, kw_only=True)
class T5Buckets(DistanceBias):
    """``table[bucket(i - j), head]`` is added to the scores; all layers share one table.

    Half of the buckets hold one distance each, the other half grow as a geometric sequence up
    to ``max_distance``; what lies farther is in the last one. The paper's models do not scale
    ``q.k`` (that is in how their weights start); here the argument ``scale`` of `scores`
    decides, and 1 is theirs. Their cross attention has no bias at all: do not use this there.

    Attributes:
        buckets: how many there are, both directions together.
        max_distance: where the last bucket begins at the latest.
        bidirectional: give keys ahead of the query the upper half of the buckets; else they
            are in bucket 0, and the causal mask hides them.

    Source: Raffel et al. 2019, arXiv 1910.10683, section 2.1; the bucket function is that of
    Mesh TensorFlow, in exact integer arithmetic.
    """

    kind: ClassVar[str] = "t5"
    buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = False

    def __post_init__(self) -> None:
        """Refuse buckets that cannot be laid out."""
        least = 4 if self.bidirectional else 2
        if not _is_int(self.buckets) or self.buckets < least or self.buckets % 2:
            raise InputError(
                "buckets",
                found=repr(self.buckets),
                expected=f"an even number of buckets, at least {least}",
                fix="use 32, as T5 does",
            )
        if not _is_int(self.max_distance) or self.max_distance <= self.exact:
            raise InputError(
                "max_distance",
                found=repr(self.max_distance),
                expected=f"more tokens than the {self.exact} buckets of one distance each",
                fix="use 128, as T5 does",
            )

    @property
    def one_way(self) -> int:
        """Buckets for one direction."""
        return self.buckets // 2 if self.bidirectional else self.buckets

    @property
    def exact(self) -> int:
        """Buckets of one distance each, in one direction."""
        return self.one_way // 2

    def parameter_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """One table, (buckets, heads)."""
        return {"table": (self.buckets, sizes.heads)}

    def bucket(self, distance: Any) -> npt.NDArray[np.int64]:
        """Return the bucket of each distance.

        Args:
            distance: query position minus key position, integers of any shape. T5's own code
                counts the other way round, key minus query.

        Raises:
            InputError: distances that are no integers.
        """
        away = np.asarray(distance)
        if away.dtype.kind not in "iu":
            refuse_distances(str(away.dtype))
        starts = np.asarray(bucket_starts(self.one_way, self.max_distance))
        found: npt.NDArray[np.int64] = np.searchsorted(starts, np.maximum(away, 0), side="right")
        if self.bidirectional:
            ahead = np.searchsorted(starts, np.maximum(-away, 0), side="right") + self.one_way
            found = np.where(away < 0, ahead, found)
        return found

    def of_distance(
        self, distance: Any, heads: int, parameters: Parameters | None = None
    ) -> FloatArray:
        """See `DistanceBias.of_distance`."""
        table = given(self, parameters, "table")
        out: FloatArray = np.moveaxis(table[self.bucket(distance)], -1, 0)
        return out


@functools.lru_cache
def bucket_starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """Return the smallest distance of buckets 1, 2, ..., for one direction.

    Bucket ``e + t`` with e = buckets // 2 holds the distances d for which
    ``t <= log(d / e) / log(max_distance / e) * (buckets - e)``, which for integers is
    ``max_distance^t * e^(w - t) <= d^w`` with w = buckets - e: no rounding decides.
    """
    exact = buckets // 2
    wide = buckets - exact
    starts = list(range(1, exact + 1))
    for step in range(1, wide):
        least = max_distance**step * exact ** (wide - step)
        low, high = exact, max_distance  # low^w < least <= high^w
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if middle**wide >= least else (middle, high)
        starts.append(high)
    return tuple(starts)


def refuse_distances(found: str) -> None:
    """Refuse distances that are no whole tokens."""
    raise InputError(
        "positions",
        found=found,
        expected="integer positions: buckets hold whole distances",
        fix="pass integers, e.g. numpy.arange(tokens)",
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
