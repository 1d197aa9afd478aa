"""What is timed on a GPU: the cases, and who takes part in them.

Every contestant is given the same numbers, is checked against the reference before it is timed,
and works through several sets of tensors in turn, several times the size of the second-level
cache: a text is not in the cache when it is rotated. One token is, as it was just computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ropewalk.rotation import reference, triton_kernel

from .usual import rotate_half

Pair = tuple[torch.Tensor, torch.Tensor]
COPY, EAGER = "copy", "eager"
_SETS_BYTES = 256 << 20
_MOST_SETS = 64


@dataclass(frozen=True, slots=True)
class Case:
    """Sizes and kind of one table.

    Attributes:
        kind: the rotation; with its gradient; after a norm; into a cache.
    """

    kind: Literal["forward", "forward+backward", "norm", "cache"]
    batch: int
    time: int
    q_heads: int
    k_heads: int
    dim: int
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """A line for the table."""
        dtype = str(self.dtype).removeprefix("torch.")
        text = f"{self.time} tokens" if self.time > 1 else f"decode, batch {self.batch}"
        return f"{self.kind}, {text}, {self.q_heads}+{self.k_heads} heads × {self.dim}, {dtype}"

    @property
    def moved(self) -> int:
        """Bytes read and written at least: q and k once in, once out, and that for each pass."""
        heads = self.q_heads + self.k_heads * (2 if self.kind == "cache" else 1)
        once = self.batch * self.time * heads * self.dim * self.dtype.itemsize
        return 2 * once * (2 if self.kind == "forward+backward" else 1)


class Tensors:
    """One set of inputs for a case, and cos and sin in the forms that are in use."""

    def __init__(self, case: Case, device: str, seed: int) -> None:
        generator = torch.Generator(device=device).manual_seed(seed)

        def random(*shape: int) -> torch.Tensor:
            made = torch.randn(*shape, generator=generator, device=device)
            return made.to(case.dtype)

        sizes = case.batch, case.time
        self.q = random(*sizes, case.q_heads, case.dim)
        self.k = random(*sizes, case.k_heads, case.dim)
        self.v = random(*sizes, case.k_heads, case.dim)
        self.grads = (random(*self.q.shape), random(*self.k.shape))
        self.weights = (random(case.dim), random(case.dim))
        planes = case.dim // 2
        frequencies = 1e4 ** -(torch.arange(planes, device=device, dtype=torch.float64) / planes)
        angles = torch.arange(case.time, device=device).double()[:, None] * frequencies
        self.cos, self.sin = angles.cos().float(), angles.sin().float()
        # As model files have it: each value twice, in the dtype of the model.
        self.doubled = [torch.cat((t, t), -1).to(case.dtype)[None] for t in (self.cos, self.sin)]
        self.narrow = [t.to(case.dtype) for t in (self.cos, self.sin)]
        blocks = -(-case.batch * case.time // 16)
        self.caches = [random(blocks, 16, case.k_heads, case.dim) for _ in range(2)]
        self.slots = torch.randperm(blocks * 16, generator=generator, device=device)[
            : case.batch * case.time
        ].view(sizes)

    def by_head(self) -> Pair:
        """Return q and k as model files hold them: (batch, heads, time, lanes) views."""
        return self.q.transpose(1, 2), self.k.transpose(1, 2)


Work = Callable[[Tensors], Any]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do it.

    Attributes:
        work: does it to one set.
        result: q and k, rotated, out of the set and what ``work`` returned; None: not checked.
    """

    work: Work
    result: Callable[[Tensors, Any], Pair] | None


def by_time(_: Tensors, made: Any) -> Pair:
    """Return results that are (batch, heads, time, lanes) as (batch, time, heads, lanes)."""
    return made[0].transpose(1, 2), made[1].transpose(1, 2)


def as_made(_: Tensors, made: Any) -> Pair:
    """Return results that need no change."""
    return made[0], made[1]


class Turn(torch.autograd.Function):
    """The kernel and its gradient, which is the kernel with inverse angles."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, cos: Any, sin: Any) -> Pair:
        """Rotate."""
        ctx.tables = cos, sin
        return triton_kernel.rotate_qk(q, k, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Rotate back."""
        q, k = (g.contiguous() for g in grads)
        return *triton_kernel.rotate_qk(q, k, *ctx.tables, inverse=True), None, None


