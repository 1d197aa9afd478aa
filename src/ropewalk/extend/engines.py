"""What each engine must be told to run a given rope: one table of engines.

An engine's row turns a rope into its own words or says why it cannot. The rules were read
from the versions named in ``ENGINES``; transformers' are also run by the tests.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..rope import Rope
from ..scaling import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    NTKCritical,
    Plain,
    Proportional,
    YaRN,
)
from ..scaling.ntk import ntk_base

Block = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What to give one engine.

    Attributes:
        engine: its name.
        version: the version whose rules were read.
        text: config block, flags or command line to use; empty where impossible.
        refusal: why the engine cannot run this rope; empty where it can.
        note: what the engine does differently although it runs; may be empty.
    """

    engine: str
    version: str
    text: str
    refusal: str = ""
    note: str = ""


def changed_base(rope: Rope) -> float | None:
    """Return the base that alone makes ``rope`` from plain RoPE, or None if none does."""
    scaling = rope.scaling
    if isinstance(scaling, Plain):
        return rope.theta
    if isinstance(scaling, NTK):
        return ntk_base(rope.theta, scaling.factor, rope.rotary_dim)
    if isinstance(scaling, NTKCritical):
        return scaling.base(rope.theta)
    return None


def rope_parameters(rope: Rope) -> Block | None:
    """Return the ``rope_parameters`` of transformers 5 for a rope, or None if there are none.

    NTK and the critical-dimension rule are a larger ``rope_theta``. By-parts with the ramp in
    turns is ``llama3`` with ``beta_slow`` and ``beta_fast`` as its factors: the same formula.
    YaRN with the ramp in turns has no type of its own; ``longrope`` with one list of divisors
    for short and long texts and an explicit amplitude gives its frequencies.
    """
    out = _scaling_block(rope)
    # Latent attention rotates a slice at an offset; its config names the slice's size, and a
    # share of the head would halve it once more.
    if out is not None and rope.rotary_dim != rope.head_dim and not rope.rotary_offset:
        out["partial_rotary_factor"] = rope.rotary_dim / rope.head_dim
    return out


def _scaling_block(rope: Rope) -> Block | None:
    scaling = rope.scaling
    if (base := changed_base(rope)) is not None:
        return {"rope_type": "default", "rope_theta": base}
    # Factors are written as floats: vLLM 0.33 takes an integer one for a list.
    out: Block = {"rope_theta": rope.theta}
    match scaling:
        case Linear():
            out |= {"rope_type": "linear", "factor": float(scaling.factor)}
        case DynamicNTK():
            out |= {"rope_type": "dynamic", "factor": float(scaling.factor)}
        case Llama3():
            out |= {
                "rope_type": "llama3",
                "factor": float(scaling.factor),
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_length,
            }
        case NTKByParts() if scaling.ramp == "rotations":
            out |= {
                "rope_type": "llama3",
                "factor": float(scaling.factor),
                "low_freq_factor": scaling.beta_slow,
                "high_freq_factor": scaling.beta_fast,
                "original_max_position_embeddings": scaling.original_length,
            }
        case YaRN() if scaling.ramp == "rotations":
            plain = rope.with_scaling(Plain()).inv_freq()
            divisors = (plain / rope.inv_freq()).tolist()
            out |= {
                "rope_type": "longrope",
                "short_factor": divisors,
                "long_factor": divisors,
                "factor": float(scaling.factor),
                "attention_factor": scaling.amplitude(),
                "original_max_position_embeddings": scaling.original_length,
            }
        case YaRN() | NTKByParts():
            out |= _yarn_block(scaling)
        case LongRoPE():
            out |= {
                "rope_type": "longrope",
                "short_factor": list(scaling.short_factor),
                "long_factor": list(scaling.long_factor),
                "factor": float(scaling.factor),
                "original_max_position_embeddings": scaling.original_length,
            }
            if scaling.attention_factor is not None:
                out["attention_factor"] = scaling.attention_factor
        case Proportional():
            out |= {
                "rope_type": "proportional",
                "partial_rotary_factor": scaling.share,
                "factor": float(scaling.factor),
            }
        case _:
            return None
    return out


def _yarn_block(scaling: YaRN | NTKByParts) -> Block:
    out: Block = {
        "rope_type": "yarn",
        "factor": float(scaling.factor),
        "original_max_position_embeddings": scaling.original_length,
    }
    if isinstance(scaling, NTKByParts):
        out["attention_factor"] = 1.0
    else:
        for name in ("attention_factor", "mscale", "mscale_all_dim"):
            if (value := getattr(scaling, name)) is not None:
                out[name] = value
    for name, default in (("beta_fast", 32.0), ("beta_slow", 1.0), ("truncate", None)):
        if (value := getattr(scaling, name)) != default:
            out[name] = value
    return out


def stated_length(rope: Rope, target: int) -> int:
    """Return the ``max_position_embeddings`` to write for a target length.

    Dynamic NTK reads it as the original length, in transformers; it must stay.
    """
    if isinstance(rope.scaling, DynamicNTK) and rope.original_length is not None:
        return rope.original_length
    return target


def _transformers5(rope: Rope, target: int) -> tuple[str, str, str]:
    block = rope_parameters(rope)
    if block is None:
        return "", "no rope_type of transformers gives these frequencies", ""
    whole = {"rope_parameters": block, "max_position_embeddings": stated_length(rope, target)}
    return json.dumps(whole), "", ""


