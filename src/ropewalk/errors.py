"""The errors that Ropewalk raises on purpose.

Each says on one line where the trouble is, what was found, what is expected, and the
fix, so that the command line can print it as it stands and a program can read its parts.
"""

from __future__ import annotations


class RopewalkError(Exception):
    """Base of every error that Ropewalk raises on purpose."""


class InputError(RopewalkError, ValueError):
    """A value, a file or an option that cannot be used as it is.

    Args:
        where: the parameter, or ``path: key`` of a file.
        found: what was found there, in words.
        expected: what would have been right.
        fix: what to do about it.
    """

    def __init__(self, where: str, *, found: str, expected: str, fix: str) -> None:
        self.where, self.found, self.expected, self.fix = where, found, expected, fix
        super().__init__(f"{where}: got {found}, expected {expected}; fix: {fix}")

    def within(self, prefix: str) -> InputError:
        """Return the same error seen from one level further out, e.g. with the file's path."""
        return type(self)(
            f"{prefix}: {self.where}", found=self.found, expected=self.expected, fix=self.fix
        )


class MissingExtraError(RopewalkError, ImportError):
    """An optional package that this call needs is not installed."""

    def __init__(self, package: str, *, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for}: package {package!r} is not installed; "
            f"fix: pip install 'ropewalk[{extra}]'"
        )
