"""The row of the table of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .findings import Severity
from .subject import Subject


@dataclass(frozen=True)
class Seen:
    """What a rule saw in one place.

    Attributes:
        where: the key, with its path within the file.
        found: what stands there, in words.
        right: what would be right.
        fix: what to do.
        severity: where this place is graver or lighter than the rule's own severity.
        refusal: whether this is what the reader refused the file for.
    """

    where: str
    found: str
    right: str
    fix: str
    severity: Severity | None = None
    refusal: bool = False


@dataclass(frozen=True)
class Example:
    """A small input that a rule speaks about, or is silent on.

    Attributes:
        content: values of a ``config.json`` (or a file alike), or a text.
        stored: tensors beside it, name to type and values: beside a config in a file of
            safetensors; a listing with tensors is a GGUF file.
        beside: texts beside it, by file name.
        weights: what weights there are, in words, where they are too many to list.
    """

    content: Mapping[str, Any] | str
    stored: Mapping[str, tuple[str, tuple[float, ...]]] = field(default_factory=dict)
    weights: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        code: stable; never given to another rule.
        title: what is wrong, in a few words.
        severity: of its findings, unless one says otherwise.
        explanation: why it matters, in whole sentences.
        bad: an input that it finds fault with.
        good: the same input as it should be.
        source: a paper, a public report, or a version of a program's code.
        look: yields what it sees in a model.
    """

    code: str
    title: str
    severity: Severity
    explanation: str
    bad: Example
    good: Example
    source: str
    look: Callable[[Subject], Iterator[Seen]]
