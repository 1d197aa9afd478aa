"""exllamav3 1.6.5: ``model/config.py`` (``read_rope_settings_default``) and ``util/rope.py``."""

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
from .shared_rules import PLAIN, lenient_llama3, mscale_ratio, truncates

_RATIO_FAMILIES = frozenset({"deepseek_v3", "kimi_k2"})
THETA: dict[str, float] = {
    "gemma3": 1e6, "gemma3_text": 1e6, "lfm2": 1e6, "lfm2_moe": 1e6, "qwen2_5_vl": 5e6,
    "qwen3_vl": 5e6, "qwen3_5": 1e7, "qwen3_5_moe": 1e7, "muse_glimmer": 5e5,
}  # fmt: skip
"""Families whose code assumes another base than 10,000 where the file has none."""
FAMILIES = frozenset(THETA) | {
    "afmoe", "apertus", "arcee", "cohere", "cohere2", "deepseek_v3", "dots1", "ernie4_5",
    "ernie4_5_moe", "exaone4", "gemma2", "glm4", "glm4_moe", "glm4_moe_lite", "glm4v",
    "glm4v_moe", "gpt_oss", "hy_v3", "hyperclovax", "llama", "mimo", "minimax_m2", "ministral3",
    "mistral", "mistral3", "mistral4", "mixtral", "olmo3", "phi3", "qwen2", "qwen3", "qwen3_moe",
    "qwen3_next", "seed_oss", "smollm3", "solar_open", "laguna",
}  # fmt: skip
"""Model types with an architecture of its own."""


def _find(layer: LayerConfig) -> Keys:
    known = named_family(layer, FAMILIES)
    if known is None:
        raise RefusedError(f"stops: it has no architecture for {layer.model_type}")
    layer = known
    block = dict(layer.old or layer.new or {})
    theta = layer.values.get("rope_theta")
    theta = (layer.new or {}).get("rope_theta") if theta is None else theta
    notes: tuple[str, ...] = ()
    if layer.unscaled or layer.nested:
        theta = layer.theta
        block = {} if layer.unscaled else block
    if theta is None:
        theta = THETA.get(layer.model_type, 10000.0)
        notes = (f"rope_theta is missing: {theta:,.0f} is taken",)
    kind = str(block.get("rope_type", block.get("type", "default")))
    original = block.get("original_max_position_embeddings")
    return Keys(
        kind, block, as_number("rope_theta", theta), layer.rotary_dim, layer,
        number_or_none(original), notes,
    )  # fmt: skip


def _linear(keys: Keys) -> Reading:
    return Reading(formulas.ladder(keys.theta, keys.dim) / keys.given("factor", 1.0))


def _yarn(keys: Keys) -> Reading:
    stated, notes = float(keys.stated), []
    if keys.original is not None:
        if keys.original != int(keys.original):
            raise RefusedError("stops: original_max_position_embeddings must be whole")
        original, factor = keys.original, stated / keys.original
        if keys.get("factor") not in (None, factor):
            notes.append(f"factor {keys.block['factor']} is not read: {factor:g} by the lengths")
    else:
        original, factor = stated, keys.need("factor")
    amplitude = keys.get("attention_factor")
    if amplitude is None:
        ratio = mscale_ratio(keys, factor) if keys.layer.model_type in _RATIO_FAMILIES else None
        if ratio is not None:
            amplitude = ratio
        elif keys.block.get("llama_4_scaling_beta"):
            amplitude = 1.0
        else:
            amplitude = formulas.magnitude(factor)
    all_dim = keys.get("mscale_all_dim")
    softmax = 1.0
    if keys.layer.latent and all_dim:
        softmax = formulas.magnitude(keys.need("factor"), all_dim) ** 2
    frequencies = formulas.yarn(
        keys.theta,
        keys.dim,
        factor,
        original,
        fast=keys.given("beta_fast", 32.0),
        slow=keys.given("beta_slow", 1.0),
        truncate=truncates(keys),
    )
    return Reading(frequencies, amplitude, softmax, tuple(notes))


def _longrope(keys: Keys) -> Reading:
    original, stated = keys.original, float(keys.stated)
    if original is None:
        beside = keys.layer.values.get("original_max_position_embeddings")
        if not isinstance(beside, int):
            raise RefusedError("stops: original_max_position_embeddings is missing")
        original = float(beside)
    notes = ["the model's stated length, not the text, chooses the factors"]
    notes += [
        f"{name} is not read"
        for name in ("factor", "attention_factor", "short_mscale", "long_mscale")
        if keys.block.get(name) is not None
    ]
    return Reading(
        formulas.divided(
            formulas.ladder(keys.theta, keys.dim),
            keys.need_list("long_factor" if stated > original else "short_factor"),
        ),
        formulas.longrope_magnitude(stated / original, original),
        notes=tuple(notes),
    )


def _proportional(keys: Keys) -> Reading:
    head = keys.layer.head_dim
    notes: tuple[str, ...] = ()
    share = keys.layer.values.get("partial_rotary_factor")
    share = (keys.layer.new or {}).get("partial_rotary_factor", 1.0) if share is None else share
    if share != keys.given("partial_rotary_factor", share):
        notes = ("partial_rotary_factor is not read within rope_scaling",)
    return Reading(
        formulas.proportional(
            keys.theta, head, formulas.whole(share * head // 2), keys.given("factor", 1.0)
        ),
        notes=notes,
    )


EXLLAMAV3 = Engine(
    name="exllamav3",
    version="1.6.5",
    source="util/rope.py",
    evidence="run",
    not_run="what its architectures change, beyond the default base",
    find=_find,
    reads="rope_theta, also of rope_parameters; rope_scaling, else rope_parameters",
    rules={
        "default": PLAIN,
        "mrope": PLAIN,
        "linear": Rule(_linear, "divided by factor (1 if missing)"),
        "yarn": Rule(
            _yarn,
            "factor is the ratio of lengths where the original one is named; truncate and "
            "attention_factor honoured; mscale in its DeepSeek only",
        ),
        "longrope": Rule(
            _longrope,
            "the stated length chooses the factors; amplitude by the ratio of lengths; factor "
            "and attention_factor not read",
        ),
        "su": Rule(_longrope, "as longrope"),
        "llama3": Rule(lenient_llama3(8.0, 8192.0), "missing values are 8, 1, 4 and 8192"),
        "proportional": Rule(_proportional, "partial_rotary_factor of the head; divided by factor"),
    },
    otherwise="stops: unknown rope_type {kind}",
    length="max_position_embeddings; its table grows",
)
