"""What every position encoding has in common: the specification that fast code is tested against.

An encoding acts in two places. It may add something to the token embeddings, and it forms the
scores of attention from queries, keys and their positions. Both are written here in NumPy and
float64, as the papers write them; `encodings.modules` is the same for PyTorch.
"""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import InputError

FloatArray = npt.NDArray[np.float64]
Parameters = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Sizes:
    """The sizes that learned parameters depend on: those of one attention layer.

    Attributes:
        heads: query heads.
        head_dim: lanes of a head.
        width: lanes of a token embedding.
    """

    heads: int
    head_dim: int
    width: int


@dataclass(frozen=True, kw_only=True)
class Encoding(ABC):
    """How attention sees positions. A frozen value: hashable, comparable, printable.

    What is learned is no part of the value: `parameter_shapes` names it, `initial_parameters`
    draws it, and `added` and `scores` are given it.
    """

    kind: ClassVar[str]
    """The name in study files, tables and JSON."""
    per_layer: ClassVar[bool] = False
    """Whether each layer has parameters of its own; else the model has one set."""

    @property
    def longest(self) -> int | None:
        """How many positions there are; None where there is no end."""
        return None

    def parameter_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shape of each learned parameter; {} where nothing is learned."""
        return {}

    def initial_parameters(self, sizes: Sizes, seed: int = 0) -> dict[str, FloatArray]:
        """Draw the parameters as training starts with them.

        By default normal with deviation 0.02; the draw depends on the seed and the
        parameter's name only.
        """
        return {
            name: generator(seed, f"{self.kind}/{name}").normal(0.0, 0.02, shape)
            for name, shape in self.parameter_shapes(sizes).items()
        }

    def added(
        self, positions: Any, width: int, parameters: Parameters | None = None
    ) -> FloatArray | None:
        """Return what is added to the token embeddings, (time, width); None where nothing is."""
        return None

    def scores(
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
        """Return the scores before the softmax, without any mask.

        Args:
            q: queries, (heads, queries, head_dim).
            k: keys, (heads, keys, head_dim).
            query_positions: (queries,).
            key_positions: (keys,).
            parameters: what `parameter_shapes` names.
            length: tokens of the text at hand, for encodings that depend on it; by default
                the largest position plus one.
            scale: factor on products of queries and keys; by default 1/sqrt(head_dim).

        Returns:
            (heads, queries, keys), float64.

        Raises:
            InputError: arrays of other shapes, or positions that are not one per token.
        """
        _check_shapes(q, k, query_positions, key_positions)
        return self._scores(
            q,
            k,
            query_positions,
            key_positions,
            parameters=parameters,
            length=length,
            scale=scale,
        )

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
        """Form the scores from checked arrays; without positions, as here, the products."""
        return dot(q, k, scale)

    def to_dict(self) -> dict[str, Any]:
        """Return kind and fields as JSON values."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            "kind": self.kind,
            **{
                name: value.to_dict() if hasattr(value, "to_dict") else value
                for name, value in fields.items()
            },
        }


def _check_shapes(q: Any, k: Any, query_positions: Any, key_positions: Any) -> None:
    shapes = {"q": np.shape(q), "k": np.shape(k)}
    for name, shape in shapes.items():
        if len(shape) != 3 or shape[::2] != shapes["q"][::2]:
            raise InputError(
                name,
                found=f"shape {shape}",
                expected="(heads, time, head_dim), heads and head_dim as in q",
                fix="repeat grouped keys; one sequence at a time",
            )
    for name, positions, of in (
        ("query_positions", query_positions, "q"),
        ("key_positions", key_positions, "k"),
    ):
        # Another number would broadcast in silence.
        if np.shape(positions) != (shapes[of][1],):
            raise InputError(
                name,
                found=f"shape {np.shape(positions)}",
                expected=f"one position for each of the {shapes[of][1]} tokens of {of}",
                fix="pass e.g. numpy.arange(tokens)",
            )


def dot(q: Any, k: Any, scale: float | None) -> FloatArray:
    """Return ``scale * q k^T`` per head, in float64."""
    queries, keys = np.asarray(q, dtype=np.float64), np.asarray(k, dtype=np.float64)
    factor = queries.shape[-1] ** -0.5 if scale is None else scale
    out: FloatArray = factor * (queries @ keys.swapaxes(-1, -2))
    return out


def distances(query_positions: Any, key_positions: Any) -> npt.NDArray[Any]:
    """Return query position minus key position, (queries, keys): how far back each key lies."""
    out: npt.NDArray[Any] = np.subtract.outer(
        np.asarray(query_positions), np.asarray(key_positions)
    )
    return out


def given(encoding: Encoding, parameters: Parameters | None, name: str) -> FloatArray:
    """Return one learned parameter.

    Raises:
        InputError: it was not passed.
    """
    if parameters is None or name not in parameters:
        raise InputError(
            "parameters",
            found="none" if parameters is None else ", ".join(parameters) or "an empty mapping",
            expected=f"{name!r} of {encoding.kind}",
            fix="pass e.g. encoding.initial_parameters(Sizes(heads, head_dim, width))",
        )
    return np.asarray(parameters[name], dtype=np.float64)


def generator(seed: int, name: str) -> np.random.Generator:
    """Return the random numbers of one named thing: equal for equal seed and name."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))
