"""What a position plan needs a format to say: one table of features.

Each feature can tell whether a plan has it and, for ``--lossy``, what is left of the plan
without it. Targets list the features they can say; see `targets`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..models.plan import LayerPositions, LogNTemperature, ModelPositions, QueryTemperature
from ..rope import Rope
from ..scaling import (
    Clipped,
    DynamicNTK,
    Learned,
    Linear,
    Llama3,
    LongRoPE,
    Plain,
    Proportional,
    Resonance,
    Scaling,
    SteppedNTK,
    YaRN,
)
from ..scaling.yarn import temperature
from .plan_changes import each_layer, each_rope, ropes


@dataclass(frozen=True)
class Feature:
    """Something that a plan can need.

    Attributes:
        name: in words, as it stands in messages.
        has: tells whether a plan needs it; gives what to show, or an empty text.
        without: the plan without it.
    """

    name: str
    has: Callable[[ModelPositions], str]
    without: Callable[[ModelPositions], ModelPositions]


def _scaling(kind: type[Scaling], name: str) -> Feature:
    def has(plan: ModelPositions) -> str:
        found = [rope.scaling for rope in ropes(plan) if type(rope.scaling) is kind]
        return repr(found[0]) if found else ""

    def without(plan: ModelPositions) -> ModelPositions:
        return each_rope(
            plan,
            lambda rope: (
                rope.with_scaling(Plain(original_length=rope.original_length))
                if type(rope.scaling) is kind
                else rope
            ),
        )

    return Feature(name, has, without)


def _of_ropes(name: str, has: Callable[[Rope], str], without: Callable[[Rope], Rope]) -> Feature:
    def shown(plan: ModelPositions) -> str:
        return next((text for rope in ropes(plan) if (text := has(rope))), "")

    return Feature(
        name,
        shown,
        lambda plan: each_rope(plan, lambda rope: without(rope) if has(rope) else rope),
    )


def _of_scaling(
    name: str, kind: type[Scaling], has: Callable[[Any], str], **defaults: Any
) -> Feature:
    return _of_ropes(
        name,
        lambda rope: has(rope.scaling) if type(rope.scaling) is kind else "",
        lambda rope: rope.with_scaling(dataclasses.replace(rope.scaling, **defaults)),
    )


def _amplitude(scaling: YaRN) -> str:
    own = scaling.amplitude()
    return "" if own == temperature(scaling.factor) else f"attention factor {own:.6g}"


def _amplitude_of_one(scaling: YaRN) -> str:
    text = _amplitude(scaling)
    return text if text and scaling.amplitude() == 1 else ""


def _amplitude_other(scaling: YaRN) -> str:
    return "" if scaling.amplitude() == 1 else _amplitude(scaling)


def _betas(scaling: YaRN) -> str:
    given = (scaling.beta_fast, scaling.beta_slow)
    return "" if given == (32.0, 1.0) else f"beta_fast {given[0]:g}, beta_slow {given[1]:g}"


def _bounds(scaling: Llama3) -> str:
    if (scaling.low_freq_factor, scaling.high_freq_factor) == (1.0, 4.0):
        return ""
    return f"low_freq_factor {scaling.low_freq_factor:g}, high {scaling.high_freq_factor:g}"


def _pairing(pairing: str) -> Feature:
    other: Any = "half" if pairing == "adjacent" else "adjacent"
    return _of_ropes(
        f"{pairing} pairing",
        lambda rope: "the weights must be permuted too" if rope.pairing == pairing else "",
        lambda rope: dataclasses.replace(rope, pairing=other),
    )


def _full(rope: Rope) -> Rope:
    return dataclasses.replace(rope, rotary_dim=rope.head_dim, rotary_offset=0)


def _unstretched_lengths(plan: ModelPositions) -> ModelPositions:
    def forget(rope: Rope) -> Rope:
        if isinstance(rope.scaling, Plain):
            return rope.with_scaling(Plain())
        return rope

    return dataclasses.replace(each_rope(plan, forget), stated_length=None)


def _several_ropes(plan: ModelPositions) -> str:
    found = ropes(plan)
    return f"{len(found)} different ropes" if len(found) > 1 else ""


def _one_rope(plan: ModelPositions) -> ModelPositions:
    main = plan.rope
    return plan if main is None else each_rope(plan, lambda _: main)


def _linear_layers(plan: ModelPositions) -> str:
    return next((la.kind for la in plan.layers if la.kind in _WITHOUT_ATTENTION), "")


_WITHOUT_ATTENTION = ("linear_attention", "conv", "mamba", "cross_attention", "no_attention")


def _nope(plan: ModelPositions) -> str:
    count = sum(
        la.rope is None and la.axes is None and la.kind not in _WITHOUT_ATTENTION
        for la in plan.layers
    )
    return f"{count} of {len(plan.layers)}" if count else ""


def _with_rope(plan: ModelPositions) -> ModelPositions:
    main = plan.rope
    return each_layer(
        plan, lambda la: dataclasses.replace(la, rope=main) if la.rope is None else la
    )


def _windows(plan: ModelPositions) -> str:
    found = sorted({la.window for la in plan.layers if la.window is not None})
    return ", ".join(map(str, found))


def _mixed_windows(plan: ModelPositions) -> str:
    attention = [la for la in plan.layers if la.kind not in _WITHOUT_ATTENTION]
    return "windows on some layers" if len({la.window for la in attention}) > 1 else ""


def _no_window(plan: ModelPositions) -> ModelPositions:
    def change(la: LayerPositions) -> LayerPositions:
        if la.kind not in ("sliding_attention", "chunked_attention"):
            return la
        return dataclasses.replace(la, window=None, kind="full_attention")

    return each_layer(plan, change)


def _chunks(plan: ModelPositions) -> str:
    return next(
        (f"chunks of {la.window}" for la in plan.layers if la.kind == "chunked_attention"), ""
    )


def _tempered(plan: ModelPositions, *, roped: bool) -> str:
    for la in plan.layers:
        found = la.query_temperature
        if isinstance(found, QueryTemperature) and (la.rope is not None) == roped:
            return f"beta {found.beta:g}"
    return ""


def _log_n(plan: ModelPositions) -> str:
    for la in plan.layers:
        if isinstance(la.query_temperature, LogNTemperature):
            return f"queries grow beyond {la.query_temperature.original_length} tokens"
    return ""


def _untempered(plan: ModelPositions) -> ModelPositions:
    return each_layer(plan, lambda la: dataclasses.replace(la, query_temperature=None))


def _softmax(plan: ModelPositions) -> str:
    found = {la.softmax_multiplier for la in plan.layers} - {1.0}
    return f"{max(found):.6g}" if found else ""


def _no_softmax(plan: ModelPositions) -> ModelPositions:
    return each_layer(plan, lambda la: dataclasses.replace(la, softmax_multiplier=1.0))


def _value_heads(plan: ModelPositions) -> str:
    rope = plan.rope
    if plan.value_dim is None or rope is None or rope.rotary_offset:
        return ""
    return "" if plan.value_dim == rope.head_dim else f"{plan.value_dim} lanes"


def _no_value_heads(plan: ModelPositions) -> ModelPositions:
    rope = plan.rope
    return dataclasses.replace(plan, value_dim=None if rope is None else rope.head_dim)


def _some_axes(plan: ModelPositions) -> str:
    found = any(la.axes is not None for la in plan.layers)
    return "multi-axis positions" if found else ""


def _no_axes(plan: ModelPositions) -> ModelPositions:
    return each_layer(plan, lambda la: dataclasses.replace(la, axes=None))


FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        # First: what is under learned frequencies may need features of its own.
        _of_ropes(
            "learned frequencies",
            lambda rope: "of the weights" if isinstance(rope.scaling, Learned) else "",
            lambda rope: rope.with_scaling(getattr(rope.scaling, "under", rope.scaling)),
        ),
        _of_ropes(
            "whole wavelengths",
            lambda rope: "resonance" if isinstance(rope.scaling, Resonance) else "",
            lambda rope: rope.with_scaling(getattr(rope.scaling, "inner", rope.scaling)),
        ),
        _scaling(Clipped, "clipped planes"),
        _scaling(Linear, "linear scaling"),
        _of_scaling(
            "fractional factor", Linear,
            lambda s: "" if float(s.factor).is_integer() else f"factor {s.factor:g}",
            factor=1.0,
        ),
        _of_ropes(
            "original length of linear scaling",
            lambda rope: str(rope.original_length)
            if isinstance(rope.scaling, Linear) and rope.original_length else "",
            lambda rope: rope.with_scaling(
                dataclasses.replace(rope.scaling, original_length=None)
            ),
        ),
        _scaling(DynamicNTK, "dynamic scaling"),
        _scaling(SteppedNTK, "dynamic scaling in steps"),
        _scaling(YaRN, "yarn scaling"),
        _of_scaling(
            "yarn with the ramp in turns", YaRN,
            lambda s: "ramp rotations" if s.ramp == "rotations" else "", ramp="index",
        ),
        _of_scaling(
            "yarn without rounding", YaRN,
            lambda s: "truncate false" if s.truncate is False else "", truncate=None,
        ),
        _of_scaling(
            "yarn with rounding", YaRN,
            lambda s: "truncate true" if s.ramp == "index" and s.truncate is not False else "",
            truncate=False,
        ),
        _of_scaling("yarn betas", YaRN, _betas, beta_fast=32.0, beta_slow=1.0),
        _of_scaling(
            "yarn without amplitude", YaRN, _amplitude_of_one,
            attention_factor=None, mscale=None, mscale_all_dim=None,
        ),
        _of_scaling(
            "yarn amplitude of its own", YaRN, _amplitude_other,
            attention_factor=None, mscale=None, mscale_all_dim=None,
        ),
        _scaling(Llama3, "llama3 scaling"),
        _of_scaling("llama3 bounds", Llama3, _bounds, low_freq_factor=1.0, high_freq_factor=4.0),
        _of_scaling(
            "llama3 lower bound", Llama3,
            lambda s: "" if s.low_freq_factor == 1 else f"low_freq_factor {s.low_freq_factor:g}",
            low_freq_factor=1.0,
        ),
        _of_scaling(
            "llama3 original length", Llama3,
            lambda s: "" if s.original_length == 8192 else str(s.original_length),
            original_length=8192,
        ),
        _scaling(LongRoPE, "longrope scaling"),
        _scaling(Proportional, "proportional scaling"),
        _pairing("half"),
        _pairing("adjacent"),
        _of_ropes(
            "partial rotary",
            lambda rope: f"{rope.rotary_dim} of {rope.head_dim} lanes"
            if rope.rotary_dim != rope.head_dim and not rope.rotary_offset else "",
            _full,
        ),
        _of_ropes(
            "latent attention",
            lambda rope: f"lanes from {rope.rotary_offset}" if rope.rotary_offset else "",
            _full,
        ),
        _of_ropes(
            "reversed direction",
            lambda rope: "-1" if rope.direction < 0 else "",
            lambda rope: dataclasses.replace(rope, direction=1),
        ),
        Feature("different ropes by layer", _several_ropes, _one_rope),
        Feature("layers without rope", _nope, _with_rope),
        Feature("layers without attention", _linear_layers, lambda plan: plan),
        Feature("windows", _windows, _no_window),
        Feature("windows on some layers", _mixed_windows, _no_window),
        Feature("chunked attention", _chunks, _no_window),
        Feature(
            "query temperature", lambda plan: _tempered(plan, roped=True), _untempered
        ),
        Feature(
            "query temperature without rope",
            lambda plan: _tempered(plan, roped=False), _untempered,
        ),
        Feature("log-n attention", _log_n, _untempered),
        Feature("softmax multiplier", _softmax, _no_softmax),
        Feature("value heads of another size", _value_heads, _no_value_heads),
        Feature("several position axes", _some_axes, _no_axes),
        Feature(
            "stated length",
            lambda plan: "" if plan.stated_length is None else str(plan.stated_length),
            _unstretched_lengths,
        ),
        Feature(
            "towers beside the language model",
            lambda plan: ", ".join(tower.path for tower in plan.towers),
            lambda plan: dataclasses.replace(plan, towers=()),
        ),
    )
}  # fmt: skip
"""Every feature, by its name."""
