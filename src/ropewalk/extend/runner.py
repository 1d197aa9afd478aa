"""The passes of a measurement: which are needed, running them, and the cells they make."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..rope import Rope
from .journal import Journal
from .methods import Method
from .options import Options
from .passes import Batch, Pass, Say, Scored, Scores, Setting, Spread, score_batch
from .protocols import PROTOCOLS, Reach
from .results import Measurement, RetrievalCell, Share, TextCell
from .retrieval import TokenTrial, trials_of
from .statistics import paired_bootstrap, wilson
from .texts import TextSet, TokenizedDocument, byte_count

Progress = Callable[[float, float, str], None]
"""Called with work done, work in all, and what is being done."""

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

_TOKENS_A_PASS = 16384
_FEWEST_TRIALS = 20


_TextPlan = dict[tuple[str, float, int], list[list[Pass]]]
_TrialPlan = dict[tuple[str, int], list[Pass]]


class Runner:
    """Plans the passes of one measurement, runs those that are missing, gathers the cells."""

    def __init__(
        self,
        scorer: Scores,
        texts: TextSet,
        base: Setting,
        original: int,
        scored: int,
        methods: list[Method],
        options: Options,
        journal: Journal,
        progress: Progress,
        spread: Spread | None = None,
    ) -> None:
        self.spread = spread or self._here
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
        passes = {p.key: p for p in _all_passes(text_plan, trial_plan)}
        self._run_all(sorted(passes.values(), key=lambda p: len(p.tokens)))
        return self._gather(name, lengths, text_plan, trial_plan)

    def _settings(self, lengths: tuple[int, ...]) -> list[tuple[float, int]]:
        main = [(length / self.original, length) for length in lengths]
        if not self.options.short or self.options.protocol != "fixed":
            return main
        return main + [(factor, self.original) for factor, _ in main if factor > 1]

    def _trial_count(self, length: int) -> int:
        if self.options.protocol != "fixed":
            return 0
        wanted = self.options.trials
        affordable = wanted * 8 * self.original // length
        return min(wanted, max(_FEWEST_TRIALS, affordable))

    def _text_passes(self, method: Method, factor: float, length: int) -> list[list[Pass]]:
        """Return the passes of each document."""
        setting = method.setting(self.base, factor, self.original)
        reach = Reach(length, self.original, self.scored, method.crops)
        rows_of = PROTOCOLS[self.options.protocol].passes
        return [
            [
                self._pass(setting, tokens, scored, f"{method.name} at {length}")
                for tokens, scored in rows_of(document.tokens, reach)
            ]
            for document in self.texts.documents
        ]

    def _trial_passes(self, method: Method, length: int) -> list[Pass]:
        count = self._trial_count(length)
        if length not in self._trials:
            self._trials[length] = trials_of(
                self.texts,
                self.scorer.tokenizer,
                length=length,
                count=count,
                seed=self.options.seed,
                probe=self.options.probe,
                distances=self.options.distances,
            )
        setting = method.setting(self.base, length / self.original, self.original)
        out = []
        for trial in self._trials[length]:
            tokens = trial.tokens
            if method.crops:
                tokens = tokens[-self.original :]
            label = f"{self.options.probe}, {method.name} at {length}"
            out.append(self._pass(setting, tokens, trial.answer, label))
        return out

    def _pass(self, setting: Setting, tokens: tuple[int, ...], scored: int, label: str) -> Pass:
        length = len(tokens)
        text = hashlib.sha256(np.array(tokens, dtype=np.int64).tobytes()).hexdigest()[:16]
        # Exact angles are the rule and go unnamed.
        how = "" if self.options.precision == "exact" else f", {self.options.precision} angles"
        key = f"{length} tokens {text}, last {scored} scored, {_known_by(setting, length)}{how}"
        return Pass(key, setting, length, tokens, scored, label)

    def _run_all(self, passes: list[Pass]) -> None:
        total = sum(self.scorer.cost(p.length) for p in passes)
        groups: dict[Any, list[Pass]] = {}
        for item in passes:
            if item.key not in self.journal.done:
                groups.setdefault((item.setting, item.length, item.scored), []).append(item)
        done = total - sum(self.scorer.cost(p.length) for g in groups.values() for p in g)
        batches = []
        for group in groups.values():
            rows = max(1, _TOKENS_A_PASS // group[0].length)
            for start in range(0, len(group), rows):
                part = tuple(group[start : start + rows])
                tail = min(self.scored, part[0].scored)
                batches.append(Batch(part, tail, self.options.precision))

        def say(label: str) -> None:
            self.progress(done, total, label)

        for batch, found in self.spread(batches, say):
            for item, value in zip(batch.passes, found, strict=True):
                self.journal.record(item.key, value)
            done += sum(self.scorer.cost(p.length) for p in batch.passes)
        self.progress(total, total, "done")

    def _here(self, batches: list[Batch], say: Say) -> Iterator[tuple[Batch, Scored]]:
        for batch in batches:
            say(batch.label)
            yield batch, score_batch(self.scorer, batch)

    def _gather(
        self,
        name: str,
        lengths: tuple[int, ...],
        text_plan: _TextPlan,
        trial_plan: _TrialPlan,
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
        used = {p.key for p in _all_passes(text_plan, trial_plan)}
        return Measurement(
            model=name,
            model_type=self.scorer.model_type,
            original_length=self.original,
            protocol=self.options.protocol,
            lengths=lengths,
            scored=self.scored,
            documents=tuple(d.name for d in self.texts.documents),
            text_origin=self.texts.origin,
            text_digest=self.texts.digest,
            dtype=self.scorer.dtype,
            precision=self.options.precision,
            seed=self.options.seed,
            cells=tuple(cells),
            short_cells=tuple(short_cells),
            retrieval=tuple(retrieval),
            environment={
                **environment(),
                "seconds": round(sum(done[key]["seconds"] for key in used), 1),
                "peak_mib": max(done[key]["peak_mib"] for key in used),
                "seconds_by_method": self._seconds_by_method(text_plan),
            },
        )

    def _seconds_by_method(self, text_plan: _TextPlan) -> dict[str, dict[str, float]]:
        """Return the seconds of the loss passes of each method at each length."""
        out: dict[str, dict[str, float]] = {}
        for (method, factor, length), documents in text_plan.items():
            if factor == length / self.original:
                seconds = sum(
                    self.journal.done[p.key]["seconds"] for passes in documents for p in passes
                )
                out.setdefault(method, {})[str(length)] = round(seconds, 3)
        return out

    def _text_cell(
        self,
        method: str,
        factor: float,
        length: int,
        passes: list[list[Pass]],
        baseline: list[list[Pass]] | None,
    ) -> TextCell:
        nats = self._per_token(passes, "nats", length)
        tail = self._per_token(passes, "tail_nats", self.scored)
        whole = PROTOCOLS[self.options.protocol].whole_text
        counted = nats if whole else tail
        bits = counted / math.log(2) * [self._tokens_per_byte(d) for d in self.texts.documents]
        above, interval = None, None
        if baseline is not None and method != "crop":
            name, most = ("nats", length) if whole else ("tail_nats", self.scored)
            differences = counted - self._per_token(baseline, name, most)
            above = float(differences.mean())
            interval = paired_bootstrap(differences, seed=self.options.seed)
        return TextCell(
            method=method,
            factor=factor,
            length=length,
            nats=float(nats.mean()),
            perplexity=math.exp(nats.mean()),
            bits_per_byte=float(bits.mean()),
            tail_perplexity=math.exp(counted.mean()),
            per_document=tuple(float(n) for n in nats),
            above_crop=above,
            above_crop_interval=interval,
        )

    def _per_token(self, documents: list[list[Pass]], name: str, most: int) -> FloatArray:
        """Return each document's mean loss; of a pass, at most ``most`` tokens count."""
        done = self.journal.done
        return np.array(
            [
                sum(done[p.key][name] for p in passes) / sum(min(p.scored, most) for p in passes)
                for passes in documents
            ]
        )

    def _tokens_per_byte(self, document: TokenizedDocument) -> float:
        if PROTOCOLS[self.options.protocol].whole_text:
            return len(document.tokens) / byte_count(self.scorer.tokenizer, document.tokens)
        return self.scored / document.bytes_of_last

    def _retrieval_cell(self, method: str, length: int, hits: list[bool]) -> RetrievalCell:
        distances = [trial.distance for trial in self._trials[length]]
        overall = Share(
            min(distances), max(distances), sum(hits), len(hits), wilson(sum(hits), len(hits))
        )
        steps: dict[int, list[bool]] = {}
        # Distances that were asked for stand for themselves.
        width = self.original if self.options.distances is None else 1
        for hit, distance in zip(hits, distances, strict=True):
            steps.setdefault((distance - 1) // width, []).append(hit)
        by_distance = tuple(
            Share(
                step * width + 1,
                (step + 1) * width,
                sum(found),
                len(found),
                wilson(sum(found), len(found)),
            )
            for step, found in sorted(steps.items())
        )
        return RetrievalCell(method, length / self.original, length, overall, by_distance)


def _all_passes(text_plan: _TextPlan, trial_plan: _TrialPlan) -> list[Pass]:
    texts = [p for documents in text_plan.values() for passes in documents for p in passes]
    return texts + [p for passes in trial_plan.values() for p in passes]


def _known_by(setting: Setting, length: int) -> str:
    """Return what tells a setting at a length: equal names mean equal passes."""
    if isinstance(setting, Rope):
        numbers = np.append(setting.inv_freq(length), setting.attention_factor(length))
        return "rope " + hashlib.sha256(numbers.tobytes()).hexdigest()[:16]
    text = json.dumps(setting.to_dict(), sort_keys=True)
    return f"{setting.kind} " + hashlib.sha256(text.encode()).hexdigest()[:16]


def environment() -> dict[str, Any]:
    """Return the versions, the processor and the threads that results depend on."""
    import torch

    from .. import __version__

    return {
        "ropewalk": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
    }
