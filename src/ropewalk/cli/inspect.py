"""``ropewalk inspect``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .arguments import json_switch


@click.command("inspect", context_settings={"max_content_width": 100})
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--planes", is_flag=True, help="Also print every plane of every rope.")
@json_switch
@click.option(
    "--assume-family",
    metavar="TYPE",
    help="Read a config.json of an unknown model_type as this known one.",
)
def command(model: Path, planes: bool, as_json: bool, assume_family: str | None) -> None:
    """Show what the positions of MODEL are, and where each value came from.

    MODEL is a model folder, a config.json of transformers or a GGUF file. Of weight files only
    the header is read.

    \b
    Examples:
      ropewalk inspect path/to/model
      ropewalk inspect model.gguf --planes
      ropewalk inspect config.json --json
      ropewalk inspect config.json --assume-family llama
    """  # noqa: D301 (click needs the backspace character itself)
    from ..models import read
    from ..show.positions_table import planes_view, positions_view
    from .output import print_view

    plan = read(model, assume_family=assume_family)
    if as_json:
        click.echo(json.dumps({"schema_version": 1, **plan.to_dict()}, indent=1))
        return
    print_view(positions_view(plan))
    if planes:
        print_view(planes_view(plan))
