"""The position plan that an engine's settings make of a model.

Rules of llama.cpp: those of ``llama_context`` at 0c1e570 (2026-10). Rules of vLLM 0.33 and
SGLang 0.5.23: a key of the override replaces the key of the config whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..rope import Rope
from ..scaling import Linear, Llama3, LongRoPE, Plain, Scaling, YaRN
from .config_file import ConfigFile
from .engine_settings import EngineSettings
from .families import FAMILIES
from .fragment import Fragment
from .hf_blocks import read_blocks
from .hf_scaling import scaling_of
from .plan import LayerPositions, ModelPositions, Sourced
from .spellings import BLOCKS, NESTED_TEXT, SPELLINGS, hint
from .surroundings import Surroundings

_BLOCK_LEVEL = frozenset({*BLOCKS, "rope_theta", "partial_rotary_factor"})
_OWN_SCALINGS = (Plain, Linear, YaRN)
_IN_BLOCK = {"theta": "rope_theta", "partial": "partial_rotary_factor"}
_OF_THE_MODEL = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
_POSITIONAL_WORDS = ("rope", "rotary", "yarn")


def merge_overrides(
    config: Mapping[str, Any], overrides: Mapping[str, Any], label: str
) -> tuple[dict[str, Any], list[str]]:
    """Return a config with keys replaced as vLLM and SGLang do it, and what a user should know.

    A nested object such as ``text_config`` is entered; every other value, the rope block
    included, is replaced whole.

    Raises:
        InputError: an override key that no engine reads but that is spelt like one.
    """
    out, notes = dict(config), list[str]()
    for key, value in overrides.items():
        _check_key(key, label)
        if key in NESTED_TEXT and isinstance(value, Mapping):
            inner = out.get(key)
            inner = inner if isinstance(inner, Mapping) else {}
            merged, told = merge_overrides(inner, value, label)
            out[key] = merged
            notes += told
            continue
        if key in BLOCKS and isinstance(value, Mapping):
            notes += _lost(out, value)
            for other in BLOCKS:
                out.pop(other, None)
            for concept, name in _IN_BLOCK.items():
                if value.get(name) is not None:  # what the block says wins over the top
                    for spelling in SPELLINGS[concept]:
                        out.pop(spelling, None)
        out[key] = value
    return out, notes


def _check_key(key: str, label: str) -> None:
    usual = key.replace("-", "_")
    if usual != key and usual in (*BLOCKS, *NESTED_TEXT, *_BLOCK_LEVEL):
        raise InputError(
            f"{label}: {key}",
            found="a key that engines do not know and ignore in silence",
            expected=usual,
            fix=f"did you mean {usual!r}?",
        )
    if key not in _BLOCK_LEVEL and any(word in key for word in _POSITIONAL_WORDS):
        near = hint(key, sorted(_BLOCK_LEVEL))
        if near is not None:
            raise InputError(
                f"{label}: {key}",
                found="an unknown key",
                expected="a key of the model's config",
                fix=f"did you mean {near!r}?",
            )


def _lost(config: Mapping[str, Any], block: Mapping[str, Any]) -> list[str]:
    """Say which values of the old rope block the new one does not repeat."""
    notes = []
    for name in BLOCKS:
        old = config.get(name)
        if not isinstance(old, Mapping):
            continue
        gone = [
            f"{k} {old[k]}"
            for k in _OF_THE_MODEL
            if old.get(k) is not None and block.get(k) is None and config.get(k) is None
        ]
        if gone:
            notes.append(
                f"the override replaces {name} whole: {', '.join(gone)} would be lost; repeat "
                f"{'it' if len(gone) == 1 else 'them'} in the override"
            )
        kinds = [b.get("rope_type", b.get("type")) for b in (old, block)]
        if kinds[0] not in (None, "default", "mrope") and kinds[0] != kinds[1]:
            notes.append(
                f"the override replaces the model's own scaling {kinds[0]!r} by {kinds[1]!r}"
            )
    return notes


def fragment_of(settings: EngineSettings) -> Fragment:
    """Return what the settings say without a model."""
    values = dict(settings.numbers)
    notes = list(settings.notes)
    scaling: Scaling | None = None
    if settings.overrides is not None:
        scaling = _override_scaling(settings, values, notes)
    else:
        factor, kind = settings.value("factor"), settings.value("kind")
        original = settings.value("original")
        if factor is not None and factor >= 1 and kind in (None, "linear"):
            scaling = Linear(factor=factor, original_length=original)
        elif factor is not None and factor >= 1 and kind == "yarn" and original is not None:
            scaling = YaRN(
                factor=factor,
                original_length=original,
                beta_fast=settings.value("beta_fast") or 32.0,
                beta_slow=settings.value("beta_slow") or 1.0,
            )
        elif kind == "none":
            scaling = Plain()
    _note_reach(scaling, settings, notes)
    for key, value in settings.metadata.items():
        values[key] = Sourced(value, "--override-kv")
    return Fragment(
        settings.label, settings.format, "the model that they are for", values, scaling,
        tuple(notes),
    )  # fmt: skip


def _override_scaling(
    settings: EngineSettings, values: dict[str, Sourced], notes: list[str]
) -> Scaling | None:
    part: Mapping[str, Any] = settings.overrides or {}
    merge_overrides({}, part, settings.label)
    for name in NESTED_TEXT:
        if isinstance(part.get(name), Mapping):
            part = part[name]
    fragment = config_fragment(part, settings.label)
    values.update(fragment.values)
    notes += fragment.notes
    block = next((part[name] for name in BLOCKS if isinstance(part.get(name), Mapping)), None)
    if block is not None:
        gone = [k for k in _OF_THE_MODEL if k not in block and k not in part]
        if gone:
            notes.append(
                f"the block replaces the model's own whole: {', '.join(gone)} must be repeated in "
                "it where the model's config has them in its block"
            )
    elif "max_position_embeddings" in part and fragment.scaling is None:
        notes.append("the override raises the length only: nothing is stretched")
    return fragment.scaling


def config_fragment(values: Mapping[str, Any], label: str) -> Fragment:
    """Read the rope keys of a config of transformers that names no model.

    Raises:
        InputError: unknown or contradictory keys of the rope block.
    """
    name = label.replace("\\", "/").rsplit("/", 1)[-1]
    config = ConfigFile(label, name, "", values, FAMILIES["llama"])
    found: dict[str, Sourced] = {}
    for concept in ("theta", "partial", "stated_length", "head_dim", "hidden_size", "heads"):
        given = config.given(concept)
        if given is not None:
            found[concept] = given
    scaling: Scaling | None = None
    block = read_blocks(config, {"full_attention"})["full_attention"]
    stated = config.count("stated_length")
    if block is not None and block.values:
        for key, value in block.values.items():
            found[key] = Sourced(value, block.source(key))
        original = block.get("original_max_position_embeddings")
        length = original if stated is None else stated.value
        if isinstance(length, int) or block.kind in ("default", "linear"):
            # Only notes depend on this length where the block has its own.
            usable = length if isinstance(length, int) and length > 0 else 1
            scaling = scaling_of(block, Surroundings(usable, usable, 1.0))
            if length is None and isinstance(scaling, Plain):
                scaling = Plain()
    notes = [n for n in config.notes if "max_position_embeddings 1 " not in n]
    return Fragment(label, "hf", "the family and sizes of the model", found, scaling, tuple(notes))


def _note_reach(scaling: Scaling | None, settings: EngineSettings, notes: list[str]) -> None:
    context = settings.value("context")
    if context is None or scaling is None or scaling.original_length is None:
        return
    reach = scaling.stretch * scaling.original_length
    if context > reach:
        notes.append(
            f"{settings.numbers['context'].source} {context} is beyond {reach:g} = factor x "
            "original length"
        )


def check_factor(settings: EngineSettings) -> None:
    """Refuse a stretch below 1.

    Raises:
        InputError: there is one.
    """
    factor = settings.value("factor")
    if factor is not None and factor < 1:
        raise InputError(
            f"{settings.label}: {settings.numbers['factor'].source.split(' ')[0]}",
            found=f"a stretch by {factor:g}, which speeds positions up",
            expected="a stretch of at least 1",
            fix=f"--rope-freq-scale {factor:g} or --rope-scale {1 / factor:g} is meant",
        )


def apply_numbers(plan: ModelPositions, settings: EngineSettings) -> ModelPositions:
    """Return the plan of a model run by llama.cpp, Ollama or KoboldCpp with these settings.

    The flags reach layers without a window; windowed layers keep what their file gives them.

    Raises:
        InputError: a factor below 1, or flags on a scaling that cannot be combined with them.
    """
    check_factor(settings)
    notes = [*plan.notes, *settings.notes]
    sources = dict(plan.sources)
    made: dict[Rope, Rope] = {}

    def turned(layer: LayerPositions) -> LayerPositions:
        if layer.rope is None or layer.kind == "sliding_attention":
            return layer
        if layer.rope not in made:
            made[layer.rope] = stretched(
                layer.rope, settings, plan.stated_length, _kind_of_file(plan, layer.rope.scaling)
            )
        rope, multiplier = made[layer.rope], layer.softmax_multiplier
        if rope.rotary_offset and isinstance(rope.scaling, YaRN):
            multiplier = rope.scaling.softmax_multiplier()
        return dataclasses.replace(layer, rope=rope, softmax_multiplier=multiplier)

    layers = tuple(turned(layer) for layer in plan.layers)
    unscaled = plan.rope is not None and _kind_of_file(plan, plan.rope.scaling) == "none"
    if unscaled and settings.value("kind") is None and "factor" in settings.numbers:
        flag = settings.numbers["factor"].source.split(" ")[0]
        notes.append(
            f"{flag} has no effect: rope.scaling.type of the file is none, and llama.cpp scales "
            "nothing unless --rope-scaling names a kind"
        )
    if any(layer.kind == "sliding_attention" and layer.rope for layer in layers):
        notes.append("windowed layers keep their own base and scale: the flags do not reach them")
    for name, concept in (("theta", "base"), ("original_length", "original")):
        if concept in settings.numbers:
            sources[name] = settings.numbers[concept]
    out = dataclasses.replace(plan, layers=layers, sources=sources)
    rope = out.rope
    if rope is not None and made:
        sources["scaling"] = Sourced(repr(rope.scaling), f"{settings.format} flags on {plan.path}")
        _note_reach(rope.scaling, settings, notes)
    return dataclasses.replace(
        out,
        original_length=None if rope is None else rope.original_length,
        notes=tuple(dict.fromkeys(notes)),
    )


def _with_divisors_kept(rope: Rope, theta: float) -> Rope:
    """Return the rope on another base with the divisors that the file has for its own base."""
    plain = rope.with_scaling(Plain()).inv_freq()
    divisors = tuple((plain / rope.inv_freq()).tolist())
    original = rope.original_length
    assert original is not None
    scaling = LongRoPE(
        short_factor=divisors, long_factor=divisors, original_length=original, attention_factor=1.0
    )
    return dataclasses.replace(rope, theta=theta, scaling=scaling)


def _kind_of_file(plan: ModelPositions, scaling: Scaling) -> str:
    """Return the kind that holds where the flags name none: the file's, linear if it has none."""
    if isinstance(scaling, YaRN):
        return "yarn"
    origin = plan.sources.get("scaling")
    if isinstance(scaling, Plain) and origin is not None:
        return "none" if origin.source.endswith(".rope.scaling.type") else "linear"
    return "linear"


