"""What a study found, as values for its report and as one tidy table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..extend.results import Measurement
from .schedule import unfinished
from .study import Study
from .units import planned_units
from .work import results_of

COLUMNS = (
    "study", "model", "seed", "what", "measure", "protocol", "method", "factor", "length",
    "document", "distance", "step", "metric", "value", "trials",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The results of all units of a study.

    Attributes:
        study: what was asked.
        trainings: (model, seed) to the result of its training.
        measurements: (measurement, model, seed) to what was measured, one per protocol.
        others: the same for measurements of another kind than loss.
        configs: key of each unit to its exact configuration.
    """

    study: Study
    trainings: dict[tuple[str, int], dict[str, Any]]
    measurements: dict[tuple[str, str, int], list[Measurement]]
    others: dict[tuple[str, str, int], Any]
    configs: dict[str, Any]

    def measured(self, measure: str) -> list[str]:
        """Return the models that a measurement has results of, in the study's order."""
        names = {model for name, model, _ in self.measurements if name == measure}
        return [name for name in self.study.models if name in names]

    def curve(self, model: str, seed: int) -> tuple[list[int], list[float]]:
        """Return steps and held-out bits per byte of a training."""
        log = self.trainings[model, seed]["log"]
        return [e["step"] for e in log], [e["held_out_bits"] for e in log]

    def ends(self, model: str) -> list[float]:
        """Return the last held-out bits per byte of each seed."""
        return [self.curve(model, seed)[1][-1] for seed in self.study.seeds]

    def hits(self, measure: str, model: str, method: str, length: int) -> tuple[int, int]:
        """Return retrieval hits and trials of all seeds together, 0 of 0 where none was asked."""
        hits = trials = 0
        for seed in self.study.seeds:
            for m in self.measurements.get((measure, model, seed), []):
                for cell in m.retrieval:
                    if (cell.method, cell.length) == (method, length):
                        hits, trials = hits + cell.overall.hits, trials + cell.overall.trials
        return hits, trials

    def cells(self, measure: str, model: str, seed: int, protocol: str) -> list[Any]:
        """Return the text cells of one protocol; none of a model that was not measured so."""
        found = self.measurements.get((measure, model, seed), [])
        return [c for m in found if m.protocol == protocol for c in m.cells]

    def bits(
        self, measure: str, model: str, method: str, length: int, protocol: str = "fixed"
    ) -> list[float] | None:
        """Return bits per byte of each seed; None where it was not or could not be run."""
        out = []
        for seed in self.study.seeds:
            cells = self.cells(measure, model, seed, protocol)
            values = [c.bits_per_byte for c in cells if (c.method, c.length) == (method, length)]
            if not values:
                return None
            out.append(values[0])
        return out

    def seconds(self) -> float:
        """Return processor seconds of all trainings and passes."""
        total = 0.0
        for result in self.trainings.values():
            log = result["log"]
            steps = [0, *(e["step"] for e in log)]
            total += sum(
                (b - a) * e["seconds_per_step"]
                for a, b, e in zip(steps, steps[1:], log, strict=False)
            )
        for found in self.measurements.values():
            total += sum(m.environment["seconds"] for m in found)
        return total


def collect(study: Study, root: Path) -> Found:
    """Read the results of a finished study.

    Raises:
        InputError: units that are not done.
    """
    units = planned_units(study)
    left = unfinished(units, root)
    if left:
        raise InputError(
            str(root),
            found=f"{len(left)} of {len(units)} units not done, e.g. {left[0].label}",
            expected="a finished study",
            fix=f"ropewalk lab run {study.name} --out {root}",
        )
    trainings: dict[tuple[str, int], dict[str, Any]] = {}
    measurements: dict[tuple[str, str, int], list[Measurement]] = {}
    others: dict[tuple[str, str, int], Any] = {}
    for unit in units:
        result = results_of(unit, root)
        name = unit.model.name
        if unit.kind == "model":
            trainings[name, unit.seed] = result
        elif unit.kind == "loss":
            found = [Measurement.from_dict(data) for data in result]
            measurements[unit.plan.name, name, unit.seed] = found
        else:
            others[unit.plan.name, name, unit.seed] = result
    return Found(study, trainings, measurements, others, {u.key: u.config for u in units})


def tidy(found: Found) -> Iterator[dict[str, Any]]:
    """Yield one row per number, with the same columns everywhere."""
    name = found.study.name
    for (model, seed), result in found.trainings.items():
        for entry in result["log"]:
            for metric in ("training_bits", "held_out_bits", "seconds_per_step"):
                yield {
                    "study": name, "model": model, "seed": seed, "what": "training",
                    "step": entry["step"], "metric": metric, "value": entry[metric],
                }  # fmt: skip
    for (measure, model, seed), parts in found.measurements.items():
        for m in parts:
            base = {
                "study": name, "model": model, "seed": seed, "measure": measure,
                "protocol": m.protocol,
            }  # fmt: skip
            for cell in m.cells:
                at = {"method": cell.method, "factor": cell.factor, "length": cell.length}
                yield {
                    **base, **at, "what": "loss", "metric": "bits_per_byte",
                    "value": round(cell.bits_per_byte, 6),
                }  # fmt: skip
                for document, nats in zip(m.documents, cell.per_document, strict=True):
                    yield {
                        **base, **at, "what": "loss", "document": document,
                        "metric": "nats_per_token", "value": round(nats, 6),
                    }  # fmt: skip
            for r in m.retrieval:
                for share in r.by_distance:
                    yield {
                        **base, "what": "retrieval", "method": r.method, "factor": r.factor,
                        "length": r.length, "distance": f"{share.nearest}-{share.farthest}",
                        "metric": "hits", "value": share.hits, "trials": share.trials,
                    }  # fmt: skip
    for (measure, model, seed), result in found.others.items():
        base = {"study": name, "model": model, "seed": seed, "measure": measure, "what": "decay"}
        yield from ({**base, **row} for row in _by_distance(result))


def _by_distance(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield means over layers and heads for each bin of distance; ``trials`` counts pairs."""
    each = {key: result[key] for key in ("weight", "score", "score_magnitude")}
    rotary = result["rotary"]
    if rotary is not None:
        each |= {"bound": rotary["bound"], "share_of_bound": rotary["share_of_bound"]["mean"]}
    bins = result["distances"]
    spans = [f"{a}-{b}" for a, b in zip(bins["first"], bins["last"], strict=True)]
    for metric, values in each.items():
        means = np.mean(values, axis=(0, 1))
        for span, value, pairs in zip(spans, means, bins["pairs"], strict=True):
            yield {
                "length": result["length"], "distance": span, "metric": metric,
                "value": float(f"{value:.6g}"), "trials": pairs,
            }  # fmt: skip


def as_csv(found: Found) -> str:
    """Return the tidy table as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(tidy(found))
    return out.getvalue()
