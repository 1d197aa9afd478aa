"""Timing several contestants fairly on a machine that is not quiet.

Contestants take turns in rounds, in an order drawn anew for each round, so that what slows the
machine for a while slows them all. A ratio is taken within each round, and its median over the
rounds is reported: drift that both sides saw cancels.
"""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

# A batch shorter than this is lost in the clock and its calls.
_SHORTEST_BATCH = 5e-4
# A turn of a fast contestant lasts about this long.
_TURN = 0.02
# The other libraries' workers spin for up to a millisecond after their last task.
_SETTLE = 2e-3
# An untimed call opens each turn, to put the contestant's own data into the caches; calls
# longer than this outlast any cache.
_OPENING_CALL_UP_TO = 0.05
# So many calls are timed to find out how long one takes.
_PILOT_CALLS = 3


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Median and quartiles of some numbers."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Contestant:
    """What is timed.

    Attributes:
        call: the work.
        setup: runs untimed before each turn.
    """

    call: Callable[[], object]
    setup: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call of one contestant.

    Attributes:
        rounds: the samples of each round; a contestant that sat a round out has none there.
        batch: calls per sample.
    """

    rounds: tuple[tuple[float, ...], ...]
    batch: int

    @property
    def samples(self) -> list[float]:
        """All samples, in the order taken."""
        return list(itertools.chain.from_iterable(self.rounds))

    @property
    def quartiles(self) -> Quartiles:
        """Over all samples."""
        return quartiles(self.samples)

    @property
    def median(self) -> float:
        """Seconds per call."""
        return self.quartiles.median


def quartiles(values: Sequence[float]) -> Quartiles:
    """Return median and quartiles, interpolated between the values (the "inclusive" kind).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("quartiles of no values")
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


def ratio(ours: Timing, theirs: Timing) -> Quartiles:
    """Return ours / theirs, taken within each round that both played.

    Raises:
        ValueError: they share no round.
    """
    pairs = zip(ours.rounds, theirs.rounds, strict=False)
    return quartiles([statistics.median(a) / statistics.median(b) for a, b in pairs if a and b])


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect now, and not again until the block ends."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def measure(
    contestants: Mapping[str, Contestant],
    *,
    budget: float,
    least_rounds: int = 3,
    most_rounds: int = 40,
    report: Callable[[float], object] = float,
    clock: Callable[[], float] = time.perf_counter,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, Timing]:
    """Time all contestants in interleaved rounds.

    Args:
        contestants: by name.
        budget: seconds for all of them together. ``least_rounds`` are played even where they
            take longer; after them, one that has used its equal share of the budget sits out.
        least_rounds: rounds that every contestant plays.
        most_rounds: where to stop although there is time left.
        report: is told the share of the budget that is used, between turns; by default nothing
            listens.
        clock: seconds; tests pass their own.
        pause: sleeps so many seconds; tests pass their own.

    Returns:
        The samples of each contestant, by name.
    """
    order, rng = list(contestants), random.Random(0)
    rounds: dict[str, list[tuple[float, ...]]] = {name: [] for name in order}
    spent = dict.fromkeys(order, 0.0)
    with no_garbage_collection():
        begun = clock()
        batches = {}
        for name, contestant in contestants.items():
            if contestant.setup is not None:
                contestant.setup()
            batches[name] = _calls_per_batch(contestant.call, clock)
        for index in range(most_rounds):
            if index >= least_rounds and clock() - begun >= budget:
                break
            rng.shuffle(order)
            for name in order:
                if index >= least_rounds and spent[name] > budget / len(order):
                    rounds[name].append(())
                    continue
                start = clock()
                pause(_SETTLE)
                rounds[name].append(_turn(contestants[name], batches[name], clock))
                spent[name] += clock() - start
                report(min(1.0, (clock() - begun) / budget))
    return {name: Timing(tuple(rounds[name]), batches[name][0]) for name in contestants}


def _calls_per_batch(call: Callable[[], object], clock: Callable[[], float]) -> tuple[int, float]:
    """Return how many calls make a batch that the clock can time, and seconds per call."""
    calls, seconds = 1, _time(call, 1, clock)
    if seconds > _OPENING_CALL_UP_TO:
        return calls, seconds

    def shortest(calls: int) -> float:
        # The first call may be slower than those that follow, and any may be interrupted.
        return min(_time(call, calls, clock) for _ in range(_PILOT_CALLS))

    seconds = shortest(calls)
    while seconds < _SHORTEST_BATCH:
        calls *= 2
        seconds = shortest(calls)
    return calls, seconds / calls


def _turn(
    contestant: Contestant, batch: tuple[int, float], clock: Callable[[], float]
) -> tuple[float, ...]:
    calls, estimate = batch
    if contestant.setup is not None:
        contestant.setup()
    if estimate <= _OPENING_CALL_UP_TO:
        contestant.call()
    count = max(1, round(_TURN / (calls * estimate)))
    return tuple(_time(contestant.call, calls, clock) / calls for _ in range(count))


def _time(call: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    repeat = itertools.repeat(None, calls)
    start = clock()
    for _ in repeat:
        call()
    return clock() - start
