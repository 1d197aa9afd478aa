"""What every study's page has: the plot first, the answer, the tables, the protocol last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...extend.statistics import wilson
from ...show.picture import drawing, save
from ...show.styles import keywords
from ..data import Data
from ..results import Found
from ..training import Training

Draw = Callable[[Any], None]
"""Fills a matplotlib figure."""


@dataclass(frozen=True)
class Plot:
    """One picture.

    Attributes:
        name: of its files, without suffix.
        caption: what it shows, in one sentence.
        size: inches.
        draw: fills the figure.
    """

    name: str
    caption: str
    size: tuple[float, float]
    draw: Draw


@dataclass(frozen=True)
class Page:
    """A study's page.

    Attributes:
        plots: the first one stands at the top.
        answers: what was found, in whole sentences, the most important first.
        sections: heading to lines of Markdown.
        protocol: sentences beside those that every study shares.
    """

    plots: Sequence[Plot]
    answers: Sequence[str]
    sections: dict[str, list[str]]
    protocol: Sequence[str] = field(default=())


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table; all columns but the first are right-aligned."""
    out = ["| " + " | ".join(heads) + " |"]
    out.append("| --- |" + " ---: |" * (len(heads) - 1))
    out += ["| " + " | ".join(row) + " |" for row in rows]
    return out


def share(hits: int, trials: int) -> str:
    """Return a share with its Wilson interval in brackets, in percent; "" without trials."""
    if not trials:
        return ""
    i = wilson(hits, trials)
    return f"{hits / trials:.0%} [{100 * i.low:.0f}, {100 * i.high:.0f}]"


def lengths_axis(axis: Any, multiples: Sequence[float], label: str) -> None:
    """Let an axis show lengths as multiples of the trained one, each doubling a step."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(multiples, [f"{v:g}×" for v in multiples])
    axis.minorticks_off()
    axis.grid(axis="y", color="#eeeeee")
    axis.set_xlabel(label)


def training_curves(axis: Any, found: Found) -> None:
    """Draw the held-out loss of every model by step: the mean of the seeds, and all of them."""
    for name in found.study.models:
        curves = [found.curve(name, seed) for seed in found.study.seeds]
        steps = curves[0][0]
        values = list(zip(*(losses for _, losses in curves), strict=True))
        means = [sum(v) / len(v) for v in values]
        low, high = [min(v) for v in values], [max(v) for v in values]
        look = keywords(name)
        axis.plot(steps, means, label=name, markevery=4, markersize=4, linewidth=1.3, **look)
        axis.fill_between(steps, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axis.set_xlabel("training step")
    axis.set_ylabel("held-out loss, bits per byte (lower is better)")


def rate(training: Training) -> str:
    """Say how the rate goes."""
    rises = f"rate {training.peak_rate} after {training.warmup} steps"
    if training.end_share == 1:
        return f"{rises}, constant then"
    return f"{rises}, then a cosine to {training.end_share:.0%} of it"


def protocol(found: Found, more: Sequence[str]) -> list[str]:
    """Return what was done, from the values that it was done with."""
    study = found.study
    shape = study.shape
    training = next(iter(study.models.values())).training
    e = next(iter(found.trainings.values()))["environment"]
    precisions = sorted({r["precision"].split(".")[-1] for r in found.trainings.values()})
    processors = sorted({r["environment"]["processor"] for r in found.trainings.values()})
    sizes = sorted({r["parameters"] for r in found.trainings.values()})
    between = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    mix = practice(next(iter(study.models.values())).data)
    lines = [
        (
            f"Byte-level decoders, {shape.layers} layers, width {shape.width}, {shape.heads} heads "
            f"of {shape.head_dim}, gated feed-forward part of {shape.hidden}: {between} parameters."
        ),
        (
            f"Trained {training.steps:,} steps of {training.batch} sequences of "
            f"{training.length} bytes ({training.steps * training.batch * training.length:,} "
            f"bytes) of the standard library's sources, files of the split `train`"
            + (f"; {mix}" if mix else "")
            + f". AdamW (0.9, 0.95), weight decay {training.weight_decay}, gradients clipped at 1, "
            f"{rate(training)}; one rate for all models. "
            f"Matrix products in {' and '.join(precisions)}."
        ),
        (
            f"Seeds {', '.join(map(str, study.seeds))}: with one seed all models see the same "
            "batches in the same order and start from the same weights, as far as they share them."
        ),
        *_further(found),
        *more,
        (
            "Intervals over seeds are 95 % by Student's t; differences and ratios are taken "
            "seed by seed. With three seeds they are wide: what lies within them is not claimed."
        ),
        (
            f"ropewalk {e['ropewalk']}, Python {e['python']}, torch {e['torch']}, "
            f"{' and '.join(processors)}; {found.seconds() / 3600:.1f} core hours. Data: "
            f"`results.csv`, the exact configuration of each run: `configs.json`. Repeat with "
            f"`ropewalk lab run {study.name}`."
        ),
    ]
    return [f"- {line}" for line in lines]


def sequences(training: Training) -> str:
    """Say what a step sees."""
    return f"{training.batch} x {training.length:,} bytes"


def practice(data: Data) -> str:
    """Say what is in the sequences beside text."""
    mix = []
    if data.recall_share:
        mix.append(f"{data.recall_share:.0%} of the sequences have key-value lines in the text")
    if data.copy_share:
        mix.append(f"{data.copy_share:.1%} repeat random lines")
    return ", ".join(mix)


def _further(found: Found) -> list[str]:
    """Say which trainings go on from the end of others, equal ones together."""
    named: dict[str, list[str]] = {}
    for name, plan in found.study.models.items():
        if plan.start is not None:
            training = plan.training
            told = [
                f"{training.steps:,} steps of {sequences(training)}",
                rate(training),
                practice(plan.data),
            ]
            how = f"from {plan.start}: {'; '.join(part for part in told if part)}"
            named.setdefault(how, []).append(name)
    return [f"Trained further, {', '.join(names)} {how}." for how, names in named.items()]


def markdown(found: Found, page: Page, pictures: Sequence[str]) -> str:
    """Return the page's text; ``pictures`` are the paths of the plots beside it."""
    out = [f"# {found.study.title}", ""]
    heads = list(zip(page.plots, pictures, strict=True))
    plot, path = heads[0]
    out += [f"![{plot.caption}]({path})", "", plot.caption, ""]
    out += [f"- {sentence}" for sentence in page.answers]
    for heading, lines in page.sections.items():
        out += ["", f"## {heading}", "", *lines]
    for plot, path in heads[1:]:
        out += ["", f"![{plot.caption}]({path})", "", plot.caption]
    out += ["", "## Protocol", "", *protocol(found, page.protocol)]
    return "\n".join(out) + "\n"


def draw(plot: Plot, path: Path) -> None:
    """Write one picture; the suffix gives the format."""
    with drawing("a study's plots") as figure_class:
        figure = figure_class(figsize=plot.size, layout="constrained")
        plot.draw(figure)
        save(figure, path, dpi=130)
