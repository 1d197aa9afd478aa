"""The page of a study that asks no question of its own: curves, losses, retrieval."""

from __future__ import annotations

from typing import Any

from ...extend.statistics import wilson
from ...show.styles import keywords
from ..intervals import mean_of
from ..results import Found
from .page import Page, Plot, table


def page(found: Found) -> Page:
    """Show every training's end and every measured cell."""
    names = list(found.study.models)
    ends = {name: _ends(found, name) for name in names}
    best = min(names, key=lambda name: mean_of(ends[name]).value)
    rows = [
        [name, mean_of(ends[name]).text(3), ", ".join(f"{v:.3f}" for v in ends[name])]
        for name in names
    ]
    sections = {"Loss at the end of training": table(["model", "bits per byte", "each seed"], rows)}
    for measure in found.study.measures:
        if measure.kind != "loss":
            continue
        models = [name for name in names if not measure.models or name in measure.models]
        for protocol in measure.protocols:
            heading = f"{measure.name}: bits per byte, protocol `{protocol}`"
            sections[heading] = _losses(found, measure.name, protocol, models)
        if measure.trials and "fixed" in measure.protocols:
            sections[f"{measure.name}: {measure.probe} trials found"] = _retrieval(
                found, measure.name, models
            )
    return Page(
        plots=[
            Plot(
                "training",
                "Held-out loss by training step, mean of the seeds; band: all seeds.",
                (8.0, 5.0),
                lambda figure: _draw(figure, found),
            )
        ],
        answers=[
            (
                f"Lowest held-out loss at the end of training: {best}, "
                f"{mean_of(ends[best]).text(3)} bits per byte."
            )
        ],
        sections=sections,
    )


def _ends(found: Found, model: str) -> list[float]:
    return [found.curve(model, seed)[1][-1] for seed in found.study.seeds]


def _cells(found: Found, measure: str, models: list[str]) -> list[Any]:
    seed = found.study.seeds[0]
    return [m for name in models for m in found.measurements[measure, name, seed]]


def _losses(found: Found, measure: str, protocol: str, models: list[str]) -> list[str]:
    parts = [m for m in _cells(found, measure, models) if m.protocol == protocol]
    lengths = sorted({n for m in parts for n in m.lengths})
    methods = dict.fromkeys(c.method for m in parts for c in m.cells)
    rows = []
    for model in models:
        for method in methods:
            values = [found.bits(measure, model, method, n, protocol) for n in lengths]
            if any(values):
                told = ["not possible" if v is None else mean_of(v).text(3) for v in values]
                rows.append([model, method, *told])
    return table(["model", "method", *(f"{n:,}" for n in lengths)], rows)


def _retrieval(found: Found, measure: str, models: list[str]) -> list[str]:
    sums: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for (name, model, _), parts in found.measurements.items():
        for cell in (c for m in parts for c in m.retrieval):
            if name == measure and model in models:
                row = sums.setdefault((model, cell.method), {})
                hits, trials = row.get(cell.length, (0, 0))
                row[cell.length] = hits + cell.overall.hits, trials + cell.overall.trials
    lengths = sorted({n for row in sums.values() for n in row})
    rows = [
        [*key, *(_share(*row[n]) if n in row else "" for n in lengths)] for key, row in sums.items()
    ]
    return table(["model", "method", *(f"{n:,}" for n in lengths)], rows)


def _share(hits: int, trials: int) -> str:
    i = wilson(hits, trials)
    return f"{hits / trials:.0%} [{100 * i.low:.0f}, {100 * i.high:.0f}]"


def _draw(figure: Any, found: Found) -> None:
    axis = figure.subplots()
    for name in found.study.models:
        curves = [found.curve(name, seed) for seed in found.study.seeds]
        steps = curves[0][0]
        values = list(zip(*(losses for _, losses in curves), strict=True))
        look = keywords(name)
        means = [sum(v) / len(v) for v in values]
        axis.plot(steps, means, label=name, markersize=4, linewidth=1.3, **look)
        low, high = [min(v) for v in values], [max(v) for v in values]
        axis.fill_between(steps, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axis.set_xlabel("training step")
    axis.set_ylabel("held-out loss, bits per byte (lower is better)")
    axis.grid(axis="y", color="#eeeeee")
    figure.legend(loc="outside lower center", ncols=5, fontsize=9)
