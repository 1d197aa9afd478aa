"""Vision transformers of timm with a rope, by ``architecture``: what their builders fill in.

Read from timm 1.0.31 (``models/eva.py`` and its kin); ``model_args`` of a config replace any of
these values. An architecture that is not here is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Vit:
    """One architecture.

    Attributes:
        width: lanes of all heads, ``embed_dim``.
        depth: layers.
        heads: heads, ``num_heads``.
        rest: other arguments, under timm's own names.
    """

    width: int
    depth: int
    heads: int
    rest: Mapping[str, Any] = field(default_factory=dict)


def _eva(patch: int, image: int, reference: int, **rest: Any) -> dict[str, Any]:
    """Arguments of an EVA-02 or a Perception Encoder: positions on a grid of reference."""
    return {
        "rope_type": "cat",
        "patch_size": patch,
        "img_size": image,
        "ref_feat_shape": reference,
        **rest,
    }


def _pe(patch: int, image: int, reference: int, offset: float = 1.0) -> dict[str, Any]:
    return _eva(patch, image, reference, rope_grid_offset=offset, rope_grid_indexing="xy")


_DINO: dict[str, Any] = {"rope_type": "dinov3", "rope_temperature": 100.0, "rope_rotate_half": True}
_AXIAL: dict[str, Any] = {"rope_type": "cat", "rope_temperature": 100.0, "rope_grid_indexing": "xy"}
_MIXED: dict[str, Any] = {"rope_type": "mixed", "rope_grid_indexing": "xy"}
_HALVES = {"rope_type": "cat", "rope_rotate_half": True}
_GEMMA = {"rope_type": "blocks", "rope_theta": 100.0}
_NAFLEX = {"rope_type": ""}
_SIZES = {
    "tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16),
    "huge_plus": (1280, 32, 20), "7b": (4096, 40, 32), "gigantic": (1536, 50, 16),
}  # fmt: skip

VITS: dict[str, Vit] = {
    **{
        f"eva02_{size}_patch14_{image}": Vit(*_SIZES[size], _eva(14, image, 16))
        for size, images in {
            "tiny": (224, 336), "small": (224, 336), "base": (224, 448), "large": (224, 448),
        }.items()
        for image in images
    },
    "eva02_base_patch16_clip_224": Vit(768, 12, 12, _eva(16, 224, 16)),
    "eva02_large_patch14_clip_224": Vit(1024, 24, 16, _eva(14, 224, 16)),
    "eva02_large_patch14_clip_336": Vit(1024, 24, 16, _eva(14, 336, 16)),
    "vit_medium_patch16_rope_reg1_gap_256": Vit(512, 12, 8, _eva(16, 256, 16)),
    "vit_mediumd_patch16_rope_reg1_gap_256": Vit(512, 20, 8, _eva(16, 256, 16)),
    "vit_betwixt_patch16_rope_reg4_gap_256": Vit(640, 12, 10, _eva(16, 256, 16)),
    "vit_base_patch16_rope_reg1_gap_256": Vit(768, 12, 12, _eva(16, 256, 16)),
    "vit_pe_core_tiny_patch16_384": Vit(192, 12, 3, _pe(16, 384, 24)),
    "vit_pe_core_small_patch16_384": Vit(384, 12, 6, _pe(16, 384, 24)),
    "vit_pe_core_base_patch16_224": Vit(768, 12, 12, _pe(16, 224, 14)),
    "vit_pe_core_large_patch14_336": Vit(1024, 24, 16, _pe(14, 336, 24)),
    "vit_pe_core_gigantic_patch14_448": Vit(1536, 50, 16, _pe(14, 448, 32, 0.0)),
    "vit_pe_lang_large_patch14_448": Vit(1024, 23, 16, _pe(14, 448, 32)),
    "vit_pe_lang_gigantic_patch14_448": Vit(1536, 47, 16, _pe(14, 448, 32, 0.0)),
    "vit_pe_spatial_tiny_patch16_512": Vit(192, 12, 3, _pe(16, 512, 32)),
    "vit_pe_spatial_small_patch16_512": Vit(384, 12, 6, _pe(16, 512, 32)),
    "vit_pe_spatial_base_patch16_512": Vit(768, 12, 12, _pe(16, 512, 32)),
    "vit_pe_spatial_large_patch14_448": Vit(1024, 24, 16, _pe(14, 448, 32)),
    "vit_pe_spatial_gigantic_patch14_448": Vit(1536, 50, 16, _pe(14, 448, 32, 0.0)),
    **{
        f"vit_{size}_patch16_rope{kind}_224": Vit(*_SIZES[size], rest)
        for size in ("small", "base", "large")
        for kind, rest in {
            "": _AXIAL, "_ape": _AXIAL, "_mixed": _MIXED, "_mixed_ape": _MIXED,
        }.items()
    },
    **{
        f"vit_{size}_patch16_dinov3{bias}": Vit(*_SIZES[size.removesuffix("_plus")], _DINO)
        for size in ("small", "small_plus", "base", "large")
        for bias in ("", "_qkvb")
    },
    "vit_tiny_patch16_dinov3_qkvb": Vit(192, 12, 3, _DINO),
    "vit_huge_plus_patch16_dinov3": Vit(1280, 32, 20, _DINO),
    "vit_huge_plus_patch16_dinov3_qkvb": Vit(1280, 32, 20, _DINO),
    "vit_7b_patch16_dinov3": Vit(4096, 40, 32, _DINO),
    "vit_small_patch16_lingbot": Vit(384, 12, 6, _DINO),
    "vit_base_patch16_lingbot": Vit(768, 12, 12, _DINO),
    "vit_large_patch16_lingbot": Vit(1024, 24, 16, _DINO),
    "vit_giant_patch16_lingbot": Vit(1536, 40, 24, _DINO),
    "vit_base_patch16_sapiens2": Vit(768, 12, 12, _DINO),
    "vit_large_patch16_sapiens2": Vit(1024, 24, 16, _DINO),
    "vit_huge_patch16_sapiens2": Vit(1280, 32, 16, _DINO),
    "vit_giant_patch16_sapiens2": Vit(1536, 40, 24, _DINO),
    "vit_5b_patch16_sapiens2": Vit(2432, 56, 32, _DINO),
    **{
        f"qwen3_vit_{name}{suffix}": Vit(*sizes, _HALVES)
        for name, sizes in {
            "88m": (768, 12, 12), "306m": (1024, 24, 16), "416m": (1152, 27, 16),
        }.items()
        for suffix in ("", "_merge", "_enc")
    },
    "deepseek_vit_412m": Vit(1024, 32, 16, _HALVES),
    "deepseek_vit_412m_align": Vit(1024, 32, 16, _HALVES),
    "deepseek_vit_412m_enc": Vit(1024, 32, 16, _HALVES),
    **{
        f"gemma4_vit_{name}{suffix}": Vit(*sizes, _GEMMA)
        for name, sizes in {"167m": (768, 16, 12), "570m": (1152, 27, 16)}.items()
        for suffix in ("", "_enc")
    },
    # NaFlexViT has learned positions unless rope_type is among its arguments.
    **{
        f"naflexvit_{name}": Vit(*sizes, _NAFLEX)
        for name, sizes in {
            "base_patch16_gap": (768, 12, 12), "base_patch16_par_gap": (768, 12, 12),
            "base_patch16_parfac_gap": (768, 12, 12), "base_patch16_map": (768, 12, 12),
            "so150m2_patch16_reg1_gap": (832, 21, 13), "so150m2_patch16_reg1_map": (832, 21, 13),
            "base_patch16_siglip": (768, 12, 12), "so400m_patch16_siglip": (1152, 27, 16),
        }.items()
    },
}  # fmt: skip
"""Every architecture with a rope, or with one among its arguments."""
