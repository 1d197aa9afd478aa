"""Which layers of a GGUF file have a window, rope, or linear attention in place of both."""

from __future__ import annotations

from ..errors import InputError
from .gguf_families import LISTED, Architecture
from .gguf_values import GGUFValues
from .plan import Sourced


def _has_rope(architecture: Architecture, window: int | None, index: int, *, local: bool) -> bool:
    if architecture.no_rope == "full":
        return local or window is None
    if architecture.no_rope == "every_4th":
        return bool((index + 1) % 4) or bool(architecture.chunk and window is None)
    return True


def rope_flags(
    values: GGUFValues,
    architecture: Architecture,
    window: int | None,
    local: list[bool],
    count: int,
) -> list[bool]:
    """Return for every layer whether it has rope.

    Args:
        values: the metadata of the file.
        architecture: its row.
        window: the window of windowed layers, or None.
        local: which layers have it.
        count: number of layers.
    """
    switch = architecture.rope_switch
    if switch is not None and values.get(switch) is False:
        values.sources["rope"] = Sourced("none", values.origin(switch))
        return [False] * count
    pattern = values.get("attention.rope_pattern") if architecture.rope_pattern else None
    if pattern is not None:
        return _listed(values, "attention.rope_pattern", count)
    dense = values.count("leading_dense_block_count") if architecture.dense_rope else None
    return [
        index < (dense or 0) or _has_rope(architecture, window, index, local=local[index])
        for index in range(count)
    ]


def linear_layers(values: GGUFValues, architecture: Architecture, count: int) -> list[bool]:
    """Return for every layer whether it is linear attention."""
    if not architecture.linear_period:
        return [False] * count
    key = "attention.recurrent_layers"
    if values.get(key) is not None:
        return _listed(values, key, count)
    every = values.count("full_attention_interval") or architecture.linear_period
    return [(index + 1) % every != 0 for index in range(count)]


def _listed(values: GGUFValues, key: str, count: int) -> list[bool]:
    """Return a list of one flag per layer."""
    found = values.get(key)
    if not isinstance(found, list) or len(found) < count:
        raise InputError(
            values.where(key),
            found=f"{len(found)} entries" if isinstance(found, list) else repr(found),
            expected=f"{count}, one per layer",
            fix="convert the model again",
        )
    return [bool(entry) for entry in found[:count]]


def local_layers(
    values: GGUFValues, architecture: Architecture, window: int | None, count: int
) -> list[bool]:
    """Return for every layer whether it has the window.

    Raises:
        InputError: a list that is missing or too short.
    """
    if window is None:
        return [False] * count
    key = "attention.sliding_window_pattern"
    pattern = values.get(key)
    if isinstance(pattern, list):
        return _listed(values, key, count)
    if architecture.period == LISTED:
        raise InputError(
            values.where(key),
            found="nothing" if pattern is None else repr(pattern),
            expected="a list of which layers have the window, which this architecture needs",
            fix="convert the model again",
        )
    period = architecture.period if pattern is None else values.require(key)
    at = 0 if architecture.first else period - 1
    return [index % period != at for index in range(count)]
