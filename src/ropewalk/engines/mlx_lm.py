"""mlx-lm 0.32.2: ``models/rope_utils.py`` and the argument classes of its models.

It reads the file itself. Most models know the keys of transformers 4 only, so what stands in
``rope_parameters`` alone is lost on them without a word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..rope import Pairing
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
from .shared_rules import LINEAR, PLAIN, lenient_llama3, plain, truncates

Form = Literal["all", "plain", "linear", "phi3", "phimoe", "minicpm3", "alpha"]


@dataclass(frozen=True)
class Family:
    """One model of mlx-lm.

    Attributes:
        theta: the base where the file has none; None: it stops without one.
        form: which scalings its rope knows: ``all`` of ``initialize_rope``, none (``plain``),
            linear only, those of its Phi-3, Phi MoE, MiniCPM3 or Hunyuan.
        new_keys: whether it reads ``rope_parameters``.
    """

    theta: float | None = 10000.0
    form: Form = "all"
    new_keys: bool = False


_NEEDS = Family(theta=None)
_NEEDS_PLAIN = Family(theta=None, form="plain")
_PLAIN = Family(form="plain")

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(
        ("llama", "mistral", "bitnet", "deepseek_v3", "deepseek_v32", "kimi_k2", "afmoe", "mimo",
         "nanbeige", "olmo2", "olmoe", "seed_oss", "internlm2", "internlm3", "deepseek_v2",
         "step3p5"),
        Family(),
    ),
    **dict.fromkeys(
        ("apertus", "dots1", "exaone", "exaone4", "granite", "granitemoe", "longcat_flash",
         "bailing_moe", "bailing_hybrid", "telechat3", "qwen3_next", "olmo3"),
        _NEEDS,
    ),
    **dict.fromkeys(
        ("glm4", "ernie4_5", "ernie4_5_moe", "helium", "minimax", "minimax_m2", "glm4_moe",
         "qwen3_moe", "stablelm", "gemma3n", "mimo_v2_flash", "llama4_text", "solar_open",
         "recurrent_gemma"),
        _NEEDS_PLAIN,
    ),
    **dict.fromkeys(("gemma", "gemma2", "glm", "phi", "olmo", "nanochat"), _PLAIN),
    "cohere": Family(8e6, "plain"),
    "cohere2": Family(5e4, "plain"),
    "deepseek": Family(form="linear"),
    "exaone_moe": Family(1e6, new_keys=True),
    "gemma3_text": Family(1e6),
    "gpt_oss": Family(150000.0),
    "hunyuan_v1_dense": Family(form="alpha"),
    "lfm2": Family(1e6, "plain", new_keys=True),
    "lfm2_moe": Family(1e6, "plain", new_keys=True),
    "minicpm": Family(1e6),
    "minicpm3": Family(1e6, "minicpm3"),
    "mixtral": Family(1e6, "plain"),
    "nemotron": Family(form="linear"),
    "phi3": Family(form="phi3"),
    "phimoe": Family(form="phimoe"),
    **dict.fromkeys(("qwen2", "qwen2_vl", "qwen2_5_vl"), Family(1e6)),
    "qwen2_moe": Family(1e6, "linear"),
    **dict.fromkeys(("qwen3", "qwen3_vl"), Family(None, new_keys=True)),
    "mistral4": Family(new_keys=True),
    "smollm3": Family(),
    "starcoder2": Family(1e5, "plain"),
    "youtu": Family(1.6e6),
    **dict.fromkeys(("mellum", "laguna", "ministral3"), Family(None, new_keys=True)),
}  # fmt: skip
"""Model type to how mlx-lm reads it. Vision and audio models read their text part's."""


def _find(layer: LayerConfig) -> Keys:
    known = named_family(layer, FAMILIES)
    if known is None:
        raise RefusedError(f"not described: no rule for model type {layer.model_type}")
    layer, family = known, FAMILIES[known.model_type]
    notes, block = [], dict(layer.old or {})
    theta = layer.values.get("rope_theta")
    if layer.new and family.new_keys:
        block = block or dict(layer.new)
        theta = layer.new.get("rope_theta") if theta is None else theta
    elif layer.new:
        notes.append("rope_parameters is not read by this model: it knows rope_scaling")
    if layer.unscaled:
        block, theta = {}, layer.theta
    if theta is None:
        if family.theta is None:
            raise RefusedError("stops: rope_theta is missing at the top of the file")
        theta = family.theta
        notes.append(f"rope_theta is missing at the top of the file: {theta:,.0f} is taken")
    # "type" wins over "rope_type", as in initialize_rope.
    kind = str(block.get("type") or block.get("rope_type", "default"))
    original = block.get("original_max_position_embeddings")
    keys = Keys(
        kind,
        block,
        as_number("rope_theta", theta),
        layer.rotary_dim,
        layer,
        number_or_none(original),
        tuple(notes),
    )
    return _limited(keys, family.form)


