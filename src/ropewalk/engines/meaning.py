"""Two models or formats compared by meaning: what differs, what is only spelled differently."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models.plan import LayerPositions, LogNTemperature, ModelPositions, QueryTemperature
from ..models.read import read_whole
from ..rope import Rope
from .compare import Disagreement, apart
from .reading import Reading

# GGUF and tensors in files hold float32: this much is the format's rounding.
_ROUNDING = 2.0**-22
_COUNTS = ("stated_length", "original_length", "heads", "kv_heads", "value_dim")


@dataclass(frozen=True)
class Point:
    """One value of two plans.

    Attributes:
        what: its name.
        a: as the first has it, in words.
        b: as the second has it.
        effect: what that does, in numbers; may be empty.
        layers: the layers where it is so; empty for the whole model.
    """

    what: str
    a: str
    b: str
    effect: str = ""
    layers: tuple[int, ...] = ()


@dataclass(frozen=True)
class MeaningDiff:
    """Two models by meaning.

    Attributes:
        a: path of the first.
        b: path of the second.
        a_format: format of the first.
        b_format: format of the second.
        differs: what means something else.
        spelled: what means the same and is written otherwise, or rounded.
        only_a: what only the first says.
        only_b: what only the second says.
    """

    a: str
    b: str
    a_format: str
    b_format: str
    differs: tuple[Point, ...]
    spelled: tuple[Point, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both mean the same."""
        return not self.differs

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""

        def points(items: tuple[Point, ...]) -> list[dict[str, Any]]:
            return [
                {
                    "what": item.what,
                    "a": item.a,
                    "b": item.b,
                    "effect": item.effect or None,
                    "layers": list(item.layers),
                }
                for item in items
            ]

        return {
            "a": {"path": self.a, "format": self.a_format},
            "b": {"path": self.b, "format": self.b_format},
            "same": self.same,
            "differs": points(self.differs),
            "spelled_differently": points(self.spelled),
            "only_in_a": list(self.only_a),
            "only_in_b": list(self.only_b),
        }


def compare_meaning(a: Path, b: Path, *, assume_family: str | None = None) -> MeaningDiff:
    """Compare two models, files or formats by what they mean.

    Frequencies and amplitudes are compared as numbers, at every length that they depend on, so
    two spellings of one rope are the same. A rounding to float32 is no difference.

    Raises:
        InputError: one of them cannot be read.
    """
    return meaning(
        read_whole(a, assume_family=assume_family), read_whole(b, assume_family=assume_family)
    )


def meaning(a: ModelPositions, b: ModelPositions) -> MeaningDiff:
    """Compare two plans that were read; see `compare_meaning`."""
    differs, spelled = list[Point](), list[Point]()
    only_a, only_b = list[str](), list[str]()
    for name in _COUNTS:
        one, other = getattr(a, name), getattr(b, name)
        shown = name.replace("_", " ")
        if one is None and other is not None:
            only_b.append(f"{shown} {other:,}")
        elif other is None and one is not None:
            only_a.append(f"{shown} {one:,}")
        elif one != other:
            differs.append(Point(shown, f"{one:,}", f"{other:,}"))
    if len(a.layers) != len(b.layers):
        differs.append(Point("number of layers", str(len(a.layers)), str(len(b.layers))))
    merged: dict[tuple[bool, Point], list[int]] = {}
    for mine, theirs in zip(a.layers, b.layers, strict=False):
        for real, point in _layer(mine, theirs, a, b):
            merged.setdefault((real, point), []).append(mine.index)
    for (real, point), indices in merged.items():
        every = len(indices) == max(len(a.layers), len(b.layers))
        placed = Point(point.what, point.a, point.b, point.effect, () if every else tuple(indices))
        (differs if real else spelled).append(placed)
    spelled += _spellings(a, b, {point.what for point in differs})
    towers_a = {f"{tower.path} ({tower.model_type})" for tower in a.towers}
    towers_b = {f"{tower.path} ({tower.model_type})" for tower in b.towers}
    only_a += sorted(towers_a - towers_b)
    only_b += sorted(towers_b - towers_a)
    return MeaningDiff(
        a.path, b.path, a.format, b.format,
        tuple(differs), tuple(spelled), tuple(only_a), tuple(only_b),
    )  # fmt: skip


def _layer(
    mine: LayerPositions, theirs: LayerPositions, a: ModelPositions, b: ModelPositions
) -> Iterator[tuple[bool, Point]]:
    """Yield whether a point is a difference of meaning, and the point."""
    if mine.kind != theirs.kind:
        yield mine.window != theirs.window, Point("layer type", mine.kind, theirs.kind)
    if mine.window != theirs.window:
        yield True, Point("window", _tokens(mine.window), _tokens(theirs.window))
    if abs(mine.softmax_multiplier - theirs.softmax_multiplier) > _ROUNDING:
        yield (
            True,
            Point(
                "softmax multiplier",
                f"{mine.softmax_multiplier:.6g}",
                f"{theirs.softmax_multiplier:.6g}",
            ),
        )
    if mine.query_temperature != theirs.query_temperature:
        yield (
            True,
            Point(
                "query temperature",
                _temperature(mine.query_temperature),
                _temperature(theirs.query_temperature),
            ),
        )
    if mine.axes != theirs.axes:
        yield True, Point("axes", _named(mine.axes), _named(theirs.axes))
    if mine.rope is None or theirs.rope is None:
        if mine.rope is not theirs.rope:
            yield True, Point("rope", _rope(mine.rope), _rope(theirs.rope))
        return
    yield from _ropes(mine.rope, theirs.rope, a, b)


