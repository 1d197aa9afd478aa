"""A file of flat settings as a reader sees it: values by concept, each with its key.

Settings of other programs than transformers: JSON and YAML files, and flags of command
lines. Nested objects are flattened to dotted keys; hyphens in keys equal underscores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..scaling.base import is_number
from .config_file import ConfigFile
from .family import Family, Sizes
from .plan import Sourced

Spellings = Mapping[str, tuple[str, ...]]

_PLACEHOLDER = re.compile(r"\$\{?\w+\}?|\{\{.*\}\}|<[\w. -]+>")
_POSITIONAL = re.compile(
    r"rope|rotary|yarn|alibi|nope|theta|position|pos_emb|sliding|window|mscale|mrope|interleav"
)
_DEEPEST = 20
# No sizes of these formats are assumed: what is missing is refused or unknown.
_NO_SIZES = Sizes(hidden=0, heads=0, kv_heads=None, layers=0, head_dim=None, length=0)


def flatten(values: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return the values under dotted keys, hyphens turned to underscores.

    Raises:
        InputError: objects nested too deep, or two keys that become one with two values.
    """
    out: dict[str, Any] = {}

    def add(prefix: str, inner: Mapping[str, Any], depth: int) -> None:
        if depth > _DEEPEST:
            raise InputError(
                label,
                found="objects nested too deep",
                expected=f"at most {_DEEPEST} levels",
                fix="give the settings of one model",
            )
        for name, value in inner.items():
            key = prefix + str(name).strip().replace("-", "_")
            if key in out and out[key] != value:
                raise InputError(
                    f"{label}: {key}",
                    found="the key twice, with different values",
                    expected="each key once",
                    fix="remove the wrong one",
                )
            out[key] = value
            if isinstance(value, Mapping):
                add(f"{key}.", value, depth + 1)

    add("", values, 0)
    return out


class FlatFile(ConfigFile):
    """Settings of one model in the words of one program.

    Args:
        label: the file as errors name it.
        values: its flattened values.
        spellings: concept to the keys that mean it, in this program.
        program: the program whose defaults are meant.
    """

    def __init__(
        self, label: str, values: Mapping[str, Any], spellings: Spellings, program: str
    ) -> None:
        name = label.replace("\\", "/").rsplit("/", 1)[-1]
        super().__init__(label, name, "", values, Family(defaults_of=program, sizes=_NO_SIZES))
        self.spellings = spellings

    def keys_of(self, concept: str) -> tuple[str, ...]:
        """Return the keys that mean a concept in this program."""
        return self.spellings.get(concept, ())

    def given(self, concept: str) -> Sourced | None:
        """Return the value of a concept; an unfilled placeholder is refused.

        Raises:
            InputError: two keys that mean the same differ, or a placeholder such as ``${X}``.
        """
        found = super().given(concept)
        if found is not None and isinstance(found.value, str):
            if _PLACEHOLDER.fullmatch(found.value.strip()):
                raise InputError(
                    f"{self.label}: {found.source.split(': ', 1)[-1]}",
                    found=f"the placeholder {found.value}",
                    expected="its value",
                    fix="fill the placeholder in",
                )
            return Sourced(_plain_value(found.value), found.source)
        return found

    def length(self, concept: str) -> Sourced | None:
        """Return a count that may stay unknown: a placeholder there is noted, not refused."""
        for key in self.keys_of(concept):
            value = self.values.get(key)
            if isinstance(value, str) and _PLACEHOLDER.fullmatch(value.strip()):
                self.note(f"{key} is the placeholder {value}: unknown")
                return None
        return self.count(concept)

    def number(self, concept: str) -> Sourced | None:
        """Return a finite number, or None where it is not given."""
        found = self.given(concept)
        if found is None:
            return None
        if not is_number(found.value):
            raise InputError(
                f"{self.label}: {found.source.split(': ', 1)[-1]}",
                found=repr(found.value),
                expected="a number",
                fix="correct the value",
            )
        return found

    def number_or(self, concept: str, default: float) -> float:
        """Return a number, or the default of the program, noted among the sources."""
        found = self.number(concept) or Sourced(default, self.default_origin)
        self.sources[concept] = found
        return found.value  # type: ignore[no-any-return]  # checked above

    def flag(self, concept: str, default: bool | None = None) -> bool | None:
        """Return a switch: a bare flag, a boolean, 0 or 1."""
        found = self.given(concept)
        if found is None:
            return default
        if isinstance(found.value, bool) or found.value in (0, 1):
            return bool(found.value)
        raise InputError(
            f"{self.label}: {found.source.split(': ', 1)[-1]}",
            found=repr(found.value),
            expected="true or false",
            fix="correct the value",
        )

    def note_unread(self, extra: tuple[str, ...] = ()) -> None:
        """Say which keys that look positional are not read."""
        known = {key for keys in self.spellings.values() for key in keys} | set(extra)
        for key, value in self.values.items():
            named = key.rsplit(".", 1)[-1]
            if (
                key not in known
                and not isinstance(value, Mapping)
                and value is not None
                and _POSITIONAL.search(named.lower())
                and not any(key.startswith(f"{top}.") for top in known)
            ):
                self.note(f"{key} is not read here")


def _plain_value(text: str) -> Any:
    """Return the number or truth value that a text of a flag or a YAML file means."""
    word = text.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if len(word) > 40:
        return text
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        return text
