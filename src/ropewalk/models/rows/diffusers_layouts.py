"""How the transformers of diffusers turn heads: one small function for each kind of layout.

Each function returns a function of the config, so that a row of the table is data: the keys of
its class and their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...axes import MultiAxisRope, Turn
from ...axis_layouts import HEIGHT_WIDTH, TIME_HEIGHT_WIDTH, axial, interleaved
from ...encodings.lane_turns import LaneTurns
from ...rope import Pairing, Rope
from ...scaling import NTK, Linear, LongRoPE, Plain, Scaling
from ..keyed_file import KeyedFile
from ..plan import Axes, Sourced

# With two rungs the base is squared.
_LARGEST_BASE = 1e100

Key = tuple[str, Any]
"""A key of the config and the default of the class."""


@dataclass(frozen=True)
class Heads:
    """Lanes of a head, and how many heads."""

    size: int
    count: int


Layout = Callable[[KeyedFile, Heads], Rope | Axes]
"""From a config and its heads to the positions of every layer."""


def _theta(file: KeyedFile, given: float | Key) -> float:
    """Return the base: a constant of the class's code, or a key."""
    if isinstance(given, tuple):
        key, default = given
        value = file.positive(key, default)
        file.sources["theta"] = Sourced(value, file.origin(key))
        return value
    file.sources["theta"] = Sourced(given, f"constant of {file.defaults_of}")
    return float(given)


