"""Decoders with one rope for all of their layers: the best known ones."""

from __future__ import annotations

from ..family import Family, LayerRule, Window, upstream

_EVERY_2 = LayerRule("period", 2)
EVERY_4 = LayerRule("period", 4, "sliding_window_pattern")
LINEAR_4 = LayerRule("period", 4, "full_attention_interval", "linear_attention")
FROM_LAYER = LayerRule("from_layer", 28, "max_window_layers")
SWITCHED = Window(4096, switch="use_sliding_window")
NEOX = {"theta": ("rotary_emb_base", "rope_theta"), "partial": ("rotary_pct",)}
YARN_GPT_OSS = {
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
LLAMA3_APERTUS = {
    "rope_type": "llama3",
    "rope_theta": 12000000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}

# fmt: off
ROWS: dict[str, Family] = {
    "llama": upstream("LlamaConfig", 4096, 32, None, 32, None, 2048),
    "arcee": upstream("ArceeConfig", 2560, 32, None, 32, None, 4096),
    "apertus": upstream(
        "ApertusConfig", 4096, 32, None, 32, None, 65536, theta=12e6, block=LLAMA3_APERTUS
    ),
    "mistral": upstream("MistralConfig", 4096, 32, 8, 32, None, 131072, window=Window(4096)),
    "ministral": upstream(
        "MinistralConfig", 4096, 32, 8, 32, None, 131072, window=Window(4096),
        layers=LayerRule("period", 0),
    ),
    "ministral3": upstream(
        "Ministral3Config", 4096, 32, 8, 34, 128, 262144, block=_YARN_MINISTRAL3,
        temperature="block", window=Window(),
    ),
    "mixtral": upstream(
        "MixtralConfig", 4096, 32, 8, 32, None, 131072, theta=1e6, window=Window(),
    ),
    "qwen2": upstream(
        "Qwen2Config", 4096, 32, 32, 32, None, 32768, window=SWITCHED, layers=FROM_LAYER
    ),
    "qwen2_moe": upstream(
        "Qwen2MoeConfig", 2048, 16, 16, 24, None, 32768, window=SWITCHED,
        layers=LayerRule("alternate_below", 28, "max_window_layers"),
    ),
    "qwen3": upstream(
        "Qwen3Config", 4096, 32, 32, 32, 128, 32768, window=SWITCHED, layers=FROM_LAYER
    ),
    "qwen3_moe": upstream("Qwen3MoeConfig", 2048, 32, 4, 24, None, 32768, window=SWITCHED),
    "qwen3_next": upstream(
        "Qwen3NextConfig", 2048, 16, 2, 48, 256, 32768, partial=0.25, layers=LINEAR_4
    ),
    "gemma": upstream("GemmaConfig", 3072, 16, 16, 28, 256, 8192),
    "gemma2": upstream(
        "Gemma2Config", 2304, 8, 4, 26, 256, 8192, window=Window(4096), layers=_EVERY_2
    ),
    "phi": upstream("PhiConfig", 2048, 32, None, 24, None, 2048, partial=0.5),
    "phi3": upstream(
        "Phi3Config", 3072, 32, None, 32, None, 4096, partial=1.0,
        kinds={"yarn": "longrope"}, trained_length=4096, window=Window(),
    ),
    "phimoe": upstream("PhimoeConfig", 4096, 32, 8, 32, None, 131072, theta=1e6, window=Window()),
    "olmo": upstream("OlmoConfig", 4096, 32, None, 32, None, 2048),
    "olmo2": upstream("Olmo2Config", 4096, 32, None, 32, None, 2048),
    "olmoe": upstream("OlmoeConfig", 2048, 16, None, 16, None, 4096),
    "flex_olmo": upstream("FlexOlmoConfig", 4096, 32, None, 32, None, 4096, theta=5e5),
    "gpt_neox": upstream(
        "GPTNeoXConfig", 6144, 64, None, 44, None, 2048, partial=0.25, spellings=NEOX
    ),
    "gpt_neox_japanese": upstream(
        "GPTNeoXJapaneseConfig", 2560, 32, None, 32, None, 2048, partial=1.0, spellings=NEOX
    ),
    "gptj": upstream(
        "GPTJConfig", 4096, 16, None, 28, None, 2048, pairing="adjacent", partial=1.0,
        rotary_dim=64,
        spellings={"rotary_dim": ("rotary_dim",), "stated_length": ("n_positions",)},
    ),
    "codegen": upstream(
        "CodeGenConfig", 4096, 16, None, 28, None, 2048, pairing="adjacent", partial=1.0,
        rotary_dim=64,
        spellings={"rotary_dim": ("rotary_dim",), "stated_length": ("n_positions",)},
    ),
    "stablelm": upstream("StableLmConfig", 2560, 32, 32, 32, None, 4096, partial=0.25),
    "cohere": upstream(
        "CohereConfig", 8192, 64, None, 40, None, 8192, pairing="adjacent", theta=5e5,
    ),
    "smollm3": upstream(
        "SmolLM3Config", 2048, 16, 4, 36, None, 32768, theta=2e6, no_rope="listed",
        window=Window(None, switch="use_sliding_window"), layers=LayerRule("without_rope"),
    ),
    "granite": upstream("GraniteConfig", 4096, 32, None, 32, None, 2048),
    "granitemoe": upstream("GraniteMoeConfig", 4096, 32, None, 32, None, 2048),
    "starcoder2": upstream("Starcoder2Config", 3072, 24, 2, 30, None, 4096, window=Window()),
    "falcon": upstream(
        "FalconConfig", 4544, 71, None, 32, None, 2048,
        one_kv_head=("multi_query", "new_decoder_architecture"),
    ),
    "falcon_h1": upstream("FalconH1Config", 4096, 32, 8, 32, None, 8192),
    "glm": upstream("GlmConfig", 4096, 32, 2, 40, 128, 131072, pairing="adjacent", partial=0.5),
    "glm4": upstream("Glm4Config", 4096, 32, 2, 40, 128, 131072, pairing="adjacent", partial=0.5),
    "glm4_moe": upstream("Glm4MoeConfig", 4096, 96, 8, 46, None, 131072, partial=0.5),
    "gpt_oss": upstream(
        "GptOssConfig", 2880, 64, 8, 36, 64, 131072, theta=150000.0, window=Window(128),
        layers=_EVERY_2, block=YARN_GPT_OSS,
    ),
    "nanochat": upstream("NanoChatConfig", 768, 6, None, 12, None, 2048, direction=-1),
    "persimmon": upstream("PersimmonConfig", 4096, 64, None, 36, None, 16384, partial=0.5),
    "nemotron": upstream("NemotronConfig", 6144, 48, None, 32, None, 4096, partial=0.5),
    "bitnet": upstream("BitNetConfig", 2560, 20, 5, 30, None, 2048, theta=5e5),
    "ernie4_5": upstream(
        "Ernie4_5Config", 1024, 16, 2, 18, 128, 131072, pairing="adjacent", theta=5e5
    ),
    "ernie4_5_moe": upstream(
        "Ernie4_5_MoeConfig", 2560, 20, 4, 28, None, 131072, pairing="adjacent", theta=5e5
    ),
    "seed_oss": upstream("SeedOssConfig", 4096, 80, 8, 64, 128, 524288),
    "helium": upstream(
        "HeliumConfig", 2560, 20, 20, 24, 128, 4096, pairing="adjacent", theta=1e5,
    ),
    "lfm2": upstream(
        "Lfm2Config", 2560, 32, 8, 32, None, 128000, theta=1e6,
        layers=LayerRule("listed", key="full_attn_idxs", others="conv"),
    ),
}
# fmt: on
