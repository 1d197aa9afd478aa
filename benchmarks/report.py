"""The results as terminal tables, JSON, a Markdown page and a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import flat
from .claims import Claim
from .result import SCHEMA_VERSION, CaseResult
from .timing import Quartiles

if TYPE_CHECKING:
    from .machine import Machine

WIDTH = 100
_HEADS = ("", "median", "quartiles", "×", "quartiles", "samples")
_CLAIM_HEADS = ("claim", "found", "demanded", "")


def seconds(value: float) -> str:
    """Return a time with three digits and its unit, e.g. ``3.04 µs``."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        # What rounds to 1000 of the smaller unit is written as 1.00 of the larger.
        if value >= 0.9995 * scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{_three_digits(value / 1e-9)} ns"


def _three_digits(value: float) -> str:
    # Not as an exponent, and no fewer than three digits.
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"


def _span(q: Quartiles, show: Any) -> str:
    return f"{show(q.low)} – {show(q.high)}"


def rows(result: CaseResult) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells of a case's table, fastest first within each baseline."""
    heads = list(_HEADS)
    per_token = bool(result.tokens)
    if per_token:
        heads.append("per token")
    bases = list(dict.fromkeys(result.baselines.values()))
    order = {base: place for place, base in enumerate(bases)}
    names = sorted(
        result.timings,
        key=lambda n: (order.get(result.baselines.get(n, ""), 0), result.timings[n].median),
    )
    out = []
    for name in names:
        timing, base = result.timings[name], result.to_baseline(name)
        cells = [
            name,
            seconds(timing.median),
            _span(timing.quartiles, seconds),
            _three_digits(base.median) if base is not None else "",
            _span(base, _three_digits) if base is not None else "",
            str(len(timing.samples)),
        ]
        if per_token:
            tokens = result.tokens.get(name)
            cells.append(seconds(timing.median / tokens) if tokens else "")
        out.append(cells)
    return heads, out


