"""What a reader of model files returns: the position plan of every layer."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from ..axes import MultiAxisRope
from ..encodings.lane_turns import LaneTurns
from ..errors import InputError
from ..rope import Rope

Encoding = Literal["rope", "axes", "none"]
Axes = MultiAxisRope | LaneTurns
"""Positions of several axes: a rotation, or what only looks like one."""


@dataclass(frozen=True)
class Sourced:
    """A value and where it came from.

    ``source`` is a key of the file (``config.json: rope_theta``), a default of a named
    runtime (``default of transformers' LlamaConfig``), or what it was derived from
    (``derived: hidden_size / num_attention_heads``).
    """

    value: Any
    source: str


@dataclass(frozen=True)
class QueryTemperature:
    """Queries multiplied by ``1 + beta ln(1 + floor((position + offset) / original_length))``.

    Ministral 3 and Mistral 4 with offset 0, Llama 4's layers without rope with offset 1. A
    number of its own: never folded into the attention factor or the softmax multiplier.
    """

    beta: float
    original_length: int
    offset: int = 0


@dataclass(frozen=True)
class LogNTemperature:
    """Queries multiplied by ``max(1, ln(position + 1) / ln(original_length))``: log-n attention.

    Qwen-1 with ``use_logn_attn``. For texts within the trained length it changes nothing.
    """

    original_length: int

    def factor(self, position: int) -> float:
        """Return what the query at a position, counted from 0, is multiplied by."""
        return max(1.0, math.log(position + 1) / math.log(self.original_length))


@dataclass(frozen=True)
class LayerPositions:
    """How one layer sees positions.

    Attributes:
        index: the layer's number, from 0.
        kind: the layer type as the model names it, e.g. ``full_attention``.
        rope: the rotary embedding, or None where the layer has none (NoPE).
        window: tokens that a query can look back over, itself included; None for all.
        softmax_multiplier: what the softmax scale is multiplied by (latent attention with
            ``mscale_all_dim``); 1.0 elsewhere.
        query_temperature: position-dependent factor on queries, of either kind, or None.
        axes: which position axis turns which plane, where positions have several; ``rope`` is
            then what this is on text, where all axes are equal, or None where the model reads
            no text.
    """

    index: int
    kind: str
    rope: Rope | None
    window: int | None = None
    softmax_multiplier: float = 1.0
    query_temperature: QueryTemperature | LogNTemperature | None = None
    axes: Axes | None = None

    @property
    def encoding(self) -> Encoding:
        """``rope``; ``axes`` where only a multi-axis rope is there; or ``none``."""
        if self.rope is not None:
            return "rope"
        return "none" if self.axes is None else "axes"


@dataclass(frozen=True)
class Tower:
    """A part beside the language model that has positions of its own.

    Attributes:
        path: the key of the config that describes it, e.g. ``vision_config``.
        model_type: the family of the part.
        layers: how many layers it has; None if unknown.
        kind: layer type, where the part has several; else ``full_attention``.
        positions: its rope.
        notes: what a user should know.
    """

    path: str
    model_type: str
    layers: int | None
    kind: str
    positions: Rope | Axes
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "path": self.path,
            "model_type": self.model_type,
            "layers": self.layers,
            "kind": self.kind,
            "positions": self.positions.to_dict(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ModelPositions:
    """The position plan of one model, each value with where it came from.

    Attributes:
        path: the file or folder that was read.
        format: the kind of file: ``hf``, ``gguf``, ``mlx``, or a row of `models.formats`.
        model_type: the family as the file names it.
        layers: one entry per layer, in order.
        original_length: length the model was trained on before stretching; None if unknown.
        stated_length: the length the file says the model can take; None if it does not.
        heads: query heads per layer; None if unknown.
        kv_heads: key and value heads per layer; None if unknown.
        value_dim: lanes of a value head; None if unknown.
        sources: where each value came from, by name (``theta``, ``head_dim``, ``scaling``…).
        notes: what a user should know, in whole sentences: assumed values, odd lengths.
        towers: parts beside the language model: vision and audio encoders, talkers.
    """

    path: str
    format: str
    model_type: str
    layers: tuple[LayerPositions, ...]
    original_length: int | None
    stated_length: int | None
    heads: int | None
    kv_heads: int | None
    value_dim: int | None
    sources: dict[str, Sourced]
    notes: tuple[str, ...] = ()
    towers: tuple[Tower, ...] = ()

    @property
    def rope(self) -> Rope | None:
        """The rope of the model's long-range layers, or None if no layer has one.

        Long-range are the rotating layers without a window; if every rotating layer has
        one, all rotating layers.
        """
        rotating = [layer for layer in self.layers if layer.rope is not None]
        unwindowed = [layer for layer in rotating if layer.window is None]
        for layer in unwindowed or rotating:
            return layer.rope
        return None

    def stretchable(self) -> tuple[Rope, int]:
        """Return the rope of the long-range layers and the original length.

        Raises:
            InputError: no layer rotates, or the trained length is unknown.
        """
        rope, original = self.rope, self.original_length
        if rope is None or original is None:
            raise InputError(
                self.path,
                found="no rotary embedding" if rope is None else "no original length",
                expected="a model with RoPE whose trained length is known",
                fix="nothing to extend" if rope is None else "add max_position_embeddings",
            )
        return rope, original

    def groups(self) -> list[tuple[LayerPositions, tuple[int, ...]]]:
        """Return the distinct layer plans, each with the indices of its layers, in order."""
        found: dict[Any, list[int]] = {}
        first: dict[Any, LayerPositions] = {}
        for layer in self.layers:
            key = (
                layer.kind,
                layer.rope,
                layer.window,
                layer.softmax_multiplier,
                layer.query_temperature,
                layer.axes,
            )
            found.setdefault(key, []).append(layer.index)
            first.setdefault(key, layer)
        return [(first[key], tuple(indices)) for key, indices in found.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values.

        Ropes are listed once each, under ``ropes``, and multi-axis ropes under ``axes``; a
        layer names its own by the index there, or has null.
        """
        ropes: list[Rope] = []
        axes: list[Axes] = []
        layers = []
        for layer in self.layers:
            if layer.axes is not None and layer.axes not in axes:
                axes.append(layer.axes)
            if layer.rope is not None and layer.rope not in ropes:
                ropes.append(layer.rope)
            tempered = layer.query_temperature
            layers.append(
                {
                    "index": layer.index,
                    "kind": layer.kind,
                    "encoding": layer.encoding,
                    "rope": None if layer.rope is None else ropes.index(layer.rope),
                    "axes": None if layer.axes is None else axes.index(layer.axes),
                    "window": layer.window,
                    "softmax_multiplier": layer.softmax_multiplier,
                    "query_temperature": _temperature(tempered),
                }
            )
        return {
            "path": self.path,
            "format": self.format,
            "model_type": self.model_type,
            "original_length": self.original_length,
            "stated_length": self.stated_length,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "value_dim": self.value_dim,
            "ropes": [
                {**rope.to_dict(), "attention_factor": rope.attention_factor(self.stated_length)}
                for rope in ropes
            ],
            "axes": [item.to_dict() for item in axes],
            "layers": layers,
            "towers": [tower.to_dict() for tower in self.towers],
            "sources": {name: dataclasses.asdict(item) for name, item in self.sources.items()},
            "notes": list(self.notes),
        }


def _temperature(value: QueryTemperature | LogNTemperature | None) -> dict[str, Any] | None:
    if value is None:
        return None
    kind = {"kind": "log-n"} if isinstance(value, LogNTemperature) else {}
    return {**kind, **dataclasses.asdict(value)}
