"""The layouts of multi-axis ropes that models have: which plane goes to which axis.

M-RoPE hands the rungs of one ladder out to the axes, in sections or interleaved; axial ropes of
vision towers give every axis a ladder to itself.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from .axes import MultiAxisRope, Turn, Unit
from .errors import InputError
from .rope import Pairing, Rope

TIME_HEIGHT_WIDTH = ("time", "height", "width")
HEIGHT_WIDTH = ("height", "width")


def _over(rope: Rope, planes: list[Turn], axes: tuple[str, ...]) -> MultiAxisRope:
    return MultiAxisRope(
        head_dim=rope.head_dim,
        ladders=(dataclasses.replace(rope, direction=1),),
        planes=tuple(planes),
        axes=axes,
        pairing=rope.pairing,
        rotary_offset=rope.rotary_offset,
        direction=rope.direction,
    )


def check_sections(rope: Rope, sections: Any, least: int, *, exact: bool) -> tuple[int, ...]:
    """Return sections as a tuple after checking them against the planes of the rope."""
    numbers = isinstance(sections, list | tuple) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sections
    )
    if not numbers or len(sections) < least or (exact and sum(sections) != rope.planes):
        total = f" (sum {sum(sections)})" if numbers else ""
        raise InputError(
            "mrope_section",
            found=f"{sections!r}{total}",
            expected=f"{least} counts that add up to the {rope.planes} planes of the rope",
            fix="sections count planes, half the rotated lanes",
        )
    return tuple(sections)


def sectioned(
    rope: Rope, sections: Any, axes: tuple[str, ...] = TIME_HEIGHT_WIDTH
) -> MultiAxisRope:
    """M-RoPE in sections: the first planes follow the first axis, and so on.

    Source: Wang et al. 2024, Qwen2-VL, arXiv 2409.12191, section 2.1.
    """
    counts = check_sections(rope, sections, len(axes), exact=True)
    owners = [i % len(axes) for i, count in enumerate(counts) for _ in range(count)]
    return _over(rope, [Turn(axis, rung) for rung, axis in enumerate(owners)], axes)


def interleaved(
    rope: Rope, sections: Any, axes: tuple[str, ...] = TIME_HEIGHT_WIDTH
) -> MultiAxisRope:
    """M-RoPE interleaved: axis a > 0 takes every third plane from a on, the first axis the rest.

    Source: Qwen3-VL in transformers, ``recomposition_frequencies``: axis a owns the planes
    a, a + 3, … below 3 times its section.
    """
    counts = check_sections(rope, sections, len(axes), exact=False)
    step = len(axes)
    owners = [0] * rope.planes
    for axis in range(1, step):
        for plane in range(axis, min(step * counts[axis], rope.planes), step):
            owners[plane] = axis
    return _over(rope, [Turn(axis, rung) for rung, axis in enumerate(owners)], axes)


def alternating_with_tail(
    rope: Rope, sections: Any, axes: tuple[str, ...] = TIME_HEIGHT_WIDTH
) -> MultiAxisRope:
    """Ernie 4.5 VL: height and width alternate over the fast planes, time has the slow tail.

    ``sections`` are height, width, time. Source: Ernie 4.5 VL in transformers.
    """
    high, wide, _ = check_sections(rope, sections, 3, exact=True)
    if high != wide:
        raise InputError(
            "mrope_section",
            found=repr(sections),
            expected="as many planes for height as for width, which alternate",
            fix="take the sections of the model's own config, e.g. [22, 22, 20]",
        )
    owners = [1 + plane % 2 if plane < high + wide else 0 for plane in range(rope.planes)]
    return _over(rope, [Turn(axis, rung) for rung, axis in enumerate(owners)], axes)


def alternating(rope: Rope, axes: tuple[str, ...] = ("row", "column")) -> MultiAxisRope:
    """Planes follow the axes in turn, and keep their own rung of one ladder (NeoMME)."""
    planes = [Turn(rung % len(axes), rung) for rung in range(rope.planes)]
    return _over(rope, planes, axes)


def axial(
    ladder: Rope,
    *,
    head_dim: int,
    axes: tuple[str, ...] = HEIGHT_WIDTH,
    order: tuple[int, ...] | None = None,
    mixed: bool = False,
    pairing: Pairing = "half",
    blocks: int = 1,
    unit: Unit = "index",
) -> MultiAxisRope:
    """An axial rope: every axis has the whole ladder to itself.

    Args:
        ladder: the frequencies of one axis.
        head_dim: size of one attention head.
        axes: names of the position axes.
        order: which axis comes first; by default as in ``axes``.
        mixed: whether the axes alternate from plane to plane; else one follows the other.
        pairing: as in `Rope`.
        blocks: see `MultiAxisRope`.
        unit: see `MultiAxisRope`.
    """
    turn = tuple(range(len(axes))) if order is None else order
    if mixed:
        planes = [Turn(axis, rung) for rung in range(ladder.planes) for axis in turn]
    else:
        planes = [Turn(axis, rung) for axis in turn for rung in range(ladder.planes)]
    return MultiAxisRope(
        head_dim=head_dim,
        ladders=(ladder,),
        planes=tuple(planes),
        axes=axes,
        pairing=pairing,
        blocks=blocks,
        unit=unit,
    )


def dealt(ladder: Rope, *, head_dim: int, axes: tuple[str, ...] = HEIGHT_WIDTH) -> MultiAxisRope:
    """Pixtral: rung r of one ladder goes to axis r mod 2; then one axis follows the other."""
    count = len(axes)
    planes = [
        Turn(axis, rung) for axis in range(count) for rung in range(axis, ladder.planes, count)
    ]
    return MultiAxisRope(head_dim=head_dim, ladders=(ladder,), planes=tuple(planes), axes=axes)
