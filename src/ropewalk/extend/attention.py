"""Causal attention for long single passes, registered with transformers by name.

transformers' own paths build masks of tokens × tokens or are slow at length on a CPU; this
one asks PyTorch's fused kernel for plain causal attention and walks windows and soft caps
in blocks of queries, so that memory grows with the length and not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..encodings import Encoding
from ..errors import InputError

NAME = "ropewalk_causal"
_BLOCK = 1024


def causal_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Any = None,
    **_: Any,
) -> tuple[Any, None]:
    """Attend causally over one unpadded pass.

    Args:
        module: the attention module; only its type is used, in messages.
        query: (batch, heads, time, head_dim).
        key: (batch, kv_heads, time, head_dim).
        value: (batch, kv_heads, time, value_dim).
        attention_mask: must be None; a pass has no padding.
        scaling: factor on scores; by default 1/sqrt(head_dim).
        dropout: must be 0.
        sliding_window: tokens a query looks back over, itself included.
        softcap: scores become ``softcap * tanh(score / softcap)``.
        s_aux: attention sinks, which are refused.

    Returns:
        (batch, time, heads, value_dim), and None for the weights.
    """
    import torch

    if attention_mask is not None or dropout or s_aux is not None:
        raise InputError(
            type(module).__name__,
            found="attention sinks" if s_aux is not None else "a mask or dropout",
            expected="plain causal attention",
            fix="this model's attention cannot be measured by ropewalk yet",
        )
    if _ENCODED and getattr(module, "layer_idx", None) in _ENCODED[-1].layers:
        if softcap is not None:
            raise InputError(
                type(module).__name__,
                found="scores with a soft cap",
                expected="plain scores, for a method that forms them itself",
                fix="measure the methods that rescale frequencies",
            )
        return _encoded_attention(query, key, value, scaling), None
    grouped = query.shape[1] != key.shape[1]
    length = query.shape[2]
    windowed = sliding_window is not None and sliding_window < length
    if not windowed and softcap is None:
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=length > 1, scale=scaling, enable_gqa=grouped
        )
        return out.transpose(1, 2).contiguous(), None
    key, value = ungrouped(key, query), ungrouped(value, query)
    blocks = []
    for start in range(0, length, _BLOCK):
        end = min(start + _BLOCK, length)
        first = max(0, start - sliding_window + 1) if windowed and sliding_window else 0
        distance = (
            torch.arange(start, end, device=query.device)[:, None]
            - torch.arange(first, end, device=query.device)[None, :]
        )
        seen = distance >= 0
        if windowed:
            seen &= distance < sliding_window
        part = (query[:, :, start:end], key[:, :, first:end], value[:, :, first:end])
        blocks.append(_attend(torch, *part, seen, scaling, softcap))
    return torch.cat(blocks, dim=2).transpose(1, 2).contiguous(), None


def ungrouped(x: Any, query: Any) -> Any:
    """Return keys or values with one head for each head of the queries."""
    repeats = query.shape[1] // x.shape[1]
    return x if repeats == 1 else x.repeat_interleave(repeats, dim=1)


@dataclass(frozen=True)
class _Encoded:
    """An encoding, the layers that take it, and the length that it is evaluated at."""

    positions: Any
    layers: frozenset[int]
    length: int


# A stack: transformers calls the registered function and passes nothing of ours through.
_ENCODED: list[_Encoded] = []


@contextmanager
def encoded(encoding: Encoding, layers: frozenset[int], length: int) -> Iterator[None]:
    """Let the given layers' attention take an encoding that is more than a rotation."""
    from ..encodings import Sizes
    from ..encodings.modules import module_for

    # What is learned depends on sizes; what can be put into a finished model learns nothing.
    _ENCODED.append(_Encoded(module_for(encoding, Sizes(1, 1, 1)), layers, length))
    try:
        yield
    finally:
        _ENCODED.pop()


def _encoded_attention(query: Any, key: Any, value: Any, scaling: float | None) -> Any:
    import torch

    from ..encodings.modules import attend

    now = _ENCODED[-1]
    key, value = ungrouped(key, query), ungrouped(value, query)
    at = torch.arange(query.shape[2], device=query.device)
    out = attend(now.positions, query, key, value, at, at, length=now.length, scale=scaling)
    return out.transpose(1, 2).contiguous()


def _attend(
    torch: Any, query: Any, key: Any, value: Any, seen: Any, scaling: Any, softcap: Any
) -> Any:
    if softcap is None:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=seen, scale=scaling
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = (query @ key.transpose(-1, -2)).float() * scale
    scores = softcap * torch.tanh(scores / softcap)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return weights.to(value.dtype) @ value


def register(name: str = NAME, function: Callable[..., Any] = causal_attention) -> str:
    """Make an attention known to transformers; return the name to ask for."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(name, function)
    # Masks are formed above, block by block: none is wanted from transformers.
    AttentionMaskInterface.register(name, lambda *_, **__: None)
    return name
