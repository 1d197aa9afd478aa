"""The page of each study: what the numbers answer, as Markdown, plots and data."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...show.picture import SUFFIXES
from ...whole_file import write_whole
from ..results import Found, as_csv, collect
from ..study import Study
from .page import Page, draw, markdown


@dataclass(frozen=True, kw_only=True)
class Report:
    """A kind of page, and what a study must have for it.

    Attributes:
        module: in this package; it has ``page(found)``.
        models: names of models that the page speaks of.
        measures: names of measurements that it reads.
        settings: keys of ``[settings]`` that it reads.
        may: further keys of ``[settings]`` that it reads where they are.
    """

    module: str
    models: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


REPORTS: dict[str, Report] = {
    "convergence": Report(
        module="convergence", settings=("reference", "thresholds"), may=("claim",)
    ),
    "beyond": Report(module="beyond", measures=("beyond",)),
    "stages": Report(module="stages", measures=("stages",)),
    "tuning": Report(
        module="tuning",
        models=("long", "yarn-400", "pose-400", "control-400"),
        measures=("as trained", "short", "control"),
    ),
    "base-bound": Report(
        module="base_bound", measures=("distance", "loss"), settings=("predicted",)
    ),
    "decay": Report(module="decay", measures=("decay",)),
    "table": Report(module="plain"),
}
"""By the name in study files."""


def _numbers(value: object, count: int | None = None) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and count in (None, len(value))
        and all(type(v) in (int, float) and 0 < v < math.inf for v in value)
    )


def _claim(value: object) -> bool:
    keys = {"fewer_steps", "perplexities"}
    return (
        isinstance(value, dict)
        and set(value) == keys
        and all(_numbers(v, 2) for v in value.values())
        and value["fewer_steps"][0] < value["fewer_steps"][1] < 1
    )


def _predicted(value: object, study: Study) -> bool:
    plans = [measure for measure in study.measures if measure.name == "distance"]
    measured = [name for plan in plans for name in plan.models or study.models]
    return isinstance(value, dict) and all(_numbers([value.get(name)]) for name in measured)


_SETTINGS: dict[str, tuple[str, Callable[[Any, Study], bool]]] = {
    "reference": ("the name of a model", lambda v, study: isinstance(v, str) and v in study.models),
    "thresholds": ("a list of losses", lambda v, _: _numbers(v)),
    "claim": (
        "fewer_steps, two shares below 1, the lower first; perplexities, two numbers",
        lambda v, _: _claim(v),
    ),
    "predicted": ("a distance for each model whose distances are measured", _predicted),
    "remarks": (
        "a list of sentences",
        lambda v, _: isinstance(v, list) and all(isinstance(line, str) and line for line in v),
    ),
}
"""What a key of ``[settings]`` must be, in words and as a test."""


def page_of(found: Found) -> Page:
    """Return the page of a finished study, its file's remarks after what was found.

    Raises:
        InputError: the study names a report that there is none of.
    """
    check_report(found.study)
    module = importlib.import_module(f".{REPORTS[found.study.report].module}", __package__)
    make: Callable[[Found], Page] = module.page
    page = make(found)
    remarks = found.study.settings.get("remarks", [])
    return dataclasses.replace(page, answers=[*page.answers, *remarks])


def check_report(study: Study) -> None:
    """Refuse a report that there is none of or that lacks something, before hours of work.

    Raises:
        InputError: an unknown name, a study without what the page reads, or a setting that
            nothing reads.
    """
    name = study.report
    if name not in REPORTS:
        raise InputError(
            "report",
            found=repr(name),
            expected="one of " + ", ".join(REPORTS),
            fix="correct the name",
        )
    report = REPORTS[name]
    has = {
        "models": set(study.models),
        "measures": {measure.name for measure in study.measures},
        "settings": set(study.settings),
    }
    for table, there in has.items():
        missing = [key for key in getattr(report, table) if key not in there]
        if missing:
            raise InputError(
                table,
                found=f"no {missing[0]!r}, which the report {name!r} reads",
                expected=", ".join(getattr(report, table)),
                fix='add it, or write report = "table"',
            )
    readable = (*report.settings, *report.may, "remarks")
    for key in study.settings:
        if key not in readable:
            raise InputError(
                f"settings: {key}",
                found="a key that nothing reads",
                expected=", ".join(readable),
                fix="correct or remove it",
            )
        expected, fits = _SETTINGS[key]
        if not fits(study.settings[key], study):
            raise InputError(
                f"settings: {key}",
                found=repr(study.settings[key]),
                expected=expected,
                fix="correct the value",
            )


def write_report(study: Study, root: Path, write: Path | None) -> list[str]:
    """Return the answers, line by line; with ``write``, put page, plots and data there.

    The page is ``write/STUDY.md``; plots, ``results.csv`` and ``configs.json`` are in the
    folder ``write/STUDY``.

    Raises:
        InputError: a study that is not finished.
    """
    found = collect(study, root)
    page = page_of(found)
    lines = [study.title, "", *(f"• {sentence}" for sentence in page.answers)]
    if write is None:
        return lines
    folder = write / study.name
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for plot in page.plots:
        for suffix in SUFFIXES:
            draw(plot, folder / f"{plot.name}{suffix}")
        pictures.append(f"{study.name}/{plot.name}.png")
    write_whole(folder / "results.csv", as_csv(found))
    write_whole(folder / "configs.json", json.dumps(found.configs, indent=1) + "\n")
    path = write / f"{study.name}.md"
    write_whole(path, markdown(found, page, pictures))
    return [*lines, "", f"wrote {path} and {folder}"]
