"""transformers 5.24.0: ``modeling_rope_utils.py`` and the model code around it."""

from __future__ import annotations

from dataclasses import replace

from . import formulas
from .config_classes import standardised
from .reading import Engine, Keys, LayerConfig, Reading, Rule
from .shared_rules import LINEAR, PLAIN, mscale_ratio, strict_llama3, truncates

# Families whose own code reads alpha of a dynamic block.
_ALPHA_FAMILIES = frozenset({"hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl"})


def _find(layer: LayerConfig) -> Keys:
    return standardised(layer)


def _yarn(keys: Keys) -> Reading:
    original = keys.need_original()
    factor = keys.get("factor")
    factor = keys.stated / original if factor is None else factor
    notes = []
    truncate = truncates(keys)
    if keys.layer.nested and not truncate:
        # It looks the key up in the dict of all layer types.
        truncate = True
        notes.append("truncate is not found within a block of one layer type")
    amplitude = keys.get("attention_factor")
    if amplitude is None:
        ratio = mscale_ratio(keys, factor)
        amplitude = formulas.magnitude(factor) if ratio is None else ratio
    frequencies = formulas.yarn(
        keys.theta,
        keys.dim,
        factor,
        original,
        fast=keys.get("beta_fast") or 32.0,
        slow=keys.get("beta_slow") or 1.0,
        truncate=truncate,
    )
    return Reading(frequencies, amplitude, keys.layer.softmax_multiplier, tuple(notes))


def _dynamic(keys: Keys) -> Reading:
    if keys.layer.model_type in _ALPHA_FAMILIES and keys.get("alpha"):
        base = formulas.grown_base(keys.theta, keys.dim, keys.need("alpha"))
        return Reading(formulas.ladder(base, keys.dim))
    factor, stated = keys.need("factor"), keys.stated
    growth = factor * max(keys.length, stated) / stated - (factor - 1)
    base = formulas.grown_base(keys.theta, keys.dim, growth)
    return Reading(formulas.ladder(base, keys.dim))


def _longrope(keys: Keys) -> Reading:
    original = keys.need_original()
    factor = keys.get("factor")
    factor = keys.stated / original if factor is None else factor
    long = keys.length > original
    divisors = keys.need_list("long_factor" if long else "short_factor")
    amplitude = keys.get("attention_factor")
    if amplitude is None:
        amplitude = formulas.longrope_magnitude(factor, original)
    own = keys.get("long_mscale" if long else "short_mscale")
    if keys.layer.model_type == "phimoe" and own is not None:
        amplitude = own
    return Reading(
        formulas.divided(formulas.ladder(keys.theta, keys.dim), divisors),
        amplitude,
        keys.layer.softmax_multiplier,
    )


def _proportional(keys: Keys) -> Reading:
    head = keys.layer.head_dim
    rotated = formulas.whole(keys.given("partial_rotary_factor", 1.0) * head // 2)
    return Reading(
        formulas.proportional(keys.theta, head, rotated, keys.given("factor", 1.0)),
    )


def _llama3(keys: Keys) -> Reading:
    return replace(strict_llama3(keys), softmax=keys.layer.softmax_multiplier)


TRANSFORMERS = Engine(
    name="transformers",
    version="5.24.0",
    source="modeling_rope_utils.py",
    evidence="run",
    find=_find,
    reads="rope_parameters, or rope_theta and rope_scaling, through its config classes",
    rules={
        "default": PLAIN,
        "linear": LINEAR,
        "dynamic": Rule(
            _dynamic,
            "base grows with the text beyond max_position_embeddings; alpha in Hunyuan's own code",
        ),
        "yarn": Rule(
            _yarn,
            "truncate honoured, not within nested blocks; attention_factor, else mscale and "
            "mscale_all_dim, else 0.1 ln f + 1; beta 0 is taken as missing",
        ),
        "longrope": Rule(
            _longrope,
            "long factors where the text is longer than the original length; attention_factor, "
            "else by factor, else by the ratio of lengths",
        ),
        "llama3": Rule(_llama3, "all four values required"),
        "proportional": Rule(_proportional, "partial_rotary_factor of the head; divided by factor"),
    },
    otherwise="stops: it has no rope_type {kind}",
    length="max_position_embeddings; nothing stops longer texts",
)
