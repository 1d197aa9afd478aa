"""Running the rules over models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, one_line
from .findings import SEVERITIES, Finding, Severity, as_grave
from .rule import Rule, Seen
from .rules import RULES
from .subject import Subject, open_file, open_text

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ModelReport:
    """What was found in one model.

    Attributes:
        path: the file, or ``command line``.
        findings: gravest first.
        unusable: why it could not be read, where no rule accounts for that; else None.
    """

    path: str
    findings: tuple[Finding, ...]
    unusable: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "path": self.path,
            "unusable": self.unusable,
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class CheckReport:
    """What was found in several models."""

    models: tuple[ModelReport, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, model by model."""
        return tuple(finding for model in self.models for finding in model.findings)

    def exit_code(self, fail_on: Severity | None) -> int:
        """Return 2 where a model could not be read, 1 for grave findings, else 0."""
        if any(model.unusable is not None for model in self.models):
            return 2
        if fail_on is None:
            return 0
        return int(any(as_grave(finding.severity, fail_on) for finding in self.findings))

    def counts(self) -> dict[str, int]:
        """Return the number of findings of each severity."""
        found = [finding.severity for finding in self.findings]
        return {severity: found.count(severity) for severity in SEVERITIES}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "counts": self.counts(),
            "models": [model.to_dict() for model in self.models],
        }


def check(
    path: Path,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    assume_family: str | None = None,
    engine_args: str | None = None,
    overrides: str | None = None,
    weights: bool | None = None,
) -> ModelReport:
    """Check one model's folder or file.

    Args:
        path: what `ropewalk.models.read.read_any` reads.
        select: codes, or beginnings of codes, of the rules to run; empty for all.
        ignore: the same of rules to leave out.
        assume_family: see `read`.
        engine_args: flags of an engine to check the model with.
        overrides: keys of the config to replace, as JSON.
        weights: whether the pairing is told from the weights, which takes seconds on a large
            model; None for files of at most 1 GiB together.

    Returns:
        The findings. What cannot be read and is no mistake with a known right answer is
        `ModelReport.unusable`.

    Raises:
        InputError: a code that no rule has.
    """
    rules = chosen(select, ignore)

    def opened() -> Subject:
        return open_file(
            path,
            assume_family=assume_family,
            engine_args=engine_args,
            overrides=overrides,
            weights=weights,
        )

    return _checked(str(path), opened, rules)


def check_text(
    text: str,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    assume_family: str | None = None,
) -> ModelReport:
    """Check a command line, a Modelfile or listed GGUF metadata; see `check`."""
    rules = chosen(select, ignore)
    return _checked("command line", lambda: open_text(text, assume_family=assume_family), rules)


def chosen(select: Sequence[str], ignore: Sequence[str]) -> list[Rule]:
    """Return the rules whose codes begin with one of ``select`` and with none of ``ignore``.

    Raises:
        InputError: a beginning that no code has.
    """
    for name, words in (("--select", select), ("--ignore", ignore)):
        for word in words:
            if not any(rule.code.startswith(word.upper()) for rule in RULES):
                raise InputError(
                    name,
                    found=repr(word),
                    expected="the code of a rule or its beginning, e.g. RW101 or RW1",
                    fix="ropewalk explain lists the codes",
                )
    return [
        rule
        for rule in RULES
        if (not select or _begins(rule.code, select)) and not _begins(rule.code, ignore)
    ]


def _begins(code: str, words: Iterable[str]) -> bool:
    return any(code.startswith(word.upper()) for word in words)


def _checked(label: str, opened: Callable[[], Subject], rules: list[Rule]) -> ModelReport:
    try:
        subject = opened()
    except InputError as error:
        # The file itself could not be opened; some of the mistakes in a file show there too.
        subject = Subject(label, "unreadable", refusal=error)
    try:
        return _judged(subject, rules)
    finally:
        subject.close()


def _judged(subject: Subject, rules: list[Rule]) -> ModelReport:
    seen = [(rule, item) for rule in rules for item in rule.look(subject)]
    specific = {
        item.where
        for rule, item in seen
        if not item.refusal and (item.severity or rule.severity) == "error"
    }
    findings = [
        _finding(rule, item, subject.path)
        for rule, item in seen
        # A rule that names the key itself says more than what the reader refused it for.
        if not (item.refusal and item.where in specific)
    ]
    findings.sort(key=lambda item: (SEVERITIES.index(item.severity), item.code, item.where))
    told = subject.refusal is None or any(item.refusal for _, item in seen)
    if not told and rules != list(RULES):
        told = any(item.refusal for rule in RULES for item in rule.look(subject))
    return ModelReport(
        subject.path, tuple(dict.fromkeys(findings)), None if told else str(subject.refusal)
    )


def _finding(rule: Rule, item: Seen, path: str) -> Finding:
    return Finding(
        code=rule.code,
        severity=item.severity or rule.severity,
        title=rule.title,
        path=path,
        where=one_line(item.where, 1000),
        found=one_line(item.found),
        right=item.right,
        fix=item.fix,
        source=rule.source,
    )
