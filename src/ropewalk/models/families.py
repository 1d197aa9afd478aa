"""The one table of model families: what a model does where its config does not say.

A row holds what the family's own code fixes (pairing, which layers have no rope) and its
defaults for keys that a config may leave out. The rows of families that are in
transformers were read from release 5.24.0 and are compared with it by the tests; the rest
(``remote``) are code that travels with the checkpoints.
"""

from __future__ import annotations

from typing import Any

from .family import Family, Latent, LayerRule, LocalRope, Sizes, Window


def _hf(name: str, *sizes: int | None, **rest: Any) -> Family:
    """A family of transformers; sizes as in `Sizes`."""
    made: Any = Sizes
    return Family(defaults_of=f"transformers' {name}", sizes=made(*sizes), **rest)


def _remote(name: str, *sizes: int | None, **rest: Any) -> Family:
    made: Any = Sizes
    return Family(
        defaults_of=f"{name}'s own configuration code", sizes=made(*sizes), remote=True, **rest
    )


_EVERY_2 = LayerRule("period", 2)
_EVERY_4 = LayerRule("period", 4, "sliding_window_pattern")
_EVERY_6 = LayerRule("period", 6, "sliding_window_pattern")
_LINEAR_4 = LayerRule("period", 4, "full_attention_interval", "linear_attention")
_FROM_LAYER = LayerRule("from_layer", 28, "max_window_layers")
_FROM_LAYER_80 = LayerRule("from_layer", 80, "max_window_layers")
_SWITCHED = Window(4096, switch="use_sliding_window")
_GEMMA3_LOCAL = LocalRope(10000.0, ("rope_local_base_freq",))
_DEEPSEEK: dict[str, Any] = {
    "pairing": "adjacent",
    "pairing_switch": "rope_interleave",
    "latent": Latent(128, 64, 128),
}
_MROPE_REMARK = (
    "multi-axis positions (M-RoPE): this is the rope on text, where all axes are equal; "
    "image and video positions are not described"
)
_NEOX = {"theta": ("rotary_emb_base", "rope_theta"), "partial": ("rotary_pct",)}
_YARN_GPT_OSS = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
_YARN_MINISTRAL3 = {
    "rope_type": "yarn",
    "rope_theta": 1000000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}
_LLAMA3_APERTUS = {
    "rope_type": "llama3",
    "rope_theta": 12000000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
_GEMMA4 = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1000000.0,
    },
}

