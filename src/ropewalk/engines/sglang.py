"""SGLang 0.5.23: ``srt/layers/rotary_embedding``."""

from __future__ import annotations

from . import formulas
from .config_classes import standardised
from .reading import Engine, Keys, LayerConfig, Reading, Rule
from .shared_rules import PLAIN, lenient_llama3, truncates
from .vllm import whole_factor_stops


def _find(layer: LayerConfig) -> Keys:
    return standardised(layer)


def _original(keys: Keys) -> float:
    return float(keys.stated) if keys.original is None else keys.original


def _linear(keys: Keys) -> Reading:
    factor = keys.given("factor", 1.0)
    if "factor" in keys.block:
        whole_factor_stops(keys, "SGLang")
    return Reading(formulas.ladder(keys.theta, keys.dim) / factor, limit=_grown(keys, factor))


def _grown(keys: Keys, factor: float) -> int | None:
    """Return the length it allows: factor times the stated one, unless an original is named."""
    if keys.layer.stated is None or "original_max_position_embeddings" in keys.block:
        return None
    return int(keys.layer.stated * factor)


def _dynamic(keys: Keys) -> Reading:
    factor = keys.given("factor", 1.0)
    alpha = keys.get("alpha")
    growth = alpha if alpha is not None else factor * factor - (factor - 1)
    base = formulas.grown_base(keys.theta, keys.dim, growth)
    return Reading(formulas.ladder(base, keys.dim), limit=_grown(keys, factor))


def _yarn(keys: Keys) -> Reading:
    factor, original, latent = keys.given("factor", 1.0), _original(keys), keys.layer.latent
    mscale, all_dim = keys.get("mscale"), keys.get("mscale_all_dim")
    notes = []
    softmax = 1.0
    if latent:
        mscale = 1.0 if mscale is None else mscale
        all_dim = 0.0 if all_dim is None else all_dim
        switched_off = not all(
            keys.block.get(name, True) for name in ("apply_yarn_scaling", "apply_scale")
        )
        softmax = 1.0 if switched_off else formulas.magnitude(factor, all_dim) ** 2
        if not truncates(keys):
            notes.append("truncate is not read by its DeepSeek class")
    if mscale is not None and all_dim is not None:
        amplitude = formulas.magnitude(factor, mscale) / formulas.magnitude(factor, all_dim)
    else:
        amplitude = formulas.magnitude(factor)
    if keys.get("attention_factor") is not None:
        notes.append("attention_factor is not read")
    if keys.get("attn_factor") is not None:
        notes.append("attn_factor multiplies the amplitude")
        amplitude *= keys.need("attn_factor")
    frequencies = formulas.yarn(
        keys.theta,
        keys.dim,
        factor,
        original,
        fast=keys.given("beta_fast", 32.0),
        slow=keys.given("beta_slow", 1.0),
        truncate=latent or truncates(keys),
        mixed=keys.given("extrapolation_factor", 1.0),
    )
    return Reading(frequencies, amplitude, softmax, tuple(notes))


def _longrope(keys: Keys) -> Reading:
    original = _original(keys)
    # It looks for a position above the original length: the first long text is one longer.
    long = keys.length - 1 > original
    own = keys.get("long_mscale" if long else "short_mscale")
    scale = formulas.longrope_magnitude(keys.stated / original, original)
    notes = tuple(
        f"{name} is not read"
        for name in ("factor", "attention_factor")
        if keys.block.get(name) is not None
    )
    return Reading(
        formulas.divided(
            formulas.ladder(keys.theta, keys.dim),
            keys.need_list("long_factor" if long else "short_factor"),
        ),
        scale if own is None else own,
        notes=notes,
    )


def _proportional(keys: Keys) -> Reading:
    head = keys.layer.head_dim
    rotated = int(head * keys.given("partial_rotary_factor", 1.0)) // 2
    notes = ("factor is not read",) if keys.given("factor", 1.0) != 1.0 else ()
    return Reading(formulas.proportional(keys.theta, head, rotated), notes=notes)


SGLANG = Engine(
    name="SGLang",
    version="0.5.23",
    source="srt/layers/rotary_embedding/factory.py",
    evidence="run",
    not_run="which class a model's own code asks for",
    find=_find,
    reads="the config classes of transformers",
    rules={
        "default": PLAIN,
        "linear": Rule(_linear, "divided by factor (1 if missing), which must not be an integer"),
        "dynamic": Rule(
            _dynamic, "one base for all texts: theta (f² - f + 1)^(d/(d-2)), or by alpha"
        ),
        "yarn": Rule(
            _yarn,
            "truncate honoured, not for latent attention; attention_factor not read, attn_factor "
            "multiplies",
        ),
        "longrope": Rule(
            _longrope,
            "per batch, long factors from a position above the original length; amplitude by the "
            "ratio of lengths; factor and attention_factor not read",
        ),
        "llama3": Rule(lenient_llama3(1.0, None), "missing values are 1, 1 and 4, with a warning"),
        "proportional": Rule(_proportional, "factor not read"),
    },
    otherwise="stops: unknown RoPE scaling type {kind}",
    length=(
        "max_position_embeddings, times factor unless llama3 or the original length is named; "
        "tables grow"
    ),
)
