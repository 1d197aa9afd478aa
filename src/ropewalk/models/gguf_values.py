"""The metadata of a GGUF file as a reader sees it: typed values, each with its key."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..scaling.base import is_number
from .gguf_header import Header
from .plan import Sourced


class GGUFValues:
    """The metadata of one architecture, and what was learnt from it.

    Attributes:
        header: the file.
        prefix: the architecture, with which its keys begin.
        label: the file as errors name it.
        name: the file as sources name it.
        sources: filled by the readers, see `ModelPositions.sources`.
        notes: filled by the readers, see `ModelPositions.notes`.
    """

    def __init__(self, header: Header, prefix: str) -> None:
        self.header, self.prefix = header, prefix
        self.label, self.name = str(header.path), header.path.name
        self.sources: dict[str, Sourced] = {}
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def get(self, key: str) -> Any:
        """Return a value of the architecture, or None."""
        return self.header.values.get(f"{self.prefix}.{key}")

    def where(self, key: str) -> str:
        """Return how an error names a key."""
        return f"{self.label}: {self.prefix}.{key}"

    def origin(self, key: str) -> str:
        """Return how a source names a key."""
        return f"{self.name}: {self.prefix}.{key}"

    def count(self, key: str) -> int | None:
        """Return a whole number above 0, or None; of a list, one per layer, the largest."""
        value = self.get(key)
        if isinstance(value, list) and value and all(type(item) is int for item in value):
            if len(set(value)) > 1:
                self.note(f"{self.prefix}.{key} differs by layer; shown is the largest")
            value = max(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(
                self.where(key),
                found=repr(value),
                expected="a whole number above 0",
                fix="convert the model again",
            )
        return value

    def require(self, key: str) -> int:
        """Return a whole number above 0."""
        value = self.count(key)
        if value is None:
            raise InputError(
                self.where(key),
                found="nothing",
                expected="a whole number above 0",
                fix="convert the model again",
            )
        return value

    def number(self, key: str) -> float | None:
        """Return a finite number, or None."""
        value = self.get(key)
        if value is not None and not is_number(value):
            raise InputError(
                self.where(key),
                found=repr(value),
                expected="a number",
                fix="convert the model again",
            )
        return None if value is None else float(value)
