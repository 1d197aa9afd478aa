"""The passes of a measurement: which are needed, running them, and the cells they make."""

from __future__ import annotations

import hashlib
import math
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rope import Rope
from .journal import Journal
from .methods import Method
from .options import Options
from .results import Measurement, RetrievalCell, Share, TextCell
from .retrieval import TokenTrial, trials_of
from .scoring import Scorer
from .statistics import paired_bootstrap, wilson
from .texts import TextSet

Progress = Callable[[float, float, str], None]
"""Called with work done, work in all, and what is being done."""

_TOKENS_A_PASS = 16384
_FEWEST_TRIALS = 20


@dataclass(frozen=True)
class _Pass:
    """One row to run through the model: a rope, tokens, and what is scored at the end."""

    key: str
    rope: Rope
    length: int
    tokens: tuple[int, ...]
    scored: int
    label: str


class Runner:
    """Plans the passes of one measurement, runs those that are missing, gathers the cells."""

    def __init__(
        self,
        scorer: Scorer,
        texts: TextSet,
        base: Rope,
        original: int,
        scored: int,
        methods: list[Method],
        options: Options,
        journal: Journal,
        progress: Progress,
    ) -> None:
        self.scorer, self.texts, self.base = scorer, texts, base
        self.original, self.scored, self.methods = original, scored, methods
        self.options, self.journal, self.progress = options, journal, progress
        self._trials: dict[int, list[TokenTrial]] = {}

    def run(self, name: str, lengths: tuple[int, ...]) -> Measurement:
        """Run what the journal does not hold yet and return the measurement."""
        text_plan = {
            (method.name, factor, length): self._text_passes(method, factor, length)
            for method in self.methods
            for factor, length in self._settings(lengths)
        }
        trial_plan = {
            (method.name, length): self._trial_passes(method, length)
            for method in self.methods
            for length in lengths
            if self._trial_count(length)
        }
        # Equal passes (a method that changes nothing at this length) are run once. Short
        # ones come first, so that the first rows of a table are there early.
        passes = {p.key: p for plan in (text_plan, trial_plan) for ps in plan.values() for p in ps}
        self._run_all(sorted(passes.values(), key=lambda p: len(p.tokens)))
        return self._gather(name, lengths, text_plan, trial_plan)

    def _settings(self, lengths: tuple[int, ...]) -> list[tuple[float, int]]:
        main = [(length / self.original, length) for length in lengths]
        if not self.options.short or self.options.protocol == "prefix":
            return main
        return main + [(factor, self.original) for factor, _ in main if factor > 1]

    def _trial_count(self, length: int) -> int:
        if self.options.protocol == "prefix":
            return 0
        wanted = self.options.trials
        affordable = wanted * 8 * self.original // length
        return min(wanted, max(_FEWEST_TRIALS, affordable))

    def _text_passes(self, method: Method, factor: float, length: int) -> list[_Pass]:
        rope = method.rope(self.base, factor, self.original)
        out = []
        for document in self.texts.documents:
            if self.options.protocol == "fixed":
                tokens, scored = document.tokens[-length:], self.scored
            else:
                tokens, scored = document.tokens[:length], length - 1
            if method.build is None:
                # Under the prefix protocol cropping can only be given its tail.
                tokens, scored = tokens[-self.original :], self.scored
            out.append(self._pass(rope, tokens, scored, f"{method.name} at {length}"))
        return out

    def _trial_passes(self, method: Method, length: int) -> list[_Pass]:
        count = self._trial_count(length)
        if length not in self._trials:
            self._trials[length] = trials_of(
                self.texts,
                self.scorer.loaded.tokenizer,
                length=length,
                count=count,
                seed=self.options.seed,
            )
        rope = method.rope(self.base, length / self.original, self.original)
        out = []
        for trial in self._trials[length]:
            tokens = trial.tokens
            if method.build is None:
                tokens = tokens[-self.original :]
            label = f"passkey, {method.name} at {length}"
            out.append(self._pass(rope, tokens, trial.answer, label))
        return out

    def _pass(self, rope: Rope, tokens: tuple[int, ...], scored: int, label: str) -> _Pass:
        length = len(tokens)
        numbers = np.append(rope.inv_freq(length), rope.attention_factor(length))
        text = hashlib.sha256(np.array(tokens, dtype=np.int64).tobytes()).hexdigest()[:16]
        turning = hashlib.sha256(numbers.tobytes()).hexdigest()[:16]
        # Exact angles are the rule and go unnamed.
        how = "" if self.options.precision == "exact" else f", {self.options.precision} angles"
        key = f"{length} tokens {text}, last {scored} scored, rope {turning}{how}"
        return _Pass(key, rope, length, tokens, scored, label)

    def _run_all(self, passes: list[_Pass]) -> None:
        total = sum(self.scorer.cost(p.length) for p in passes)
        groups: dict[Any, list[_Pass]] = {}
        for item in passes:
            if item.key not in self.journal.done:
                groups.setdefault((item.rope, item.length, item.scored), []).append(item)
        done = total - sum(self.scorer.cost(p.length) for g in groups.values() for p in g)
        for group in groups.values():
            rows = max(1, _TOKENS_A_PASS // group[0].length)
            for start in range(0, len(group), rows):
                batch = group[start : start + rows]
                self.progress(done, total, batch[0].label)
                self._run_batch(batch)
                done += sum(self.scorer.cost(p.length) for p in batch)
        self.progress(total, total, "done")

    def _run_batch(self, batch: list[_Pass]) -> None:
        import torch

        first = batch[0]
        begun = time.perf_counter()
        values, hits = self.scorer.log_likelihoods(
            torch.tensor([p.tokens for p in batch]),
            first.rope,
            first.scored,
            first.length,
            self.options.precision,
        )
        seconds = (time.perf_counter() - begun) / len(batch)
        tail = min(self.scored, first.scored)
        for row, item in enumerate(batch):
            self.journal.record(
                item.key,
                {
                    "nats": -values[row].double().sum().item(),
                    "tail_nats": -values[row, -tail:].double().sum().item(),
                    "hit": bool(hits[row].all()),
                    "seconds": round(seconds, 3),
                    "peak_mib": peak_mib(),
                },
            )

    def _gather(
        self,
        name: str,
        lengths: tuple[int, ...],
        text_plan: dict[tuple[str, float, int], list[_Pass]],
        trial_plan: dict[tuple[str, int], list[_Pass]],
    ) -> Measurement:
        done = self.journal.done
        cells: list[TextCell] = []
        short_cells: list[TextCell] = []
        for (method, factor, length), passes in text_plan.items():
            baseline = text_plan.get(("crop", factor, length))
            cell = self._text_cell(method, factor, length, passes, baseline)
            at_own_factor = factor == length / self.original
            (cells if at_own_factor else short_cells).append(cell)
        retrieval = [
            self._retrieval_cell(method, length, [done[p.key]["hit"] for p in passes])
            for (method, length), passes in trial_plan.items()
        ]
        used = {p.key for plan in (text_plan, trial_plan) for ps in plan.values() for p in ps}
        loaded = self.scorer.loaded
        return Measurement(
            model=name,
            model_type=loaded.positions.model_type,
            original_length=self.original,
            protocol=self.options.protocol,
            lengths=lengths,
            scored=self.scored,
            documents=tuple(d.name for d in self.texts.documents),
            text_origin=self.texts.origin,
            text_digest=self.texts.digest,
            dtype=loaded.dtype,
            precision=self.options.precision,
            seed=self.options.seed,
            cells=tuple(cells),
            short_cells=tuple(short_cells),
            retrieval=tuple(retrieval),
            environment={
                **environment(),
                "seconds": round(sum(done[key]["seconds"] for key in used), 1),
                "peak_mib": max(done[key]["peak_mib"] for key in used),
            },
        )

    def _text_cell(
        self,
        method: str,
        factor: float,
        length: int,
        passes: list[_Pass],
        baseline: list[_Pass] | None,
    ) -> TextCell:
        def per_token(items: list[_Pass], name: str, most: int) -> np.ndarray[Any, Any]:
            # Scored tokens of the pass, but at most those of the tail.
            return np.array([self.journal.done[p.key][name] / min(p.scored, most) for p in items])

        nats = per_token(passes, "nats", length)
        tail = per_token(passes, "tail_nats", self.scored)
        tail_bytes = np.array([d.bytes_of_last for d in self.texts.documents])
        bits = tail * self.scored / math.log(2) / tail_bytes
        above, interval = None, None
        if baseline is not None and method != "crop":
            differences = tail - per_token(baseline, "tail_nats", self.scored)
            above = float(differences.mean())
            interval = paired_bootstrap(differences, seed=self.options.seed)
        return TextCell(
            method=method,
            factor=factor,
            length=length,
            nats=float(nats.mean()),
            perplexity=math.exp(nats.mean()),
            bits_per_byte=float(bits.mean()),
            tail_perplexity=math.exp(tail.mean()),
            per_document=tuple(float(n) for n in nats),
            above_crop=above,
            above_crop_interval=interval,
        )

    def _retrieval_cell(self, method: str, length: int, hits: list[bool]) -> RetrievalCell:
        distances = [trial.distance for trial in self._trials[length]]
        overall = Share(
            min(distances), max(distances), sum(hits), len(hits), wilson(sum(hits), len(hits))
        )
        steps: dict[int, list[bool]] = {}
        for hit, distance in zip(hits, distances, strict=True):
            steps.setdefault((distance - 1) // self.original, []).append(hit)
        by_distance = tuple(
            Share(
                step * self.original + 1,
                (step + 1) * self.original,
                sum(found),
                len(found),
                wilson(sum(found), len(found)),
            )
            for step, found in sorted(steps.items())
        )
        return RetrievalCell(method, length / self.original, length, overall, by_distance)


def peak_mib() -> int:
    """Return the largest resident memory of this process so far, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak / (2**20 if sys.platform == "darwin" else 2**10))


def environment() -> dict[str, Any]:
    """Return the versions, the processor and the threads that results depend on."""
    import torch
    import transformers

    from .. import __version__

    return {
        "ropewalk": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
    }
