"""Results of studies made of numbers that a test chooses, for the pages of reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ropewalk.extend.results import Measurement, RetrievalCell, Share, TextCell
from ropewalk.extend.statistics import wilson
from ropewalk.lab.results import Found
from ropewalk.lab.study import MeasurePlan, Study, read_study
from ropewalk.lab.work import _possible

ENVIRONMENT = {
    "ropewalk": "0", "python": "3", "torch": "2", "transformers": "5", "processor": "none",
    "threads": 1, "seconds": 3600.0,
}  # fmt: skip

Curve = Callable[[str, int, int], float]
"""(model, seed, step) to held-out bits per byte."""
Bits = Callable[[str, int, str, int, str, str], float]
"""(model, seed, method, length, protocol, measure) to bits per byte."""
Hits = Callable[[str, int, str, int, int | None], tuple[int, int]]
"""(model, seed, method, length, distance) to hits and trials; distance None: in all."""
NOISE = {1: -0.01, 2: 0.0, 3: 0.01}
"""What a seed adds to all models alike: differences by seed do not see it."""

CLAIM = {"fewer_steps": [0.2, 0.3], "perplexities": [3.5, 4.0]}
COMPARED = {"reference": "rope", "thresholds": [2.6, 2.4, 2.2], "claim": CLAIM}
"""Settings of a convergence study, for `decaying`."""


def none_found(*_: Any) -> tuple[int, int]:
    return 0, 10


def study_of(name: str, **changes: Any) -> Study:
    return dataclasses.replace(read_study(name), **changes)


def found_of(
    study: Study,
    curve: Curve,
    bits: Bits = lambda *_: 2.0,
    hits: Hits = none_found,
    seconds: Callable[[str], float] = lambda _: 1.0,
) -> Found:
    """Fill in every training and every loss measurement of a study."""
    trainings = {
        (name, seed): {
            "log": [
                {
                    "step": step, "training_bits": 2.0, "seconds_per_step": 0.5,
                    "held_out_bits": curve(name, seed, step),
                }
                for step in range(50, plan.training.steps + 1, 50)
            ],
            "parameters": 1_000_000, "position_parameters": 7, "precision": "None",
            "environment": ENVIRONMENT,
        }
        for name, plan in study.models.items()
        for seed in study.seeds
    }  # fmt: skip
    measurements = {
        (plan.name, name, seed): _measured(study, plan, name, seed, bits, hits, seconds)
        for plan in study.measures
        for name in plan.models or tuple(study.models)
        for seed in study.seeds
    }
    return Found(study, trainings, measurements, {}, {"models/made-up": {"format": 1}})


def _share(nearest: int, farthest: int, hits: int, trials: int) -> Share:
    return Share(nearest, farthest, hits, trials, wilson(hits, trials))


def _measured(
    study: Study,
    plan: MeasurePlan,
    model: str,
    seed: int,
    bits: Bits,
    hits: Hits,
    seconds: Callable[[str], float],
) -> list[Measurement]:
    wanted = tuple(round(m * study.length) for m in plan.multiples)
    longest = study.models[model].encoding.longest
    out = []
    for protocol in plan.protocols:
        for lengths, methods in _possible(wanted, plan.methods, longest):
            settings = [(method, length) for method in methods for length in lengths]
            cells, retrieval = [], []
            for method, length in settings:
                value = bits(model, seed, method, length, protocol, plan.name)
                factor = length / study.length
                cells.append(
                    TextCell(method, factor, length, value, value, value, value, (value,) * 4)
                )
                if plan.trials and protocol == "fixed":
                    got = hits(model, seed, method, length, None)
                    each = [(d, hits(model, seed, method, length, d)) for d in plan.distances]
                    by_distance = tuple(_share(d, d, *of) for d, of in each)
                    retrieval.append(
                        RetrievalCell(
                            method, factor, length, _share(1, length, *got),
                            by_distance or (_share(1, length, *got),),
                        )
                    )  # fmt: skip
            by_method = {m: {str(n): seconds(m) for n in lengths} for m in methods}
            out.append(
                Measurement(
                    model=model, model_type="lab decoder", original_length=study.length,
                    protocol=protocol, lengths=lengths, scored=plan.scored,
                    documents=("a", "b", "c", "d"), text_origin="", text_digest="",
                    dtype="float32", precision="exact", seed=0, cells=tuple(cells),
                    short_cells=(), retrieval=tuple(retrieval),
                    environment={**ENVIRONMENT, "seconds_by_method": by_method},
                )
            )  # fmt: skip
    return out


def decaying(model: str, seed: int, step: int) -> float:
    """Falls as a power of the step; T5 takes 1.5 times as many steps, none starts higher."""
    slower = {"t5": 1.5, "alibi": 1.0}.get(model, 1.2)
    if model == "rope":
        slower = 1.0
    worse = {"none": 0.5, "learned": 0.1}.get(model, 0.0)
    return 2 + worse + NOISE[seed] + (400 * slower / step) * 0.5


def row_of(lines: list[str], name: str) -> list[str]:
    """The cells of a Markdown table's row."""
    (row,) = [line for line in lines if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in row.strip("|").split("|")][1:]