def with_gradient(forward: Callable[[Any, Any, Tensors], Pair], heads_first: bool) -> Work:
    """Return work that rotates and takes the gradient back to q and k."""

    def work(t: Tensors) -> Any:
        leaves = [x.detach().requires_grad_() for x in (t.q, t.k)]
        made = forward(*(x.transpose(1, 2) if heads_first else x for x in leaves), t)
        grads = [g.transpose(1, 2) if heads_first else g for g in t.grads]
        return torch.autograd.grad(made, leaves, grads)

    return work


def _copies(t: Tensors, case: Case) -> Any:
    pairs = [torch.empty_like(t.q).copy_(t.q), torch.empty_like(t.k).copy_(t.k)]
    if case.kind == "forward+backward":
        pairs += [torch.empty_like(g).copy_(g) for g in t.grads]
    if case.kind == "cache":
        pairs.append(torch.empty_like(t.v).copy_(t.v))
    return pairs


def _usual(q: Any, k: Any, t: Tensors) -> Pair:
    return rotate_half(q, k, t.doubled[0][:, None], t.doubled[1][:, None])


def _norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    # As in Qwen3's file in transformers.
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * wide.to(x.dtype)


def _usual_norm(q: Any, k: Any, t: Tensors) -> Pair:
    return _usual(_norm(q, t.weights[0]), _norm(k, t.weights[1]), t)


def _usual_cache(q: Any, k: Any, t: Tensors) -> Pair:
    q, k = _usual(q, k, t)
    blocks, rows = t.slots // 16, t.slots % 16
    t.caches[0][blocks, rows] = k.transpose(1, 2)
    t.caches[1][blocks, rows] = t.v
    return q, k


def _ours_cache(t: Tensors) -> Pair:
    q = triton_kernel.rotate_into_cache(t.q, t.k, t.v, t.cos, t.sin, *t.caches, t.slots)
    return q, t.caches[0]


