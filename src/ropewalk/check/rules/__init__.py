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
    named,
    precision,
    reading,
    refusals,
    released,
    sections,
    stated,
    weights,
)

_THEMES = (
    reading, stated, lengths, bases, limits, released, named, layout, sections, amplitude, keys,
    refusals, layers, precision, commands, engines, weights,
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(
    sorted((rule for theme in _THEMES for rule in theme.RULES), key=lambda rule: rule.code)
)
"""By code."""

BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}
