"""Changes of whole position plans: every rope, every layer; and what a writer must know of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..errors import InputError
from ..models.plan import LayerPositions, ModelPositions
from ..rope import Rope
from ..scaling import NTK, Llama3, NTKByParts, NTKCritical, Plain, Scaling, YaRN, ntk_base

# Every field that the writers know. A plan with another one set is refused: it would be lost.
_KNOWN_FIELDS: dict[type, frozenset[str]] = {
    ModelPositions: frozenset(
        {
            "path", "format", "model_type", "layers", "original_length", "stated_length", "heads",
            "kv_heads", "value_dim", "sources", "notes", "towers",
        }
    ),
    LayerPositions: frozenset(
        {"index", "kind", "rope", "window", "softmax_multiplier", "query_temperature", "axes"}
    ),
    Rope: frozenset(
        {
            "head_dim", "rotary_dim", "theta", "pairing", "scaling", "rotary_offset", "direction",
        }
    ),
}  # fmt: skip


def check_fields(plan: ModelPositions) -> None:
    """Refuse a plan that says something the writers do not know.

    Raises:
        InputError: a field beyond those known, with another value than its default.
    """
    things: list[Any] = [plan, *plan.layers]
    things += [layer.rope for layer in plan.layers if layer.rope is not None]
    for thing in things:
        known = _KNOWN_FIELDS[type(thing)]
        for item in dataclasses.fields(thing):
            if item.name in known:
                continue
            value = getattr(thing, item.name)
            default = item.default
            if default is dataclasses.MISSING and item.default_factory is not dataclasses.MISSING:
                default = item.default_factory()
            if value != default:
                raise InputError(
                    f"{plan.path}: {item.name}",
                    found=f"{value!r}, which the writers do not know",
                    expected=f"{default!r}",
                    fix="this model cannot be converted yet",
                )


def normalised(plan: ModelPositions) -> ModelPositions:
    """Return the plan with scalings that are a changed base, or another's formula, as such.

    NTK and the critical-dimension rule are plain rope with a larger base; by-parts with the ramp
    in turns is llama3, and with the ramp over indices YaRN with an attention factor of 1.
    """

    def plain(rope: Rope) -> Rope:
        scaling = rope.scaling
        if isinstance(scaling, NTK):
            base = ntk_base(rope.theta, scaling.factor, rope.rotary_dim)
        elif isinstance(scaling, NTKCritical):
            base = scaling.base(rope.theta)
        elif isinstance(scaling, NTKByParts):
            return rope.with_scaling(_without_temperature(scaling))
        else:
            return rope
        return dataclasses.replace(
            rope, theta=base, scaling=Plain(original_length=scaling.original_length)
        )

    return each_rope(plan, plain)


def _without_temperature(scaling: NTKByParts) -> Scaling:
    if scaling.ramp == "rotations":
        return Llama3(
            factor=scaling.factor,
            low_freq_factor=scaling.beta_slow,
            high_freq_factor=scaling.beta_fast,
            original_length=scaling.original_length,
        )
    return YaRN(
        factor=scaling.factor,
        original_length=scaling.original_length,
        beta_fast=scaling.beta_fast,
        beta_slow=scaling.beta_slow,
        truncate=scaling.truncate,
        attention_factor=1.0,
    )


def each_rope(plan: ModelPositions, change: Callable[[Rope], Rope]) -> ModelPositions:
    """Return the plan with every rope changed."""
    layers = tuple(
        layer if layer.rope is None else dataclasses.replace(layer, rope=change(layer.rope))
        for layer in plan.layers
    )
    out = dataclasses.replace(plan, layers=layers)
    rope = out.rope
    return dataclasses.replace(out, original_length=None if rope is None else rope.original_length)


def each_layer(
    plan: ModelPositions, change: Callable[[LayerPositions], LayerPositions]
) -> ModelPositions:
    """Return the plan with every layer changed."""
    out = dataclasses.replace(plan, layers=tuple(change(layer) for layer in plan.layers))
    rope = out.rope
    return dataclasses.replace(out, original_length=None if rope is None else rope.original_length)


def ropes(plan: ModelPositions) -> list[Rope]:
    """Return the distinct ropes, in order of their first layer."""
    return list(dict.fromkeys(layer.rope for layer in plan.layers if layer.rope is not None))
