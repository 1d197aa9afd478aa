"""Where and with what a run was made."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import ropewalk

from .peer import Peer


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts beside which the numbers are to be read.

    Attributes:
        date: in UTC, to the minute.
        processor: its name.
        cores: those that this process may use.
        threads: those that PyTorch uses; ONNX Runtime is given as many.
        memory_gib: of the machine.
        system: kernel and C library.
        commit: of the repository, with ``-dirty`` where files were changed; None outside one.
        versions: of Python and every package timed.
    """

    date: str
    processor: str
    cores: int
    threads: int
    memory_gib: float
    system: str
    commit: str | None
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """Return the facts as sentences."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [
            f"{self.date}; commit {self.commit or 'unknown'}",
            (
                f"{self.processor}, {self.cores} cores, {self.memory_gib:.0f} GiB, "
                f"{self.threads} threads"
            ),
            self.system,
            versions,
        ]

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return asdict(self)


def this_machine(peers: Iterable[Peer]) -> Machine:
    """Return the facts of this machine and the versions of what ``peers`` stand for."""
    versions = {
        "ropewalk": ropewalk.__version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
    }
    for peer in peers:
        version = peer.version()
        if peer.package is not None and version is not None:
            versions[peer.package] = version
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        processor=_processor(),
        cores=_cores(),
        threads=torch.get_num_threads(),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        system=platform.platform(),
        commit=_commit(),
        versions=versions,
    )


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    facts = dict(line.partition(":")[::2] for line in lines if ":" in line)
    stripped = {key.strip(): value.strip() for key, value in facts.items()}
    name = stripped.get("model name") or platform.processor() or platform.machine()
    # Some virtual machines hide the name; these numbers tell the generation.
    if "cpu family" in stripped:
        name += f" (family {stripped['cpu family']}, model {stripped['model']})"
    return name


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        run = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()
