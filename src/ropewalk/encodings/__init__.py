"""The position encodings, each as a value with its formula in NumPy; what only looks like one.

`ropewalk.encodings.modules` has the same for PyTorch.
"""

from .absolute import Learned, NoPE, Sinusoidal
from .alibi import ALiBi, alibi_slopes
from .base import Encoding, Sizes
from .lane_turns import LaneTurns
from .learned_decay import Fire, Kerple
from .log_n import LogN
from .remapped import DualChunk, ReRoPE, SelfExtend
from .rotary import Rotary
from .sinusoidal import sinusoidal
from .t5 import T5Buckets
from .transformer_xl import TransformerXL
from .xpos import XPos

ENCODINGS: dict[str, type[Encoding]] = {
    cls.kind: cls
    for cls in (
        NoPE,
        Sinusoidal,
        Learned,
        Rotary,
        ReRoPE,
        SelfExtend,
        DualChunk,
        LogN,
        TransformerXL,
        T5Buckets,
        ALiBi,
        Kerple,
        Fire,
        XPos,
    )
}
"""Every encoding by its kind."""

__all__ = [
    "ENCODINGS",
    "ALiBi",
    "DualChunk",
    "Encoding",
    "Fire",
    "Kerple",
    "LaneTurns",
    "Learned",
    "LogN",
    "NoPE",
    "ReRoPE",
    "Rotary",
    "SelfExtend",
    "Sinusoidal",
    "Sizes",
    "T5Buckets",
    "TransformerXL",
    "XPos",
    "alibi_slopes",
    "sinusoidal",
]
