"""Queries that grow with the logarithm of their position, under any encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import InputError
from ..scaling.base import check_length
from .base import Encoding, FloatArray, Parameters, Sizes

INNER = "inner."
"""What the names of the wrapped encoding's parameters begin with."""


@dataclass(frozen=True, kw_only=True)
class LogN(Encoding):
    """Queries times ``max(1, log_L(n))``, with n the number of tokens that a query can see.

    With positions from 0 on, ``n = position + 1``: every query has its own factor, no factor
    depends on later tokens, and cached keys stay valid. That is what Qwen-1
    (``use_logn_attn``), Baichuan-style code and Su's ReRoPE do, to the token. The other
    convention in the wild, Su's first one, made for attention without a mask, takes the
    length of the whole text as n for all queries.

    The factor multiplies the queries, so whatever an encoding adds to the scores without
    looking at the query stays as it is.

    Attributes:
        inner: the encoding that is wrapped.
        original_length: L, tokens the model was trained on, at least 2.

    Raises:
        InputError: no encoding, or a length that is no length.

    Source: Su 2021, https://kexue.fm/archives/8823; Chiang and Cholak 2022, arXiv 2202.12172;
    ``logn_list`` in Qwen-1's modeling_qwen.py.
    """

    kind: ClassVar[str] = "log-n"
    inner: Encoding
    original_length: int

    def __post_init__(self) -> None:
        """Refuse a length whose logarithm is no base."""
        if not isinstance(self.inner, Encoding):
            raise InputError(
                "log-n: inner",
                found=repr(self.inner),
                expected="an encoding",
                fix="pass e.g. Rotary(rope=…)",
            )
        check_length("log-n: original_length", self.original_length)
        if self.original_length < 2:
            raise InputError(
                "log-n: original_length",
                found=str(self.original_length),
                expected="at least 2 tokens, because its logarithm divides",
                fix="give the trained length, e.g. 4096",
            )

    @property
    def per_layer(self) -> bool:  # type: ignore[override]
        """As the wrapped encoding."""
        return self.inner.per_layer

    @property
    def longest(self) -> int | None:
        """As the wrapped encoding."""
        return self.inner.longest

    def factors(self, query_positions: Any) -> FloatArray:
        """Return what each query is multiplied by, in the shape of the positions."""
        seen = np.maximum(np.asarray(query_positions, dtype=np.float64) + 1, 1)
        out: FloatArray = np.maximum(np.log(seen) / np.log(self.original_length), 1)
        return out

    def parameter_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Those of the wrapped encoding, named ``inner.…``."""
        return {INNER + name: shape for name, shape in self.inner.parameter_shapes(sizes).items()}

    def initial_parameters(self, sizes: Sizes, seed: int = 0) -> dict[str, FloatArray]:
        """Those of the wrapped encoding, the same draw."""
        drawn = self.inner.initial_parameters(sizes, seed)
        return {INNER + name: value for name, value in drawn.items()}

    def added(
        self, positions: Any, width: int, parameters: Parameters | None = None
    ) -> FloatArray | None:
        """See `Encoding.added`; that of the wrapped encoding."""
        return self.inner.added(positions, width, _of_inner(parameters))

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
        return self.inner.scores(
            np.asarray(q, dtype=np.float64) * self.factors(query_positions)[:, None],
            k,
            query_positions,
            key_positions,
            parameters=_of_inner(parameters),
            length=length,
            scale=scale,
        )


def _of_inner(parameters: Parameters | None) -> Parameters | None:
    if parameters is None:
        return None
    return {
        name.removeprefix(INNER): value
        for name, value in parameters.items()
        if name.startswith(INNER)
    }
