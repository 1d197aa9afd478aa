"""The page of each study: what the numbers answer, as Markdown, plots and data."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

from ...errors import InputError
from ...show.picture import SUFFIXES
from ...whole_file import write_whole
from ..results import Found, as_csv, collect
from ..study import Study
from .page import Page, draw, markdown

REPORTS: dict[str, str] = {
    "convergence": "convergence",
    "beyond": "beyond",
    "stages": "stages",
    "tuning": "tuning",
    "base-bound": "base_bound",
    "decay": "decay",
    "table": "plain",
}
"""Name in study files to module in this package; each has ``page(found)``."""


def page_of(found: Found) -> Page:
    """Return the page of a finished study.

    Raises:
        InputError: the study names a report that there is none of.
    """
    check_report(found.study.report)
    module = importlib.import_module(f".{REPORTS[found.study.report]}", __package__)
    make: Callable[[Found], Page] = module.page
    return make(found)


def check_report(name: str) -> None:
    """Refuse a report that there is none of, before hours of work and not after.

    Raises:
        InputError: an unknown name.
    """
    if name not in REPORTS:
        raise InputError(
            "report",
            found=repr(name),
            expected="one of " + ", ".join(REPORTS),
            fix="correct the name",
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
