"""Every encoding in PyTorch: a module that attention can take, and the attention that takes it.

Imports torch; `ropewalk.encodings` itself does not.
"""

from __future__ import annotations

import importlib

from ...errors import InputError
from ..base import Encoding, Sizes
from .attention import attend
from .base import PositionModule

_MODULES: dict[str, tuple[str, str]] = {
    "none": ("base", "PositionModule"),
    "sinusoidal": ("absolute", "SinusoidalModule"),
    "learned": ("absolute", "LearnedModule"),
    "rotary": ("rotary", "RotaryModule"),
    "rerope": ("remapped", "ReRoPEModule"),
    "self-extend": ("remapped", "SelfExtendModule"),
    "dual-chunk": ("remapped", "DualChunkModule"),
    "log-n": ("log_n", "LogNModule"),
    "transformer-xl": ("transformer_xl", "TransformerXLModule"),
    "t5": ("biases", "T5BucketsModule"),
    "alibi": ("biases", "ALiBiModule"),
    "kerple": ("biases", "KerpleModule"),
    "fire": ("biases", "FireModule"),
    "xpos": ("xpos", "XPosModule"),
}
"""Kind of encoding to (module in this package, class)."""


def module_for(encoding: Encoding, sizes: Sizes, seed: int = 0) -> PositionModule:
    """Return the PyTorch module of an encoding, its parameters drawn from ``seed``.

    Raises:
        InputError: an encoding that has none.
    """
    if encoding.kind not in _MODULES:
        raise InputError(
            "encoding",
            found=repr(encoding),
            expected="one of " + ", ".join(_MODULES),
            fix="use an encoding of ropewalk.encodings",
        )
    home, name = _MODULES[encoding.kind]
    cls = getattr(importlib.import_module(f".{home}", __package__), name)
    made: PositionModule = cls(encoding, sizes, seed)
    return made


__all__ = ["PositionModule", "attend", "module_for"]
