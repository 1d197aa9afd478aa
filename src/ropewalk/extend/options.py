"""What to measure: the choices of one measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..rope import Precision
from .loading import Dtype
from .methods import METHODS
from .results import ProtocolName


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        lengths: context lengths in tokens; by default 1, 2, 4 … 32 times the original.
        methods: names of `ropewalk.extend.methods.METHODS`; by default all.
        texts: text files; by default standard library files that the built-in model never saw.
        protocol: ``fixed`` scores the same last tokens of each document at every length;
            ``prefix`` scores all of the first text's first N tokens, one pass each.
        documents: how many documents at most.
        trials: passkey trials per cell up to 8 times the original length, proportionally fewer
            above, but 20 or as many as asked for; 0 leaves retrieval out.
        short: whether to measure what each factor costs on texts of the original length.
        dtype: of the weights.
        precision: of the angles; ``float32`` forms them as transformers does.
        seed: of trials and bootstrap.
    """

    lengths: tuple[int, ...] | None = None
    methods: tuple[str, ...] = tuple(METHODS)
    texts: tuple[Path, ...] = ()
    protocol: ProtocolName = "fixed"
    documents: int = 16
    trials: int = 100
    short: bool = True
    dtype: Dtype = "auto"
    precision: Precision = "exact"
    seed: int = 0
