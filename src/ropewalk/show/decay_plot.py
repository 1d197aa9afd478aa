"""The distance bound as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import InputError
from ..verify.decay import HEAD_DIM, THETA, decay_curve, table_distances
from .picture import SUFFIXES, drawing, save


def plot_distances() -> tuple[int, ...]:
    """Return distances from 1 to one slowest wavelength, evenly spaced on a log axis."""
    spaced = np.geomspace(1, max(table_distances()), 600)
    return tuple(np.unique(np.round(spaced).astype(int)).tolist())


def plot_decay(path: Path) -> None:
    """Write the bound, and below it the score of a pair that does not follow it.

    Args:
        path: the file to write; ``.png`` or ``.svg``.

    Raises:
        InputError: another ending, or a file that cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            "--plot",
            found=repr(str(path)),
            expected="a file name that ends in .png or .svg",
            fix="name it e.g. decay.png",
        )
    with drawing("--plot", svg_fonttype="none") as figure_class:
        curve = decay_curve(plot_distances())
        figure = figure_class(figsize=(8, 6.4), layout="constrained")
        figure.suptitle(
            f"RoPE by distance: a bound, and a score (head_dim {HEAD_DIM}, theta {THETA:g})",
            fontsize=12,
        )
        bound, score = figure.subplots(2, 1, sharex=True)
        bound.plot(curve.distances, curve.bound, color="#1f5fa8")
        bound.set_title(
            "Upper bound on a magnitude, not the score: mean of $|S_j|$ over the planes,\n"
            "$S_j$ = sum of $e^{i \\cdot distance \\cdot \\theta}$ over the $j$ fastest planes",
            fontsize=11,
        )
        bound.set_ylabel("mean $|S_j|$ (no unit)")
        bound.set_ylim(bottom=0)
        score.plot(curve.distances, curve.pair_score, color="#b5431e")
        score.set_title(
            "Score of q = k = one lane of the slowest plane: it turns, it does not decay",
            fontsize=11,
        )
        score.set_ylabel("score, |q| = |k| = 1 (no unit)")
        score.set_ylim(-1.1, 1.5)
        score.set_xlabel(
            f"distance between query and key (tokens, log scale; {len(curve.distances)} sampled)"
        )
        score.set_xscale("log", base=4)
        ticks = [4**power for power in range(8)]
        score.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        wavelength = curve.distances[-1]
        score.plot([wavelength], curve.pair_score[-1:], "o", color="#b5431e")
        score.annotate(
            f"one wavelength, {wavelength:,} tokens: back at 1",
            xy=(wavelength, 1),
            xytext=(0, 8),
            textcoords="offset points",
            ha="right",
        )
        for axes in (bound, score):
            axes.grid(visible=True, alpha=0.3)
            axes.set_xlim(1, 4**8)
        try:
            save(figure, path, dpi=150)
        except OSError as error:
            raise InputError(
                f"--plot {path}",
                found=error.strerror or str(error),
                expected="a file that can be written",
                fix="name a file in an existing, writable folder",
            ) from error
