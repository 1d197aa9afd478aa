"""Study 1: steps to equal loss, and the loss at the end, beside what is claimed of them."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...show.styles import keywords
from ..intervals import mean_of, paired, ratio
from ..results import Found
from .page import Page, Plot, table, training_curves

_TICKS = (0.25, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3, 4, 6, 10, 15, 20, 30)


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
    """Return the step at which a curve first is at ``loss`` or below, interpolated.

    Infinity for a loss that it never reaches; None for one that it had reached before the first
    check, at a step that nobody saw.
    """
    points = list(zip(*curve, strict=True))
    if points[0][1] < loss:
        return None
    if points[0][1] == loss:
        return float(points[0][0])
    for (step, before), (later, after) in itertools.pairwise(points):
        if after <= loss < before:
            return step + (later - step) * (before - loss) / (before - after)
    return math.inf


def _every(found: Found, model: str, loss: float) -> list[float | None]:
    return [steps_to(found.curve(model, seed), loss) for seed in found.study.seeds]


def _steps(found: Found, model: str, loss: float) -> list[float] | None:
    """Return the steps of each seed where all of them are known."""
    values = _every(found, model, loss)
    known = [v for v in values if v is not None and v < math.inf]
    return known if len(known) == len(values) else None


def _unknown(found: Found, model: str, loss: float) -> str:
    """Say why there are no steps to a loss."""
    values = _every(found, model, loss)
    if None in values:
        return f"before step {found.curve(model, found.study.seeds[0])[0][0]}"
    reached = sum(v is not None and v < math.inf for v in values)
    return f"reached by {reached} of {len(values)}" if reached else "not reached"


def _ratio(found: Found, model: str, loss: float) -> tuple[float, float, float] | None:
    """Return the steps of a model per step of the reference, with the interval."""
    theirs = _steps(found, model, loss)
    own = _steps(found, found.study.settings["reference"], loss)
    return None if theirs is None or own is None else ratio(theirs, own)


def _told(found: tuple[float, float, float]) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*found)


def _answers(found: Found, reference: str) -> list[str]:
    rivals = [name for name in found.study.models if name != reference]
    ours = found.ends(reference)
    out = []
    groups: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for name in rivals:
        difference = paired(found.ends(name), ours)
        groups[difference.side].append(f"{name} ({difference.text(3, sign=True)})")
    worse, alike, better = groups.values()
    if worse:
        out.append(
            f"After the same training {reference} has the lower loss than {', '.join(worse)}, in "
            "bits per byte, seed by seed."
        )
    if better:
        out.append(f"Lower than {reference}: {', '.join(better)}.")
    if alike:
        out.append(f"Not told apart from {reference} by these seeds: {', '.join(alike)}.")
    if "claim" in found.study.settings and len(found.study.seeds) > 1:
        out += _claim(found, rivals, reference)
    for name in rivals:
        parts = []
        for loss in found.study.settings["thresholds"]:
            r = _ratio(found, name, loss)
            if r is not None:
                parts.append(f"{_told(r)} to {loss}")
        if parts:
            out.append(f"Steps that {name} needs per step of {reference}: {'; '.join(parts)}.")
    training = next(iter(found.study.models.values())).training
    out.append(
        f"All this is of {training.steps * training.batch * training.length:,} bytes of training "
        "and of models of this size. What longer trainings or larger models do was not measured."
    )
    return out


def _claim(found: Found, rivals: list[str], reference: str) -> list[str]:
    """Hold the steps saved and the perplexities against what is claimed."""
    claim = found.study.settings["claim"]
    least, most = claim["fewer_steps"]
    told: dict[str, list[str]] = {}
    for name in rivals:
        ratios = {x: r for x in found.study.settings["thresholds"] if (r := _ratio(found, name, x))}
        if not ratios:
            told.setdefault("no loss compared is reached by all seeds of both", []).append(name)
            continue
        lowest = min(ratios)
        saved, low, high = (1 - 1 / value for value in ratios[lowest])
        verdict = (
            "more than claimed" if low > most
            else "fewer than claimed" if low > 0 and high < least
            else "none saved" if high < 0
            else "as claimed" if low >= least and high <= most
            else "not settled"
        )  # fmt: skip
        numbers = f"{saved:.0%} [{low:.0%}, {high:.0%}] to {lowest} bits"
        told.setdefault(verdict, []).append(f"{name} {numbers}")
    verdicts = "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in told.items())
    ours, theirs = claim["perplexities"]
    ends = found.ends(reference)
    each = ", ".join(f"{name} {2 ** paired(found.ends(name), ends).value:.2f}" for name in rivals)
    return [
        (
            f"Claimed: {least:.0%} to {most:.0%} fewer steps. Steps that {reference} saves to "
            f"equal loss (the lowest compared that both reach), {verdicts}."
        ),
        (
            f"Claimed: a perplexity of {ours} against {theirs}, {theirs / ours:.2f} times, of "
            f"unnamed tokens. Perplexity per byte at the end, times {reference}'s: {each}."
        ),
    ]


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
            steps, r = _steps(found, name, loss), _ratio(found, name, loss)
            if steps is None:
                row.append(_unknown(found, name, loss))
            elif name == reference or r is None:
                row.append(f"{mean_of(steps).value:,.0f} steps")
            else:
                row.append(_told(r))
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
            r = _ratio(found, name, loss)
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
    if "claim" in found.study.settings:
        claimed = [1 / (1 - share) for share in found.study.settings["claim"]["fewer_steps"]]
        right.axhspan(*claimed, color="#dddddd", linewidth=0)
        right.text(0.99, claimed[0], "claimed", ha="right", va="bottom", fontsize=9,
                   transform=right.get_yaxis_transform())  # fmt: skip
    ticks = [tick for tick in _TICKS if right.get_ylim()[0] <= tick <= right.get_ylim()[1]]
    right.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    right.grid(axis="y", color="#eeeeee")
    right.set_axisbelow(True)
    right.minorticks_off()
    right.set_xticks(range(len(thresholds)), [f"{t} bits" for t in thresholds])
    right.set_xlabel("loss to be reached, bits per byte")
    right.set_ylabel(f"steps needed / steps of {reference}")
    right.set_title("steps to equal loss; bars: 95 % over seeds", fontsize=10)
    lines, labels = left.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=7, fontsize=9)