def legacy_block(rope: Rope) -> Block | None:
    """Return the keys of transformers 4: ``rope_theta`` and ``rope_scaling``."""
    block = rope_parameters(rope)
    if block is None:
        return None
    theta = block.pop("rope_theta")
    partial = block.pop("partial_rotary_factor", None)
    out: Block = {"rope_theta": theta}
    if partial is not None:
        out["partial_rotary_factor"] = partial
    out["rope_scaling"] = None if block == {"rope_type": "default"} else block
    return out


def _transformers4(rope: Rope, target: int) -> tuple[str, str, str]:
    block = legacy_block(rope)
    if block is None or isinstance(rope.scaling, Proportional):
        return "", "no rope_type of transformers 4 gives these frequencies", ""
    return (
        json.dumps({**block, "max_position_embeddings": stated_length(rope, target)}),
        "",
        "",
    )


def _vllm(rope: Rope, target: int) -> tuple[str, str, str]:
    block = rope_parameters(rope)
    if block is None:
        return "", "no rope_type gives these frequencies", ""
    if isinstance(rope.scaling, YaRN) and rope.scaling.ramp == "rotations":
        return "", "its longrope ignores attention_factor, so the amplitude would be another", ""
    if isinstance(rope.scaling, DynamicNTK):
        return "", "its dynamic has one base for all texts: the unscaled one by these keys", ""
    override = json.dumps({"rope_parameters": block})
    return f"--hf-overrides {shlex.quote(override)} --max-model-len {target}", "", ""


def _sglang(rope: Rope, target: int) -> tuple[str, str, str]:
    block, note = legacy_block(rope), ""
    if block is None:
        return "", "no rope_type gives these frequencies", ""
    if "attention_factor" in (block["rope_scaling"] or {}):
        return "", "its generic class ignores attention_factor: the amplitude differs", ""
    if isinstance(rope.scaling, DynamicNTK):
        note = "SGLang computes one base for the whole table: short texts change too"
    override = json.dumps(block)
    return (
        f"--json-model-override-args {shlex.quote(override)} --context-length {target}",
        "",
        note,
    )


def _llama_cpp(rope: Rope, target: int) -> tuple[str, str, str]:
    scaling = rope.scaling
    if (base := changed_base(rope)) is not None:
        return f"-c {target} --rope-scaling none --rope-freq-base {base:.9g}", "", ""
    match scaling:
        case Linear():
            return f"-c {target} --rope-scaling linear --rope-scale {scaling.factor:.9g}", "", ""
        case YaRN() if scaling.ramp == "index":
            if scaling.attention_factor is not None or scaling.mscale or scaling.mscale_all_dim:
                return "", "an amplitude of its own cannot be given (yarn-attn-factor is inert)", ""
            if scaling.truncate is False:
                return "", "it always rounds the correction range (truncate)", ""
            text = (
                f"-c {target} --rope-scaling yarn --rope-scale {scaling.factor:.9g} "
                f"--yarn-orig-ctx {scaling.original_length}"
            )
            if (scaling.beta_fast, scaling.beta_slow) != (32.0, 1.0):
                text += f" --yarn-beta-fast {scaling.beta_fast:g}"
                text += f" --yarn-beta-slow {scaling.beta_slow:g}"
            return text, "", ""
        case _:
            return "", f"it has no {scaling.kind} scaling", ""


Words = Callable[[Rope, int], tuple[str, str, str]]

ENGINES: dict[str, tuple[str, Words]] = {
    "transformers 5": ("5.24.0", _transformers5),
    "transformers 4": ("the rules of 4.x as 5.24.0 still reads them", _transformers4),
    "vLLM": ("0.33.0, read from source", _vllm),
    "SGLang": ("0.5.23, read from source", _sglang),
    "llama.cpp": ("0c1e570 of 2026-10, read from source", _llama_cpp),
}
"""Engine name to (version, function from rope and target to text, refusal, note)."""


def settings(rope: Rope, target: int) -> tuple[Setting, ...]:
    """Return what to give every engine to run ``rope`` up to ``target`` tokens."""
    return tuple(
        Setting(name, version, *words(rope, target)) for name, (version, words) in ENGINES.items()
    )


def settings_by_kind(ropes: dict[str, Rope], target: int) -> tuple[Setting, ...]:
    """Return what to give every engine where layer types have ropes of their own.

    Args:
        ropes: layer type, as transformers names it, to its rope; the stretched ones stretched.
        target: tokens wanted.

    transformers 5 and vLLM take one block per layer type. The others spell such models by
    family or by flags for all layers, which would stretch the local layers too.
    """
    blocks = {kind: rope_parameters(rope) for kind, rope in ropes.items()}
    nested = json.dumps({"rope_parameters": blocks, "max_position_embeddings": target})
    override = json.dumps({"rope_parameters": blocks})
    texts = {
        "transformers 5": nested,
        "vLLM": f"--hf-overrides {shlex.quote(override)} --max-model-len {target}",
    }
    why = "the layer types have different ropes, which it spells by family: edit its own keys"
    return tuple(
        Setting(name, version, texts.get(name, ""), "" if name in texts else why)
        for name, (version, _) in ENGINES.items()
    )
