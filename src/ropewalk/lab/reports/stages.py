"""Study 3: every way of stretching a trained rope without training, loss and retrieval."""

from __future__ import annotations

import math
from typing import Any

from ...show.styles import keywords
from ..intervals import mean_of, paired
from ..results import Found
from .page import Page, Plot, lengths_axis, share, table

_MEASURE, _TUNED, _TESTED = "stages", "slopes-held-out", "slopes-test"
_RETRIEVAL = "retrieval"
"""How the names of the measurements begin whose trials count."""
_VERDICTS = {
    -1: "better than cropping",
    0: "not told apart from cropping",
    1: "worse than cropping",
}
"""By the side of 0 on which the difference lies."""
_NAMED = 3
_NEAR = 1.25
"""How far the close-up goes, times the lowest loss: cropping and what is about as good."""


def page(found: Found) -> Page:
    """Compare the methods at every length with cropping and with each other."""
    lengths = _lengths(found)
    sections = {
        "Bits per byte on the same last tokens": _bits_table(found, lengths),
        "Above cropping": _above_table(found, lengths),
        "Retrieval": _retrieval_table(found, lengths),
        "Time": _time_table(found, lengths),
    }
    if any(m.name == _TUNED for m in found.study.measures):
        sections["YaRN's temperature, fitted"] = _slopes(found)
    return Page(
        plots=[
            Plot(
                "stages",
                "Loss on the same last bytes, close up in the middle, and key-value retrieval, by "
                "context length: one trained model per seed, stretched without training.",
                (16.0, 5.6),
                lambda figure: _draw(figure, found),
            )
        ],
        answers=_answers(found, lengths),
        sections=sections,
        protocol=[
            (
                f"{len(_any(found).documents)} documents of {lengths[-1]:,} bytes of the standard "
                f"library's test suite; the last {_any(found).scored} bytes are scored. Retrieval: "
                "a line `#ABWXYZ` at all depths, the name again at the end; right when all of WXYZ "
                "are first choices; trials of all seeds together, 95 % Wilson intervals. "
                "Each method is set to factor = length / trained length. ReRoPE's window is half "
                "the trained length; Self-Extend keeps a quarter exact and takes the smallest "
                "group that stays within it; dual chunk attention has chunks of three quarters "
                "and a local window of a quarter."
            ),
        ],
    )


def _any(found: Found) -> Any:
    return next(m for (name, *_), ms in found.measurements.items() if name == _MEASURE for m in ms)


def _model(found: Found) -> str:
    return found.measured(_MEASURE)[0]


def _lengths(found: Found) -> list[int]:
    return list(_any(found).lengths)


def _methods(found: Found) -> list[str]:
    return list(_any(found).methods())


def _bits(found: Found, method: str, length: int) -> list[float]:
    bits = found.bits(_MEASURE, _model(found), method, length)
    assert bits is not None
    return bits


def _hits(found: Found, method: str, length: int) -> tuple[int, int]:
    hits = trials = 0
    for measure in found.study.measures:
        if measure.name.startswith(_RETRIEVAL):
            more = found.hits(measure.name, _model(found), method, length)
            hits, trials = hits + more[0], trials + more[1]
    return hits, trials


def _heads(found: Found, lengths: list[int]) -> list[str]:
    return [f"{n / found.study.length:g}× ({n:,})" for n in lengths]


def _bits_table(found: Found, lengths: list[int]) -> list[str]:
    rows = [
        [name, *(mean_of(_bits(found, name, n)).text(3) for n in lengths)]
        for name in _methods(found)
    ]
    return table(["method", *_heads(found, lengths)], rows)


def _above_table(found: Found, lengths: list[int]) -> list[str]:
    rows = []
    for name in _methods(found):
        if name == "crop":
            continue
        row = [name]
        for length in lengths[1:]:
            d = paired(_bits(found, name, length), _bits(found, "crop", length))
            row.append(d.text(3, sign=True))
        rows.append(row)
    return [
        "Bits per byte, paired by seed; below zero beats the last trained length of context.",
        "",
        *table(["method", *_heads(found, lengths[1:])], rows),
    ]


def _retrieval_table(found: Found, lengths: list[int]) -> list[str]:
    rows = [
        [name, *(share(*_hits(found, name, length)) for length in lengths)]
        for name in _methods(found)
    ]
    return table(["method", *_heads(found, lengths)], rows)


def _time_table(found: Found, lengths: list[int]) -> list[str]:
    """Return seconds per pass over all seeds, relative to the unchanged model."""
    totals = dict.fromkeys(_methods(found), 0.0)
    lines = []
    for (kind, *_), parts in found.measurements.items():
        for m in parts if kind == _MEASURE else ():
            for name, seconds in m.environment.get("seconds_by_method", {}).items():
                totals[name] += seconds.get(str(lengths[-1]), 0.0)
    own = totals.get("none") or 0.0
    if not own:
        return ["Times were not kept in this run."]
    for name, seconds in totals.items():
        lines.append([name, f"{seconds / own:.2f}"])
    return [
        (
            f"Seconds of the loss passes at {lengths[-1]:,} tokens, relative to the unchanged "
            "model. Rescalings cost nothing; what remaps distances forms its scores outside of "
            "PyTorch's fused attention."
        ),
        "",
        *table(["method", "time / none"], lines),
    ]


