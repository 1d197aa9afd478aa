"""Families whose code travels with their checkpoints."""

from __future__ import annotations

from ..family import Family, Latent, remote
from .decoders import FROM_LAYER, NEOX, SWITCHED

# fmt: off
ROWS: dict[str, Family] = {
    "internlm2": remote("InternLM2", 4096, 32, None, 32, None, 2048),
    "minicpm": remote("MiniCPM", 4096, 32, None, 32, None, 2048),
    # DeepSeek's remote code, which moves lanes in any case and knows no rope_interleave.
    "kimi_k2": remote(
        "Kimi K2", 7168, 64, 64, 61, None, 131072, pairing="adjacent", reordered=True,
        latent=Latent(128, 64, 128),
    ),
    "baichuan": remote(
        "Baichuan", 4096, 32, None, 32, None, 4096,
        requires={
            "max_position_embeddings": "the 7B model, which has it and rope; the 13B model of "
            "the same model_type has neither, but ALiBi"
        },
    ),
    "chatglm": remote(
        "ChatGLM", 4096, 32, 2, 28, 128, 2048, pairing="adjacent", partial=0.5,
        spellings={
            "kv_heads": ("multi_query_group_num",),
            "head_dim": ("kv_channels",),
            "stated_length": ("seq_length",),
            "theta_ratio": ("rope_ratio",),
        },
    ),
    "minicpmv": remote(
        "MiniCPM-V", 3584, 28, 4, 28, None, 32768, theta=1e6, window=SWITCHED, layers=FROM_LAYER,
        remarks=("the language model is Qwen2 in version 2.6, Llama in 2.5: other defaults",),
    ),
    "qwen": remote(
        "Qwen", 4096, 32, None, 32, 128, 8192, partial=1.0,
        spellings={"head_dim": ("kv_channels",), **NEOX},
        stepped_ntk="use_dynamic_ntk", log_n="use_logn_attn",
    ),
}
# fmt: on
