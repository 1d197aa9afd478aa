"""How model files spell things: tables of names, no logic but look-up.

Every concept has one name here and all the keys it goes by in configs of transformers. The
first spelling is the common one. Families add their own in `families`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

SPELLINGS: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "head_dim": ("head_dim",),
    "stated_length": ("max_position_embeddings", "n_positions"),
    "trained_length": ("original_max_position_embeddings",),
    "theta": ("rope_theta", "rotary_emb_base"),
    "partial": ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "rope_pct"),
    "window": ("sliding_window", "sliding_window_size"),
    "window_pattern": ("sliding_window_pattern",),
    "rope_lanes": ("qk_rope_head_dim",),
    "plain_lanes": ("qk_nope_head_dim",),
    "value_dim": ("v_head_dim",),
}
"""Concept to the keys of a config that mean it."""

NESTED_TEXT = ("text_config", "llm_config", "language_config")
"""Keys under which a multi-modal config holds its language model."""

BLOCKS = ("rope_parameters", "rope_scaling")
"""The rope block: the name since transformers 5, and the one before."""

LAYER_KINDS = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
    "cross_attention",
    "conv",
    "mamba",
    "attention",
    "indexed_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
    "hybrid",
    "hybrid_sliding",
    "reference_sliding_attention",
    "window_attention",
    "minimax_m3_sparse",
    "recurrent",
    "mlp",
)
"""Layer types by name. Those in `WITHOUT_POSITIONS` have no position encoding of their own."""

WITHOUT_POSITIONS = frozenset(
    {"linear_attention", "cross_attention", "conv", "mamba", "recurrent", "mlp"}
)

LOCAL_KINDS = frozenset(
    {
        "sliding_attention",
        "chunked_attention",
        "hybrid_sliding",
        "reference_sliding_attention",
        "window_attention",
    }
)
"""Layer types that see a window."""

KIND_ALIASES: dict[str, str] = {
    "su": "longrope",
    "mrope": "default",
    "gptj": "default",
    "deepseek_yarn": "yarn",
}
"""Other names of a scaling. ``gptj`` names the pairing and is no scaling; ``mrope`` says that
positions have several axes, which are equal for text."""


@dataclass(frozen=True)
class Key:
    """One key of the rope block.

    Attributes:
        kinds: the scalings whose formula reads it; ``*`` for all.
        remark: what a user should know where the key is there but not read.
        number: whether it holds a number.
        stays: whether it is the model's own and outlives a change of scaling.
    """

    kinds: tuple[str, ...]
    remark: str = ""
    number: bool = False
    stays: bool = False


BLOCK_KEYS: dict[str, Key] = {
    "rope_type": Key(("*",)),
    "type": Key(("*",)),
    "rope_theta": Key(("*",), number=True),
    "partial_rotary_factor": Key(("*",), number=True),
    "factor": Key(("linear", "dynamic", "yarn", "longrope", "llama3", "proportional"), number=True),
    "original_max_position_embeddings": Key(("*",), number=True),
    "beta_fast": Key(("yarn",), number=True),
    "beta_slow": Key(("yarn",), number=True),
    "attention_factor": Key(("yarn", "longrope"), number=True),
    "mscale": Key(("yarn",), number=True),
    "mscale_all_dim": Key(("yarn",), number=True),
    "truncate": Key(("yarn",)),
    "short_factor": Key(("longrope",)),
    "long_factor": Key(("longrope",)),
    "short_mscale": Key(("longrope",), number=True),
    "long_mscale": Key(("longrope",), number=True),
    "low_freq_factor": Key(("llama3",), number=True),
    "high_freq_factor": Key(("llama3",), number=True),
    "llama_4_scaling_beta": Key(("*",), number=True, stays=True),
    # The axes of multi-modal positions: text has equal positions on all of them.
    "mrope_section": Key(("*",), stays=True),
    "mrope_interleaved": Key(("*",), stays=True),
    "interleaved": Key(("*",), stays=True),
    "max_position_embeddings": Key(
        (), "transformers ignores a length inside the block", stays=True
    ),
    "finetuned": Key((), "a marker of the YaRN repository", stays=True),
    "attn_factor": Key(
        (),
        "it is not attention_factor: transformers ignores it, SGLang multiplies the amplitude "
        "with it",
        stays=True,
    ),
    "extrapolation_factor": Key((), "transformers always mixes fully", stays=True),
    "alpha": Key(("dynamic", "ntk_alpha"), "only Hunyuan's own code reads it", stays=True),
    "xdrope_section": Key(("*",), stays=True),
}
"""Every key of the rope block that is known."""


def hint(word: str, known: tuple[str, ...] | list[str]) -> str | None:
    """Return the known word that a misspelt one is nearest to, or None."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return near[0] if near else None
