"""What each engine must be told to run a given rope: one table of engines.

An engine's row turns a rope into its own words or says why it cannot. The rules were read
from the versions named in ``ENGINES``; transformers' are also run by the tests.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from ..convert.rope_block import Block, changed_base, rope_parameters
from ..rope import Rope
from ..scaling import (
    DynamicNTK,
    Linear,
    Proportional,
    YaRN,
)


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
    if None in blocks.values():
        why = "no rope_type gives these frequencies"
        return tuple(Setting(name, version, "", why) for name, (version, _) in ENGINES.items())
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
