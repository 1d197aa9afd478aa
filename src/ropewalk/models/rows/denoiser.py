"""What one class of diffusers says of its positions: a row of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..keyed_file import KeyedFile
from ..layers import LayerKind
from .diffusers_layouts import Key, Layout


@dataclass(frozen=True, kw_only=True)
class Denoiser:
    """One class.

    Attributes:
        layout: from the config and its heads to the rope.
        layers: keys that count layers, which add up.
        heads: key of the number of heads.
        head_dim: key of the lanes of a head; None where they are width / heads.
        width: key of the width, where ``head_dim`` is None; None for what ``total`` adds up to.
        total: key of a list whose sum is the lanes of a head; heads are then width / lanes.
        kv_heads: key of the number of key-value heads.
        only_if: a key, the values with which there is this rope, the default of the class, and
            what the model has instead.
        kinds: from the config and the number of layers to the layers, where they differ.
        beside: ropes of other streams: path, layout, and how their heads are told.
        remarks: what a user should know: what the positions are and who computes them.
    """

    layout: Layout
    layers: tuple[Key, ...] = (("num_layers", 0),)
    heads: Key = ("num_attention_heads", 0)
    head_dim: Key | None = ("attention_head_dim", 0)
    width: Key | None = None
    total: Key | None = None
    kv_heads: Key | None = None
    only_if: tuple[str, tuple[Any, ...], Any, str] | None = None
    kinds: Callable[[KeyedFile, int], list[LayerKind]] | None = None
    beside: Mapping[str, Denoiser] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