def table(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of at most 100 columns; the first column is flush left."""
    widths = [max(len(row[i]) for row in (heads, *cells)) for i in range(len(heads))]
    over = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    if over > 0:
        widths[0] = max(12, widths[0] - over)
    lines = []
    for row in (heads, *cells):
        first = row[0] if len(row[0]) <= widths[0] else row[0][: widths[0] - 1] + "…"
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join((first.ljust(widths[0]), *rest)).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return lines


def _baseline_note(result: CaseResult) -> str:
    bases = sorted(set(result.baselines.values()))
    if len(bases) == 1:
        return f"× is the time over that of: {bases[0]}."
    return "× is the time over that of the row of its group that stands at 1.00."


def _sentences(result: CaseResult) -> list[str]:
    out = [_baseline_note(result)] if result.baselines else []
    if result.moved_bytes is not None:
        out.append(f"The result has {result.moved_bytes:,} bytes.")
    out += result.notes
    by_reason: dict[str, list[str]] = {}
    for name, reason in result.left_out.items():
        by_reason.setdefault(reason, []).append(name)
    return out + [f"Left out: {', '.join(names)} ({why})." for why, names in by_reason.items()]


def terminal(result: CaseResult) -> str:
    """Return a case as text of at most 100 columns."""
    lines = [f"{result.title}  [{result.name}]", ""]
    if result.timings:
        lines += [*table(*rows(result)), ""]
    for sentence in _sentences(result):
        lines += textwrap.wrap(sentence, WIDTH, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _claim_cells(claims: Iterable[Claim]) -> list[list[str]]:
    return [[c.text, c.found, c.demanded, c.verdict] for c in claims]


def terminal_claims(claims: Sequence[Claim]) -> str:
    """Return the claims as text of at most 100 columns."""
    lines = table(_CLAIM_HEADS, _claim_cells(claims))
    return "\n".join([*lines, "", count_met(claims)]) + "\n"


def count_met(claims: Sequence[Claim]) -> str:
    """Return how many claims were met, missed and not run, as a sentence."""
    met, missed = (sum(c.met is value for c in claims) for value in (True, False))
    return f"{met} met, {missed} missed, {len(claims) - met - missed} not run."


def as_json(
    machine: Machine,
    results: Sequence[CaseResult],
    claims: Sequence[Claim],
    *,
    quick: bool,
    peak_gib: float,
) -> dict[str, Any]:
    """Return everything as one JSON value."""
    return {
        "schema_version": SCHEMA_VERSION,
        "quick": quick,
        "machine": machine.as_json(),
        "peak_memory_gib": peak_gib,
        "claims": [claim.as_json() for claim in claims],
        "cases": [result.as_json() for result in results],
    }


def page(
    machine: Machine,
    results: Sequence[CaseResult],
    claims: Sequence[Claim],
    contestants: Sequence[tuple[str, str]],
    *,
    quick: bool,
    peak_gib: float,
    picture: str | None = None,
) -> str:
    """Return the Markdown page.

    Args:
        machine: where it ran.
        results: the cases.
        claims: judged on them.
        contestants: names, and what is timed of each.
        quick: whether it was a quick run.
        peak_gib: most memory used.
        picture: file name of the plot beside the page.
    """
    lines = ["# Rotary embeddings on CPU, timed", ""]
    if quick:
        lines += ["A quick run: fewer cases and rounds; take a full run for numbers to quote.", ""]
    lines += [f"- {fact}" for fact in machine.lines()]
    lines += [f"- peak memory {peak_gib:.1f} GiB", ""]
    if picture is not None:
        lines += [f"![time over that of a copy, and time per token by length]({picture})", ""]
    lines += ["## Claims", "", count_met(claims), ""]
    lines += _markdown(_CLAIM_HEADS, _claim_cells(claims))
    for result in results:
        lines += ["", f"## {result.title}", ""]
        if result.timings:
            lines += [*_markdown(*rows(result)), ""]
        lines += [f"- {sentence}" for sentence in _sentences(result)]
    lines += ["", "## Who is timed", "", *_markdown(("", "what"), contestants)]
    lines += ["", "## How", "", *_METHOD]
    return "\n".join(lines) + "\n"


_METHOD = (
    "- All contestants of a table run in one process on the same numbers, in rounds, in an order",
    "  drawn anew for each round. × is the median of the ratios within rounds.",
    "- Each turn begins with a pause of 2 ms, so that other libraries' workers stop spinning, and",
    "  an untimed call. Calls too short for the clock are timed in batches; garbage collection is",
    "  off. Slow contestants sit out once they have used their share of the time.",
    "- Each contestant's result is compared with `ropewalk.rotation.reference` before it is",
    "  timed: Ropewalk's must be equal bit for bit, the others' within the rounding that their",
    "  dtype explains, and that of float32 angles where they cannot be given cos and sin.",
    "- Layouts and dtypes that a library wants are prepared for it outside the timed calls.",
)


def _markdown(heads: Sequence[str], cells: Iterable[Sequence[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return [f"| {' | '.join(row)} |" for row in (heads, rule, *cells)]


def draw(figure: Any, results: Sequence[CaseResult]) -> bool:
    """Draw times over a copy's, and time per token by length; return whether there was any."""
    bars = next((r for r in results if r.name.startswith("prefill") and r.timings), None)
    line = next((r for r in results if r.tokens and flat.SHORTEST in r.tokens.values()), None)
    panels = [p for p in (bars, line) if p is not None]
    for place, result in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        axes.set_title(result.title, fontsize=9)
        if result is bars:
            _draw_bars(axes, result)
        else:
            _draw_per_token(axes, result)
    figure.set_layout_engine("tight")
    return bool(panels)


def _draw_bars(axes: Any, result: CaseResult) -> None:
    found = ((name, result.to_baseline(name)) for name in result.timings)
    bars = sorted(((n, q) for n, q in found if q is not None), key=lambda bar: -bar[1].median)
    names, spans = [n for n, _ in bars], [q for _, q in bars]
    medians = [q.median for q in spans]
    errors = [[q.median - q.low for q in spans], [q.high - q.median for q in spans]]
    colours = ["tab:orange" if n.startswith("ropewalk") else "tab:gray" for n in names]
    axes.barh(names, medians, xerr=errors, color=colours)
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("time over that of a plain copy (bars: quartiles)")
    axes.set_ylabel("contestant")


def _draw_per_token(axes: Any, result: CaseResult) -> None:
    for kind in (flat.ROPEWALK, flat.MULTIPLY):
        names = [n for n in result.timings if n.startswith(kind)]
        lengths = [result.tokens[n] for n in names]
        spans = [result.timings[n].quartiles for n in names]
        scaled = list(zip(spans, lengths, strict=True))
        axes.plot(lengths, [1e9 * q.median / n for q, n in scaled], marker="o", label=kind)
        axes.fill_between(
            lengths,
            [1e9 * q.low / n for q, n in scaled],
            [1e9 * q.high / n for q, n in scaled],
            alpha=0.2,
        )
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens")
    axes.set_ylabel("nanoseconds per token (band: quartiles)")
    axes.legend()
