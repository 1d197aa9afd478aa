"""A study as a value: which models are trained, on what, with which seeds, and what is measured.

A study file is TOML. A folder of them comes with the package (`names`); any other path may be
given. Every name in it is checked before anything runs.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..encodings import ENCODINGS, Encoding
from ..errors import InputError
from ..extend.methods import method_named
from ..extend.protocols import PROTOCOLS
from ..extend.retrieval import PROBES
from ..rope import Rope
from ..scaling import scaling_from_dict
from .data import Data
from .model import Shape
from .training import Training

_FOLDER = Path(__file__).parent / "studies"
_ROPE_FIELDS = tuple(f.name for f in dataclasses.fields(Rope) if f.name != "head_dim")


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """One model of a study, trained once per seed.

    Attributes:
        name: in tables and plots.
        encoding: how it sees positions while it is trained.
        training: its schedule.
        data: what its batches hold.
        start: the model whose end it starts from; None for first weights.
        method: how ``start`` was stretched for this training; ``none`` for as it was.
        factor: by how much.
    """

    name: str
    encoding: Encoding
    training: Training
    data: Data
    start: str | None = None
    method: str = "none"
    factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class MeasurePlan:
    """What is measured of some of the models.

    Attributes:
        name: of this measurement.
        kind: ``loss`` (and retrieval) by the code of `ropewalk measure`, or ``decay`` of the
            scores with the distance.
        models: names; () for all.
        methods: names of `ropewalk.extend.methods.METHODS`.
        protocols: names of `ropewalk.extend.protocols.PROTOCOLS`.
        multiples: context lengths, in multiples of the length trained at.
        documents: how many.
        scored: tokens scored at the end of each document under fixed targets.
        trials: retrieval trials per cell; 0 for none.
        probe: what they plant.
        distances: how far back; () for all depths.
        split: texts: ``test`` or ``held_out`` files of the standard library.
    """

    name: str
    kind: str = "loss"
    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("crop", "none")
    protocols: tuple[str, ...] = ("fixed",)
    multiples: tuple[float, ...] = (1,)
    documents: int = 8
    scored: int = 128
    trials: int = 0
    probe: str = "key-value"
    distances: tuple[int, ...] = ()
    split: str = "test"


@dataclass(frozen=True, kw_only=True)
class Study:
    """A whole study.

    Attributes:
        name: of its file.
        title: the question in one line.
        report: what makes its page: a name of `ropewalk.lab.reports.REPORTS`.
        length: tokens that lengths are multiples of.
        seeds: one training of every model for each.
        shape: sizes of the models.
        models: by name.
        measures: in order.
        settings: what the report asks of the file, e.g. pairs to compare, predictions.
    """

    name: str
    title: str
    report: str
    length: int
    seeds: tuple[int, ...]
    shape: Shape
    models: dict[str, ModelPlan]
    measures: tuple[MeasurePlan, ...]
    settings: dict[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """Return the names of the studies in the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def read_study(name: str) -> Study:
    """Read a study of the package by its name, or a file by its path.

    Raises:
        InputError: no such study, or a file that is no study.
    """
    path = _FOLDER / f"{name}.toml" if name in names() else Path(name)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise InputError(
            "STUDY",
            found=repr(name),
            expected="a file, or one of " + ", ".join(names()),
            fix="correct the name",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            str(path), found=str(error), expected="TOML", fix="correct the line"
        ) from None
    try:
        return _study(path.stem, table)
    except InputError as error:
        raise error.within(str(path)) from None


def _study(name: str, table: dict[str, Any]) -> Study:
    known = {"title", "report", "seeds", "shape", "training", "data", "models", "measures"}
    known.add("settings")
    for key in table:
        if key not in known:
            raise InputError(
                key, found="an unknown key", expected=", ".join(sorted(known)), fix="remove it"
            )
    shape = _filled(Shape, "shape", table.get("shape", {}))
    training = _filled(Training, "training", table.get("training", {}))
    data = _filled(Data, "data", table.get("data", {}))
    models: dict[str, ModelPlan] = {}
    for key, entry in _table(table, "models").items():
        models[key] = _model(key, entry, shape, training, data, models)
    measures = tuple(
        _measure(entry, models, f"measures {index + 1}")
        for index, entry in enumerate(table.get("measures", []))
    )
    seeds = tuple(table.get("seeds", (1, 2, 3)))
    if not seeds or not all(isinstance(s, int) for s in seeds) or len(set(seeds)) != len(seeds):
        raise InputError(
            "seeds", found=repr(seeds), expected="different whole numbers", fix="e.g. [1, 2, 3]"
        )
    return Study(
        name=name,
        title=str(table.get("title", name)),
        report=str(table.get("report", "table")),
        length=training.length,
        seeds=seeds,
        shape=shape,
        models=models,
        measures=measures,
        settings=table.get("settings", {}),
    )


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    if not isinstance(value, dict) or not value:
        raise InputError(
            key, found=repr(value), expected="at least one table", fix=f"add [{key}.NAME]"
        )
    return value


