"""Position encodings other than the rotary one, and what only looks like it."""

from .lane_turns import LaneTurns
from .sinusoidal import sinusoidal
from .xpos import XPos

__all__ = ["LaneTurns", "XPos", "sinusoidal"]
