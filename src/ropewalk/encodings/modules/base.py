"""What an encoding is to an attention layer in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..base import Encoding, Sizes


class PositionModule(nn.Module):
    """An encoding with its learned parameters, for attention in `attention.attend`.

    The scores of query i and key j are::

        scale * queries(q)[n][i] . keys(k)[n][j] + bias[i, j]      with n = choice[i, j]

    ``keys`` sees a key and its own position and nothing else, so whatever it returns can be
    kept in a cache once and for all; what depends on the query is in ``queries`` and ``bias``.

    Args:
        encoding: the value that says what is computed; `Encoding.scores` is the specification.
        sizes: of the attention layer.
        seed: of the parameters' first values.
    """

    def __init__(self, encoding: Encoding, sizes: Sizes, seed: int = 0) -> None:
        super().__init__()
        self.encoding = encoding
        self.sizes = sizes
        for name, value in encoding.initial_parameters(sizes, seed).items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(value).float()))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return token embeddings (batch, time, width) with what is added to them."""
        return x

    def keys(self, k: Tensor, positions: Tensor, length: int | None = None) -> tuple[Tensor, ...]:
        """Return what attention sees of keys (batch, heads, time, head_dim), per variant.

        Args:
            k: keys.
            positions: (time,) or (batch, time).
            length: tokens of the whole text, where the encoding depends on it.
        """
        return (k,)

    def queries(
        self, q: Tensor, positions: Tensor, length: int | None = None
    ) -> tuple[Tensor, ...]:
        """Return what attention sees of queries, one for each entry of ``keys``."""
        return (q,)

    def bias(
        self,
        q: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        scale: float,
        length: int | None = None,
    ) -> Tensor | None:
        """Return what is added to the scaled scores, or None.

        Shape (heads, queries, keys), or (batch, heads, queries, keys) where it depends on the
        queries ``q``, which are those before ``queries``.
        """
        return None

    def choice(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Return which variant each pair takes, (queries, keys) integers, or None for the first.

        Shape (batch, 1, queries, keys) for positions (batch, time). Seen from one key, it never
        falls as the query moves on, so two queries tell about all between them.
        """
        return None

    def extra_repr(self) -> str:
        """Return what `repr` shows."""
        return repr(self.encoding)
