"""onnxruntime-genai 0.18.0: ``models/builders``, which bakes cos and sin tables into a graph."""

from __future__ import annotations

from dataclasses import replace

from . import formulas
from .config_classes import standardised
from .reading import Engine, Keys, LayerConfig, Reading, RefusedError, Rule, named_family
from .shared_rules import PLAIN, linear, truncates

# Families whose builder derives from LlamaModel, the only one with llama3.
_LLAMA3_FAMILIES = frozenset({"llama", "smollm3", "nemotron"})
_LONGROPE_FAMILIES = frozenset({"phi3", "phimoe", "phi4mm", "phi4_multimodal"})
FAMILIES = _LLAMA3_FAMILIES | _LONGROPE_FAMILIES | {
    "chatglm", "ernie4_5", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text",
    "gpt_oss", "granite", "granitemoehybrid", "hunyuan_v1_dense", "internlm2", "lfm2", "lfm2_moe",
    "mistral", "ministral3", "mistral3", "olmo", "phi", "qwen2", "qwen2_5_vl", "qwen3", "qwen3_vl",
    "qwen3_5", "qwen3_5_moe",
}  # fmt: skip
"""Model types that its builder knows."""
_ALPHA_FAMILIES = frozenset({"hunyuan_v1_dense"})
_OWN_KINDS = (
    (_LLAMA3_FAMILIES, "llama3"),
    (_LONGROPE_FAMILIES, "longrope"),
    (_ALPHA_FAMILIES, "dynamic"),
)
_NESTED_FAMILIES = frozenset({"gemma4", "gemma4_text"})


def _find(layer: LayerConfig) -> Keys:
    known = named_family(layer, FAMILIES)
    if known is None:
        raise RefusedError(f"stops: its builder has no {layer.model_type}")
    layer, family = known, known.model_type
    if layer.nested and family not in _NESTED_FAMILIES:
        raise RefusedError("stops: it looks for rope_type beside the blocks of the layer types")
    keys = standardised(layer)
    own = next((own for own in _OWN_KINDS if family in own[0]), None)
    if own is not None and keys.kind not in (own[1], "default"):
        # These builders replace the shared reading by one that knows a single kind.
        note = f"{keys.kind} is ignored: the builder of this family knows {own[1]} only"
        dim = keys.dim
        if keys.kind == "proportional":
            # The share is then that of partial rotary.
            dim = int(layer.head_dim * keys.given("partial_rotary_factor", 1.0))
        return replace(keys, kind="default", dim=dim, notes=(*keys.notes, note))
    return keys


def _original(keys: Keys) -> float:
    return float(keys.stated) if keys.original is None else keys.original


def _yarn(keys: Keys) -> Reading:
    factor, original = keys.need("factor"), _original(keys)
    fast, slow = keys.given("beta_fast", 0.0), keys.given("beta_slow", 0.0)
    if not fast or not slow:
        raise RefusedError("stops: beta_fast and beta_slow must be there (missing means 0)")
    head = keys.layer.head_dim
    low, high = formulas.blend_range(
        keys.theta, head, original, fast, slow, truncate=False, top=float(head)
    )
    if not 0 < low < high < head / 2 - 1:
        raise RefusedError(
            f"stops: its range {low:.4g} to {high:.4g} must lie within 0 and {head / 2 - 1:g}"
        )
    if keys.dim != head:
        raise RefusedError("stops: its ramp has one entry per plane of the whole head")
    mscale, all_dim = keys.given("mscale", 0.0), keys.given("mscale_all_dim", 0.0)
    notes = ["it never rounds the range"] if truncates(keys) else []
    if keys.get("attention_factor") is not None:
        notes.append("attention_factor is not read")
    if mscale > 0 and all_dim > 0:
        amplitude = formulas.magnitude(factor, mscale) / formulas.magnitude(factor, all_dim)
    elif mscale > 0:
        amplitude = mscale
        notes.append("mscale alone is the amplitude itself")
    else:
        amplitude = formulas.magnitude(factor)
    frequencies = formulas.yarn(
        keys.theta, keys.dim, factor, original,
        fast=fast, slow=slow, truncate=False, top=float(head),
    )  # fmt: skip
    return Reading(frequencies, amplitude, notes=tuple(notes))


def _llama3(keys: Keys) -> Reading:
    if keys.layer.model_type not in _LLAMA3_FAMILIES:
        raise RefusedError("stops: the llama3 RoPE style is not supported for this family")
    low, high = keys.given("low_freq_factor", 0.0), keys.given("high_freq_factor", 0.0)
    if not low or not high or "factor" not in keys.block:
        raise RefusedError("stops: factor and both frequency factors must be there")
    return Reading(
        formulas.llama3(
            formulas.ladder(keys.theta, keys.dim), keys.need("factor"), low, high, _original(keys)
        )
    )


def _longrope(keys: Keys) -> Reading:
    if keys.layer.model_type not in _LONGROPE_FAMILIES:
        raise RefusedError("stops: the longrope RoPE style is not supported for this family")
    if "type" not in keys.block:
        raise RefusedError("stops: it looks for type, beside rope_type")
    original = _original(keys)
    long = keys.length > original
    own = keys.given("long_mscale" if long else "short_mscale", 0.0)
    notes = [f"{n} is not read" for n in ("factor", "attention_factor") if keys.get(n) is not None]
    return Reading(
        formulas.divided(
            formulas.ladder(keys.theta, keys.dim),
            keys.need_list("long_factor" if long else "short_factor"),
        ),
        own if own > 0 else formulas.longrope_magnitude(keys.stated / original, original),
        notes=tuple(notes),
    )


def _dynamic(keys: Keys) -> Reading:
    if keys.layer.model_type not in _ALPHA_FAMILIES:
        raise RefusedError("stops: the dynamic RoPE style is not supported for this family")
    base = formulas.grown_base(keys.theta, keys.layer.head_dim, keys.need("alpha"))
    return Reading(formulas.ladder(base, keys.dim))


ONNXRUNTIME_GENAI = Engine(
    name="onnxruntime-genai",
    version="0.18.0",
    source="models/builders/base.py, llama.py, phi.py",
    evidence="run",
    not_run="Hunyuan's alpha, Gemma 4's blocks by layer type",
    find=_find,
    reads="the config classes of transformers, flattened; blocks by layer type for Gemma 4 only",
    rules={
        "default": PLAIN,
        "linear": Rule(linear, "divided by factor; ignored for Llama, SmolLM3, Nemotron and Phi"),
        "dynamic": Rule(_dynamic, "Hunyuan's alpha only; else it stops or is ignored"),
        "yarn": Rule(
            _yarn,
            "ignored for Llama, SmolLM3, Nemotron and Phi; never rounds the range; both betas "
            "required, the range must lie strictly within the head; mscale alone is the "
            "amplitude; attention_factor not read",
        ),
        "longrope": Rule(
            _longrope,
            "Phi only; two tables, chosen by the text's length; amplitude by the ratio of lengths",
        ),
        "llama3": Rule(_llama3, "Llama, SmolLM3 and Nemotron only; else it stops"),
    },
    otherwise="stops: the {kind} RoPE style is not supported",
    length="max_position_embeddings: the rows of its tables",
)