def contestants(case: Case, *, compile_usual: bool) -> Iterator[tuple[str, Contestant | str]]:
    """Yield each contestant's name with how it works, or why it is left out."""
    usual = {"norm": _usual_norm, "cache": _usual_cache}.get(case.kind, _usual)
    backward = case.kind == "forward+backward"

    def by_model(rotation: Any) -> Contestant:
        if backward:
            return Contestant(with_gradient(rotation, True), as_made)
        return Contestant(lambda t: rotation(*t.by_head(), t), by_time)

    yield COPY, Contestant(lambda t: _copies(t, case), None)
    if backward:

        def turned(q: Any, k: Any, t: Tensors) -> Pair:
            made: Pair = Turn.apply(q, k, t.cos, t.sin)
            return made

        yield "ropewalk", Contestant(with_gradient(turned, False), as_made)
    elif case.kind == "norm":
        yield (
            "ropewalk",
            Contestant(
                lambda t: triton_kernel.norm_rotate_qk(t.q, t.k, t.cos, t.sin, *t.weights), as_made
            ),
        )
    elif case.kind == "cache":
        yield (
            "ropewalk",
            Contestant(_ours_cache, lambda t, m: (m[0], m[1][t.slots // 16, t.slots % 16])),
        )
    else:
        yield (
            "ropewalk",
            Contestant(lambda t: triton_kernel.rotate_qk(t.q, t.k, t.cos, t.sin), as_made),
        )
        yield (
            "ropewalk, in place",
            Contestant(
                lambda t: triton_kernel.rotate_qk(t.q, t.k, t.cos, t.sin, out_q=t.q, out_k=t.k),
                as_made,
            ),
        )
    yield EAGER, by_model(usual)
    if compile_usual:
        yield "torch.compile", by_model(torch.compile(usual, dynamic=False))
    else:
        yield "torch.compile", "left out in a rehearsal"
    if case.kind in ("forward", "forward+backward"):
        yield "Liger-Kernel", _liger(by_model)
        yield "FlashAttention", _flash(backward)


def _liger(by_model: Any) -> Contestant | str:
    try:
        from liger_kernel.transformers.rope import liger_rotary_pos_emb
    except ImportError:
        return "not installed: pip install liger-kernel"
    if triton_kernel.INTERPRETED:
        return "needs a GPU"

    def rotation(q: Any, k: Any, t: Tensors) -> Pair:
        made: Pair = liger_rotary_pos_emb(q, k, *t.doubled)
        return made

    made: Contestant = by_model(rotation)
    return made


def _flash(backward: bool) -> Contestant | str:
    try:
        from flash_attn.layers.rotary import apply_rotary_emb
    except ImportError:
        return "not installed: pip install flash-attn"

    def rotation(q: Any, k: Any, t: Tensors) -> Pair:
        return apply_rotary_emb(q, *t.narrow), apply_rotary_emb(k, *t.narrow)

    if backward:
        return Contestant(with_gradient(rotation, False), as_made)
    return Contestant(lambda t: rotation(t.q, t.k, t), as_made)


def check(case: Case, contestant: Contestant, device: str) -> float:
    """Return a contestant's largest error over what its arithmetic explains."""
    if contestant.result is None:
        return 0.0
    t = Tensors(case, device, seed=10_000)
    turn = t.cos.double(), t.sin.double()
    given = (t.q.clone(), t.k.clone())
    inverse = case.kind == "forward+backward"
    if inverse:
        given = (t.grads[0].clone(), t.grads[1].clone())
    found = contestant.result(t, contestant.work(t))
    worst = 0.0
    for index, (x, y) in enumerate(zip(given, found, strict=True)):
        wide = x.double()
        if case.kind == "norm":
            wide = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            wide = wide * t.weights[index].double()
        wanted = reference.rotate(wide, *turn, inverse=inverse)
        # Model code rounds cos, sin, the norm, both products and their sum to the dtype, and
        # sums the norm's squares in float32: 8 roundings of the plane's length at most. A
        # sloppy bound, but a wrong rotation is far outside it.
        length = (wide.square() + reference_partner(wide).square()).sqrt()
        allowed = 8 * torch.finfo(case.dtype).eps * length + 1e-6
        worst = max(worst, float(((y.double() - wanted).abs() / allowed).max()))
    return worst


def reference_partner(x: torch.Tensor) -> torch.Tensor:
    """Return the other lane of each lane's plane, for pairing half."""
    return torch.roll(x, x.shape[-1] // 2, dims=-1)


def sets_of(case: Case, device: str) -> list[Tensors]:
    """Make as many sets as outgrow the caches; one for a single token."""
    if case.time == 1:
        return [Tensors(case, device, 0)]
    count = max(1, min(_MOST_SETS, -(-_SETS_BYTES // (case.moved // 2))))
    return [Tensors(case, device, seed) for seed in range(count)]


def caller(contestant: Contestant, sets: list[Tensors]) -> Callable[[], object]:
    """Return a call that works on the next set each time."""
    turn = itertools.cycle(sets)
    return lambda: contestant.work(next(turn))


BIG, SMALL = (32, 8, 128), (9, 3, 64)


def all_cases(*, small: bool) -> list[Case]:
    """Return the cases, the most wanted first: those at the end are dropped if time runs out."""
    bf16, f32 = torch.bfloat16, torch.float32
    if small:
        sizes, long, longer, many = ((3, 2, 8),), 3, 5, 2
    else:
        sizes, long, longer, many = (BIG, SMALL), 4096, 32768, 32
    first, last = sizes[0], sizes[-1]
    cases = [Case("forward", 1, long, *first, bf16)]
    cases += [Case("forward", batch, 1, *first, bf16) for batch in (1, many)]
    cases += [Case("forward", 1, longer, *first, bf16)]
    cases += [Case("forward+backward", 1, long, *first, bf16)]
    cases += [Case("norm", 1, long, *first, bf16), Case("cache", 1, long, *first, bf16)]
    cases += [Case("forward", 1, long, *first, f32)]
    if not small:
        cases += [Case("forward", 1, long, *last, bf16)]
        cases += [Case("forward", batch, 1, *last, bf16) for batch in (1, many)]
        cases += [Case("forward", 1, longer, *last, bf16)]
        cases += [Case("forward+backward", 1, long, *last, bf16)]
        cases += [Case("forward+backward", 1, longer, *first, bf16)]
        cases += [Case("forward", 1, longer, *first, f32)]
        cases += [Case("forward+backward", 1, long, *first, f32)]
        cases += [Case("norm", many, 1, *first, bf16), Case("cache", many, 1, *first, bf16)]
        cases += [Case("forward", batch, 1, *first, f32) for batch in (1, many)]
        cases += [Case("forward", 1, long, *last, f32), Case("forward", 1, longer, *last, f32)]
        cases += [Case("forward+backward", 1, longer, *last, bf16)]
        cases += [Case("forward+backward", 1, longer, *first, f32)]
    return cases
