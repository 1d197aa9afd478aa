"""The cases: what is rotated or built, by whom, and for how long it is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ropewalk.errors import InputError

from . import own
from .flat import run_per_token
from .models import run_model
from .peer import Peer, dtype_name, enter
from .peers import ONNX_NAME, PEERS
from .result import CaseResult
from .task import Pairing, RotationTask, Shape, TableTask
from .timing import measure
from .usual import COMPILED, COPY, COPY_TABLES, EAGER, MULTIPLY, OUTER_PRODUCT

Report = Callable[[float], None]
Runner = Callable[["Case", bool, Report], CaseResult]

# Llama 3 8B's heads, and SmolLM2-135M's.
LARGE, SMALL = (32, 8, 128), (9, 3, 64)
# Where one-token decoding happens: some text is already there.
_DECODE_POSITION = 1000
# In a quick run each case has this share of its time.
_QUICK_SHARE = 0.2

_OWN_PREFILL = (own.IN_PLACE, own.INTO_OUT, own.FRESH)
_OWN_DECODE = (own.IN_PLACE, own.BY_POSITIONS, own.INTO_OUT, own.FRESH)
# At 32,768 tokens of the large shape, the libraries that are slower than the usual code at
# 4,096 are not run again: each call takes seconds.
_FAST_PEERS = tuple(p for p in PEERS if p in (EAGER, COMPILED) or p.name in (ONNX_NAME, "JAX jit"))


@dataclass(frozen=True, slots=True)
class Case:
    """One table of the benchmark.

    Attributes:
        name: short, with hyphens.
        title: one line.
        run: does it.
        budget: seconds of timing.
        expected: seconds altogether on two cores, for the time left.
        quick: part of a quick run.
    """

    name: str
    title: str
    run: Runner
    budget: float
    expected: float
    quick: bool = False

    def seconds(self, quick: bool) -> float:
        """Return the seconds of timing of a full or quick run."""
        return self.budget * (_QUICK_SHARE if quick else 1.0)

    def expected_seconds(self, quick: bool) -> float:
        """Return the seconds altogether of a full or quick run, as guessed."""
        return self.expected - self.budget + self.seconds(quick)


def _rotation(
    shape: Shape,
    dtype: torch.dtype,
    pairing: Pairing,
    rows: tuple[Peer, ...],
    *,
    first_position: int = 0,
    gradient: bool = False,
) -> Runner:
    def run(case: Case, quick: bool, report: Report) -> CaseResult:
        task = RotationTask(shape, dtype, pairing, first_position=first_position, gradient=gradient)
        field = enter(rows, task)
        timings = measure(field.contestants, budget=case.seconds(quick), report=report)
        return CaseResult(
            case.name,
            case.title,
            timings,
            dict.fromkeys(timings, COPY.name),
            moved_bytes=task.moved_bytes,
            left_out=field.left_out,
            errors=field.errors,
        )

    return run


def _tables(rows: int, planes: int) -> Runner:
    def run(case: Case, quick: bool, report: Report) -> CaseResult:
        task = TableTask(rows, planes)
        peers = (COPY_TABLES, OUTER_PRODUCT, own.EXACT_TABLES, own.FLOAT32_TABLES)
        field = enter(peers, task)
        timings = measure(field.contestants, budget=case.seconds(quick), report=report)
        return CaseResult(
            case.name,
            case.title,
            timings,
            dict.fromkeys(timings, COPY_TABLES.name),
            moved_bytes=task.moved_bytes,
            left_out=field.left_out,
            errors=field.errors,
        )

    return run


def _per_token(case: Case, quick: bool, report: Report) -> CaseResult:
    longest = 32768 if quick else 262144
    return run_per_token(
        case.name, case.title, Shape(1, longest, *LARGE), case.seconds(quick), report
    )


def _model(case: Case, quick: bool, report: Report) -> CaseResult:
    return run_model(case.name, case.title, case.seconds(quick), report)


def prefill_name(tokens: int, heads: tuple[int, int, int], dtype: str, pairing: str) -> str:
    """Return the name of a prefill case, e.g. ``prefill-4096-32+8x128-float32-half``."""
    return f"prefill-{tokens}-{heads[0]}+{heads[1]}x{heads[2]}-{dtype}-{pairing}"


def _prefill(
    tokens: int,
    heads: tuple[int, int, int],
    dtype: torch.dtype,
    pairing: Pairing,
    budget: float,
    *,
    peers: tuple[Peer, ...] = PEERS,
    quick: bool = False,
) -> Case:
    shape, named = Shape(1, tokens, *heads), dtype_name(dtype)
    return Case(
        prefill_name(tokens, heads, named, pairing),
        f"prefill, {tokens:,} tokens, {shape}, {named}, {pairing}",
        _rotation(shape, dtype, pairing, (COPY, MULTIPLY, *_OWN_PREFILL, *peers)),
        budget,
        expected=budget + 12,
        quick=quick,
    )


def _decode(batch: int, dtype: torch.dtype, pairing: Pairing, *, quick: bool = False) -> Case:
    shape, named = Shape(batch, 1, *LARGE), dtype_name(dtype)
    return Case(
        f"decode-{batch}-{named}-{pairing}",
        f"decode, one token, batch {batch}, {shape}, {named}, {pairing}",
        _rotation(
            shape,
            dtype,
            pairing,
            (COPY, MULTIPLY, *_OWN_DECODE, *PEERS),
            first_position=_DECODE_POSITION,
        ),
        budget=6,
        expected=12,
        quick=quick,
    )


def _gradient(dtype: torch.dtype) -> Case:
    shape, named = Shape(1, 4096, *LARGE), dtype_name(dtype)
    return Case(
        f"gradient-4096-{named}-half",
        f"forward and backward, 4,096 tokens, {shape}, {named}, half",
        _rotation(shape, dtype, "half", (COPY, own.GRADIENT, EAGER, COMPILED), gradient=True),
        budget=12,
        expected=24,
    )


def all_cases() -> tuple[Case, ...]:
    """Return all cases, in the order in which they are run."""
    f32, bf16 = torch.float32, torch.bfloat16
    pairings: tuple[Pairing, ...] = ("half", "adjacent")
    both = tuple((dtype, pairing) for dtype in (f32, bf16) for pairing in pairings)
    return (
        *(_prefill(4096, LARGE, d, p, 18, quick=p == "half") for d, p in both),
        *(_prefill(4096, SMALL, d, p, 7) for d, p in both),
        *(_prefill(32768, LARGE, d, "half", 30, peers=_FAST_PEERS) for d in (f32, bf16)),
        *(_prefill(32768, SMALL, d, "half", 12) for d in (f32, bf16)),
        *(_decode(1, d, p, quick=(d, p) == (f32, "half")) for d, p in both),
        *(_decode(32, d, "half") for d in (f32, bf16)),
        *(_gradient(d) for d in (f32, bf16)),
        Case(
            "tables-131072",
            "tables of cos and sin, 131,072 positions × 64 planes",
            _tables(131072, 64),
            budget=10,
            expected=12,
            quick=True,
        ),
        Case(
            "per-token",
            f"time per token by length, {Shape(1, 1, *LARGE)}, float32, half",
            _per_token,
            budget=30,
            expected=40,
            quick=True,
        ),
        Case(
            "smollm2-135m",
            "SmolLM2-135M in transformers, as it is and accelerated",
            _model,
            budget=30,
            expected=60,
        ),
    )


def chosen(names: tuple[str, ...], *, quick: bool) -> tuple[Case, ...]:
    """Return the cases whose name contains one of ``names``; all, where none is given.

    Raises:
        InputError: one of the names is in no case.
    """
    cases = all_cases()
    if not names:
        return tuple(c for c in cases if c.quick or not quick)
    for name in names:
        if not any(name in case.name for case in cases):
            raise InputError(
                "--only",
                found=repr(name),
                expected="a part of a case's name",
                fix=f"one of {', '.join(case.name for case in cases)}",
            )
    return tuple(c for c in cases if any(name in c.name for name in names))
