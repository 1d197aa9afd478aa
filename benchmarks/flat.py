"""Time per token from a thousand tokens to a quarter of a million, in place.

The yardstick runs at the same lengths, so that what the memory does is not taken for what the
rotation does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import ropewalk
from ropewalk.rotation import reference

from .peer import first_line
from .result import CaseResult
from .task import THETA, Pair, Shape, random_heads, spread
from .timing import Contestant, measure

SHORTEST = 1024
ROPEWALK, MULTIPLY = "ropewalk in place", "mul_ in place"
_COMPARED_TOKENS = 1024


def row_name(name: str, tokens: int) -> str:
    """Return the name of a contestant at one length, e.g. ``mul_ in place, 4,096``."""
    return f"{name}, {tokens:,}"


def lengths_up_to(longest: int) -> list[int]:
    """Return 1,024, 4,096, … up to ``longest``, each four times the last."""
    out, length = [], SHORTEST
    while length < longest:
        out.append(length)
        length *= 4
    return [*out, longest]


def run_per_token(
    name: str, title: str, shape: Shape, budget: float, report: Callable[[float], None]
) -> CaseResult:
    """Time rotate_qk_ and mul_ on the leading tokens of one q and k of ``shape.tokens``."""
    try:
        import ropewalk.torch as rw
    except ImportError as error:
        return CaseResult(name, title, {}, {}, left_out={ROPEWALK: f"not there: {error}"})
    rope = ropewalk.Rope(head_dim=shape.head_dim, theta=THETA)
    tables = ropewalk.cos_sin(rope, torch.arange(shape.tokens))
    generator = torch.Generator().manual_seed(0)
    heads = shape.q_heads, shape.k_heads
    whole = tuple(random_heads(shape, count, torch.float32, generator) for count in heads)
    contestants, tokens, baselines, left_out = {}, {}, {}, {}
    for length in lengths_up_to(shape.tokens):
        q, k = (x[:, :length] for x in whole)
        cos, sin = (table[:length] for table in tables)
        ours, base = row_name(ROPEWALK, length), row_name(MULTIPLY, length)
        call = _rotation(rw, (q, k), cos, sin)
        try:
            right = _is_right(call, (q, k), cos, sin)
        except Exception as error:  # as of any contestant: the others go on
            left_out[ours] = f"failed with {type(error).__name__}: {first_line(error)}"
            continue
        if not right:
            left_out[ours] = "wrong: not bit for bit the specification's result"
            continue
        contestants[ours] = Contestant(call)
        contestants[base] = Contestant(_multiplication((q, k)))
        tokens[ours] = tokens[base] = length
        baselines[ours] = baselines[base] = base
    timings = measure(contestants, budget=budget, report=report)
    return CaseResult(
        name,
        title,
        timings,
        baselines,
        left_out=left_out,
        errors=dict.fromkeys((n for n in timings if n.startswith(ROPEWALK)), 0.0),
        tokens=tokens,
    )


def _rotation(rw: Any, pair: Pair, cos: torch.Tensor, sin: torch.Tensor) -> Callable[[], object]:
    q, k = pair
    rotate = rw.rotate_qk_
    return lambda: rotate(q, k, cos, sin, pairing="half")


def _multiplication(pair: Pair) -> Callable[[], object]:
    q, k = pair

    def call() -> None:
        q.mul_(-1.0)
        k.mul_(-1.0)

    return call


def _is_right(call: Callable[[], object], pair: Pair, cos: torch.Tensor, sin: torch.Tensor) -> bool:
    tokens = spread(pair[0].shape[1], _COMPARED_TOKENS)
    before = [x[:, tokens] for x in pair]
    call()
    return all(
        torch.equal(x[:, tokens], reference.rotate(old, cos[tokens], sin[tokens], pairing="half"))
        for x, old in zip(pair, before, strict=True)
    )
