"""A journal of finished work: one line of JSON per unit, so that a killed run resumes.

A unit is written and flushed to disk the moment it is done. On opening, every whole line is
read back; a last line cut short by a kill is dropped and its unit done again. The first line
describes the run: a journal of another run is refused, never mixed in or overwritten.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import InputError


class Journal:
    """The units of one run that are done, by key.

    Args:
        path: the file; created with its folder when missing.
        run: what identifies the run, as JSON values. Keys must match exactly on reopening.

    Raises:
        InputError: the file belongs to another run or is no journal.
    """

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path = path
        self.done: dict[str, Any] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = self._read(run) if path.exists() else 0
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(kept)
        self._file.seek(kept)
        if kept == 0:
            self._write({"run": run})

    def _read(self, run: dict[str, Any]) -> int:
        """Fill ``done`` from the whole lines; return the number of bytes they take."""
        kept = 0
        for number, line in enumerate(self.path.read_bytes().splitlines(keepends=True)):
            if not line.endswith(b"\n"):
                break  # cut short by a kill
            try:
                entry = json.loads(line)
            except ValueError:
                raise InputError(
                    f"{self.path}: line {number + 1}",
                    found="no JSON",
                    expected="a journal of ropewalk measure",
                    fix="choose another --out or remove the file",
                ) from None
            if number == 0:
                self._check_run(entry, run)
            else:
                self.done[entry["key"]] = entry["value"]
            kept += len(line)
        return kept

    def _check_run(self, entry: Any, run: dict[str, Any]) -> None:
        before = entry.get("run") if isinstance(entry, dict) else None
        if before == json.loads(json.dumps(run)):
            return
        differing = (
            [key for key in sorted({*before, *run}) if before.get(key) != run.get(key)]
            if isinstance(before, dict)
            else ["everything"]
        )
        raise InputError(
            str(self.path),
            found=f"the journal of another run (differing: {', '.join(differing)})",
            expected="this run's journal or an empty folder",
            fix="choose another --out, or repeat the options of that run",
        )

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def record(self, key: str, value: Any) -> None:
        """Keep a finished unit on disk."""
        self._write({"key": key, "value": value})
        self.done[key] = value

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
