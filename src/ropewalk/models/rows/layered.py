"""Decoders and encoders whose layer types differ in base, scaling, share or in having a rope."""

from __future__ import annotations

from ..family import Family, LayerRule, LocalRope, Window, upstream
from .decoders import EVERY_4
from .rules import (
    all_of,
    beam_kinds,
    dory_pairs,
    from_the_end,
    lara_kinds,
    lfm3_kinds,
    mimo_kinds,
    per_kind,
    step3p5_lists,
    ultrabert_lists,
)

_EVERY_6 = LayerRule("period", 6, "sliding_window_pattern")
_GEMMA3_LOCAL = LocalRope(10000.0, ("rope_local_base_freq",))
WIDER_FULL_HEADS = (
    "full layers have wider heads: kv_heads and value_dim are those of sliding layers"
)
_GEMMA4 = per_kind(
    sliding_attention=10000.0,
    full_attention={
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1000000.0,
    },
)
_LFM3 = per_kind(
    sliding_attention=10000.0,
    full_attention={
        "rope_type": "proportional",
        "partial_rotary_factor": 0.5,
        "rope_theta": 1000000.0,
    },
)
_BEAM = {**per_kind(sliding_attention=10000.0), "full_attention": None}
_LAGUNA = per_kind(full_attention=(500000.0, 0.5), sliding_attention=(10000.0, 1.0))
_MIMO = per_kind(full_attention=(5000000.0, 0.334), sliding_attention=(10000.0, 0.334))
_ZAYA = per_kind(hybrid=(5000000.0, 0.5), hybrid_sliding=(10000.0, 0.5))