def _named(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    return tuple(names[i] if i < len(names) else f"axis {i}" for i in range(count))


def _one_ladder_each(
    file: KeyedFile,
    heads: Heads,
    key: str,
    ladders: list[Rope],
    axes: tuple[str, ...],
    pairing: Pairing = "adjacent",
    blocks: int = 1,
) -> MultiAxisRope:
    """Every axis has a ladder over its own lanes, one axis after the other."""
    planes = [Turn(i, rung, i) for i, one in enumerate(ladders) for rung in range(one.planes)]
    if 2 * len(planes) > heads.size:
        raise file.refusal(
            key,
            found=f"axes of {' + '.join(str(one.rotary_dim) for one in ladders)} lanes",
            expected=f"no more than the {heads.size} lanes of a head",
            fix="take the values from the model's own config",
        )
    return MultiAxisRope(
        head_dim=heads.size,
        ladders=tuple(ladders),
        planes=tuple(planes),
        axes=axes,
        pairing=pairing,
        blocks=blocks,
    )


def _ladder(dim: int, theta: float, scaling: Scaling | None = None) -> Rope:
    return Rope(head_dim=dim, theta=theta, scaling=Plain() if scaling is None else scaling)


def listed(
    key: str,
    dims: tuple[int, ...] | None,
    names: tuple[str, ...],
    *,
    theta: float | Key = 10000.0,
    partial: bool = False,
    scales: Key | None = None,
) -> Callable[[KeyedFile, Heads], MultiAxisRope]:
    """Lanes of each axis as a list in the config (Flux and most others).

    Args:
        key: the list's key.
        dims: its default; None where the class divides the head by the axes.
        names: names of the axes.
        theta: the base, or its key.
        partial: whether the class also takes a list that covers half of a head.
        scales: key of the numbers that the angles of each axis are divided by.
    """

    def build(file: KeyedFile, heads: Heads) -> MultiAxisRope:
        given = file.numbers(
            key, (heads.size // len(names),) * len(names) if dims is None else dims
        )
        file.sources["lanes of the axes"] = Sourced(list(given), file.origin(key))
        whole = sum(given) == heads.size or (partial and 2 * sum(given) == heads.size)
        if not whole or any(dim % 2 for dim in given):
            raise file.refusal(
                key,
                found=f"{list(given)} (sum {sum(given)})",
                expected=f"even numbers that add up to the {heads.size} lanes of a head",
                fix="take the list from the model's own config",
            )
        divisors = (1.0,) * len(given)
        if scales is not None:
            divisors = file.numbers(*scales, whole=False)
            file.sources["divisors of the axes"] = Sourced(list(divisors), file.origin(scales[0]))
            if len(divisors) != len(given):
                raise file.refusal(
                    scales[0],
                    found=f"{len(divisors)} numbers",
                    expected=f"{len(given)}, one for each axis",
                    fix="take the list from the model's own config",
                )
        base = _theta(file, theta)
        ladders = [
            _ladder(dim, base, None if divisor == 1 else Linear(factor=divisor))
            for dim, divisor in zip(given, divisors, strict=True)
        ]
        return _one_ladder_each(file, heads, key, ladders, _named(names, len(given)))

    return build


def sixths(*, pairing: Pairing = "adjacent", stretched: Key | None = None) -> Layout:
    """Height and width have 2 (d // 6) lanes each, time the rest (Wan).

    With ``stretched``, a factor for each axis raises its base, as NTK-aware scaling does (Cosmos).
    """

    def build(file: KeyedFile, heads: Heads) -> MultiAxisRope:
        side = 2 * (heads.size // 6)
        dims = (heads.size - 2 * side, side, side)
        if side < 2 or heads.size % 2:
            raise file.refusal(
                "attention_head_dim",
                found=str(heads.size),
                expected="an even number of lanes, at least 6",
                fix="take the value from the model's own config",
            )
        base = _theta(file, 10000.0)
        factors = (1.0, 1.0, 1.0)
        if stretched is not None:
            factors = file.numbers(*stretched, whole=False)
            file.sources["factors"] = Sourced(list(factors), file.origin(stretched[0]))
            if len(factors) != 3:
                raise file.refusal(
                    stretched[0],
                    found=f"{len(factors)} numbers",
                    expected="3, for time, height and width",
                    fix="take the list from the model's own config",
                )
        ladders = [
            _ladder(dim, base, None if factor == 1 else NTK(factor=factor))
            for dim, factor in zip(dims, factors, strict=True)
        ]
        return _one_ladder_each(
            file, heads, "attention_head_dim", ladders, TIME_HEIGHT_WIDTH, pairing
        )

    return build


def eighths() -> Layout:
    """Time has d // 4 lanes, height and width 3 (d // 8) each (CogVideoX)."""

    def build(file: KeyedFile, heads: Heads) -> MultiAxisRope:
        if heads.size % 16:
            raise file.refusal(
                "attention_head_dim",
                found=str(heads.size),
                expected="a multiple of 16, so that every axis has whole planes",
                fix="take the value from the model's own config",
            )
        base = _theta(file, 10000.0)
        dims = (heads.size // 4, heads.size // 8 * 3, heads.size // 8 * 3)
        ladders = [_ladder(dim, base) for dim in dims]
        return _one_ladder_each(file, heads, "attention_head_dim", ladders, TIME_HEIGHT_WIDTH)

    return build


def own_thirds(scales: tuple[Key, Key, Key]) -> Layout:
    """Each axis has a third of the head, paired within itself (Allegro)."""

    def build(file: KeyedFile, heads: Heads) -> MultiAxisRope:
        if heads.size % 6:
            raise file.refusal(
                "attention_head_dim",
                found=str(heads.size),
                expected="a multiple of 6",
                fix="take the value from the model's own config",
            )
        base = _theta(file, 10000.0)
        ladders = []
        for key, default in scales:
            factor = file.positive(key, default)
            file.sources[key] = Sourced(factor, file.origin(key))
            scaling = None if factor == 1 else Linear(factor=factor)
            ladders.append(_ladder(heads.size // 3, base, scaling))
        return _one_ladder_each(
            file, heads, "attention_head_dim", ladders, TIME_HEIGHT_WIDTH, "half", blocks=3
        )

    return build


def quarters(
    names: tuple[str, str] = HEIGHT_WIDTH, *, pairing: Pairing, mixed: bool = False
) -> Layout:
    """Two axes with half of the planes each, in a row or (``mixed``) from plane to plane."""

    def build(file: KeyedFile, heads: Heads) -> MultiAxisRope:
        if heads.size % 4:
            raise file.refusal(
                "attention_head_dim",
                found=f"heads of {heads.size} lanes",
                expected="a multiple of 4",
                fix="take the sizes from the model's own config",
            )
        ladder = _ladder(heads.size // 2, _theta(file, 10000.0))
        return axial(ladder, head_dim=heads.size, axes=names, pairing=pairing, mixed=mixed)

    return build


def equal_ladders(key: str, default: int, *, theta: Key) -> Layout:
    """Each of three axes has so many planes; the rest of the head passes (MiniMax-H3)."""

    def build(file: KeyedFile, heads: Heads) -> MultiAxisRope:
        planes = file.lanes(key, default)
        file.sources["planes of each axis"] = Sourced(planes, file.origin(key))
        ladder = _ladder(2 * planes, _theta(file, theta))
        one = [ladder] * 3
        # The check of the size is shared; the three ladders are one.
        _one_ladder_each(file, heads, key, one, TIME_HEIGHT_WIDTH, "half")
        return axial(ladder, head_dim=heads.size, axes=TIME_HEIGHT_WIDTH)

    return build


def every_third(key: str, default: tuple[int, int, int], *, theta: Key, block: str = "") -> Layout:
    """Interleaved M-RoPE; ``block`` holds ``mrope_section`` where the key is missing."""

    def build(file: KeyedFile, heads: Heads) -> MultiAxisRope:
        inner = file.get(block) if block else None
        sections: Any = inner.get("mrope_section") if isinstance(inner, dict) else None
        origin = file.origin(block) if sections is not None else file.origin(key)
        if sections is None or file.get(key) is not None:
            sections, origin = file.numbers(key, default), file.origin(key)
        file.sources["mrope_section"] = Sourced(list(sections), origin)
        return interleaved(_ladder(heads.size, _theta(file, theta)), sections)

    return build


def doubled_in_pairs(key: str, dims: tuple[int, ...], names: tuple[str, ...], theta: Key) -> Layout:
    """ERNIE-Image: lanes are paired half by half, but the table repeats every angle twice.

    Lane j has angle j // 2 of the joined ladders, and its partner is half a head away.
    """

    def build(file: KeyedFile, heads: Heads) -> LaneTurns:
        rotation = listed(key, dims, names, theta=theta)(file, heads)
        return LaneTurns(
            head_dim=heads.size,
            ladders=rotation.ladders,
            lanes=tuple(turn for turn in rotation.planes for _ in range(2)),
            axes=rotation.axes,
            pairing="half",
            reason="the table repeats every angle on adjacent lanes while lanes are paired half "
            "by half, so the two lanes of a plane turn by different angles",
        )

    return build


def one_axis(
    *, theta: float | Key = 10000.0, lanes: Key | None = None, halved: bool = False
) -> Layout:
    """A rope over a sequence: all lanes, those of a key, or the first half."""

    def build(file: KeyedFile, heads: Heads) -> Rope:
        rotated = heads.size // 2 if halved else heads.size
        if lanes is not None:
            rotated = file.lanes(*lanes)
            file.sources["rotary_dim"] = Sourced(rotated, file.origin(lanes[0]))
        return Rope(head_dim=heads.size, rotary_dim=rotated, theta=_theta(file, theta))

    return build


def two_lists() -> Layout:
    """OmniGen: Phi-3's LongRoPE, with the lists of ``rope_scaling``."""

    def build(file: KeyedFile, heads: Heads) -> Rope:
        block = file.get("rope_scaling")
        lists: dict[str, Any] = {
            name: block.get(name) if isinstance(block, dict) else None
            for name in ("short_factor", "long_factor")
        }
        if not all(isinstance(found, list) for found in lists.values()):
            raise file.refusal(
                "rope_scaling",
                found="nothing" if block is None else repr(block)[:40],
                expected="an object with the lists short_factor and long_factor",
                fix="take them from the model's own config",
            )
        original = file.count("original_max_position_embeddings", 4096)
        stated = file.count("max_position_embeddings", 131072)
        for key, value in (("original_length", original), ("stated_length", stated)):
            long = "original_" if key == "original_length" else ""
            file.sources[key] = Sourced(value, file.origin(f"{long}max_position_embeddings"))
        scaling = LongRoPE(original_length=original, factor=max(stated / original, 1.0), **lists)
        file.sources["scaling"] = Sourced("longrope", file.origin("rope_scaling"))
        return Rope(head_dim=heads.size, theta=_theta(file, ("rope_base", 10000)), scaling=scaling)

    return build


def geometric(
    axes: tuple[str, ...],
    *,
    theta: float | Key,
    split: str | None = None,
) -> Layout:
    """LTX: frequencies rise from π/2 to θ π/2 over the width of all heads, axis by axis.

    Frequency k of n is ``π/2 θ^(k / (n - 1))``, on coordinates that run from -1 to 1. It is
    written here as a ladder that falls from 1 to 1/θ, slowest plane first, on positions that are
    the coordinate times ``θ π/2``. The turn is done before heads are split, so every head has
    planes of its own; planes that are left over stand still, in front.

    Args:
        axes: names of the axes.
        theta: the base, or its key.
        split: key of the kind of pairing; with the value ``split`` the planes are cut into one
            block for each head, paired half by half.
    """

    def build(file: KeyedFile, heads: Heads) -> MultiAxisRope:
        wide = heads.size * heads.count
        rungs = wide // (2 * len(axes))
        kind = "interleaved" if split is None else file.get(split, "interleaved")
        if kind not in ("interleaved", "split"):
            raise file.refusal(
                str(split),
                found=repr(kind)[:40],
                expected="interleaved or split",
                fix="take the value from the model's own config",
            )
        if rungs < 2 or wide % 2:
            raise file.refusal(
                "attention_head_dim",
                found=f"{heads.count} heads of {heads.size} lanes",
                expected=f"at least {4 * len(axes)} lanes in all, an even number",
                fix="take the sizes from the model's own config",
            )
        base = _theta(file, theta)
        if not 1 < base <= _LARGEST_BASE:
            raise file.refusal(
                "rope_theta",
                found=f"{base:g}",
                expected=f"a base above 1, at most {_LARGEST_BASE:g}",
                fix="take the value from the model's own config",
            )
        # theta' ^ (-1 / n) = theta ^ (-1 / (n - 1)) for n rungs.
        ladder = _ladder(2 * rungs, math.exp(math.log(base) * rungs / (rungs - 1)))
        still = wide // 2 - rungs * len(axes)
        turns = [Turn(i, rungs - 1 - k) for k in range(rungs) for i in range(len(axes))]
        file.sources["pairing"] = Sourced(
            kind, f"constant of {file.defaults_of}" if split is None else file.origin(split)
        )
        return MultiAxisRope(
            head_dim=wide,
            ladders=(ladder,),
            planes=(*[Turn(0, None)] * still, *turns),
            axes=axes,
            pairing="half" if kind == "split" else "adjacent",
            blocks=heads.count if kind == "split" else 1,
        )

    return build
