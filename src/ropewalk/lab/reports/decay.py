"""Study 6: attention weights, scores and planes by distance, and RoFormer's bound."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..decay_sums import spans
from ..intervals import mean_of
from ..results import Found
from .decay_plot import (
    Data,
    Result,
    changes,
    chosen_planes,
    draw_decay,
    fall,
    falls,
    of_means,
    over,
    ratio,
    rising,
)
from .page import Page, Plot, table

_REAL = Path(__file__).parent.parent / "studies" / "decay-smollm2.json"
"""What ``recipes/decay_smollm2.py`` wrote."""

Measure = Callable[[Result], float]
_SLOW = 4
"""A plane is called slow from so many passes per turn on."""


def data_of(found: Found, real: Path = _REAL) -> Data:
    """Collect the study's results, and those of the model trained elsewhere where it is there."""
    models: dict[str, list[Result]] = {}
    for (_, name, _), result in found.others.items():
        models.setdefault(name, []).append(result)
    if not real.exists():
        return Data(models)
    other = json.loads(real.read_text())
    return Data({**models, other["model"]: [other]}, (other["model"],))


def page(found: Found) -> Page:
    """Say what decays and what does not."""
    return page_of(data_of(found))


def page_of(data: Data) -> Page:
    """Make the page of given results."""
    return Page(
        plots=[
            Plot(
                "decay",
                "Weights, mean scores, and the size of scores under RoFormer's bound, by distance; "
                "below, how heads differ and what planes add. Means over layers, heads and seeds "
                "where nothing else is said.",
                (16.5, 9.2),
                lambda figure: draw_decay(figure, data),
            )
        ],
        answers=_answers(data),
        sections={
            "Weights and scores": _score_table(data),
            "Rotation alone, and the bound": _rotation_table(data),
            "Planes": _plane_table(data),
        },
        protocol=_protocol(data),
    )


def _seeds(parts: list[Result], measure: Measure, *, digits: int = 3, sign: bool = False) -> str:
    return mean_of([measure(part) for part in parts]).text(digits, sign=sign)


def _mean(parts: list[Result], measure: Measure) -> float:
    return mean_of([measure(part) for part in parts]).value


def _rising(parts: list[Result]) -> str:
    counts = [rising(part, part["score"]) for part in parts]
    return f"{sum(n for n, _ in counts)} of {sum(n for _, n in counts)}"


def _largest(parts: list[Result]) -> float:
    return max(float(np.max(p["rotary"]["share_of_bound"]["largest"])) for p in parts)


def _share(found: Result) -> float:
    return float(np.mean(found["rotary"]["share_of_bound"]["mean"]))


def _moved(parts: list[Result], of: Callable[[Result], Any]) -> str:
    """Return how much higher or lower something is far away than near, in words."""
    mean = mean_of([-fall(part, of(part)) for part in parts])
    size = dataclasses.replace(mean, value=abs(mean.value))
    return f"{size.text(2)} nats {'lower' if mean.value < 0 else 'higher'}"


def _which_planes(parts: list[Result]) -> str:
    """Say how much of the change is from planes that turn fast, about once a pass, or slower."""
    turn = np.array(parts[0]["rotary"]["wavelengths"]) / parts[0]["length"]
    values = np.mean([changes(part) for part in parts], axis=0)
    shares = [values[turn < 1], values[(turn >= 1) & (turn < _SLOW)], values[turn >= _SLOW]]
    fast, once, slow = (f"{share.sum():+.2f}" for share in shares)
    return (
        f"Of the mean score's change, {fast} nats are from planes that turn at least once in a "
        f"pass, {once} from those that need 1 to {_SLOW} passes for a turn, {slow} from slower "
        "ones."
    )


def _answers(data: Data) -> list[str]:
    out = []
    for name, parts in data.models.items():
        near, far = spans(parts[0]["length"]).values()
        weight = _mean(parts, lambda p: ratio(p, p["weight"]))
        out.append(
            f"{name}: a key {far[0]} to {far[1]} tokens back gets {weight:.2g} of the weight of "
            f"one {near[0]} to {near[1]} tokens back (shared equally: 1). Far away the mean score "
            f"is {_moved(parts, lambda p: p['score'])}; in {_rising(parts)} heads it is not lower."
        )
    for name, parts in data.rotary.items():
        amplitude = _mean(parts, lambda p: ratio(p, p["rotary"]["amplitude"]))
        bound = _mean(parts, lambda p: ratio(p, p["rotary"]["bound"]))
        size = _mean(parts, lambda p: ratio(p, p["score_magnitude"]))
        out += [
            (
                f"{name}, what the positions alone do: the same queries and keys paired at random "
                f"and only turned have a mean score {_moved(parts, of_means)} far away than near. "
                "It comes from the mean query and the mean key: vectors whose mean is zero have "
                "none at any distance. Before the turn, the products in the planes are "
                f"{amplitude:.2f} times as large far away as near. {_which_planes(parts)}"
            ),
            (
                f"{name}, the bound: scores were {_mean(parts, _share):.3f} of RoFormer's bound on "
                f"average and {_largest(parts):.2f} at most. From near to far the bound goes to "
                f"{bound:.2f} of what it was, the size of the scores to {size:.2f}."
            ),
        ]
    return out