def _limited(keys: Keys, form: Form) -> Keys:
    """Apply what the model's own code refuses or ignores before the shared rules."""
    kind = keys.kind
    if form == "all" and kind == "su":
        raise RefusedError("stops: unsupported RoPE type su")
    if form == "all" or kind == "default":
        return keys
    if form == "plain":
        note = f"{kind} is ignored: the model builds plain rope"
        return Keys("default", {}, keys.theta, keys.dim, keys.layer, notes=(*keys.notes, note))
    if form in ("phi3", "phimoe"):
        # These look for the original length beside the block, 4096 if missing.
        beside = keys.layer.values.get("original_max_position_embeddings")
        keys = replace(keys, original=float(beside) if isinstance(beside, int) else 4096.0)
    if form == "minicpm3":
        return replace(keys, kind="longrope", original=keys.original or 4096.0)
    if form == "phi3":
        if "type" not in keys.block or "long_factor" not in keys.block:
            raise RefusedError("stops: rope_scaling must have type and long_factor")
        if kind not in ("longrope", "su", "linear"):
            note = f"{kind} is ignored with a warning: plain rope"
            return Keys("default", {}, keys.theta, keys.dim, keys.layer, notes=(*keys.notes, note))
    if form == "linear" and kind != "linear":
        raise RefusedError(f"stops or falls back: this model knows linear only, not {kind}")
    if form == "alpha":
        alpha = keys.given("alpha", 1.0)
        base = formulas.grown_base(keys.theta, keys.dim, alpha)
        return Keys("default", {}, base, keys.dim, keys.layer, notes=keys.notes)
    return keys


def _yarn(keys: Keys) -> Reading:
    factor = keys.need("factor")
    original = 4096.0 if keys.original is None else keys.original
    notes = []
    if keys.original is None:
        notes.append("original_max_position_embeddings is missing: 4096 is taken")
    if not truncates(keys):
        notes.append("truncate is not read: it always rounds the range")
    if keys.get("attention_factor") is not None:
        notes.append("attention_factor is not read")
    amplitude = formulas.magnitude(factor, keys.given("mscale", 1.0)) / formulas.magnitude(
        factor, keys.given("mscale_all_dim", 0.0)
    )
    all_dim = keys.get("mscale_all_dim")
    softmax = formulas.magnitude(factor, all_dim) ** 2 if keys.layer.latent and all_dim else 1.0
    frequencies = formulas.yarn(
        keys.theta,
        keys.dim,
        factor,
        original,
        fast=keys.given("beta_fast", 32.0),
        slow=keys.given("beta_slow", 1.0),
    )
    return Reading(frequencies, amplitude, softmax, tuple(notes))


def _dynamic(keys: Keys) -> Reading:
    factor, stated = keys.need("factor"), keys.stated
    growth = factor * max(keys.length, stated) / stated - (factor - 1)
    base = formulas.grown_base(keys.theta, keys.dim, growth)
    return Reading(
        formulas.ladder(base, keys.dim), notes=("keys in the cache keep the base of their time",)
    )


def _longrope(keys: Keys) -> Reading:
    original = keys.need_original()
    amplitude = formulas.longrope_magnitude(keys.stated / original, original)
    own: tuple[str, ...] = ("short_mscale", "long_mscale")
    if keys.layer.model_type == "phimoe":
        amplitude, own = keys.need("long_mscale"), ()
    notes = ["long factors for short texts too"]
    notes += [
        f"{name} is not read"
        for name in ("factor", "attention_factor", *own)
        if keys.block.get(name) is not None
    ]
    return Reading(
        formulas.divided(formulas.ladder(keys.theta, keys.dim), keys.need_list("long_factor")),
        amplitude,
        notes=tuple(notes),
    )


def _llama3(keys: Keys) -> Reading:
    keys.need("factor")
    return lenient_llama3(1.0, 8192.0)(keys)


def _proportional(keys: Keys) -> Reading:
    head = keys.layer.head_dim
    rotated = int(head * keys.given("partial_rotary_factor", 1.0)) // 2
    return Reading(formulas.proportional(keys.theta, head, rotated, keys.given("factor", 1.0)))


def _mrope(keys: Keys) -> Reading:
    sections = keys.block.get("mrope_section")
    if not isinstance(sections, list) or len(sections) != 3:
        raise RefusedError("stops: mrope_section must have three entries")
    return plain(keys)


def _pairing(layer: LayerConfig) -> Pairing:
    switch = layer.values.get("rope_traditional")
    if not isinstance(switch, bool):
        return layer.pairing
    return "adjacent" if switch else "half"


_YARN = Rule(
    _yarn,
    "always rounds the range; mscale (1) over mscale_all_dim (0); attention_factor and truncate "
    "not read; original length 4096 if missing",
)

MLX_LM = Engine(
    name="mlx-lm",
    version="0.32.2",
    source="models/rope_utils.py",
    evidence="run",
    not_run="the ropes of its Phi-3, Phi MoE, MiniCPM3 and Hunyuan; its latent attention",
    find=_find,
    reads="rope_theta and rope_scaling of the file; rope_parameters in a few models only",
    rules={
        "default": PLAIN,
        "linear": LINEAR,
        "dynamic": Rule(_dynamic, "base grows with each call beyond max_position_embeddings"),
        "yarn": _YARN,
        "deepseek_yarn": _YARN,
        "telechat3-yarn": _YARN,
        "longrope": Rule(
            _longrope,
            "long factors always; amplitude by the ratio of lengths; factor and attention_factor "
            "not read",
        ),
        "su": Rule(_longrope, "as longrope, in its Phi-3; its shared code stops"),
        "llama3": Rule(_llama3, "factor required; missing values are 1, 4 and 8192"),
        "proportional": Rule(_proportional, "partial_rotary_factor of the head; times factor"),
        "mrope": Rule(_mrope, "plain rope, for text"),
    },
    otherwise="stops: unsupported RoPE type {kind}",
    length="max_position_embeddings; nothing stops longer texts",
    pairing=_pairing,
    pairing_why="rope_traditional of the file",
)
