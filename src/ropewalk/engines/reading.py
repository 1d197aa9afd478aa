"""What an engine reads from a config, its rules as data, and what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ..models.engine_settings import EngineSettings
from ..rope import Pairing
from .formulas import Frequencies

Evidence = Literal["run", "read from source"]


class RefusedError(Exception):
    """The engine stops with an error on this config; the text says why."""


def as_number(name: str, value: object) -> float:
    """Return a raw value as the number that an engine needs there.

    Raises:
        RefusedError: it is none, or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(f"stops: {name} is {value!r}")
    if not math.isfinite(value):
        raise RefusedError(f"computes nothing usable: {name} is {value}")
    return float(value)


def number_or_none(value: object) -> float | None:
    """Return a raw value as a number, or None where an engine would not take it for one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@dataclass(frozen=True)
class LayerConfig:
    """The raw keys of a config for one kind of layer, and the sizes of its heads.

    Attributes:
        model_type: the family.
        values: the part of the config that describes the language model.
        layer_kind: the layer type, as transformers names it.
        head_dim: lanes of a head.
        rotary_dim: rotated lanes, as the family's code has them.
        theta: the base as the config class of transformers fills it in.
        latent: whether heads are of latent attention.
        new: the raw ``rope_parameters`` of this layer kind, or None.
        old: the raw ``rope_scaling`` of this layer kind, or None.
        nested: whether the block is one of several by layer type.
        unscaled: whether the model's code leaves this layer kind unscaled.
        softmax_multiplier: what the model code of transformers multiplies the softmax by.
        length: tokens of the text at hand.
        share: the family's share of turning planes for proportional scaling.
        pairing: which lanes make a plane in the model's own weights.
        assumed: the block that a config class fills in where the file has none, or None.
        flags: llama.cpp's own settings, or None.
    """

    model_type: str
    values: Mapping[str, Any]
    layer_kind: str
    head_dim: int
    rotary_dim: int
    theta: float
    latent: bool
    new: Mapping[str, Any] | None
    old: Mapping[str, Any] | None
    nested: bool
    unscaled: bool
    softmax_multiplier: float
    length: int
    share: float = 1.0
    pairing: Pairing = "half"
    assumed: Mapping[str, Any] | None = None
    flags: EngineSettings | None = None

    @property
    def stated(self) -> int | None:
        """``max_position_embeddings``, under the names that config classes know."""
        for key in ("max_position_embeddings", "n_positions"):
            if isinstance(self.values.get(key), int):
                return int(self.values[key])
        return None


@dataclass(frozen=True)
class Keys:
    """What an engine has in hand when it computes frequencies.

    Attributes:
        kind: the kind of scaling, as the engine understood it.
        block: its values.
        theta: the base.
        dim: rotated lanes.
        layer: where it was read from.
        original: the length before stretching, where the engine found one.
        notes: what the engine left out on the way here.
    """

    kind: str
    block: Mapping[str, Any]
    theta: float
    dim: int
    layer: LayerConfig
    original: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """Tokens of the text at hand."""
        return self.layer.length

    @property
    def stated(self) -> int:
        """The length the config states."""
        if self.layer.stated is None:
            raise RefusedError("needs max_position_embeddings")
        return self.layer.stated

    def need(self, name: str) -> float:
        """Return a number without which the engine stops."""
        value = self.get(name)
        if value is None:
            raise RefusedError(f"stops: {name} is missing")
        return value

    def get(self, name: str) -> float | None:
        """Return a number, or None where it is missing or null."""
        value = self.block.get(name)
        return None if value is None else as_number(name, value)

    def given(self, name: str, default: float) -> float:
        """Return a number, or the engine's default where it is missing."""
        value = self.get(name)
        return default if value is None else value

    def need_original(self) -> float:
        """Return the length before stretching, without which the engine stops."""
        if self.original is None:
            raise RefusedError("stops: original_max_position_embeddings is missing")
        return self.original

    def need_list(self, name: str) -> list[float]:
        """Return one divisor per plane, without which the engine stops."""
        value = self.block.get(name)
        if not isinstance(value, list) or len(value) != self.dim // 2:
            raise RefusedError(f"stops: {name} is no list of {self.dim // 2} numbers")
        return [as_number(name, number) for number in value]

    def noting(self, *notes: str) -> Keys:
        """Return the same with notes added."""
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True)
class Reading:
    """What an engine computes for one kind of layer.

    Attributes:
        inv_freq: frequency of each plane, radians per token, float64.
        amplitude: what cos and sin are multiplied by.
        softmax: what the softmax scale is multiplied by.
        notes: keys ignored, defaults taken.
        limit: longest text where it differs from the stated length; None elsewhere.
    """

    inv_freq: Frequencies
    amplitude: float = 1.0
    softmax: float = 1.0
    notes: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(frozen=True)
