"""Writing a measurement's files: results, plots and report."""

from __future__ import annotations

import json
from pathlib import Path

from ..extend.results import Measurement
from ..whole_file import write_whole
from .measurement_plot import plot
from .measurement_report import report
from .picture import SUFFIXES


def write_measurement(measurement: Measurement, folder: Path) -> list[Path]:
    """Write results.json, loss.png, loss.svg and report.md; return their paths.

    The files of an earlier state of the same run are replaced: the journal beside them has
    made sure that it is the same run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.json"
    write_whole(results, json.dumps(measurement.to_dict(), indent=1) + "\n")
    pictures = []
    for suffix in SUFFIXES:
        picture = folder / f"loss{suffix}"
        plot(measurement, picture)
        pictures.append(picture)
    page = folder / "report.md"
    write_whole(page, report(measurement, (pictures[0].name,)))
    return [page, *pictures, results]
