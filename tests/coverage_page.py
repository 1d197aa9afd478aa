"""Writes ``docs/coverage.md`` from a run over every rotary class of transformers.

    python tests/coverage_page.py

`tests/test_coverage.py` runs the same comparison and demands that the committed page equals it.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "coverage.md"

_ALL = ("linear", "dynamic", "yarn", "llama3", "longrope")

_HEAD = """# Coverage: every rotary class of transformers

Written by `python tests/coverage_page.py` from a run against transformers {version}; a test
demands that this page equals the run.

| | count |
|---|---|
| model folders with a rotary class | {folders} |
| of these reproduced | {reproduced} |
| rotary classes | {classes} |
| classes and configs compared | {cases} |
| of these reproduced | {cases_reproduced} |
| scalings compared beside the defaults | {scalings} |

*Reproduced* means: from the config alone, the tables of cos and sin differ by 0 from those of the
class with `precision="float32"` (where *tables* says **equal**), agree with it in the exact mode as
far as float32 goes, and the model's own function rotates random q and k as `rotate` does, within
rounding. A folder is reproduced when all of its classes are. "no rotation" is said of what only
looks like one: it is repeated by `LaneTurns`, not by `rotate`.

*scalings*: "all" is {all}. What a class or its config refuses itself is not counted as accepted.

| folder | class (config) | variant | tables | scalings | rotation |
|---|---|---|---|---|---|
"""


def page(rows: Sequence[object]) -> str:
    """Return the page for the rows of `coverage_cases.every_row`."""
    import transformers
    from coverage_cases import Row

    found = [row for row in rows if isinstance(row, Row)]
    by_folder: dict[str, list[Row]] = {}
    for row in found:
        by_folder.setdefault(row.built.folder, []).append(row)
    good = [f for f, part in by_folder.items() if all(r.outcome == "reproduced" for r in part)]
    text = _HEAD.format(
        version=transformers.__version__,
        folders=len(by_folder),
        reproduced=len(good),
        classes=len({(row.built.folder, row.built.name) for row in found}),
        cases=len(found),
        cases_reproduced=Counter(row.outcome for row in found)["reproduced"],
        scalings=sum(len(row.scalings) for row in found),
        all=", ".join(_ALL),
    )
    return text + "".join(_line(row) for row in found) + _remarks(found)


def _line(row: object) -> str:
    from coverage_cases import Row

    assert isinstance(row, Row)
    name = f"{row.built.name} ({row.built.config_name})"
    cells = [row.built.folder, name, row.variant, row.tables, _scalings(row), row.rotation]
    if row.outcome != "reproduced":
        cells[2:] = [row.variant, row.outcome, "", row.failed]
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |\n"


def _scalings(row: object) -> str:
    from coverage_cases import Row

    assert isinstance(row, Row)
    if not row.scalings:
        return "default only"
    more = [name for name in row.scalings if name not in _ALL]
    if set(_ALL) <= set(row.scalings):
        return ", ".join(["all", *more])
    return ", ".join(row.scalings)


def _remarks(rows: Sequence[object]) -> str:
    from coverage_cases import Row

    said: dict[str, list[str]] = {}
    for row in rows:
        assert isinstance(row, Row)
        for remark in row.remarks:
            said.setdefault(remark, []).append(row.built.folder)
    lines = [
        f"- {', '.join(dict.fromkeys(folders))}: {remark}.\n" for remark, folders in said.items()
    ]
    return "\n## Remarks\n\n" + "".join(lines)


def main() -> int:
    """Run everything and write the page."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(1)
    from coverage_cases import every_row

    rows = every_row()
    PAGE.write_text(page(rows), encoding="utf-8")
    failed = [row for row in rows if row.outcome != "reproduced"]
    for row in failed:
        print(row.built.name, row.built.config_name, row.outcome, row.failed)
    print(f"{len(rows) - len(failed)} of {len(rows)} reproduced; written: {PAGE}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
