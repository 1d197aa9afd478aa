"""The key-value probe: a line that names a value, and the name again at the end.

Shorter than a passkey, with a new name each time, so that distances down to a few bytes can be
asked for and the name must be found, not the one odd line in the text. Capitals are rare in
most text, and the name stands right before its value: a small model learns to look such a line
up long before it learns the same of digits behind a common sign.
"""

from __future__ import annotations

import random
import string

NAME, VALUE = 2, 4
"""Capitals of a name and of a value; a guess is right once in 456,976."""


def draw_pair(rng: random.Random) -> tuple[str, str]:
    """Draw a name of two capitals and a value of four."""
    name, value = (
        "".join(rng.choice(string.ascii_uppercase) for _ in range(count)) for count in (NAME, VALUE)
    )
    return name, value


def line(name: str, value: str) -> str:
    """Return the line that states the value."""
    return f"{ask(name)}{value}\n"


def ask(name: str) -> str:
    """Return the line up to its value, which is what asks for it."""
    return f"\n#{name}"
