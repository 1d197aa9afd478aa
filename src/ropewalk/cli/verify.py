"""``ropewalk verify``: the identities of rotary embeddings, on numbers."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..rope import Precision
from ..show.decay_plot import plot_decay
from ..verify import Check, DecayCurve, VerifyReport, verify
from .arguments import json_switch

WIDTH = 100


@click.command("verify")
@click.option("--formulas", is_flag=True, help="Also print each formula and each tolerance's.")
@click.option(
    "--precision",
    type=click.Choice(["exact", "float32"]),
    default="exact",
    show_default=True,
    help="Arithmetic of tables and rotation: exact tables in float64, or single precision.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the distance bound and the pair's score as a .png or .svg file.",
)
@json_switch
@click.pass_context
def command(
    ctx: click.Context, formulas: bool, precision: str, plot: Path | None, as_json: bool
) -> None:
    """Check the identities of rotary embeddings on numbers; exit 1 when one fails.

    \b
    Examples:
      ropewalk verify                       every identity, computed and judged
      ropewalk verify --formulas            with the formulas and how tolerances are derived
      ropewalk verify --precision float32   the same in single precision
      ropewalk verify --plot decay.png      the distance bound as a picture
    """  # noqa: D301 (click needs the backspace character itself)
    report = verify(cast("Precision", precision))
    if plot is not None:
        plot_decay(plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        click.echo(json.dumps(as_object(report), allow_nan=False))
    else:
        _print(report, formulas)
    ctx.exit(0 if report.passed else 1)


def as_object(report: VerifyReport) -> dict[str, Any]:
    """Return the report as JSON values; numbers that are not finite become null."""
    return {
        "schema_version": 1,
        "precision": report.precision,
        "epsilon": report.epsilon,
        "passed": report.passed,
        "held": report.held,
        "checks": [
            {**_finite(dataclasses.asdict(check)), "passed": check.passed}
            for check in report.checks
        ],
        "decay": {
            "title": "upper bound on a magnitude, not the score",
            **_finite(dataclasses.asdict(report.decay)),
        },
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print(report: VerifyReport, formulas: bool) -> None:
    console = Console(highlight=False)
    # A pipe has no width of its own; a terminal may be wider than is good to read.
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    wide = console.width >= WIDTH
    console.print(_table([_HEADINGS], wide))
    for group, checks in itertools.groupby(report.checks, key=lambda check: check.group):
        console.print(Text(group, style="bold"))
        if not formulas:
            console.print(_table((_row(check) for check in checks), wide))
            continue
        for check in checks:
            console.print(_table([_row(check)], wide))
            console.print(Padding(Text(f"formula    {check.formula}"), (0, 0, 0, 6)))
            console.print(Padding(Text(f"tolerance  {check.tolerance_formula}"), (0, 0, 0, 6)))
    if wide:
        note = "n: numbers compared; of several, the worst is shown. "
    else:
        note = f"Of several numbers, the worst is shown; tolerances from {WIDTH} columns on. "
    note += f"ε = {report.epsilon:.3g}, the spacing of numbers at 1."
    console.print(note, style="dim")
    console.print()
    console.print(_decay_table(report.decay))
    console.print(
        "The pair is q = k = one lane of the slowest plane. Its score is cos(Δθ): from 1 to -1\n"
        f"and back, a turn in {report.decay.wavelength:.0f} tokens. It does not decay.",
        style="dim",
    )
    console.print()
    for check in report.checks:
        if not check.passed:
            console.print(Text(f"FAIL: {check.name}: {check.formula}", style="red"))
    console.print(Text(f"{report.held} of {len(report.checks)} hold", style="bold"))


_HEADINGS = tuple(
    Text(heading, style="dim")
    for heading in ("check", "n", "computed", "expected", "|diff.|", "tolerance", "")
)
_WIDTHS = (None, 3, 13, 13, 7, 9, 6)
_WIDE_ONLY = (1, 5)
"""Columns left out where the terminal is narrower than ``WIDTH``."""


def _table(rows: Iterable[tuple[Text, ...]], wide: bool) -> Table:
    """Lay out rows in columns of fixed width, so that the groups' columns line up."""
    shown = [i for i in range(len(_WIDTHS)) if wide or i not in _WIDE_ONLY]
    table = Table.grid(padding=(0, 2 if wide else 1, 0, 0), expand=True)
    for i in shown:
        right = 0 < i < len(_WIDTHS) - 1
        table.add_column(
            justify="right" if right else "left", width=_WIDTHS[i], ratio=None if i else 1
        )
    for row in rows:
        table.add_row(*(row[i] for i in shown))
    return table


def _row(check: Check) -> tuple[Text, ...]:
    sign = {"equal": "", "at most": "≤ ", "differs": "≠ "}[check.relation]
    relation = ">" if check.relation == "differs" else "≤"
    return (
        Text(f"  {check.name}"),
        Text(str(check.compared)),
        Text(_numbers(check.computed)),
        Text(sign + _numbers(check.expected)),
        Text(_short(check.difference)),
        Text(f"{relation} {_short(check.tolerance):>7}"),
        Text("✓ ok", style="green") if check.passed else Text("✗ FAIL", style="bold red"),
    )


def _short(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def _numbers(values: tuple[float, ...]) -> str:
    # Three equal numbers are shown as one; n says how many there are.
    return ", ".join(f"{value:.5g}" for value in dict.fromkeys(values))


def _decay_table(curve: DecayCurve) -> Table:
    table = Table(
        title=f"Upper bound on a magnitude, not the score: head_dim {curve.head_dim}, "
        f"theta {curve.theta:g}",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 3, 0, 0),
        header_style="dim",
    )
    for heading in (
        "distance Δ (tokens)",
        "bound: mean |S_j|",
        "bound / bound at 0",
        "score of a pair",
    ):
        table.add_column(heading, justify="right")
    for distance, bound, score in zip(curve.distances, curve.bound, curve.pair_score, strict=True):
        table.add_row(
            str(distance), f"{bound:.2f}", f"{bound / curve.bound[0]:.2f}", f"{score:.4f}"
        )
    return table
