"""Transformer-XL: the distance is a vector that queries are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .base import Encoding, FloatArray, Parameters, Sizes, distances, dot, given
from .sinusoidal import sinusoidal


@dataclass(frozen=True, kw_only=True)
class TransformerXL(Encoding):
    """``(q_i + u) . k_j + (q_i + v) . (R[i - j] W_r)``, times the scale.

    R is the sinusoidal encoding of the distance, ``width`` lanes with sines and cosines
    alternating; the authors' code has all sines first, which only reorders the rows of W_r.
    It is meant for causal attention: the paper has no distance below 0.

    The paper writes u and v without a layer and W_r with one; the authors' code has a switch
    ``untie_r`` that gives each layer its own u and v, and their large models set it. Here each
    layer has all three, so that a layer's parameters are one set.

    Attributes:
        theta: base of the wavelengths of R.

    Source: Dai et al. 2019, arXiv 1901.02860, section 3.3 and appendix B.
    """

    kind: ClassVar[str] = "transformer-xl"
    per_layer: ClassVar[bool] = True
    theta: float = 10000.0

    def parameter_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Two biases, (heads, head_dim), and the projection (width, heads * head_dim)."""
        bias = (sizes.heads, sizes.head_dim)
        return {"u": bias, "v": bias, "w_r": (sizes.width, sizes.heads * sizes.head_dim)}

    def distance_vectors(self, distance: Any, width: int) -> FloatArray:
        """Return R, ``distance.shape + (width,)``."""
        return sinusoidal(np.asarray(distance), width, theta=self.theta)

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
        queries = np.asarray(q, dtype=np.float64)
        heads, _, head_dim = queries.shape
        u, v, w_r = (given(self, parameters, name) for name in ("u", "v", "w_r"))
        distinct, index = np.unique(distances(query_positions, key_positions), return_inverse=True)
        rows = self.distance_vectors(distinct, w_r.shape[0]) @ w_r
        by_distance = rows.reshape(-1, heads, head_dim)[index]  # (queries, keys, heads, head_dim)
        factor = head_dim**-0.5 if scale is None else scale
        compared = np.einsum("hid,ijhd->hij", queries + v[:, None], by_distance)
        out: FloatArray = dot(queries + u[:, None], k, scale) + factor * compared
        return out
