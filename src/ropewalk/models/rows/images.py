"""Layouts of ropes over images and video: from a rope over the head to one of several axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...axes import MultiAxisRope, Turn
from ...axis_layouts import TIME_HEIGHT_WIDTH, axial, dealt
from ...encodings.lane_turns import LaneTurns
from ...errors import InputError
from ...rope import Rope

Values = Mapping[str, Any]


def _ladder(rope: Rope, dim: int) -> Rope:
    """The frequencies of one axis that has ``dim`` lanes."""
    return dataclasses.replace(
        rope, head_dim=dim, rotary_dim=dim, rotary_offset=0, pairing="half", direction=1
    )


def height_width(rope: Rope, _: Values) -> MultiAxisRope:
    """The first half of the planes by height, the second by width (Qwen2-VL, SAM)."""
    ladder = _ladder(rope, rope.head_dim // 2)
    return axial(ladder, head_dim=rope.head_dim, pairing=rope.pairing)


def width_height(rope: Rope, _: Values) -> MultiAxisRope:
    """Width first (Step 3.7, Inkling 2)."""
    ladder = _ladder(rope, rope.head_dim // 2)
    return axial(ladder, head_dim=rope.head_dim, pairing=rope.pairing, order=(1, 0))


def width_height_in_turn(rope: Rope, _: Values) -> MultiAxisRope:
    """Width and height from plane to plane (Kimi K2.5, MoonViT)."""
    ladder = _ladder(rope, rope.head_dim // 2)
    return axial(ladder, head_dim=rope.head_dim, order=(1, 0), mixed=True)


def rungs_dealt_out(rope: Rope, _: Values) -> MultiAxisRope:
    """Even rungs of one ladder by height, odd ones by width (Pixtral)."""
    return dealt(_ladder(rope, rope.head_dim), head_dim=rope.head_dim)


def own_halves(rope: Rope, _: Values) -> MultiAxisRope:
    """Each axis has a block of lanes, paired within itself (Gemma 4)."""
    ladder = _ladder(rope, rope.head_dim // 2)
    return axial(ladder, head_dim=rope.head_dim, blocks=2)


def thirds(rope: Rope, _: Values) -> MultiAxisRope:
    """Time, height and width have 2 (d // 6) lanes each; the rest stands (MiniMax M3)."""
    ladder = _ladder(rope, 2 * (rope.head_dim // 3 // 2))
    return axial(ladder, head_dim=rope.head_dim, axes=TIME_HEIGHT_WIDTH)


def x_then_y(rope: Rope, _: Values) -> MultiAxisRope:
    """Columns, then rows, counted from 1; the class token has angle 0 (Llama 4)."""
    ladder = _ladder(rope, rope.head_dim // 2)
    return axial(ladder, head_dim=rope.head_dim, axes=("width", "height"), pairing="adjacent")


def coordinates(rope: Rope, _: Values) -> MultiAxisRope:
    """Patch centres in [-1, 1], times 2π; ``theta^(-4i/d)`` (DINOv3)."""
    ladder = _ladder(rope, rope.head_dim // 2)
    return axial(ladder, head_dim=rope.head_dim, unit="turn")


def rows_and_columns_in_turn(rope: Rope, _: Values) -> MultiAxisRope:
    """Over the whole hidden state: rows and columns from plane to plane (EfficientLoFTR)."""
    ladder = _ladder(rope, rope.head_dim // 2)
    return axial(
        ladder, head_dim=rope.head_dim, axes=("row", "column"), mixed=True, pairing="adjacent"
    )


def atoms(rope: Rope, values: Values) -> MultiAxisRope:
    """ESMFold2: a ladder for x, y and z each, and one for the number of the residue."""
    spatial = _count(values, "num_spatial_rope_pairs_per_axis", 2)
    residue = _count(values, "num_uid_rope_pairs", 10)
    bases = [values.get(key) for key in ("spatial_rope_base_frequency", "uid_rope_base_frequency")]
    planes = rope.head_dim // 2
    if 3 * spatial + residue > planes:
        raise InputError(
            "num_uid_rope_pairs",
            found=f"3 x {spatial} + {residue} planes",
            expected=f"at most the {planes} planes of a head",
            fix="correct one of the counts",
        )
    ladders = tuple(
        Rope(head_dim=2 * count, theta=default if base is None else base)
        for count, base, default in zip((spatial, residue), bases, (20.0, 10000.0), strict=True)
    )
    turns = [Turn(axis, rung) for axis in range(3) for rung in range(spatial)]
    turns += [Turn(3, rung, 1) for rung in range(residue)]
    turns += [Turn(3, None, 1)] * (planes - len(turns))
    return MultiAxisRope(
        head_dim=rope.head_dim,
        ladders=ladders,
        planes=tuple(turns),
        axes=("x", "y", "z", "residue"),
    )


def _count(values: Values, key: str, default: int) -> int:
    found = values.get(key, default)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise InputError(
            key, found=repr(found), expected="a whole number above 0", fix="correct the value"
        )
    return found


def window_and_time(rope: Rope, _: Values) -> MultiAxisRope:
    """Music Flamingo: the planes of the window's number, then those of the time within it.

    The position on either axis is itself multiplied with -2π times the time stamp, see
    `ropewalk.encodings.rotary_time`.
    """
    ladder = _ladder(rope, rope.rotary_dim)
    return axial(ladder, head_dim=rope.head_dim, axes=("window", "time"), pairing="adjacent")


def tiled_thirds(rope: Rope, _: Values) -> LaneTurns:
    """V-JEPA 2: adjacent lanes are paired, but the table is tiled, so partners differ."""
    size = 2 * (rope.head_dim // 3 // 2)
    if size < 2:
        raise InputError(
            "head_dim",
            found=str(rope.head_dim),
            expected="at least 6 lanes, two for each axis",
            fix="check hidden_size and num_attention_heads",
        )
    rungs = size // 2
    return LaneTurns(
        head_dim=rope.head_dim,
        ladders=(_ladder(rope, size),),
        lanes=tuple(Turn(axis, lane % rungs) for axis in range(3) for lane in range(size)),
        axes=TIME_HEIGHT_WIDTH,
        pairing="adjacent",
        blocks=3,
        reason="the table is tiled while adjacent lanes are paired, so the two lanes of a plane "
        "turn by different angles",
    )


def embed_dim(values: Values) -> Values:
    """Qwen2-VL's vision tower: its own width is ``embed_dim``; ``hidden_size`` is the text's."""
    return {**values, "hidden_size": values.get("embed_dim", 1280)}


def memory_attention(values: Values) -> Values:
    """SAM 2 and its kin: heads of the memory attention."""
    wide = values.get("memory_attention_hidden_size", 256)
    down = values.get("memory_attention_downsample_rate", 1)
    heads = values.get("memory_attention_num_attention_heads", 1)
    made = {
        "hidden_size": wide,
        "num_attention_heads": heads,
        "num_hidden_layers": values.get("memory_attention_num_layers"),
        "rope_theta": values.get("memory_attention_rope_theta"),
        "rope_parameters": values.get("rope_parameters"),
    }
    if type(wide) is type(down) is type(heads) is int and down > 0 and heads > 0:
        made["head_dim"] = wide // (down * heads)
    return made


def whole_hidden_state(values: Values) -> Values:
    """EfficientLoFTR rotates hidden states before they are split into heads."""
    wide = values.get("hidden_size", 256)
    kept = {key: v for key, v in values.items() if key != "partial_rotary_factor"}
    block = kept.get("rope_parameters")
    if isinstance(block, Mapping):
        kept["rope_parameters"] = {k: v for k, v in block.items() if k != "partial_rotary_factor"}
    kept.pop("num_key_value_heads", None)
    return {**kept, "head_dim": wide, "num_attention_heads": 1}
