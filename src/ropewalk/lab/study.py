"""A study as a value: which models are trained, on what, with which seeds, and what is measured.

A study file is TOML. A folder of them comes with the package (`names`); any other path may be
given. Every name in it is checked before anything runs.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..encodings import Encoding
from ..errors import InputError
from ..extend.methods import method_named
from ..extend.protocols import PROTOCOLS
from ..extend.retrieval import PROBES
from .data import Data
from .encoding_table import check_known, encoding_of
from .model import Shape
from .training import Training

_FOLDER = Path(__file__).parent / "studies"
_MAY_BE_NOTHING = (
    "warmup", "end_share", "weight_decay", "first_step", "recall_share", "copy_share", "trials",
    "models", "distances",
)  # fmt: skip
_WORDS = {
    "int": "a whole number",
    "int | None": "a whole number",
    "float": "a number",
    "str": "a text",
    "tuple[str, ...]": "a list of texts",
    "tuple[int, ...]": "a list of whole numbers",
    "tuple[float, ...]": "a list of numbers",
}
_SPLITS = ("test", "held_out")
_SHORTEST_RECALL = 32
"""Three lines of a key and its value fit into fewer bytes."""


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
    measures = _measures(table.get("measures", []), models)
    seeds = table.get("seeds", [1, 2, 3])
    if not _fits("tuple[int, ...]", seeds) or not seeds or len(set(seeds)) != len(seeds):
        raise InputError(
            "seeds", found=repr(seeds), expected="different whole numbers", fix="e.g. [1, 2, 3]"
        )
    title, report = table.get("title", name), table.get("report", "table")
    for key, value in (("title", title), ("report", report)):
        if not isinstance(value, str):
            raise InputError(key, found=repr(value), expected="a text", fix="put it in quotes")
    settings = table.get("settings", {})
    if not isinstance(settings, dict):
        raise InputError(
            "settings", found=repr(settings), expected="a table", fix="write [settings]"
        )
    study = Study(
        name=name,
        title=title,
        report=report,
        length=training.length,
        seeds=tuple(seeds),
        shape=shape,
        models=models,
        measures=measures,
        settings=settings,
    )
    from .reports import check_report

    check_report(study)
    return study


def _measures(entries: Any, models: dict[str, ModelPlan]) -> tuple[MeasurePlan, ...]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(
            "measures", found=repr(entries), expected="tables", fix="write [[measures]]"
        )
    plans = [_measure(entry, models, f"measures {i + 1}") for i, entry in enumerate(entries)]
    names = [plan.name for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                "measures",
                found=f"{names.count(name)} of the name {name!r}",
                expected="a name of its own for each",
                fix="rename all but one",
            )
    return tuple(plans)


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
    check_known(values, {f.name for f in dataclasses.fields(cls)}, where)
    for f in dataclasses.fields(cls):
        if f.name in values and not _fits(str(f.type), values[f.name], f.name in _MAY_BE_NOTHING):
            expected = _WORDS[str(f.type)]
            raise InputError(
                f"{where}: {f.name}",
                found=repr(values[f.name]),
                expected=expected if f.name in _MAY_BE_NOTHING else f"{expected}, not 0 or empty",
                fix="correct the value",
            )
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return cls(**plain) if base is None else dataclasses.replace(base, **plain)


def _fits(kind: str, value: Any, may_be_nothing: bool = True) -> bool:
    """Tell whether a value of the file is of a field's type; numbers are never negative."""
    if not may_be_nothing and value in (0, "", []):
        return False
    if kind.startswith("tuple"):
        inner = kind[len("tuple[") :].partition(",")[0]
        return isinstance(value, list) and all(_fits(inner, v, may_be_nothing) for v in value)
    if kind == "str":
        return isinstance(value, str)
    if kind == "float" and isinstance(value, float):
        return 0 <= value < math.inf
    return type(value) is int and value >= 0


def _model(
    name: str,
    entry: Any,
    shape: Shape,
    training: Training,
    data: Data,
    before: dict[str, ModelPlan],
) -> ModelPlan:
    where = f"models {name}"
    known = ("encoding", "training", "data", "start", "method", "factor")
    if not isinstance(entry, dict) or (unknown := [k for k in entry if k not in known]):
        raise InputError(
            where,
            found=repr(entry) if not isinstance(entry, dict) else f"the unknown key {unknown[0]!r}",
            expected="a table with " + ", ".join(known),
            fix="correct or remove it",
        )
    start = entry.get("start")
    if start is not None and (not isinstance(start, str) or start not in before):
        raise InputError(
            f"{where}: start",
            found=repr(start),
            expected="a model further up: " + ", ".join(before),
            fix="correct the name or move it up",
        )
    stretch, factor = entry.get("method", "none"), entry.get("factor", 1.0)
    _check_method(stretch, f"{where}: method")
    if not _fits("float", factor) or factor < 1:
        raise InputError(
            f"{where}: factor",
            found=repr(factor),
            expected="a number, at least 1",
            fix="e.g. factor = 4",
        )
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
    if start is not None:
        # It goes on in the data where its start stopped; the rest of that schedule is not its own.
        gone = before[start].training
        training = dataclasses.replace(training, first_step=gone.first_step + gone.steps)
    plan = ModelPlan(
        name=name,
        encoding=encoding,
        training=_filled(Training, f"{where}: training", entry.get("training", {}), training),
        data=_filled(Data, f"{where}: data", entry.get("data", {}), data),
        start=start,
        method=stretch,
        factor=float(factor),
    )
    _check_fits_together(plan, where)
    return plan


def _check_fits_together(plan: ModelPlan, where: str) -> None:
    """Refuse what would fail, or give batches of another length, hours later."""
    training, data, longest = plan.training, plan.data, plan.encoding.longest
    reach = training.length if training.skips is None else training.skips
    if training.end_share > 1:
        wrong = ("end_share", str(training.end_share), "at most 1")
    elif reach < training.length:
        wrong = ("skips", str(reach), f"at least the length, {training.length}")
    elif longest is not None and longest < reach:
        wrong = ("length", str(reach), f"at most the {longest} positions of the encoding")
    elif data.recall_share + data.copy_share > 1:
        shares = f"{data.recall_share} and {data.copy_share}"
        wrong = ("recall_share, copy_share", shares, "together at most 1")
    elif data.recall_share and training.length < _SHORTEST_RECALL:
        wrong = ("length", str(training.length), f"at least {_SHORTEST_RECALL} to recall lines")
    else:
        return
    raise InputError(f"{where}: {wrong[0]}", found=wrong[1], expected=wrong[2], fix="correct it")


def _check_method(name: Any, where: str) -> None:
    if not isinstance(name, str):
        raise InputError(where, found=repr(name), expected="a text", fix="put it in quotes")
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
    ones = (("probe", tuple(PROBES)), ("kind", ("loss", "decay")), ("split", _SPLITS))
    for key, known in ones:
        if getattr(plan, key) not in known:
            raise InputError(
                f"{where}: {key}",
                found=repr(getattr(plan, key)),
                expected="one of " + ", ".join(known),
                fix="correct the name",
            )
    return plan
