"""Study 5: the base of the frequencies and the distance that retrieval reaches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ...extend.statistics import wilson
from ..intervals import mean_of, paired
from ..results import Found
from .page import Page, Plot, table

_DISTANCE, _LOSS = "distance", "loss"
_COLORS = ("#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#56B4E9")
CLOSE = 2
"""A reach agrees with its prediction within this factor."""
REACHED = 0.5
"""A distance counts as reached while at least this share of the lines is found."""


def page(found: Found) -> Page:
    """Compare the predicted first failure with the measured one."""
    return Page(
        plots=[
            Plot(
                "distance",
                "Lines found by distance, for each base; vertical lines: the distance at which "
                "the bound predicts the first failure.",
                (10.5, 5.4),
                lambda figure: _draw(figure, found),
            )
        ],
        answers=_answers(found),
        sections={"Predicted and measured": _reach_table(found), "By distance": _table(found)},
        protocol=[
            (
                "Retrieval: a line `#ABWXYZ` planted so that its value is the given number of "
                "bytes before the answer, in text of the trained length; all four of WXYZ must be "
                "first choices. Trials of all seeds together, 95 % Wilson intervals. A distance is "
                f"reached while at least {REACHED:.0%} are found; the measured reach is the "
                "farthest distance before the first that is not."
            ),
            (
                "Prediction: the smallest m at which the sum over planes of cos(m theta_i) is "
                "below 0 (Men et al. 2024, arXiv 2405.14591), for heads of 32 lanes, written into "
                "the study file and the notebook before any of the models was trained."
            ),
        ],
    )


def _models(found: Found) -> list[str]:
    return found.measured(_DISTANCE)


def _shares(
    found: Found, model: str, seeds: Sequence[int] | None = None
) -> dict[int, tuple[int, int]]:
    """Return distance to (hits, trials) over all seeds, or some."""
    out: dict[int, tuple[int, int]] = {}
    for seed in found.study.seeds if seeds is None else seeds:
        for m in found.measurements[_DISTANCE, model, seed]:
            for share in m.retrieval[0].by_distance:
                hits, trials = out.get(share.farthest, (0, 0))
                out[share.farthest] = hits + share.hits, trials + share.trials
    return dict(sorted(out.items()))


def reach(shares: dict[int, tuple[int, int]]) -> int | None:
    """Return the farthest distance before the first that is not reached; None if none is."""
    farthest = None
    for distance, (hits, trials) in shares.items():
        if hits < REACHED * trials:
            break
        farthest = distance
    return farthest


def _reach_table(found: Found) -> list[str]:
    first = _models(found)[0]
    rows = []
    for name in _models(found):
        measured = reach(_shares(found, name))
        each = [reach(_shares(found, name, [seed])) for seed in found.study.seeds]
        loss = found.bits(_LOSS, name, "none", found.study.length)
        start = found.bits(_LOSS, first, "none", found.study.length)
        assert loss is not None
        assert start is not None
        rows.append(
            [
                name,
                str(found.study.settings["predicted"][name]),
                "none reached" if measured is None else str(measured),
                ", ".join("none" if value is None else str(value) for value in each),
                mean_of(loss).text(3),
                "" if name == first else paired(loss, start).text(3, sign=True),
            ]
        )
    heads = [
        "model", "predicted failure", "measured reach", "of each seed", "bits per byte",
        f"minus {first}",
    ]  # fmt: skip
    return table(heads, rows)


def _table(found: Found) -> list[str]:
    distances = list(_shares(found, _models(found)[0]))
    rows = []
    for name in _models(found):
        shares = _shares(found, name)
        rows.append([name, *(f"{hits / trials:.0%}" for hits, trials in shares.values())])
    return table(["model", *map(str, distances)], rows)


def _answers(found: Found) -> list[str]:
    predicted = found.study.settings["predicted"]
    out = []
    measured = {name: reach(_shares(found, name)) for name in _models(found)}
    told = ", ".join(
        f"{name} {predicted[name]} against {'none' if m is None else m}"
        for name, m in measured.items()
    )
    out.append(f"Predicted first failure against measured reach, bytes: {told}.")
    farthest = max(_shares(found, _models(found)[0]))
    out.append(_verdict(found, measured, farthest))
    beyond = []
    for name in _models(found):
        shares = _shares(found, name)
        # At the predicted distance itself the sum is below 0: there it should fail.
        far = [d for d in shares if d >= predicted[name]]
        if far:
            hits, trials = (sum(shares[d][i] for d in far) for i in (0, 1))
            near = [d for d in shares if d < predicted[name]]
            h, t = (sum(shares[d][i] for d in near) for i in (0, 1))
            before = f"{h / t:.0%}" if t else "-"
            beyond.append(f"{name} {before} before, {hits / trials:.0%} from there on")
    out.append(
        f"Lines found before and from the predicted distance on (asked for up to {farthest}): "
        + "; ".join(beyond)
        + "."
    )
    ranks = _rank_correlation(
        [float(predicted[n]) for n in measured], [float(m or 0) for m in measured.values()]
    )
    out.append(
        "Rank correlation of predicted and measured distances: "
        + ("undefined, all reaches are equal." if ranks is None else f"{ranks:.2f}.")
    )
    return out


def _verdict(found: Found, measured: dict[str, int | None], farthest: int) -> str:
    """Judge by what was asked for beforehand, of predictions that the distances could show wrong.

    Where the farthest distance asked for is reached, the reach is that or more.
    """
    predicted = found.study.settings["predicted"]
    shown = {n: float(m or 0) for n, m in measured.items() if CLOSE * predicted[n] <= farthest}
    ratios = {name: value / predicted[name] for name, value in shown.items()}
    values = list(shown.values())
    rises = all(a < b for a, b in itertools.pairwise(values))
    close = all(1 / CLOSE <= ratio <= CLOSE for ratio in ratios.values())
    told = ", ".join(
        f"{name} {'at least ' if shown[name] == farthest else ''}{ratio:.1f}"
        for name, ratio in ratios.items()
    )
    return (
        "By the rule set beforehand (the reach rises with the base, and is within a factor of "
        f"{CLOSE} of its prediction) the order {'holds' if rises else 'does not hold'} and the "
        f"numbers {'do' if close else 'do not'}. Reach over prediction: {told}."
    )


def _rank_correlation(a: list[float], b: list[float]) -> float | None:
    """Return Spearman's correlation, ties with their mean rank; None where one list is flat."""

    def ranks(values: list[float]) -> list[float]:
        return [
            sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2
            for value in values
        ]

    x, y = ranks(a), ranks(b)
    middle = (len(a) + 1) / 2
    dx, dy = [v - middle for v in x], [v - middle for v in y]
    spread = (sum(v * v for v in dx) * sum(v * v for v in dy)) ** 0.5
    return None if spread == 0 else sum(p * q for p, q in zip(dx, dy, strict=True)) / spread


