"""The units of a study spread over a Ray cluster: one task each, results on this machine's disk.

A worker that sees the lab's folder works in it, so that a training goes on where a killed
worker left it. Any other works in a folder of its own, gets what it needs and gives its
results back as bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import secrets
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..cluster import connected, reason_of
from ..whole_file import replacing
from .schedule import (
    FAILURE,
    MOST_TRIES,
    PROGRESS,
    Progress,
    failed,
    ready,
    share_done,
    unfinished,
)
from .training import STATE
from .units import Unit
from .work import DONE, perform, set_threads

_SECONDS_BETWEEN_LOOKS = 0.5
_QUEUED = 2
"""Units that wait in the cluster beyond its cores: no core is idle between two units, and a
cluster that grows by demand sees some."""

Files = dict[str, bytes]


@dataclass(frozen=True)
class Lab:
    """What a worker is told of the lab.

    Attributes:
        root: the lab's folder, as this machine names it.
        token: name of a file in it for the time of this run: who sees the file sees the folder.
        version: of this package; another one might compute other numbers.
    """

    root: str
    token: str
    version: str


@dataclass(frozen=True)
class Reply:
    """What became of a unit.

    Attributes:
        outcome: ``done`` in the lab's folder, ``files`` to be put there, ``wanting`` the files
            of its needs, or ``failed``.
        files: by name.
        reason: of a failure; its last line says it.
    """

    outcome: str
    files: Files = field(default_factory=dict)
    reason: str = ""


class Board:
    """Where workers write how far they are; an actor, as they may have no disk in common."""

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}

    def tell(self, key: str, share: float) -> None:
        """Note how far a unit is, from 0 to 1."""
        self._shares[key] = share

    def shares(self) -> dict[str, float]:
        """Return what was noted."""
        return self._shares


def run_on_ray(
    units: list[Unit], root: Path, *, address: str, progress: Progress = lambda *_: None
) -> None:
    """Run all units on a Ray cluster, each on one core.

    Args:
        units: each after those that it needs.
        root: the lab's folder; every result is in it as soon as it is there.
        address: see `ropewalk.cluster.check_address`.
        progress: told of seconds of work done, in all, and what runs.

    Raises:
        InputError: no cluster at the address, or a unit that failed three times.
        MissingExtraError: Ray is not installed.
    """
    root = root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    with connected(address) as ray:
        lab = open_lab(root)
        try:
            _Spreading(ray, units, root, lab, progress).run()
        finally:
            (root / lab.token).unlink(missing_ok=True)


def open_lab(root: Path) -> Lab:
    """Put the token of a run into the lab's folder."""
    lab = Lab(str(root), f"on-ray-{secrets.token_hex(8)}", __version__)
    (root / lab.token).touch()
    return lab


