"""A measurement as a picture: loss and retrieval by context length."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..extend.protocols import PROTOCOLS
from ..extend.results import Measurement
from .picture import SUFFIXES, drawing, save
from .styles import style


def plot(measurement: Measurement, path: Path) -> None:
    """Draw bits per byte, and retrieval where measured, by context length.

    Raises:
        InputError: a suffix other than .png or .svg.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(
            str(path), found=f"suffix {path.suffix!r}", expected=".png or .svg", fix="rename it"
        )
    m = measurement
    panels = 2 if m.retrieval else 1
    with drawing("plots") as figure_class:
        figure = figure_class(figsize=(6.4 * panels, 4.8), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)
        _loss(axes[0][0], m)
        if m.retrieval:
            _retrieval(axes[0][1], m)
        lines, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower center", ncols=min(5, len(labels)))
        figure.suptitle(
            f"{m.model}\noriginal length {m.original_length:,} tokens, no fine-tuning, "
            f"{m.documents_counted}",
            fontsize=11,
        )
        save(figure, path, dpi=130)


def _axis(axis: Any, m: Measurement) -> None:
    multiples = [length / m.original_length for length in m.lengths]
    axis.set_xscale("log", base=2)
    axis.set_xticks(multiples, [f"{x:.3g}×" for x in multiples])
    axis.minorticks_off()
    axis.set_xlabel("context given, multiples of the original length")
    axis.axvline(1, color="#bbbbbb", linewidth=1, zorder=0)
    axis.grid(axis="y", color="#eeeeee")


def _loss(axis: Any, m: Measurement) -> None:
    _axis(axis, m)
    floor = min(c.bits_per_byte for c in m.cells)
    # Extrapolation can be so bad that the rest would be a flat line: the axis ends at
    # three times the best value, and what lies beyond is marked at the edge with its value.
    cap = 3 * floor
    top = max(c.bits_per_byte for c in m.cells)
    for method in m.methods():
        color, marker, line = style(method)
        cells = [c for c in m.cells if c.method == method]
        x = [c.length / m.original_length for c in cells]
        y = [min(c.bits_per_byte, cap) for c in cells]
        axis.plot(x, y, color=color, marker=marker, linestyle=line, label=method, markersize=6)
        if len(m.documents) >= 5 and method != "crop":
            half = [_half_width(c) for c in cells]
            low = [v - h for v, h in zip(y, half, strict=True)]
            high = [min(v + h, cap) for v, h in zip(y, half, strict=True)]
            axis.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
    if top > cap:
        axis.set_ylim(0.92 * floor, 1.06 * cap)
        axis.axhline(cap, color="#bbbbbb", linestyle=":", linewidth=1)
        axis.annotate(
            f"values above {cap:.2f} are drawn on this line (largest {top:.2f})",
            (1, cap),
            textcoords="offset points",
            xytext=(4, 4),
            fontsize=8,
            color="#555555",
        )
    axis.set_ylabel("bits per byte of the target text (lower is better)")
    axis.set_title(
        "loss on "
        + PROTOCOLS[m.protocol].title.format(scored=m.scored)
        + (", band: 95 % of the paired difference to crop" if len(m.documents) >= 5 else "")
        if m.protocol != "prefix"
        else f"loss on the last {m.scored:,} of the first N tokens",
        fontsize=10,
    )


def _half_width(cell: Any) -> float:
    """Half the paired interval against cropping, in bits per byte."""
    interval = cell.above_crop_interval
    if interval is None or not cell.nats:
        return 0.0
    bits_per_nat = cell.bits_per_byte / (math.log(cell.tail_perplexity))
    return float((interval.high - interval.low) / 2 * bits_per_nat)


def _retrieval(axis: Any, m: Measurement) -> None:
    _axis(axis, m)
    methods = m.methods()
    for place, method in enumerate(methods):
        color, marker, line = style(method)
        cells = [c for c in m.retrieval if c.method == method]
        # Methods that share a value are set side by side, or one would hide the other.
        shift = 2 ** (0.05 * (place - (len(methods) - 1) / 2))
        x = [c.length / m.original_length * shift for c in cells]
        y = [100 * c.overall.hits / c.overall.trials for c in cells]
        low = [v - 100 * c.overall.interval.low for v, c in zip(y, cells, strict=True)]
        high = [100 * c.overall.interval.high - v for v, c in zip(y, cells, strict=True)]
        axis.errorbar(
            x,
            y,
            yerr=[low, high],
            color=color,
            marker=marker,
            linestyle=line,
            elinewidth=0.8,
            markersize=5,
        )
    axis.set_ylim(-4, 104)
    axis.set_ylabel("passkeys found, % of trials (bars: 95 % Wilson)")
    axis.set_title("retrieval, keys at all depths", fontsize=10)
