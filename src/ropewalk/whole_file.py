"""Replacing a file in one step, so that no reader and no kill meets half of it.

A file that must not exist yet is `ropewalk.convert.new_file`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to, which takes its name when the block ends.

    With an error the scratch file is removed and ``path`` stays as it was.
    """
    scratch = path.with_name(f".partial-{path.name}")
    try:
        yield scratch
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a text in one step, as UTF-8."""
    with replacing(path) as scratch:
        scratch.write_text(text, encoding="utf-8")
