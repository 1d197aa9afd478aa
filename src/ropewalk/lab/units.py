"""The units of work that a study comes to: trainings and measurements, each known by a digest.

Two studies that train the same model (encoding, schedule, data, seed) have the same unit, and
so share its checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ..extend.protocols import PROTOCOLS
from .model import Shape
from .study import MeasurePlan, ModelPlan, Study
from .training import describe

FORMAT = 2
"""Raised when the code changes what a unit computes: older results are then not taken."""


@dataclass(frozen=True)
class Unit:
    """One piece of work.

    Attributes:
        kind: ``model``, or the kind of a measurement.
        key: folder of its results below the lab's folder: the encoding's kind, the seed and a
            digest of ``config``.
        label: for people.
        config: everything that the result depends on, as JSON values.
        needs: keys of the units whose results it reads.
        cost: rough seconds on one core.
        plan: the model or measurement plan.
        model: for measurements, the model plan.
        shape: sizes.
        seed: of the training.
        length: tokens that lengths are multiples of.
    """

    kind: str
    key: str
    label: str
    config: dict[str, Any]
    needs: tuple[str, ...]
    cost: float
    plan: ModelPlan | MeasurePlan
    model: ModelPlan
    shape: Shape
    seed: int
    length: int


def units_of(*studies: Study) -> list[Unit]:
    """Return the units of studies, each once and after those that it needs."""
    units: dict[str, Unit] = {}
    for study in studies:
        for unit in planned_units(study):
            units.setdefault(unit.key, unit)
    return list(units.values())


def planned_units(study: Study) -> list[Unit]:
    """Return one unit for each model and measurement of the file: equal ones have equal keys."""
    out: list[Unit] = []
    by_name: dict[tuple[str, int], Unit] = {}
    for seed in study.seeds:
        for plan in study.models.values():
            unit = _training(study, plan, seed, by_name)
            by_name[plan.name, seed] = unit
            out.append(unit)
    for seed in study.seeds:
        for measure in study.measures:
            for name in measure.models or tuple(study.models):
                out.append(_measurement(study, measure, by_name[name, seed], seed))
    return out


def _training(
    study: Study, plan: ModelPlan, seed: int, before: dict[tuple[str, int], Unit]
) -> Unit:
    start = None if plan.start is None else before[plan.start, seed]
    config = {
        "format": FORMAT,
        "shape": dataclasses.asdict(study.shape),
        "encoding": plan.encoding.to_dict(),
        **describe(plan.training, plan.data),
        "seed": seed,
        "start": None if start is None else start.key.rpartition("-")[2],
        "method": plan.method,
        "factor": plan.factor,
    }
    tokens = plan.training.steps * plan.training.batch * plan.training.length
    return Unit(
        kind="model",
        # Not the plan's name: studies that call the same model otherwise share it too.
        key=f"models/{plan.encoding.kind}-{seed}-{_digest(config)}",
        label=f"training {plan.name}, seed {seed}",
        config=config,
        needs=() if start is None else (start.key,),
        cost=tokens * (1 + plan.training.length / 2048) / 12_000,
        plan=plan,
        model=plan,
        shape=study.shape,
        seed=seed,
        length=study.length,
    )


def _measurement(study: Study, measure: MeasurePlan, trained: Unit, seed: int) -> Unit:
    described = dataclasses.asdict(measure)
    # What it is called and who else is measured changes no number.
    del described["models"], described["name"]
    config = {
        "format": FORMAT,
        "model": trained.key.rpartition("-")[2],
        "measure": described,
        "length": study.length,
    }
    lengths = [multiple * study.length for multiple in measure.multiples]
    tokens = sum(
        (max(lengths) if PROTOCOLS[protocol].whole_text else length) * measure.documents
        for protocol in measure.protocols
        for length in lengths
    )
    tokens += measure.trials * sum(lengths)
    return Unit(
        kind=measure.kind,
        key=f"measurements/{trained.model.encoding.kind}-{seed}-{_digest(config)}",
        label=f"{measure.name}: {trained.model.name}, seed {seed}",
        config=config,
        needs=(trained.key,),
        cost=1 + tokens * len(measure.methods) * (1 + max(lengths) / 4096) / 40_000,
        plan=measure,
        model=trained.model,
        shape=study.shape,
        seed=seed,
        length=study.length,
    )


def _digest(config: dict[str, Any]) -> str:
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
