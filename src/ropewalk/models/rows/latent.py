"""Latent attention (MLA): heads of unrotated lanes followed by rotated ones; and DeepSeek-V4."""

from __future__ import annotations

from typing import Any

from ..family import AxesRule, Family, Latent, LayerRule, Window, upstream
from .rules import (
    all_of,
    deepseek_v4_blocks,
    dots3_kinds,
    dots3_windowed,
    glm5_head,
    per_kind,
    qwen4_kinds,
    v4_kinds,
)

DEEPSEEK: dict[str, Any] = {
    "pairing": "adjacent",
    "pairing_switch": "rope_interleave",
    "latent": Latent(128, 64, 128),
}
INDEXED = LayerRule("computed", kinds=all_of("indexed_attention"))
LEARNED = (
    "each frequency is multiplied by exp(alpha), a weight of the model (rotary_emb.alpha) that no "
    "config holds: give it with ropewalk.scaling.Learned"
)
TURNED_BACK = "the attention output is turned back by the position of its query"
_YARN_MISTRAL4 = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 128.0,
    "original_max_position_embeddings": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
    "partial_rotary_factor": 0.5,
}
_YARN_MISTRAL_LARGE4 = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 2048.0,
    "original_max_position_embeddings": 512,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "attention_factor": 1.0,
}
_DOTS3 = per_kind(indexed_attention=(80000000.0, 0.25), sliding_attention=(50000.0, 0.25))
_DEEPSEEK_V4 = per_kind(main=(10000.0, 0.125), compress=(160000.0, 0.125))
_HY_V4_VL = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [12, 10, 10]}
_V4_NAMES = {
    "sliding_attention": "main",
    "compressed_sparse_attention": "compress",
    "heavily_compressed_attention": "compress",
}

# fmt: off
ROWS: dict[str, Family] = {
    "deepseek_v2": upstream(
        "DeepseekV2Config", 4096, 32, None, 32, None, 2048, pairing="adjacent",
        latent=Latent(128, 64, 128),
    ),
    "deepseek_v3": upstream("DeepseekV3Config", 7168, 128, 128, 61, None, 4096, **DEEPSEEK),
    "sarvam_mla": upstream("SarvamMLAConfig", 4096, 64, 64, 32, None, 4096, **DEEPSEEK),
    "glm4_moe_lite": upstream(
        "Glm4MoeLiteConfig", 2048, 20, 20, 47, None, 202752, pairing="adjacent",
        pairing_switch="rope_interleave", latent=Latent(192, 64, 256),
    ),
    "minicpm3": upstream(
        "MiniCPM3Config", 2560, 40, 40, 62, None, 32768, latent=Latent(64, 32, None)
    ),
    "axk1": upstream(
        "AXK1Config", 7168, 64, 64, 61, None, 32768, pairing="adjacent", reordered=True,
        latent=Latent(128, 64, 128), pairing_switch="rope_interleave",
    ),
    "axk2": upstream(
        "AXK2Config", 2048, 32, 32, 48, None, 131072, pairing="adjacent", reordered=True,
        latent=Latent(64, 32, 64), layers=INDEXED,
    ),
    "bailing_hybrid": upstream(
        "BailingHybridConfig", 2560, 32, 32, 42, None, 262144, theta=6e6, pairing="adjacent",
        reordered=True, latent=Latent(128, 64, 128),
        layers=LayerRule("period", 6, "layer_group_size", "linear_attention"),
        spellings={"stated_length": ("model_max_length", "max_position_embeddings")},
    ),
    "deepseek_v32": upstream(
        "DeepseekV32Config", 7168, 128, 128, 61, None, 163840, pairing="adjacent",
        reordered=True, latent=Latent(128, 64, 128), layers=INDEXED,
    ),
    "glm_moe_dsa": upstream(
        "GlmMoeDsaConfig", 6144, 64, 64, 78, None, 202752, pairing="adjacent", reordered=True,
        latent=Latent(192, 64, 256), layers=INDEXED,
    ),
    "hy_v4": upstream(
        "HYV4Config", 2816, 32, None, 34, None, 262144, latent=Latent(192, 64, 256),
        layers=INDEXED,
    ),
    "longcat_flash": upstream(
        "LongcatFlashConfig", 6144, 64, None, 28, None, 131072, theta=1e7, pairing="adjacent",
        reordered=True, latent=Latent(128, 64, 128),
        spellings={"layers": ("num_hidden_layers", "num_layers")},
    ),
    "youtu": upstream(
        "YoutuConfig", 2048, 16, 16, 32, None, 131072, pairing="adjacent", reordered=True,
        latent=Latent(128, 64, 128), pairing_switch="rope_interleave",
    ),
    "mistral4": upstream(
        "Mistral4Config", 4096, 32, 32, 36, None, 1048576, pairing="adjacent", reordered=True,
        latent=Latent(64, 64, 128), pairing_switch="rope_interleave", block=_YARN_MISTRAL4,
        temperature="block",
    ),
    "mistral_large4_text": upstream(
        "MistralLarge4TextConfig", 6144, 64, 64, 72, None, 1048576, pairing="adjacent",
        reordered=True, latent=Latent(64, 64, 128), block=_YARN_MISTRAL_LARGE4, no_rope="listed",
        layers=INDEXED, remarks=(LEARNED,),
    ),
    "dots3_note_text": upstream(
        "Dots3NoteTextConfig", 5120, 128, 128, 46, None, 524288, pairing="adjacent",
        reordered=True, latent=Latent(128, 64, 128), block=_DOTS3, window=Window(512),
        layers=LayerRule("computed", kinds=dots3_kinds), prepare=dots3_windowed,
    ),
    "hy_v4_vl_text": upstream(
        "HYV4VLTextConfig", 6144, 64, None, 78, None, 262144, pairing="adjacent",
        latent=Latent(192, 64, 256), layers=INDEXED, block=_HY_V4_VL,
        axes=AxesRule("interleaved", (24, 20, 20)),
    ),
    "glm5_next_text": upstream(
        "Glm5NextTextConfig", 4096, 64, 64, 45, 256, 1048576, no_rope="always", prepare=glm5_head,
        layers=LayerRule("computed", kinds=qwen4_kinds),
        remarks=("latent attention without positions: qk_rope_head_dim is 0",),
    ),
    "deepseek_v4": upstream(
        "DeepseekV4Config", 4096, 64, 1, 43, 512, 1048576, window=Window(128),
        pairing="adjacent", partial=0.125, tail=True, block=_DEEPSEEK_V4, block_names=_V4_NAMES,
        prepare=deepseek_v4_blocks, layers=LayerRule("computed", kinds=v4_kinds),
        remarks=(TURNED_BACK,),
    ),
}
# fmt: on
