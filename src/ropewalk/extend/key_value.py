"""The key-value probe: a line that names a value, and the name again at the end.

Shorter than a passkey, with a new name each time, so that distances down to a dozen bytes can
be asked for and the name must be found, not the one odd line in the text.
"""

from __future__ import annotations

import random

DIGITS = 4
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def draw_pair(rng: random.Random) -> tuple[str, str]:
    """Draw a name of three letters and a value of four digits."""
    name = "".join(rng.choice(_LETTERS) for _ in range(3))
    return name, "".join(rng.choice("0123456789") for _ in range(DIGITS))


def line(name: str, value: str) -> str:
    """Return the line that states the value."""
    return f"{ask(name)}{value}\n"


def ask(name: str) -> str:
    """Return the line up to its value, which is what asks for it."""
    return f"\n#{name}="
