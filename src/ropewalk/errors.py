"""The errors that Ropewalk raises on purpose.

Each says on one line where the trouble is, what was found, what is expected, and the
fix, so that the command line can print it as it stands and a program can read its parts.
"""

from __future__ import annotations

_MOST_WHERE, _MOST_WORDS = 1000, 500


def printable(text: str) -> str:
    """Return the text with everything but printable characters shown as escapes.

    Names and values of a file must not steer a terminal, end the line, or turn the text round.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str, most: int = _MOST_WORDS) -> str:
    """Return one printable line of at most ``most`` characters, cut in its middle."""
    if len(text) > most:
        text = f"{text[: most - most // 4]} … {text[-most // 8 :]}"
    line = printable(text)
    # Escapes are longer than what they stand for.
    return line if len(line) <= most else f"{line[: most - 2]} …"


class RopewalkError(Exception):
    """Base of every error that Ropewalk raises on purpose."""


class InputError(RopewalkError, ValueError):
    """A value, a file or an option that cannot be used as it is.

    The parts are kept as one printable line each, and long ones are cut, so that an error
    shows what a hostile file holds without obeying it.

    Args:
        where: the parameter, or ``path: key`` of a file.
        found: what was found there, in words.
        expected: what would have been right.
        fix: what to do about it.
    """

    def __init__(self, where: str, *, found: str, expected: str, fix: str) -> None:
        self.where = one_line(where, _MOST_WHERE)
        self.found, self.expected, self.fix = map(one_line, (found, expected, fix))
        super().__init__(
            f"{self.where}: got {self.found}, expected {self.expected}; fix: {self.fix}"
        )

    def within(self, prefix: str) -> InputError:
        """Return the same error seen from one level further out, e.g. with the file's path."""
        return type(self)(
            f"{prefix}: {self.where}", found=self.found, expected=self.expected, fix=self.fix
        )


class MissingExtraError(RopewalkError, ImportError):
    """An optional package that this call needs is not installed."""

    def __init__(self, package: str, *, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{one_line(needed_for, _MOST_WHERE)}: package {package!r} is not installed; "
            f"fix: pip install 'ropewalk[{extra}]'"
        )
