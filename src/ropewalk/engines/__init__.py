"""What each engine would compute from a given config, and where engines disagree."""

from __future__ import annotations

from .compare import Comparison, compare_engines
from .meaning import MeaningDiff, compare_meaning
from .table import ENGINES

__all__ = ["ENGINES", "Comparison", "MeaningDiff", "compare_engines", "compare_meaning"]
