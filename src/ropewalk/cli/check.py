"""``ropewalk check``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..errors import InputError
from .arguments import json_switch

if TYPE_CHECKING:
    from ..check.findings import Severity


@click.command("check", context_settings={"max_content_width": 100})
@click.argument("words", metavar="MODEL…|-- TEXT…", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="sarif is SARIF 2.1.0; github prints annotations for GitHub Actions.",
)
@json_switch
@click.option("--select", metavar="CODES", multiple=True, help="Only rules of these beginnings.")
@click.option("--ignore", metavar="CODES", multiple=True, help="No rules of these beginnings.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="warning",
    show_default=True,
    help="The least severity that makes the exit code 1.",
)
@click.option(
    "--weights/--no-weights",
    default=None,
    help="Tell the pairing of lanes from the weights.  [default: where they are at most 1 GiB]",
)
@click.option("--assume-family", metavar="TYPE", help="Read an unknown model_type as this one.")
@click.option("--engine-args", metavar="TEXT", help="Check MODEL as an engine would run it.")
@click.option("--overrides", metavar="JSON", help="Keys that replace those of the config.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    form: str,
    as_json: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    weights: bool | None,
    assume_family: str | None,
    engine_args: str | None,
    overrides: str | None,
) -> None:
    """Find what is wrong with the positions of each MODEL, what is right, and the fix.

    MODEL is whatever `ropewalk inspect` reads: a folder, a config, a GGUF file, settings of
    another program. After -- comes a text: a command line of an engine or of Megatron, or listed
    GGUF metadata.

    Exit 0 clean, 1 findings at or above --fail-on, 2 a MODEL that could not be read. A mistake
    with a known right answer is a finding even where it keeps the file from being read; a family
    or a scaling that is not known is not.

    \b
    Examples:
      ropewalk check path/to/model
      ropewalk check a/config.json b/params.json c.gguf --format sarif
      ropewalk check path/to/model --select RW1,RW4 --ignore RW107 --fail-on error
      ropewalk check path/to/model --engine-args "--max-model-len 131072"
      ropewalk check -- llama-server -c 16384 --rope-freq-scale 4
      ropewalk explain RW701
    """  # noqa: D301 (click needs the backspace character itself)
    from ..check.formats import RENDERERS
    from ..check.runner import CheckReport, check, check_text, chosen

    chosen_codes = _codes(select), _codes(ignore)
    chosen(*chosen_codes)
    text = _as_text(words)
    if text is not None:
        if engine_args is not None or overrides is not None:
            raise InputError(
                "check",
                found="a text with --engine-args or --overrides",
                expected="a model",
                fix="give the model's own file",
            )
        models = [
            check_text(
                text,
                select=chosen_codes[0],
                ignore=chosen_codes[1],
                assume_family=assume_family,
            )
        ]
    else:
        models = [
            check(
                Path(word),
                select=chosen_codes[0],
                ignore=chosen_codes[1],
                assume_family=assume_family,
                engine_args=engine_args,
                overrides=overrides,
                weights=weights,
            )
            for word in words
        ]
    report = CheckReport(tuple(models))
    name = "json" if as_json else form
    click.echo(RENDERERS[name](report), nl=False)
    if name != "text":
        for model in models:
            if model.unusable is not None:
                click.echo(f"ropewalk: {model.unusable}", err=True)
    ctx.exit(report.exit_code(None if fail_on == "never" else cast("Severity", fail_on)))


def _codes(options: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.strip() for option in options for word in option.split(",") if word.strip())


def _as_text(words: tuple[str, ...]) -> str | None:
    """Return the text that the words are, or None where they are files."""
    from ..models.load import is_there

    if is_there(words[0]):
        return None
    if len(words) == 1:
        word = words[0]
        return word if word.startswith("-") or any(sign in word for sign in " =\n") else None
    flags = any(word.startswith("-") or "=" in word for word in words)
    return shlex.join(words) if flags else None
