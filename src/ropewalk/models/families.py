"""The one table of model families: what a model does where its config does not say.

A row holds what the family's own code fixes (pairing, which layers have no rope) and its
defaults for keys that a config may leave out. The rows of families that are in
transformers were read from release 5.24.0 and are compared with it by the tests; the rest
(``remote``) are code that travels with the checkpoints.
"""

from __future__ import annotations

from .composites import WRAPPERS
from .rows import ALL_ROWS

FAMILIES = ALL_ROWS
"""Every family that can be read, by ``model_type``."""

WITHOUT_ROPE: dict[str, str] = {
    "bloom": "ALiBi",
    "mpt": "ALiBi",
    "gpt2": "learned absolute positions",
    "gpt_neo": "learned absolute positions",
    "gpt_bigcode": "learned absolute positions",
    "opt": "learned absolute positions",
    "bert": "learned absolute positions",
    "roberta": "learned absolute positions",
    "t5": "relative position buckets",
    "mamba": "no position encoding (recurrent)",
    "mamba2": "no position encoding (recurrent)",
    "rwkv": "no position encoding (recurrent)",
    "rwkv5": "no position encoding (recurrent)",
    "jamba": "no position encoding",
    "nemotron_h": "no position encoding",
    "kimi_linear": "no position encoding (its latent attention has none)",
    "inkling2_text": "relative position biases",
    "clvp_decoder": "learned absolute positions",
    "clip_text_model": "learned absolute positions",
    "lightglue": "angles projected from keypoints by a learned matrix",
    "parakeet_encoder": "relative positions of Transformer-XL",
    "moonshine_streaming_encoder": "no position encoding",
}
"""Model types that are known to have no rope, and what they have."""

NO_ROTATION: dict[str, str] = {
    "use_fope": "FoPE, whose cosines and sines are mixed by learned matrices: no rotation",
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
    "dual_chunk_attention_config": (
        "dual_chunk_attention_config",
        "original_max_position_embeddings",
    ),
}
"""Switches that move the trained length to another key: switch to the path of that key."""

__all__ = ["BESIDE_ROPE", "FAMILIES", "NO_ROTATION", "TRAINED_LENGTHS", "WITHOUT_ROPE", "WRAPPERS"]
