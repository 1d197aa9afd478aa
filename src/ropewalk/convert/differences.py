"""Where two position plans part, value by value: what a conversion lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..models.plan import LayerPositions, ModelPositions, QueryTemperature
from ..rope import Rope

_SHOWN = 4
_COUNTS = ("stated_length", "original_length", "heads", "kv_heads", "value_dim")


def filled_in(meant: ModelPositions, found: ModelPositions) -> list[str]:
    """Return in words what was unknown and would be filled in by the target's reader."""
    return [
        f"{name} is not known: a reader of what was written takes {getattr(found, name)}"
        for name in _COUNTS
        if getattr(meant, name) is None and getattr(found, name) is not None
    ]


def differences(meant: ModelPositions, found: ModelPositions, tolerance: float) -> list[str]:
    """Return in words how ``found`` differs from ``meant``; nothing where they say the same.

    What ``meant`` does not know is no difference, see `filled_in`.

    Args:
        meant: the plan that was written.
        found: the plan that was read back.
        tolerance: relative difference of numbers that counts as none: what the format's own
            number type loses, 0 for none.

    Frequencies and attention factors are compared at every length that a scaling depends on,
    so that two formulas with one result are no difference.
    """
    out = []
    for name in _COUNTS:
        a, b = getattr(meant, name), getattr(found, name)
        if a is not None and a != b:
            out.append(f"{name} {a} would be {b}")
    if len(meant.layers) != len(found.layers):
        out.append(f"{len(meant.layers)} layers would be {len(found.layers)}")
        return out
    parted: dict[str, list[int]] = {}
    for a_layer, b_layer in zip(meant.layers, found.layers, strict=True):
        for text in _layer(a_layer, b_layer, _lengths(meant), tolerance):
            parted.setdefault(text, []).append(a_layer.index)
    count = len(meant.layers)
    for text, indices in parted.items():
        if text in out:  # the same, of the model as a whole
            continue
        where = "" if len(indices) == count else f" (layers {_shown(indices)})"
        out.append(text + where)
    return out


def _shown(indices: list[int]) -> str:
    text = ", ".join(map(str, indices[:_SHOWN]))
    return text if len(indices) <= _SHOWN else f"{text}, … {indices[-1]}"


def _lengths(plan: ModelPositions) -> list[int | None]:
    known = [n for n in (plan.original_length, plan.stated_length) if n is not None]
    return [None, *known, *(2 * n for n in known)]


def _layer(
    a: LayerPositions, b: LayerPositions, lengths: list[int | None], tolerance: float
) -> Iterator[str]:
    for name in ("kind", "window", "axes"):
        if getattr(a, name) != getattr(b, name):
            yield f"{name} {getattr(a, name)!r} would be {getattr(b, name)!r}"
    if not _close(a.softmax_multiplier, b.softmax_multiplier, tolerance):
        yield f"softmax multiplier {a.softmax_multiplier:.6g} would be {b.softmax_multiplier:.6g}"
    one, other = a.query_temperature, b.query_temperature
    if one != other and not (
        isinstance(one, QueryTemperature)
        and isinstance(other, QueryTemperature)
        and (one.original_length, one.offset) == (other.original_length, other.offset)
        and _close(one.beta, other.beta, tolerance)
    ):
        yield f"query temperature {one} would be {other}"
    if a.rope is None or b.rope is None:
        if a.rope is not b.rope:
            yield f"{_named(a.rope)} would be {_named(b.rope)}"
        return
    yield from _ropes(a.rope, b.rope, lengths, tolerance)


def _named(rope: Rope | None) -> str:
    return "no rope" if rope is None else "a rope"


def _ropes(a: Rope, b: Rope, lengths: list[int | None], tolerance: float) -> Iterator[str]:
    if a == b:
        return
    same_shape = True
    for name in ("head_dim", "rotary_dim", "rotary_offset", "pairing", "direction"):
        if getattr(a, name) != getattr(b, name):
            same_shape = False
            yield f"{name} {getattr(a, name)!r} would be {getattr(b, name)!r}"
    if a.original_length is not None and a.original_length != b.original_length:
        yield f"original_length {a.original_length} would be {b.original_length}"
    if not same_shape:
        return
    # Another formula for the same frequencies may round the last bits differently.
    allowed = max(tolerance, 2.0**-48)
    apart = factors = 0.0
    for length in lengths:
        one, other = a.inv_freq(length), b.inv_freq(length)
        still = (one == 0) & (other == 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(still, 0, np.abs(one - other) / np.maximum(one, other))
        apart = max(apart, float(ratio.max()))
        x, y = a.attention_factor(length), b.attention_factor(length)
        if not _close(x, y, allowed):
            factors = max(factors, abs(x - y) / max(x, y))
    if apart > allowed:
        if a.scaling == b.scaling:
            yield f"theta {a.theta:.15g} would be {b.theta:.15g}"
        else:
            yield f"{a.scaling!r} would be {b.scaling!r} (frequencies up to {apart:.2g} apart)"
    elif factors:
        yield f"attention factor {a.attention_factor():.6g} would be {b.attention_factor():.6g}"


def _close(a: float, b: float, tolerance: float) -> bool:
    return abs(a - b) <= max(tolerance, 2.0**-50) * max(abs(a), abs(b))
