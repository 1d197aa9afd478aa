"""Position encodings other than the rotary one."""

from .sinusoidal import sinusoidal

__all__ = ["sinusoidal"]
