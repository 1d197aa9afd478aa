"""Printing: data on stdout, at most 100 columns wide."""

from __future__ import annotations

from typing import Any

from ..errors import printable

_WIDEST = 100


def print_view(view: Any) -> None:
    """Print a rich renderable on stdout."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(highlight=False, soft_wrap=False)
    # A pipe has no width of its own; a wide terminal would spread the tables.
    width = _WIDEST if not console.is_terminal else min(console.width, _WIDEST)
    # Names and values of files are no markup, and none of their signs reaches the terminal raw.
    out = Console(highlight=False, width=width, markup=False, emoji=False)
    shown = [
        Segment(_lines(segment.text), segment.style)
        for segment in out.render(view)
        if not segment.control
    ]
    out.print(Segments(shown), end="", crop=False)


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
