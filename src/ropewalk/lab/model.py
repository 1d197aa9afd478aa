"""The lab's model: a small causal decoder over bytes that takes any position encoding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, silu

from ..encodings import Encoding, Sizes
from ..encodings.base import generator
from ..encodings.modules import PositionModule, attend, module_for
from .data import BYTES


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model.

    Attributes:
        layers: blocks of attention and a gated feed-forward part.
        heads: query, key and value heads.
        head_dim: lanes of a head.
        hidden: lanes inside the feed-forward part.
    """

    layers: int = 4
    heads: int = 4
    head_dim: int = 32
    hidden: int = 512

    @property
    def width(self) -> int:
        """Lanes of a token embedding: heads times head_dim."""
        return self.heads * self.head_dim

    @property
    def sizes(self) -> Sizes:
        """What encodings need to know."""
        return Sizes(self.heads, self.head_dim, self.width)


class Block(nn.Module):
    """Attention and a gated feed-forward part, each behind a norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.hidden
        self.shape = shape
        self.qkv = nn.Parameter(torch.empty(3 * width, width))
        self.out = nn.Parameter(torch.empty(width, width))
        self.up = nn.Parameter(torch.empty(2 * hidden, width))
        self.down = nn.Parameter(torch.empty(width, hidden))
        self.attention_norm = nn.Parameter(torch.ones(width))
        self.hidden_norm = nn.Parameter(torch.ones(width))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (batch, heads, time, head_dim) of a layer's input."""
        batch, time, _ = x.shape
        normed = rms_norm(x, (x.shape[-1],), self.attention_norm)
        projected = linear(normed, self.qkv)
        split = projected.view(batch, time, 3, self.shape.heads, self.shape.head_dim)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        return q, k, v

    def forward(
        self,
        x: Tensor,
        module: PositionModule,
        positions: Tensor,
        length: int | None,
        last: int | None = None,
    ) -> Tensor:
        """Return (batch, time, width); with ``last``, of so many tokens at the end only."""
        q, k, v = self.heads(x)
        at = positions
        if last is not None:
            x, q, at = x[:, -last:], q[..., -last:, :], positions[..., -last:]
        mixed = attend(module, q, k, v, at, positions, length=length)
        x = x + linear(mixed.transpose(1, 2).flatten(2), self.out)
        gate, value = linear(rms_norm(x, (x.shape[-1],), self.hidden_norm), self.up).chunk(2, -1)
        return x + linear(silu(gate) * value, self.down)


class Decoder(nn.Module):
    """A causal decoder over bytes.

    Weights that two encodings have in common start equal: each is drawn from the seed and its
    own name.

    Args:
        shape: sizes.
        encoding: how it sees positions.
        seed: of the first weights.
    """

    def __init__(self, shape: Shape, encoding: Encoding, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.empty(BYTES, shape.width))
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.head = nn.Parameter(torch.empty(BYTES, shape.width))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                draw = generator(seed, name).normal(0.0, self._deviation(name), parameter.shape)
                parameter.data = torch.from_numpy(draw).float()
        self.positions = nn.ModuleList()
        self.use(encoding, seed)

    def _deviation(self, name: str) -> float:
        if name == "embedding":
            return 1.0
        fan_in = self.shape.hidden if name.endswith("down") else self.shape.width
        # What is added to the stream is small at first, so that depth does not amplify it.
        adds = name.endswith(("out", "down"))
        depth = math.sqrt(2 * self.shape.layers) if adds else 1.0
        return 1 / (math.sqrt(fan_in) * depth)

    def use(self, encoding: Encoding, seed: int = 0) -> None:
        """Take another encoding; learned parameters of the same names and shapes are kept."""
        before = dict(self.positions.named_parameters())
        count = self.shape.layers if encoding.per_layer else 1
        self.encoding = encoding
        self.positions = nn.ModuleList(
            module_for(encoding, self.shape.sizes, seed * 1000 + index) for index in range(count)
        )
        for name, parameter in self.positions.named_parameters():
            if name in before and before[name].shape == parameter.shape:
                parameter.data = before[name].data

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        length: int | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Return the last layer's normed output, (batch, time or last, width).

        Args:
            tokens: (batch, time).
            positions: (time,) or (batch, time); by default 0, 1, 2 …
            length: tokens of the text, where the encoding depends on it; by default time.
            last: tokens at the end that are wanted; by default all. The last layer then
                attends from these only.
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.positions[0].embed(self.embedding[tokens], positions)
        for index, block in enumerate(self.blocks):
            module = self.positions[index if self.encoding.per_layer else 0]
            wanted = last if index == self.shape.layers - 1 else None
            x = block(x, module, positions, length, wanted)
        return rms_norm(x, (x.shape[-1],), self.norm)

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, length: int | None = None
    ) -> Tensor:
        """Return logits (batch, time, 256); see `hidden`."""
        return linear(self.hidden(tokens, positions, length), self.head)
