"""The passkey probe: plant a number in a text, ask for it at the end.

One sentence states the key, filler surrounds it, one sentence asks. The answer counts
as right when every digit is the model's first choice given the digits before it, which
is the same as greedy decoding giving exactly the key, at the cost of one pass.

The form follows the passkey test of Mohtashami and Jaggi (2023, arXiv 2305.16300).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

DIGITS = 5


def statement(key: str) -> str:
    """Return the sentence that plants the key, on a line of its own."""
    return f"\nThe pass key is {key}. Remember it. {key} is the pass key.\n"


def question() -> str:
    """Return the sentence that asks; the answer's first digit follows it at once."""
    return "\nWhat is the pass key? The pass key is "


def draw_key(rng: random.Random) -> str:
    """Draw a key of five digits without a leading zero."""
    return str(rng.randrange(10 ** (DIGITS - 1), 10**DIGITS))


@dataclass(frozen=True)
class Trial:
    """One probe as text: everything before the answer, and the answer.

    ``depth`` is where the statement begins, as a share of the filler before the
    question (0 first, 1 last).
    """

    before: str
    after: str
    key: str
    depth: float

    @property
    def prompt(self) -> str:
        """The text up to and including the question."""
        return self.before + statement(self.key) + self.after + question()


def plant(filler: str, key: str, depth: float) -> Trial:
    """Plant ``key`` into ``filler`` at ``depth``, at the start of a line where one is near."""
    cut = round(depth * len(filler))
    line_start = filler.rfind("\n", max(0, cut - 120), cut)
    if line_start >= 0:
        cut = line_start
    return Trial(filler[:cut], filler[cut:], key, depth)
