"""Ropewalk: rotary position embeddings, exact, stretched, read and measured.

Importing this package imports nothing; the first use of a name imports its module, which
imports NumPy and nothing heavier. So the command line can show its help at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import InputError, MissingExtraError, RopewalkError
    from .models import ModelPositions
    from .models.read import read
    from .rope import Plane, Rope
    from .rotation import rotate
    from .scaling import (
        NTK,
        SCALINGS,
        Clipped,
        DynamicNTK,
        Linear,
        Llama3,
        LongRoPE,
        NTKByParts,
        NTKCritical,
        Plain,
        Proportional,
        Resonance,
        Scaling,
        YaRN,
    )
    from .tables import TableCache, cos_sin

__version__ = "0.1.0"

__all__ = [
    "NTK",
    "SCALINGS",
    "Clipped",
    "DynamicNTK",
    "InputError",
    "Linear",
    "Llama3",
    "LongRoPE",
    "MissingExtraError",
    "ModelPositions",
    "NTKByParts",
    "NTKCritical",
    "Plain",
    "Plane",
    "Proportional",
    "Resonance",
    "Rope",
    "RopewalkError",
    "Scaling",
    "TableCache",
    "YaRN",
    "__version__",
    "cos_sin",
    "read",
    "rotate",
]

_MODULES = {
    "errors": ("InputError", "MissingExtraError", "RopewalkError"),
    "models": ("ModelPositions",),
    "models.read": ("read",),
    "rope": ("Plane", "Rope"),
    "rotation": ("rotate",),
    "tables": ("TableCache", "cos_sin"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the module of a public name on its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # What has no row of its own is a scaling.
    module = importlib.import_module(f".{_HOME.get(name, 'scaling')}", __name__)
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted(__all__)
