"""The passes of a measurement spread over a Ray cluster: one loaded model per machine.

A machine's worker takes all its cores, as a measurement at home does: more workers on it would
hold more copies of the model. Batches are the same as at home; each result goes into the
journal on the machine where the measurement was started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from .. import __version__
from ..cluster import connected, reason_of
from ..errors import InputError
from .loading import Dtype, load
from .passes import Batch, Say, Scored, score_batch
from .scoring import Scorer

_SECONDS_BETWEEN_LOOKS = 1.0
_MOST_TRIES = 3


@dataclass(frozen=True)
class Source:
    """The model that every machine loads, and what it must be.

    Attributes:
        path: where it lies, on every machine.
        digest: of its files: `ropewalk.extend.measure.fingerprint`.
        dtype: of the weights.
        version: of this package; another one might compute other numbers.
    """

    path: str
    digest: str
    dtype: str
    version: str = __version__


class Machine:
    """Scores batches on one machine of the cluster; an actor.

    Args:
        threads: cores to compute with.
    """

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self._scorer: Scorer | None = None

    def load(self, source: Source) -> dict[str, str] | None:
        """Load the model; return the parts of an `InputError` where that cannot be done."""
        # measure imports this module.
        from .measure import fingerprint

        if source.version != __version__:
            return {
                "where": "ropewalk",
                "found": f"version {__version__}",
                "expected": f"{source.version}, as on the machine where it was started",
                "fix": "install the same version everywhere",
            }
        path = Path(source.path)
        try:
            if not path.exists() or fingerprint(path) != source.digest:
                return {
                    "where": source.path,
                    "found": "another model" if path.exists() else "no such file or folder",
                    "expected": "the measured model at the same path on every machine",
                    "fix": "put it there, or on a disk that all machines share",
                }
            self._scorer = Scorer(load(path, dtype=cast("Dtype", source.dtype)))
        except InputError as error:
            # An exception with named parts does not survive the way back.
            parts = ("where", "found", "expected", "fix")
            return {part: getattr(error, part) for part in parts}
        return None

    def score(self, batch: Batch) -> Scored:
        """Run a batch through the loaded model."""
        assert self._scorer is not None
        return score_batch(self._scorer, batch)


@contextmanager
def spread_on_ray(address: str, path: Path, digest: str, dtype: str) -> Iterator[PassesOnRay]:
    """Join a cluster and yield what scores batches on it.

    Args:
        address: see `ropewalk.cluster.check_address`.
        path: of the model.
        digest: of its files.
        dtype: of the weights.

    Raises:
        InputError: no cluster at the address.
        MissingExtraError: Ray is not installed.
    """
    with connected(address) as ray:
        yield PassesOnRay(ray, Source(str(path.resolve()), digest, dtype))


class PassesOnRay:
    """Scores batches on all machines of a cluster; called as `passes.Spread`."""

    def __init__(self, ray: Any, source: Source) -> None:
        self._ray, self._source = ray, source
        self._actor = ray.remote(Machine)
        self._actors: dict[str, Any] = {}
        # What a machine is at: loading (no batch) or a batch.
        self._sent: dict[Any, tuple[str, Batch | None]] = {}
        self._losses: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self._cores: dict[str, int] = {}
        self._used: set[str] = set()

    def environment(self) -> dict[str, Any]:
        """Return what results say of the machines: how many scored something, their threads."""
        threads = sorted({self._cores[node] for node in self._used})
        if not threads:
            return {}
        said = threads[0] if len(threads) == 1 else ", ".join(map(str, threads))
        return {"machines": len(self._used), "threads": said}

    def __call__(self, batches: list[Batch], say: Say) -> Iterator[tuple[Batch, Scored]]:
        """Yield each batch with its results as they come.

        Raises:
            InputError: a machine that cannot load the model, no machine that is left, or a
                batch that failed three times.
        """
        # The longest first (they come last): they decide when all is done.
        waiting = list(batches)
        tries: Counter[Batch] = Counter()
        while waiting or any(batch is not None for _, batch in self._sent.values()):
            self._take_machines()
            self._hand_out(waiting)
            say(self._label())
            came, _ = self._ray.wait(list(self._sent), timeout=_SECONDS_BETWEEN_LOOKS)
            for ref in came:
                node, batch = self._sent.pop(ref)
                try:
                    reply = self._ray.get(ref)
                except self._ray.exceptions.RayError as error:
                    task_raised = isinstance(error, self._ray.exceptions.RayTaskError)
                    if batch is None or not task_raised:
                        self._lose(node)
                    if batch is not None:
                        tries[batch] += 1
                        if tries[batch] >= _MOST_TRIES:
                            raise self._given_up(batch, error) from None
                        waiting.append(batch)
                    continue
                if batch is not None:
                    self._used.add(node)
                    yield batch, reply
                elif reply is not None:
                    raise InputError(**reply).within(f"machine {self._names[node]}")

    def _take_machines(self) -> None:
        """Start a worker on every machine that has none."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive = {}
        for node in self._ray.nodes():
            cores = int(node["Resources"].get("CPU", 0))
            if node["Alive"] and cores:
                alive[node["NodeID"]] = cores
                self._names[node["NodeID"]] = node["NodeManagerHostname"]
        for node_id, cores in alive.items():
            if node_id in self._actors or self._losses[node_id] >= _MOST_TRIES:
                continue
            there = NodeAffinitySchedulingStrategy(node_id, soft=False)
            actor = self._actor.options(num_cpus=cores, scheduling_strategy=there).remote(cores)
            self._actors[node_id], self._cores[node_id] = actor, cores
            self._sent[actor.load.remote(self._source)] = node_id, None
        if not self._actors:
            raise InputError(
                "--on",
                found=f"no machine with cores; {self._losses.total()} workers were lost",
                expected="at least one",
                fix="see `ray status`; then run the same command again: finished work is kept",
            )

    def _hand_out(self, waiting: list[Batch]) -> None:
        busy = {node for node, _ in self._sent.values()}
        for node, actor in self._actors.items():
            if waiting and node not in busy:
                batch = waiting.pop()
                self._sent[actor.score.remote(batch)] = node, batch

    def _label(self) -> str:
        at_work = [batch for _, batch in self._sent.values() if batch is not None]
        if not at_work:
            return "machines load the model"
        others = f" and {len(at_work) - 1} more" if len(at_work) > 1 else ""
        return at_work[0].label + others

    def _lose(self, node: str) -> None:
        """Forget a machine's worker, and end it where it lives on: its cores are wanted."""
        self._losses[node] += 1
        self._ray.kill(self._actors.pop(node))

    def _given_up(self, batch: Batch, error: Exception) -> InputError:
        return InputError(
            batch.label,
            found=f"{_MOST_TRIES} failures, the last: {reason_of(error)}",
            expected="a result",
            fix="run the same command again: finished passes are kept",
        )
