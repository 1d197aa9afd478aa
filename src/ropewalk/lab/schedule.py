"""Running the units of a study: which can start, where they run, and how far all of it is.

Here they run in processes of their own, one or a few at a time; `on_ray` spreads the same
units over machines. What is finished is on disk and is never done twice.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from ..errors import InputError
from ..whole_file import write_whole
from .units import Unit
from .work import DONE, perform, set_threads

Progress = Callable[[float, float, str], None]
PROGRESS, FAILURE = "progress", "failure.txt"
_SECONDS_BETWEEN_LOOKS = 0.5
MOST_TRIES = 3
"""How often a unit is tried, wherever it runs."""


def unfinished(units: list[Unit], root: Path) -> list[Unit]:
    """Return the units whose results are not there yet."""
    return [unit for unit in units if not (root / unit.key / DONE).exists()]


def ready(waiting: list[Unit], root: Path) -> list[Unit]:
    """Return the units whose needs are done, those first that the longest wait hangs on.

    Args:
        waiting: each after those that it needs.
        root: the lab's folder.
    """
    after: dict[str, float] = {}
    for unit in reversed(waiting):
        left = unit.cost + after.get(unit.key, 0.0)
        for need in unit.needs:
            after[need] = max(after.get(need, 0.0), left)
    able = [u for u in waiting if all((root / need / DONE).exists() for need in u.needs)]
    return sorted(able, key=lambda unit: -unit.cost - after.get(unit.key, 0.0))


class Teller:
    """Writes how far a unit is to a file that the display reads, at most once a second."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / PROGRESS
        self.last = float("-inf")

    def __call__(self, share: float) -> None:
        if time.monotonic() - self.last < 1.0 and share < 1.0:
            return
        self.last = time.monotonic()
        write_whole(self.path, f"{share:.6f}")


def share_done(unit: Unit, root: Path) -> float:
    """Return how far a unit is, from 0 to 1."""
    if (root / unit.key / DONE).exists():
        return 1.0
    try:
        return float((root / unit.key / PROGRESS).read_text())
    except (OSError, ValueError):
        return 0.0


def attempt(unit: Unit, root: Path, threads: int, parent: int) -> None:
    """Do one unit in this process; what went wrong is kept beside its results."""
    _end_with(parent)
    set_threads(threads)
    folder = root / unit.key
    folder.mkdir(parents=True, exist_ok=True)
    try:
        perform(unit, root, Teller(folder))
    except Exception:
        (folder / FAILURE).write_text(traceback.format_exc())
        raise SystemExit(1) from None


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, however that ended.

    A worker left behind by a killed run would write to the same folder as its successor.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_here(
    units: list[Unit],
    root: Path,
    *,
    workers: int,
    threads: int | None = None,
    progress: Progress = lambda *_: None,
) -> None:
    """Run all units in processes on this machine.

    Args:
        units: each after those that it needs.
        root: the lab's folder.
        workers: processes at a time.
        threads: of each; by default the cores are divided among them.
        progress: told of seconds of work done, in all, and what runs.

    Raises:
        InputError: a unit that failed three times; its folder says why.
    """
    context = multiprocessing.get_context("spawn")
    own = threads or max(1, (os.cpu_count() or 1) // workers)
    running: dict[str, tuple[Unit, BaseProcess]] = {}
    tries: dict[str, int] = {}
    total = sum(unit.cost for unit in units)
    try:
        while waiting := unfinished(units, root):
            for key, (unit, process) in list(running.items()):
                if process.is_alive():
                    continue
                del running[key]
                if not (root / key / DONE).exists() and tries[key] >= MOST_TRIES:
                    raise failed(unit, root)
            for unit in ready(waiting, root):
                if len(running) >= workers:
                    break
                if unit.key not in running and not (root / unit.key / DONE).exists():
                    tries[unit.key] = tries.get(unit.key, 0) + 1
                    given = (unit, root, own, os.getpid())
                    process = context.Process(target=attempt, args=given, daemon=True)
                    process.start()
                    running[unit.key] = (unit, process)
            done = sum(unit.cost * share_done(unit, root) for unit in units)
            progress(done, total, "; ".join(unit.label for unit, _ in running.values()))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()
    progress(total, total, "done")


def failed(unit: Unit, root: Path) -> InputError:
    """Return the error that says which unit failed and where the reason is."""
    path = root / unit.key / FAILURE
    lines = path.read_text().strip().splitlines() if path.exists() else ["it was killed"]
    return InputError(
        unit.label,
        found=f"{MOST_TRIES} failures, the last: {lines[-1]}",
        expected="a result",
        fix=f"see {path}; then run the same command again: finished work is kept",
    )
