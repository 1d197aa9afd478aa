"""``ropewalk compare``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .arguments import json_switch

DIFFERENT = 1


@click.command("compare", context_settings={"max_content_width": 100})
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("other", required=False, type=click.Path(path_type=Path))
@click.option(
    "--length",
    type=click.IntRange(min=1),
    help="Tokens of the text, for MODEL alone.  [default: the stated length]",
)
@click.option("--assume-family", metavar="TYPE", help="Read a config as this model_type.")
@click.option(
    "--engine-args",
    metavar="TEXT",
    help="Flags of vLLM, SGLang or llama.cpp that MODEL alone is run with.",
)
@click.option(
    "--overrides", metavar="JSON", help="Keys that replace those of the config of MODEL alone."
)
@json_switch
def command(
    model: Path,
    other: Path | None,
    length: int | None,
    assume_family: str | None,
    engine_args: str | None,
    overrides: str | None,
    as_json: bool,
) -> int:
    """Show what ten engines compute from the config of MODEL, largest disagreement first.

    With OTHER, show what differs in meaning between two models or formats, what is only spelled
    differently, and what only one of them says; exit 0 for the same meaning, 1 for another.

    Frequencies are compared plane by plane; the angle is the difference at the last position.
    Rules marked "run" are tested against the engine's own code, the others were read.

    With --overrides, or with flags of vLLM or SGLang, every engine is shown the config with its
    keys replaced. Flags of llama.cpp change what that engine computes, and no other.

    \b
    Examples:
      ropewalk compare path/to/model
      ropewalk compare config.json --length 131072 --json
      ropewalk compare path/to/model model.gguf
      ropewalk compare config.json --overrides '{"rope_theta": 5e6}'
      ropewalk compare model.gguf --engine-args "--rope-scaling yarn --rope-scale 4"
    """  # noqa: D301 (click needs the backspace character itself)
    from .output import print_view

    if other is not None:
        for name, value in (
            ("--length", length),
            ("--engine-args", engine_args),
            ("--overrides", overrides),
        ):
            if value is not None:
                raise click.UsageError(f"{name} is for one model alone")
        from ..engines.meaning import compare_meaning
        from ..show.comparison_table import meaning_view

        diff = compare_meaning(model, other, assume_family=assume_family)
        if as_json:
            click.echo(json.dumps({"schema_version": 1, **diff.to_dict()}, indent=1))
        else:
            print_view(meaning_view(diff))
        return 0 if diff.same else DIFFERENT
    from ..engines.compare import compare_engines
    from ..show.comparison_table import comparison_view

    comparison = compare_engines(
        model,
        assume_family=assume_family,
        length=length,
        engine_args=engine_args,
        overrides=overrides,
    )
    if as_json:
        click.echo(json.dumps({"schema_version": 1, **comparison.to_dict()}, indent=1))
    else:
        print_view(comparison_view(comparison))
    return 0
