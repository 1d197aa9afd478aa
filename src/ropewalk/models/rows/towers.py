"""Parts that read images, video, atoms or time stamps: ropes of several axes and no text."""

from __future__ import annotations

from typing import Any

from ..family import Family, LayerRule, upstream
from . import images

_AXIAL = {"axial": "default"}
_SHORT_NAMES = {"heads": ("num_heads",), "layers": ("depth",)}
TIMED = (
    "the rope is applied to the audio frames once, in front of the language model; positions are "
    "multiplied with -2π times the time stamp"
)
FROM_ONE = "rows and columns are counted from 1"


def _vision(name: str, *sizes: int | None, **rest: Any) -> Family:
    """A vision tower: width, heads, layers; planes by height, then by width."""
    width, heads, layers = sizes
    kv_heads, length = rest.pop("kv_heads", None), rest.pop("length", None)
    made = {"axial": images.height_width, "kinds": _AXIAL, "only_default": True, **rest}
    return upstream(name, width, heads, kv_heads, layers, None, length, **made)


def _short(name: str, *sizes: int | None, **rest: Any) -> Family:
    return _vision(name, *sizes, **{"spellings": _SHORT_NAMES, **rest})


def _lfm3_kinds(_: Any, count: int) -> list[str]:
    return ["conv" if i < 2 or i % 2 else "full_attention" for i in range(count)]


def _muse_kinds(_: Any, count: int) -> list[str]:
    full = [(i + 1) % 4 == 0 or i == count - 1 for i in range(count)]
    return ["full_attention" if flag else "window_attention" for flag in full]


_MUSE = LayerRule("computed", kinds=_muse_kinds)

