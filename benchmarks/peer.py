"""What the harness knows of one contestant, and the checked list of those that play."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from .task import Pairing, Prepared, RotationTask, Task
from .timing import Contestant

FLOATS = (torch.float32, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Peer:
    """One contestant: how it is imported, what it can do, how it is set up.

    Attributes:
        name: in the table.
        what: what is timed, in a line.
        load: imports it; raises ImportError where it is not installed.
        prepare: (what ``load`` returned, task) → ``Prepared``.
        package: the distribution whose version is printed; none for the usual code.
        pairings: those that it can do.
        dtypes: those that it can do.
        own_angles: it cannot be given cos and sin, and forms angles in float32 itself.
        exact: the specification's own products are demanded, bit for bit.
        rows_apart: sequences of one batch may be at different positions.
        yardstick: no rotation; there is nothing to check.
    """

    name: str
    what: str
    load: Callable[[], Any]
    prepare: Callable[[Any, Any], Prepared]
    package: str | None = None
    pairings: tuple[Pairing, ...] = ("half", "adjacent")
    dtypes: tuple[torch.dtype, ...] = FLOATS
    own_angles: bool = False
    exact: bool = False
    rows_apart: bool = True
    yardstick: bool = False

    def refusal(self, task: Task) -> str | None:
        """Return why it cannot do a task, or None."""
        if not isinstance(task, RotationTask):
            return None
        if task.pairing not in self.pairings:
            return f"cannot pair {task.pairing}"
        if task.dtype not in self.dtypes:
            return f"cannot do {dtype_name(task.dtype)} on CPU"
        if task.shape.batch > 1 and not self.rows_apart:
            return "takes one position for the whole batch"
        return None

    def version(self) -> str | None:
        """Return the version installed, or None."""
        if self.package is None:
            return None
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class Field:
    """Who plays, who does not and why.

    Attributes:
        contestants: by name, checked.
        left_out: reasons by name.
        errors: each checked one's largest error as a share of what is allowed.
    """

    contestants: dict[str, Contestant]
    left_out: dict[str, str]
    errors: dict[str, float]


def importing(name: str) -> Callable[[], ModuleType]:
    """Return a function that imports the module ``name``."""
    return lambda: importlib.import_module(name)


def nothing() -> None:
    """Load nothing: for the usual code, which is in this folder."""


def dtype_name(dtype: torch.dtype) -> str:
    """Return e.g. "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def enter(peers: Iterable[Peer], task: Task) -> Field:
    """Load, set up and check every peer; leave out those that cannot or are wrong."""
    contestants, left_out, errors = {}, {}, {}
    for peer in peers:
        reason = peer.refusal(task)
        if reason is None:
            outcome = _enter_one(peer, task)
            if isinstance(outcome, str):
                reason = outcome
            else:
                contestants[peer.name], worst = outcome
                if worst is not None:
                    errors[peer.name] = worst
        if reason is not None:
            left_out[peer.name] = reason
    return Field(contestants, left_out, errors)


def _enter_one(peer: Peer, task: Task) -> str | tuple[Contestant, float | None]:
    try:
        module = peer.load()
    except ImportError as error:
        return f"not installed: {first_line(error)}"
    try:
        prepared = peer.prepare(module, task)
        result = prepared.read(prepared.call())
    except Exception as error:  # another library's; whatever it is, the others go on
        return f"failed with {type(error).__name__}: {first_line(error)}"
    if peer.yardstick:
        return Contestant(prepared.call), None
    worst = task.worst_error(result, own_angles=peer.own_angles, exact=peer.exact)
    if worst > 1:
        if peer.exact:
            return "wrong: not bit for bit the specification's result"
        return f"wrong: off by {worst:.3g} times what rounding explains"
    return Contestant(prepared.call), worst


def first_line(error: object) -> str:
    """Return the first line of an error's message or a report, cut."""
    return (str(error).strip().splitlines() or ["no message"])[0][:120]
