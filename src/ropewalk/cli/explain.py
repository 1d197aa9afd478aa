"""``ropewalk explain``."""

from __future__ import annotations

import json

import click

from ..errors import InputError
from .arguments import json_switch


@click.command("explain", context_settings={"max_content_width": 100})
@click.argument("code", required=False)
@json_switch
def command(code: str | None, as_json: bool) -> None:
    """Explain a rule of `ropewalk check`, with a bad and a good example; or list all rules.

    \b
    Examples:
      ropewalk explain            every code with its severity and title
      ropewalk explain RW103
      ropewalk explain RW103 --json
    """  # noqa: D301 (click needs the backspace character itself)
    from ..check.pages import shown
    from ..check.rules import BY_CODE, RULES
    from ..models.spellings import hint

    if code is None:
        if as_json:
            listed = [{"code": r.code, "severity": r.severity, "title": r.title} for r in RULES]
            click.echo(json.dumps({"schema_version": 1, "rules": listed}, indent=1))
            return
        for rule in RULES:
            click.echo(f"{rule.code}  {rule.severity:<8} {rule.title}")
        return
    rule_or_none = BY_CODE.get(code.upper())
    if rule_or_none is None:
        near = hint(code.upper(), list(BY_CODE))
        raise InputError(
            "explain",
            found=repr(code),
            expected="the code of a rule",
            fix=f"did you mean {near}?" if near else "ropewalk explain lists the codes",
        )
    rule = rule_or_none
    if as_json:
        fields = {
            "schema_version": 1,
            "code": rule.code,
            "severity": rule.severity,
            "title": rule.title,
            "explanation": rule.explanation,
            "bad": shown(rule.bad),
            "good": shown(rule.good),
            "source": rule.source,
        }
        click.echo(json.dumps(fields, indent=1))
        return
    click.echo(f"{rule.code}: {rule.title} ({rule.severity})\n")
    click.echo(click.wrap_text(rule.explanation, 100))
    for heading, example in (("Found fault with:", rule.bad), ("As it should be:", rule.good)):
        click.echo(f"\n{heading}\n")
        for line in shown(example).splitlines():
            click.echo(f"    {line}")
    click.echo("\n" + click.wrap_text(f"Source: {rule.source}", 100))
