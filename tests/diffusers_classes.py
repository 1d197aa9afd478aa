"""The real classes of diffusers: each one's rotation of known lanes at known positions.

``python tests/diffusers_classes.py`` writes ``diffusers_rotations.json``, with which the tests
compare where diffusers is not installed. Models are built small, from their own defaults where
these say what the rope is.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

STORED = Path(__file__).with_name("diffusers_rotations.json")
Real = tuple[Any, Callable[[Tensor], Tensor]]
"""Positions (axes, tokens), and the class's own rotation of (1, heads, tokens, lanes)."""


@dataclass(frozen=True)
class Case:
    """A class, the config that the model is built from, and how its rotation is reached."""

    config: dict[str, Any]
    real: Callable[[Any], Real]


def module(name: str) -> Any:
    return importlib.import_module(f"diffusers.models.transformers.{name}")


def lanes(tokens: int, width: int) -> np.ndarray[Any, Any]:
    """Numbers that float32 holds exactly, (tokens, width)."""
    at, lane = np.arange(tokens)[:, None], np.arange(width)[None]
    return (((7 * lane + 13 * at + lane // 16) % 17 - 8) / 8).astype(np.float32)


def grid(*sizes: int) -> np.ndarray[Any, Any]:
    """Positions of a grid, the last axis fastest, (axes, tokens)."""
    return np.stack([a.ravel() for a in np.meshgrid(*map(np.arange, sizes), indexing="ij")])


IDS = np.array([[0, 3, 1], [2, 5, 4], [1, 7, 9], [6, 2, 0]])


def pairs(cos: Tensor, sin: Tensor) -> Callable[[Tensor], Tensor]:
    from diffusers.models.embeddings import apply_rotary_emb

    return lambda x: apply_rotary_emb(x, (cos, sin), use_real_unbind_dim=-1)


def halves(cos: Tensor, sin: Tensor) -> Callable[[Tensor], Tensor]:
    from diffusers.models.embeddings import apply_rotary_emb

    return lambda x: apply_rotary_emb(x, (cos, sin), use_real_unbind_dim=-2)


def captured(name: str, attention: Any, **arguments: Any) -> Callable[[Tensor], Tensor]:
    """Run a model's own attention with projections that change nothing; return its queries."""

    def apply(x: Tensor) -> Tensor:
        code = module(name)
        wide = attention.to_q.weight.shape[0]
        for part in ("to_q", "to_k", "to_v"):
            layer = getattr(attention, part)
            nn.init.eye_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        attention.norm_q = attention.norm_k = nn.Identity()
        seen: list[Tensor] = []

        def record(query: Tensor, *_: Any, **__: Any) -> Tensor:
            seen.append(query)
            return torch.zeros_like(query)

        old = code.dispatch_attention_fn
        code.dispatch_attention_fn = record
        try:
            heads = wide // x.shape[-1]
            attention(x.transpose(1, 2).repeat(1, 1, heads, 1).flatten(2), **arguments)
        finally:
            code.dispatch_attention_fn = old
        return seen[0].transpose(1, 2)[:, :1]

    return apply


def by_ids(axes: int, attribute: str = "pos_embed") -> Callable[[Any], Real]:
    def real(model: Any) -> Real:
        ids = IDS[:axes]
        return ids, pairs(*getattr(model, attribute)(torch.from_numpy(ids.T)))

    return real


def by_video(model: Any) -> Real:
    ones = (model.config.patch_size_t, model.config.patch_size, model.config.patch_size)
    shape = [n * p for n, p in zip((2, 3, 4), ones, strict=True)]
    return grid(2, 3, 4), pairs(*model.rope(torch.zeros(1, 1, *shape)))


def wan(name: str) -> Callable[[Any], Real]:
    def real(model: Any) -> Real:
        shape = [n * p for n, p in zip((3, 3, 4), model.config.patch_size, strict=True)]
        cos, sin = model.rope(torch.zeros(1, 1, *shape))
        attention = model.blocks[0].attn1
        return grid(3, 3, 4), captured(name, attention, rotary_emb=(cos, sin))

    return real


def anyflow(name: str) -> Callable[[Any], Real]:
    def real(model: Any) -> Real:
        freqs = model.rope._forward_full_frame(2, 3, 4, torch.device("cpu")).flatten(0, 2)
        return grid(2, 3, 4), lambda x: module(name).apply_rotary_emb(x, freqs[None, None])

    return real


def helios(model: Any) -> Real:
    table = model.rope(torch.tensor([[0, 5]]), 3, 4, torch.device("cpu"))
    table = table.flatten(2).transpose(1, 2)
    apply = module("transformer_helios").apply_rotary_emb_transposed
    at = grid(2, 3, 4)
    return np.stack([at[0] * 5, at[1], at[2]]), lambda x: apply(x.transpose(1, 2), table).transpose(
        1, 2
    )


def cosmos(model: Any) -> Real:
    shape = [n * p for n, p in zip((2, 3, 4), model.config.patch_size, strict=True)]
    return grid(2, 3, 4), halves(*model.rope(torch.zeros(1, 1, *shape)))


def cogview(model: Any) -> Real:
    size = model.config.patch_size
    cos, sin = model.rope(torch.zeros(1, 1, 3 * size, 4 * size))
    rows = getattr(model.config, "rope_axes_dim", None) or (3, 4)
    at = grid(3, 4)
    return np.stack([at[0] * rows[0] // 3, at[1] * rows[1] // 4]), halves(cos, sin)


def cogvideo(model: Any) -> Real:
    from diffusers.models.embeddings import get_3d_rotary_pos_embed

    size = model.config.attention_head_dim
    tables = get_3d_rotary_pos_embed(size, ((0, 0), (3, 4)), (3, 4), 2)
    return grid(2, 3, 4), pairs(*tables)


def easyanimate(model: Any) -> Real:
    # The grid of training, 90 x 60 pixels of the latent: then nothing is stretched.
    return grid(2, 30, 45), pairs(*model.rope_embedding(torch.zeros(1, 1, 2, 60, 90)))


def allegro(model: Any) -> Real:
    from diffusers.models.embeddings import (
        apply_rotary_emb_allegro,
        get_3d_rotary_pos_embed_allegro,
    )

    scales = tuple(getattr(model.config, f"interpolation_scale_{axis}") for axis in "thw")
    made = get_3d_rotary_pos_embed_allegro(
        model.config.attention_head_dim, ((0, 0), (3, 4)), (3, 4), 2, scales
    )
    at = grid(2, 3, 4)
    places = [torch.from_numpy(row)[None] for row in at]
    return at, lambda x: apply_rotary_emb_allegro(x, made[:3], places)


def hunyuan_dit(model: Any) -> Real:
    from diffusers.models.embeddings import get_2d_rotary_pos_embed

    size = model.config.attention_head_dim
    cos, sin = get_2d_rotary_pos_embed(size, ((0, 0), (3, 4)), (3, 4))
    return grid(3, 4)[::-1].copy(), pairs(cos, sin)


def lumina_next(model: Any) -> Real:
    from diffusers.models.embeddings import apply_rotary_emb, get_2d_rotary_pos_embed_lumina

    freqs = get_2d_rotary_pos_embed_lumina(model.head_dim, 3, 4).flatten(0, 1)[None]
    return grid(3, 4), lambda x: apply_rotary_emb(
        x.transpose(1, 2), freqs, use_real=False
    ).transpose(1, 2)


def lumina2(model: Any) -> Real:
    from diffusers.models.embeddings import apply_rotary_emb

    freqs = model.rope_embedder._get_freqs_cis(torch.from_numpy(IDS.T[None, :, :3].copy()))
    return IDS[:3], lambda x: apply_rotary_emb(x.transpose(1, 2), freqs, use_real=False).transpose(
        1, 2
    )


def z_image(name: str, at: Callable[[Any], Any]) -> Callable[[Any], Real]:
    def real(model: Any) -> Real:
        freqs = model.rope_embedder(torch.from_numpy(IDS[:3].T.copy()))[None]
        return IDS[:3], captured(name, at(model), freqs_cis=freqs)

    return real


def ernie(model: Any) -> Real:
    table = model.pos_embed(torch.from_numpy(IDS[:3].T[None].astype(np.float32)))
    attention = model.layers[0].self_attention
    return IDS[:3], captured("transformer_ernie_image", attention, image_rotary_emb=table)


def qwen(name: str, apply: str) -> Callable[[Any], Real]:
    def real(model: Any) -> Real:
        table, _ = model.pos_embed([[(1, 3, 4)]], max_txt_seq_len=2, device=torch.device("cpu"))
        at = grid(1, 3, 4)
        centred = np.stack([at[0], at[1] - 2, at[2] - 2])
        turn = getattr(module(name), apply)
        return centred, lambda x: turn(x.transpose(1, 2), table, use_real=False).transpose(1, 2)

    return real


def qwen21(model: Any) -> Real:
    mask = torch.tensor([False, False, *[True] * 12, False])
    table = model.pos_embed([(1, 3, 4)], mask, torch.device("cpu"))
    at = grid(1, 3, 4)
    picture = np.stack([at[0] + 2, at[1] - 2, at[2] - 2])
    text = np.array([[0, 1], [0, 1], [0, 1]])
    turn = module("transformer_qwenimage21").apply_rotary_emb_qwen
    where = np.concatenate([text, picture, np.full((3, 1), 6)], axis=1)
    return where, lambda x: turn(x.transpose(1, 2), table, use_real=False).transpose(1, 2)


def matrices(name: str, apply: str, attribute: str) -> Callable[[Any], Real]:
    """HiDream and PRX: tables of 2 x 2 matrices."""

    def real(model: Any) -> Real:
        axes = len(getattr(model, attribute).axes_dim)
        table = getattr(model, attribute)(torch.from_numpy(IDS[:axes].T[None].copy()))
        turn = getattr(module(name), apply)
        if name == "transformer_prx":
            return IDS[:axes], lambda x: turn(x, table)

        def both(x: Tensor) -> Tensor:
            turned: Tensor = turn(x.transpose(1, 2), x.transpose(1, 2), table)[0]
            return turned.transpose(1, 2)

        return IDS[:axes], both

    return real


def kandinsky5(model: Any) -> Real:
    at = [torch.arange(n) for n in (2, 3, 4)]
    table = model.visual_rope_embeddings((1, 2, 3, 4), at).flatten(1, 3)

    def apply(x: Tensor) -> Tensor:
        # Kandinsky5AttnProcessor's own lines, which no function holds.
        split = x.transpose(1, 2).reshape(1, x.shape[2], x.shape[1], -1, 1, 2)
        return (table * split).sum(dim=-1).flatten(3).transpose(1, 2)

    return grid(2, 3, 4), apply


def kandinsky6(name: str, scale: Callable[[Any], Any]) -> Callable[[Any], Real]:
    def real(model: Any) -> Real:
        at = tuple(torch.arange(n) for n in (2, 3, 4))
        table = model.visual_rope_embeddings(at, scale(model)).flatten(0, 2)
        turn = module(name).apply_rotary
        return grid(2, 3, 4), lambda x: turn(x.transpose(1, 2), table).transpose(1, 2)

    return real


def joy(model: Any) -> Real:
    table, _ = model.get_rotary_pos_embed([2, 3, 4])
    turn = module("transformer_joyimage")._apply_rotary_emb
    return grid(2, 3, 4), lambda x: turn(x.transpose(1, 2), x.transpose(1, 2), table)[0].transpose(
        1, 2
    )


def joy_plus(model: Any) -> Real:
    table = model._get_rotary_pos_embed_for_range((0, 0, 0), (2, 3, 4))
    table = tuple(part[None] for part in table)
    turn = module("transformer_joyimage_edit_plus")._apply_rotary_emb_batched
    return grid(2, 3, 4), lambda x: turn(x.transpose(1, 2), x.transpose(1, 2), table)[0].transpose(
        1, 2
    )


def wan_animate2(model: Any) -> Real:
    freqs = model._rope_freqs((0, 0, 0), torch.device("cpu"))
    turn = module("transformer_wan_animate_2").rope_apply
    sizes = torch.tensor([[2, 3, 4]])
    return grid(2, 3, 4), lambda x: turn(x.transpose(1, 2), sizes, freqs).transpose(1, 2)


def mrope(model: Any) -> Real:
    ids = torch.from_numpy(IDS[:3].copy())
    if type(model).__name__.startswith("Ideogram"):
        cos, sin = model.rotary_emb(ids.T[None])
    else:
        cos, sin = model.rotary_emb(ids[:, None], torch.device("cpu"), torch.float32)
    return IDS[:3], halves(cos[0], sin[0])


def minimax_h3(model: Any) -> Real:
    cos, sin = model.rope(torch.from_numpy(IDS[:3].T.copy()))
    turn = module("transformer_minimax_h3")._apply_rotary_emb
    return IDS[:3], lambda x: turn(x.transpose(1, 2), cos, sin).transpose(1, 2)


def ltx(model: Any) -> Real:
    scale = (20 / 8, 2048 / 8, 2048 / 8)
    cos, sin = model.rope(torch.zeros(1, 1), 2, 3, 4, rope_interpolation_scale=scale)
    turn = module("transformer_ltx").apply_rotary_emb
    at = (2 * grid(2, 3, 4) / 8 - 1) * 10000 * np.pi / 2
    return at, lambda x: turn(x[:, 0], (cos, sin))[:, None]


def ltx2(name: str, stream: str = "rope") -> Callable[[Any], Real]:
    def real(model: Any) -> Real:
        rope = getattr(model, stream)
        at = grid(*(2, 3, 4)[: 3 if rope.modality == "video" else 1]).astype(np.float32)
        sizes = (rope.base_num_frames, rope.base_height, rope.base_width)
        coordinates = np.stack([row * size / 8 for row, size in zip(at, sizes, strict=False)])
        cos, sin = rope(torch.from_numpy(coordinates.astype(np.float32))[None])
        turn = getattr(module(name), f"apply_{rope.rope_type}_rotary_emb")
        where = (2 * at.astype(np.float64) / 8 - 1) * rope.theta * np.pi / 2
        return where, lambda x: turn(x[:, 0], (cos, sin))[:, None]

    return real


LINE = np.arange(5)[None]


def stable_audio(model: Any) -> Real:
    from diffusers.models.attention_processor import StableAudioAttnProcessor2_0
    from diffusers.models.embeddings import get_1d_rotary_pos_embed

    tables = get_1d_rotary_pos_embed(
        model.config.attention_head_dim // 2, 5, use_real=True, repeat_interleave_real=False
    )
    turn = StableAudioAttnProcessor2_0.apply_partial_rotary_emb
    return LINE, lambda x: turn(None, x, tables)


def stable_audio3(model: Any) -> Real:
    table = model.rotary_pos_emb(5, torch.device("cpu"))
    turn = module("transformer_stable_audio3")._apply_rotary_partial
    return LINE, lambda x: turn(x.transpose(1, 2), table).transpose(1, 2)


def music3(model: Any) -> Real:
    table = model.rotary_emb(5, torch.device("cpu"))
    turn = module("transformer_minimax_music3")._apply_partial_rotary_emb
    return LINE, lambda x: turn(x.transpose(1, 2), table).transpose(1, 2)


def ace_step(model: Any) -> Real:
    freqs = module("ace_step_transformer")._ace_step_rotary_freqs
    return LINE, halves(
        *freqs(5, model.head_dim, model.rope_theta, torch.device("cpu"), torch.float32)
    )


def longcat_audio(model: Any) -> Real:
    table = model.rotary_embed(torch.zeros(1, 5))
    turn = module("transformer_longcat_audio_dit")._apply_rotary_emb
    return LINE, lambda x: turn(x.transpose(1, 2), table).transpose(1, 2)


def omnigen(model: Any) -> Real:
    at = np.array([[0, 1, 2, 8]])
    return at, halves(*model.rope(torch.zeros(1), torch.from_numpy(at)))


TWO = {"num_layers": 1, "num_attention_heads": 2}
FLUX = {**TWO, "num_single_layers": 1, "joint_attention_dim": 64}
HUNYUAN = {**TWO, "num_single_layers": 1, "num_refiner_layers": 1, "text_embed_dim": 64}
WAN = {**TWO, "text_dim": 64, "ffn_dim": 64}
LTX2 = {
    **TWO, "attention_head_dim": 44, "audio_num_attention_heads": 2, "audio_attention_head_dim": 22,
    "cross_attention_dim": 88, "audio_cross_attention_dim": 44, "caption_channels": 64,
}  # fmt: skip
FACTORS = {
    "short_factor": [1.0 + i / 8 for i in range(8)],
    "long_factor": [2.0 + i / 4 for i in range(8)],
}

CASES: dict[str, Case] = {
    "FluxTransformer2DModel": Case(FLUX, by_ids(3)),
    "FluxControlNetModel": Case(FLUX, by_ids(3)),
    "ChromaTransformer2DModel": Case(
        {**FLUX, "approximator_hidden_dim": 64, "approximator_layers": 1}, by_ids(3)
    ),
    "LongCatImageTransformer2DModel": Case(FLUX, by_ids(3)),
    "OvisImageTransformer2DModel": Case(FLUX, by_ids(3)),
    "BriaTransformer2DModel": Case({**FLUX, "rope_theta": 500}, by_ids(3)),
    "BriaFiboTransformer2DModel": Case({**FLUX, "axes_dims_rope": [32, 48, 48]}, by_ids(3)),
    "Flux2Transformer2DModel": Case(FLUX, by_ids(4)),
    "Flux3Transformer2DModel": Case(FLUX, by_ids(4)),
    "HiDreamImageTransformer2DModel": Case(
        {**TWO, "num_single_layers": 1, "attention_head_dim": 64, "axes_dims_rope": [32, 16, 16],
         "patch_size": 2, "caption_channels": [64, 64], "llama_layers": [0]},
        matrices("transformer_hidream_image", "apply_rope", "pe_embedder"),
    ),
    "Krea2Transformer2DModel": Case(
        {**TWO, "num_key_value_heads": 1, "intermediate_size": 64, "text_hidden_dim": 64,
         "text_num_attention_heads": 2, "text_num_key_value_heads": 2,
         "text_intermediate_size": 64, "num_layerwise_text_blocks": 1,
         "num_refiner_text_blocks": 1},
        by_ids(3, "rotary_emb"),
    ),
    "PRXTransformer2DModel": Case(
        {"depth": 1, "num_heads": 2, "hidden_size": 128},
        matrices("transformer_prx", "apply_rope", "pe_embedder"),
    ),
    "QwenImageTransformer2DModel": Case(
        {**TWO, "joint_attention_dim": 64}, qwen("transformer_qwenimage", "apply_rotary_emb_qwen")
    ),
    "QwenImageControlNetModel": Case(
        {**TWO, "joint_attention_dim": 64}, qwen("transformer_qwenimage", "apply_rotary_emb_qwen")
    ),
    "NucleusMoEImageTransformer2DModel": Case(
        {**TWO, "joint_attention_dim": 64, "num_experts": 2, "moe_enabled": False},
        qwen("transformer_nucleusmoe_image", "_apply_rotary_emb_nucleus"),
    ),
    "QwenImage21Transformer2DModel": Case({**TWO, "context_in_dim": 64}, qwen21),
    "Lumina2Transformer2DModel": Case(
        {"num_layers": 1, "num_attention_heads": 2, "num_kv_heads": 1, "hidden_size": 192,
         "num_refiner_layers": 1, "cap_feat_dim": 64},
        lumina2,
    ),
    "ZImageTransformer2DModel": Case(
        {"n_layers": 1, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2, "dim": 256,
         "cap_feat_dim": 64},
        z_image("transformer_z_image", lambda model: model.layers[0].attention),
    ),
    "BriaFibo2Transformer2DModel": Case(
        {"n_layers": 1, "n_refiner_layers": 1, "n_heads": 2, "dim": 256, "cap_feat_dim": 64,
         "perceiver_num_layers": 1, "injection_layer_ids": [0]},
        z_image("transformer_bria_fibo2", lambda model: model.layers[0].attention),
    ),
    "ErnieImageTransformer2DModel": Case(
        {"num_layers": 1, "num_attention_heads": 2, "hidden_size": 256, "ffn_hidden_size": 64,
         "text_in_dim": 64},
        ernie,
    ),
    "LuminaNextDiT2DModel": Case(
        {"num_layers": 1, "num_attention_heads": 2, "num_kv_heads": 1, "hidden_size": 144,
         "cross_attention_dim": 64},
        lumina_next,
    ),
    "HunyuanDiT2DModel": Case(
        {**TWO, "in_channels": 4, "patch_size": 2, "hidden_size": 176, "cross_attention_dim": 64,
         "cross_attention_dim_t5": 64, "num_layers": 2},
        hunyuan_dit,
    ),
    "HunyuanDiT2DControlNetModel": Case(
        {"transformer_num_layers": 4, "num_attention_heads": 2, "in_channels": 4, "patch_size": 2,
         "hidden_size": 176, "cross_attention_dim": 64, "cross_attention_dim_t5": 64},
        hunyuan_dit,
    ),
    "CogView4Transformer2DModel": Case({**TWO, "text_embed_dim": 64}, cogview),
    "GlmImageTransformer2DModel": Case({**TWO, "text_embed_dim": 64}, cogview),
    "HunyuanVideoTransformer3DModel": Case(HUNYUAN, by_video),
    "HunyuanVideo15Transformer3DModel": Case(
        {**TWO, "num_refiner_layers": 1, "text_embed_dim": 64, "image_embed_dim": 64}, by_video
    ),
    "HunyuanImageTransformer2DModel": Case(
        {**HUNYUAN},
        lambda model: (grid(3, 4), pairs(*model.rope(torch.zeros(1, 1, 3, 4)))),
    ),
    "HunyuanVideoFramepackTransformer3DModel": Case(
        HUNYUAN,
        lambda model: (
            grid(2, 3, 4), pairs(*model.rope(torch.arange(2), 6, 8, torch.device("cpu")))
        ),
    ),
    "MotifVideoTransformer3DModel": Case(
        {**TWO, "num_single_layers": 1, "text_embed_dim": 64}, by_video
    ),
    "JoyImageEditTransformer3DModel": Case(
        {"num_layers": 1, "num_attention_heads": 2, "hidden_size": 256, "text_dim": 64}, joy
    ),
    "JoyImageEditPlusTransformer3DModel": Case(
        {"num_layers": 1, "num_attention_heads": 2, "hidden_size": 256, "text_dim": 64}, joy_plus
    ),
    "WanTransformer3DModel": Case(WAN, wan("transformer_wan")),
    "WanVACETransformer3DModel": Case({**WAN, "vace_layers": [0]}, wan("transformer_wan")),
    "WanAnimateTransformer3DModel": Case(WAN, wan("transformer_wan_animate")),
    "SanaVideoTransformer3DModel": Case(
        {**TWO, "cross_attention_dim": 224, "caption_channels": 64},
        lambda model: (
            grid(2, 3, 4), pairs(*(t[0, :, 0] for t in model.rope(torch.zeros(1, 1, 2, 6, 8))))
        ),
    ),
    "WanAnimate2Transformer3DModel": Case(
        {"num_layers": 1, "num_heads": 2, "dim": 256, "ffn_dim": 64, "text_dim": 64}, wan_animate2
    ),
    "SkyReelsV2Transformer3DModel": Case(WAN, wan("transformer_skyreels_v2")),
    "ChronoEditTransformer3DModel": Case(WAN, wan("transformer_chronoedit")),
    "AnyFlowTransformer3DModel": Case(WAN, anyflow("transformer_anyflow")),
    "AnyFlowFARTransformer3DModel": Case(WAN, anyflow("transformer_anyflow_far")),
    "HeliosTransformer3DModel": Case(WAN, helios),
    "CosmosTransformer3DModel": Case({**TWO, "text_embed_dim": 64}, cosmos),
    "Cosmos3OmniTransformer": Case(
        {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
         "hidden_size": 64, "intermediate_size": 64, "vocab_size": 64},
        mrope,
    ),
    "Ideogram4Transformer2DModel": Case(
        {**TWO, "intermediate_size": 64, "llm_features_dim": 64}, mrope
    ),
    "CogVideoXTransformer3DModel": Case(
        {**TWO, "text_embed_dim": 64, "use_rotary_positional_embeddings": True}, cogvideo
    ),
    "ConsisIDTransformer3DModel": Case(
        {**TWO, "text_embed_dim": 64, "use_rotary_positional_embeddings": True}, cogvideo
    ),
    "EasyAnimateTransformer3DModel": Case(
        {**TWO, "mmdit_layers": 1, "in_channels": 4, "out_channels": 4, "patch_size": 2,
         "text_embed_dim": 64},
        easyanimate,
    ),
    "AllegroTransformer3DModel": Case(
        {**TWO, "cross_attention_dim": 192, "caption_channels": 64}, allegro
    ),
    "Kandinsky5Transformer3DModel": Case(
        {"num_text_blocks": 1, "num_visual_blocks": 1, "model_dim": 128, "ff_dim": 64,
         "in_text_dim": 64},
        kandinsky5,
    ),
    "Kandinsky6Transformer3DModel": Case(
        {"num_text_blocks": 1, "num_visual_blocks": 1, "model_dim": 256, "ff_dim": 64,
         "in_text_dim": 64, "time_dim": 64},
        kandinsky6("transformer_kandinsky6", lambda model: model.scale_factor),
    ),
    "Kandinsky6SRTransformer3DModel": Case(
        {"num_visual_blocks": 1, "model_dim": 128, "ff_dim": 64},
        kandinsky6("transformer_kandinsky6_sr", lambda model: model.config.scale_factor),
    ),
    "LTXVideoTransformer3DModel": Case(
        {**TWO, "cross_attention_dim": 64, "attention_head_dim": 32, "caption_channels": 64}, ltx
    ),
    "LTX2VideoTransformer3DModel": Case(LTX2, ltx2("transformer_ltx2")),
    "SanaWMLTX2RefinerTransformer3DModel": Case(
        {**LTX2, "rope_type": "split"}, ltx2("transformer_sana_wm_refiner")
    ),
    "MiniMaxH3Transformer3DModel": Case(
        {**TWO, "hidden_size": 256, "num_refiner_layers": 1, "ffn_dim": 64, "text_dim": 64,
         "time_embed_hidden_dim": 64, "time_embed_dim": 64},
        minimax_h3,
    ),
    "MiniMaxMusic3Transformer1DModel": Case(
        {**TWO, "condition_dim": 64, "ff_inner_dim": 64}, music3
    ),
    "StableAudioDiTModel": Case(
        {**TWO, "num_key_value_attention_heads": 1, "cross_attention_dim": 64,
         "global_states_input_dim": 64, "cross_attention_input_dim": 64},
        stable_audio,
    ),
    "StableAudio3DiTModel": Case(
        {"depth": 1, "num_heads": 2, "embed_dim": 128, "cond_token_dim": 64,
         "global_cond_dim": 64},
        stable_audio3,
    ),
    "AceStepTransformer1DModel": Case(
        {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
         "hidden_size": 64, "intermediate_size": 64},
        ace_step,
    ),
    "LongCatAudioDiTTransformer": Case(
        {"dit_depth": 1, "dit_heads": 2, "dit_dim": 128, "dit_text_dim": 64}, longcat_audio
    ),
    "OmniGenTransformer2DModel": Case(
        {"num_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 32,
         "intermediate_size": 64, "vocab_size": 64, "pad_token_id": 0, "rope_scaling": FACTORS,
         "original_max_position_embeddings": 16, "max_position_embeddings": 64},
        omnigen,
    ),
}  # fmt: skip


def built(name: str) -> Any:
    """Return the real model of a case."""
    import diffusers

    return getattr(diffusers, name)(**CASES[name].config)


def rotated(name: str, width: int, model: Any = None) -> tuple[Any, Any]:
    """Return two positions, (axes, 2), and the lanes `lanes` turned to them, (2, width)."""
    with torch.no_grad():
        where, apply = CASES[name].real(built(name) if model is None else model)
        x = torch.from_numpy(lanes(where.shape[1], width))[None, None]
        out = apply(x)[0, 0].numpy()
    # The last tokens: none of their positions is 0 where the axes are long enough.
    return where[:, -2:], out[-2:]


def write() -> None:
    """Write what the real classes compute."""
    from ropewalk.models.diffusers import read_diffusers

    stored: dict[str, Any] = {}
    for name, case in CASES.items():
        layer = read_diffusers({"_class_name": name, **case.config}, "config.json").layers[0]
        width = (layer.axes or layer.rope).head_dim
        where, out = rotated(name, width)
        stored[name] = {
            "tokens": int(CASES[name].real(built(name))[0].shape[1]),
            "positions": where.tolist(),
            "rotated": [[float(f"{v:.8g}") for v in row] for row in out.tolist()],
        }
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in stored.items()]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
