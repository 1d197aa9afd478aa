"""Printing: data on stdout, at most 100 columns wide."""

from __future__ import annotations

from typing import Any

_WIDEST = 100


def print_view(view: Any) -> None:
    """Print a rich renderable on stdout."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False)
    # A pipe has no width of its own; a wide terminal would spread the tables.
    width = _WIDEST if not console.is_terminal else min(console.width, _WIDEST)
    Console(highlight=False, width=width).print(view)
