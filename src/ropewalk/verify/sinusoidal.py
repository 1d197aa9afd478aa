"""The sinusoidal encoding of four lanes at positions 1 and 2, as printed in many a text."""

from __future__ import annotations

import math

from .. import encodings
from .check import Check, compare

GROUP = "sinusoidal encoding, d = 4"
SOURCE = "Attention Is All You Need, arXiv 1706.03762, section 3.5"

_PRINTED = (
    # position, lane, name, digits as printed
    (1, 0, "sin 1", "0.841"),
    (2, 0, "sin 2", "0.909"),
    (1, 3, "cos 0.01", "0.99995"),
    (2, 3, "cos 0.02", "0.9998"),
)


def checks() -> list[Check]:
    """Return the checks of this group; the encoding is float64 always."""
    table = encodings.sinusoidal([1, 2], 4)
    out = []
    for position, lane, name, digits in _PRINTED:
        places = len(digits.partition(".")[2])
        out.append(
            compare(
                GROUP,
                f"lane {lane} at m = {position}: {name}",
                formula="PE(m, 2i) = sin(m·10000^(-2i/d)), PE(m, 2i + 1) = cos of the same",
                computed=[table[position - 1, lane]],
                expected=float(digits),
                tolerance=0.5 * 10.0**-places,
                tolerance_formula=f"half a unit of the last printed digit of {digits}",
                source=SOURCE,
            )
        )
    wanted = [[math.sin(m), math.cos(m), math.sin(m / 100), math.cos(m / 100)] for m in (1, 2)]
    out.append(
        compare(
            GROUP,
            "all lanes at m = 1 and 2",
            formula="(sin m, cos m, sin(m/100), cos(m/100))",
            computed=table,
            expected=wanted,
            tolerance=8 * 2.0**-52,
            tolerance_formula="8ε: δ = 6ε of the tables, and two roundings in m/100 and sin",
            source=SOURCE,
        )
    )
    return out
