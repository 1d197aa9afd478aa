"""A progress bar with the time left, on stderr; plain lines where there is no terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

_SECONDS_BETWEEN_LINES = 15.0


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _TimeLeft:
    """Estimates the time left from the work done since the start, not from the last step.

    Passes differ a hundredfold in size; work that an earlier run had done does not count.
    """

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._first: float | None = None

    def text(self, done: float, total: float) -> str:
        if self._first is None:
            self._first = done
        elapsed, worked = time.monotonic() - self._begun, done - self._first
        if done >= total and worked <= 0:
            return "all of it was done before"
        if worked <= 0:
            return "time left: unknown yet"
        return f"{_clock(elapsed)} gone, {_clock(elapsed * (total - done) / worked)} left"


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float, float, str], None]]:
    """Yield a function (done, total, label) that shows how far a long work is."""
    from rich.console import Console

    # transformers shows bars of its own while it loads; two at once garble each other. tqdm
    # reads this when it is imported, which is after here.
    os.environ.setdefault("TQDM_DISABLE", "1")
    console = Console(stderr=True)
    left = _TimeLeft()
    if not console.is_terminal:
        last = [float("-inf")]

        def line(done: float, total: float, label: str) -> None:
            if time.monotonic() - last[0] >= _SECONDS_BETWEEN_LINES or done >= total:
                last[0] = time.monotonic()
                share = 100 * done / total if total else 100.0
                click.echo(f"{title}: {share:3.0f} %, {left.text(done, total)} · {label}", err=True)

        yield line
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:3.0f} % · {task.fields[left]} · {task.fields[label]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0, left="", label="loading the model")

        def show(done: float, total: float, label: str) -> None:
            share = done / total if total else 1.0
            bar.update(task, completed=share, left=left.text(done, total), label=label)

        yield show
