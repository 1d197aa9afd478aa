"""keras-hub 0.32.0: ``utils/transformers/convert_*.py`` and its ``RotaryEmbedding`` layer.

Each converter copies the keys that it knows from the file; other scaling is lost in silence.
"""

from __future__ import annotations

from . import formulas
from .reading import (
    Engine,
    Keys,
    LayerConfig,
    Reading,
    RefusedError,
    Rule,
    as_number,
    named_family,
    number_or_none,
)
from .shared_rules import plain, strict_llama3

BASE_ONLY = frozenset(
    {"mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "qwen3_5",
     "qwen3_5_moe"}
)  # fmt: skip
"""Families whose converter reads the base and no scaling."""
_FIXED_BASE = frozenset({"gemma", "gemma2"})
_GEMMA3 = frozenset({"gemma3", "gemma3_text"})
FAMILIES = BASE_ONLY | _FIXED_BASE | _GEMMA3 | {"llama", "gpt_oss"}
"""Model types with a rule here; its converters know some more, e.g. Gemma 3n and 4."""


def _find(layer: LayerConfig) -> Keys:
    known = named_family(layer, FAMILIES)
    if known is None:
        raise RefusedError(f"not described: no rule for model type {layer.model_type}")
    layer, family = known, known.model_type
    new, old = layer.new or {}, layer.old or {}
    theta = layer.theta
    if family not in _FIXED_BASE | _GEMMA3:
        found = new.get("rope_theta", layer.values.get("rope_theta"))
        if found is None:
            raise RefusedError("stops: rope_theta is missing")
        theta = as_number("rope_theta", found)
    block = {**new, **old} if family in _GEMMA3 else dict(old)
    kind = {"gpt_oss": "gpt-oss yarn"}.get(family, str(block.get("rope_type", "default")))
    notes: tuple[str, ...] = ()
    if family == "llama" and old and kind != "llama3":
        raise RefusedError("stops: rope_scaling must be of rope_type llama3")
    lost = str({**old, **new}.get("rope_type", {**old, **new}.get("type", "default")))
    if family in BASE_ONLY | _FIXED_BASE:
        kind = "default"
    if kind == "default" and lost != "default":
        notes = (f"{lost} is not read by this converter: plain rope",)
    original = block.get("original_max_position_embeddings")
    return Keys(
        kind if not layer.unscaled else "default", block, theta, layer.rotary_dim, layer,
        number_or_none(original), notes,
    )  # fmt: skip


def _linear(keys: Keys) -> Reading:
    return Reading(formulas.ladder(keys.theta, keys.dim) / keys.given("factor", 1.0))


def _gpt_oss(keys: Keys) -> Reading:
    factor = keys.given("factor", 32.0) if keys.layer.old else 1.0
    notes = ["beta 32 and 1, original length 4096 and truncate false are fixed in its code"]
    if not keys.layer.old:
        notes.append("rope_scaling is missing: nothing is stretched (rope_parameters is not read)")
    # Its magnitude is 0.1 ln f + 1 for any factor.
    amplitude = 0.1 * formulas.log(factor) + 1.0
    frequencies = formulas.yarn(keys.theta, keys.dim, factor, 4096.0, truncate=False)
    return Reading(frequencies, amplitude, notes=tuple(notes))


KERAS_HUB = Engine(
    name="keras-hub",
    version="0.32.0",
    source="utils/transformers/convert_*.py, layers/modeling/rotary_embedding.py",
    evidence="run",
    not_run="its converters other than those of Llama and gpt-oss",
    find=_find,
    reads="rope_theta, also of rope_parameters; rope_scaling in its Llama, Gemma 3 and gpt-oss",
    rules={
        "default": Rule(plain, "theta^(-2i/d)"),
        "linear": Rule(_linear, "Gemma 3: divided by factor"),
        "gpt-oss yarn": Rule(_gpt_oss, "gpt-oss: never rounds; only factor of rope_scaling read"),
        "llama3": Rule(strict_llama3, "Llama: all four values of rope_scaling required"),
    },
    otherwise="cannot: its converters have no {kind}",
    length="the task's sequence_length; nothing stops longer texts",
)