def _refuse_amplitude(scaling: Scaling, settings: EngineSettings) -> None:
    """Refuse an amplitude that llama.cpp would multiply cos and sin by."""
    if settings.value("amplitude") in (None, 1) or isinstance(scaling, YaRN):
        return
    raise InputError(
        f"{settings.label}: --yarn-attn-factor",
        found=f"{settings.value('amplitude'):g} without YaRN",
        expected="1, or YaRN: elsewhere it multiplies cos and sin, which is not described here",
        fix="leave the flag out",
    )


def stretched(
    rope: Rope, settings: EngineSettings, stated_length: int | None, file_kind: str
) -> Rope:
    """Return the rope of a file that llama.cpp runs with these settings.

    Args:
        rope: the file's.
        settings: the flags.
        stated_length: the file's context length.
        file_kind: the kind of scaling that holds where the flags name none.

    Raises:
        InputError: flags on divisors, a mix between linear and YaRN, an amplitude without YaRN.
    """
    base = settings.value("base")
    theta = rope.theta if base is None else float(base)
    touched = {"factor", "kind", "original", "mix", "beta_fast", "beta_slow"} & set(
        settings.numbers
    )
    scaling = rope.scaling
    if not touched:
        _refuse_amplitude(scaling, settings)
        if theta != rope.theta and isinstance(scaling, Llama3):
            return _with_divisors_kept(rope, theta)
        return dataclasses.replace(rope, theta=theta)
    if not isinstance(scaling, _OWN_SCALINGS):
        raise InputError(
            f"{settings.label}: {settings.numbers[sorted(touched)[0]].source.split(' ')[0]}",
            found=f"flags on a model with {scaling.kind} scaling",
            expected="a model without divisors of its own",
            fix="leave the flags out: llama.cpp would stretch it twice",
        )
    kind = settings.value("kind") or file_kind
    factor = settings.value("factor")
    factor = scaling.stretch if factor is None else float(factor)
    original = settings.value("original") or scaling.original_length or stated_length
    if kind == "none":
        _refuse_amplitude(Plain(), settings)
        return dataclasses.replace(rope, theta=theta, scaling=Plain(original_length=original))
    # The mix decides, and the kind only where no mix is given.
    mixed = settings.value("mix")
    if mixed == 0 or (mixed is None and kind == "linear"):
        made: Scaling = Linear(factor=factor, original_length=original)
        if factor == 1:
            made = Plain(original_length=original)
    elif mixed not in (None, 1):
        raise InputError(
            f"{settings.label}: --yarn-ext-factor",
            found=f"{mixed:g}",
            expected="0 (linear) or 1 (YaRN); what lies between is not described here",
            fix="leave the flag out",
        )
    else:
        values: dict[str, Any] = {
            name: settings.value(name) or getattr(scaling, name, default)
            for name, default in (("beta_fast", 32.0), ("beta_slow", 1.0))
        }
        kept = {
            name: getattr(scaling, name)
            for name in ("mscale", "mscale_all_dim")
            if getattr(scaling, name, None) is not None
        }
        made = YaRN(factor=factor, original_length=original, **values, **kept)
    _refuse_amplitude(made, settings)
    return dataclasses.replace(rope, theta=theta, scaling=made)