def _answers(found: Found, lengths: list[int]) -> list[str]:
    out = [_holding(found, lengths)]
    methods = [m for m in _methods(found) if m not in ("crop", "none")]
    for length in lengths[1:]:
        best = min(methods, key=lambda m: mean_of(_bits(found, m, length)).value)
        d = paired(_bits(found, best, length), _bits(found, "crop", length))
        verdict = _VERDICTS[d.side]
        cropped, of = _hits(found, "crop", length)
        retrieved = (
            f"; {_finders(found, methods, length)} (cropping {cropped} of {of})" if of else ""
        )
        out.append(
            f"{length / found.study.length:g}×: the lowest loss is {best}'s, "
            f"{mean_of(_bits(found, best, length)).text(3)} bits per byte, {verdict} "
            f"({d.text(3, sign=True)}){retrieved}."
        )
    return out


def _finders(found: Found, methods: list[str], length: int) -> str:
    """Say which methods find most lines."""
    hits = {m: _hits(found, m, length) for m in methods}
    most, trials = max(hits.values())
    names = [m for m, (got, _) in hits.items() if got == most]
    if len(names) > _NAMED:
        return f"{len(names)} methods find most lines, {most} of {trials}"
    return f"most lines are found by {', '.join(names)}, {most} of {trials}"


def _holding(found: Found, lengths: list[int]) -> str:
    """Say up to which length each method is never told to be worse than cropping."""
    groups: dict[int, list[str]] = {}
    for name in _methods(found):
        if name == "crop":
            continue
        farthest = lengths[0]
        for length in lengths[1:]:
            if paired(_bits(found, name, length), _bits(found, "crop", length)).side > 0:
                break
            farthest = length
        groups.setdefault(farthest, []).append(name)
    told = []
    for length, names in sorted(groups.items(), reverse=True):
        upto = f"up to {length / found.study.length:g}×" if length > lengths[0] else "worse at once"
        told.append(f"{upto}: {', '.join(names)}")
    return (
        "Loss not told to be worse than cropping's by these seeds (which is not to say as good), "
        + "; ".join(told)
        + "."
    )


def _slopes(found: Found) -> list[str]:
    """Fit the slope of the amplitude on one split and report it on another."""
    model = _model(found)
    plans = {m.name: m for m in found.study.measures}
    names = [m for m in plans[_TUNED].methods if m.startswith("yarn")]
    slopes = [float(name.partition("@")[2]) for name in names]
    rows, lines = [], []
    for multiple in plans[_TUNED].multiples:
        length = round(multiple * found.study.length)
        tuned, tested = (
            [bits for name in names if (bits := found.bits(measure, model, name, length))]
            for measure in (_TUNED, _TESTED)
        )
        if min(len(tuned), len(tested)) < len(names):
            continue
        means = [mean_of(bits).value for bits in tuned]
        best = min(range(len(means)), key=means.__getitem__)
        usual = slopes.index(0.1)
        rows.append(
            [
                f"{multiple:g}×",
                *(f"{v:.3f}" for v in means),
                f"{slopes[best]:g}",
                paired(tested[best], tested[usual]).text(4, sign=True),
            ]
        )
    if not rows:
        return [f"Not measured of {model}."]
    lines.append(
        "The amplitude on cos and sin is 1 + slope · ln(factor); the paper's slope is 0.1. Bits "
        "per byte on held-out modules by slope; the best of them, and what it gains over 0.1 on "
        "the test files (another split)."
    )
    heads = ["length", *(f"slope {s:g}" for s in slopes), "best", "gain over 0.1 on test files"]
    return [*lines, "", *table(heads, rows)]


def _draw(figure: Any, found: Found) -> None:
    lengths = _lengths(found)
    left, near, right = figure.subplots(1, 3)
    floor = min(mean_of(_bits(found, m, n)).value for m in _methods(found) for n in lengths)
    cap = 2.2 * floor
    x = [n / found.study.length for n in lengths]
    for name in _methods(found):
        means = [mean_of(_bits(found, name, n)).value for n in lengths]
        y = [min(mean, cap) for mean in means]
        left.plot(x, y, label=name, markersize=4.5, linewidth=1.2, **keywords(name))
        near.plot(x, means, markersize=4.5, linewidth=1.2, **keywords(name))
        shares = [
            (multiple, *_hits(found, name, n)) for multiple, n in zip(x, lengths, strict=True)
        ]
        there = [(multiple, 100 * hits / trials) for multiple, hits, trials in shares if trials]
        if there:
            right.plot(*zip(*there, strict=True), markersize=4.5, linewidth=1.2, **keywords(name))
    for axis in (left, near, right):
        lengths_axis(axis, x, "context given, multiples of the trained length")
    left.set_ylim(0.97 * floor, math.nextafter(cap, math.inf))
    left.set_ylabel(f"bits per byte (lower is better); cut off at {cap:.2f}")
    left.set_title("loss on the same last bytes", fontsize=10)
    near.set_ylim(0.985 * floor, _NEAR * floor)
    near.set_ylabel("bits per byte")
    near.set_title(f"the same up to {_NEAR - 1:.0%} above the lowest", fontsize=10)
    right.set_ylim(-3, 103)
    right.set_ylabel("lines found, % of trials")
    right.set_title("key-value retrieval, all depths", fontsize=10)
    lines, labels = left.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=9, fontsize=9)
