"""A config as a reader sees it: values by concept, each with the key that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..scaling.base import is_number
from .family import Family
from .plan import Sourced
from .spellings import SPELLINGS

# Beyond it a float no longer holds every whole number; no model has such a size.
_LARGEST_COUNT = 2**53


@dataclass
class ConfigFile:
    """The part of a config that describes one model, and what was learnt from it.

    Attributes:
        label: the file as errors name it, its path.
        name: the file as sources name it, e.g. ``config.json``.
        prefix: path of the part within the file, e.g. ``text_config.``.
        values: the part.
        family: the row of the family table.
        sources: filled by the readers, see `ModelPositions.sources`.
        notes: filled by the readers, see `ModelPositions.notes`.
    """

    label: str
    name: str
    prefix: str
    values: Mapping[str, Any]
    family: Family
    sources: dict[str, Sourced] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _by_layer: dict[int, Mapping[str, Any]] | None = None

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def where(self, key: str) -> str:
        """Return how an error names a key."""
        return f"{self.label}: {self.prefix}{key}"

    def origin(self, key: str) -> str:
        """Return how a source names a key."""
        return f"{self.name}: {self.prefix}{key}"

    @property
    def default_origin(self) -> str:
        """How a source names a default of the family's code."""
        return f"default of {self.family.defaults_of}"

    def of_layer(self, index: int) -> Mapping[str, Any]:
        """Return what ``per_layer_config`` says about one layer; empty where it says nothing."""
        if self._by_layer is None:
            listed = self.values.get("per_layer_config")
            pairs = listed.items() if isinstance(listed, Mapping) else ()
            self._by_layer = {
                int(key): found
                for key, found in pairs
                if str(key).isdecimal() and len(str(key)) < 7 and isinstance(found, Mapping)
            }
        return self._by_layer.get(index, {})

    def keys_of(self, concept: str) -> tuple[str, ...]:
        """Return the keys that mean a concept, those of the family first."""
        own = self.family.spellings.get(concept, ())
        return own + tuple(k for k in SPELLINGS.get(concept, ()) if k not in own)

    def given(self, concept: str) -> Sourced | None:
        """Return the value of a concept, or None where no key has one; null is no value.

        Raises:
            InputError: two keys that mean the same have different values.
        """
        found = [
            (k, self.values[k]) for k in self.keys_of(concept) if self.values.get(k) is not None
        ]
        if not found:
            return None
        key, value = found[0]
        for other, rival in found[1:]:
            if rival != value:
                raise self.contradiction(key, value, other, rival)
        return Sourced(value, self.origin(key))

    def contradiction(self, key: str, value: object, other: str, rival: object) -> InputError:
        """Return the error that two keys of one meaning differ."""
        return InputError(
            self.where(key),
            found=f"{value!r} there and {rival!r} under {other}",
            expected="the same value under both keys",
            fix="remove the wrong one",
        )

    def count(self, concept: str, *, zero: bool = False) -> Sourced | None:
        """Return a whole number, at least 1 (0 with ``zero``), or None where it is not given."""
        found = self.given(concept)
        if found is None:
            return None
        value = found.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if zero else 1):
            raise InputError(
                f"{self.label}: {found.source.split(': ', 1)[1]}",
                found=repr(found.value),
                expected="a whole number, 0 or more" if zero else "a whole number above 0",
                fix="correct the value",
            )
        if value > _LARGEST_COUNT:
            raise InputError(
                f"{self.label}: {found.source.split(': ', 1)[1]}",
                found=f"a number of {len(str(value))} digits",
                expected=f"at most {_LARGEST_COUNT}",
                fix="correct the value",
            )
        return Sourced(value, found.source)

    def count_or(self, concept: str, default: int) -> Sourced:
        """Return a whole number, or the default of the family's code."""
        return self.count(concept) or Sourced(default, self.default_origin)

    def switch(self, key: str, default: bool = False) -> bool:
        """Return a boolean key; anything that Python calls true counts, as in model code."""
        value = self.values.get(key)
        return default if value is None else bool(value)

    def positive(self, key: str, value: object) -> float:
        """Return a number above 0 as a float, or refuse it under the name of its key."""
        if not is_number(value) or value <= 0:  # type: ignore[operator]
            raise InputError(
                self.where(key),
                found=repr(value),
                expected="a positive number",
                fix="correct the value",
            )
        return float(value)  # type: ignore[arg-type]
