"""The page of a study that asks no question of its own: curves, losses, retrieval."""

from __future__ import annotations

from typing import Any

from ..intervals import mean_of
from ..results import Found
from .page import Page, Plot, share, table, training_curves


def page(found: Found) -> Page:
    """Show every training's end and every measured cell."""
    names = list(found.study.models)
    ends = {name: found.ends(name) for name in names}
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
    cells = [c for m in _cells(found, measure, models) for c in m.retrieval]
    lengths = sorted({c.length for c in cells})
    rows = []
    for model in models:
        for method in dict.fromkeys(c.method for c in cells):
            told = [share(*found.hits(measure, model, method, n)) for n in lengths]
            if any(told):
                rows.append([model, method, *told])
    return table(["model", "method", *(f"{n:,}" for n in lengths)], rows)


def _draw(figure: Any, found: Found) -> None:
    axis = figure.subplots()
    training_curves(axis, found)
    axis.grid(axis="y", color="#eeeeee")
    figure.legend(loc="outside lower center", ncols=5, fontsize=9)
