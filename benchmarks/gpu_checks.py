"""Every option of the GPU kernel against float64, on whatever device there is.

Options are drawn so that each pair of them meets in some check, not in their full product: on a
GPU each new combination is compiled, which takes most of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ropewalk.errors import InputError
from ropewalk.rotation import reference, triton_kernel

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
ROWS = 50


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison.

    Attributes:
        label: the options.
        worst: the largest error as a share of what is allowed; above 1 is wrong, as is NaN.
        exact: whether all bits equal the reference's; None where that is not demanded.
    """

    label: str
    worst: float
    exact: bool | None = None

    @property
    def passed(self) -> bool:
        """Whether it is as it should be."""
        return self.worst <= 1 and self.exact is not False


class Inputs:
    """Random tensors on a device, never the same twice."""

    def __init__(self, device: str, *, small: bool) -> None:
        self.device = device
        self.batch, self.time = (1, 3) if small else (2, 131)
        self.heads = (3, 2) if small else (9, 3)
        self.dims = (10, 12) if small else (128, 80)
        self._generator = torch.Generator().manual_seed(0)

    def random(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64).to(
            self.device, dtype
        )

    def integers(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=self._generator).to(self.device)

    def table(self, *shape: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        angles = 3 * self.random(*shape)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return angles.cos().to(wide), angles.sin().to(wide)

    def pair(self, order: str, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        out = []
        for heads in self.heads:
            sizes = (self.time, heads) if order == "time_heads" else (heads, self.time)
            out.append(self.random(self.batch, *sizes, dim, dtype=dtype))
        return out[0], out[1]


def unit(dtype: torch.dtype) -> float:
    """Return half a unit in the last place of 1, a whole one where bfloat16 is cut."""
    cut = dtype == torch.bfloat16 and triton_kernel.INTERPRETED
    return float(torch.finfo(dtype).eps) / (1 if cut else 2)


def share(found: torch.Tensor, wanted: torch.Tensor, sizes: torch.Tensor, steps: float) -> float:
    """Return the largest error over the allowed: ``steps`` roundings of ``sizes``, and one more.

    Args:
        found: what the kernel made.
        wanted: the same in float64.
        sizes: magnitude of the sums' terms, in float64.
        steps: roundings in the arithmetic of the rotation.
    """
    wide = torch.float64 if found.dtype == torch.float64 else torch.float32
    allowed = steps * torch.finfo(wide).eps / 2 * sizes
    if found.dtype != wide:
        allowed = allowed + unit(found.dtype) * wanted.abs()
    allowed = allowed + torch.finfo(found.dtype).smallest_normal
    return float(((found.double() - wanted).abs() / allowed).max())


def turned_sizes(x: torch.Tensor, turn: Any, **options: Any) -> torch.Tensor:
    """Return |a cos| + |b sin| and |a sin| + |b cos|: the sizes that rounding goes by."""
    cos, sin = (t.double().abs() for t in turn)
    sides = [reference.rotate(x.double().abs(), cos, s, **options).abs() for s in (sin, -sin)]
    return sides[0].maximum(sides[1])


def _picked(tables: Any, rows: torch.Tensor, axes: list[int] | None) -> list[torch.Tensor]:
    if axes is None:
        return [t[rows] for t in tables]
    return [torch.stack([t[rows[a], p] for p, a in enumerate(axes)], dim=-1) for t in tables]


def rotation_checks(inputs: Inputs) -> Iterator[Check]:
    """Rotate with every option."""
    number = 0
    for dtype in DTYPES:
        for pairing in ("half", "adjacent"):
            for source in ("per token", "start", "ids", "axes"):
                # Counted up at different speeds, so that pairs meet.
                order = ("time_heads", "heads_time")[(number + number // 4 + number // 8) % 2]
                inverse = (number // 2 + number // 4) % 2 == 1
                part = (number + number // 4) % 4
                placed = ("fresh", "in place", "out")[(number + number // 4) % 3]
                dim = inputs.dims[number // 3 % 2]
                number += 1
                planes = dim // (4 if part else 2)
                offset = (0, 0, 1, dim - 2 * planes)[part]
                options = {
                    "pairing": pairing,
                    "order": order,
                    "rotary_offset": offset,
                    "inverse": inverse,
                }
                q, k = inputs.pair(order, dim, dtype)
                given: dict[str, Any] = {}
                if source == "per token":
                    tables = inputs.table(inputs.batch, inputs.time, planes, dtype=dtype)
                    turn = list(tables)
                else:
                    rows = ROWS + inputs.time
                    tables = inputs.table(rows, planes, dtype=dtype)
                    axes = [p % 3 for p in range(planes)] if source == "axes" else None
                    shape = (3,) if source == "axes" else ()
                    ids = inputs.integers(rows, *shape, inputs.batch, inputs.time)
                    if source == "start":
                        given = {"positions": 7}
                        turn = [t[7 : 7 + inputs.time] for t in tables]
                    else:
                        given = {"positions": ids, "plane_axes": axes}
                        turn = _picked(tables, ids, axes)
                before = [x.clone() for x in (q, k)]
                outs = {
                    "fresh": (None, None),
                    "in place": (q, k),
                    "out": tuple(torch.full_like(x, float("nan")) for x in (q, k)),
                }[placed]
                found = triton_kernel.rotate_qk(
                    q, k, *tables, out_q=outs[0], out_k=outs[1], **given, **options
                )
                worst, exact = 0.0, True
                for x, y in zip(before, found, strict=True):
                    wanted = reference.rotate(x.double(), *[t.double() for t in turn], **options)
                    worst = max(worst, share(y, wanted, turned_sizes(x, turn, **options), 3))
                    exact &= torch.equal(y, reference.rotate(x, *turn, **options))
                    for gap in (slice(0, offset), slice(offset + 2 * planes, None)):
                        exact &= torch.equal(y[..., gap], x[..., gap])
                name = str(dtype).removeprefix("torch.")
                label = f"{name} {pairing} {order} {source} {placed}"
                label += f" lanes {offset}+{2 * planes}/{dim}" + (" inverse" if inverse else "")
                demanded = not (dtype == torch.bfloat16 and triton_kernel.INTERPRETED)
                yield Check(label, worst, exact if demanded else None)


def norm_checks(inputs: Inputs) -> Iterator[Check]:
    """Normalise and rotate."""
    for number, dtype in enumerate(DTYPES):
        order, pairing = ("time_heads", "heads_time")[number % 2], ("half", "adjacent")[number // 2]
        dim, more = inputs.dims[number % 2], float(number % 2)
        planes = dim // (2 if number < 2 else 4)
        options = {"pairing": pairing, "order": order}
        q, k = inputs.pair(order, dim, dtype)
        weights = [inputs.random(dim, dtype=dtype) for _ in range(2)]
        turn = inputs.table(inputs.time, planes, dtype=dtype)
        found = triton_kernel.norm_rotate_qk(
            q, k, *turn, *weights, eps=1e-6, weight_offset=more, **options
        )
        worst = 0.0
        for x, weight, y in zip((q, k), weights, found, strict=True):
            wide = x.double()
            shrunk = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            normal = shrunk * (more + weight.double())
            wanted = reference.rotate(normal, *[t.double() for t in turn], **options)
            # dim squares are summed; nine more roundings lie on the way, three of them the turn's.
            sizes = turned_sizes(shrunk * (more + weight.double().abs()), turn, **options)
            worst = max(worst, share(y, wanted, sizes, dim + 9))
        name = str(dtype).removeprefix("torch.")
        yield Check(f"norm: {name} {pairing} {order} weight + {more:.0f}", worst)


def cache_checks(inputs: Inputs) -> Iterator[Check]:
    """Rotate into a cache; slots of -1 and slots outside are not written."""
    for dtype in (torch.float32, torch.bfloat16):
        order = "time_heads" if dtype == torch.float32 else "heads_time"
        dim = inputs.dims[0]
        q, k = inputs.pair(order, dim, dtype)
        v = torch.randn_like(k)
        turn = inputs.table(inputs.time, dim // 2, dtype=dtype)
        tokens = inputs.batch * inputs.time
        blocks = -(-2 * tokens // 16)
        store = inputs.random(2, blocks + 2, 16, inputs.heads[1], dim, dtype=dtype)
        caches = [store[0, 1:-1], store[1, 1:-1]]
        slots = torch.randperm(blocks * 16, device=inputs.device)[:tokens]
        slots = slots.view(inputs.batch, inputs.time)
        slots[0, 0], slots[-1, -1] = -1, blocks * 16
        wanted, kept = store.clone(), (slots >= 0) & (slots < blocks * 16)
        turned = [
            triton_kernel.rotate(x, *turn, order=order) for x in (q, k)
        ]  # checked above; here it is the writing
        for index, x in enumerate((turned[1], v)):
            by_token = x if order == "time_heads" else x.transpose(1, 2)
            wanted[index, 1 + slots[kept] // 16, slots[kept] % 16] = by_token[kept]
        found = triton_kernel.rotate_into_cache(q, k, v, *turn, *caches, slots, order=order)
        exact = torch.equal(found, turned[0]) and torch.equal(store, wanted)
        name = str(dtype).removeprefix("torch.")
        yield Check(f"cache: {name} {order}", 0.0, exact and _fault("slots"))


def fault_checks(inputs: Inputs) -> Iterator[Check]:
    """Positions outside the table give NaN for their token alone, and are reported."""
    x = inputs.random(1, 4, 2, 8, dtype=torch.float32)
    store = inputs.table(30, 4, dtype=torch.float32)
    cos, sin = (t[10:20] for t in store)
    positions = torch.tensor([3, 10, -1, 2**40], device=inputs.device)
    found = triton_kernel.rotate(x, cos, sin, positions=positions)
    wanted = reference.rotate(x[:, :1], cos[3:4], sin[3:4])
    exact = torch.equal(found[:, :1], wanted) and bool(found[:, 1:].isnan().all())
    yield Check("positions outside the table", 0.0, exact and _fault("positions"))


def _fault(name: str) -> bool:
    try:
        triton_kernel.check_faults()
    except InputError as error:
        return error.where == name
    return False


def all_checks(device: str, *, small: bool) -> Iterator[Check]:
    """Run everything, one by one."""
    inputs = Inputs(device, small=small)
    yield from rotation_checks(inputs)
    yield from norm_checks(inputs)
    yield from cache_checks(inputs)
    yield from fault_checks(inputs)
