"""Encodings that say where a token is by adding to its embedding, and the one that says nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import InputError
from .base import Encoding, FloatArray, Parameters, Sizes, generator, given
from .sinusoidal import sinusoidal


@dataclass(frozen=True, kw_only=True)
class NoPE(Encoding):
    """No position encoding: order is seen through the causal mask alone.

    Source: Haviv et al. 2022, arXiv 2203.16634; Kazemnejad et al. 2023, arXiv 2305.19466.
    """

    kind: ClassVar[str] = "none"


@dataclass(frozen=True, kw_only=True)
class Sinusoidal(Encoding):
    """Fixed sines and cosines added to the embeddings.

    Attributes:
        theta: base of the wavelengths.
        amplitude: what the table is multiplied by. The original multiplies embeddings by
            sqrt(width) instead, which with embeddings of deviation 1/sqrt(width) is
            amplitude 1 against embeddings of deviation 1.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5.
    """

    kind: ClassVar[str] = "sinusoidal"
    theta: float = 10000.0
    amplitude: float = 1.0

    def added(self, positions: Any, width: int, parameters: Parameters | None = None) -> FloatArray:
        """See `Encoding.added`."""
        return self.amplitude * sinusoidal(np.asarray(positions), width, theta=self.theta)


@dataclass(frozen=True, kw_only=True)
class Learned(Encoding):
    """One learned vector per position, added to the embeddings.

    Attributes:
        length: how many positions have one. There is none beyond, and asking is an error.
        deviation: of the vectors' first values.

    Source: Gehring et al. 2017, arXiv 1705.03122; GPT-2, BERT.
    """

    kind: ClassVar[str] = "learned"
    length: int
    deviation: float = 0.02

    @property
    def longest(self) -> int:
        """The length of the table."""
        return self.length

    def parameter_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """One table, (length, width)."""
        return {"table": (self.length, sizes.width)}

    def initial_parameters(self, sizes: Sizes, seed: int = 0) -> dict[str, FloatArray]:
        """Draw the table; see `Encoding.initial_parameters`."""
        draw = generator(seed, f"{self.kind}/table")
        return {"table": draw.normal(0.0, self.deviation, (self.length, sizes.width))}

    def added(self, positions: Any, width: int, parameters: Parameters | None = None) -> FloatArray:
        """See `Encoding.added`.

        Raises:
            InputError: a position without a vector.
        """
        at = np.asarray(positions)
        check_within_table(int(at.min(initial=0)), int(at.max(initial=0)), self.length)
        out: FloatArray = given(self, parameters, "table")[at]
        return out


def check_within_table(lowest: int, highest: int, length: int) -> None:
    """Refuse positions that a learned table has no vector for."""
    if lowest < 0 or highest >= length:
        raise InputError(
            "positions",
            found=f"position {lowest if lowest < 0 else highest}",
            expected=f"0 to {length - 1}, the positions that were learned",
            fix="crop the text; a learned table ends where its training ended",
        )
