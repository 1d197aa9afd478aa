"""How the config classes of transformers fill in a rope block: what their users read.

transformers, vLLM, SGLang, the onnxruntime-genai builder and llama.cpp's converter do not see
the file but an object of these classes (transformers 5.24.0, ``standardize_rope_params``).
"""

from __future__ import annotations

from typing import Any

from ..models.spellings import KIND_ALIASES
from .reading import Keys, LayerConfig, number_or_none

# Kinds for which the class fills in the original length.
_WITH_ORIGINAL = frozenset({"llama3", "yarn", "longrope"})


def merged_block(layer: LayerConfig) -> dict[str, Any]:
    """Return the block that a config class keeps; empty where the layer is not scaled.

    Where a file has both names, the class takes ``rope_scaling``.
    """
    if layer.unscaled:
        return {}
    return dict(layer.old or layer.new or layer.assumed or {})


def standardised(layer: LayerConfig) -> Keys:
    """Return the keys as a config class of transformers holds them.

    The base and the rotated lanes are the family's; ``type`` becomes ``rope_type``; the
    original length is that beside the block, else the block's, else the stated one.
    """
    block = merged_block(layer)
    kind = str(block.get("rope_type", block.get("type", "default")))
    kind = KIND_ALIASES.get(kind, kind)
    if kind == "proportional" and block.get("partial_rotary_factor") is None:
        block["partial_rotary_factor"] = layer.share
    original = block.get("original_max_position_embeddings")
    if kind in _WITH_ORIGINAL:
        beside = layer.values.get("original_max_position_embeddings")
        original = beside if beside is not None else original
        original = layer.stated if original is None else original
    return Keys(
        kind,
        block,
        layer.theta,
        layer.rotary_dim,
        layer,
        number_or_none(original),
    )
