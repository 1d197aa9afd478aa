"""What the encodings that add a number per head and distance to the scores have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from .base import Encoding, FloatArray, Parameters, distances, dot


@dataclass(frozen=True, kw_only=True)
class DistanceBias(Encoding):
    """Scores are ``scale * q.k + bias[head, i - j]``; queries and keys stay as they are."""

    @abstractmethod
    def of_distance(
        self, distance: Any, heads: int, parameters: Parameters | None = None
    ) -> FloatArray:
        """Return the bias of distances, (heads, *distance.shape).

        Args:
            distance: query position minus key position, any shape.
            heads: query heads.
            parameters: what `parameter_shapes` names.
        """

    def _scores(
        self,
        q: Any,
        k: Any,
        query_positions: Any,
        key_positions: Any,
        *,
        parameters: Parameters | None = None,
        length: int | None = None,
        scale: float | None = None,
    ) -> FloatArray:
        """See `Encoding.scores`."""
        away = distances(query_positions, key_positions)
        return dot(q, k, scale) + self.of_distance(away, np.asarray(q).shape[0], parameters)
