"""vLLM 0.33.0: ``model_executor/layers/rotary_embedding``."""

from __future__ import annotations

import numpy as np

from . import formulas
from .config_classes import standardised
from .reading import Engine, Keys, LayerConfig, Reading, RefusedError, Rule
from .shared_rules import PLAIN, mscale_ratio, strict_llama3, truncates


def _find(layer: LayerConfig) -> Keys:
    return standardised(layer)


def whole_factor_stops(keys: Keys, engine: str) -> None:
    """Refuse an integer factor of linear scaling, which is taken for a list of factors."""
    if isinstance(keys.block.get("factor"), int):
        raise RefusedError(
            f"stops: {engine} takes the integer factor {keys.block['factor']} for a list "
            f"(write {keys.block['factor']}.0)"
        )


def _linear(keys: Keys) -> Reading:
    factor = keys.need("factor")
    whole_factor_stops(keys, "vLLM")
    return Reading(formulas.ladder(keys.theta, keys.dim) / factor, limit=int(keys.stated * factor))


def _dynamic(keys: Keys) -> Reading:
    alpha = keys.get("alpha")
    if "alpha" in keys.block and alpha is not None:
        base = formulas.grown_base(keys.theta, keys.dim, alpha)
        return Reading(formulas.ladder(base, keys.dim))
    factor, stated = keys.need("factor"), keys.stated
    trained = keys.given("max_trained_positions", stated)
    growth = factor * stated / trained - (factor - 1)
    notes: tuple[str, ...] = ()
    if trained == stated:
        notes = ("without max_trained_positions its one base is the unscaled one",)
    base = formulas.grown_base(keys.theta, keys.dim, growth)
    return Reading(formulas.ladder(base, keys.dim), notes=notes, limit=int(keys.stated * factor))


def _yarn(keys: Keys) -> Reading:
    factor, original = keys.need("factor"), keys.need_original()
    latent = keys.layer.latent
    fast, slow = keys.given("beta_fast", 32.0), keys.given("beta_slow", 1.0)
    amplitude = keys.get("attention_factor")
    softmax = 1.0
    notes: list[str] = []
    if latent:
        softmax, amplitude, notes = _latent(keys, factor)
    elif keys.layer.model_type == "gpt_oss":
        amplitude = None
        if keys.get("attention_factor") is not None:
            notes.append("attention_factor is not handed on by its gpt-oss code")
    if amplitude is None:
        ratio = None if keys.layer.model_type == "gpt_oss" else mscale_ratio(keys, factor)
        amplitude = formulas.magnitude(factor) if ratio is None else ratio
    frequencies = formulas.yarn(
        keys.theta,
        keys.dim,
        factor,
        original,
        fast=fast,
        slow=slow,
        truncate=latent or truncates(keys),
    )
    rows = int(original * factor)
    limit = rows if keys.layer.stated is not None and rows < keys.layer.stated else None
    return Reading(frequencies, amplitude, softmax, tuple(notes), limit)


def _latent(keys: Keys, factor: float) -> tuple[float, float, list[str]]:
    """Return softmax multiplier, amplitude and notes of its DeepSeek class."""
    all_dim = keys.given("mscale_all_dim", 0.0)
    amplitude = formulas.magnitude(factor, keys.given("mscale", 1.0)) / formulas.magnitude(
        factor, all_dim
    )
    notes = [] if truncates(keys) else ["truncate is not read by its DeepSeek class"]
    if keys.get("attention_factor") == 1.0:
        return 1.0, amplitude, notes
    return formulas.magnitude(factor, all_dim) ** 2, amplitude, notes


def _longrope(keys: Keys) -> Reading:
    original = keys.need_original()
    long = keys.length > original
    scale = formulas.longrope_magnitude(keys.stated / original, original)
    own = keys.get("long_mscale" if long else "short_mscale")
    notes = ["--max-model-len, not the text, chooses the factors; its default is the original one"]
    notes += [
        f"{name} is not read"
        for name in ("factor", "attention_factor")
        if keys.block.get(name) is not None
    ]
    beside = keys.layer.values.get("original_max_position_embeddings")
    return Reading(
        formulas.divided(
            formulas.ladder(keys.theta, keys.dim),
            keys.need_list("long_factor" if long else "short_factor"),
        ),
        scale if own is None else own,
        notes=tuple(notes),
        limit=int(beside) if isinstance(beside, int) else None,
    )


def _proportional(keys: Keys) -> Reading:
    head = keys.layer.head_dim
    rotated = int(head * keys.given("partial_rotary_factor", 1.0)) // 2
    notes = ("factor is not read",) if keys.given("factor", 1.0) != 1.0 else ()
    return Reading(formulas.proportional(keys.theta, head, rotated), notes=notes)


def _ntk(keys: Keys) -> Reading:
    factor, mixed = keys.need("factor"), keys.get("mixed_b")
    if factor <= 0:
        raise RefusedError(f"computes nothing usable from factor {factor:g}")
    if mixed is None:
        frequencies = formulas.ladder(keys.theta * factor, keys.dim) / factor ** (2 / keys.dim)
        return Reading(frequencies)
    rate = np.log(factor) / (keys.dim / 2) ** mixed
    steps = np.arange(1, keys.dim // 2 + 1) ** mixed
    return Reading(formulas.ladder(keys.theta, keys.dim) / np.exp(rate * steps))


VLLM = Engine(
    name="vLLM",
    version="0.33.0",
    source="model_executor/layers/rotary_embedding/__init__.py",
    evidence="run",
    not_run="ntk; which class a model's own code asks for",
    find=_find,
    reads="the config classes of transformers",
    rules={
        "default": PLAIN,
        "linear": Rule(_linear, "divided by factor, which must not be an integer"),
        "dynamic": Rule(
            _dynamic,
            "one base for all texts: by alpha, or by factor and max_trained_positions, without "
            "which it is unscaled",
        ),
        "ntk": Rule(_ntk, "theta times factor, then all divided by factor^(2/d); mixed_b"),
        "yarn": Rule(
            _yarn,
            "truncate and attention_factor honoured, not in its class for latent attention, "
            "which always rounds",
        ),
        "longrope": Rule(
            _longrope,
            "the server's length chooses the factors; amplitude by the ratio of lengths; factor "
            "and attention_factor not read",
        ),
        "llama3": Rule(strict_llama3, "all four values required"),
        "proportional": Rule(_proportional, "factor not read"),
    },
    otherwise="stops: unknown RoPE scaling type {kind}",
    length=(
        "max_position_embeddings, times factor for linear and dynamic; the original length for "
        "longrope; no table beyond"
    ),
)