# fmt: off
ROWS: dict[str, Family] = {
    "gemma3_text": upstream(
        "Gemma3TextConfig", 2304, 8, 4, 26, 256, 131072, theta=1e6, layers=_EVERY_6,
        window=Window(4096, halved_by="use_bidirectional_attention"), local=_GEMMA3_LOCAL,
    ),
    "gemma3n_text": upstream(
        "Gemma3nTextConfig", 2048, 8, 2, 35, 256, 32768, theta=1e6,
        layers=LayerRule("period", 5), window=Window(512), local=_GEMMA3_LOCAL,
    ),
    "gemma4_text": upstream(
        "Gemma4TextConfig", 2304, 8, 4, 30, 256, 131072, block=_GEMMA4, window=Window(512),
        layers=LayerRule("period", 6), full_head_dim=("global_head_dim", 512),
        remarks=(
            "full layers have wider heads: kv_heads and value_dim are those of sliding layers",
        ),
    ),
    "olmo3": upstream(
        "Olmo3Config", 4096, 32, None, 32, None, 2048, theta=5e5, window=Window(4096),
        layers=LayerRule("period", 4), local=LocalRope(None),
    ),
    "cohere2": upstream(
        "Cohere2Config", 8192, 64, None, 40, None, 8192, pairing="adjacent",
        window=Window(4096), layers=EVERY_4, no_rope="not_sliding",
    ),
    "llama4_text": upstream(
        "Llama4TextConfig", 5120, 40, 8, 48, 128, 131072, pairing="adjacent", theta=5e5,
        no_rope="listed", window=Window(8192), temperature="layers_without_rope",
        spellings={"window": ("attention_chunk_size",)},
        layers=LayerRule("with_rope", others="chunked_attention"),
    ),
    "mllama_text_model": upstream(
        "MllamaTextConfig", 4096, 32, 8, 40, None, 131072, theta=5e5,
        layers=LayerRule("marked", key="cross_attention_layers", others="cross_attention"),
    ),
    "exaone4": upstream(
        "Exaone4Config", 4096, 32, 32, 32, None, 2048, window=Window(4096), layers=EVERY_4,
        no_rope="full_if_windowed",
    ),
    "modernbert": upstream(
        "ModernBertConfig", 768, 12, None, 22, None, 8192, theta=160000.0,
        layers=LayerRule("period", 3, "global_attn_every_n_layers", first=True),
        window=Window(128, each_side=True),
        local=LocalRope(10000.0, ("local_rope_theta",), scaled=True),
        spellings={"theta": ("global_rope_theta",), "window": ("local_attention",)},
    ),
    "afmoe": upstream(
        "AfmoeConfig", 2048, 16, None, 32, 128, 16384, window=Window(1024),
        layers=LayerRule("period", 4, "global_attn_every_n_layers"), no_rope="not_sliding",
    ),
    "cohere2_moe": upstream(
        "Cohere2MoeConfig", 8192, 64, None, 40, 128, 8192, window=Window(4096),
        layers=LayerRule("period", 4, "sliding_window_pattern"), pairing="adjacent",
        no_rope="not_sliding",
    ),
    "exaone_moe": upstream(
        "ExaoneMoeConfig", 4096, 32, 32, 32, None, 2048, window=Window(4096),
        layers=LayerRule("period", 4, "sliding_window_pattern"), no_rope="full_if_windowed",
    ),
    "kolibri1": upstream(
        "Kolibri1Config", 2560, 48, 4, 50, 128, 262144, window=Window(513),
        layers=LayerRule("period", 5), no_rope="full_if_windowed",
    ),
    "lara_mini": upstream(
        "LaraMiniConfig", 1024, 16, 4, 34, 128, 131072, window=Window(512),
        no_rope="not_sliding", layers=LayerRule("computed", kinds=lara_kinds),
    ),
    "beam": upstream(
        "BeamConfig", 5120, 48, 8, 52, 128, 8192, window=Window(512),
        layers=LayerRule("computed", kinds=beam_kinds), block=_BEAM,
    ),
    "granite_swa": upstream(
        "GraniteSWAConfig", 2560, 20, 4, 24, None, 8192, window=Window(128),
        layers=LayerRule("period", 4, first=True), layer_theta="value",
    ),
    "granitemoe_swa": upstream(
        "GraniteMoeSWAConfig", 4096, 32, None, 32, None, 2048, window=Window(128),
        layers=LayerRule("period", 4, first=True), layer_theta="value",
    ),
    "muse_glimmer_text": upstream(
        "MuseGlimmerTextConfig", 6656, 32, 2, 52, 128, 131072, window=Window(2048),
        layer_theta="switch", no_rope="not_sliding",
        layers=LayerRule("computed", kinds=from_the_end),
    ),
    "muse_spark_text": upstream(
        "MuseSparkTextConfig", 8192, 128, 16, 62, 64, 1048576, theta=5e5, window=Window(2048),
        layer_theta="switch", no_rope="not_sliding",
        layers=LayerRule("computed", kinds=from_the_end),
    ),
    "molmo2_text": upstream(
        "Molmo2TextConfig", 4096, 32, 8, 36, 128, 36864, scaled_layers="rope_scaling_layers",
    ),
    "diffusion_gemma_text": upstream(
        "DiffusionGemmaTextConfig", 2304, 8, 4, 30, 256, 131072, partial=1.0, window=Window(512),
        layers=LayerRule("period", 6), block=_GEMMA4, full_head_dim=("global_head_dim", 512),
        remarks=(WIDER_FULL_HEADS,),
    ),
    "gemma4_unified_text": upstream(
        "Gemma4UnifiedTextConfig", 2304, 8, 4, 30, 256, 262144, window=Window(1024),
        layers=LayerRule("period", 6), block=_GEMMA4, full_head_dim=("global_head_dim", 512),
        remarks=(WIDER_FULL_HEADS,),
    ),
    "embedding_gemma2_text": upstream(
        "EmbeddingGemma2TextConfig", 512, 4, 2, 24, 256, 262144, window=Window(512),
        layers=LayerRule("period", 6), block=per_kind(sliding_attention=1e4, full_attention=1e6),
        full_head_dim=("global_head_dim", 512), remarks=(WIDER_FULL_HEADS,),
    ),
    "t5_gemma_module": upstream(
        "T5GemmaModuleConfig", 2304, 8, 4, 26, 256, 8192, window=Window(4096),
        layers=LayerRule("period", 2),
    ),
    "t5gemma2_text": upstream(
        "T5Gemma2TextConfig", 2304, 8, 4, 26, 256, 131072, window=Window(4096),
        layers=LayerRule("period", 6), theta=1e6, local=_GEMMA3_LOCAL,
    ),
    "t5gemma2_decoder": upstream(
        "T5Gemma2DecoderConfig", 2304, 8, 4, 26, 256, 131072, window=Window(4096),
        layers=LayerRule("period", 6), theta=1e6, local=_GEMMA3_LOCAL,
    ),
    "modernbert-decoder": upstream(
        "ModernBertDecoderConfig", 768, 12, None, 22, None, 8192, window=Window(64),
        layers=LayerRule("period", 3, "global_attn_every_n_layers", first=True), theta=160000.0,
        local=LocalRope(10000.0, ("local_rope_theta",), scaled=True),
        spellings={"theta": ("global_rope_theta",), "window": ("sliding_window",)},
    ),
    "dory": upstream(
        "DoryConfig", 2560, 16, 4, 36, 256, 8192, window=Window(1024),
        block=per_kind(sliding_attention=1e4, full_attention=1e7), layers=LayerRule("period", 4),
        prepare=dory_pairs,
    ),
    "ultrabert": upstream(
        "UltrabertConfig", 4096, 32, None, 32, None, 32768, window=Window(128),
        layers=LayerRule("period", 3),
        block=per_kind(sliding_attention=1e4, full_attention=2.56e6), prepare=ultrabert_lists,
    ),
    "laguna": upstream(
        "LagunaConfig", 2048, 48, 8, 40, 128, 131072, window=Window(512),
        layers=LayerRule("period", 1), block=_LAGUNA, partial=1.0,
    ),
    "mellum": upstream(
        "MellumConfig", 2304, 32, 4, 28, 128, 131072, window=Window(1024),
        layers=LayerRule("period", 1), block=per_kind(sliding_attention=1e4, full_attention=5e5),
        partial=1.0,
    ),
    "mimo_v2_flash": upstream(
        "MiMoV2FlashConfig", 4096, 64, 4, 48, 192, 131072, window=Window(129), block=_MIMO,
        partial=0.334, layers=LayerRule("computed", kinds=mimo_kinds),
        spellings={"value_dim": ("v_head_dim",)},
    ),
    "step3p5": upstream(
        "Step3p7TextConfig", 4096, 64, 8, 45, 128, 128000, window=Window(),
        layers=LayerRule("period", 1), prepare=step3p5_lists, partial=1.0,
        remarks=("sliding layers may have another number of query heads",),
    ),
    "zaya": upstream(
        "ZayaConfig", 2048, 8, 2, 40, 128, 131072, window=Window(), block=_ZAYA, partial=1.0,
        layers=LayerRule("computed", kinds=all_of("hybrid")),
    ),
    "lfm3": upstream(
        "Lfm3Config", 2048, 16, 4, 24, 128, 128000, window=Window(256), block=_LFM3,
        layers=LayerRule("computed", kinds=lfm3_kinds),
    ),
}
# fmt: on
