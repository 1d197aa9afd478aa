"""Study 4: stretching alone, a little training, and training at the length instead."""

from __future__ import annotations

from typing import Any

from ...show.styles import keywords
from ..intervals import mean_of, paired
from ..results import Found
from .page import Page, Plot, rate, sequences, share, table

_STRETCHED, _TRAINED, _CONTROL = "short", "as trained", "control"
_MEASURES = (_STRETCHED, _TRAINED, _CONTROL)
_ZERO_SHOT = ("none", "linear", "ntk", "yarn", "self-extend", "dual-chunk")


def page(found: Found) -> Page:
    """Compare all ways to the target length, at the target and at the trained length."""
    target = _target(found)
    return Page(
        plots=[
            Plot(
                "tuning",
                f"Loss and retrieval at {target:,} bytes by steps of fine-tuning; 0 is stretching "
                "alone. Grey band: the model trained at that length instead of the short one.",
                (11.5, 5.0),
                lambda figure: _draw(figure, found),
            )
        ],
        answers=_answers(found),
        sections={
            f"At {target:,} bytes ({target / found.study.length:g}×)": _table(found, target),
            f"At the trained length, {found.study.length:,} bytes": _table(
                found, found.study.length
            ),
        },
        protocol=[_trainings(found), _scoring(found)],
    )


def _trainings(found: Found) -> str:
    first, long, tuned, skipping = (
        found.study.models[name].training
        for name in (_first(found), "long", "yarn-400", "pose-400")
    )
    return (
        f"Fine-tuning goes on from {_first(found)} on {sequences(tuned)} a step, where the "
        f"training before had {sequences(first)}: {rate(tuned)}. PoSE has "
        f"{sequences(skipping)}, whose positions skip within {skipping.skips:,}. The controls "
        f"train as many steps more on {sequences(first)} and are cropped. `long` starts where "
        f"{_first(found)} started and trains as many steps ({long.steps:,}), on "
        f"{sequences(long)}, at the same rate."
    )


def _scoring(found: Found) -> str:
    return (
        f"The same last {found.study.measures[0].scored} bytes of "
        f"{len(_parts(found)[0].documents)} documents are scored. Retrieval: a line `#ABWXYZ` at "
        "all depths, the name again at the end; all four of WXYZ must be first choices; trials of "
        "all seeds together, 95 % Wilson intervals."
    )


def _models(found: Found) -> list[str]:
    shown = {name for measure in _MEASURES for name in found.measured(measure)}
    return [name for name in found.study.models if name in shown]


def _first(found: Found) -> str:
    """The model that all others but the long one are made from."""
    return found.measured(_STRETCHED)[0]


def _parts(found: Found) -> list[Any]:
    return next(iter(found.measurements.values()))


def _target(found: Found) -> int:
    return round(max(found.study.measures[0].multiples) * found.study.length)


def _measured(found: Found, model: str) -> str:
    return next(measure for measure in _MEASURES if model in found.measured(measure))


def _rows(found: Found) -> list[tuple[str, str, str]]:
    """Return label, model and method of every way that is compared."""
    first = _first(found)
    out = [("cropped", first, "crop")]
    out += [(f"{name}, no training", first, name) for name in _ZERO_SHOT]
    for name in _models(found):
        if name == first:
            continue
        cropped = name.startswith("control")
        label = f"{name}, cropped" if cropped else name
        out.append((label, name, "crop" if cropped else "none"))
    return out


def _bits(found: Found, model: str, method: str, length: int) -> list[float]:
    bits = found.bits(_measured(found, model), model, method, length)
    assert bits is not None
    return bits


def _hits(found: Found, model: str, method: str, length: int) -> tuple[int, int]:
    return found.hits(_measured(found, model), model, method, length)


