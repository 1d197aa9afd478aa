"""Every rule, one module per theme."""

from __future__ import annotations

from ..rule import Rule
from . import (
    amplitude,
    bases,
    commands,
    engines,
    keys,
    layers,
    layout,
    lengths,
    limits,
    precision,
    reading,
    refusals,
    released,
    weights,
)

_THEMES = (
    reading, lengths, bases, limits, released, layout, amplitude, keys, refusals, layers,
    precision, commands, engines, weights,
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(
    sorted((rule for theme in _THEMES for rule in theme.RULES), key=lambda rule: rule.code)
)
"""By code."""

BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}
