"""The position axes of one kind of layer of a config of transformers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..axes import Turn
from ..axis_layouts import (
    TIME_HEIGHT_WIDTH,
    alternating,
    alternating_with_tail,
    interleaved,
    sectioned,
)
from ..encodings.lane_turns import LaneTurns
from ..rope import Rope
from .config_file import ConfigFile
from .hf_scaling import Block
from .plan import Axes, Sourced


def axes_of(config: ConfigFile, block: Block, rope: Rope) -> Axes | None:
    """Return which position axis turns which plane, or None where there is one axis.

    Sections that do not fit the rope are said in a note: text is not affected by them.
    """
    rule = config.family.axes
    key = next((k for k in _KEYS if block.get(k) is not None), None)
    if key is not None:
        config.sources["mrope_section"] = Sourced(block.get(key), block.source(key))
    if rule is None:
        if key is not None:
            config.note(
                f"{block.path}.{key} is not used: {config.family.defaults_of} reads no sections"
            )
        return None
    sections = rule.sections if key is None else block.get(key)
    if key is None and sections:
        config.sources["mrope_section"] = Sourced(list(sections), config.default_origin)
    if not sections and rule.layout != "rows_and_columns":
        return None
    if not _fit(rule.layout, sections, rope):
        config.note(
            f"mrope_section {list(sections) if isinstance(sections, tuple) else sections} does "
            f"not add up to the {rope.planes} planes of the rope: the axes of images and video "
            "are unknown; text is not affected"
        )
        return None
    return _LAYOUTS[rule.layout](rope, sections)


_KEYS = ("mrope_section", "xdrope_section")


def _fit(layout: str, sections: Any, rope: Rope) -> bool:
    if layout == "rows_and_columns":
        return True
    numbers = isinstance(sections, list | tuple) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sections
    )
    if not numbers or len(sections) < (1 if layout == "doubled" else 3):
        return False
    if layout == "alternating_with_tail" and sections[0] != sections[1]:
        return False
    return layout == "interleaved" or sum(sections) == rope.planes


def _doubled(rope: Rope, sections: Any) -> LaneTurns:
    """HunYuan-VL: the doubled table is cut into sections twice as wide.

    The two lanes of a plane then follow different axes wherever the cuts of the first half
    differ from those of the second.
    """
    axes = ("width", "height", "time", "axis 3")
    count = len(sections)
    owners = [i % count for i, size in enumerate(sections) for _ in range(2 * size)]
    return LaneTurns(
        head_dim=rope.head_dim,
        ladders=(rope,),
        lanes=tuple(Turn(axis, lane % rope.planes) for lane, axis in enumerate(owners)),
        axes=tuple(axes[i] if i < len(axes) else f"axis {i}" for i in range(count)),
        pairing=rope.pairing,
        reason="the sections are cut from the doubled table, so the two lanes of a plane follow "
        "different axes; on text, where all axes are equal, it is a rotation",
    )


_LAYOUTS: dict[str, Callable[[Rope, Any], Axes]] = {
    "sections": lambda rope, sections: sectioned(rope, sections, TIME_HEIGHT_WIDTH),
    "interleaved": lambda rope, sections: interleaved(rope, sections, TIME_HEIGHT_WIDTH),
    "alternating_with_tail": lambda rope, sections: alternating_with_tail(rope, sections),
    "rows_and_columns": lambda rope, _: alternating(rope),
    "doubled": _doubled,
}


def with_rope(axes: Axes, rope: Rope) -> Axes:
    """Return the same axes over another rope with as many planes."""
    ladder = dataclasses.replace(rope, direction=1)
    return dataclasses.replace(axes, ladders=(ladder,))