def _table(found: Found, length: int) -> list[str]:
    long = _bits(found, "long", "none", length)
    control = _bits(found, "control-400", "crop", length)
    rows = []
    for label, model, method in _rows(found):
        bits = _bits(found, model, method, length)
        rows.append(
            [
                label,
                mean_of(bits).text(3),
                "" if model == "long" else paired(bits, long).text(3, sign=True),
                paired(bits, control).text(3, sign=True),
                share(*_hits(found, model, method, length)),
            ]
        )
    heads = ["way", "bits per byte", "minus long", "minus control-400, cropped", "lines found"]
    return table(heads, rows)


def _answers(found: Found) -> list[str]:
    target = _target(found)
    long = _bits(found, "long", "none", target)
    first = _first(found)
    out = []

    def told(label: str, model: str, method: str) -> str:
        gap = paired(_bits(found, model, method, target), long)
        hits, trials = _hits(found, model, method, target)
        return f"{label} {gap.text(3, sign=True)} bits ({hits} of {trials} lines)"

    hits, trials = _hits(found, "long", "none", target)
    out.append(
        f"The model trained at {target:,}: {mean_of(long).text(3)} bits per byte, "
        f"{hits} of {trials} lines found. Above it, without training: "
        + "; ".join(told(name, first, name) for name in _ZERO_SHOT)
        + "."
    )
    tuned = [n for n in _models(found) if n not in (first, "long") and "control" not in n]
    out.append("After fine-tuning: " + "; ".join(told(n, n, "none") for n in tuned) + ".")
    out.append(
        "The control, trained as many steps more at the short length and cropped, over `long`: "
        + told("", "control-400", "crop").strip()
        + "."
    )
    return out


def _draw(figure: Any, found: Found) -> None:
    target = _target(found)
    first = _first(found)
    left, right = figure.subplots(1, 2)
    long = mean_of(_bits(found, "long", "none", target))
    left.axhspan(long.low, long.high, color="#dddddd", zorder=0)
    left.axhline(long.value, color="#888888", linewidth=1, label=f"trained at {target:,}")
    hits, trials = _hits(found, "long", "none", target)
    right.axhline(100 * hits / max(1, trials), color="#888888", linewidth=1)
    series: dict[str, list[tuple[int, str, str]]] = {}
    for name in ("none", "linear", "ntk", "yarn"):
        series[name] = [(0, first, name)]
    series["crop"] = [(0, first, "crop")]
    series["pose"] = [(0, first, "yarn")]
    for name in _models(found):
        kind, _, steps = name.rpartition("-")
        if steps.isdigit() and kind in (*series, "control"):
            cropped = kind == "control"
            series["crop" if cropped else kind].append(
                (int(steps), name, "crop" if cropped else "none")
            )
    labels = {"none": "direct", "crop": "control, cropped", "pose": "YaRN with PoSE"}
    top, bottom = 0.0, long.low
    for kind, points in series.items():
        points.sort()
        x = [steps for steps, *_ in points]
        means = [mean_of(_bits(found, model, method, target)) for _, model, method in points]
        look = keywords(kind)
        left.errorbar(
            x, [m.value for m in means], yerr=[m.half or 0 for m in means], capsize=2,
            label=labels.get(kind, kind), linewidth=1.2, markersize=5, **look,
        )  # fmt: skip
        shares = [_hits(found, model, method, target) for _, model, method in points]
        y = [100 * hits / max(1, trials) for hits, trials in shares]
        right.plot(x, y, linewidth=1.2, markersize=5, **look)
        top = max(top, *(m.value for m in means))
        bottom = min(bottom, *(m.low for m in means))
    cap = 1.6 * long.value
    left.set_ylim(bottom - 0.05, min(top + 0.1, cap))
    cut = f"; cut off at {cap:.2f}" if top + 0.1 > cap else ""
    left.set_ylabel("bits per byte (lower is better)")
    left.set_title(f"loss at {target:,} bytes; bars: 95 % over seeds{cut}", fontsize=10)
    right.set_title("key-value retrieval, all depths", fontsize=10)
    right.set_ylabel("lines found, % of trials")
    right.set_ylim(-3, 103)
    for axis in (left, right):
        axis.set_xlabel("steps of fine-tuning (0: none)")
        axis.grid(axis="y", color="#eeeeee")
    lines, names = left.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=4, fontsize=9)
