"""Passes through a model: what is run at once, what is kept of it, who may run it."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ..encodings import Encoding
from ..rope import Precision, Rope

Setting = Rope | Encoding
"""What a model runs with: a rope, or an encoding that is more than one."""


class Scores(Protocol):
    """What the runner asks of a model; `scoring.Scorer` and the lab's models are two."""

    model_type: str
    dtype: str
    tokenizer: Any

    def log_likelihoods(
        self,
        tokens: Any,
        setting: Setting,
        scored: int,
        length: int,
        precision: Precision = "exact",
    ) -> Any:
        """Return log probabilities of the last tokens, and whether each was the first choice."""

    def cost(self, length: int) -> float:
        """Return the rough cost of one pass."""


@dataclass(frozen=True)
class Pass:
    """One row to run through the model: its setting, tokens, and what is scored at the end."""

    key: str
    setting: Setting
    length: int
    tokens: tuple[int, ...]
    scored: int
    label: str


@dataclass(frozen=True)
class Batch:
    """Passes of one setting and length, run through the model at once.

    Attributes:
        passes: the rows.
        tail: how many of the last scored tokens are also summed by themselves.
        precision: of the angles.
    """

    passes: tuple[Pass, ...]
    tail: int
    precision: Precision

    @property
    def label(self) -> str:
        """For people."""
        return self.passes[0].label


Scored = list[dict[str, Any]]
"""What the journal keeps of each pass of a batch."""
Say = Callable[[str], None]
"""Called with what is being done."""
Spread = Callable[[list[Batch], Say], Iterator[tuple[Batch, Scored]]]
"""Scores batches, in whatever order, wherever."""


def score_batch(scorer: Scores, batch: Batch) -> Scored:
    """Run a batch through the model and return what is kept of each pass."""
    import torch

    first = batch.passes[0]
    begun = time.perf_counter()
    values, hits = scorer.log_likelihoods(
        torch.tensor([p.tokens for p in batch.passes]),
        first.setting,
        first.scored,
        first.length,
        batch.precision,
    )
    seconds = (time.perf_counter() - begun) / len(batch.passes)
    return [
        {
            "nats": -values[row].double().sum().item(),
            "tail_nats": -values[row, -batch.tail :].double().sum().item(),
            "hit": bool(hits[row].all()),
            "seconds": round(seconds, 3),
            "peak_mib": peak_mib(),
        }
        for row in range(len(batch.passes))
    ]


def peak_mib() -> int:
    """Return the largest resident memory of this process so far, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak / (2**20 if sys.platform == "darwin" else 2**10))
