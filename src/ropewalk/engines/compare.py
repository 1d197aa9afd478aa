"""Engines side by side: what each computes from one config, largest disagreement first."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..models.plan import LayerPositions
from .reading import EngineView, Reading, view
from .source import Source, read_source
from .table import ENGINES

# Two formulas for one value round the last bits of float64 differently.
_SAME = 2.0**-40


@dataclass(frozen=True)
class Disagreement:
    """How far one reading is from another.

    Attributes:
        relative: largest relative difference of a frequency.
        plane: the plane where it is; None where all are equal.
        angle: largest difference of an angle at the last position, radians, not wrapped.
        angle_plane: the plane where that is.
        amplitude: amplitude divided by the reference's.
        softmax: softmax multiplier divided by the reference's.
        planes: number of planes, where it is not the reference's; else None.
    """

    relative: float
    plane: int | None
    angle: float
    angle_plane: int | None
    amplitude: float
    softmax: float
    planes: int | None = None

    @property
    def none(self) -> bool:
        """Whether both compute the same."""
        return self.planes is None and not (self.relative or self.score[1] or self.score[2])

    @property
    def score(self) -> tuple[float, float, float]:
        """What is sorted by: angle at the stated length, amplitude, softmax multiplier."""
        shown = (abs(math.log(self.amplitude)), abs(math.log(self.softmax)))
        amplitude, softmax = (0.0 if value <= _SAME else value for value in shown)
        return (math.inf if self.planes is not None else self.angle, amplitude, softmax)


@dataclass(frozen=True)
class Compared:
    """One engine beside the reference, for one kind of layer at one length."""

    view: EngineView
    apart: Disagreement | None
    """None where the engine stops, or the reference does."""


@dataclass(frozen=True)
class GroupComparison:
    """One kind of layer at one length.

    Attributes:
        kind: the layer type.
        indices: its layers.
        length: tokens of the text.
        reference: name of the engine that the others are measured against.
        engines: largest disagreement first, then those that stop, then those that agree.
    """

    kind: str
    indices: tuple[int, ...]
    length: int
    reference: str
    engines: tuple[Compared, ...]


@dataclass(frozen=True)
class Comparison:
    """All engines on one model."""

    path: str
    model_type: str
    format: str
    groups: tuple[GroupComparison, ...]
    notes: tuple[str, ...]

    @property
    def disagree(self) -> bool:
        """Whether some engine computes something else than the reference, or stops."""
        return any(
            item.apart is None or not item.apart.none
            for group in self.groups
            for item in group.engines
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "path": self.path,
            "model_type": self.model_type,
            "format": self.format,
            "groups": [
                {
                    "kind": group.kind,
                    "layers": list(group.indices),
                    "length": group.length,
                    "reference": group.reference,
                    "engines": [_engine_dict(item) for item in group.engines],
                }
                for group in self.groups
            ],
            "notes": list(self.notes),
        }


def _engine_dict(item: Compared) -> dict[str, Any]:
    found, apart = item.view, item.apart
    reading = found.reading
    return {
        "engine": found.engine,
        "version": found.version,
        "evidence": found.evidence,
        "refusal": found.refusal or None,
        "rule": found.rule or None,
        "inv_freq": None if reading is None else reading.inv_freq.tolist(),
        "amplitude": None if reading is None else reading.amplitude,
        "softmax_multiplier": None if reading is None else reading.softmax,
        "usable_length": found.limit,
        "length_rule": found.length_rule,
        "pairing": found.pairing,
        "notes": list(found.notes),
        "difference": None
        if apart is None
        else {
            "same": apart.none,
            "relative_frequency": apart.relative,
            "plane": apart.plane,
            "angle_radians": apart.angle,
            "angle_turns": apart.angle / (2 * math.pi),
            "angle_plane": apart.angle_plane,
            "amplitude_ratio": apart.amplitude,
            "softmax_ratio": apart.softmax,
            "planes": apart.planes,
        },
    }


def apart(mine: Reading, other: Reading, length: int) -> Disagreement:
    """Return how far ``mine`` is from ``other`` on texts of ``length`` tokens."""
    a, b = _turning(mine.inv_freq), _turning(other.inv_freq)
    amplitude, softmax = mine.amplitude / other.amplitude, mine.softmax / other.softmax
    if len(a) != len(b):
        return Disagreement(0.0, None, 0.0, None, amplitude, softmax, planes=len(a))
    larger = np.maximum(np.abs(a), np.abs(b))
    relative = np.divide(np.abs(a - b), larger, out=np.zeros_like(larger), where=larger > 0)
    relative[relative <= _SAME] = 0.0
    angles = np.where(relative > 0, np.abs(a - b) * (length - 1), 0.0)
    worst, worst_angle = int(relative.argmax()), int(angles.argmax())
    return Disagreement(
        relative=float(relative[worst]),
        plane=worst if relative[worst] else None,
        angle=float(angles[worst_angle]),
        angle_plane=worst_angle if angles[worst_angle] else None,
        amplitude=1.0 if abs(math.log(amplitude)) <= _SAME else amplitude,
        softmax=1.0 if abs(math.log(softmax)) <= _SAME else softmax,
    )


def _turning(inv_freq: Any) -> Any:
    """Drop the planes at the end that stand still: they are the same as lanes not rotated."""
    still = int(np.argmax(inv_freq[::-1] != 0)) if inv_freq.any() else 0
    return inv_freq[: len(inv_freq) - still]


def compare_engines(
    path: Path,
    *,
    assume_family: str | None = None,
    length: int | None = None,
    engine_args: str | None = None,
    overrides: str | None = None,
) -> Comparison:
    """Compare what the engines of the table compute from a model's config.

    Args:
        path: a model's folder, config, GGUF file, or another file that `ropewalk.read` reads.
        assume_family: see `ropewalk.read`.
        length: tokens of the text at hand; None for the one that ``engine_args`` gives, else
            the stated length, and where frequencies depend on the length also the original one.
        engine_args: see `read_source`.
        overrides: see `read_source`.

    Raises:
        InputError: see `read_source`.
    """
    source = read_source(
        path, assume_family=assume_family, engine_args=engine_args, overrides=overrides
    )
    length = source.context if length is None else length
    found: dict[Any, GroupComparison] = {}
    for layer, indices in source.groups:
        for tokens in (length,) if length is not None else _lengths(source, layer):
            group = _group(source, layer, indices, tokens)
            alike = found.get(key := _content(group))
            if alike is not None:
                # Two layer types that every engine treats alike are one line.
                kinds = dict.fromkeys([*alike.kind.split(", "), group.kind])
                together = tuple(sorted({*alike.indices, *group.indices}))
                group = replace(alike, kind=", ".join(kinds), indices=together)
            found[key] = group
    groups = sorted(found.values(), key=_group_score, reverse=True)
    return Comparison(
        source.plan.path, source.plan.model_type, source.plan.format, tuple(groups), source.notes
    )


def _lengths(source: Source, layer: LayerPositions) -> tuple[int, ...]:
    assert layer.rope is not None
    original = layer.rope.original_length or source.plan.original_length
    stated = source.plan.stated_length or original or 0
    if not layer.rope.scaling.length_dependent or original is None or original >= stated:
        return (stated or 4096,)
    return original, stated


def _group(
    source: Source, layer: LayerPositions, indices: tuple[int, ...], length: int
) -> GroupComparison:
    config = source.layer(layer, length)
    views = []
    for engine in ENGINES:
        found = view(engine, config)
        if engine.native == source.plan.format:
            found = _native(found, source.running.layers[indices[0]], source, length)
        views.append(found)
    native = {engine.name for engine in ENGINES if engine.native == source.plan.format}
    reference = next((v for v in views if v.engine in native), views[0])
    out = [
        Compared(
            found,
            None
            if found.reading is None or reference.reading is None
            else apart(found.reading, reference.reading, length),
        )
        for found in views
        if found is not reference
    ]
    out.sort(key=_score, reverse=True)
    first = Compared(
        reference,
        None if reference.reading is None else apart(reference.reading, reference.reading, length),
    )
    return GroupComparison(layer.kind, indices, length, reference.engine, (first, *out))


def _native(found: EngineView, layer: LayerPositions, source: Source, length: int) -> EngineView:
    """Return the view of the engine whose own file it is: the plan that was read from it."""
    rope = layer.rope
    assert rope is not None
    reading = Reading(
        rope.inv_freq(length), rope.attention_factor(length), layer.softmax_multiplier
    )
    return replace(
        found,
        refusal="",
        rule="the file's own values, as ropewalk inspect shows them",
        reading=reading,
        limit=source.plan.stated_length,
        notes=(),
        pairing=rope.pairing,
    )


def _score(item: Compared) -> tuple[int, tuple[float, float, float]]:
    """Sort: apart, then stopping, then alike."""
    if item.apart is None:
        return 1, (0.0, 0.0, 0.0)
    return (0 if item.apart.none else 2), item.apart.score


def _content(group: GroupComparison) -> Any:
    """Return what a group says, without which layers it is about."""
    return group.length, tuple(
        (
            item.view.engine,
            item.view.refusal,
            item.view.rule,
            item.view.notes,
            None
            if item.view.reading is None
            else (
                item.view.reading.inv_freq.tobytes(),
                item.view.reading.amplitude,
                item.view.reading.softmax,
            ),
        )
        for item in group.engines
    )


def _group_score(group: GroupComparison) -> tuple[float, ...]:
    worst = max((_score(item) for item in group.engines), default=(0, (0.0, 0.0, 0.0)))
    return (float(worst[0]), *worst[1])
