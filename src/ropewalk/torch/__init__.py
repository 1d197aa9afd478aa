"""Ropewalk for PyTorch: rotation as fast as memory, eager, compiled, differentiated, exported."""

from __future__ import annotations

from .accelerate import Report, accelerate, restore
from .functional import rotate, rotate_, rotate_qk, rotate_qk_
from .fused import norm_rotate_qk, rotate_into_cache
from .memory import release_memory
from .module import RotaryEmbedding

__all__ = [
    "Report",
    "RotaryEmbedding",
    "accelerate",
    "norm_rotate_qk",
    "release_memory",
    "restore",
    "rotate",
    "rotate_",
    "rotate_into_cache",
    "rotate_qk",
    "rotate_qk_",
]
