"""Reader of ``config.json`` of Hugging Face transformers, both generations.

Before transformers 5: ``rope_theta`` and ``rope_scaling`` at the top; since then
``rope_parameters``, flat or one block per layer type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..rope import Rope
from .composites import BESIDE
from .config_file import ConfigFile
from .families import BESIDE_ROPE, FAMILIES, NO_ROTATION, WITHOUT_ROPE, WRAPPERS
from .fope import SWITCH, kept_frequencies, without_switch
from .hf_blocks import read_blocks
from .hf_heads import read_heads
from .hf_parts import main_part, towers_of
from .hf_rope import RopePlan, RopeReader
from .layers import LayerKind, layer_kinds
from .plan import LayerPositions, ModelPositions, QueryTemperature, Sourced
from .spellings import BLOCKS, hint


def read_config(
    config: Mapping[str, Any], source: str, *, assume_family: str | None = None
) -> ModelPositions:
    """Read a config of transformers that is already in memory.

    Args:
        config: the parsed ``config.json``, or ``PretrainedConfig.to_dict()``.
        source: how errors and `ModelPositions.path` name it, e.g. its path.
        assume_family: a ``model_type`` of the family table to read it as, for configs whose
            own type is unknown. The notes say so.

    Returns:
        The position plan of the language model in it.

    Raises:
        InputError: an unknown family or key, contradictory or invalid values.
    """
    if not isinstance(config, Mapping):
        raise InputError(
            source,
            found=f"a {type(config).__name__}",
            expected="an object with model_type and sizes",
            fix="pass a config.json of transformers",
        )
    file, model_type, notes = _find_text_model(config, source, assume_family)
    file.notes.extend(notes)
    plan = _read_model(file, model_type)

    def read_part(values: Mapping[str, Any], path: str, row: str) -> ModelPositions:
        prefix = f"{path}." if path else ""
        return _read_model(_part(source, prefix, values, row), row)

    towers, left_out = towers_of(config, file.prefix.rstrip("."), read_part)
    return dataclasses.replace(plan, towers=towers, notes=(*plan.notes, *left_out))


def _find_text_model(
    config: Mapping[str, Any], source: str, assume_family: str | None
) -> tuple[ConfigFile, str, list[str]]:
    """Return the part that describes the language model, its type, and notes so far."""
    outer = config.get("model_type")
    path, values = main_part(config)
    prefix, notes = f"{path}." if path else "", []
    if path and "" not in BESIDE.get(str(outer), {}):
        for block in (*BLOCKS, "rope_theta"):
            if config.get(block) is not None and config[block] != values.get(block):
                notes.append(
                    f"{block} at the top of the file is not used: the language model is {path}"
                )
    found = values.get("model_type") or outer
    if found is None:
        found = _type_from_classes(values)
        if found is not None:
            notes.append(f"model_type is missing; {found!r} was told by architectures")
    if assume_family is not None:
        if assume_family not in FAMILIES:
            near = hint(assume_family, list(FAMILIES))
            raise InputError(
                "assume_family",
                found=repr(assume_family),
                expected="a family of the table",
                fix=f"did you mean {near!r}?" if near else "name one, e.g. 'llama'",
            )
        if found != assume_family:
            notes.append(f"read as family {assume_family!r} on request; the file says {found!r}")
        family, shown = assume_family, str(found or assume_family)
    else:
        family, shown = _family_name(found, prefix, config, source), str(found)
    return _part(source, prefix, values, family), shown, notes


def _part(source: str, prefix: str, values: Mapping[str, Any], family: str) -> ConfigFile:
    """Return one part of a config, its old keys rewritten."""
    row = FAMILIES[family]
    name = source.replace("\\", "/").rsplit("/", 1)[-1]
    values = values if row.prepare is None else row.prepare(values)
    return ConfigFile(source, name, prefix, values, row)


def _type_from_classes(values: Mapping[str, Any]) -> str | None:
    """Return the family that the name of the model class means, e.g. MiniCPM3ForCausalLM."""
    classes = values.get("architectures")
    if not isinstance(classes, list) or len(classes) != 1 or not isinstance(classes[0], str):
        return None
    name = classes[0].removesuffix("ForCausalLM").removesuffix("LMHeadModel").lower()
    named = [family for family in FAMILIES if family.replace("_", "") == name]
    return named[0] if named else None


def _family_name(found: object, prefix: str, config: Mapping[str, Any], source: str) -> str:
    where = f"{source}: {prefix}model_type"
    if not isinstance(found, str) or not found:
        raise InputError(
            where,
            found="nothing" if found is None else repr(found),
            expected="the family of the model, e.g. 'llama'",
            fix="add model_type, or name the family with --assume-family",
        )
    name = WRAPPERS.get(found, found)
    if name in FAMILIES:
        return name
    if name in WITHOUT_ROPE:
        raise InputError(
            where,
            found=f"{found!r}, which has {WITHOUT_ROPE[name]}",
            expected="a model with rotary embeddings",
            fix="there is no rope in it to inspect",
        )
    near = hint(found, [*FAMILIES, *WRAPPERS])
    classes = config.get("architectures")
    told = f" (architectures: {classes[0]})" if isinstance(classes, list) and classes else ""
    raise InputError(
        where,
        found=f"{found!r}{told}, a family that is not in the table",
        expected="a known family" + (f", e.g. {near!r}" if near else ""),
        fix="if its code equals a known one, name that with --assume-family",
    )


def _read_model(config: ConfigFile, model_type: str) -> ModelPositions:
    _refuse_other_encodings(config)
    for remark in config.family.remarks:
        config.note(remark)
    heads = read_heads(config)
    stated = config.count("stated_length") or Sourced(
        config.family.sizes.length,
        "unknown" if config.family.sizes.length is None else config.default_origin,
    )
    if stated.source == config.default_origin:
        config.note(f"max_position_embeddings is missing; assumed {stated.value} ({stated.source})")
    config.sources["stated_length"] = stated
    kinds = layer_kinds(config)
    blocks = read_blocks(config, {layer.kind for layer in kinds if layer.has_rope})
    first = {layer.kind: index for index, layer in reversed(list(enumerate(kinds)))}
    reader = RopeReader(config, heads, stated.value, blocks, first)
    plans = {
        kind: reader.plan_of(kind, block) for kind, block in blocks.items() if block is not None
    }
    stretched = _stretched_layers(config)
    layers = tuple(
        _layer(config, index, layer, plans, stretched) for index, layer in enumerate(kinds)
    )
    _note_windows(config, stated.value, layers)
    plan = ModelPositions(
        path=config.label,
        format="hf",
        model_type=model_type,
        layers=layers,
        original_length=None,
        stated_length=stated.value,
        heads=heads.heads,
        kv_heads=heads.kv_heads,
        value_dim=heads.value_dim,
        sources=config.sources,
        notes=tuple(config.notes),
    )
    original = None if plan.rope is None else plan.rope.original_length
    return dataclasses.replace(plan, original_length=original)


def _refuse_other_encodings(config: ConfigFile) -> None:
    if config.values.get("alibi"):
        raise InputError(
            config.where("alibi"),
            found=f"{config.values['alibi']!r}: positions are ALiBi",
            expected="a model with rotary embeddings",
            fix="if the model does use rope (Falcon 7B and 40B do), set alibi to false",
        )
    for key, reason in NO_ROTATION.items():
        for name in ("", *BLOCKS):
            block = config.values.get(name) if name else config.values
            if isinstance(block, Mapping) and block.get(key):
                known = _known_of_fope(config) if key == SWITCH else ""
                raise InputError(
                    config.where(f"{name}.{key}" if name else key),
                    found=f"{block[key]!r}: positions are {reason}{known}",
                    expected="a model with rotary embeddings alone",
                    fix="there is no plain rope in it to inspect",
                )
    condition = config.family.condition
    if condition is not None and condition.otherwise is not None:
        found = config.values.get(condition.key, condition.default)
        if found not in condition.values:
            raise InputError(
                config.where(condition.key),
                found=f"{found!r}: positions are {condition.otherwise}",
                expected=f"{condition.values[0]!r}, with which the model has rotary embeddings",
                fix="there is no rope in it to inspect",
            )
    for key, reason in config.family.requires.items():
        if config.values.get(key) is None:
            raise InputError(
                config.where(key), found="nothing", expected=reason, fix="add it if that is so"
            )
    described = (config.family.stepped_ntk, config.family.log_n)
    for key, remark in BESIDE_ROPE.items():
        if config.values.get(key) and key not in described:
            config.note(remark)


def _known_of_fope(config: ConfigFile) -> str:
    """Return what the config does say about FoPE, as the end of a sentence."""
    plain = without_switch(config.values)
    try:
        plan = _read_model(dataclasses.replace(config, values=plain), SWITCH)
    except InputError:
        return ""
    kept = (
        "" if plan.rope is None else kept_frequencies(plan.rope, config.values, plan.stated_length)
    )
    return f"; {kept}" if kept else ""


def _layer(
    config: ConfigFile,
    index: int,
    layer: LayerKind,
    plans: dict[str, RopePlan],
    stretched: frozenset[int] | None,
) -> LayerPositions:
    rope: Rope | None = None
    multiplier, tempered, axes = 1.0, None, None
    if layer.has_rope and layer.kind in plans:
        plan = plans[layer.kind]
        if layer.theta is not None:
            plan = plan.with_theta(layer.theta)
        if stretched is not None and index not in stretched:
            plan = plan.unscaled()
        axes = plan.axes
        rope = None if config.family.axial is not None else plan.rope
        multiplier = plan.softmax_multiplier
        tempered = plan.query_temperature
    elif config.family.temperature == "layers_without_rope":
        tempered = _temperature_without_rope(config)
    return LayerPositions(index, layer.kind, rope, layer.window, multiplier, tempered, axes)


def _stretched_layers(config: ConfigFile) -> frozenset[int] | None:
    """Return the layers that the scaling applies to; None for all."""
    key = config.family.scaled_layers
    listed = None if key is None else config.values.get(key)
    if key is None or listed is None:
        return None
    if not isinstance(listed, list) or not all(type(index) is int for index in listed):
        raise InputError(
            config.where(key),
            found=repr(listed),
            expected="a list of layer indices",
            fix="take the list from the model's own config",
        )
    config.sources["stretched layers"] = Sourced(len(listed), config.origin(key))
    return frozenset(listed)


def _temperature_without_rope(config: ConfigFile) -> QueryTemperature | None:
    """Llama 4: queries of layers without rope grow with the logarithm of the position."""
    if not config.switch("attn_temperature_tuning", default=True):
        return None
    scale = config.values.get("attn_scale")
    floor = config.values.get("floor_scale")
    config.sources["query_temperature"] = (
        Sourced(0.1, config.default_origin)
        if scale is None
        else Sourced(scale, config.origin("attn_scale"))
    )
    length = 8192 if floor is None else int(config.positive("floor_scale", floor))
    beta = 0.1 if scale is None else config.positive("attn_scale", scale)
    return QueryTemperature(beta, length, offset=1)


def _note_windows(
    config: ConfigFile, stated_length: int | None, layers: tuple[LayerPositions, ...]
) -> None:
    windows = {layer.window for layer in layers if layer.window is not None}
    for window in sorted(windows):
        if stated_length is not None and window >= stated_length:
            config.note(
                f"the window of {window} is no smaller than the stated length "
                f"{stated_length}: it has no effect within it"
            )
    if any(layer.kind == "chunked_attention" for layer in layers):
        config.note(
            "chunked attention: a query sees its own chunk only; the window shown is the "
            "size of a chunk"
        )
