"""Transformers of diffusers, by the ``_class_name`` of their config: what their positions are.

Read from diffusers 0.42.1, whose real classes the tests compare with. A class that is not here
is refused by name.
"""

from __future__ import annotations

from typing import Any

from ..keyed_file import KeyedFile
from ..layers import LayerKind
from .denoiser import Denoiser
from .diffusers_layouts import (
    Key,
    doubled_in_pairs,
    eighths,
    equal_ladders,
    every_third,
    geometric,
    listed,
    one_axis,
    own_thirds,
    quarters,
    sixths,
    two_lists,
)


def _alternating(file: KeyedFile, count: int) -> list[LayerKind]:
    """ACE-Step: every other layer, the first one included, sees a window on both sides."""
    window = file.count("sliding_window", 128)
    kinds = file.get("layer_types")
    if kinds is None:
        kinds = ["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(count)]
    known = ("sliding_attention", "full_attention")
    if not isinstance(kinds, list) or len(kinds) != count or any(k not in known for k in kinds):
        raise file.refusal(
            "layer_types",
            found=repr(kinds)[:60],
            expected=f"{count} entries of {' and '.join(known)}",
            fix="take the list from the model's own config",
        )
    # |i - j| <= window: the query, and as many on either side; a window counts itself and one side.
    return [LayerKind(k, True, window + 1 if k == known[0] else None) for k in kinds]


_IMAGE = ("image", "height", "width")
_VIDEO = ("time", "height", "width")
_TEXT = ("text", "height", "width")
_FOUR = ("time", "height", "width", "text")
_DUAL: dict[str, Any] = {
    "heads": ("num_attention_heads", 24),
    "head_dim": ("attention_head_dim", 128),
}
_IDS = "positions are ids that the pipeline makes: text stands at 0 on every axis"
_FOUR_IDS = "positions are ids that the pipeline makes: text counts on the last axis alone"
_PATCHES = "positions count patches on every axis; only the visual tokens are turned"
_ALL_TEXT = "text counts on the first axis; an image stands behind it and counts rows and columns"
_CENTRED = (
    "rows and columns are counted from the middle of the picture, so half of them are negative; "
    "text stands behind the larger half, at equal positions on all axes"
)
_CROPPED = (
    "rows and columns are a grid stretched to the resolution of training, which the pipeline "
    "computes; frames are counted"
)


def _flux(single: int, layers: int = 19, **rest: Any) -> Denoiser:
    row: dict[str, Any] = {
        **_DUAL,
        "layout": listed("axes_dims_rope", (16, 56, 56), _IMAGE),
        "layers": (("num_layers", layers), ("num_single_layers", single)),
        "remarks": (_IDS,),
    }
    return Denoiser(**{**row, **rest})


_BRIA = _flux(
    38, layout=listed("axes_dims_rope", (16, 56, 56), _IMAGE, theta=("rope_theta", 10000))
)


def _wan(layers: int = 40, count: int = 40, **rest: Any) -> Denoiser:
    row: dict[str, Any] = {
        "layout": sixths(),
        "layers": (("num_layers", layers),),
        "heads": ("num_attention_heads", count),
        "head_dim": ("attention_head_dim", 128),
        "remarks": (_PATCHES,),
    }
    return Denoiser(**{**row, **rest})


def _hunyuan(*layers: Key, heads: int = 24, **rest: Any) -> Denoiser:
    row: dict[str, Any] = {
        "layout": listed("rope_axes_dim", (16, 56, 56), _VIDEO, theta=("rope_theta", 256.0)),
        "layers": layers,
        "heads": ("num_attention_heads", heads),
        "head_dim": ("attention_head_dim", 128),
        "remarks": (_PATCHES,),
    }
    return Denoiser(**{**row, **rest})


_COG = Denoiser(
    layout=eighths(),
    layers=(("num_layers", 30),),
    heads=("num_attention_heads", 30),
    head_dim=("attention_head_dim", 64),
    only_if=(
        "use_rotary_positional_embeddings", (True,), False,
        "sinusoidal positions of three axes, added to the tokens",
    ),
    remarks=(_CROPPED,),
)  # fmt: skip
_JOY = Denoiser(
    layout=listed("rope_dim_list", (16, 56, 56), _VIDEO, theta=("theta", 256)),
    layers=(("num_layers", 20),),
    heads=("num_attention_heads", 24),
    head_dim=None,
    width=("hidden_size", 3072),
    remarks=(_PATCHES,),
)
_PICTURES = (
    "text is at equal positions on all axes; in a picture rows and columns are counted from "
    "its middle"
)
_EARLY = (
    "positions count patches; for pictures larger than those of training the pipeline "
    "raises the base in early steps and divides frequencies in late ones"
)
_RESIZED = (
    "rows and columns are stretched to rope_axes_dim: position i of n is "
    "i x rope_axes_dim // n; text is not turned"
)
_SCALED = "the angles of each axis are also divided by a scale that the pipeline chooses"
_LTX2_AUDIO = Denoiser(
    layout=geometric(("time",), theta=("rope_theta", 10000.0), split="rope_type"),
    layers=(("num_layers", 48),),
    heads=("audio_num_attention_heads", 32),
    head_dim=("audio_attention_head_dim", 64),
)
_COORDINATES = (
    "positions are coordinates, from -1 to 1 over the largest clip, times theta x pi/2; the lanes "
    "of all heads are turned together, so the heads differ"
)
_LTX2 = Denoiser(
    layout=geometric(_VIDEO, theta=("rope_theta", 10000.0), split="rope_type"),
    layers=(("num_layers", 48),),
    heads=("num_attention_heads", 32),
    head_dim=("attention_head_dim", 128),
    beside={"audio": _LTX2_AUDIO},
    remarks=(
        _COORDINATES,
        "attention between video and audio has two more ropes, over time alone; they are not shown",
    ),
)
_FAR = "frames of the compressed history stand at the mean of the positions that they hold"

DENOISERS: dict[str, Denoiser] = {
    "FluxTransformer2DModel": _flux(38),
    "FluxControlNetModel": _flux(38),
    "ChromaTransformer2DModel": _flux(38),
    "LongCatImageTransformer2DModel": _flux(38),
    "OvisImageTransformer2DModel": _flux(27, 6),
    "BriaTransformer2DModel": _BRIA,
    "BriaFiboTransformer2DModel": _BRIA,
    "Flux2Transformer2DModel": _flux(
        48, 8, heads=("num_attention_heads", 48), remarks=(_FOUR_IDS,),
        layout=listed("axes_dims_rope", (32, 32, 32, 32), _FOUR, theta=("rope_theta", 2000)),
    ),
    "Flux3Transformer2DModel": _flux(
        28, 5, remarks=(_FOUR_IDS,),
        layout=listed("axes_dims_rope", (32, 32, 32, 32), _FOUR, theta=("rope_theta", 10000)),
    ),
    "HiDreamImageTransformer2DModel": _flux(
        32, 16, heads=("num_attention_heads", 20),
        layout=listed("axes_dims_rope", (32, 32), _IMAGE, partial=True),
    ),
    "Krea2Transformer2DModel": Denoiser(
        layout=listed("axes_dims_rope", (32, 48, 48), _VIDEO, theta=("rope_theta", 1000.0)),
        layers=(("num_layers", 28),), heads=("num_attention_heads", 48),
        head_dim=("attention_head_dim", 128), kv_heads=("num_key_value_heads", 12),
        remarks=("positions are ids that the pipeline makes",),
    ),
    "PRXTransformer2DModel": Denoiser(
        layout=listed("axes_dim", (32, 32), ("height", "width"), theta=("theta", 10000)),
        layers=(("depth", 16),), heads=("num_heads", 28), head_dim=None,
        width=("hidden_size", 1792), remarks=(_PATCHES,),
    ),
    "QwenImageTransformer2DModel": Denoiser(
        **_DUAL, layout=listed("axes_dims_rope", (16, 56, 56), _VIDEO),
        layers=(("num_layers", 60),), remarks=(_CENTRED,),
    ),
    "QwenImageControlNetModel": Denoiser(
        **_DUAL, layout=listed("axes_dims_rope", (16, 56, 56), _VIDEO),
        layers=(("num_layers", 60),), remarks=(_CENTRED,),
    ),
    "QwenImage21Transformer2DModel": Denoiser(
        layout=listed("axes_dims_rope", (16, 56, 56), _VIDEO), layers=(("num_layers", 32),),
        heads=("num_attention_heads", 32), head_dim=("attention_head_dim", 128),
        remarks=(_PICTURES,),
    ),
    "NucleusMoEImageTransformer2DModel": Denoiser(
        layout=listed("axes_dims_rope", (16, 56, 56), _VIDEO), layers=(("num_layers", 24),),
        heads=("num_attention_heads", 16), head_dim=("attention_head_dim", 128),
        kv_heads=("num_key_value_heads", None), remarks=(_CENTRED,),
    ),
    "Lumina2Transformer2DModel": Denoiser(
        layout=listed("axes_dim_rope", (32, 32, 32), _TEXT), layers=(("num_layers", 26),),
        heads=("num_attention_heads", 24), head_dim=None, width=("hidden_size", 2304),
        kv_heads=("num_kv_heads", 8), remarks=(_ALL_TEXT,),
    ),
    "ZImageTransformer2DModel": Denoiser(
        layout=listed("axes_dims", (32, 48, 48), _TEXT, theta=("rope_theta", 256.0)),
        layers=(("n_layers", 30),), heads=("n_heads", 30), head_dim=None, width=("dim", 3840),
        kv_heads=("n_kv_heads", 30), remarks=(_ALL_TEXT,),
    ),
    "BriaFibo2Transformer2DModel": Denoiser(
        layout=listed("axes_dims", (32, 48, 48), _TEXT, theta=("rope_theta", 256.0)),
        layers=(("n_layers", 44),), heads=("n_heads", 28), head_dim=None, width=("dim", 3584),
        remarks=("gist tokens count on the first axis; an image counts rows and columns",),
    ),
    "ErnieImageTransformer2DModel": Denoiser(
        layout=doubled_in_pairs("rope_axes_dim", (32, 48, 48), _TEXT, ("rope_theta", 256)),
        layers=(("num_layers", 24),), heads=("num_attention_heads", 24), head_dim=None,
        width=("hidden_size", 3072), remarks=(_ALL_TEXT,),
    ),
    "LuminaNextDiT2DModel": Denoiser(
        layout=quarters(pairing="adjacent", mixed=True), layers=(("num_layers", 32),),
        heads=("num_attention_heads", 32), head_dim=None, width=("hidden_size", 2304),
        kv_heads=("num_kv_heads", None),
        remarks=(_EARLY,),
    ),
    "HunyuanDiT2DModel": Denoiser(
        layout=quarters(("width", "height"), pairing="adjacent"), layers=(("num_layers", 28),),
        heads=("num_attention_heads", 16), head_dim=("attention_head_dim", 88),
        remarks=(_CROPPED,),
    ),
    "HunyuanDiT2DControlNetModel": Denoiser(
        layout=quarters(("width", "height"), pairing="adjacent"),
        layers=(("transformer_num_layers", 40),),
        heads=("num_attention_heads", 16), head_dim=("attention_head_dim", 88),
        remarks=(_CROPPED,),
    ),
    "CogView4Transformer2DModel": Denoiser(
        layout=quarters(pairing="half"), layers=(("num_layers", 30),),
        heads=("num_attention_heads", 64), head_dim=("attention_head_dim", 40),
        remarks=(_RESIZED,),
    ),
    "GlmImageTransformer2DModel": Denoiser(
        layout=quarters(pairing="half"), layers=(("num_layers", 30),),
        heads=("num_attention_heads", 64), head_dim=("attention_head_dim", 40),
        remarks=(_PATCHES,),
    ),
    "HunyuanVideoTransformer3DModel": _hunyuan(("num_layers", 20), ("num_single_layers", 40)),
    "HunyuanVideoFramepackTransformer3DModel": _hunyuan(
        ("num_layers", 20), ("num_single_layers", 40),
        remarks=(_PATCHES, "frames of the packed history are turned at their mean positions"),
    ),
    "HunyuanVideo15Transformer3DModel": _hunyuan(("num_layers", 54), heads=16),
    "HunyuanImageTransformer2DModel": _hunyuan(
        ("num_layers", 20), ("num_single_layers", 40), heads=28,
        layout=listed("rope_axes_dim", (64, 64), ("height", "width"), theta=("rope_theta", 256.0)),
    ),
    "MotifVideoTransformer3DModel": _hunyuan(("num_layers", 20), ("num_single_layers", 40)),
    "JoyImageEditTransformer3DModel": _JOY,
    "JoyImageEditPlusTransformer3DModel": _JOY,
    "WanTransformer3DModel": _wan(),
    "WanVACETransformer3DModel": _wan(),
    "WanAnimateTransformer3DModel": _wan(),
    "WanAnimate2Transformer3DModel": _wan(
        heads=("num_heads", 40), head_dim=None, width=("dim", 5120),
        remarks=(_PATCHES, "the reference picture stands at an offset of its own (refer_offset_*)"),
    ),
    "SkyReelsV2Transformer3DModel": _wan(32, 16),
    "ChronoEditTransformer3DModel": _wan(
        remarks=(_PATCHES, "two frames stand at the first and last of rope_temporal_skip_len"),
    ),
    "SanaVideoTransformer3DModel": _wan(20, 20, head_dim=("attention_head_dim", 112)),
    "AnyFlowTransformer3DModel": _wan(),
    "AnyFlowFARTransformer3DModel": _wan(remarks=(_PATCHES, _FAR)),
    "HeliosTransformer3DModel": _wan(
        layout=listed("rope_dim", (44, 42, 42), _VIDEO, theta=("rope_theta", 10000.0)),
        remarks=(_PATCHES, "tables of the compressed history are means of those of its tokens"),
    ),
    "CosmosTransformer3DModel": _wan(
        28, 32, layout=sixths(pairing="half", stretched=("rope_scale", (2.0, 1.0, 1.0))),
        remarks=(
            _PATCHES, "with a frame rate, frames are counted at 24 in a second",
            "extra_pos_embed_type 'learnable' adds learned positions to the tokens as well",
        ),
    ),
    "Cosmos3OmniTransformer": Denoiser(
        layout=every_third(
            "rope_axes_dim", (24, 20, 20), theta=("rope_theta", 5000000.0), block="rope_scaling"
        ),
        layers=(("num_hidden_layers", 36),), heads=("num_attention_heads", 32),
        head_dim=("head_dim", 128), kv_heads=("num_key_value_heads", 8),
    ),
    "Ideogram4Transformer2DModel": Denoiser(
        layout=every_third("mrope_section", (24, 20, 20), theta=("rope_theta", 5000000)),
        layers=(("num_layers", 34),), heads=("num_attention_heads", 18),
        head_dim=("attention_head_dim", 256),
    ),
    "CogVideoXTransformer3DModel": _COG,
    "ConsisIDTransformer3DModel": _COG,
    "EasyAnimateTransformer3DModel": Denoiser(
        layout=eighths(), layers=(("num_layers", 48),), heads=("num_attention_heads", 48),
        head_dim=("attention_head_dim", 64), remarks=(_CROPPED,),
    ),
    "AllegroTransformer3DModel": Denoiser(
        layout=own_thirds(
            (
                ("interpolation_scale_t", 2.2),
                ("interpolation_scale_h", 2.0),
                ("interpolation_scale_w", 2.0),
            )
        ),
        layers=(("num_layers", 32),), heads=("num_attention_heads", 24),
        head_dim=("attention_head_dim", 96), remarks=(_CROPPED,),
    ),
    "Kandinsky5Transformer3DModel": Denoiser(
        layout=listed("axes_dims", (16, 24, 24), _VIDEO), layers=(("num_visual_blocks", 32),),
        head_dim=None, width=("model_dim", 2048), total=("axes_dims", (16, 24, 24)),
        remarks=(_PATCHES, _SCALED, "text has a rope of one axis over all lanes, base 10000"),
    ),
    "Kandinsky6Transformer3DModel": Denoiser(
        layout=listed(
            "axes_dims", (32, 48, 48), _VIDEO, scales=("scale_factor", (1.0, 2.0, 2.0))
        ),
        layers=(("num_visual_blocks", 60),), head_dim=None, width=("model_dim", 4096),
        total=("axes_dims", (32, 48, 48)),
        remarks=(_PATCHES, "text and audio have ropes of one axis over all lanes, base 10000"),
    ),
    "Kandinsky6SRTransformer3DModel": Denoiser(
        layout=listed(
            "axes_dims", (16, 24, 24), _VIDEO, scales=("scale_factor", (1.0, 2.0, 2.0))
        ),
        layers=(("num_visual_blocks", 32),), head_dim=None, width=("model_dim", 1792),
        total=("axes_dims", (16, 24, 24)), remarks=(_PATCHES,),
    ),
    "LTXVideoTransformer3DModel": Denoiser(
        layout=geometric(_VIDEO, theta=10000.0), layers=(("num_layers", 28),),
        heads=("num_attention_heads", 32), head_dim=("attention_head_dim", 64),
        remarks=(_COORDINATES,),
    ),
    "LTX2VideoTransformer3DModel": _LTX2,
    "SanaWMLTX2RefinerTransformer3DModel": _LTX2,
    "MiniMaxH3Transformer3DModel": Denoiser(
        layout=equal_ladders("rope_freq_dim", 16, theta=("rope_theta", 10000.0)),
        layers=(("num_layers", 50),), heads=("num_attention_heads", 56),
        head_dim=("attention_head_dim", 128),
    ),
    "MiniMaxMusic3Transformer1DModel": Denoiser(
        layout=one_axis(lanes=("rotary_dim", 32)), layers=(("num_layers", 36),),
        heads=("num_attention_heads", 32), head_dim=("attention_head_dim", 64),
    ),
    "StableAudioDiTModel": Denoiser(
        layout=one_axis(halved=True), layers=(("num_layers", 24),),
        heads=("num_attention_heads", 24), head_dim=("attention_head_dim", 64),
        kv_heads=("num_key_value_attention_heads", 12),
    ),
    "StableAudio3DiTModel": Denoiser(
        layout=one_axis(halved=True), layers=(("depth", 24),), heads=("num_heads", 24),
        head_dim=None, width=("embed_dim", 1536),
    ),
    "AceStepTransformer1DModel": Denoiser(
        layout=one_axis(theta=("rope_theta", 1000000.0)), layers=(("num_hidden_layers", 24),),
        heads=("num_attention_heads", 16), head_dim=("head_dim", 128),
        kv_heads=("num_key_value_heads", 8), kinds=_alternating,
        remarks=("the window reaches as far forward as back",),
    ),
    "LongCatAudioDiTTransformer": Denoiser(
        layout=one_axis(theta=100000.0), layers=(("dit_depth", 24),), heads=("dit_heads", 24),
        head_dim=None, width=("dit_dim", 1536),
    ),
    "OmniGenTransformer2DModel": Denoiser(
        layout=two_lists(), layers=(("num_layers", 32),), heads=("num_attention_heads", 32),
        head_dim=None, width=("hidden_size", 3072), kv_heads=("num_key_value_heads", 32),
    ),
}  # fmt: skip
"""Every class that turns queries and keys, by ``_class_name``."""