def _score_table(data: Data) -> list[str]:
    rows = [
        [
            name,
            _seeds(parts, lambda p: ratio(p, p["weight"])),
            _seeds(parts, lambda p: -fall(p, p["score"]), sign=True),
            _seeds(parts, lambda p: -float(np.median(falls(p, p["score"]))), sign=True),
            _seeds(parts, lambda p: ratio(p, p["score_magnitude"])),
            _rising(parts),
            _seeds(parts, lambda p: float(np.mean(p["first_token"]))),
        ]
        for name, parts in data.models.items()
    ]
    heads = [
        "model",
        "weight, far / near",
        "mean score, far - near",
        "of the median head",
        "size of score, far / near",
        "heads no lower far away",
        "weight on the first token",
    ]
    return table(heads, rows)


def _rotation_table(data: Data) -> list[str]:
    rows = [
        [
            name,
            _seeds(parts, lambda p: -fall(p, of_means(p)), sign=True),
            _seeds(parts, lambda p: ratio(p, p["rotary"]["shuffled"]["magnitude"])),
            _seeds(parts, lambda p: ratio(p, p["rotary"]["amplitude"])),
            _seeds(parts, lambda p: ratio(p, p["rotary"]["unturned"])),
            _seeds(parts, lambda p: ratio(p, p["rotary"]["bound"])),
            _seeds(parts, _share),
            f"{_largest(parts):.3f}",
        ]
        for name, parts in data.rotary.items()
    ]
    heads = [
        "model",
        "paired at random: mean score, far - near",
        "its size, far / near",
        "planes before the turn, far / near",
        "size of their mean, far / near",
        "bound, far / near",
        "score / bound, mean",
        "largest",
    ]
    return table(heads, rows)


def _plane_table(data: Data) -> list[str]:
    rows = []
    for name, parts in data.rotary.items():
        for word, plane in chosen_planes(parts):
            row = [f"{name}, {word}", f"{parts[0]['rotary']['wavelengths'][plane]:,.0f}"]
            for key, sign in (("turned", True), ("amplitude", False)):
                for span in ("near", "far"):
                    row.append(_seeds(parts, _of_plane(key, plane, span), sign=sign))
            rows.append(row)
    heads = ["plane", "tokens a turn", "adds near", "adds far", "size near", "size far"]
    return [
        *table(heads, rows),
        "",
        (
            "Nats, means over layers and heads. Size: of the product of query and key in the "
            "plane, which turning leaves as it is."
        ),
    ]


def _of_plane(key: str, plane: int, span: str) -> Measure:
    def measure(found: Result) -> float:
        return float(over(found, found["rotary"][key], span).mean(0)[plane])

    return measure


def _protocol(data: Data) -> list[str]:
    first = next(iter(data.models.values()))[0]
    near, far = spans(first["length"]).values()
    out = [
        (
            f"One pass of {first['length']:,} tokens for each of {len(first['documents'])} "
            f"documents ({first['origin']}), in float32."
        ),
        (
            "Pairs are those of the queries in the second half of a pass: every distance up to "
            "half the length is seen by the same queries. With early queries too, which share "
            "their attention among few keys, even uniform attention falls with the distance."
        ),
        (
            "The first token's key is left out of everything by distance and has a column of its "
            "own: heads park weight there, whatever its distance."
        ),
        (
            f"Near is {near[0]} to {near[1]} tokens back, far {far[0]} to {far[1]}: below a "
            "sixteenth of the pass, and its second quarter. A query's score with its own key "
            "belongs to neither."
        ),
        (
            "Scores are scaled products before the softmax, position included. A number added to "
            "all scores of a query changes no weight: only differences between distances count."
        ),
        (
            "Paired at random: queries and keys of the same pass, turned as if each distance lay "
            "between them. The mean is that over all pairings; for the size one was drawn."
        ),
        (
            "The bound is equation 37 of RoFormer, arXiv 2104.09864, for 16 queries of each head "
            "and document and all their keys; the planes in the order of their frequencies."
        ),
    ]
    for name in data.elsewhere:
        other = data.models[name][0]
        out.append(
            f"{name}: {len(other['documents'])} passes of {other['length']:,} tokens "
            f"({other['origin']}), weights widened to float32, `recipes/decay_smollm2.py`."
        )
    return out
