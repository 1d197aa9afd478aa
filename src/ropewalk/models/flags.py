"""Command lines and scripts as values: flags by name, words, and what the text looks like."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from . import json_text

_NUMBER = re.compile(r"-?\.?\d")
# argparse takes all the numbers that follow.
_SEVERAL = frozenset({"mrope-section", "mrope_section"})
_REPEATED = frozenset({"override-kv"})
LARGEST_TEXT = 2**20
"""Characters of a text, at most."""
_LARGEST_COMMAND = 2**16


@dataclass(frozen=True)
class Flags:
    """A split command line.

    Attributes:
        label: how errors name it.
        values: flag without its dashes, hyphens kept, to its value; True for a bare flag.
        words: what belongs to no flag, in order.
    """

    label: str
    values: dict[str, Any]
    words: tuple[str, ...]

    def has(self, *names: str) -> bool:
        """Tell whether one of the flags is there."""
        return any(name in self.values for name in names)

    def json(self, name: str) -> dict[str, Any] | None:
        """Return a flag's value that is a JSON object, or None.

        Raises:
            InputError: text that is no JSON object.
        """
        text = self.values.get(name)
        if text is None:
            return None
        return parse_object(text, f"{self.label}: --{name}")


def parse_object(text: Any, where: str) -> dict[str, Any]:
    """Return the JSON object that a text holds, or refuse it under its name."""
    try:
        value = json_text.parse(text) if isinstance(text, str) else text
    except ValueError as error:
        raise InputError(
            where,
            found=f"text that is no JSON ({str(error).splitlines()[0]})",
            expected="a JSON object",
            fix="quote it so that the shell keeps its quotes",
        ) from None
    if not isinstance(value, dict):
        raise InputError(
            where,
            found=f"a {type(value).__name__}",
            expected="a JSON object",
            fix='write e.g. {"rope_parameters": {…}}',
        )
    return value


def split_flags(text: str, label: str) -> Flags:
    """Split a command line or the text of a script.

    Raises:
        InputError: a quote that is never closed, a flag twice with two values, too much text.
    """
    if len(text) > _LARGEST_COMMAND:
        raise InputError(
            label,
            found=f"{len(text)} characters",
            expected=f"a command line of at most {_LARGEST_COMMAND}",
            fix="give the command alone",
        )
    try:
        tokens = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise InputError(
            label,
            found=f"text that cannot be split ({error})",
            expected="a command line",
            fix="close the quotes",
        ) from None
    values: dict[str, Any] = {}
    words = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if not token.startswith("-") or _NUMBER.match(token) or token in ("-", "--"):
            words.append(token)
            continue
        name, found, value = token.lstrip("-").partition("=")
        given: Any = value if found else True
        if not found and index < len(tokens):
            following = tokens[index]
            if not following.startswith("-") or _NUMBER.match(following):
                given, index = following, index + 1
        while name in _SEVERAL and index < len(tokens) and _NUMBER.match(tokens[index]):
            given, index = f"{given} {tokens[index]}", index + 1
        if name in _REPEATED:
            values.setdefault(name, []).append(given)
            continue
        if name in values and values[name] != given:
            raise InputError(
                f"{label}: --{name}",
                found=f"{values[name]!r} and later {given!r}",
                expected="the flag once",
                fix="remove the wrong one",
            )
        values[name] = given
    return Flags(label, values, tuple(words))
