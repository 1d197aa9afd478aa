"""Making and saving pictures: no window, no global state, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError
from ..whole_file import replacing

SUFFIXES = (".png", ".svg")


@contextmanager
def drawing(needed_for: str, **settings: Any) -> Iterator[Any]:
    """Yield matplotlib's Figure class, with matplotlib's settings changed only meanwhile.

    Args:
        needed_for: what the caller draws for, in the error where matplotlib is missing.
        settings: more of matplotlib's settings, underscores for dots.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="plots", needed_for=needed_for) from error
    chosen = {name.replace("_", "."): value for name, value in settings.items()}
    # Without a fixed salt the ids within an SVG file differ from run to run.
    with rc_context({"svg.hashsalt": "ropewalk", **chosen}):
        yield Figure


def save(figure: Any, path: Path, *, dpi: int) -> None:
    """Write a figure in one step, so that no reader sees half a picture.

    The suffix, .png or .svg in either case, gives the format. No date is stored.
    """
    form = path.suffix[1:].lower()
    metadata = {"Date": None} if form == "svg" else None
    with replacing(path) as scratch:
        figure.savefig(scratch, format=form, dpi=dpi, metadata=metadata)
