"""Comparing the function with which a model rotates with `ropewalk.rotate`, on random q and k."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from coverage_run import MismatchError, Positions, demand, difference, lay
from rotary_classes import Built, rotating_functions

from ropewalk import Rope, rotate
from ropewalk.axes import MultiAxisRope
from ropewalk.encodings.lane_turns import LaneTurns
from ropewalk.torch.recognition import Recognised, gathered, recognise
from ropewalk.torch.rotary_tables import LAY


def function_of(built: Built, reordered: bool) -> tuple[str, Any]:
    """The apply function of a class: by its name among those of the module."""
    functions = rotating_functions(built.modeling)
    named = dict(functions)
    vision = "Vision" in built.name or "ViT" in built.name

    def pick(*words: str) -> dict[str, Any]:
        return {n: f for n, f in named.items() if any(word in n for word in words)}

    seen = pick("vision", "multidimensional")
    if vision and seen:
        named = seen
    else:
        for name in seen:
            if len(named) > 1:
                named.pop(name)
    interleaved = pick("interleave")
    if reordered and interleaved:
        named = interleaved
    else:
        for name in interleaved:
            if len(named) > 1:
                named.pop(name)
    for name in list(named):
        if name.startswith("_") and len(named) > 1:
            named.pop(name)
    name = next(iter(named), None)
    adapt = _ADAPTED.get(built.name)
    if adapt is not None:
        return adapt[0], adapt[1](built.modeling)
    demand(name is not None, "the module has no function that rotates")
    assert name is not None
    return name, named[name]


# Functions that take more, or other arguments, or are methods: brought to (q, k, cos, sin).


def _with_values(module: Any) -> Any:
    """CLVP's takes the values too, and tables of all positions with the ids of the tokens."""

    def rotates(q: Any, k: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
        ids = torch.arange(cos.shape[0])
        turned = module.apply_rotary_pos_emb(q, k, q, cos, sin, ids[None])
        demand(torch.equal(turned[2], turned[0]), "values are not rotated as queries are")
        return turned[0], turned[1]

    return rotates


def _separate_grids(module: Any) -> Any:
    """EdgeTAM's cross attention has tables of their own for keys."""

    def rotates(q: Any, k: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
        out: tuple[Any, Any] = module.apply_rotary_pos_emb_2d_cross_attn(q, k, cos, sin, cos, sin)
        return out

    return rotates


_ADAPTED: dict[str, tuple[str, Any]] = {
    "ClvpRotaryPositionalEmbedding": ("apply_rotary_pos_emb", _with_values),
    "EdgeTamVideoRoPECrossAttention": ("apply_rotary_pos_emb_2d_cross_attn", _separate_grids),
}


# Functions that fit no pattern of arguments: called with x (1, T, heads, lanes) and tables
# (T, width).


def _in_blocks(module: Any) -> Any:
    """Gemma 4's splits the lanes by the number of axes in the positions."""

    def rotates(x: Any, cos: Any, sin: Any) -> Any:
        ids = torch.zeros(1, x.shape[1], 2)
        return module.apply_multidimensional_rope(x, cos[None], sin[None], ids)

    return rotates


def _vision_complex(module: Any) -> Any:
    """Llama 4's vision tower takes (T, 1, planes) complex numbers."""

    def rotates(x: Any, freqs: Any) -> Any:
        return module.vision_apply_rotary_emb(x, x, freqs_ci=freqs[:, None])[0]

    return rotates


def _hidden_states(name: str) -> Any:
    """The conformers rotate hidden states, in a method, with both tables in one tensor."""

    def adapt(module: Any) -> Any:
        method = getattr(module, name)._apply_rotary_embedding

        def rotates(x: Any, cos: Any, sin: Any) -> Any:
            batch, time, heads, lanes = x.shape
            itself = SimpleNamespace(num_heads=heads, head_size=lanes)
            both = torch.stack([cos, sin])[:, :, None, None]
            return method(itself, x.reshape(batch, time, -1), both).view(x.shape)

        return rotates

    return adapt


_DIRECT: dict[str, Any] = {
    "Gemma4VisionRotaryEmbedding": _in_blocks,
    "Llama4VisionRotaryEmbedding": _vision_complex,
    "SeamlessM4TConformerRotaryPositionalEmbedding": _hidden_states(
        "SeamlessM4TConformerSelfAttention"
    ),
    "Wav2Vec2BertRotaryPositionalEmbedding": _hidden_states("Wav2Vec2BertSelfAttention"),
    "Wav2Vec2ConformerRotaryPositionalEmbedding": _hidden_states("Wav2Vec2ConformerSelfAttention"),
}


def rotation_of(
    built: Built, positions: Positions, layout: str, tables: tuple[Any, Any], reordered: bool
) -> str:
    """Compare the rotation of a class; return how it rotates, in words."""
    if isinstance(positions, LaneTurns):
        return _compare_lanes(built, positions, tables)
    direct = _DIRECT.get(built.name)
    if direct is None:
        _, function = function_of(built, reordered)
        return compare_rotation(positions, layout, function, tables, reordered)
    cos, sin = tables
    x = torch.randn(
        (1, cos.shape[0], 3, positions.head_dim), generator=torch.Generator().manual_seed(8)
    )
    theirs = direct(built.modeling)(x, *lay(layout, positions, cos, sin))
    if isinstance(positions, MultiAxisRope):
        mine = positions.rotate(x, cos, sin, order="time_heads")
    else:
        mine = rotate(x, cos, sin, pairing=positions.pairing, order="time_heads")
    worst = float((theirs - mine).abs().max())
    demand(worst <= _rounding(theirs), f"rotated lanes differ by {worst:g}")
    blocks = isinstance(positions, MultiAxisRope) and positions.blocks > 1
    words = f"{positions.pairing} pairing" + (", block by block" if blocks else "")
    return words + ("" if worst == 0 else ", within rounding")


def _rounding(turned: Any) -> float:
    """Two products and a sum, on either side: at most 3 roundings each.

    Of values up to twice the largest lane times the largest table entry.
    """
    return 6 * 2.0**-24 * 2 * 2 * float(turned.abs().max())


def _compare_lanes(built: Built, positions: LaneTurns, tables: tuple[Any, Any]) -> str:
    """What looks like a rotation and is none: HunYuan-VL's function."""
    cos, sin = tables
    x = torch.randn(
        (1, 3, cos.shape[0], positions.head_dim), generator=torch.Generator().manual_seed(9)
    )
    _, function = function_of(built, False)
    theirs, _ = function(x, x, cos[None], sin[None])
    worst = float((theirs - positions.apply(x, cos, sin)).abs().max())
    demand(worst <= _rounding(theirs), f"lanes differ by {worst:g}")
    same = {len({positions.lanes[i].axis for i in pair}) for pair in _pairs(positions)}
    demand(same == {1, 2} or same == {2}, "partners never follow different axes")
    return "no rotation: partners follow different axes"


def _pairs(positions: LaneTurns) -> list[tuple[int, int]]:
    half = len(positions.lanes) // 2
    return [(i, i + half) for i in range(half)]


def compare_rotation(
    positions: Rope | MultiAxisRope,
    layout: str,
    function: Any,
    tables: tuple[Any, Any],
    reordered: bool,
) -> str:
    """Demand that a function rotates as ours does; return how, in words.

    Args:
        positions: ours.
        layout: of the class's tables.
        function: the model's own.
        tables: ours in float32 at some positions, (T, planes), one value per plane.
        reordered: whether the model moves adjacent lanes to halves.
    """
    found = recognise(function)
    if isinstance(found, str):
        raise MismatchError(f"the apply function: {found}")
    demand(layout in found.turns, f"it takes tables {sorted(found.turns)}, is given {layout}")
    turn = found.turns[layout]
    pairing = "adjacent" if turn.gathers else turn.pairing
    demand(pairing == positions.pairing, f"it pairs {turn}, ours {positions.pairing}")
    demand(turn.gathers == reordered, f"it rotates {turn}")
    demand(turn.inverse == (positions.direction < 0), f"it turns {turn}")
    theirs, mine = _both(found, layout, function, positions, tables)
    worst = difference(tuple(theirs), tuple(mine))
    bound = max(_rounding(x) for x in theirs)
    demand(worst <= bound, f"rotated q and k differ by {worst:g}")
    return str(turn) + ("" if worst == 0 else ", within rounding")


def _both(
    found: Recognised, layout: str, function: Any, positions: Rope | MultiAxisRope, tables: Any
) -> tuple[list[Any], list[Any]]:
    generator = torch.Generator().manual_seed(7)
    cos, sin = tables
    (axis, x_axes, table_axes), order = next(iter(found.orders.items()))
    time, planes = cos.shape
    lanes, offset = 2 * planes, 0
    if found.place is not None and positions.head_dim > lanes:
        # The function is given whole heads and finds the rotated lanes itself.
        lanes = positions.head_dim
        offset = positions.rotary_offset
    shape = {
        ("heads_time", 4): (1, 3, time, lanes),
        ("time_heads", 4): (1, time, 3, lanes),
        ("time_heads", 3): (time, 3, lanes),
        ("heads_time", 3): (3, time, lanes),
    }[order, x_axes]
    xs = [torch.randn(shape, generator=generator) for _ in range(found.arguments.turned)]
    # The direction is in our sine; their functions turn backwards by themselves.
    given = LAY[layout](cos, sin * positions.direction)
    given = tuple(t[None] if table_axes == 3 else t for t in given)
    places: dict[int, Any] = {i: x.clone() for i, x in enumerate(xs)}
    places[found.arguments.cos], places[found.arguments.sin] = given[0], given[-1]
    options = {} if axis is None else {"unsqueeze_dim": axis}
    with torch.no_grad():
        out = function(*(places[i] for i in range(found.arguments.count)), **options)
    theirs = list(out) if isinstance(out, tuple) else [out]
    turn = found.turns[layout]
    mine = [
        rotate(
            gathered(x) if turn.gathers else x,
            cos,
            sin,
            pairing=turn.pairing,
            order=order,
            rotary_offset=offset,
        )
        for x in xs
    ]
    return theirs, mine
