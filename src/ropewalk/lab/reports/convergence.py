"""Study 1: steps to equal loss, and the loss at the end."""

from __future__ import annotations

import itertools
from typing import Any

from ...show.styles import keywords
from ..intervals import mean_of, paired, ratio
from ..results import Found
from .page import Page, Plot, table, training_curves


def page(found: Found) -> Page:
    """Compare every model with the study's reference."""
    reference = found.study.settings["reference"]
    return Page(
        plots=[
            Plot(
                "convergence",
                "Held-out loss by training step, mean of the seeds; right: how many times the "
                f"steps of {reference} each needs to a given loss.",
                (11.0, 4.6),
                lambda figure: _draw(figure, found),
            )
        ],
        answers=_answers(found, reference),
        sections={
            "Loss at the end of training": _end_table(found, reference),
            f"Steps to equal loss, relative to {reference}": _steps_table(found, reference),
            "Cost": _cost_table(found, reference),
        },
        protocol=[
            (
                "Held-out loss: 32 windows of the trained length from modules that no training "
                "saw, checked every 50 steps; steps to a loss are interpolated between checks. A "
                "loss that a model reaches only because its rate falls at the end counts like any "
                "other: all have the same schedule."
            ),
        ],
    )


def steps_to(curve: tuple[list[int], list[float]], loss: float) -> float | None:
    """Return the step at which a curve first is at ``loss`` or below, interpolated."""
    points = list(zip(*curve, strict=True))
    if points and points[0][1] <= loss:
        return float(points[0][0])
    for (step, before), (later, after) in itertools.pairwise(points):
        if after <= loss < before:
            return step + (later - step) * (before - loss) / (before - after)
    return None


def _steps(found: Found, model: str, loss: float) -> list[float] | None:
    values = [steps_to(found.curve(model, seed), loss) for seed in found.study.seeds]
    return None if any(v is None for v in values) else [v for v in values if v is not None]


def _answers(found: Found, reference: str) -> list[str]:
    rivals = [name for name in found.study.models if name != reference]
    ours = found.ends(reference)
    out = []
    worse: list[str] = []
    alike: list[str] = []
    better: list[str] = []
    for name in rivals:
        difference = paired(found.ends(name), ours)
        group = worse if difference.low > 0 else better if difference.high < 0 else alike
        group.append(f"{name} ({difference.text(3, sign=True)})")
    if worse:
        out.append(
            f"After the same training {reference} has the lower loss than {', '.join(worse)}, in "
            "bits per byte, seed by seed."
        )
    if better:
        out.append(f"Lower than {reference}: {', '.join(better)}.")
    if alike:
        out.append(f"Not told apart from {reference} by these seeds: {', '.join(alike)}.")
    for name in rivals:
        parts = []
        for loss in found.study.settings["thresholds"]:
            theirs, own = _steps(found, name, loss), _steps(found, reference, loss)
            if theirs is None or own is None:
                continue
            r = ratio(theirs, own)
            if r is not None:
                parts.append(f"{r[0]:.2f} [{r[1]:.2f}, {r[2]:.2f}] to {loss}")
        if parts:
            out.append(f"Steps that {name} needs per step of {reference}: {'; '.join(parts)}.")
    return out


def _end_table(found: Found, reference: str) -> list[str]:
    ours = found.ends(reference)
    rows = []
    for name in sorted(found.study.models, key=lambda n: mean_of(found.ends(n)).value):
        ends = found.ends(name)
        own = "" if name == reference else paired(ends, ours).text(3, sign=True)
        each = ", ".join(f"{v:.3f}" for v in ends)
        perplexity = f"{2 ** mean_of(ends).value:.3f}"
        rows.append([name, mean_of(ends).text(3), each, perplexity, own])
    heads = ["model", "bits per byte", "each seed", "perplexity per byte", f"minus {reference}"]
    return table(heads, rows)


def _steps_table(found: Found, reference: str) -> list[str]:
    thresholds = found.study.settings["thresholds"]
    rows = []
    for name in found.study.models:
        row = [name]
        for loss in thresholds:
            theirs, own = _steps(found, name, loss), _steps(found, reference, loss)
            if theirs is None or own is None:
                row.append("not reached")
            elif name == reference:
                row.append(f"{mean_of(own).value:,.0f} steps")
            else:
                r = ratio(theirs, own)
                row.append("" if r is None else f"{r[0]:.2f} [{r[1]:.2f}, {r[2]:.2f}]")
        rows.append(row)
    return table(["model", *(f"to {loss} bits" for loss in thresholds)], rows)


def _cost_table(found: Found, reference: str) -> list[str]:
    """Return parameters and time per step; medians over the logged stretches."""

    def seconds(name: str) -> float:
        logs = [found.trainings[name, seed]["log"] for seed in found.study.seeds]
        values = sorted(e["seconds_per_step"] for log in logs for e in log)
        return float(values[len(values) // 2])

    own = seconds(reference)
    rows = []
    for name in found.study.models:
        first = found.trainings[name, found.study.seeds[0]]
        rows.append(
            [
                name,
                f"{first['parameters']:,}",
                f"{first['position_parameters']:,}",
                f"{seconds(name) / own:.2f}",
            ]
        )
    heads = ["model", "parameters", "of them for positions", f"time per step / {reference}"]
    return [
        *table(heads, rows),
        "",
        "Times are medians on a machine that did other work meanwhile: read them as rough.",
    ]


def _draw(figure: Any, found: Found) -> None:
    left, right = figure.subplots(1, 2)
    reference = found.study.settings["reference"]
    training_curves(left, found)
    left.set_title("loss by step; band: all seeds", fontsize=10)
    thresholds = found.study.settings["thresholds"]
    rivals = [name for name in found.study.models if name != reference]
    for index, name in enumerate(rivals):
        for place, loss in enumerate(thresholds):
            theirs, own = _steps(found, name, loss), _steps(found, reference, loss)
            r = None if theirs is None or own is None else ratio(theirs, own)
            if r is None:
                continue
            look = keywords(name)
            x = place + (index - (len(rivals) - 1) / 2) * 0.09
            right.errorbar(
                x, r[0], yerr=[[r[0] - r[1]], [r[2] - r[0]]], fmt=look["marker"] or "o",
                color=look["color"], markersize=5, capsize=2, linewidth=1,
            )  # fmt: skip
    right.axhline(1.0, color="#000000", linewidth=0.8)
    right.set_yscale("log")
    right.set_yticks([0.8, 1, 1.25, 1.5, 2, 3, 4], ["0.8", "1", "1.25", "1.5", "2", "3", "4"])
    right.minorticks_off()
    right.set_xticks(range(len(thresholds)), [f"{t} bits" for t in thresholds])
    right.set_xlabel("loss to be reached, bits per byte")
    right.set_ylabel(f"steps needed / steps of {reference}")
    right.set_title("steps to equal loss; bars: 95 % over seeds", fontsize=10)
    lines, labels = left.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=7, fontsize=9)
