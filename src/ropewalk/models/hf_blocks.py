"""The rope block of a config: under either name, flat or one per layer type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from .config_file import ConfigFile
from .hf_scaling import Block
from .plan import Sourced
from .spellings import BLOCKS, LAYER_KINDS, LOCAL_KINDS, hint


def read_blocks(config: ConfigFile, kinds: set[str]) -> dict[str, Block | None]:
    """Return the block of every layer kind that has a rope; None for no rope.

    Raises:
        InputError: unknown keys, or the two names of the block contradict each other.
    """
    path, raw = _merged_block(config)
    if raw is None and config.family.block is not None:
        path, raw = "rope_parameters", dict(config.family.block)
        config.note(f"the file has no rope block; assumed that of {config.default_origin}")
    raw = {} if raw is None else raw
    names = config.family.block_names
    nested = {key for key in raw if key in LAYER_KINDS or key in names.values()}
    if nested:
        return _nested_blocks(config, path, raw, nested, kinds)
    blocks: dict[str, Block | None] = {}
    flat = Block(raw, path, config)
    local = config.family.local
    for kind in sorted(kinds):
        if local is not None and kind in LOCAL_KINDS and not local.scaled:
            blocks[kind] = Block({}, path, config)
            if flat.kind != "default":
                config.note(f"scaling {flat.kind} applies to full layers only")
        else:
            blocks[kind] = flat
    return blocks


def _merged_block(config: ConfigFile) -> tuple[str, dict[str, Any] | None]:
    """Return the rope block under either name; both are merged where they agree."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in BLOCKS:
        value = config.values.get(name)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise InputError(
                config.where(name),
                found=repr(value),
                expected="an object or null",
                fix='write e.g. {"rope_type": "yarn", "factor": 4.0, …}',
            )
        found.append((name, dict(value)))
    if not found:
        return BLOCKS[0], None
    path, merged = found[0]
    for other, rival in found[1:]:
        for key, value in rival.items():
            mine = merged.setdefault(key, value)
            if mine != value:
                raise config.contradiction(f"{path}.{key}", mine, f"{other}.{key}", value)
    return path, merged


def _nested_blocks(
    config: ConfigFile, path: str, raw: dict[str, Any], nested: set[str], kinds: set[str]
) -> dict[str, Block | None]:
    for key in raw:
        if key not in nested and key in ("rope_type", "rope_theta", "factor", "type"):
            raise InputError(
                config.where(f"{path}.{key}"),
                found="a value beside blocks per layer type",
                expected="values within the blocks only",
                fix="move it into the block of its layer type",
            )
        if key not in nested:
            near = hint(key, LAYER_KINDS)
            raise InputError(
                config.where(f"{path}.{key}"),
                found="an unknown layer type",
                expected="one of " + ", ".join(LAYER_KINDS),
                fix=f"did you mean {near!r}?" if near else "correct the name",
            )
    names = config.family.block_names
    used = {names.get(kind, kind) for kind in kinds}
    for key in sorted(nested - used):
        config.note(f"{path}.{key} is not used: no such layer has a rope")
    blocks: dict[str, Block | None] = {}
    for kind in sorted(kinds):
        key = names.get(kind, kind)
        if key not in raw and config.family.local is None:
            raise InputError(
                config.where(f"{path}.{key}"),
                found="nothing",
                expected="a block, because the model has layers of this type",
                fix="add it, or null for layers without rope",
            )
        value = raw.get(key)
        if value is None and config.family.local is None:
            blocks[kind] = None
            config.sources[f"rope ({kind})"] = Sourced("none", config.origin(f"{path}.{key}"))
            continue
        if not isinstance(value, Mapping | None):
            raise InputError(
                config.where(f"{path}.{key}"),
                found=repr(value),
                expected="an object or null",
                fix="give the rope values of this layer type",
            )
        blocks[kind] = Block(value or {}, f"{path}.{key}", config)
    return blocks