def _draw(figure: Any, found: Found) -> None:
    axis = figure.subplots()
    predicted = found.study.settings["predicted"]
    last = 0
    for name, color in zip(_models(found), _COLORS, strict=False):
        shares = _shares(found, name)
        x = list(shares)
        last = max(last, *x)
        y = [100 * h / t for h, t in shares.values()]
        ends = [wilson(h, t) for h, t in shares.values()]
        low = [v - 100 * e.low for v, e in zip(y, ends, strict=True)]
        high = [100 * e.high - v for v, e in zip(y, ends, strict=True)]
        axis.errorbar(
            x, y, yerr=[low, high], color=color, marker="o", markersize=4, linewidth=1.3,
            capsize=2, label=name,
        )  # fmt: skip
        axis.axvline(predicted[name], color=color, linestyle=":", linewidth=1.4)
    axis.set_xscale("log", base=2)
    ticks = [16, 32, 64, 128, 256, 512, 1024]
    axis.set_xticks(ticks, [str(t) for t in ticks])
    axis.minorticks_off()
    axis.set_xlabel("bytes from the planted value to the answer")
    axis.set_ylabel("lines found, % of trials; bars: 95 %")
    axis.set_ylim(-3, 103)
    axis.grid(axis="y", color="#eeeeee")
    figure.legend(loc="outside lower center", ncols=5, fontsize=9)
