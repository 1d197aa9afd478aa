"""Reader of ``config.json`` of a transformer of diffusers: told by ``_class_name``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..rope import MOST_LANES, Rope
from .keyed_file import KeyedFile
from .layers import LayerKind
from .plan import Axes, LayerPositions, ModelPositions, Sourced, Tower
from .rows.denoiser import Denoiser
from .rows.diffusers import DENOISERS
from .rows.diffusers_layouts import Heads
from .rows.diffusers_without_rope import WITHOUT_ROPE
from .spellings import hint


def is_diffusers(values: Mapping[str, Any]) -> bool:
    """Tell whether a config names a class of diffusers."""
    return isinstance(values.get("_class_name"), str)


def read_diffusers(values: Mapping[str, Any], label: str) -> ModelPositions:
    """Read a config of a model of diffusers.

    Args:
        values: the parsed file.
        label: how errors and `ModelPositions.path` name it.

    Returns:
        The positions of every layer. Where they have several axes, ``rope`` is None and
        ``axes`` says which axis turns which plane; the notes say what the positions are.

    Raises:
        InputError: a class that is not in the table or has no rope, or values that fit none.
    """
    name = str(values.get("_class_name"))
    row = _row(name, label, values)
    file = KeyedFile(label, values, f"diffusers' {name}")
    _refuse_other_positions(file, row)
    for remark in row.remarks:
        file.note(remark)
    count = sum(file.layers(*key) for key in row.layers)
    if count < 1:
        raise file.refusal(
            row.layers[0][0], found="0", expected="at least one layer", fix="correct the value"
        )
    heads = _heads(file, row)
    file.sources["layers"] = Sourced(count, " + ".join(file.origin(key) for key, _ in row.layers))
    kv_heads = heads.count
    if row.kv_heads is not None:
        key, default = row.kv_heads
        kv_heads = file.count(key, heads.count if default is None else default)
        file.sources["kv_heads"] = Sourced(kv_heads, file.origin(key))
    found = _laid_out(file, row, heads)
    kinds = (
        [LayerKind("full_attention", True, None)] * count
        if row.kinds is None
        else row.kinds(file, count)
    )
    pairing = file.sources.get("pairing")
    file.sources["pairing"] = Sourced(
        found.pairing, f"rule of {file.defaults_of}" if pairing is None else pairing.source
    )
    layers = tuple(
        LayerPositions(
            index,
            layer.kind,
            found if isinstance(found, Rope) else None,
            layer.window,
            axes=None if isinstance(found, Rope) else found,
        )
        for index, layer in enumerate(kinds)
    )
    stated = file.sources.get("stated_length")
    return ModelPositions(
        path=label,
        format="diffusers",
        model_type=name,
        layers=layers,
        original_length=found.original_length if isinstance(found, Rope) else None,
        stated_length=None if stated is None else stated.value,
        heads=heads.count,
        kv_heads=kv_heads,
        value_dim=heads.size,
        sources=file.sources,
        notes=tuple(file.notes),
        towers=_towers(file, row),
    )


def _laid_out(file: KeyedFile, row: Denoiser, heads: Heads) -> Rope | Axes:
    """Return the positions, and name the file in what a rope refuses."""
    try:
        return row.layout(file, heads)
    except InputError as error:
        if error.where.startswith(file.label):
            raise
        raise error.within(file.label) from None


def _row(name: str, label: str, values: Mapping[str, Any]) -> Denoiser:
    where = f"{label}: _class_name"
    if name in DENOISERS:
        return DENOISERS[name]
    if name in WITHOUT_ROPE:
        raise InputError(
            where,
            found=f"{name!r}, which has {WITHOUT_ROPE[name]}",
            expected="a model with rotary embeddings",
            fix="there is no rope in it that the config determines",
        )
    if any(isinstance(part, list) and len(part) == 2 for part in values.values()):
        parts = [key for key, part in values.items() if key.startswith("transformer")]
        raise InputError(
            where,
            found=f"{name!r}, a pipeline of several models",
            expected="the config of one of them",
            fix=f"give {parts[0]}/config.json" if parts else "it lists no transformer",
        )
    near = hint(name, list(DENOISERS))
    raise InputError(
        where,
        found=f"{name[:60]!r}, a class that is not in the table",
        expected="a known transformer of diffusers" + (f", e.g. {near}" if near else ""),
        fix="if its code equals a known one, put that name in a copy of the config",
    )


def _refuse_other_positions(file: KeyedFile, row: Denoiser) -> None:
    if row.only_if is None:
        return
    key, values, default, otherwise = row.only_if
    found = file.get(key, default)
    if found not in values:
        origin = "" if file.values.get(key) is not None else " (the default)"
        raise file.refusal(
            key,
            found=f"{found!r}{origin}: positions are {otherwise}",
            expected=f"{values[0]!r}, with which the model has rotary embeddings",
            fix="there is no rope in it to inspect",
        )


def _heads(file: KeyedFile, row: Denoiser) -> Heads:
    """Return the lanes of a head and the number of heads."""
    if row.head_dim is not None:
        key, default = row.head_dim
        size, origin = file.lanes(key, default), file.origin(key)
        count = file.count(*row.heads)
        heads_origin = file.origin(row.heads[0])
    else:
        assert row.width is not None
        key, default = row.width
        wide = file.count(key, default)
        if row.total is None:
            count, heads_origin = file.count(*row.heads), file.origin(row.heads[0])
            size = wide // count
            origin = f"derived: {key} / {row.heads[0]}"
        else:
            size, origin = sum(file.numbers(*row.total)), f"derived: the sum of {row.total[0]}"
            count, heads_origin = wide // size, f"derived: {key} / {row.total[0]}"
        if size * count != wide or size < 2:
            raise file.refusal(
                key,
                found=f"{wide}, for heads of {size} lanes" if row.total else f"{wide} / {count}",
                expected="a width that is heads times lanes",
                fix="take both from the model's own config",
            )
    if size > MOST_LANES:
        raise file.refusal(
            key,
            found=f"heads of {size} lanes",
            expected=f"at most {MOST_LANES}",
            fix="take the sizes from the model's own config",
        )
    file.sources["head_dim"] = Sourced(size, origin)
    file.sources["heads"] = Sourced(count, heads_origin)
    return Heads(size, count)


def _towers(file: KeyedFile, row: Denoiser) -> tuple[Tower, ...]:
    """Return the ropes of the streams beside the main one."""
    out = []
    for path, part in row.beside.items():
        inner = KeyedFile(file.label, file.values, file.defaults_of)
        found = _laid_out(inner, part, _heads(inner, part))
        count = sum(inner.layers(*key) for key in part.layers)
        out.append(Tower(path, path, count, "full_attention", found, part.remarks))
    return tuple(out)
