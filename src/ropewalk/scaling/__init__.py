"""The ways to stretch a rope, one file each, in one table.

Two of the texts this project grew from call the low plane indices "slow" or
"low-frequency". That is wrong: index 0 is the fastest plane, the last index the slowest.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import InputError
from .base import Scaling
from .by_parts import NTKByParts
from .clipped import Clipped
from .learned import Learned
from .linear import Linear
from .llama3 import Llama3
from .longrope import LongRoPE
from .ntk import NTK, DynamicNTK, ntk_base, ntk_factor
from .ntk_critical import NTKCritical
from .plain import Plain
from .proportional import Proportional
from .resonance import Resonance
from .stepped_ntk import SteppedNTK
from .yarn import YaRN

SCALINGS: dict[str, type[Scaling]] = {
    cls.kind: cls
    for cls in (
        Plain,
        Linear,
        NTK,
        NTKCritical,
        DynamicNTK,
        NTKByParts,
        YaRN,
        Llama3,
        LongRoPE,
        Proportional,
        Clipped,
    )
}
"""Every scaling by its name in JSON and on the command line."""


# What changes the frequencies of another scaling and stretches nothing by itself, and Qwen-1's
# own rule: no command offers them.
_READABLE: dict[str, type[Scaling]] = {
    **SCALINGS,
    **{cls.kind: cls for cls in (Learned, Resonance, SteppedNTK)},
}


def scaling_from_dict(data: dict[str, Any]) -> Scaling:
    """Build the scaling that `Scaling.to_dict` wrote.

    Raises:
        InputError: an unknown kind or field, a missing field, or an invalid value.
    """
    if not isinstance(data, dict):
        raise InputError(
            "scaling",
            found=repr(data),
            expected="an object with a kind",
            fix='write e.g. {"kind": "linear", "factor": 4}',
        )
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _READABLE:
        raise InputError(
            "scaling: kind",
            found=repr(kind),
            expected="one of " + ", ".join(SCALINGS),
            fix="correct the name",
        )
    cls = _READABLE[kind]
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "kind"}
    for name in values:
        if name not in fields:
            raise InputError(
                f"scaling {kind}: {name}",
                found="an unknown field",
                expected="one of " + ", ".join(fields),
                fix="remove it or correct its name",
            )
    for name, item in fields.items():
        required = item.default is dataclasses.MISSING
        if required and name not in values:
            raise InputError(
                f"scaling {kind}: {name}",
                found="nothing",
                expected="a value",
                fix="add the field",
            )
    build: Any = cls
    made: Scaling = build(**values)
    return made


__all__ = [
    "NTK",
    "SCALINGS",
    "Clipped",
    "DynamicNTK",
    "Learned",
    "Linear",
    "Llama3",
    "LongRoPE",
    "NTKByParts",
    "NTKCritical",
    "Plain",
    "Proportional",
    "Resonance",
    "Scaling",
    "SteppedNTK",
    "YaRN",
    "ntk_base",
    "ntk_factor",
    "scaling_from_dict",
]
