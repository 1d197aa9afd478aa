"""What to measure: the choices of one measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..rope import Precision
from .loading import Dtype
from .methods import USUAL
from .protocols import ProtocolName


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        lengths: context lengths in tokens; by default 1, 2, 4 … 32 times the original.
        methods: names of `ropewalk.extend.methods.METHODS`; by default `USUAL`.
        texts: text files; by default standard library files that the built-in model never saw.
        protocol: which tokens are scored, a name of `ropewalk.extend.protocols.PROTOCOLS`;
            ``fixed`` scores the same last tokens of each document at every length.
        documents: how many documents at most.
        trials: passkey trials per cell up to 8 times the original length, proportionally fewer
            above, but 20 or as many as asked for; 0 leaves retrieval out.
        probe: what a trial plants, a name of `ropewalk.extend.retrieval.PROBES`.
        distances: how far back trials plant it, tokens, in turn; by default at all depths.
        short: whether to measure what each factor costs on texts of the original length.
        dtype: of the weights.
        precision: of the angles; ``float32`` forms them as transformers does.
        seed: of trials and bootstrap.
    """

    lengths: tuple[int, ...] | None = None
    methods: tuple[str, ...] = USUAL
    texts: tuple[Path, ...] = ()
    protocol: ProtocolName = "fixed"
    documents: int = 16
    trials: int = 100
    probe: str = "passkey"
    distances: tuple[int, ...] | None = None
    short: bool = True
    dtype: Dtype = "auto"
    precision: Precision = "exact"
    seed: int = 0
