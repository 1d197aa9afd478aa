"""``ropewalk lab``: training small models side by side, and what was found."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .arguments import on_cluster


@click.group(context_settings={"max_content_width": 100})
def command() -> None:
    """Train small models side by side and measure them.

    \b
    Examples:
      ropewalk lab list
      ropewalk lab run convergence
      ropewalk lab run stages tuning base-bound
      ropewalk lab run my-study.toml --out results --workers 2
      ropewalk lab report convergence --write docs/studies
    """  # noqa: D301 (click needs the backspace character itself)


_study = click.argument("study")
_out = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("lab"),
    show_default=True,
    help="Folder of models and measurements, shared by all studies.",
)


@command.command("list")
def list_studies() -> None:
    """List the studies that come with the package."""
    from ..lab.study import names, read_study

    for name in names():
        click.echo(f"{name:16}{read_study(name).title}")


@command.command()
@click.argument("studies", metavar="STUDY...", nargs=-1, required=True)
@_out
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Units of work at a time.  [default: one per core]",
)
@click.option("--threads", type=click.IntRange(1), help="Of each.  [default: the cores' share]")
@on_cluster
def run(
    studies: tuple[str, ...], out: Path, workers: int | None, threads: int | None, on: str | None
) -> None:
    """Run each STUDY, a name of `lab list` or a file: train its models and measure them.

    Several are run as one: what they share is done once, and no worker waits between them.
    Finished units are kept at once, and a training keeps its state every hundred steps: run
    the same command again to go on after a kill.
    """
    from ..lab.schedule import run_here, unfinished
    from ..lab.study import read_study
    from ..lab.units import units_of
    from .progress import progress_bar

    plans = [read_study(study) for study in studies]
    units = units_of(*plans)
    left = len(unfinished(units, out))
    for plan in plans:
        click.echo(plan.title, err=True)
    click.echo(f"{len(units)} units, {left} of them to do, in {out}", err=True)
    with progress_bar(", ".join(plan.name for plan in plans)) as progress:
        if on is not None:
            from ..lab.on_ray import run_on_ray

            run_on_ray(units, out, address=on, progress=progress)
        else:
            count = workers or os.cpu_count() or 1
            run_here(units, out, workers=count, threads=threads, progress=progress)
    for study in studies:
        click.echo(f"next: ropewalk lab report {study} --out {out}", err=True)


@command.command()
@_study
@_out
@click.option(
    "--write",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the page, its plots and the table of results.",
)
def report(study: str, out: Path, write: Path | None) -> None:
    """Show what STUDY found; with --write, its page, plots and data."""
    from ..lab.reports import write_report
    from ..lab.study import read_study

    plan = read_study(study)
    for line in write_report(plan, out, write):
        click.echo(line)