def _filled(cls: Any, where: str, values: Any, base: Any = None) -> Any:
    """Build a dataclass from a table, over the values of ``base``."""
    if not isinstance(values, dict):
        raise InputError(where, found=repr(values), expected="a table", fix=f"write [{where}]")
    fields = {f.name for f in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            raise InputError(
                f"{where}: {key}",
                found="an unknown key",
                expected=", ".join(sorted(fields)),
                fix="correct or remove it",
            )
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return cls(**plain) if base is None else dataclasses.replace(base, **plain)


def _model(
    name: str,
    entry: dict[str, Any],
    shape: Shape,
    training: Training,
    data: Data,
    before: dict[str, ModelPlan],
) -> ModelPlan:
    where = f"models {name}"
    start = entry.get("start")
    if start is not None and start not in before:
        raise InputError(
            f"{where}: start",
            found=repr(start),
            expected="a model further up: " + ", ".join(before),
            fix="correct the name or move it up",
        )
    stretch, factor = entry.get("method", "none"), float(entry.get("factor", 1.0))
    _check_method(stretch, f"{where}: method")
    if "encoding" in entry:
        encoding = encoding_of(entry["encoding"], shape, f"{where}: encoding")
    elif start is not None:
        encoding = before[start].encoding
    else:
        raise InputError(
            where,
            found="neither encoding nor start",
            expected="one of them",
            fix='e.g. encoding = { kind = "rotary" }',
        )
    base = training if start is None else before[start].training
    if start is not None:
        # It goes on in the data where its start stopped.
        base = dataclasses.replace(base, first_step=base.first_step + base.steps)
    return ModelPlan(
        name=name,
        encoding=encoding,
        training=_filled(Training, f"{where}: training", entry.get("training", {}), base),
        data=_filled(Data, f"{where}: data", entry.get("data", {}), data),
        start=start,
        method=stretch,
        factor=factor,
    )


def encoding_of(table: Any, shape: Shape, where: str) -> Encoding:
    """Build an encoding from a table such as ``{ kind = "rotary", theta = 500.0 }``.

    What belongs to a `Rope` (theta, rotary_dim, scaling …) stands beside the encoding's own
    keys; its head_dim is the model's.
    """
    kinds = ", ".join(ENCODINGS)
    if not isinstance(table, dict) or table.get("kind") not in ENCODINGS:
        raise InputError(
            where, found=repr(table), expected=f"a table whose kind is one of {kinds}", fix="add it"
        )
    cls = ENCODINGS[table["kind"]]
    fields = {f.name for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in table.items() if k != "kind"
    }
    if "inner" in fields:
        values["inner"] = encoding_of(values.get("inner"), shape, f"{where}: inner")
    if "rope" in fields:
        parts: dict[str, Any] = {
            k: values.pop(k) for k in list(values) if k in _ROPE_FIELDS and k not in fields
        }
        if "scaling" in parts:
            parts["scaling"] = scaling_from_dict(parts["scaling"])
        values["rope"] = Rope(head_dim=shape.head_dim, **parts)
    for key in values:
        if key not in fields:
            raise InputError(
                f"{where}: {key}",
                found="an unknown key",
                expected=", ".join(sorted(fields)),
                fix="correct or remove it",
            )
    try:
        return cls(**values)
    except TypeError as error:
        raise InputError(
            where, found=str(error), expected="all fields of the encoding", fix="add them"
        ) from None


def _check_method(name: str, where: str) -> None:
    try:
        method_named(name)
    except InputError as error:
        raise error.within(where) from None


def _measure(entry: dict[str, Any], models: dict[str, ModelPlan], where: str) -> MeasurePlan:
    plan: MeasurePlan = _filled(MeasurePlan, where, {"name": where, **entry})
    for name in plan.methods:
        _check_method(name, where)
    choices = {"protocols": tuple(PROTOCOLS), "models": tuple(models)}
    for key, known in choices.items():
        for name in getattr(plan, key):
            if name not in known:
                raise InputError(
                    f"{where}: {key}",
                    found=repr(name),
                    expected="among " + ", ".join(known),
                    fix="correct the name",
                )
    for key, known in (("probe", tuple(PROBES)), ("kind", ("loss", "decay"))):
        if getattr(plan, key) not in known:
            raise InputError(
                f"{where}: {key}",
                found=repr(getattr(plan, key)),
                expected="one of " + ", ".join(known),
                fix="correct the name",
            )
    return plan
