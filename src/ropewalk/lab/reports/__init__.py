"""The page of each study: what the numbers answer, as Markdown, plots and data."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    """

    module: str
    models: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


REPORTS: dict[str, Report] = {
    "convergence": Report(module="convergence", settings=("reference", "thresholds")),
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


def page_of(found: Found) -> Page:
    """Return the page of a finished study.

    Raises:
        InputError: the study names a report that there is none of.
    """
    check_report(found.study)
    module = importlib.import_module(f".{REPORTS[found.study.report].module}", __package__)
    make: Callable[[Found], Page] = module.page
    return make(found)


def check_report(study: Study) -> None:
    """Refuse a report that there is none of or that lacks something, before hours of work.

    Raises:
        InputError: an unknown name, or a study without what the page reads.
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
