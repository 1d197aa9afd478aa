"""The row of the family table: what can differ between families of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..axes import MultiAxisRope
from ..encodings.lane_turns import LaneTurns
from ..rope import Pairing, Rope


@dataclass(frozen=True)
class Sizes:
    """Sizes that the family's config class fills in.

    ``kv_heads`` None means as many as query heads; ``head_dim`` None means hidden / heads;
    ``length`` None that the family knows no longest text.
    """

    hidden: int
    heads: int
    kv_heads: int | None
    layers: int
    head_dim: int | None
    length: int | None


@dataclass(frozen=True)
class LayerRule:
    """Which layer is of which kind where the config lists no ``layer_types``.

    Attributes:
        form: ``uniform`` all alike, and ``layer_types`` is not read; ``period`` the last of
            every ``every`` layers full (the first with ``first``), the others ``others``;
            ``from_layer`` sliding from ``max_window_layers`` on; ``alternate_below`` every
            other layer sliding below it; ``listed`` full at the indices under ``key``,
            ``others`` elsewhere; ``marked`` ``others`` at the indices under ``key``;
            ``without_rope`` and ``with_rope``: ``others`` where the layer has no rope or has
            one; ``computed`` what ``kinds`` returns.
        every: length of the period, or the index of the first (last) local layer.
        key: key of the config that overrides ``every`` or lists indices.
        others: kind of the layers that are not full.
        first: whether the full layer comes first in the period.
        kinds: for ``computed``: from the config's values and the number of layers to the kind
            of every layer.
    """

    form: Literal[
        "uniform",
        "period",
        "from_layer",
        "alternate_below",
        "listed",
        "marked",
        "without_rope",
        "with_rope",
        "computed",
    ] = "uniform"
    every: int = 0
    key: str | None = None
    others: str = "sliding_attention"
    first: bool = False
    kinds: Callable[[Mapping[str, Any], int], list[str]] | None = None


@dataclass(frozen=True)
class Window:
    """The family's window.

    Attributes:
        default: what the config class fills in; None for no window.
        switch: boolean key without which (default false) there is no window.
        each_side: the number counts both sides, as encoders have it.
        halved_by: boolean key that turns the number into half of it plus one.
    """

    default: int | None = None
    switch: str | None = None
    each_side: bool = False
    halved_by: str | None = None


@dataclass(frozen=True)
class LocalRope:
    """What sliding layers do differently where the rope block is flat.

    Attributes:
        theta: their base; None for that of the other layers.
        keys: keys of the config that give it.
        scaled: whether the scaling applies to them too.
    """

    theta: float | None
    keys: tuple[str, ...] = ()
    scaled: bool = False


@dataclass(frozen=True)
class Latent:
    """Latent attention: heads of unrotated lanes followed by rotated ones. Default sizes."""

    plain: int
    rotated: int
    value: int | None


@dataclass(frozen=True)
class AxesRule:
    """Positions of several axes.

    Attributes:
        layout: ``sections`` one axis after the other; ``interleaved`` every third plane;
            ``alternating_with_tail`` Ernie's; ``rows_and_columns`` the two axes in turn;
            ``doubled`` sections cut from the doubled table (HunYuan-VL).
        sections: default planes of each axis; empty where there is no default.
    """

    layout: Literal[
        "sections", "interleaved", "alternating_with_tail", "rows_and_columns", "doubled"
    ]
    sections: tuple[int, ...] = ()


@dataclass(frozen=True)
class Condition:
    """A key that decides whether the family's code uses a rope at all.

    Attributes:
        key: the key.
        values: with one of these there is a rope.
        default: what the config class fills in.
        otherwise: what the model has instead, to refuse it by; None where its layers then have
            no positions, and are read as that.
    """

    key: str
    values: tuple[Any, ...]
    default: Any
    otherwise: str | None


NoRope = Literal["never", "always", "not_sliding", "full_if_windowed", "listed"]
Temperature = Literal["block", "layers_without_rope"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """One family of models.

    Attributes:
        defaults_of: where defaults come from, in words.
        sizes: default sizes.
        pairing: how lanes are paired.
        theta: default base.
        partial: default share of rotated lanes; None if the family's code turns all lanes
            and reads no share.
        rotary_dim: default number of rotated lanes, for families that count them.
        layers: kinds of layers.
        window: the window, or None where the family's code reads none.
        no_rope: which layers have no rope: ``always`` all, ``not_sliding`` all but windowed ones,
            ``full_if_windowed`` full layers of a model that has a window, ``listed`` by
            ``no_rope_layers`` (1 means rope) or ``no_rope_layer_interval``.
        local: what sliding layers do differently.
        latent: latent attention, or None.
        pairing_switch: boolean key that, if false, makes the pairing ``half``.
        reordered: whether transformers moves adjacent lanes to halves while running.
        direction: +1 or -1.
        block: rope block that the config class fills in where the file has none.
        kinds: names of scalings that mean another one in this family.
        spellings: keys of this family for concepts of `spellings.SPELLINGS`, tried first.
        full_head_dim: key and default of another head_dim on full layers.
        temperature: which rule multiplies queries by position.
        trained_length: default of the config class for the original length.
        one_kv_head: boolean keys: one key-value head if the first is true (the default) and
            the second is not.
        axes: positions of several axes, or None.
        axial: positions of images or video and no text: from a rope over the head, and the
            config's values, to the rope of several axes. Layers then have no one-axis rope.
        tail: whether the rotated lanes are the last ones of a head.
        block_names: layer kinds whose rope block has another name.
        layer_theta: what ``layer_rope_theta``, one base per layer with 0 for no rope, means:
            ``value`` each layer's base; ``switch`` only whether the layer has a rope.
        scaled_layers: key that lists the layers that are stretched; the others are plain.
        alpha: whether ``alpha`` in a dynamic block is the factor of fixed NTK-aware scaling.
        condition: whether there is a rope at all.
        stepped_ntk: boolean key that turns Qwen-1's dynamic NTK on.
        log_n: boolean key that turns log-n attention on.
        only_default: whether the family's code refuses every scaling.
        prepare: rewrites the values of old configs before they are read.
        requires: keys without which the config is not of this family, and why.
        remarks: notes to show with every model of the family.
        remote: the code travels with the checkpoint.
    """

    defaults_of: str
    sizes: Sizes
    pairing: Pairing = "half"
    theta: float = 10000.0
    partial: float | None = None
    rotary_dim: int | None = None
    layers: LayerRule = LayerRule()
    window: Window | None = None
    no_rope: NoRope = "never"
    local: LocalRope | None = None
    latent: Latent | None = None
    pairing_switch: str | None = None
    reordered: bool = False
    direction: Literal[1, -1] = 1
    block: Mapping[str, Any] | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    full_head_dim: tuple[str, int] | None = None
    temperature: Temperature | None = None
    trained_length: int | None = None
    one_kv_head: tuple[str, str] | None = None
    axes: AxesRule | None = None
    axial: Callable[[Rope, Mapping[str, Any]], MultiAxisRope | LaneTurns] | None = None
    tail: bool = False
    block_names: Mapping[str, str] = field(default_factory=dict)
    layer_theta: Literal["value", "switch"] | None = None
    scaled_layers: str | None = None
    alpha: bool = False
    condition: Condition | None = None
    stepped_ntk: str | None = None
    log_n: str | None = None
    only_default: bool = False
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    requires: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    remote: bool = False


def upstream(name: str, *sizes: int | None, **rest: Any) -> Family:
    """A family of transformers; sizes as in `Sizes`."""
    made: Any = Sizes
    return Family(defaults_of=f"transformers' {name}", sizes=made(*sizes), **rest)


def remote(name: str, *sizes: int | None, **rest: Any) -> Family:
    """A family whose code travels with its checkpoints; sizes as in `Sizes`."""
    made: Any = Sizes
    return Family(
        defaults_of=f"{name}'s own configuration code", sizes=made(*sizes), remote=True, **rest
    )