def _named(value: object) -> str:
    return "one" if value is None else type(value).__name__


def _rope(rope: Rope | None) -> str:
    return "none (NoPE)" if rope is None else f"theta {rope.theta:,.15g}"


def _tokens(window: int | None) -> str:
    return "none" if window is None else f"{window:,} tokens"


def _temperature(value: QueryTemperature | LogNTemperature | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, LogNTemperature):
        return f"log-n, length {value.original_length:,}"
    return f"beta {value.beta:g}, length {value.original_length:,}, offset {value.offset}"


def _ropes(
    mine: Rope, theirs: Rope, a: ModelPositions, b: ModelPositions
) -> Iterator[tuple[bool, Point]]:
    if mine == theirs:
        return
    if mine.pairing != theirs.pairing:
        yield (
            True,
            Point(
                "pairing",
                mine.pairing,
                theirs.pairing,
                "the same model only if the q and k rows of the weights were permuted",
            ),
        )
    for name in ("head_dim", "rotary_dim", "rotary_offset", "direction"):
        one, other = getattr(mine, name), getattr(theirs, name)
        if one != other:
            yield True, Point(name.replace("_", " "), f"{one}", f"{other}")
    lengths = _lengths(mine, theirs, a, b)
    found = [
        (
            length,
            apart(
                Reading(theirs.inv_freq(length), theirs.attention_factor(length)),
                Reading(mine.inv_freq(length), mine.attention_factor(length)),
                length,
            ),
        )
        for length in lengths
    ]
    length, worst = max(found, key=lambda item: item[1].score)
    turned = max(item.relative for _, item in found) > _ROUNDING or worst.planes is not None
    louder = max(abs(math.log(item.amplitude)) for _, item in found) > _ROUNDING
    effect = describe(worst, length) if turned or louder else ""
    if mine.theta != theirs.theta:
        yield turned, Point("theta", f"{mine.theta:,.15g}", f"{theirs.theta:,.15g}", effect)
    if mine.scaling != theirs.scaling:
        if not (turned or louder) and worst.relative:
            effect = f"float32 rounding: {worst.relative:.2g} apart"
        yield (
            turned or louder,
            Point("scaling", _scaling(mine), _scaling(theirs), effect),
        )


def _scaling(rope: Rope) -> str:
    text = repr(rope.scaling)
    return text if len(text) <= 160 else f"{text[:157]}…"


def _lengths(mine: Rope, theirs: Rope, a: ModelPositions, b: ModelPositions) -> list[int]:
    known = [
        length
        for length in (
            mine.original_length, theirs.original_length,
            a.original_length, b.original_length, a.stated_length, b.stated_length,
        )
        if length is not None
    ]  # fmt: skip
    if not known:
        return [4096]
    if mine.scaling.length_dependent or theirs.scaling.length_dependent:
        return sorted({*known, 2 * max(known)})
    return [max(known)]


def describe(found: Disagreement, length: int) -> str:
    """Return a disagreement in words, for one cell or line."""
    if found.planes is not None:
        return "another number of planes"
    parts = []
    if found.plane is not None:
        parts.append(
            f"frequencies up to {found.relative:.3%} apart (plane {found.plane}), angles "
            f"{turns(found.angle)} at {length:,} tokens (plane {found.angle_plane})"
        )
    if found.amplitude != 1.0:
        parts.append(f"amplitude × {found.amplitude:.6g}")
    return "; ".join(parts)


def turns(angle: float) -> str:
    """Write an angle: in turns from one turn on, else in radians."""
    whole = angle / (2 * math.pi)
    if whole < 1:
        return f"{angle:.3g} rad"
    return f"{whole:,.0f} turns" if whole >= 1000 else f"{whole:.4g} turns"


def _spellings(a: ModelPositions, b: ModelPositions, differing: set[str]) -> list[Point]:
    """Return values that are equal and come from other keys."""
    out = []
    for name, mine in a.sources.items():
        theirs = b.sources.get(name)
        if theirs is None or name.replace("_", " ") in differing or name == "path":
            continue
        one, other = _key(mine.source), _key(theirs.source)
        # A default that is the same in two families is no spelling.
        spelt = one != mine.source or other != theirs.source
        if spelt and one != other and mine.value == theirs.value:
            out.append(Point(name.replace("_", " "), one, other))
    return out


def _key(source: str) -> str:
    """Return a source without the name of its file."""
    head, found, rest = source.partition(": ")
    return rest if found and "." in head and " " not in head else source
