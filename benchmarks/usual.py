"""The usual code, as model files have it, and under ``torch.compile``; copies as yardsticks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .peer import Peer, nothing
from .task import Pair, Pairing, Prepared, RotationTask, TableTask

Rotation = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Pair]


def _turned_half(x: torch.Tensor) -> torch.Tensor:
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-b, a), dim=-1)


def _turned_adjacent(x: torch.Tensor) -> torch.Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((-b, a), dim=-1).flatten(-2)


def rotate_half(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
    """Rotate as Llama's file in transformers does; cos and sin hold each value twice."""
    return q * cos + _turned_half(q) * sin, k * cos + _turned_half(k) * sin


def rotate_adjacent(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
    """Rotate as GPT-J's file in transformers does; cos and sin hold each value twice."""
    return q * cos + _turned_adjacent(q) * sin, k * cos + _turned_adjacent(k) * sin


USUAL: dict[Pairing, Rotation] = {"half": rotate_half, "adjacent": rotate_adjacent}


def rotate_complex(q: torch.Tensor, k: torch.Tensor, turns: torch.Tensor) -> Pair:
    """Rotate as Meta's Llama code does; ``turns`` is complex64, (1 or batch, tokens, 1, planes)."""
    out = []
    for x in (q, k):
        lanes = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        out.append(torch.view_as_real(lanes * turns).flatten(-2).type_as(x))
    return out[0], out[1]


def with_gradient(forward: Callable[[torch.Tensor, torch.Tensor], Pair], task: RotationTask) -> Any:
    """Return a call that rotates and takes the gradient back to q and k."""
    leaves, grads = task.leaves, (task.grad_q, task.grad_k)
    return lambda: torch.autograd.grad(forward(*leaves), leaves, grads)


def as_it_is(result: Pair) -> Pair:
    """Return the result, which is already as the task has it."""
    return result


def _usual(rotation: Rotation, task: RotationTask) -> Prepared:
    q, k = task.q, task.k
    cos, sin = task.doubled()
    if task.gradient:
        call = with_gradient(lambda q, k: rotation(q, k, cos, sin), task)
        return Prepared(call, as_it_is)
    return Prepared(lambda: rotation(q, k, cos, sin), as_it_is)


def _eager(_: Any, task: RotationTask) -> Prepared:
    return _usual(USUAL[task.pairing], task)


def _compiled(_: Any, task: RotationTask) -> Prepared:
    # Shapes compiled before count against a limit, past which it would run eagerly.
    torch.compiler.reset()
    return _usual(torch.compile(USUAL[task.pairing], dynamic=False, fullgraph=True), task)


def _complex(_: Any, task: RotationTask) -> Prepared:
    q, k = task.q, task.k
    turns = torch.complex(task.cos, task.sin)
    turns = (turns if turns.ndim == 3 else turns[None])[:, :, None]
    return Prepared(lambda: rotate_complex(q, k, turns), as_it_is)


def _copy(_: Any, task: RotationTask) -> Prepared:
    q, k = task.q, task.k
    to_q, to_k = task.cleared_out()

    def call() -> None:
        to_q.copy_(q)
        to_k.copy_(k)

    def twice() -> None:
        call()
        call()

    return Prepared(twice if task.gradient else call, as_it_is)


def _multiply(_: Any, task: RotationTask) -> Prepared:
    q, k = task.q.clone(), task.k.clone()

    def call() -> None:
        # By -1, so that values neither grow nor vanish.
        q.mul_(-1.0)
        k.mul_(-1.0)

    return Prepared(call, as_it_is)


COPY = Peer("copy", "dst.copy_(src) of q and of k", nothing, _copy, yardstick=True)
MULTIPLY = Peer("mul_ in place", "x.mul_(-1.0) of q and of k", nothing, _multiply, yardstick=True)
EAGER = Peer("eager", "the usual rotate_half, or its adjacent counterpart", nothing, _eager)
COMPILED = Peer("torch.compile", "the usual code compiled, dynamic=False, warm", nothing, _compiled)
COMPLEX = Peer(
    "complex", "view_as_complex, as in Meta's code", nothing, _complex, pairings=("adjacent",)
)


def _outer_product(_: Any, task: TableTask) -> Prepared:
    rows = task.rows
    inv_freq = torch.tensor(task.rope.inv_freq(), dtype=torch.float32)

    def call() -> Pair:
        angles = torch.outer(torch.arange(rows, dtype=torch.float32), inv_freq)
        return angles.cos(), angles.sin()

    return Prepared(call, as_it_is)


def _copy_tables(_: Any, task: TableTask) -> Prepared:
    source = torch.ones(2, task.rows, task.planes)
    target = torch.ones_like(source)
    return Prepared(lambda: target.copy_(source), as_it_is)


COPY_TABLES = Peer("copy", "copy of the finished tables", nothing, _copy_tables, yardstick=True)
OUTER_PRODUCT = Peer(
    "outer, cos, sin",
    "the usual float32 outer product, then cos and sin",
    nothing,
    _outer_product,
    own_angles=True,
)
