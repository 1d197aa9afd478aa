"""Configs that hold several models: which part is the language model, and the parts beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import InputError
from .composites import BESIDE, MAIN
from .families import FAMILIES
from .plan import ModelPositions, Tower
from .spellings import NESTED_TEXT

Values = Mapping[str, Any]
# Parts of parts: thinker_config.vision_config, structure_head.diffusion_module.atom_encoder.
_DEEPEST = 3


def main_part(config: Values) -> tuple[str, Values]:
    """Return the path of the part that is the language model, and the part.

    The path is empty where the config itself is it.
    """
    for path in MAIN.get(str(config.get("model_type")), ()):
        found = _at(config, path)
        if found is not None:
            return path, found
    for key in NESTED_TEXT:
        if isinstance(config.get(key), Mapping):
            return key, config[key]
    return "", config


def _at(config: Values, path: str) -> Values | None:
    found: Any = config
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def parts_beside(config: Values, main: str) -> Iterator[tuple[str, Values, str]]:
    """Yield path, values and row of every part beside the main one that the table knows."""
    named = BESIDE.get(str(config.get("model_type")), {})
    if "" in named and main:
        yield "", config, named[""]
    yield from _within(config, "", main, named, 1)


def _within(
    values: Values, prefix: str, main: str, named: Mapping[str, str], depth: int
) -> Iterator[tuple[str, Values, str]]:
    for key, inner in values.items():
        path = f"{prefix}{key}"
        if not isinstance(inner, Mapping) or path == main or depth > _DEEPEST:
            continue
        row = named.get(path) or str(inner.get("model_type"))
        if row in FAMILIES:
            yield path, inner, row
        else:
            yield from _within(inner, f"{path}.", main, named, depth + 1)


def towers_of(
    config: Values, main: str, read_part: Callable[[Values, str, str], ModelPositions]
) -> tuple[tuple[Tower, ...], list[str]]:
    """Read every part beside the main one.

    Args:
        config: the whole config.
        main: path of the main part.
        read_part: reads one part, from its values, path and row.

    Returns:
        One tower for each distinct kind of layer of each part; and notes on what was left out.
    """
    towers, notes = list[Tower](), list[str]()
    for path, values, row in parts_beside(config, main):
        try:
            plan = read_part(values, path, row)
        except InputError as error:
            notes.append(f"{path or 'the rope beside the text'} is not described: {error}")
            continue
        for layer, indices in plan.groups():
            positions = layer.rope if layer.axes is None else layer.axes
            if positions is not None:
                remarks = FAMILIES[row].remarks
                towers.append(Tower(path, row, len(indices), layer.kind, positions, remarks))
    return tuple(towers), notes
