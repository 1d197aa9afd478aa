"""What a writer makes: the text of one format, and what was lost on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Options:
    """What a writer may need beside the plan.

    Attributes:
        family: ``model_type`` of transformers to write for; None for the model's own.
        base: the config that the model was read from, if it was one of transformers: all other
            keys are kept.
    """

    family: str | None = None
    base: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Written:
    """What a writer made of a plan.

    Attributes:
        text: the file's or the command line's text.
        values: the same as values, where the text is JSON or a list of keys.
        notes: what a user should know.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conversion:
    """A plan in the words of a target.

    Attributes:
        target: the format.
        text: the file's or the command line's text.
        lost: what the target does not say, in words; empty unless asked for with ``lossy``.
        notes: what a user should know.
        values: the text as values, where it is JSON or a list of keys.
    """

    target: str
    text: str
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "target": self.target,
            "text": self.text,
            "lost": list(self.lost),
            "notes": list(self.notes),
        }
