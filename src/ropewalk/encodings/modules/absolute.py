"""Sinusoidal and learned absolute positions in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from ..absolute import Learned, Sinusoidal, check_within_table
from .base import PositionModule


class SinusoidalModule(PositionModule):
    """Adds fixed sines and cosines to the embeddings."""

    encoding: Sinusoidal

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """See `PositionModule.embed`."""
        table = self.encoding.added(positions.cpu().numpy(), x.shape[-1])
        return x + torch.from_numpy(table).to(x)


class LearnedModule(PositionModule):
    """Adds a learned vector per position to the embeddings."""

    encoding: Learned
    table: Tensor

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """See `PositionModule.embed`.

        Raises:
            InputError: a position without a vector.
        """
        lowest, highest = (int(v) for v in torch.aminmax(positions))
        check_within_table(lowest, highest, self.encoding.length)
        return x + self.table[positions].to(x.dtype)
