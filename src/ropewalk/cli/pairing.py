"""``ropewalk pairing``."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click

from .arguments import json_switch, text_files


@click.command("pairing", context_settings={"max_content_width": 100})
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--run", "running", is_flag=True, help="Also run it on a short text under both pairings."
)
@text_files
@json_switch
@click.pass_context
def command(
    ctx: click.Context, model: Path, running: bool, texts: tuple[Path, ...], as_json: bool
) -> None:
    """Tell from the weights of MODEL which lanes of queries and keys make a plane.

    MODEL is a folder of safetensors or a GGUF file. Exit 0 when it is clear, 1 when it is not.

    \b
    Examples:
      ropewalk pairing path/to/model
      ropewalk pairing model.gguf --json
      ropewalk pairing path/to/model --run
    """  # noqa: D301 (click needs the backspace character itself)
    from ..convert.pairing import find_pairing
    from ..convert.pairing_run import run_pairing
    from ..show.pairing_table import pairing_view
    from .output import print_view

    finding = find_pairing(model)
    # transformers shows bars of its own while it loads; tqdm reads this when it is imported.
    os.environ.setdefault("TQDM_DISABLE", "1")
    run = run_pairing(model, texts) if running else None
    verdicts = {v for v in (finding.found, run and run.found) if v}
    if as_json:
        ran = None if run is None else dataclasses.asdict(run)
        click.echo(json.dumps({"schema_version": 1, **finding.to_dict(), "run": ran}, indent=1))
    else:
        print_view(pairing_view(finding, run))
    ctx.exit(0 if len(verdicts) == 1 else 1)
