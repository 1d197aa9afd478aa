"""Which case is running and how long the rest will take, on stderr.

No thread draws: it would run beside what is being timed. Lines are written between turns.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_REDRAWS = 0.5


class Progress:
    """Progress over cases of known expected length.

    Args:
        expected: seconds of each case, as first guessed; what was seen corrects the guess.
        stream: where it is written; by default stderr.
    """

    def __init__(self, expected: dict[str, float], stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._expected, self._done = expected, 0.0
        self._total = sum(expected.values())
        self._begun = time.monotonic()
        self._written = float("-inf")
        self._terminal = self._stream.isatty()

    def start(self, name: str) -> None:
        """Say that a case begins."""
        self._written = float("-inf")
        self._show(name, 0.0)

    def inside(self, name: str, share: float) -> None:
        """Say how much of a case's timing is done."""
        self._show(name, share)

    def finish(self, name: str) -> None:
        """Say that a case is done; the line of a terminal is cleared for its table."""
        self._done += self._expected[name]
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def left(self, name: str, share: float) -> float:
        """Return the seconds left: the guess, scaled by how it did so far."""
        rest = self._total - self._done - share * self._expected[name]
        gone = time.monotonic() - self._begun
        # A minute's worth of doubt keeps the first cases from swinging the estimate.
        return max(0.0, rest * (gone + 60.0) / (self._done + share * self._expected[name] + 60.0))

    def _show(self, name: str, share: float) -> None:
        now = time.monotonic()
        wait = _SECONDS_BETWEEN_REDRAWS if self._terminal else _SECONDS_BETWEEN_LINES
        if now - self._written < wait:
            return
        self._written = now
        done = 100 * (self._done + share * self._expected[name]) / self._total
        text = f"{done:3.0f} %, {clock(self.left(name, share))} left · {name}"
        self._stream.write(f"\r\x1b[K{text}" if self._terminal else f"bench: {text}\n")
        self._stream.flush()


def clock(seconds: float) -> str:
    """Return minutes and seconds, e.g. ``2:05``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
