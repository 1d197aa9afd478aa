"""Log-n scaling of the queries around the module of any encoding."""

from __future__ import annotations

import math

from torch import Tensor, nn

from ..base import Sizes
from ..log_n import LogN
from . import module_for
from .base import PositionModule


class LogNModule(PositionModule):
    """Multiplies queries before the wrapped module sees them; the rest is the wrapped module's.

    Its parameters are those of the submodule ``inner``.
    """

    encoding: LogN

    def __init__(self, encoding: LogN, sizes: Sizes, seed: int = 0) -> None:
        # Parameters belong to the wrapped module, so there are none to register here.
        nn.Module.__init__(self)
        self.encoding = encoding
        self.sizes = sizes
        self.inner = module_for(encoding.inner, sizes, seed)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """See `PositionModule.embed`."""
        return self.inner.embed(x, positions)

    def keys(self, k: Tensor, positions: Tensor, length: int | None = None) -> tuple[Tensor, ...]:
        """See `PositionModule.keys`."""
        return self.inner.keys(k, positions, length)

    def queries(
        self, q: Tensor, positions: Tensor, length: int | None = None
    ) -> tuple[Tensor, ...]:
        """See `PositionModule.queries`."""
        return self.inner.queries(self._grown(q, positions), positions, length)

    def bias(
        self,
        q: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        scale: float,
        length: int | None = None,
    ) -> Tensor | None:
        """See `PositionModule.bias`."""
        if type(self.inner).bias is PositionModule.bias:
            return None
        grown = self._grown(q, query_positions)
        return self.inner.bias(grown, query_positions, key_positions, scale, length)

    def choice(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """See `PositionModule.choice`."""
        return self.inner.choice(query_positions, key_positions)

    def _grown(self, q: Tensor, positions: Tensor) -> Tensor:
        seen = (positions.double() + 1).clamp(min=1)
        factors = (seen.log() / math.log(self.encoding.original_length)).clamp(min=1)
        shaped = factors[:, None] if factors.dim() == 1 else factors[:, None, :, None]
        return q * shaped.to(q.dtype)
