"""The one table of model families: what a model does where its config does not say.

A row holds what the family's own code fixes (pairing, which layers have no rope) and its
defaults for keys that a config may leave out. The rows of families that are in
transformers were read from release 5.24.0 and are compared with it by the tests; the rest
(``remote``) are code that travels with the checkpoints.
"""

from __future__ import annotations

from .composites import WRAPPERS
from .rows import ALL_ROWS
from .rows.without_rope import WITHOUT_ROPE

FAMILIES = ALL_ROWS
"""Every family that can be read, by ``model_type``."""

NO_ROTATION: dict[str, str] = {
    "use_fope": "FoPE, whose cosines and sines are mixed by learned matrices (cos_coef and "
    "sin_coef of the weights), which the config does not determine: no rotation",
    "use_xpos": "xPos, with which q grows and k shrinks along the text beside the rotation: see "
    "ropewalk.encodings.XPos",
    "polar_pos_emb": "polar positions (PoPE), whose phases are learned beside the rotation",
}
"""Keys that, if set at the top or in the rope block, mean another encoding than RoPE."""

BESIDE_ROPE: dict[str, str] = {
    "use_dynamic_ntk": "past the trained length the model's own code raises theta by the length "
    "of the text (use_dynamic_ntk), by another rule than transformers' dynamic scaling",
    "use_logn_attn": "past the trained length the model's own code scales queries by the "
    "logarithm of the position (use_logn_attn)",
    "dual_chunk_attention_config": "engines with dual chunk attention remap positions into "
    "chunks (dual_chunk_attention_config); without it the model reaches only its trained length",
}
"""Keys that, if set, mean something beside the rope that is not described here."""

TRAINED_LENGTHS: dict[str, tuple[str, ...]] = {
    "use_dynamic_ntk": ("seq_length",),
    "use_logn_attn": ("seq_length",),
    "dual_chunk_attention_config": (
        "dual_chunk_attention_config",
        "original_max_position_embeddings",
    ),
}
"""Switches that move the trained length to another key: switch to the path of that key."""

__all__ = ["BESIDE_ROPE", "FAMILIES", "NO_ROTATION", "TRAINED_LENGTHS", "WITHOUT_ROPE", "WRAPPERS"]
