"""Decoders with one rope for all of their layers: the rest."""

from __future__ import annotations

from ..family import Condition, Family, LayerRule, Window, upstream
from .decoders import YARN_GPT_OSS
from .rules import all_of, flint_kinds, recurrent_kinds, unfold, zamba2_head, zamba2_kinds

_DBRX = {
    "kv_heads": ("attn_config.kv_n_heads",),
    "theta": ("attn_config.rope_theta",),
    "stated_length": ("max_seq_len",),
}
_LLAMA3_CWM = {
    "rope_type": "llama3",
    "rope_theta": 1000000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}

# fmt: off
ROWS: dict[str, Family] = {
    "chameleon": upstream("ChameleonConfig", 4096, 32, 32, 32, None, 4096),
    "exaone": upstream("ExaoneConfig", 4096, 32, 8, 32, None, 4096, theta=5e5),
    "internlm3": upstream("InternLM3Config", 4096, 32, 2, 48, 128, 32768),
    "iquestcoder": upstream("IQuestCoderConfig", 5120, 40, 8, 80, 128, 131072),
    "sarvam_moe": upstream(
        "SarvamMoEConfig", 4096, 64, 4, 19, 64, 131072, theta=8e6, partial=1.0
    ),
    "diffllama": upstream("DiffLlamaConfig", 2048, 32, None, 16, None, 2048),
    "hrm_text": upstream("HrmTextConfig", 1536, 12, None, 128, 128, 2048),
    "hy_v3": upstream("HYV3Config", 4096, 64, 8, 80, 128, 131072, theta=11158840.0),
    "hyperclovax": upstream("HyperCLOVAXConfig", 4096, 32, None, 32, None, 2048),
    "idefics": upstream("IdeficsConfig", 4096, 32, None, 32, None, 2048),
    "jais2": upstream("Jais2Config", 3328, 26, None, 32, None, 8192),
    "granitemoeshared": upstream("GraniteMoeSharedConfig", 4096, 32, None, 32, None, 2048),
    "granite_docling_text": upstream("GraniteDoclingTextConfig", 1024, 16, 4, 28, None, 32768),
    "aria_text": upstream("AriaTextConfig", 4096, 32, None, 32, None, 2048),
    "emu3_text_model": upstream("Emu3TextConfig", 4096, 32, 8, 32, None, 9216, theta=1e6),
    "unlimited_ocr_text": upstream(
        "UnlimitedOcrTextConfig", 1280, 10, 10, 12, None, 32768, window=Window(128),
        layers=LayerRule("computed", kinds=all_of("reference_sliding_attention")),
    ),
    "granite4_vision_text": upstream("Granite4VisionTextConfig", 4096, 32, None, 32, None, 2048),
    "dbrx": upstream(
        "DbrxConfig", 2048, 16, 1, 24, None, 2048, spellings=_DBRX,
        prepare=unfold("attn_config"),
    ),
    "doge": upstream("DogeConfig", 1024, 8, None, 32, None, 2048, window=Window()),
    "dots1": upstream(
        "Dots1Config", 4608, 32, 32, 62, None, 2048, window=Window(4096),
        layers=LayerRule("from_layer", 62, "max_window_layers"),
    ),
    "deepseek_ocr2_text": upstream("DeepseekOcr2TextConfig", 4096, 32, None, 32, None, 2048),
    "jetmoe": upstream(
        "JetMoeConfig", 2048, 32, 16, 12, 128, 4096, spellings={"head_dim": ("kv_channels",)},
    ),
    "bamba": upstream(
        "BambaConfig", 4096, 32, 8, 32, None, 262144, partial=0.5,
        layers=LayerRule("listed", key="attn_layer_indices", others="mamba"),
    ),
    "minimax": upstream(
        "MiniMaxConfig", 4096, 32, 8, 32, None, 131072, theta=1e6, window=Window(),
        layers=LayerRule("period", 2, first=True, others="linear_attention"),
    ),
    "minimax_m2": upstream(
        "MiniMaxM2Config", 3072, 48, 8, 62, 128, 196608, theta=5e6, partial=1.0,
        spellings={"rotary_dim": ("rotary_dim",)},
    ),
    "solar_open": upstream(
        "SolarOpenConfig", 4096, 64, 8, 48, 128, 131072, theta=1e6, partial=1.0,
    ),
    "olmo_hybrid": upstream(
        "OlmoHybridConfig", 3840, 30, None, 32, None, 65536,
        layers=LayerRule("period", 4, others="linear_attention"),
    ),
    "openai_privacy_filter": upstream(
        "OpenAIPrivacyFilterConfig", 640, 14, 2, 8, 64, 131072, theta=150000.0,
        block=YARN_GPT_OSS, window=Window(128), pairing="adjacent",
    ),
    "hunyuan_v1_dense": upstream(
        "HunYuanDenseV1Config", 4096, 32, None, 32, None, 2048, alpha=True,
    ),
    "hunyuan_v1_moe": upstream("HunYuanMoEV1Config", 4096, 32, None, 32, None, 2048, alpha=True),
    "cwm": upstream(
        "CwmConfig", 6144, 48, 8, 64, 128, 131072, theta=1e6, block=_LLAMA3_CWM,
        window=Window(8192), layers=LayerRule("period", 4, first=True),
    ),
    "flint": upstream(
        "FlintConfig", 2048, 32, 4, 49, 128, 262144, window=Window(513),
        layers=LayerRule("computed", kinds=flint_kinds),
    ),
    "vaultgemma": upstream(
        "VaultGemmaConfig", 2304, 8, 4, 26, 256, 8192, window=Window(4096),
        layers=LayerRule("period", 2),
    ),
    "phi4_multimodal": upstream(
        "Phi4MultimodalConfig", 3072, 32, 8, 32, None, 131072, partial=1.0, window=Window(),
        trained_length=4096, kinds={"yarn": "longrope"},
    ),
    "lfm2_moe": upstream(
        "Lfm2MoeConfig", 2048, 32, 8, 32, None, 128000, theta=1e6,
        layers=LayerRule("listed", key="full_attn_idxs", others="conv"),
    ),
    "recurrent_gemma": upstream(
        "RecurrentGemmaConfig", 2560, 10, None, 26, None, None, partial=0.5, window=Window(2048),
        only_default=True, layers=LayerRule("computed", kinds=recurrent_kinds),
        spellings={"window": ("attention_window_size",)},
    ),
    "zamba2": upstream(
        "Zamba2Config", 2560, 32, None, 54, None, 4096,
        condition=Condition("use_mem_rope", (True,), False, None),
        layers=LayerRule("computed", kinds=zamba2_kinds),
        spellings={"head_dim": ("attention_head_dim",)}, prepare=zamba2_head,
    ),
    "granitemoehybrid": upstream(
        "GraniteMoeHybridConfig", 4096, 32, None, 32, None, 2048,
        condition=Condition("position_embedding_type", ("rope",), None, None),
        layers=LayerRule("period", 0, others="linear_attention"),
    ),
    "muse_glimmer_assistant": upstream(
        "MuseGlimmerAssistantConfig", 6656, 32, 8, 5, 128, 131072, theta=5e5,
        window=Window(2048), layers=LayerRule("period", 0),
    ),
}
# fmt: on
