"""Time Ropewalk's rotation on the CPU beside other libraries'.

    python -m benchmarks.cpu [--quick] [--only CASE] [--out DIR]

Tables go to stdout, progress to stderr. With ``--out`` the folder gets results.json, written
anew after each case, report.md and, where matplotlib is installed, report.png. The exit code
says whether the run went through, not whether the claims were met.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    # Run as a file, Python looks for modules in this folder, where ours would hide others.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import click

from ropewalk.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.claims import Claim
    from benchmarks.machine import Machine
    from benchmarks.result import CaseResult

# They steer the OpenBLAS in NumPy, away from what a user's machine would do.
_UNWANTED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def restart_without_settings() -> None:
    """Start this command anew without settings that are read when NumPy is loaded."""
    if any(name in os.environ for name in _UNWANTED):
        click.echo(f"bench: starting again without {' and '.join(_UNWANTED)}", err=True)
        clean = {key: value for key, value in os.environ.items() if key not in _UNWANTED}
        os.execve(sys.executable, sys.orig_argv, clean)


def peak_memory_gib() -> float:
    """Return the most memory this process has used."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, Linux kibibytes.
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Folder for JSON, page and plot.")
@click.option("--only", multiple=True, metavar="CASE", help="Cases with this in their name.")
@click.option("--quick", is_flag=True, help="Fewer cases and rounds, within 90 seconds.")
@click.option("--list", "listing", is_flag=True, help="Name the cases and stop.")
def main(out: Path | None, only: tuple[str, ...], quick: bool, listing: bool) -> None:
    """Time Ropewalk's rotation on the CPU beside other libraries'."""
    try:
        _run(out, only, quick=quick, listing=listing)
    except InputError as error:
        click.echo(str(error), err=True)
        raise SystemExit(2) from None


def _run(out: Path | None, only: tuple[str, ...], *, quick: bool, listing: bool) -> None:
    # tqdm reads this when it is imported; its bars would garble the progress line.
    os.environ.setdefault("TQDM_DISABLE", "1")
    # Imported here, because they import torch, and --help need not.
    from benchmarks.cases import all_cases, chosen
    from benchmarks.claims import judge
    from benchmarks.machine import this_machine
    from benchmarks.peers import PEERS
    from benchmarks.progress import Progress
    from benchmarks.report import as_json, terminal, terminal_claims

    if listing:
        for case in all_cases():
            click.echo(f"{case.name:42}{case.title}")
        return
    cases = chosen(only, quick=quick)
    if out is not None:
        _make_folder(out)
    machine = this_machine(PEERS)
    click.echo("\n".join(machine.lines()) + "\n")
    progress = Progress({case.name: case.expected_seconds(quick) for case in cases})
    results = []
    for case in cases:
        progress.start(case.name)
        results.append(case.run(case, quick, partial(progress.inside, case.name)))
        progress.finish(case.name)
        click.echo(terminal(results[-1]))
        if out is not None:
            everything = as_json(
                machine, results, judge(results), quick=quick, peak_gib=peak_memory_gib()
            )
            _write(out / "results.json", json.dumps(everything, indent=1) + "\n")
    claims = judge(results)
    click.echo(terminal_claims(claims))
    click.echo(f"Peak memory {peak_memory_gib():.1f} GiB.")
    if out is not None:
        _write_page(out, machine, results, claims, quick=quick)


def _write_page(
    out: Path,
    machine: Machine,
    results: Sequence[CaseResult],
    claims: Sequence[Claim],
    *,
    quick: bool,
) -> None:
    from benchmarks import own, usual
    from benchmarks.peers import PEERS
    from benchmarks.report import draw, page
    from ropewalk.show.picture import drawing, save

    picture = None
    try:
        with drawing("the benchmark's plot") as figure_class:
            figure = figure_class(figsize=(12, 5))
            if draw(figure, results):
                save(figure, out / "report.png", dpi=110)
                picture = "report.png"
    except MissingExtraError as error:
        click.echo(f"bench: no plot: {error}", err=True)
    rows = (usual.COPY, usual.MULTIPLY, *own.ROWS, *PEERS, usual.OUTER_PRODUCT)
    text = page(
        machine,
        results,
        claims,
        [(row.name, row.what) for row in rows],
        quick=quick,
        peak_gib=peak_memory_gib(),
        picture=picture,
    )
    _write(out / "report.md", text)
    click.echo(f"bench: wrote {out / 'report.md'}", err=True)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "--out",
            found=f"{path} ({error.strerror})",
            expected="a folder that can be made or written to",
            fix="name another folder",
        ) from None


def _write(path: Path, text: str) -> None:
    # Beside and renamed, so that a killed run leaves the last whole file.
    scratch = path.with_name(f".partial-{path.name}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


if __name__ == "__main__":
    restart_without_settings()
    main()
