"""A config whose keys have one meaning each: those of diffusers and timm.

Every value is taken under its own key, with the default of the class that the config names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..rope import MOST_LANES
from ..scaling.base import is_number
from .plan import Sourced

MOST_LAYERS = 10_000
_MOST_AXES = 8


@dataclass
class KeyedFile:
    """A config, and what was learnt from it.

    Attributes:
        label: the file as errors name it, its path.
        values: the config.
        defaults_of: whose defaults stand in for missing keys, e.g. ``diffusers' FluxPosEmbed``.
        prefix: path of ``values`` within the file, e.g. ``model_args.``.
        sources: filled while reading, see `ModelPositions.sources`.
        notes: filled while reading, see `ModelPositions.notes`.
    """

    label: str
    values: Mapping[str, Any]
    defaults_of: str
    prefix: str = ""
    sources: dict[str, Sourced] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The file as sources name it, e.g. ``config.json``."""
        return self.label.replace("\\", "/").rsplit("/", 1)[-1]

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def refusal(self, key: str, *, found: str, expected: str, fix: str) -> InputError:
        """Return the error about one key."""
        return InputError(
            f"{self.label}: {self.prefix}{key}", found=found, expected=expected, fix=fix
        )

    def origin(self, key: str) -> str:
        """Return where the value of a key comes from: the file, or the class's default."""
        if self.values.get(key) is None:
            return f"default of {self.defaults_of}"
        return f"{self.name}: {self.prefix}{key}"

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value as it stands, or the default; null counts as missing."""
        found = self.values.get(key)
        return default if found is None else found

    def switch(self, key: str, *, default: bool) -> bool:
        """Return a boolean."""
        found = self.get(key, default)
        if not isinstance(found, bool):
            raise self.refusal(
                key, found=repr(found), expected="true or false", fix="correct the value"
            )
        return found

    def count(self, key: str, default: int | None, *, most: int = 2**53, least: int = 1) -> int:
        """Return a whole number.

        Raises:
            InputError: no whole number within the bounds, or missing where there is no default.
        """
        found = self.get(key, default)
        if type(found) is not int or not least <= found <= most:
            raise self.refusal(
                key,
                found="nothing" if found is None else repr(found)[:40],
                expected=f"a whole number from {least} to {most}",
                fix="take the value from the model's own config",
            )
        return found

    def layers(self, key: str, default: int | None) -> int:
        """Return a number of layers, 0 or more."""
        return self.count(key, default, most=MOST_LAYERS, least=0)

    def lanes(self, key: str, default: int | None) -> int:
        """Return a number of lanes of a head."""
        return self.count(key, default, most=MOST_LANES)

    def positive(self, key: str, default: float) -> float:
        """Return a number above 0."""
        found = self.get(key, default)
        if not is_number(found) or found <= 0:
            raise self.refusal(
                key, found=repr(found)[:40], expected="a positive number", fix="correct the value"
            )
        return float(found)

    def number(self, key: str, default: float) -> float:
        """Return any finite number."""
        found = self.get(key, default)
        if not is_number(found):
            raise self.refusal(
                key, found=repr(found)[:40], expected="a number", fix="correct the value"
            )
        return float(found)

    def numbers(self, key: str, default: tuple[Any, ...], *, whole: bool = True) -> tuple[Any, ...]:
        """Return a short list of positive numbers, whole ones unless said otherwise."""
        found = self.get(key, default)
        fits = isinstance(found, list | tuple) and 1 <= len(found) <= _MOST_AXES
        if fits and whole:
            fits = all(type(entry) is int and 0 < entry <= MOST_LANES for entry in found)
        elif fits:
            fits = all(is_number(entry) and entry > 0 for entry in found)
        if not fits:
            raise self.refusal(
                key,
                found=repr(found)[:60],
                expected=f"a list of at most {_MOST_AXES} positive numbers, one for each axis",
                fix="take the list from the model's own config",
            )
        return tuple(found)
