"""``ropewalk extend``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .arguments import json_switch, optional_model, text_files


@click.command(context_settings={"max_content_width": 100})
@optional_model
@click.option("--to", "target", required=True, metavar="N", help="Target length: 32768, 32k or 4x.")
@click.option(
    "--method",
    default="auto",
    show_default=True,
    help="auto, none, linear, ntk, ntk-critical, dynamic, by-parts, yarn or yarn-rotations.",
)
@click.option("--measure", "measured", is_flag=True, help="Measure the methods on the model first.")
@text_files
@click.option(
    "--documents",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Documents for --measure, at most.",
)
@click.option(
    "--trials",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Passkey trials per cell for --measure; 0 for none.",
)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path),
    help="Write an extended copy of the model into this new folder.",
)
@json_switch
def command(
    model: Path | None,
    target: str,
    method: str,
    measured: bool,
    texts: tuple[Path, ...],
    documents: int,
    trials: int,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Stretch MODEL to a longer context: a verdict, the config for each engine, the files.

    MODEL is a model folder, a config.json or a GGUF file; without it, the model in the package.

    \b
    Examples:
      ropewalk extend --to 8x
      ropewalk extend path/to/model --to 131072
      ropewalk extend model.gguf --to 32k --measure --text book.txt
      ropewalk extend path/to/model --to 64k --method yarn --write path/to/model-64k
    """  # noqa: D301 (click needs the backspace character itself)
    from ..extend.loading import builtin_model
    from ..extend.measure import measure
    from ..extend.options import Options
    from ..extend.plan import plan_extension
    from ..extend.write import write_extended
    from ..models.pairing_note import NOTE
    from ..models.read import read
    from ..show.extension_view import extension_view
    from .lengths import parse_lengths
    from .output import print_view
    from .progress import progress_bar

    positions = read(model or builtin_model())
    (tokens,) = parse_lengths(target, model) or (0,)
    measurement = None
    # A first plan without numbers finds every refusal before minutes of measuring.
    name = str(model) if model is not None else "built-in byte model"
    extension = plan_extension(positions, name, tokens, method)
    if measured and extension.factor > 1:
        original = extension.original_length
        options = Options(
            lengths=(original, tokens), texts=texts, documents=documents, trials=trials
        )
        with progress_bar("measuring") as progress:
            measurement = measure(model, options, progress=progress)
        extension = plan_extension(positions, name, tokens, method, measurement)
    for note in positions.notes:
        if NOTE in note:
            click.echo(f"note: {note}", err=True)
    if folder is not None:
        written = write_extended(extension, positions, folder)
        click.echo(f"wrote {written}", err=True)
    if as_json:
        click.echo(json.dumps(extension.to_dict(), indent=1))
    else:
        print_view(extension_view(extension))
