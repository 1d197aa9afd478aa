"""A model's raw keys, one `LayerConfig` for each kind of its layers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..models.engine_apply import check_factor, merge_overrides
from ..models.engine_settings import EngineSettings
from ..models.families import FAMILIES, WRAPPERS
from ..models.hf_parts import main_part
from ..models.load import load
from ..models.plan import LayerPositions, ModelPositions
from ..models.read import read_whole, settings_of
from ..models.spellings import BLOCKS, LAYER_KINDS, LOCAL_KINDS
from ..scaling import Plain, Proportional
from .reading import LayerConfig

_CONFIGS = ("hf", "mlx")
# Engines that take keys of the config in place of numbers.
_OVERRIDING = ("vllm", "sglang")


@dataclass(frozen=True)
class Source:
    """A model as engines find it.

    Attributes:
        plan: what Ropewalk reads.
        values: the part of a config of transformers that describes the language model; of a
            file of another format, what `convert` writes for it.
        groups: every kind of layer that has a rope, with the indices of its layers.
        notes: what a user should know.
        flags: settings of llama.cpp, which reach that engine alone.
        running: what llama.cpp runs of a file of its own: the plan with the flags.
        context: tokens that the settings make room for, or None.
    """

    plan: ModelPositions
    values: Mapping[str, Any]
    groups: tuple[tuple[LayerPositions, tuple[int, ...]], ...]
    notes: tuple[str, ...]
    flags: EngineSettings | None
    running: ModelPositions
    context: int | None

    def layer(self, group: LayerPositions, length: int) -> LayerConfig:
        """Return the raw keys of one kind of layer, for a text of ``length`` tokens."""
        rope = group.rope
        assert rope is not None
        row = FAMILIES.get(WRAPPERS.get(self.plan.model_type, self.plan.model_type))
        name = group.kind if row is None else row.block_names.get(group.kind, group.kind)
        known = set(LAYER_KINDS) | ({name} if row is None else set(row.block_names.values()))
        new, nested = _of_kind(self.values.get("rope_parameters"), name, known)
        old, nested_old = _of_kind(self.values.get("rope_scaling"), name, known)
        assumed = None
        if not any(self.values.get(block) for block in BLOCKS) and row is not None:
            assumed, _ = _of_kind(row.block, name, known)
        return LayerConfig(
            model_type=str(self.values.get("model_type") or self.plan.model_type),
            values=self.values,
            layer_kind=group.kind,
            head_dim=rope.head_dim,
            rotary_dim=rope.rotary_dim,
            theta=rope.theta,
            latent=isinstance(self.values.get("qk_rope_head_dim"), int),
            new=new,
            old=old,
            nested=nested or nested_old,
            unscaled=group.kind in LOCAL_KINDS
            and not (nested or nested_old)
            and isinstance(rope.scaling, Plain)
            and self.plan.rope is not None
            and not isinstance(self.plan.rope.scaling, Plain),
            softmax_multiplier=group.softmax_multiplier,
            length=length,
            share=rope.scaling.share if isinstance(rope.scaling, Proportional) else 1.0,
            pairing=rope.pairing,
            assumed=assumed,
            flags=self.flags,
        )


def _of_kind(block: object, kind: str, known: set[str]) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the block of one kind of layer, and whether the blocks are by layer type."""
    if not isinstance(block, Mapping) or not block:
        return None, False
    if not any(key in known and isinstance(block[key], Mapping) for key in block):
        return block, False
    found = block.get(kind)
    return (found if isinstance(found, Mapping) else None), True


def read_source(
    path: Path,
    *,
    assume_family: str | None = None,
    engine_args: str | None = None,
    overrides: str | None = None,
) -> Source:
    """Read a model and the keys that engines read.

    Args:
        path: the model.
        assume_family: see `ropewalk.read`.
        engine_args: the command line of an engine. What vLLM and SGLang are told replaces keys
            of the config, for every engine; numbers for llama.cpp reach that engine alone.
        overrides: keys that replace those of the config, as JSON.

    Raises:
        InputError: not readable, of a format that cannot be written as a config, or settings
            that do not fit.
    """
    settings = settings_of(engine_args, overrides)
    flags = settings if settings is not None and settings.overrides is None else None
    if flags is not None and flags.format in _OVERRIDING:
        flags = None  # a length alone
    plan = read_whole(
        path,
        assume_family=assume_family,
        engine_args=None if flags is not None else engine_args,
        overrides=overrides,
    )
    running, notes = plan, list[str]()
    if flags is not None:
        check_factor(flags)
        notes = [f"the flags of {flags.format} are applied to llama.cpp alone", *flags.notes]
        if plan.format == "gguf":
            running = read_whole(path, engine_args=engine_args)
    elif settings is not None and settings.overrides is not None:
        notes.append("the overrides replace keys of the config, here for every engine")
        notes += settings.notes
    groups = tuple((layer, indices) for layer, indices in plan.groups() if layer.rope is not None)
    if not groups:
        raise InputError(
            str(path),
            found="no layer with a rope of one axis",
            expected="a language model with rotary embeddings",
            fix="there is nothing to compare",
        )
    context = None if settings is None else settings.value("context")
    if plan.format in _CONFIGS:
        values = load(path).content
        if settings is not None and settings.overrides is not None:
            values, told = merge_overrides(values, settings.overrides, settings.label)
            notes += told
        part = main_part(values)[1]
        return Source(plan, part, groups, tuple(dict.fromkeys(notes)), flags, running, context)
    from ..convert.convert import convert
    from ..convert.document import Options

    written = convert(plan, "hf", lossy=True, options=Options(family=assume_family))
    notes += [f"the file is {plan.format}: engines that read configs are given that of convert"]
    notes += [f"lost on the way: {loss}" for loss in written.lost]
    values = main_part(json.loads(written.text))[1]
    return Source(plan, values, groups, tuple(dict.fromkeys(notes)), flags, running, context)
