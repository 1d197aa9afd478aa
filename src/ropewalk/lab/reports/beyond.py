"""Study 2: past the trained length, under three protocols side by side."""

from __future__ import annotations

from typing import Any

from ...show.styles import keywords
from ..intervals import Mean, mean_of, paired
from ..results import Found
from .page import Page, Plot, lengths_axis, table

_MEASURE = "beyond"
_CLOSE = (-0.15, 0.45)
"""Bits per byte shown above and below the loss at the trained length."""
_TITLES = {
    "non-overlapping": "windows side by side",
    "sliding": "windows overlapping by half",
    "fixed": "the same last tokens",
}


def page(found: Found) -> Page:
    """Compare the encodings at every length, and the protocols with each other."""
    lengths = _lengths(found)
    sections = {}
    for protocol in _TITLES:
        sections[f"Bits per byte: {_TITLES[protocol]} (`{protocol}`)"] = _table(
            found, protocol, lengths
        )
    return Page(
        plots=[
            Plot(
                "protocols",
                "The same models on the same documents, measured in three ways: mean loss over "
                "the seeds by length, and below how far it moves from the trained length. The "
                "dashed line crops to the trained length; a learned table ends there.",
                (13.0, 9.0),
                lambda figure: _draw(figure, found, list(found.study.models)),
            )
        ],
        answers=_answers(found, lengths),
        sections=sections,
        protocol=[
            (
                f"{_documents(found)} documents of {lengths[-1]:,} bytes, files of the standard "
                "library's test suite. Windows side by side: every token of the document, with "
                "nothing to a whole window before it. Overlapping: the second half of the "
                "document, each token with at least half a window before it. Fixed targets: the "
                f"same last {_scored(found)} tokens with contexts of each length. `crop`: the "
                "same with the trained length, whatever the length."
            ),
        ],
    )


def _lengths(found: Found) -> list[int]:
    return [round(m * found.study.length) for m in found.study.measures[0].multiples]


def _documents(found: Found) -> int:
    return len(next(iter(found.measurements.values()))[0].documents)


def _scored(found: Found) -> int:
    return found.study.measures[0].scored


def changes(found: Found, model: str, protocol: str, length: int) -> list[float] | None:
    """Return bits per byte at a length minus those at the trained length, of each seed."""
    start = found.bits(_MEASURE, model, "none", found.study.length, protocol)
    end = found.bits(_MEASURE, model, "none", length, protocol)
    if start is None or end is None:
        return None
    return [b - a for a, b in zip(start, end, strict=True)]


def change(found: Found, model: str, protocol: str, length: int) -> Mean | None:
    """Return the mean of `changes` with its interval."""
    each = changes(found, model, protocol, length)
    return None if each is None else mean_of(each)


def _answers(found: Found, lengths: list[int]) -> list[str]:
    at = {m: m * found.study.length for m in (2, 8, 32) if m * found.study.length in lengths}
    out = [_fixed(found, multiple, length) for multiple, length in at.items()]
    out += [_alone(found, multiple, at[multiple]) for multiple in (2, 32) if multiple in at]
    out += [_turned(found, lengths[1:]), _confirmed(found, lengths[-1])]
    return [sentence for sentence in out if sentence]


def _fixed(found: Found, multiple: int, length: int) -> str:
    """Say which models gain from a longer context, on the same last tokens."""
    verdicts: dict[int, list[str]] = {-1: [], 0: [], 1: []}
    for name in found.study.models:
        difference = change(found, name, "fixed", length)
        if difference is not None:
            verdicts[difference.side].append(f"{name} {difference.text(3, sign=True)}")
    words = {
        -1: "gain from the longer context",
        0: "are not told apart from the trained length",
        1: "lose",
    }
    told = "; ".join(f"{words[k]}: {', '.join(v)}" for k, v in verdicts.items() if v)
    return f"Fixed targets at {multiple}× ({length:,}), bits per byte: {told}."


