"""llama.cpp 0c1e57098: ``conversion/*.py``, then ``src/llama-context.cpp`` and ggml's ``ops.cpp``.

What runs is a GGUF file that the converter wrote, so its losses are part of the rule.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import InputError
from ..models.engine_apply import stretched
from ..models.gguf_families import ARCHITECTURES
from ..models.spellings import LOCAL_KINDS
from ..rope import Pairing, Rope
from ..scaling import Linear, Plain, YaRN
from . import formulas
from .config_classes import merged_block, standardised
from .reading import Engine, Keys, LayerConfig, Reading, RefusedError, Rule
from .shared_rules import ignored, lenient_llama3, plain, truncates

# Converters that bake Llama 3's factors into rope_freqs.weight (``generate_extra_tensors``).
_LLAMA3_FAMILIES = frozenset(
    {
        "llama", "mistral", "mixtral", "arcee", "llama4_text", "llama4", "smollm3", "apertus",
        "granite", "afmoe", "ministral3", "exaone", "exaone4", "nanbeige", "nemotron-nas",
        "step3p5",
    }
)  # fmt: skip
_LONGROPE_FAMILIES = frozenset({"phi3", "phimoe", "phi4mm", "phi4_multimodal"})
_MINICPM_FAMILIES = frozenset({"minicpm", "minicpm3"})
# The loaders that read the file's betas.
_OWN_BETAS = frozenset({"ministral3", "mistral3"})
# Families whose sliding layers have the same rope as the others, scaling included.
_SAME_SLIDING = frozenset({"gpt_oss"})
# Families whose architecture has another name, where the name is not that of the family with
# other separators and the pairing is not that of transformers.
_SAME_ARCHITECTURE = {
    "mistral": "llama", "mixtral": "llama", "internlm3": "llama", "iquestcoder": "llama",
    "ministral3": "mistral3", "granitemoeshared": "granitemoe", "granitemoe_swa": "granite_swa",
    "granitemoehybrid": "granitehybrid", "bamba": "granitehybrid",
}  # fmt: skip
# Converters that end with rope.scaling.type none.
_TYPE_NONE = frozenset({"cohere", "cohere2", "deepseek", "exaone_moe"})
_ALPHA_FAMILIES = frozenset({"hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl"})


def _find(layer: LayerConfig) -> Keys:
    keys = standardised(layer)
    block = merged_block(layer)
    if layer.nested and layer.layer_kind in LOCAL_KINDS and layer.model_type not in _SAME_SLIDING:
        note = () if keys.kind == "default" else ("of sliding layers only the base is converted",)
        return Keys("default", {}, layer.theta, layer.rotary_dim, layer, notes=note)
    if keys.kind in ("linear", "yarn") and layer.model_type in _TYPE_NONE:
        return Keys(
            "default", {}, layer.theta, layer.rotary_dim, layer,
            notes=(f"{keys.kind} is overwritten: the converter of this family writes type none",),
        )  # fmt: skip
    if keys.kind in ("linear", "yarn") and block.get("factor") is None:
        return Keys(
            "default", {}, layer.theta, layer.rotary_dim, layer,
            notes=(f"{keys.kind} without factor is not converted",),
        )  # fmt: skip
    return keys


def _linear(keys: Keys) -> Reading:
    return Reading(formulas.ladder(keys.theta, keys.dim) / keys.need("factor"))


def _betas(keys: Keys) -> tuple[float, float]:
    if keys.layer.model_type not in _OWN_BETAS:
        return 32.0, 1.0
    return keys.given("beta_fast", 32.0), keys.given("beta_slow", 1.0)


def _slopes(keys: Keys) -> tuple[float, float]:
    """Return mscale and mscale_all_dim as its loader has them; 0 for the second where unread."""
    latent = keys.layer.latent
    all_dim = keys.get("mscale_all_dim") if keys.layer.model_type in _OWN_BETAS or latent else None
    # DeepSeek's loader takes mscale for mscale_all_dim where that is not 1.
    return (all_dim if all_dim and latent and all_dim != 1.0 else 1.0), all_dim or 0.0


def _yarn(keys: Keys) -> Reading:
    factor, original = keys.need("factor"), keys.need_original()
    own, latent = keys.layer.model_type in _OWN_BETAS, keys.layer.latent
    fast, slow = _betas(keys)
    mscale, all_dim = _slopes(keys)
    amplitude, softmax = formulas.magnitude(factor), 1.0
    if all_dim:
        amplitude = formulas.magnitude(factor, mscale) / formulas.magnitude(factor, all_dim)
        softmax = formulas.magnitude(factor, all_dim) ** 2 if latent else 1.0
    return Reading(
        formulas.yarn(keys.theta, keys.dim, factor, original, fast=fast, slow=slow),
        amplitude,
        softmax,
        _yarn_notes(keys, (fast, slow), latent or own),
    )


def _yarn_notes(keys: Keys, betas: tuple[float, float], all_dim: bool) -> tuple[str, ...]:
    notes = []
    if not truncates(keys):
        notes.append("truncate is not stored: it always rounds the range")
    if (keys.given("beta_fast", 32.0), keys.given("beta_slow", 1.0)) != betas:
        notes.append("beta_fast and beta_slow are stored, but its loader reads 32 and 1")
    if keys.get("attention_factor") is not None:
        notes.append("attention_factor is stored, but overwritten where YaRN is on")
    unread = ("mscale",) if all_dim else ("mscale", "mscale_all_dim")
    notes += [f"{name} is not stored" for name in unread if keys.get(name)]
    return tuple(notes)


def _longrope(keys: Keys) -> Reading:
    family = keys.layer.model_type
    if family not in _LONGROPE_FAMILIES | _MINICPM_FAMILIES:
        note = "the kind is stored, but the converter of this family writes no factors"
        return Reading(plain(keys).inv_freq, notes=(note,))
    original = keys.need_original()
    long = keys.length > original
    amplitude = 1.0
    notes = ["the context size, not the text, chooses the factors"]
    if family in _LONGROPE_FAMILIES:
        amplitude = formulas.longrope_magnitude(keys.stated / original, original)
    else:
        notes.append("no amplitude is stored for this family")
    return Reading(
        formulas.divided(
            formulas.ladder(keys.theta, keys.dim),
            keys.need_list("long_factor" if long else "short_factor"),
        ),
        amplitude,
        notes=tuple(notes),
    )


def _llama3(keys: Keys) -> Reading:
    if keys.layer.model_type in _LLAMA3_FAMILIES:
        return lenient_llama3(8.0, 8192.0)(keys)
    note = "the converter of this family writes no factors for llama3"
    return Reading(plain(keys).inv_freq, notes=(note,))


def _dynamic(keys: Keys) -> Reading:
    alpha = keys.get("alpha")
    if keys.layer.model_type in _ALPHA_FAMILIES and alpha:
        base = formulas.grown_base(keys.theta, keys.dim, alpha)
        return Reading(formulas.ladder(base, keys.dim))
    return Reading(plain(keys).inv_freq, notes=("dynamic is not converted",))


def _proportional(keys: Keys) -> Reading:
    head = keys.layer.head_dim
    rotated = formulas.whole(keys.given("partial_rotary_factor", 1.0) * head // 2)
    notes = ("factor is not read",) if keys.given("factor", 1.0) != 1.0 else ()
    return Reading(formulas.proportional(keys.theta, head, rotated), notes=notes)


def _flagged(keys: Keys, reading: Reading) -> Reading:
    """Return what it computes with flags of its own, from what it computes without."""
    flags = keys.layer.flags
    assert flags is not None
    if keys.layer.layer_kind in LOCAL_KINDS:
        note = "the flags do not reach windowed layers"
        return replace(reading, notes=(*reading.notes, note))
    scaling = _in_file(keys, reading)
    if scaling is None:
        if not set(flags.numbers) <= {"base", "context"}:
            raise RefusedError("not described: flags on divisors, which stretches twice")
        # The divisors stay; the ladder that they divide is another.
        base = flags.value("base") or keys.theta
        ladders = formulas.ladder(base, keys.dim) / formulas.ladder(keys.theta, keys.dim)
        made, amplitude, softmax = reading.inv_freq * ladders, reading.amplitude, reading.softmax
    else:
        kind = "none" if keys.layer.model_type in _TYPE_NONE else scaling.kind
        try:
            rope = stretched(
                Rope(head_dim=keys.dim, theta=keys.theta, scaling=scaling),
                flags,
                keys.layer.stated,
                {"plain": "linear"}.get(kind, kind),
            )
        except InputError as error:
            raise RefusedError(f"not described: {error.found}") from None
        made, amplitude = rope.inv_freq(keys.length), rope.attention_factor(keys.length)
        softmax = 1.0
        if keys.layer.latent and isinstance(rope.scaling, YaRN):
            softmax = rope.scaling.softmax_multiplier()
    return Reading(made, amplitude, softmax, (*reading.notes, f"with the flags of {flags.format}"))


def _in_file(keys: Keys, reading: Reading) -> Plain | Linear | YaRN | None:
    """Return the scaling that the converted file names; None for divisors."""
    stated = keys.layer.stated
    if keys.kind == "linear":
        return Linear(factor=keys.need("factor"), original_length=stated)
    if keys.kind == "yarn":
        fast, slow = _betas(keys)
        mscale, all_dim = _slopes(keys)
        return YaRN(
            factor=keys.need("factor"),
            original_length=int(keys.need_original()),
            beta_fast=fast,
            beta_slow=slow,
            mscale=mscale if all_dim else None,
            mscale_all_dim=all_dim or None,
        )
    ladder = formulas.ladder(keys.theta, keys.dim)
    alike = len(reading.inv_freq) == len(ladder) and bool((reading.inv_freq == ladder).all())
    return Plain(original_length=stated) if alike and reading.amplitude == 1 else None


def _pairing(layer: LayerConfig) -> Pairing:
    family = _SAME_ARCHITECTURE.get(layer.model_type, layer.model_type)
    for name in (family, family.replace("_", "-"), family.replace("_", "")):
        if name in ARCHITECTURES:
            return ARCHITECTURES[name].pairing
    return layer.pairing


BINDING = "llama-cpp-python 0.3.36"
"""The package with which it was run; it is of the same commit."""

LLAMA_CPP = Engine(
    name="llama.cpp",
    version="0c1e570 (2026-10)",
    source="conversion/base.py, src/llama-context.cpp, ggml-cpu/ops.cpp",
    evidence="run",
    not_run=(
        "its converter, latent attention, windowed layers, dynamic, and loaders other than those "
        "of llama, qwen2, phi3 and mistral3"
    ),
    find=_find,
    reads="the config classes of transformers, in its converter; then the GGUF file",
    rules={
        "default": Rule(plain, "theta^(-2i/d)"),
        "linear": Rule(_linear, "divided by factor"),
        "dynamic": Rule(_dynamic, "not converted: plain; Hunyuan's alpha becomes the base"),
        "yarn": Rule(
            _yarn,
            "always rounds the range, betas 32 and 1 except for Mistral 3; 0.1 ln f + 1; "
            "mscale_all_dim for latent attention and Mistral 3 only",
        ),
        "longrope": Rule(
            _longrope,
            "Phi and MiniCPM only, else plain; the context size chooses the factors; amplitude "
            "by the ratio of lengths, for Phi only",
        ),
        "llama3": Rule(
            _llama3, "baked into the file for the Llama converters, missing values 8, 1, 4, 8192"
        ),
        "proportional": Rule(_proportional, "baked into the file; factor not read"),
    },
    otherwise=ignored("its converter warns and writes no scaling"),
    length="max_position_embeddings, as context_length; longer texts run with a warning",
    native="gguf",
    pairing=_pairing,
    pairing_why="its converter permutes the q and k rows",
    flagged=_flagged,
)
