"""Ropewalk: rotary position embeddings, exact, stretched, read and measured.

Importing this package imports NumPy and nothing heavier.
"""

from .errors import InputError, MissingExtraError, RopewalkError
from .models import ModelPositions, read
from .rope import Plane, Rope
from .rotation import rotate
from .scaling import (
    NTK,
    SCALINGS,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    NTKCritical,
    Plain,
    Proportional,
    Scaling,
    YaRN,
)
from .tables import TableCache, cos_sin

__version__ = "0.1.0"

__all__ = [
    "NTK",
    "SCALINGS",
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
