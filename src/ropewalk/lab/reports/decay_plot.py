"""The plots of study 6, and the means over near and far distances that its page is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...show.styles import keywords
from ..decay_sums import spans, within

FloatArray = npt.NDArray[np.float64]
Result = dict[str, Any]
_PLANE_COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#000000")


@dataclass(frozen=True)
class Data:
    """What the page is made of.

    Attributes:
        models: name to the results of its seeds, from `ropewalk.lab.decay.measure_decay`; a
            model that was trained elsewhere stands among them with one result.
        elsewhere: names of those.
    """

    models: dict[str, list[Result]]
    elsewhere: tuple[str, ...] = ()

    @property
    def rotary(self) -> dict[str, list[Result]]:
        """The models that turn planes."""
        return {n: parts for n, parts in self.models.items() if parts[0]["rotary"] is not None}


def over(found: Result, values: Any, span: str) -> FloatArray:
    """Return the mean over the pairs of a span of distances, ``near`` or ``far``.

    Args:
        found: a result, for its bins.
        values: by bin along the last axis.
        span: a key of `ropewalk.lab.decay_sums.spans`.
    """
    bins = found["distances"]
    inside = within(bins["first"], bins["last"], spans(found["length"])[span])
    pairs = np.array(bins["pairs"], dtype=np.float64)[inside]
    out: FloatArray = (np.asarray(values)[..., inside] * pairs).sum(-1) / pairs.sum()
    return out


def ratio(found: Result, values: Any) -> float:
    """Return far over near of the mean over layers and heads."""
    return float(over(found, values, "far").mean() / over(found, values, "near").mean())


def falls(found: Result, values: Any) -> FloatArray:
    """Return near minus far, of each layer and head."""
    return over(found, values, "near") - over(found, values, "far")


def fall(found: Result, values: Any) -> float:
    """Return near minus far of the mean over layers and heads."""
    return float(falls(found, values).mean())


def rising(found: Result, values: Any) -> tuple[int, int]:
    """Return how many heads have no less far than near, and how many heads there are."""
    more = over(found, values, "far") >= over(found, values, "near")
    return int(more.sum()), more.size


def changes(found: Result) -> FloatArray:
    """Return what each plane adds far away minus what it adds near, mean over layers and heads."""
    turned = found["rotary"]["turned"]
    out: FloatArray = (over(found, turned, "far") - over(found, turned, "near")).mean(0)
    return out


def chosen_planes(parts: list[Result]) -> list[tuple[str, int]]:
    """Return a fast, a middle and a slow plane, and the one whose share changes most."""
    last = len(parts[0]["rotary"]["wavelengths"]) - 1
    most = int(np.abs(np.mean([changes(part) for part in parts], axis=0)).argmax())
    return [("fast", last // 8), ("middle", last // 2), ("slow", last), ("largest change", most)]


def of_means(found: Result) -> Any:
    """Return the mean score of all pairings, turned to each distance."""
    return found["rotary"]["shuffled"]["of_means"]


def draw_decay(figure: Any, data: Data) -> None:
    """Fill the figure."""
    (weights, scores, bound), (heads, change, planes) = figure.subplots(2, 3)
    _weights(weights, data)
    _scores(scores, data)
    _bound(bound, data)
    _heads(heads, data)
    _change(change, data)
    _planes(planes, data)


def _middles(found: Result) -> FloatArray:
    """Return a distance for each bin but distance 0, which has no place on a log axis."""
    bins = found["distances"]
    out: FloatArray = np.sqrt(np.multiply(bins["first"], bins["last"], dtype=np.float64))[1:]
    return out


def _curve(parts: list[Result], of: Callable[[Result], Any]) -> FloatArray:
    """Return the mean over seeds, layers and heads (or planes' layers) by bin."""
    out: FloatArray = np.mean([np.mean(of(part), axis=(0, 1)) for part in parts], axis=0)[1:]
    return out


def _line(data: Data, name: str, **changes: Any) -> dict[str, Any]:
    look = {**keywords(name), "marker": "", "linewidth": 1.4, "label": name}
    if name in data.elsewhere:
        # The study's own models have the colours.
        look["color"] = "#000000"
    return {**look, **changes}


def _axis(axis: Any, title: str, y: str) -> None:
    axis.set_xscale("log", base=2)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("distance from query to key, tokens")
    axis.set_ylabel(y)
    axis.grid(color="#eeeeee")


def _weights(axis: Any, data: Data) -> None:
    _axis(axis, "attention weight (dotted: shared equally)", "mean weight of one key")
    axis.set_yscale("log")
    for name, parts in data.models.items():
        axis.plot(_middles(parts[0]), _curve(parts, lambda p: p["weight"]), **_line(data, name))
    for parts in {parts[0]["length"]: parts for parts in data.models.values()}.values():
        axis.plot(_middles(parts[0]), parts[0]["uniform"][1:], color="#777777", linestyle=":")
    axis.legend(fontsize=8)


def _scores(axis: Any, data: Data) -> None:
    _axis(axis, "score before the softmax, less its mean far away", "mean score, nats")
    for name, parts in data.models.items():
        curve = _curve(parts, lambda p: p["score"])
        far = np.mean([over(p, p["score"], "far").mean() for p in parts])
        axis.plot(_middles(parts[0]), curve - far, **_line(data, name))
    for name, parts in data.rotary.items():
        curve = _curve(parts, of_means)
        far = np.mean([over(p, of_means(p), "far").mean() for p in parts])
        look = _line(data, name, linestyle="--", label=f"{name}, paired at random")
        axis.plot(_middles(parts[0]), curve - far, **look)
    axis.axhline(0, color="#bbbbbb", linewidth=1, zorder=0)
    axis.legend(fontsize=8)


def _bound(axis: Any, data: Data) -> None:
    _axis(axis, "size of the score, and RoFormer's bound on it", "mean size, nats")
    axis.set_yscale("log")
    for name, parts in data.rotary.items():
        x = _middles(parts[0])
        bound = _curve(parts, lambda p: p["rotary"]["bound"])
        axis.plot(x, bound, **_line(data, name, linestyle="--", label=f"{name}: bound"))
        size = _curve(parts, lambda p: p["score_magnitude"])
        axis.plot(x, size, **_line(data, name, label=f"{name}: |score|"))
    # Room for the legend below all lines.
    axis.set_ylim(bottom=axis.get_ylim()[0] / 20)
    axis.legend(fontsize=8, loc="lower center")


def _heads(axis: Any, data: Data) -> None:
    axis.set_title("each head's mean score, far minus near", fontsize=10)
    for name, parts in data.models.items():
        each = np.sort(np.concatenate([-falls(p, p["score"]).ravel() for p in parts]))
        axis.plot(np.linspace(0, 100, len(each)), each, **_line(data, name))
    axis.axhline(0, color="#bbbbbb", linewidth=1, zorder=0)
    axis.set_yscale("symlog", linthresh=1.0)
    axis.set_xlabel("heads, sorted, %")
    axis.set_ylabel("nats (below 0: lower far away)")
    axis.grid(color="#eeeeee")
    axis.legend(fontsize=8)


def _change(axis: Any, data: Data) -> None:
    axis.set_title("the same, by plane", fontsize=10)
    for name, parts in data.rotary.items():
        values = np.mean([changes(part) for part in parts], axis=0)
        look = {**_line(data, name), "marker": "o", "markersize": 3}
        axis.plot(parts[0]["rotary"]["wavelengths"], values, **look)
        length = parts[0]["length"]
        axis.axvline(length, color=look["color"], linestyle=":", linewidth=1)
    axis.axhline(0, color="#bbbbbb", linewidth=1, zorder=0)
    axis.set_xscale("log")
    axis.set_xlabel("tokens a turn (dotted: length of a pass)")
    axis.set_ylabel("nats")
    axis.grid(color="#eeeeee")
    if data.rotary:
        axis.legend(fontsize=8)


def _planes(axis: Any, data: Data) -> None:
    if not data.rotary:
        axis.set_axis_off()
        return
    name, parts = list(data.rotary.items())[-1]
    _axis(axis, f"planes of {name}\n(dashed: size before the turn)", "adds to score, nats")
    for (word, plane), color in zip(chosen_planes(parts), _PLANE_COLOURS, strict=True):
        turn = parts[0]["rotary"]["wavelengths"][plane]
        for key, line in (("turned", "-"), ("amplitude", "--")):
            values = np.mean([np.mean(p["rotary"][key], axis=0)[plane] for p in parts], axis=0)
            label = f"{word}: {turn:,.0f} tokens a turn" if line == "-" else None
            axis.plot(_middles(parts[0]), values[1:], color=color, linestyle=line, label=label)
    axis.axhline(0, color="#bbbbbb", linewidth=1, zorder=0)
    axis.set_yscale("symlog", linthresh=0.1)
    # Room for the legend above all lines.
    axis.set_ylim(top=axis.get_ylim()[1] * 30)
    axis.legend(fontsize=8, loc="upper left")
