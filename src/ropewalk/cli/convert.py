"""``ropewalk convert``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import printable
from .arguments import json_switch

if TYPE_CHECKING:
    from ..models import ModelPositions


@click.command("convert", context_settings={"max_content_width": 100})
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    metavar="FORMAT",
    help="Write the positions as hf, hf4, mlx, gguf-kv, meta, mistral, gpt-oss, megatron, vllm, "
    "sglang or llama.cpp.",
)
@click.option(
    "--family", metavar="TYPE", help="The model_type or GGUF architecture to write for, for --to."
)
@click.option(
    "--engine-args",
    metavar="TEXT",
    help="Flags of an engine: convert the model as it would be run with them, for --to.",
)
@click.option(
    "--overrides", metavar="JSON", help="Keys that replace those of the config, for --to."
)
@click.option(
    "--pairing",
    type=click.Choice(["half", "adjacent"]),
    help="Move the rows of query and key weights for this pairing.",
)
@click.option(
    "--write",
    "target",
    type=click.Path(path_type=Path),
    help="Where to write: a new folder for --pairing, a new file for --to (else it is printed).",
)
@click.option("--lossy", is_flag=True, help="Write also what the target cannot say.")
@click.option(
    "--base",
    type=click.Path(path_type=Path, exists=True),
    help="The model that a LoRA adapter belongs to, for --pairing.",
)
@json_switch
def command(
    model: Path,
    form: str | None,
    family: str | None,
    engine_args: str | None,
    overrides: str | None,
    pairing: str | None,
    target: Path | None,
    lossy: bool,
    base: Path | None,
    as_json: bool,
) -> None:
    """Convert the positions of MODEL to another format, or its weights to another pairing.

    For --to, MODEL is whatever `ropewalk inspect` reads; what the format cannot say is refused,
    or with --lossy left out and named. A GGUF file that is written as gguf-kv is copied with its
    metadata patched, tensors untouched.

    For --pairing, MODEL is a folder of safetensors, a LoRA adapter's folder or a GGUF file. A
    killed run goes on where it was when it is started again.

    \b
    Examples:
      ropewalk convert path/to/model --to vllm
      ropewalk convert params.json --to hf --lossy --write config.json
      ropewalk convert in.gguf --engine-args "--rope-scale 4" --to gguf-kv --write out.gguf
      ropewalk convert path/to/model --pairing adjacent --lossy --write path/to/new
      ropewalk convert adapter --base model --pairing adjacent --lossy --write new-adapter
    """  # noqa: D301 (click needs the backspace character itself)
    if form is not None and pairing is not None:
        raise click.UsageError("--to writes positions, --pairing weights: give one of the two")
    if form is not None:
        from ..models.read import read_whole

        plan = read_whole(model, engine_args=engine_args, overrides=overrides)
        _format(plan, model, form, family, target, lossy, as_json)
        return
    if pairing is not None:
        _pairing(model, pairing, target, lossy, base, as_json)
        return
    raise click.UsageError("say what to convert to: --to or --pairing")


def _pairing(
    model: Path, pairing: str, target: Path | None, lossy: bool, base: Path | None, as_json: bool
) -> None:
    from ..convert.weights import convert_pairing
    from ..rope import PAIRINGS
    from .progress import progress_bar

    if target is None:
        raise click.UsageError("--pairing needs --write FOLDER: weights are not printed")
    (to,) = (known for known in PAIRINGS if known == pairing)
    with progress_bar("converting") as progress:
        done = convert_pairing(model, to, target, lossy=lossy, base=base, progress=progress)
    for note in done.notes:
        click.echo(f"note: {printable(note)}", err=True)
    if as_json:
        click.echo(json.dumps({"schema_version": 1, **dataclasses.asdict(done)}, indent=1))
        return
    went_on = f" ({done.kept} files were finished by an earlier run)" if done.kept else ""
    click.echo(
        f"wrote {done.written}: {done.before} → {done.after}, {done.tensors} tensors in "
        f"{len(done.files)} files{went_on}"
    )


def _format(
    plan: ModelPositions,
    model: Path,
    form: str,
    family: str | None,
    target: Path | None,
    lossy: bool,
    as_json: bool,
) -> None:
    from ..convert.convert import convert, source_options, write_conversion

    options = source_options(model, family)
    done = convert(plan, form, lossy=lossy, options=options)
    for loss in done.lost:
        click.echo(f"lost: {printable(loss)}", err=True)
    for note in done.notes:
        click.echo(f"note: {printable(note)}", err=True)
    if target is not None:
        write_conversion(done, model, target)
        click.echo(f"wrote {target}", err=True)
    if as_json:
        written = None if target is None else str(target)
        report = {"schema_version": 1, **done.to_dict(), "written": written}
        click.echo(json.dumps(report, indent=1))
    elif target is None:
        click.echo(done.text)
