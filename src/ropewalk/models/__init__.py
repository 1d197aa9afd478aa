"""What real models do: readers per file format, one table of families."""

from .plan import LayerPositions, ModelPositions, QueryTemperature, Sourced

__all__ = ["LayerPositions", "ModelPositions", "QueryTemperature", "Sourced"]
