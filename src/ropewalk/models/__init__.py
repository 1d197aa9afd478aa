"""What real models do: readers per file format, one table of families."""

from .families import FAMILIES
from .hf import read_config
from .plan import (
    LayerPositions,
    LogNTemperature,
    ModelPositions,
    QueryTemperature,
    Sourced,
    Tower,
)
from .read import read

__all__ = [
    "FAMILIES",
    "LayerPositions",
    "LogNTemperature",
    "ModelPositions",
    "QueryTemperature",
    "Sourced",
    "Tower",
    "read",
    "read_config",
]