class Rule:
    """One kind of scaling in one engine: its formula and the same in words."""

    compute: Callable[[Keys], Reading]
    text: str


@dataclass(frozen=True)
class Engine:
    """One engine as data.

    Attributes:
        name: as users know it.
        version: the version whose source was read.
        source: the file that has the rules.
        evidence: ``run`` where a test runs the engine's own code against these rules.
        find: how it reads its keys from a config.
        reads: the same in words.
        rules: kind of scaling to its rule.
        otherwise: what it does with another kind, as a rule, or a refusal in words.
        length: how long a text it takes, in words.
        native: format of files that hold the engine's own values; for those the file's plan
            is what it computes.
        pairing: which lanes it pairs; None for those of the model's own weights.
        pairing_why: why those may be others.
        flagged: what it computes with `LayerConfig.flags`; None for engines without such flags.
        not_run: what of the rules was read from the source only, where the evidence is ``run``.
    """

    name: str
    version: str
    source: str
    evidence: Evidence
    find: Callable[[LayerConfig], Keys]
    reads: str
    rules: Mapping[str, Rule]
    otherwise: Rule | str
    length: str
    native: str = ""
    pairing: Callable[[LayerConfig], Pairing] | None = None
    pairing_why: str = ""
    flagged: Callable[[Keys, Reading], Reading] | None = None
    not_run: str = ""


@dataclass(frozen=True)
class EngineView:
    """What one engine makes of one kind of layer.

    Attributes:
        engine: its name.
        version: the version read.
        evidence: ``run`` or ``read from source``.
        refusal: why it stops; empty where it computes.
        rule: the rule that applies, in words.
        reading: what it computes; None where it stops.
        limit: longest text it takes; None where the config states none.
        length_rule: where that comes from.
        notes: keys ignored, defaults taken.
        pairing: which lanes it pairs.
    """

    engine: str
    version: str
    evidence: Evidence
    refusal: str = ""
    rule: str = ""
    reading: Reading | None = None
    limit: int | None = None
    length_rule: str = ""
    notes: tuple[str, ...] = ()
    pairing: Pairing = "half"


def named_family(layer: LayerConfig, families: Collection[str]) -> LayerConfig | None:
    """Return the layer under the name by which an engine knows its family; None if by none.

    Configs of several models call their text part ``gemma3_text`` or so; engines know one name.
    """
    name = layer.model_type
    for known in (name, name.removesuffix("_text"), f"{name}_text"):
        if known in families:
            return replace(layer, model_type=known)
    return None


def view(engine: Engine, layer: LayerConfig) -> EngineView:
    """Return what an engine makes of one kind of layer."""
    blank = EngineView(
        engine.name, engine.version, engine.evidence, limit=layer.stated, length_rule=engine.length
    )
    try:
        keys = engine.find(layer)
        rule = engine.rules.get(keys.kind, engine.otherwise)
        if isinstance(rule, str):
            raise RefusedError(rule.format(kind=keys.kind))
        # Infinite and undefined numbers are told below, for all rules alike.
        with np.errstate(all="ignore"):
            reading = rule.compute(keys)
            if engine.flagged is not None and layer.flags is not None:
                reading = engine.flagged(keys, reading)
        numbers = (*reading.inv_freq.tolist(), reading.amplitude, reading.softmax)
        if not all(map(math.isfinite, numbers)) or min(reading.amplitude, reading.softmax) <= 0:
            raise RefusedError("computes infinite, undefined or negative numbers from these values")
    except RefusedError as error:
        return replace(blank, refusal=str(error))
    # Its own arithmetic would stop there too. Values of a wrong type are refused where they are
    # taken from the block, so any other exception is a mistake in a rule, and is not hidden.
    except ArithmeticError as error:
        return replace(blank, refusal=f"stops on these values ({error})")
    notes = [*keys.notes, *reading.notes]
    pairing = layer.pairing if engine.pairing is None else engine.pairing(layer)
    if pairing != layer.pairing:
        notes.append(f"pairing {pairing}: {engine.pairing_why}")
    return replace(
        blank,
        rule=rule.text,
        reading=reading,
        limit=blank.limit if reading.limit is None else reading.limit,
        notes=tuple(notes),
        pairing=pairing,
    )
