"""Comparing one rotary class of transformers with what Ropewalk reads from its config.

Tables: the class is built from the config and called; ours are demanded to differ by 0 with
``precision="float32"`` and to agree in the exact mode as far as float32 goes. Rotation: the
model's own apply function on random q and k against `ropewalk.rotate`.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from rotary_classes import Built

from ropewalk import Rope
from ropewalk.axes import MultiAxisRope
from ropewalk.encodings.lane_turns import LaneTurns
from ropewalk.models import read_config
from ropewalk.torch.rotary_tables import LAY

Positions = Rope | MultiAxisRope | LaneTurns


class MismatchError(AssertionError):
    """Ours and theirs differ."""


def demand(condition: bool, text: str) -> None:
    """Raise a `MismatchError` unless the condition holds."""
    if not condition:
        raise MismatchError(text)


# What each class is called with.


def encodings_of(built: Built, config: Any) -> dict[str | None, Positions]:
    """Read the config: rope block name of the class, or None, → our positions."""
    plan = read_config(built.values(config), "config.json")
    found: dict[str | None, Positions] = {}
    by_kind = "layer_type" in inspect.signature(built.rotary.forward).parameters
    by_kind = by_kind and built.folder not in ("esm", "evolla")
    for tower in plan.towers:
        if tower.path == "":  # the rope of the outer config itself, beside the text
            return {None: tower.positions}
    for layer in plan.layers:
        positions = layer.rope if layer.axes is None else layer.axes
        if positions is None:
            continue
        name = _V4.get(layer.kind, layer.kind) if built.folder == "deepseek_v4" else layer.kind
        name = name if by_kind else None
        if name in found and found[name] != positions and name is not None:
            raise MismatchError(f"layers of kind {layer.kind} differ")
        found.setdefault(name, positions)
    demand(bool(found), "no layer has positions")
    return found


_V4 = {
    "sliding_attention": "main",
    "compressed_sparse_attention": "compress",
    "heavily_compressed_attention": "compress",
}


def float32_step(theta: float) -> float:
    """Relative error of theta^-x formed in float32.

    x = 2i/d is rounded (2^-24), which moves the power by ln(theta) of that; the power, the
    reciprocal, and up to six more operations of a scaling round once each. Blended planes are
    a difference of near equals at worst: one more factor of 4.
    """
    return 4 * 2.0**-24 * (8 + 2 * abs(math.log(theta)))


def axes_of(positions: Positions) -> int:
    """How many position axes there are; 0 for one without a name."""
    return 0 if isinstance(positions, Rope) else len(positions.axes)


def ladders_of(positions: Positions) -> tuple[Rope, ...]:
    """The ropes that frequencies come from."""
    return (positions,) if isinstance(positions, Rope) else positions.ladders


def table(positions: Positions, at: torch.Tensor, precision: str, length: int | None) -> Any:
    """Our cos and sin, one value per plane (per lane for what is no rotation)."""
    if isinstance(positions, LaneTurns):
        return positions.cos_sin(at, precision=precision)
    return positions.cos_sin(at, precision=precision, length=length)


def lay(name: str, positions: Positions, cos: Any, sin: Any) -> tuple[Any, ...]:
    """Ours in the layout of the class."""
    if isinstance(positions, LaneTurns):
        return cos, sin
    if isinstance(positions, MultiAxisRope) and positions.blocks > 1:
        size = len(positions.planes) // positions.blocks

        def by_block(t: Any) -> Any:
            return t.unflatten(-1, (-1, size)).repeat(*[1] * (t.dim() - 1), 1, 2).flatten(-2)

        return by_block(cos), by_block(sin)
    return LAY[name](cos, sin)


def compare_tables(
    positions: Positions,
    theirs: tuple[Any, ...],
    at: torch.Tensor,
    *,
    length: int | None = None,
    loose: str | None = None,
) -> str:
    """Demand equal tables; return the layout.

    Args:
        positions: ours.
        theirs: (cos, sin), or one complex tensor.
        at: positions, (T,) or (axes, T), below 2^24.
        length: length of the text, for ropes that depend on it.
        loose: layout of a class that forms its angles in another order of operations.
    """
    cos, sin = table(positions, at, "float32", length)
    # Models that turn backwards do so where they apply the tables.
    backwards = isinstance(positions, Rope) and positions.direction < 0
    sin = -sin if backwards else sin
    layouts = ("complex",) if len(theirs) == 1 else ("tiled", "repeated", "single")
    equal = []
    for name in layouts:
        mine = lay(name, positions, cos, sin)
        if mine[0].shape == theirs[0].shape and difference(mine, theirs) <= (
            # polar() computes cos and sin by other routines than cos() and sin(): either may be
            # off by one unit in the last place of 1.
            2.0**-23 if name == "complex" else 0.0
        ):
            equal.append(name)
    if not equal and loose is not None:
        name = loose
        mine = lay(name, positions, cos, sin)
        worst = difference(mine, theirs)
        # Two more roundings of the angle, which is at most that of the fastest plane.
        demand(worst <= 4 * 2.0**-24 * float(at.abs().max()), f"float32 tables differ by {worst:g}")
        equal.append(name)
    if not equal:
        shapes = [tuple(t.shape) for t in theirs]
        worst = [
            difference(mine, theirs)
            for name in layouts
            if (mine := lay(name, positions, cos, sin))[0].shape == theirs[0].shape
        ]
        raise MismatchError(
            f"float32 tables differ: theirs {shapes}, ours {tuple(cos.shape)}, {worst}"
        )
    exact_cos, exact_sin = table(positions, at, "exact", length)
    exact = lay(equal[0], positions, exact_cos, -exact_sin if backwards else exact_sin)
    theta = max(ladder.theta for ladder in ladders_of(positions))
    factor = ladders_of(positions)[0].attention_factor(length)
    largest = float(at.abs().max()) * (2 * math.pi if _turns(positions) else 1)
    # The angle is at most the largest position times the fastest frequency, 1; forming it
    # rounds once more, and so do cos, sin and the factor.
    bound = factor * (largest * (float32_step(theta) + 2.0**-24) + 3 * 2.0**-24)
    worst_exact = difference(exact, theirs)
    demand(worst_exact <= bound, f"exact tables differ by {worst_exact:g}, bound {bound:g}")
    return equal[0]


def _turns(positions: Positions) -> bool:
    return isinstance(positions, MultiAxisRope) and positions.unit == "turn"


def difference(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(mine, theirs, strict=True))


def with_block(config: Any, block: dict[str, Any], planes: dict[str | None, int]) -> dict[str, Any]:
    """A rope block for a config: the same base and sections, another scaling.

    Args:
        config: the config.
        block: the scaling.
        planes: of every kind of layer, or of None: how long the lists of LongRoPE have to be.
    """
    old = config.rope_parameters
    if any(isinstance(part, dict) for part in old.values()):
        return {
            kind: _with_block(part, block, planes.get(kind, 1)) if isinstance(part, dict) else part
            for kind, part in old.items()
        }
    return _with_block(old, block, next(iter(planes.values())))


_KEPT = ("rope_theta", "partial_rotary_factor", "mrope_section")


def _with_block(old: dict[str, Any], block: dict[str, Any], planes: int) -> dict[str, Any]:
    kept = {key: old[key] for key in _KEPT if key in old}
    if old.get("rope_type") == "proportional":
        # Its share means other lanes in every other scaling.
        kept.pop("partial_rotary_factor", None)
    cut = {key: v[:planes] if isinstance(v, list) else v for key, v in block.items()}
    return {**kept, **cut}
