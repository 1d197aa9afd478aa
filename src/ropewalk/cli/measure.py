"""``ropewalk measure``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..extend.protocols import PROTOCOLS
from .arguments import json_switch, on_cluster, optional_model, text_files

# The baselines and one method of each stage.
_QUICK_METHODS = ("crop", "none", "linear", "ntk", "ntk-critical", "yarn")


@click.command(context_settings={"max_content_width": 100})
@optional_model
@text_files
@click.option(
    "--lengths",
    metavar="N,N…",
    help="Context lengths: tokens, or multiples of the original length as 2x,4x.  "
    "[default: 1x,2x,4x,8x,16x,32x]",
)
@click.option(
    "--methods",
    metavar="NAME,NAME…",
    help="Methods to compare; all for all.  [default: those that a config can hold]",
)
@click.option(
    "--protocol",
    type=click.Choice(list(PROTOCOLS)),
    default="fixed",
    show_default=True,
    help="fixed: the same last tokens at every length. prefix: the first N tokens, one pass. "
    "non-overlapping, sliding: whole documents in windows of the length.",
)
@click.option(
    "--documents",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Documents at most, each as long as the longest context.",
)
@click.option(
    "--trials",
    type=click.IntRange(0),
    help="Passkey trials per cell, fewer above 8x; 0 for none.  [default: 100]",
)
@click.option(
    "--quick",
    is_flag=True,
    help="A minute's look: up to 8x, six methods, few documents and trials.",
)
@click.option("--no-short", is_flag=True, help="Leave out the cost on short text.")
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default="auto",
    show_default=True,
    help="Weights; auto is bfloat16 where the processor multiplies it natively.",
)
@click.option(
    "--precision",
    type=click.Choice(["exact", "float32"]),
    default="exact",
    show_default=True,
    help="Angles; float32 forms them as transformers does.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of trials and bootstrap draws."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for report.md, loss.png, loss.svg, results.json and the journal.",
)
@on_cluster
@json_switch
def command(
    model: Path | None,
    texts: tuple[Path, ...],
    lengths: str | None,
    methods: str | None,
    protocol: str,
    documents: int,
    trials: int | None,
    quick: bool,
    no_short: bool,
    dtype: str,
    precision: str,
    seed: int,
    out: Path | None,
    on: str | None,
    as_json: bool,
) -> None:
    """Measure extension methods on MODEL, by context length.

    MODEL is a model folder or a GGUF file; without it, the model in the package is measured.
    Finished passes are kept at once: run the same command again to go on after a kill.

    \b
    Examples:
      ropewalk measure --quick
      ropewalk measure --out results
      ropewalk measure model.gguf --text book.txt --lengths 1x,2x,4x --trials 0
      ropewalk measure model.gguf --text book.txt --protocol prefix --methods none,ntk,yarn
    """  # noqa: D301 (click needs the backspace character itself)
    from ..extend.measure import measure
    from ..extend.methods import METHODS, USUAL
    from ..extend.options import Options
    from .lengths import parse_lengths
    from .output import print_view
    from .progress import progress_bar

    chosen = methods.split(",") if methods else _QUICK_METHODS if quick else USUAL
    if methods == "all":
        chosen = list(METHODS)
    options = Options(
        lengths=parse_lengths(lengths or ("1x,2x,4x,8x" if quick else None), model),
        methods=tuple(chosen),
        texts=texts,
        protocol=protocol,  # type: ignore[arg-type]
        documents=min(documents, 6) if quick else documents,
        trials=trials if trials is not None else 16 if quick else 100,
        short=not no_short,
        dtype=dtype,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
        seed=seed,
    )
    with progress_bar("measuring") as progress:
        measurement = measure(model, options, journal_folder=out, progress=progress, on=on)
    if out is not None:
        from ..show.measurement_files import write_measurement

        for path in write_measurement(measurement, out):
            click.echo(f"wrote {path}", err=True)
    if as_json:
        click.echo(json.dumps(measurement.to_dict(), indent=1))
        return
    from ..show.measurement_table import measurement_view

    print_view(measurement_view(measurement))
