"""What a check reports: one finding, and how grave it is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Gravest first. ``error``: the file cannot be right. ``warning``: it is likely not what is
meant, or programs disagree about it. ``note``: worth knowing, or a heuristic."""


def as_grave(severity: Severity, threshold: Severity) -> bool:
    """Tell whether a severity is at or above another."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(threshold)


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found in one model.

    Attributes:
        code: the rule, e.g. ``RW101``.
        severity: how grave it is.
        title: the rule in a few words.
        path: the file, or ``command line`` for a text.
        where: the key that it is about.
        found: what stands there, in words.
        right: what would be right.
        fix: what to do.
        source: where the rule was learnt: a paper, a report, or a version of a program's code.
    """

    code: str
    severity: Severity
    title: str
    path: str
    where: str
    found: str
    right: str
    fix: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return dataclasses.asdict(self)