# fmt: off
# Sizes: hidden, heads, kv heads, layers, head_dim, max_position_embeddings.
FAMILIES: dict[str, Family] = {
    "llama": _hf("LlamaConfig", 4096, 32, None, 32, None, 2048),
    "arcee": _hf("ArceeConfig", 2560, 32, None, 32, None, 4096),
    "apertus": _hf(
        "ApertusConfig", 4096, 32, None, 32, None, 65536, theta=12e6, block=_LLAMA3_APERTUS
    ),
    "mistral": _hf("MistralConfig", 4096, 32, 8, 32, None, 131072, window=Window(4096)),
    "ministral": _hf(
        "MinistralConfig", 4096, 32, 8, 32, None, 131072, window=Window(4096),
        layers=LayerRule("period", 0),
    ),
    "ministral3": _hf(
        "Ministral3Config", 4096, 32, 8, 34, 128, 262144, block=_YARN_MINISTRAL3,
        temperature="block", window=Window(),
    ),
    "mixtral": _hf("MixtralConfig", 4096, 32, 8, 32, None, 131072, theta=1e6, window=Window()),
    "qwen2": _hf(
        "Qwen2Config", 4096, 32, 32, 32, None, 32768, window=_SWITCHED, layers=_FROM_LAYER
    ),
    "qwen2_moe": _hf(
        "Qwen2MoeConfig", 2048, 16, 16, 24, None, 32768, window=_SWITCHED,
        layers=LayerRule("alternate_below", 28, "max_window_layers"),
    ),
    "qwen2_vl_text": _hf(
        "Qwen2VLTextConfig", 8192, 64, 8, 80, None, 32768, theta=1e6, window=_SWITCHED,
        layers=_FROM_LAYER_80, remarks=(_MROPE_REMARK,),
    ),
    "qwen2_5_vl_text": _hf(
        "Qwen2_5_VLTextConfig", 8192, 64, 8, 80, None, 32768, theta=1e6, window=_SWITCHED,
        layers=_FROM_LAYER_80, remarks=(_MROPE_REMARK,),
    ),
    "qwen3": _hf(
        "Qwen3Config", 4096, 32, 32, 32, 128, 32768, window=_SWITCHED, layers=_FROM_LAYER
    ),
    "qwen3_moe": _hf("Qwen3MoeConfig", 2048, 32, 4, 24, None, 32768, window=_SWITCHED),
    "qwen3_next": _hf(
        "Qwen3NextConfig", 2048, 16, 2, 48, 256, 32768, partial=0.25, layers=_LINEAR_4
    ),
    "qwen3_5_text": _hf(
        "Qwen3_5TextConfig", 4096, 16, 4, 32, 256, 32768, partial=0.25, layers=_LINEAR_4,
        remarks=(_MROPE_REMARK,),
    ),
    "qwen3_5_moe_text": _hf(
        "Qwen3_5MoeTextConfig", 2048, 16, 2, 40, 256, 32768, partial=0.25, layers=_LINEAR_4,
        remarks=(_MROPE_REMARK,),
    ),
    "qwen3_vl_text": _hf(
        "Qwen3VLTextConfig", 4096, 32, 32, 32, 128, 128000, theta=5e5, remarks=(_MROPE_REMARK,)
    ),
    "qwen3_vl_moe_text": _hf(
        "Qwen3VLMoeTextConfig", 2048, 16, 16, 24, None, 128000, theta=5e5,
        remarks=(_MROPE_REMARK,),
    ),
    "gemma": _hf("GemmaConfig", 3072, 16, 16, 28, 256, 8192),
    "gemma2": _hf(
        "Gemma2Config", 2304, 8, 4, 26, 256, 8192, window=Window(4096), layers=_EVERY_2
    ),
    "gemma3_text": _hf(
        "Gemma3TextConfig", 2304, 8, 4, 26, 256, 131072, theta=1e6, layers=_EVERY_6,
        window=Window(4096, halved_by="use_bidirectional_attention"), local=_GEMMA3_LOCAL,
    ),
    "gemma3n_text": _hf(
        "Gemma3nTextConfig", 2048, 8, 2, 35, 256, 32768, theta=1e6,
        layers=LayerRule("period", 5), window=Window(512), local=_GEMMA3_LOCAL,
    ),
    "gemma4_text": _hf(
        "Gemma4TextConfig", 2304, 8, 4, 30, 256, 131072, block=_GEMMA4, window=Window(512),
        layers=LayerRule("period", 6), full_head_dim=("global_head_dim", 512),
        remarks=(
            "full layers have wider heads: kv_heads and value_dim are those of sliding layers",
        ),
    ),
    "phi": _hf("PhiConfig", 2048, 32, None, 24, None, 2048, partial=0.5),
    "phi3": _hf(
        "Phi3Config", 3072, 32, None, 32, None, 4096, partial=1.0,
        kinds={"yarn": "longrope"}, trained_length=4096, window=Window(),
    ),
    "phimoe": _hf("PhimoeConfig", 4096, 32, 8, 32, None, 131072, theta=1e6, window=Window()),
    "olmo": _hf("OlmoConfig", 4096, 32, None, 32, None, 2048),
    "olmo2": _hf("Olmo2Config", 4096, 32, None, 32, None, 2048),
    "olmo3": _hf(
        "Olmo3Config", 4096, 32, None, 32, None, 2048, theta=5e5, window=Window(4096),
        layers=LayerRule("period", 4), local=LocalRope(None),
    ),
    "olmoe": _hf("OlmoeConfig", 2048, 16, None, 16, None, 4096),
    "flex_olmo": _hf("FlexOlmoConfig", 4096, 32, None, 32, None, 4096, theta=5e5),
    "gpt_neox": _hf(
        "GPTNeoXConfig", 6144, 64, None, 44, None, 2048, partial=0.25, spellings=_NEOX
    ),
    "gpt_neox_japanese": _hf(
        "GPTNeoXJapaneseConfig", 2560, 32, None, 32, None, 2048, partial=1.0, spellings=_NEOX
    ),
    "gptj": _hf(
        "GPTJConfig", 4096, 16, None, 28, None, 2048, pairing="adjacent", partial=1.0,
        rotary_dim=64, spellings={"rotary_dim": ("rotary_dim",), "stated_length": ("n_positions",)},
    ),
    "codegen": _hf(
        "CodeGenConfig", 4096, 16, None, 28, None, 2048, pairing="adjacent", partial=1.0,
        rotary_dim=64, spellings={"rotary_dim": ("rotary_dim",), "stated_length": ("n_positions",)},
    ),
    "stablelm": _hf("StableLmConfig", 2560, 32, 32, 32, None, 4096, partial=0.25),
    "cohere": _hf("CohereConfig", 8192, 64, None, 40, None, 8192, pairing="adjacent", theta=5e5),
    "cohere2": _hf(
        "Cohere2Config", 8192, 64, None, 40, None, 8192, pairing="adjacent",
        window=Window(4096), layers=_EVERY_4, no_rope="not_sliding",
    ),
    "smollm3": _hf(
        "SmolLM3Config", 2048, 16, 4, 36, None, 32768, theta=2e6, no_rope="listed",
        window=Window(None, switch="use_sliding_window"), layers=LayerRule("without_rope"),
    ),
    "llama4_text": _hf(
        "Llama4TextConfig", 5120, 40, 8, 48, 128, 131072, pairing="adjacent", theta=5e5,
        no_rope="listed", window=Window(8192), temperature="layers_without_rope",
        spellings={"window": ("attention_chunk_size",)},
        layers=LayerRule("with_rope", others="chunked_attention"),
    ),
    "mllama_text_model": _hf(
        "MllamaTextConfig", 4096, 32, 8, 40, None, 131072, theta=5e5,
        layers=LayerRule("marked", key="cross_attention_layers", others="cross_attention"),
    ),
    "granite": _hf("GraniteConfig", 4096, 32, None, 32, None, 2048),
    "granitemoe": _hf("GraniteMoeConfig", 4096, 32, None, 32, None, 2048),
    "starcoder2": _hf("Starcoder2Config", 3072, 24, 2, 30, None, 4096, window=Window()),
    "falcon": _hf(
        "FalconConfig", 4544, 71, None, 32, None, 2048,
        one_kv_head=("multi_query", "new_decoder_architecture"),
    ),
    "falcon_h1": _hf("FalconH1Config", 4096, 32, 8, 32, None, 8192),
    "glm": _hf("GlmConfig", 4096, 32, 2, 40, 128, 131072, pairing="adjacent", partial=0.5),
    "glm4": _hf("Glm4Config", 4096, 32, 2, 40, 128, 131072, pairing="adjacent", partial=0.5),
    "glm4_moe": _hf("Glm4MoeConfig", 4096, 96, 8, 46, None, 131072, partial=0.5),
    "glm4v_text": _hf(
        "Glm4vTextConfig", 4096, 32, 2, 40, None, 32768, pairing="adjacent", partial=1.0,
        remarks=(_MROPE_REMARK,),
    ),
    "exaone4": _hf(
        "Exaone4Config", 4096, 32, 32, 32, None, 2048, window=Window(4096), layers=_EVERY_4,
        no_rope="full_if_windowed",
    ),
    "gpt_oss": _hf(
        "GptOssConfig", 2880, 64, 8, 36, 64, 131072, theta=150000.0, window=Window(128),
        layers=_EVERY_2, block=_YARN_GPT_OSS,
    ),
    "deepseek_v2": _hf(
        "DeepseekV2Config", 4096, 32, None, 32, None, 2048, pairing="adjacent",
        latent=Latent(128, 64, 128),
    ),
    "deepseek_v3": _hf("DeepseekV3Config", 7168, 128, 128, 61, None, 4096, **_DEEPSEEK),
    "glm4_moe_lite": _hf(
        "Glm4MoeLiteConfig", 2048, 20, 20, 47, None, 202752, pairing="adjacent",
        pairing_switch="rope_interleave", latent=Latent(192, 64, 256),
    ),
    "minicpm3": _hf(
        "MiniCPM3Config", 2560, 40, 40, 62, None, 32768, latent=Latent(64, 32, None)
    ),
    "nanochat": _hf("NanoChatConfig", 768, 6, None, 12, None, 2048, direction=-1),
    "persimmon": _hf("PersimmonConfig", 4096, 64, None, 36, None, 16384, partial=0.5),
    "nemotron": _hf("NemotronConfig", 6144, 48, None, 32, None, 4096, partial=0.5),
    "bitnet": _hf("BitNetConfig", 2560, 20, 5, 30, None, 2048, theta=5e5),
    "ernie4_5": _hf(
        "Ernie4_5Config", 1024, 16, 2, 18, 128, 131072, pairing="adjacent", theta=5e5
    ),
    "ernie4_5_moe": _hf(
        "Ernie4_5_MoeConfig", 2560, 20, 4, 28, None, 131072, pairing="adjacent", theta=5e5
    ),
    "seed_oss": _hf("SeedOssConfig", 4096, 80, 8, 64, 128, 524288),
    "helium": _hf("HeliumConfig", 2560, 20, 20, 24, 128, 4096, pairing="adjacent", theta=1e5),
    "lfm2": _hf(
        "Lfm2Config", 2560, 32, 8, 32, None, 128000, theta=1e6,
        layers=LayerRule("listed", key="full_attn_idxs", others="conv"),
    ),
    "modernbert": _hf(
        "ModernBertConfig", 768, 12, None, 22, None, 8192, theta=160000.0,
        layers=LayerRule("period", 3, "global_attn_every_n_layers", first=True),
        window=Window(128, each_side=True),
        local=LocalRope(10000.0, ("local_rope_theta",), scaled=True),
        spellings={"theta": ("global_rope_theta",), "window": ("local_attention",)},
    ),
    "internlm2": _remote("InternLM2", 4096, 32, None, 32, None, 2048),
    "minicpm": _remote("MiniCPM", 4096, 32, None, 32, None, 2048),
    "kimi_k2": _remote("Kimi K2", 7168, 64, 64, 61, None, 131072, **_DEEPSEEK),
    "baichuan": _remote(
        "Baichuan", 4096, 32, None, 32, None, 4096,
        requires={
            "max_position_embeddings": "the 7B model, which has it and rope; the 13B model of "
            "the same model_type has neither, but ALiBi"
        },
    ),
    "chatglm": _remote(
        "ChatGLM", 4096, 32, 2, 28, 128, 2048, pairing="adjacent", partial=0.5,
        spellings={
            "kv_heads": ("multi_query_group_num",),
            "head_dim": ("kv_channels",),
            "stated_length": ("seq_length",),
            "theta_ratio": ("rope_ratio",),
        },
    ),
    "qwen": _remote(
        "Qwen", 4096, 32, None, 32, 128, 8192, partial=1.0,
        spellings={"head_dim": ("kv_channels",), **_NEOX},
    ),
}
"""Every family that can be read, by ``model_type``."""
# fmt: on

WRAPPERS: dict[str, str] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "mllama": "mllama_text_model",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "glm4v": "glm4v_text",
    "exaone4_5": "exaone4",
    "exaone4_5_text": "exaone4",
}
"""Model types that stand for the language model inside them."""

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
}
"""Model types that are known to have no rope, and what they have."""

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