def _alone(found: Found, multiple: int, length: int) -> str:
    """Say what each protocol makes of a length, where the seeds tell them apart; or nothing."""
    out = []
    for name in found.study.models:
        each = [changes(found, name, protocol, length) for protocol in _TITLES]
        known = [values for values in each if values is not None]
        if len(known) == len(each) and paired(known[-1], known[0]).side:
            out.append(f"{name} {', '.join(f'{mean_of(v).value:+.3f}' for v in known)}")
    if not out:
        return ""
    return (
        f"What the protocol alone does: the change at {multiple}× with windows side by side, "
        "overlapping, and on fixed targets, of models for which the seeds tell the first and the "
        f"last apart: {'; '.join(out)}."
    )


def _turned(found: Found, lengths: list[int]) -> str:
    """Say where one protocol shows a gain and another a loss; or nothing."""
    out = []
    for name in found.study.models:
        for length in lengths:
            side = change(found, name, "non-overlapping", length)
            fixed = change(found, name, "fixed", length)
            if side and fixed and side.side < 0 < fixed.side:
                out.append(f"{name} at {length:,} ({side.value:+.3f} against {fixed.value:+.3f})")
    if not out:
        return ""
    return (
        "The protocol turns the conclusion round: windows side by side show a gain where fixed "
        f"targets show a loss, for {', '.join(out)}."
    )


def _confirmed(found: Found, length: int) -> str:
    """Say how much of the gain of windows side by side fixed targets confirm; or nothing."""
    out = []
    for name in found.study.models:
        side = change(found, name, "non-overlapping", length)
        fixed = change(found, name, "fixed", length)
        if side and fixed and side.side < 0:
            told = fixed.text(3, sign=True)
            out.append(
                f"{name} {told if fixed.side < 0 else f'nothing ({told})'} "
                f"of {side.text(3, sign=True)}"
            )
    if not out:
        return ""
    return (
        "Windows side by side gain with their length because fewer tokens stand at the start of "
        f"one. Of that gain at {length:,} fixed targets confirm: {', '.join(out)}."
    )


def _table(found: Found, protocol: str, lengths: list[int]) -> list[str]:
    rows = []
    for name in found.study.models:
        row = [name]
        for length in lengths:
            bits = found.bits(_MEASURE, name, "none", length, protocol)
            row.append("no position" if bits is None else mean_of(bits).text(3))
        rows.append(row)
    heads = [f"{length / found.study.length:g}× ({length:,})" for length in lengths]
    return table(["model", *heads], rows)


def _draw(figure: Any, found: Found, models: list[str]) -> None:
    lengths = _lengths(found)
    multiples = [n / found.study.length for n in lengths]
    levels, moves = figure.subplots(2, len(_TITLES), sharey="row")
    start, lowest = (
        min(
            mean_of(bits).value
            for name in models
            for protocol in _TITLES
            for length in some
            if (bits := found.bits(_MEASURE, name, "none", length, protocol))
        )
        for some in (lengths[:1], lengths)
    )
    cap = start * 2.2
    for level, moved, protocol in zip(levels, moves, _TITLES, strict=True):
        for name in models:
            look: dict[str, Any] = {"markersize": 4.5, "linewidth": 1.2, **keywords(name)}
            points = [
                (length / found.study.length, mean_of(bits).value)
                for length in lengths
                if (bits := found.bits(_MEASURE, name, "none", length, protocol)) is not None
            ]
            x, y = zip(*points, strict=True)
            level.plot(x, [min(v, cap) for v in y], label=name, **look)
            moved.plot(x, [v - y[0] for v in y], **look)
        cropped = found.bits(_MEASURE, models[0], "crop", lengths[-1], protocol)
        if cropped is not None:
            level.axhline(
                mean_of(cropped).value, color="#000000", linestyle="--", linewidth=1,
                label=f"{models[0]}, cropped",
            )  # fmt: skip
        moved.axhline(0.0, color="#000000", linestyle="--", linewidth=1)
        level.set_title(_TITLES[protocol], fontsize=10)
        lengths_axis(level, multiples, "")
        lengths_axis(moved, multiples, "length, multiples of the trained length")
    levels[0].set_ylim(0.97 * lowest, cap)
    levels[0].set_ylabel(f"bits per byte (lower is better); cut off at {cap:.2f}")
    moves[0].set_ylim(*_CLOSE)
    moves[0].set_ylabel(f"the same minus its value at {multiples[0]:g}×")
    lines, labels = levels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=7, fontsize=9)
