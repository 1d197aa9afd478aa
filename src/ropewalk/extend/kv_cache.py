"""Bytes of the key and value cache at a length."""

from __future__ import annotations

from ..models import ModelPositions

BYTES_PER_VALUE = 2
"""float16 or bfloat16, the usual cache."""


def kv_cache_bytes(positions: ModelPositions, length: int) -> int | None:
    """Return the bytes of keys and values of one sequence of ``length`` tokens, 16-bit.

    Layers with a window keep that many tokens only. None where the file does not say how
    many key heads there are, or where the model stores a latent instead of heads.
    """
    if positions.kv_heads is None or not positions.layers:
        return None
    total = 0
    for layer in positions.layers:
        width = layer.rope.head_dim if layer.rope is not None else positions.value_dim
        values = positions.value_dim if positions.value_dim is not None else width
        # Latent attention rotates a slice at an offset and nothing else here does; what is
        # cached then (heads or a latent) is the engine's choice.
        latent = layer.rope is not None and layer.rope.rotary_offset > 0
        if width is None or values is None or latent:
            return None
        kept = length if layer.window is None else min(length, layer.window)
        total += kept * positions.kv_heads * (width + values) * BYTES_PER_VALUE
    return total
