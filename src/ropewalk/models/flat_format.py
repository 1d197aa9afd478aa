"""The row of the table of foreign formats, and the one reader of all its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..rope import Pairing, Rope
from ..scaling import Plain, Scaling
from .flat_axes import FlatAxes, flat_axes
from .flat_file import FlatFile, Spellings, flatten
from .flat_layers import ONE_LAYER, FlatLayers, flat_layers
from .fragment import Fragment
from .hf_axes import with_rope
from .layers import LayerKind
from .plan import LayerPositions, ModelPositions, QueryTemperature, Sourced


@dataclass(frozen=True)
class Around:
    """What a scaling rule may need from the rest of the file."""

    stated: int | None
    latent: bool


@dataclass(frozen=True)
class Scaled:
    """A scaling with the two other numbers that may come with it.

    ``temperature_without_rope`` says that the query temperature is for layers without rope.
    """

    scaling: Scaling
    softmax_multiplier: float = 1.0
    query_temperature: QueryTemperature | None = None
    temperature_without_rope: bool = False
    origin: str = "no scaling in the file: not stretched"


def plain(_file: FlatFile, around: Around) -> Scaled:
    """No scaling, for programs that have none."""
    return Scaled(Plain(original_length=around.stated))


@dataclass(frozen=True, kw_only=True, eq=False)
class FlatFormat:
    """One format: its words, its defaults, and where needed its rules.

    Attributes:
        name: shown as `ModelPositions.format`.
        program: whose code the defaults are from, in words.
        spellings: concept to keys. Concepts: layers, hidden, heads, kv_heads, head_dim, theta,
            local_theta, partial, rotary_dim, stated_length, text_length, rope_lanes,
            plain_lanes, value_dim, window, window_every, layer_types, without_rope_every,
            interleaved, half, model, and what the rules read.
        pairing: of its weights, unless ``interleaved`` or ``half`` says else.
        latent_pairing: the same for latent attention, where nothing else says it.
        theta: default base.
        theta_rule: gives the default base where it depends on the file.
        partial: default share of rotated lanes.
        encoding: tells whether positions are rotary; raises where they are another encoding.
        scaling: builds the scaling.
        layers: what layers do where the file does not list them.
        refuse: further refusals and notes.
        ignored: keys that look positional and mean nothing here.
        latent: whether ``rope_lanes`` makes latent attention.
        axes: what the program does with ``sections``, or None.
    """

    name: str
    program: str
    spellings: Spellings
    pairing: Pairing = "half"
    latent_pairing: Pairing | None = None
    theta: float = 10000.0
    theta_rule: Callable[[FlatFile], float] | None = None
    partial: float = 1.0
    encoding: Callable[[FlatFile], bool] | None = None
    scaling: Callable[[FlatFile, Around], Scaled] = plain
    layers: FlatLayers = field(default_factory=FlatLayers)
    refuse: Callable[[FlatFile], None] | None = None
    ignored: tuple[str, ...] = ()
    latent: bool = False
    axes: FlatAxes | None = None


def read_flat(values: Mapping[str, Any], label: str, row: FlatFormat) -> ModelPositions | Fragment:
    """Read the settings of one model in the words of one program.

    Args:
        values: the parsed file, or flags by name.
        label: how errors name it.
        row: the format.

    Returns:
        The position plan, or what can be said where sizes are missing.

    Raises:
        InputError: positions that are not rotary, contradictory or invalid values.
    """
    file = FlatFile(label, flatten(values, label), row.spellings, row.program)
    if row.refuse is not None:
        row.refuse(file)
    rotary = True if row.encoding is None else row.encoding(file)
    file.note_unread(row.ignored)
    stated = _stated_length(file)
    file.sources["stated_length"] = stated or Sourced(None, "unknown")
    head = _head(file, row)
    layers = flat_layers(file, row.layers)
    missing = [
        what
        for what, absent in (
            ("head sizes", head is None),
            ("a way to tell which layers are local", layers is None),
        )
        if absent
    ]
    theta = _theta(file, row)
    around = Around(None if stated is None else stated.value, bool(head and head.latent))
    try:
        scaled = row.scaling(file, around)
        if missing or head is None or layers is None:
            found = {k: v for k, v in file.sources.items() if v.value is not None}
            notes = tuple(note for note in file.notes if note != ONE_LAYER)
            return Fragment(
                label, row.name, " and ".join(missing), found, scaled.scaling, notes
            )  # fmt: skip
        built = _Builder(file, row, head, theta, scaled)
        return built.plan(layers, stated, rotary)
    except InputError as error:
        if error.where.startswith(label):
            raise
        raise error.within(label) from None


def _stated_length(file: FlatFile) -> Sourced | None:
    """Return the length that the file states, or else that of the texts it was trained on."""
    stated, texts = file.length("stated_length"), file.length("text_length")
    if stated is None:
        return texts or file.length("text_length_nemo")
    if texts is not None and texts.value != stated.value:
        file.note(
            f"the file trains on texts of {texts.value} tokens and states {stated.value} positions"
        )
    return stated


@dataclass(frozen=True)
class _Head:
    size: int
    rotary_dim: int
    offset: int
    latent: bool


def _head(file: FlatFile, row: FlatFormat) -> _Head | None:
    heads, hidden = file.count("heads"), file.count("hidden")
    for name, found in (("heads", heads), ("hidden_size", hidden)):
        if found is not None:
            file.sources[name] = found
    rotated = file.count("rope_lanes") if row.latent else None
    if rotated is not None:
        unrotated = file.count("plain_lanes")
        if unrotated is None:
            return None
        size = rotated.value + unrotated.value
        file.sources["head_dim"] = Sourced(
            size, f"derived: {unrotated.value} unrotated + {rotated.value} rotated lanes"
        )
        file.sources["rotary_dim"] = rotated
        return _Head(size, rotated.value, unrotated.value, True)
    given = file.count("head_dim")
    if given is None and heads is not None and hidden is not None:
        if hidden.value % heads.value:
            raise InputError(
                f"{file.label}: {hidden.source.split(': ', 1)[-1]}",
                found=f"{hidden.value}, which {heads.value} heads do not divide",
                expected="a multiple of the number of heads, or an explicit head size",
                fix="correct it, or add the head size",
            )
        given = Sourced(
            hidden.value // heads.value,
            f"derived: {hidden.value} / {heads.value} heads",
        )
    if given is None:
        return None
    file.sources["head_dim"] = given
    return _Head(given.value, _rotary_dim(file, row, given.value), 0, False)


def _rotary_dim(file: FlatFile, row: FlatFormat, size: int) -> int:
    lanes, share = file.count("rotary_dim"), file.number("partial")
    if lanes is not None:
        file.sources["rotary_dim"] = lanes
        if share is not None and int(size * share.value) != lanes.value:
            raise file.contradiction(
                share.source.split(": ", 1)[-1],
                share.value,
                lanes.source.split(": ", 1)[-1],
                lanes.value,
            )
        return int(lanes.value)
    value = row.partial if share is None else share.value
    where = f"{file.label}: {'rotary share' if share is None else share.source.split(': ', 1)[-1]}"
    if not 0 < value <= 1:
        raise InputError(
            where, found=repr(value), expected="a share above 0, at most 1", fix="correct the value"
        )
    rotary_dim = int(size * value)
    if rotary_dim % 2 or rotary_dim < 2:
        raise InputError(
            where,
            found=f"{value:g}: {rotary_dim} lanes of {size}",
            expected="an even number of lanes, at least 2",
            fix=f"use {max(rotary_dim // 2, 1) * 2} lanes, or check the head size",
        )
    origin = file.default_origin if share is None else share.source
    file.sources["rotary_dim"] = Sourced(
        rotary_dim,
        "derived: head_dim (all lanes)"
        if value == 1
        else f"derived: {size} x {value:g} ({origin})",
    )
    return rotary_dim


def _theta(file: FlatFile, row: FlatFormat) -> float:
    found = file.number("theta")
    if found is None:
        default = row.theta if row.theta_rule is None else row.theta_rule(file)
        found = Sourced(default, file.default_origin)
        file.note(f"no base in the file; assumed {default:.15g} ({file.default_origin})")
    file.sources["theta"] = found
    return float(found.value)


@dataclass
class _Builder:
    """Puts the parts of one file together."""

    file: FlatFile
    row: FlatFormat
    head: _Head
    theta: float
    scaled: Scaled

    def plan(self, layers: list[LayerKind], stated: Sourced | None, rotary: bool) -> ModelPositions:
        file = self.file
        pairing = self._pairing()
        local_theta = file.number("local_theta")
        if local_theta is not None:
            file.sources["theta (sliding_attention)"] = local_theta
        rope = self._rope(pairing, self.theta, self.scaled.scaling)
        local = rope
        axes = flat_axes(file, self.row.axes, rope)
        if local_theta is not None:
            # Every program stretches the other layers only.
            scaling = Plain(original_length=None if stated is None else stated.value)
            local = self._rope(pairing, float(local_theta.value), scaling)
        file.sources["scaling"] = Sourced(repr(self.scaled.scaling), self.scaled.origin)
        heads = file.sources.get("heads")
        kv_heads = file.count("kv_heads")
        if kv_heads is not None and heads is not None and heads.value % kv_heads.value:
            raise InputError(
                f"{file.label}: {kv_heads.source.split(': ', 1)[-1]}",
                found=f"{kv_heads.value} key and value heads for {heads.value} query heads",
                expected="a number that divides the query heads",
                fix="correct one of the two",
            )
        if kv_heads is None and heads is not None:
            kv_heads = Sourced(heads.value, "derived: one per query head")
        if kv_heads is not None:
            file.sources["kv_heads"] = kv_heads
        value_dim = file.count("value_dim") or Sourced(self.head.size, "derived: head_dim")
        file.sources["value_dim"] = value_dim
        out = []
        for index, layer in enumerate(layers):
            windowed = layer.window is not None or layer.kind == "sliding_attention"
            has_rope = layer.has_rope and rotary
            tempered = self.scaled.query_temperature
            if self.scaled.temperature_without_rope == has_rope or layer.kind == "linear_attention":
                tempered = None
            out.append(
                LayerPositions(
                    index,
                    layer.kind,
                    (local if windowed else rope) if has_rope else None,
                    layer.window,
                    self.scaled.softmax_multiplier if has_rope else 1.0,
                    tempered,
                    with_rope(axes, local if windowed else rope) if axes and has_rope else None,
                )
            )
        original = rope.original_length if any(layer.rope for layer in out) else None
        file.sources.setdefault(
            "original_length",
            Sourced(original, "unknown" if original is None else "derived: the stated length"),
        )
        model = file.given("model")
        return ModelPositions(
            path=file.label,
            format=self.row.name,
            model_type=self.row.name if model is None else str(model.value),
            layers=tuple(out),
            original_length=original,
            stated_length=file.sources["stated_length"].value,
            heads=None if heads is None else heads.value,
            kv_heads=None if kv_heads is None else kv_heads.value,
            value_dim=value_dim.value,
            sources=file.sources,
            notes=tuple(file.notes),
        )

    def _pairing(self) -> Pairing:
        file, pairing = self.file, self.row.pairing
        origin, switch = f"rule of {self.row.program}", None
        for concept, if_true, if_false in (
            ("interleaved", "adjacent", "half"),
            ("half", "half", "adjacent"),
        ):
            if switch is not None:
                break
            switch = file.flag(concept)
            if switch is not None:
                pairing = if_true if switch else if_false  # type: ignore[assignment]
                found = file.given(concept)
                origin = origin if found is None else found.source
        if self.head.latent and self.row.latent_pairing is not None and switch is None:
            pairing = self.row.latent_pairing
            origin = f"rule of {self.row.program} for latent attention"
        file.sources["pairing"] = Sourced(pairing, origin)
        return pairing

    def _rope(self, pairing: Pairing, theta: float, scaling: Scaling) -> Rope:
        return Rope(
            head_dim=self.head.size,
            rotary_dim=self.head.rotary_dim,
            theta=theta,
            pairing=pairing,
            scaling=scaling,
            rotary_offset=self.head.offset,
        )
