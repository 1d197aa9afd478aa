"""Training one model of the lab: resumable to the step, the same data for every encoding."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..whole_file import replacing, write_whole
from .data import Data, batch, held_out_text, training_text
from .model import Decoder

STATE, LOG = "state.pt", "log.jsonl"
_CHECKED_WINDOWS = 32
_SAVE_EVERY = 100


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained.

    Attributes:
        length: tokens of a sequence.
        batch: sequences of a step.
        steps: of the whole schedule.
        peak_rate: highest learning rate; it rises over ``warmup`` steps and falls along a
            cosine.
        warmup: steps.
        end_share: of the peak rate that is left at the end; 1 for a constant rate, where
            another training goes on.
        weight_decay: on matrices.
        check_every: steps between checks on held-out text.
        first_step: number of the first step's batch: a fine-tuning goes on in the data where
            the training before it stopped.
        skips: PoSE: sequences stay ``length`` long, their positions skip within this many.
    """

    length: int = 512
    batch: int = 8
    steps: int = 1500
    peak_rate: float = 3e-3
    warmup: int = 100
    end_share: float = 0.1
    weight_decay: float = 0.1
    check_every: int = 50
    first_step: int = 0
    skips: int | None = None


def learning_rate(step: int, training: Training) -> float:
    """Return the rate of a step: a rise over the warm-up, then a cosine."""
    if step < training.warmup:
        return training.peak_rate * (step + 1) / training.warmup
    share = (step - training.warmup) / max(1, training.steps - training.warmup)
    end = training.end_share
    return training.peak_rate * (end + (1 - end) * 0.5 * (1 + math.cos(math.pi * share)))


def mixed_precision() -> torch.dtype | None:
    """Return bfloat16 where the processor multiplies its matrices natively, else None."""
    asked = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    native = any(getattr(torch.cpu, name, lambda: False)() for name in asked)
    return torch.bfloat16 if native else None


def autocast(dtype: torch.dtype | None) -> torch.autocast:
    """Return a context that multiplies matrices in ``dtype``; None changes nothing."""
    return torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def skipped_positions(training: Training, seed: int, step: int) -> Tensor | None:
    """Return positions in two runs with a gap between them, (batch, length); None without.

    Source: PoSE, Zhu et al. 2023, arXiv 2309.10400: the first run starts at 0, the second is
    moved by a random skip, so that all distances up to ``skips`` are seen.
    """
    if training.skips is None:
        return None
    chance = torch.Generator().manual_seed(seed * 1_000_003 + step)
    room = training.skips - training.length
    cut = torch.randint(1, training.length, (training.batch, 1), generator=chance)
    skip = torch.randint(0, room + 1, (training.batch, 1), generator=chance)
    at = torch.arange(training.length)[None]
    return at + skip * (at >= cut)


def optimizer_for(model: Decoder, training: Training) -> torch.optim.Optimizer:
    """AdamW; weight decay on the blocks' matrices only."""
    decayed: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        matrix = name.startswith("blocks") and parameter.dim() == 2
        (decayed if matrix else others).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": training.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=training.peak_rate, betas=(0.9, 0.95), fused=True)


def bits_per_byte(model: Decoder, text: bytes, length: int, dtype: torch.dtype | None) -> float:
    """Return the loss on evenly spread windows of held-out text, in bits per byte."""
    stride = (len(text) - length - 1) // _CHECKED_WINDOWS
    rows = [list(text[i * stride : i * stride + length + 1]) for i in range(_CHECKED_WINDOWS)]
    tokens = torch.tensor(rows)
    losses = []
    with torch.no_grad(), autocast(dtype):
        for part in tokens.split(8):
            logits = model(part[:, :-1]).float()
            losses.append(cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()).item())
    mean: float = sum(losses) / len(losses)
    return mean / math.log(2)


class Trainer:
    """One training, step by step, kept in a folder.

    A killed run goes on from the last saved state and gives the same numbers: a step's batch
    depends on the seed and the step only, and the state holds all that a step changes.

    Args:
        model: with its first weights.
        training: schedule.
        data: what a batch holds.
        seed: of the data.
        folder: where state and log are kept.
    """

    def __init__(
        self, model: Decoder, training: Training, data: Data, seed: int, folder: Path
    ) -> None:
        self.model, self.training, self.data, self.seed = model, training, data, seed
        self.folder = folder
        self.dtype = mixed_precision()
        self.optimizer = optimizer_for(model, training)
        self.done = 0
        self.log: list[dict[str, Any]] = []
        self._losses: list[float] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def _resume(self) -> None:
        path = self.folder / STATE
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done, self.log = state["step"], state["log"]
        self._losses = state.get("losses", [])

    def save(self) -> None:
        """Write state and log, each in one step: a kill leaves the old one or the new one whole."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.done,
            "log": self.log,
            # Of the steps since the last check: a save may lie between two.
            "losses": self._losses,
        }
        with replacing(self.folder / STATE) as scratch:
            torch.save(state, scratch)
        lines = "".join(json.dumps(entry) + "\n" for entry in self.log)
        write_whole(self.folder / LOG, lines)

    def steps(self, clock: Callable[[], float]) -> Iterator[int]:
        """Train to the end, yielding the number of steps done after each.

        Args:
            clock: seconds, e.g. `time.monotonic`; what a step took is logged.
        """
        text, held_out = training_text(), held_out_text()
        losses = self._losses
        begun, timed = clock(), 0
        while self.done < self.training.steps:
            losses.append(self._step(text))
            self.done += 1
            timed += 1
            last = self.done == self.training.steps
            if self.done % self.training.check_every == 0 or last:
                # The check's own time does not count.
                seconds = (clock() - begun) / timed
                self.log.append(
                    {
                        "step": self.done,
                        "training_bits": round(sum(losses) / len(losses) / math.log(2), 5),
                        "held_out_bits": round(
                            bits_per_byte(self.model, held_out, self.training.length, self.dtype),
                            5,
                        ),
                        "seconds_per_step": round(seconds, 4),
                    }
                )
                losses.clear()
                begun, timed = clock(), 0
            if self.done % _SAVE_EVERY == 0 or last:
                self.save()
            yield self.done

    def _step(self, text: bytes) -> float:
        training = self.training
        number = training.first_step + self.done
        rows, weights = batch(text, number, self.seed, training.batch, training.length, self.data)
        tokens, weight = torch.from_numpy(rows), torch.from_numpy(weights).flatten()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.done, training)
        positions = skipped_positions(training, self.seed, number)
        with autocast(self.dtype):
            logits = self.model(tokens[:, :-1], positions, length=training.skips)
        losses = cross_entropy(
            logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
        )
        loss = (losses * weight).sum() / weight.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.item())


def describe(training: Training, data: Data) -> dict[str, Any]:
    """Return both as JSON values."""
    return {"training": dataclasses.asdict(training), "data": dataclasses.asdict(data)}
