"""The position axes that a file of flat settings gives: ``mrope_section`` and its switches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..axes import MultiAxisRope
from ..axis_layouts import interleaved, sectioned
from ..errors import InputError
from ..rope import Rope
from .flat_file import FlatFile


@dataclass(frozen=True)
class FlatAxes:
    """What a program does with ``mrope_section``.

    Attributes:
        layout: how it hands planes out to time, height and width.
        concept: the concept that turns several axes on.
        values: with these values.
        instead: what the file has where it is off, in words.
    """

    layout: Callable[[Rope, Any], MultiAxisRope]
    concept: str
    values: tuple[Any, ...]
    instead: str


IN_SECTIONS = FlatAxes(sectioned, "encoding", ("mrope",), "position_embedding_type is not mrope")
"""Megatron's ``MultimodalRotaryEmbedding``."""

EVERY_THIRD = FlatAxes(interleaved, "axes_switch", (True,), "use_mrope is not true")
"""MaxText's ``Qwen3OmniMoeThinkerTextRotaryEmbedding``."""


def flat_axes(file: FlatFile, row: FlatAxes | None, rope: Rope) -> MultiAxisRope | None:
    """Return which axis turns which plane, or None where there is one axis, or none is said.

    Raises:
        InputError: sections that do not fit the rope, or with which the program's own code
            does something else.
    """
    found = file.given("sections")
    if row is None:
        return None
    switch = file.given(row.concept)
    on = switch is not None and switch.value in row.values
    if found is None:
        if on:
            file.note("no mrope_section in the file: the axes of images and video are unknown")
        return None
    if not on:
        file.note(f"mrope_section is not used: {row.instead}")
        return None
    key = found.source.split(": ", 1)[-1]
    if rope.pairing != "half":
        raise InputError(
            f"{file.label}: {key}",
            found="sections with interleaved lanes",
            expected="one of the two",
            fix="the program cuts its sections otherwise then, which is not described here",
        )
    file.sources["mrope_section"] = found
    try:
        return row.layout(rope, _counts(found.value))
    except InputError as error:
        raise error.within(file.label) from None


def _counts(value: Any) -> Any:
    """Return whole numbers out of a list, or out of a flag's text such as ``16 24 24``."""
    parts = re.split(r"[\s,]+", value.strip("[]() ")) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return value
    return [int(p) if isinstance(p, str) and p.isdecimal() and len(p) < 6 else p for p in parts]
