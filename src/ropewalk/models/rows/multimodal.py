"""Language models of several position axes: M-RoPE and its kin."""

from __future__ import annotations

from ..family import AxesRule, Family, LayerRule, Window, upstream
from .decoders import FROM_LAYER, LINEAR_4, LLAMA3_APERTUS, SWITCHED
from .rules import beam_kinds, neomme_windows, per_kind, qwen4_kinds

QWEN2_VL = AxesRule("sections", (16, 24, 24))
GLM4V = AxesRule("sections", (8, 12, 12))
QWEN3_VL = AxesRule("interleaved", (24, 20, 20))
QWEN3_5 = AxesRule("interleaved", (11, 11, 10))
_FROM_LAYER_80 = LayerRule("from_layer", 80, "max_window_layers")
_NEOMME = per_kind(full_attention=(1000000.0, 0.25), sliding_attention=(10000.0, 1.0))
_SHARE_IN_BLOCK = (
    "rotary_dim is not read by transformers' rotary class: the share is partial_rotary_factor of "
    "the rope block, by default all lanes"
)

# fmt: off
ROWS: dict[str, Family] = {
    "qwen2_vl_text": upstream(
        "Qwen2VLTextConfig", 8192, 64, 8, 80, None, 32768, theta=1e6, window=SWITCHED,
        layers=_FROM_LAYER_80, axes=QWEN2_VL,
    ),
    "qwen2_5_vl_text": upstream(
        "Qwen2_5_VLTextConfig", 8192, 64, 8, 80, None, 32768, theta=1e6, window=SWITCHED,
        layers=_FROM_LAYER_80, axes=QWEN2_VL,
    ),
    "qwen3_5_text": upstream(
        "Qwen3_5TextConfig", 4096, 16, 4, 32, 256, 32768, partial=0.25, layers=LINEAR_4,
        axes=QWEN3_5,
    ),
    "qwen3_5_moe_text": upstream(
        "Qwen3_5MoeTextConfig", 2048, 16, 2, 40, 256, 32768, partial=0.25, layers=LINEAR_4,
        axes=QWEN3_5,
    ),
    "qwen3_vl_text": upstream(
        "Qwen3VLTextConfig", 4096, 32, 32, 32, 128, 128000, theta=5e5, axes=QWEN3_VL
    ),
    "qwen3_vl_moe_text": upstream(
        "Qwen3VLMoeTextConfig", 2048, 16, 16, 24, None, 128000, theta=5e5,
        axes=QWEN3_VL,
    ),
    "glm4v_text": upstream(
        "Glm4vTextConfig", 4096, 32, 2, 40, None, 32768, pairing="adjacent", partial=1.0,
        axes=GLM4V,
    ),
    "glm_ocr_text": upstream(
        "GlmOcrTextConfig", 1024, 16, 8, 16, None, 131072, partial=1.0, pairing="adjacent",
        axes=GLM4V,
    ),
    "glm4v_moe_text": upstream(
        "Glm4vMoeTextConfig", 4096, 96, 8, 46, None, 65536, partial=0.5, axes=GLM4V,
    ),
    "glm_image_text": upstream(
        "GlmImageTextConfig", 4096, 32, 2, 40, None, 131072, partial=1.0, axes=GLM4V,
    ),
    "paddleocr_vl_text": upstream(
        "PaddleOCRTextConfig", 1024, 16, 2, 18, 128, 131072, theta=5e5, axes=QWEN2_VL,
    ),
    "qwen2_5_omni_text": upstream(
        "Qwen2_5OmniTextConfig", 3584, 28, 4, 28, None, 32768, theta=1e6, axes=QWEN2_VL,
        window=SWITCHED, layers=FROM_LAYER,
    ),
    "qwen2_5_omni_talker": upstream(
        "Qwen2_5OmniTalkerConfig", 3584, 28, 4, 28, 128, 32768, theta=1e6, axes=QWEN2_VL,
        window=SWITCHED, layers=FROM_LAYER,
    ),
    "qwen3_omni_moe_text": upstream(
        "Qwen3OmniMoeTextConfig", 2048, 28, 4, 28, None, 32768, theta=1e6, axes=QWEN3_VL,
    ),
    "qwen3_omni_moe_talker_text": upstream(
        "Qwen3OmniMoeTalkerTextConfig", 1024, 16, 2, 20, None, 32768, axes=QWEN3_VL,
    ),
    "cosmos3_edge_text": upstream(
        "Cosmos3EdgeTextConfig", 2048, 16, 8, 28, 128, 131072, theta=1e8, axes=QWEN3_VL,
    ),
    "qwen4_exp_text": upstream(
        "Qwen4ExpTextConfig", 2048, 16, 2, 40, 256, 32768, partial=1.0, axes=QWEN3_5,
        layers=LayerRule("computed", kinds=qwen4_kinds),
    ),
    "ernie4_5_vl_moe_text": upstream(
        "Ernie4_5_VLMoeTextConfig", 2560, 20, 4, 28, None, 131072, theta=5e5,
        pairing="adjacent", axes=AxesRule("alternating_with_tail", (22, 22, 20)),
        only_default=True,
    ),
    "hunyuan_vl_text": upstream(
        "HunYuanVLTextConfig", 4096, 32, None, 32, None, 2048, alpha=True,
        kinds={"xdrope": "dynamic"}, axes=AxesRule("doubled"),
    ),
    "cohere_compass_text": upstream(
        "CohereCompassTextConfig", 8192, 64, None, 40, None, 8192, window=Window(4096),
        layers=LayerRule("period", 1), axes=QWEN3_VL, block=per_kind(full_attention=1e4),
    ),
    "neomme": upstream(
        "NeoMMEConfig", 1024, 16, 4, 17, 64, 16384, axes=AxesRule("rows_and_columns"),
        block=_NEOMME, partial=1.0, layers=LayerRule("computed", kinds=beam_kinds),
        window=Window(256), prepare=neomme_windows,
    ),
    "minimax_m3_vl_text": upstream(
        "MiniMaxM3VLTextConfig", 6144, 64, 4, 60, 128, 524288, theta=5e6, partial=1.0,
        layers=LayerRule("period", 1), remarks=(_SHARE_IN_BLOCK,),
    ),
    "apertus1p5_text": upstream(
        "Apertus1p5TextConfig", 4096, 32, None, 32, None, 65536, theta=12e6,
        block=LLAMA3_APERTUS,
    ),
}
# fmt: on
