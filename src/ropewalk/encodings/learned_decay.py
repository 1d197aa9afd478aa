"""Biases that are learned functions of the distance: KERPLE's logarithm and FIRE's network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import InputError
from ..scaling.base import is_number
from .base import Encoding, FloatArray, Parameters, Sizes, distances, dot, generator, given
from .distance_bias import DistanceBias

FIRE_EPSILON = 1e-6
"""Added to the divisor, as the paper's code does, so that 0 / 0 cannot be."""


@dataclass(frozen=True, kw_only=True)
class Kerple(DistanceBias):
    """The logarithmic kernel ``-r1 * log(1 + r2 * |i - j|)``, r1 and r2 > 0 learned per head.

    What is learned is the logarithm of both, so no step can make them negative; the authors'
    code learns them as they are and clamps them at 0.01. They start as there: r1 uniform
    from 0 to 2, r2 from 0 to 1, at least 0.01. Each layer has its own.

    Source: Chi et al. 2022, arXiv 2205.09921, section 4, "3-para-log" with its offset left out.
    """

    kind: ClassVar[str] = "kerple"
    per_layer: ClassVar[bool] = True

    def parameter_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Two numbers per head."""
        return {"log_r1": (sizes.heads,), "log_r2": (sizes.heads,)}

    def initial_parameters(self, sizes: Sizes, seed: int = 0) -> dict[str, FloatArray]:
        """See `Encoding.initial_parameters`; drawn uniformly, as the authors do."""
        return {
            name: np.log(
                generator(seed, f"{self.kind}/{name}").uniform(0.0, highest, sizes.heads).clip(0.01)
            )
            for name, highest in (("log_r1", 2.0), ("log_r2", 1.0))
        }

    def of_distance(
        self, distance: Any, heads: int, parameters: Parameters | None = None
    ) -> FloatArray:
        """See `DistanceBias.of_distance`."""
        away = np.abs(np.asarray(distance, dtype=np.float64))
        r1, r2 = (np.exp(given(self, parameters, name)) for name in ("log_r1", "log_r2"))
        shape = (heads,) + (1,) * away.ndim
        out: FloatArray = -r1.reshape(shape) * np.log1p(r2.reshape(shape) * away)
        return out


@dataclass(frozen=True, kw_only=True)
class Fire(Encoding):
    """A small network of ``psi(i - j) / psi(max(L, i))`` with ``psi(x) = log(|c x| + 1)``.

    The quotient lies between 0 and 1 at any length, so the network is never asked beyond what
    it has seen; i is the query's position, counted from 0. c is learned, and so is L, as
    ``|multiplier| * threshold``. The network has one hidden layer with ReLU and one output
    per head. Each layer has its own (the paper's FIRE-S shares one).

    Attributes:
        threshold: L before training, tokens.
        initial_c: c before training.
        hidden: width of the hidden layer.

    Source: Li et al. 2023, arXiv 2310.04418, section 3.2 and the code in its appendix.
    """

    kind: ClassVar[str] = "fire"
    per_layer: ClassVar[bool] = True
    threshold: float = 512.0
    initial_c: float = 0.1
    hidden: int = 32

    def __post_init__(self) -> None:
        """Refuse sizes that are no positive numbers."""
        for name in ("threshold", "initial_c"):
            value = getattr(self, name)
            if not is_number(value) or value <= 0:
                raise InputError(
                    name,
                    found=repr(value),
                    expected="a positive number",
                    fix="leave it out to start as the paper does",
                )
        if not isinstance(self.hidden, int) or isinstance(self.hidden, bool) or self.hidden < 1:
            raise InputError(
                "hidden",
                found=repr(self.hidden),
                expected="a positive number of lanes",
                fix="use 32, as the paper does",
            )

    def parameter_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Two numbers, and the network: 1 -> hidden -> heads."""
        return {
            "c": (),
            "multiplier": (),
            "hidden_weight": (self.hidden,),
            "hidden_bias": (self.hidden,),
            "out_weight": (sizes.heads, self.hidden),
            "out_bias": (sizes.heads,),
        }

    def initial_parameters(self, sizes: Sizes, seed: int = 0) -> dict[str, FloatArray]:
        """See `Encoding.initial_parameters`.

        The network starts as PyTorch's linear layers do: uniform up to 1 / sqrt(inputs).
        """
        shapes = self.parameter_shapes(sizes)
        drawn = {
            name: generator(seed, f"{self.kind}/{name}").uniform(-bound, bound, shapes[name])
            for name, bound in (
                ("hidden_weight", 1.0),
                ("hidden_bias", 1.0),
                ("out_weight", self.hidden**-0.5),
                ("out_bias", self.hidden**-0.5),
            )
        }
        return {"c": np.array(self.initial_c), "multiplier": np.array(1.0), **drawn}

    def bias(
        self, query_positions: Any, key_positions: Any, parameters: Parameters | None = None
    ) -> FloatArray:
        """Return what is added to the scores, (heads, queries, keys)."""
        named = {name: given(self, parameters, name) for name in self.parameter_shapes(_ANY)}
        at = np.asarray(query_positions, dtype=np.float64)
        c = named["c"]
        reach = np.maximum(at, np.abs(named["multiplier"] * self.threshold))
        away = np.log1p(np.abs(c * distances(at, key_positions)))
        inputs = away / (np.log1p(np.abs(c * reach)) + FIRE_EPSILON)[:, None]
        hidden = np.maximum(inputs[..., None] * named["hidden_weight"] + named["hidden_bias"], 0)
        outputs = hidden @ named["out_weight"].T + named["out_bias"]
        out: FloatArray = np.moveaxis(outputs, -1, 0)
        return out

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
        return dot(q, k, scale) + self.bias(query_positions, key_positions, parameters)


_ANY = Sizes(heads=1, head_dim=1, width=1)
"""For the names of parameters, which no size changes."""
