"""Text that every Python has: the sources of its standard library, as documents.

The model in the package is trained on this text and measured on the part held out
here, so both sides call this one module. Nothing is downloaded and nothing is copied
into the package: the files are read from the Python that runs.

The split is by file, so no line of a held-out file was trained on:

* ``test``: every file in a ``test``, ``tests`` or ``idle_test`` folder. Some
  distributions leave these out.
* ``held_out``: one module in twelve, chosen by the SHA-256 of its path, so that a Python
  without its test suite still has text the model never saw.
* ``train``: the rest.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError

_TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
_FOREIGN_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})
_HELD_OUT_ONE_IN = 12


@dataclass(frozen=True)
class Document:
    """One text to measure on: a name that a reader recognises, and the text."""

    name: str
    text: str


def split_of(relative_path: str) -> str:
    """Say which split a standard library file belongs to: train, held_out or test."""
    if _TEST_FOLDERS.intersection(Path(relative_path).parts[:-1]):
        return "test"
    digest = hashlib.sha256(relative_path.encode()).digest()
    return "held_out" if digest[0] % _HELD_OUT_ONE_IN == 0 else "train"


def standard_library(split: str, *, root: Path | None = None) -> list[Document]:
    """Read one split of the standard library's sources, sorted by path.

    Args:
        split: ``train``, ``held_out`` or ``test``.
        root: the folder to read; by default the running Python's standard library.

    Raises:
        InputError: the split is unknown, or the folder has no file of that split.
    """
    if split not in ("train", "held_out", "test"):
        raise InputError(
            "split", found=repr(split), expected="train, held_out or test", fix="name one of them"
        )
    base = root if root is not None else Path(sysconfig.get_paths()["stdlib"])
    documents = []
    for path in sorted(base.rglob("*.py")):
        relative = path.relative_to(base)
        if _FOREIGN_FOLDERS.intersection(relative.parts):
            continue
        if split_of(relative.as_posix()) != split:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            # A few test files are broken on purpose (bad encodings); they are no text.
            continue
        if text:
            documents.append(Document(relative.as_posix(), text))
    if not documents:
        raise InputError(
            str(base),
            found=f"no Python source of the split {split!r}",
            expected="the standard library's sources",
            fix="pass your own text with --text",
        )
    return documents