class _Spreading:
    """One run: what is sent, what came back, what is shown."""

    def __init__(
        self, ray: Any, units: list[Unit], root: Path, lab: Lab, progress: Progress
    ) -> None:
        self.ray, self.units, self.root, self.lab, self.progress = ray, units, root, lab, progress
        # Tries are counted here, for failures and kills alike.
        self.task = ray.remote(num_cpus=1, max_retries=0)(perform_there)
        self.board = ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()
        self.asked: Any = None
        self.shares: dict[str, float] = {}
        self.sent: dict[Any, Unit] = {}
        self.failures: dict[str, int] = {}
        self.ships_needs = False
        self.shipped: dict[str, Any] = {}

    def run(self) -> None:
        while waiting := unfinished(self.units, self.root):
            self._send(waiting)
            self._receive()
            self._show()
        total = sum(unit.cost for unit in self.units)
        self.progress(total, total, "done")

    def _send(self, waiting: list[Unit]) -> None:
        room = int(self.ray.cluster_resources().get("CPU", 0)) + _QUEUED
        under_way = {unit.key for unit in self.sent.values()}
        for unit in ready(waiting, self.root):
            if len(self.sent) >= room:
                break
            if unit.key not in under_way:
                needs = [self._shipped(key) for key in unit.needs] if self.ships_needs else []
                self.sent[self.task.remote(unit, self.lab, self.board, *needs)] = unit
        wanted = {key for unit in waiting for key in unit.needs}
        self.shipped = {key: ref for key, ref in self.shipped.items() if key in wanted}

    def _shipped(self, key: str) -> Any:
        if key not in self.shipped:
            self.shipped[key] = self.ray.put(files_of(self.root / key))
        return self.shipped[key]

    def _receive(self) -> None:
        if not self.sent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            return
        came, _ = self.ray.wait(list(self.sent), timeout=_SECONDS_BETWEEN_LOOKS)
        for ref in came:
            unit = self.sent.pop(ref)
            try:
                reply = self.ray.get(ref)
            except self.ray.exceptions.RayError as error:
                reply = Reply("failed", reason=reason_of(error))
            self._settle(unit, reply)

    def _settle(self, unit: Unit, reply: Reply) -> None:
        folder = self.root / unit.key
        folder.mkdir(parents=True, exist_ok=True)
        if reply.outcome == "wanting":
            self.ships_needs = True
        elif reply.outcome == "files":
            put_files(folder, reply.files)
        elif reply.outcome == "done":
            # A network's disk may show another machine's file late.
            if not (folder / DONE).exists():
                (folder / DONE).touch()
        else:
            self.shares.pop(unit.key, None)
            (folder / FAILURE).write_text(reply.reason)
            self.failures[unit.key] = self.failures.get(unit.key, 0) + 1
            if self.failures[unit.key] >= MOST_TRIES:
                raise failed(unit, self.root)

    def _show(self) -> None:
        if self.asked is None:
            self.asked = self.board.shares.remote()
        elif self.ray.wait([self.asked], timeout=0)[0]:
            # A board that was lost with its machine starts anew, empty.
            with contextlib.suppress(self.ray.exceptions.RayError):
                self.shares |= self.ray.get(self.asked)
            self.asked = None
        done, running = 0.0, []
        for unit in self.units:
            kept = share_done(unit, self.root)
            share = kept if kept == 1.0 else self.shares.get(unit.key, kept)
            done += unit.cost * share
        for unit in self.sent.values():
            if unit.key in self.shares:
                running.append(unit.label)
        total = sum(unit.cost for unit in self.units)
        self.progress(done, total, "; ".join(running) or "waiting for the cluster")


def perform_there(unit: Unit, lab: Lab, board: Any, *needs: Files) -> Reply:
    """Do a unit in a worker of the cluster.

    Args:
        unit: what to do.
        lab: where it belongs.
        board: handle of the actor that is told of the progress.
        needs: files of each needed unit; none where the worker may see them itself.
    """
    if lab.version != __version__:
        found = f"ropewalk {__version__} on {platform.node()}, {lab.version} where it was started"
        return Reply("failed", reason=found)
    set_threads(1)
    shared = (Path(lab.root) / lab.token).exists()
    if not shared and len(needs) < len(unit.needs):
        return Reply("wanting")
    root = Path(lab.root) if shared else _own_folder(unit, lab)
    try:
        if not shared:
            for key, files in zip(unit.needs, needs, strict=True):
                put_files(root / key, files)
        perform(unit, root, _teller(board, unit.key))
        if shared:
            return Reply("done")
        found_files = files_of(root / unit.key)
    except Exception:
        return Reply("failed", reason=traceback.format_exc())
    shutil.rmtree(root, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.parent.rmdir()  # unless another unit is at work in it
    return Reply("files", found_files)


def _own_folder(unit: Unit, lab: Lab) -> Path:
    """Return the folder of a unit on this machine: a second try here goes on where it was."""
    mine = Path(tempfile.gettempdir()) / f"ropewalk-{lab.token}"
    mine.mkdir(mode=0o700, exist_ok=True)
    return mine / hashlib.sha256(unit.key.encode()).hexdigest()[:16]


def _teller(board: Any, key: str) -> Callable[[float], None]:
    last = float("-inf")

    def tell(share: float) -> None:
        nonlocal last
        if time.monotonic() - last >= 1.0:
            last = time.monotonic()
            board.tell.remote(key, share)

    tell(0.0)
    return tell


def files_of(folder: Path) -> Files:
    """Return the results in a unit's folder; what only serves while it runs is left out."""
    left_out = (STATE, PROGRESS, FAILURE)
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name not in left_out and ".partial" not in path.name
    }


def put_files(folder: Path, files: Files) -> None:
    """Write files into a unit's folder; what says that it is done comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == DONE):
        with replacing(folder / name) as scratch:
            scratch.write_bytes(files[name])
