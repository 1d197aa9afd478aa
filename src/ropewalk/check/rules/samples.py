"""Configs that examples of the rules start from: one llama, as it was and longer, and flags."""

from __future__ import annotations

from typing import Any

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
LLAMA_32K: dict[str, Any] = {**LLAMA, "max_position_embeddings": 32768}
LLAMA_128K: dict[str, Any] = {**LLAMA, "max_position_embeddings": 131072, "rope_theta": 500000.0}
LLAMA_SMALL: dict[str, Any] = {**LLAMA, "hidden_size": 64, "num_attention_heads": 4}
NEOX_FLAGS: dict[str, Any] = {
    "num_layers": 2, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 8192,
    "max_position_embeddings": 8192, "pos_emb": "rotary", "rotary_pct": 1,
    "rotary_emb_base": 10000,
}  # fmt: skip
"""Arguments of a training by GPT-NeoX."""