# fmt: off
ROWS: dict[str, Family] = {
    "cohere_compass_vision": _short("CohereCompassVisionConfig", 1152, 16, 27),
    "dots3_note_vision_encoder": _vision("Dots3NoteVisionConfig", 1536, 24, 42),
    "ernie4_5_vl_moe_vision": _short("Ernie4_5_VLMoeVisionConfig", 1280, 16, 32),
    "exaone4_5_vision": _short("Exaone4_5_VisionConfig", 3584, 16, 32, kv_heads=8),
    "glm4v_vision": _short("Glm4vVisionConfig", 1536, 12, 24),
    "glm4v_moe_vision": _short("Glm4vMoeVisionConfig", 1536, 12, 24),
    "glm5_next_vision": _short("Glm5NextVisionConfig", 1024, 16, 24),
    "glm_ocr_vision": _short("GlmOcrVisionConfig", 1024, 16, 24),
    "lfm3_vl_vision": _vision(
        "Lfm3VlVisionConfig", 1024, 16, 14, theta=1e6, kv_heads=8,
        layers=LayerRule("computed", kinds=_lfm3_kinds),
    ),
    "mlcd_vision_model": _vision("MLCDVisionConfig", 1664, 16, 48),
    "paddleocr_vl_vision": _vision("PaddleOCRVisionConfig", 1152, 16, 27),
    "qwen2_5_vl_vision": _short("Qwen2_5_VLVisionConfig", 3584, 16, 32),
    "qwen3_5_vision": _short("Qwen3_5VisionConfig", 1152, 16, 27),
    "qwen3_5_moe_vision": _short("Qwen3_5MoeVisionConfig", 1152, 16, 27),
    "qwen3_vl_vision": _short("Qwen3VLVisionConfig", 1152, 16, 27),
    "qwen3_vl_moe_vision": _short("Qwen3VLMoeVisionConfig", 1152, 16, 27),
    "qwen4_exp_vision": _short("Qwen4ExpVisionConfig", 1152, 16, 27),
    "video_llama_3_vision": _vision("VideoLlama3VisionConfig", 768, 12, 12),
    "muse_glimmer_vision": _vision(
        "MuseGlimmerVisionConfig", 1536, 16, 50, length=1024, layers=_MUSE
    ),
    "muse_spark_vision": _vision(
        "MuseSparkVisionConfig", 1536, 16, 50, length=1024, layers=_MUSE
    ),
    "qwen2_5_omni_vision_encoder": _short("Qwen2_5OmniVisionEncoderConfig", 3584, 16, 32),
    "qwen3_omni_moe_vision_encoder": _short("Qwen3OmniMoeVisionEncoderConfig", 1152, 16, 27),
    "qwen2_vl_vision": _short("Qwen2VLVisionConfig", 1280, 16, 32, prepare=images.embed_dim),
    "sam3_vit_model": _vision("Sam3ViTConfig", 1024, 16, 32, pairing="adjacent"),
    "step3p5_vision": _vision(
        "Step3p7VisionConfig", 1536, 16, 47, length=2704, axial=images.width_height,
        spellings={"hidden_size": ("width",), "heads": ("heads",), "layers": ("layers",)},
    ),
    "inkling2_vision": _vision(
        "Inkling2VisionConfig", 1024, 16, 23, axial=images.width_height, pairing="adjacent"
    ),
    "kimi_k25_vision": _vision(
        "Kimi_K25VisionConfig", 1152, 16, 27, axial=images.width_height_in_turn
    ),
    "pixtral": _vision("PixtralVisionConfig", 1024, 16, 24, axial=images.rungs_dealt_out),
    "gemma4_vision": upstream(
        "Gemma4VisionConfig", 768, 12, 12, 16, 64, 131072, theta=100.0, axial=images.own_halves,
        kinds=_AXIAL, only_default=True,
    ),
    "minimax_m3_vl_vision": _vision(
        "MiniMaxM3VLVisionConfig", 1280, 16, 32, axial=images.thirds
    ),
    "llama4_vision_model": _vision(
        "Llama4VisionConfig", 768, 16, 34, axial=images.x_then_y,
        remarks=(FROM_ONE + "; the class token stands last, at 0",),
    ),
    "dinov3_vit": _vision(
        "DINOv3ViTConfig", 384, 6, 12, theta=100.0, axial=images.coordinates,
        remarks=("class and register tokens are not rotated",),
    ),
    "sapiens2": _vision(
        "Sapiens2Config", 1024, 16, 24, theta=100.0, axial=images.coordinates,
        remarks=("class and register tokens are not rotated",),
    ),
    "eomt_dinov3": _vision(
        "EomtDinov3Config", 1024, 16, 24, theta=100.0, axial=images.coordinates,
        remarks=("class and register tokens are not rotated",),
    ),
    "efficientloftr": _vision(
        "EfficientLoFTRConfig", 256, 1, 4, axial=images.rows_and_columns_in_turn,
        prepare=images.whole_hidden_state, spellings={"layers": ("num_attention_layers",)},
        remarks=("whole hidden states are rotated, not heads; " + FROM_ONE,),
    ),
    "sam2_video": _vision(
        "Sam2VideoConfig", 256, 1, 4, pairing="adjacent", prepare=images.memory_attention
    ),
    "sam3_tracker_video": _vision(
        "Sam3TrackerVideoConfig", 256, 1, 4, pairing="adjacent", prepare=images.memory_attention
    ),
    "edgetam_video": _vision(
        "EdgeTamVideoConfig", 256, 1, 2, pairing="adjacent", prepare=images.memory_attention,
        remarks=("keys of the memory have a grid of their own",),
    ),
    "vjepa2": _vision("VJEPA2Config", 1024, 16, 24, axial=images.tiled_thirds),
    "esmfold2_atom_encoder": upstream(
        "EsmFold2AtomEncoderConfig", 128, 4, None, 3, 32, None, axial=images.atoms,
        only_default=True,
    ),
    "musicflamingo": upstream(
        "MusicFlamingoConfig", 1280, 1, None, 1, 1280, None, theta=1200.0, partial=0.2,
        axial=images.window_and_time, only_default=True,
        remarks=(TIMED,),
    ),
}
"""Every part by ``model_type``."""
# fmt: on
