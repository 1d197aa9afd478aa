"""Findings as text, JSON, SARIF 2.1.0, and annotations of GitHub Actions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from ..errors import printable
from .findings import Finding
from .rule import Rule
from .rules import RULES
from .runner import CheckReport, ModelReport

WIDTH = 100
FORMATS = ("text", "json", "sarif", "github")
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_text(report: CheckReport) -> str:
    """Return one block per finding and a line of counts, at most 100 columns wide."""
    blocks = [block for model in report.models for block in _blocks(model)]
    return "\n\n".join([*blocks, _summary(report)]) + "\n"


def _blocks(model: ModelReport) -> Iterator[str]:
    for finding in model.findings:
        head = f"{_clean(finding.path)}: {_clean(finding.where)}"
        lines = [
            *_folded(head, "", "    "),
            *_folded(f"{finding.severity} {finding.code}: {finding.title}", "  ", "    "),
            *_field("found", finding.found),
            *_field("right", finding.right),
            *_field("fix", finding.fix),
            *_field("source", finding.source),
        ]
        yield "\n".join(lines)
    if model.unusable is not None:
        yield "\n".join(_folded(f"unusable: {_clean(model.unusable)}", "", "    "))


def _field(name: str, text: str) -> list[str]:
    return _folded(_clean(text), f"  {name:<7}", " " * 9)


def _folded(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest) or [first]


def _clean(text: str) -> str:
    """Show control characters as escapes: a file's name or value must not steer a terminal."""
    return printable(text)


def _summary(report: CheckReport) -> str:
    counts = report.counts()
    models = len(report.models)
    unusable = sum(model.unusable is not None for model in report.models)
    words = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items()]
    out = f"{models} model{'' if models == 1 else 's'}: {', '.join(words)}"
    return out + (f"; {unusable} could not be read" if unusable else "")


def as_json(report: CheckReport) -> str:
    """Return one JSON object."""
    return json.dumps(report.to_dict(), indent=1) + "\n"


def as_sarif(report: CheckReport) -> str:
    """Return a log of SARIF 2.1.0, with every rule that found something."""
    from importlib.metadata import version

    used = {finding.code for finding in report.findings}
    rules = [rule for rule in RULES if rule.code in used]
    index = {rule.code: i for i, rule in enumerate(rules)}
    unusable = [model for model in report.models if model.unusable is not None]
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "ropewalk",
                "version": version("ropewalk"),
                "rules": [_sarif_rule(rule) for rule in rules],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not unusable,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": str(model.unusable)}}
                    for model in unusable
                ],
            }
        ],
        "results": [_sarif_result(finding, index) for finding in report.findings],
    }
    log = {"version": "2.1.0", "$schema": _SARIF_SCHEMA, "runs": [run]}
    return json.dumps(log, indent=1) + "\n"


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": f"{rule.explanation} Source: {rule.source}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _sarif_result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    return {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": _sentence(finding)},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(finding.path)}},
                "logicalLocations": [{"fullyQualifiedName": finding.where}],
            }
        ],
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace("\\", "/"))


def _sentence(finding: Finding) -> str:
    return (
        f"{finding.where}: found {finding.found}; right: {finding.right}; fix: {finding.fix} "
        f"({finding.title})"
    )


def as_github(report: CheckReport) -> str:
    """Return workflow commands of GitHub Actions, one line per finding."""
    lines = []
    for model in report.models:
        for finding in model.findings:
            lines.append(
                f"::{_COMMANDS[finding.severity]} file={_property(finding.path)},"
                f"title={_property(f'{finding.code} {finding.title}')}::{_data(_sentence(finding))}"
            )
        if model.unusable is not None:
            lines.append(f"::error file={_property(model.path)}::{_data(model.unusable)}")
    return "".join(f"{line}\n" for line in lines)


def _data(text: str) -> str:
    lines = [_clean(line) for line in text.replace("\r", "\n").split("\n")]
    return "\n".join(lines).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


RENDERERS = {"text": as_text, "json": as_json, "sarif": as_sarif, "github": as_github}
"""Format to the function that makes it."""
