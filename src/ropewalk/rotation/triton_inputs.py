"""What the GPU kernel is given: tensors reduced to sizes and strides, and refused if unfit.

Every layout becomes the same four strides (batch, token, head, lane), so that the kernel
knows no axis order. An axis of size 1 gets stride 0, as does one that is broadcast: its
stride means nothing, and one value of it needs one compiled kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InputError
from .reference import check_option
from .triton_overlap import same_elements, shares_memory

Strides = tuple[int, int, int, int]

# For each order, where the batch (if there), time, head and lane axes are, from the end.
_AXES: dict[str, tuple[int, int | None]] = {
    "time_heads": (-3, -2),
    "heads_time": (-2, -3),
    "time": (-2, None),
}
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Heads:
    """A tensor of heads: (batch, time, heads, lanes) in whatever order it lies in memory."""

    tensor: torch.Tensor
    batch: int
    time: int
    heads: int
    lanes: int
    strides: Strides
    """Of batch, time, head and lane, in elements."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows of the tables the tokens take."""

    kind: str
    """``consecutive``, ``ids`` or ``axes``."""
    start: int
    rows: int
    positions: torch.Tensor | None = None
    strides: tuple[int, int, int] = (0, 0, 0)
    """Of axis, batch and token."""
    plane_axes: torch.Tensor | None = None
    axes: int = 0


def heads_of(name: str, x: Any, order: str, like: Heads | None = None) -> Heads:
    """Read a tensor's layout; ``like`` is the one whose batch, time and device it shares."""
    check_option("order", order)
    if not isinstance(x, torch.Tensor) or x.dtype not in _FLOATS:
        raise InputError(
            name,
            found=f"dtype {x.dtype}" if isinstance(x, torch.Tensor) else type(x).__name__,
            expected="a tensor of float16, bfloat16, float32 or float64",
            fix="rotate queries and keys, not token ids",
        )
    time, head = _AXES[order]
    inner = 2 if head is None else 3
    shape, steps = x.shape, x.stride()
    if len(shape) not in (inner, inner + 1):
        raise InputError(
            name,
            found=f"shape {tuple(shape)}",
            expected=f"{inner} axes for order {order!r}, or a batch axis before them",
            fix="reshape it, or name the order of the axes with order=",
        )
    batch, batch_step = (shape[0], steps[0]) if len(shape) > inner else (1, 0)
    heads, head_step = (1, 0) if head is None else (shape[head], steps[head])
    found = Heads(
        x,
        batch,
        shape[time],
        heads,
        shape[-1],
        (
            batch_step if batch > 1 else 0,
            steps[time] if shape[time] > 1 else 0,
            head_step if heads > 1 else 0,
            steps[-1] if shape[-1] > 1 else 1,
        ),
    )
    if like is not None:
        _check_alike(name, found, like)
    return found


def _check_alike(name: str, x: Heads, like: Heads) -> None:
    if (x.batch, x.time) != (like.batch, like.time):
        raise InputError(
            name,
            found=f"shape {tuple(x.tensor.shape)}",
            expected=f"{like.batch} rows of {like.time} tokens, as the queries have",
            fix="pass queries and keys of the same tokens in the same order of axes",
        )
    check_same(name, x.tensor, like.tensor)


def check_same(name: str, x: Any, like: torch.Tensor) -> None:
    """Refuse a tensor of another dtype or device."""
    found = (x.dtype, x.device) if isinstance(x, torch.Tensor) else type(x).__name__
    if found != (like.dtype, like.device):
        raise InputError(
            name,
            found=f"{found[0]} on {found[1]}" if isinstance(found, tuple) else found,
            expected=f"{like.dtype} on {like.device}",
            fix="convert it with .to()",
        )


def output(name: str, out: Any, source: Heads, order: str, others: Sequence[Any]) -> Heads:
    """Return where results go: a fresh tensor for None, else ``out`` if it can be written.

    ``out`` is the source itself, or shares no element with it or with any of ``others``.
    """
    x = source.tensor
    if out is None:
        return heads_of(name, torch.empty_like(x), order)
    if not isinstance(out, torch.Tensor) or out.shape != x.shape:
        raise InputError(
            name,
            found=f"shape {tuple(out.shape)}" if hasattr(out, "shape") else type(out).__name__,
            expected=f"a tensor of shape {tuple(x.shape)}",
            fix="pass torch.empty_like of what is rotated, or that itself",
        )
    check_same(name, out, x)
    check_writable(name, out)
    apart = others if same_elements(out, x) else [x, *others]
    check_apart(name, out, apart)
    return heads_of(name, out, order)


def check_apart(name: str, out: torch.Tensor, others: Sequence[Any]) -> None:
    """Refuse to write to memory that the same launch reads or writes for another tensor."""
    for other in others:
        if isinstance(other, torch.Tensor) and shares_memory(out, other):
            raise InputError(
                name,
                found="a tensor that shares memory with another of this call",
                expected="memory of its own, or exactly the tensor that is rotated",
                fix="pass torch.empty_like of what is rotated",
            )


def check_writable(name: str, out: torch.Tensor) -> None:
    """Refuse a tensor in which two indices may mean the same element."""
    reach = 1
    for step, size in sorted(zip(out.stride(), out.shape, strict=True)):
        if size > 1 and step < reach:
            raise InputError(
                name,
                found=f"strides {tuple(out.stride())} for shape {tuple(out.shape)}",
                expected="a tensor whose elements each have memory of their own",
                fix="call .contiguous() on it first",
            )
        reach += step * (size - 1)


def check_no_gradient(**tensors: Any) -> None:
    """Refuse what would need a gradient: this module records none."""
    if not torch.is_grad_enabled():
        return
    for name, x in tensors.items():
        if isinstance(x, torch.Tensor) and x.requires_grad:
            raise InputError(
                name,
                found="a tensor that requires a gradient",
                expected="gradients off: this kernel records none",
                fix="use ropewalk.torch, or torch.no_grad()",
            )


def table_of(
    cos: Any, sin: Any, x: Heads, rotary_offset: Any, *, picked: bool
) -> tuple[int, tuple[int, int, int], tuple[int, int, int], int]:
    """Return planes, the strides (batch, row, plane) of cos and of sin, and rows.

    ``picked``: cos and sin are tables whose rows are picked, not values per token.
    """
    for name, table in (("cos", cos), ("sin", sin)):
        if not isinstance(table, torch.Tensor) or table.dtype not in _FLOATS:
            raise InputError(
                name,
                found=f"dtype {table.dtype}" if hasattr(table, "dtype") else type(table).__name__,
                expected="a tensor of floats",
                fix="pass what Rope.cos_sin gives for a tensor of positions",
            )
        if table.device != x.tensor.device:
            raise InputError(
                name,
                found=f"device {table.device}",
                expected=f"{x.tensor.device}, where the queries are",
                fix="move it once, with .to(device)",
            )
    shape = tuple(cos.shape)
    if shape != tuple(sin.shape) or not 1 <= len(shape) <= 3:
        raise InputError(
            "sin",
            found=f"shape {tuple(sin.shape)} (cos: {shape})",
            expected="the shape of cos, (time, planes) or (batch, time, planes)",
            fix="pass cos and sin of the same positions",
        )
    planes = shape[-1]
    if isinstance(rotary_offset, bool) or not isinstance(rotary_offset, int) or rotary_offset < 0:
        raise InputError(
            "rotary_offset",
            found=repr(rotary_offset),
            expected="the index of a lane, 0 or above",
            fix="give the first rotated lane",
        )
    if planes < 1 or rotary_offset + 2 * planes > x.lanes:
        raise InputError(
            "cos",
            found=f"{planes} planes from lane {rotary_offset} on (x: {tuple(x.tensor.shape)})",
            expected=f"1 to {(x.lanes - rotary_offset) // 2} planes",
            fix="cos holds one value per plane, half the rotated lanes; do not double it",
        )
    if picked:
        if len(shape) != 2:
            raise InputError(
                "cos",
                found=f"shape {shape}",
                expected="a table (rows, planes), because positions are given",
                fix="pass the table, or leave positions out",
            )
        return planes, _table_strides(cos), _table_strides(sin), shape[0]
    rows = shape[-2] if len(shape) > 1 else 1
    batch = shape[0] if len(shape) > 2 else 1
    if rows not in (1, x.time) or batch not in (1, x.batch):
        raise InputError(
            "cos",
            found=f"shape {shape}",
            expected=f"{x.time} tokens, or {x.batch} rows of {x.time} tokens",
            fix="pass cos and sin of these tokens, or name the order of the axes with order=",
        )
    return planes, _table_strides(cos), _table_strides(sin), rows


def _table_strides(table: torch.Tensor) -> tuple[int, int, int]:
    steps = [s if n > 1 else 0 for s, n in zip(table.stride(), table.shape, strict=True)]
    steps[-1] = steps[-1] if table.shape[-1] > 1 else 1
    batch, row, plane = [0] * (3 - len(steps)) + steps
    return batch, row, plane


def rows_of(positions: Any, plane_axes: Any, x: Heads, planes: int, rows: int) -> Rows:
    """Read positions and plane_axes; ``rows`` is the length of the tables."""
    if positions is None or (isinstance(positions, int) and not isinstance(positions, bool)):
        if plane_axes is not None:
            raise InputError(
                "plane_axes",
                found="plane_axes without a tensor of positions",
                expected="positions of shape (axes, time) or (axes, batch, time)",
                fix="pass one row of position ids per axis",
            )
        if positions is None:
            return Rows("consecutive", 0, rows)
        if positions < 0 or positions + x.time > rows:
            raise InputError(
                "positions",
                found=f"rows {positions} to {positions + x.time - 1}",
                expected=f"rows within the table, 0 to {rows - 1}",
                fix="make a longer table",
            )
        return Rows("consecutive", positions, rows)
    if not isinstance(positions, torch.Tensor) or positions.dtype not in (torch.int32, torch.int64):
        raise InputError(
            "positions",
            found=f"dtype {positions.dtype}" if hasattr(positions, "dtype") else repr(positions),
            expected="an integer, or a tensor of int32 or int64",
            fix="keep position ids as integers",
        )
    if positions.device != x.tensor.device:
        raise InputError(
            "positions",
            found=f"device {positions.device}",
            expected=f"{x.tensor.device}, where the queries are",
            fix="move it with .to(device)",
        )
    several = plane_axes is not None
    shape = tuple(positions.shape)
    inner = shape[1:] if several else shape
    if inner not in ((x.time,), (1, x.time), (x.batch, x.time)) or (several and not shape[0]):
        first = "axes, " if several else ""
        raise InputError(
            "positions",
            found=f"shape {shape}",
            expected=f"({first}{x.time}) or ({first}{x.batch}, {x.time})",
            fix="pass one position per token" + (" and axis" if several else ""),
        )
    steps = [s if n > 1 else 0 for s, n in zip(positions.stride(), shape, strict=True)]
    axis = steps.pop(0) if several else 0
    batch, token = [0] * (2 - len(steps)) + steps
    if not several:
        return Rows("ids", 0, rows, positions, (axis, batch, token))
    which = _plane_axes(plane_axes, planes, shape[0], x.tensor.device)
    return Rows("axes", 0, rows, positions, (axis, batch, token), which, shape[0])


def _plane_axes(given: Any, planes: int, axes: int, device: torch.device) -> torch.Tensor:
    if isinstance(given, torch.Tensor) and given.device.type != "cpu":
        # Its values are checked on the device: reading them here would wait for the queue.
        whole = given.dtype in (torch.int32, torch.int64)
        if whole and given.shape == (planes,) and given.device == device:
            return given.contiguous()
    else:
        values = given.tolist() if hasattr(given, "tolist") else given
        listed = isinstance(values, Sequence) and len(values) == planes
        if listed and all(isinstance(v, int) and 0 <= v < axes for v in values):
            return _device_axes(tuple(values), device)
    raise InputError(
        "plane_axes",
        found=f"{given!r}".replace("\n", " "),
        expected=f"{planes} integers, 0 to {axes - 1}, one axis for each plane",
        fix="give each plane's axis, as rows of positions are numbered",
    )


@functools.lru_cache(maxsize=64)
def _device_axes(values: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def check_weight(name: str, weight: Any, x: Heads) -> torch.Tensor:
    """Return a norm's weight, contiguous."""
    fits = isinstance(weight, torch.Tensor) and weight.dtype in _FLOATS
    if not fits or weight.shape != (x.lanes,) or weight.device != x.tensor.device:
        raise InputError(
            name,
            found=_described(weight),
            expected=f"({x.lanes},) floats on {x.tensor.device}",
            fix="pass the weight of the norm over one head",
        )
    return weight.contiguous()


def check_cache(name: str, cache: Any, x: Heads) -> None:
    """Refuse a cache that heads like ``x`` do not fit into."""
    fits = isinstance(cache, torch.Tensor) and cache.ndim == 4 and cache.shape[1] > 0
    if not fits or tuple(cache.shape[2:]) != (x.heads, x.lanes):
        raise InputError(
            name,
            found=_described(cache),
            expected=f"shape (blocks, block_size, {x.heads}, {x.lanes})",
            fix="pass the cache of this layer, or a view of it with its axes in this order",
        )
    check_same(name, cache, x.tensor)
    check_writable(name, cache)


def check_slots(slots: Any, x: Heads) -> None:
    """Refuse slots that are not one int64 per token."""
    shapes = ((x.batch, x.time), *(((x.time,),) if x.batch == 1 else ()))
    fits = isinstance(slots, torch.Tensor) and slots.dtype == torch.int64
    if not fits or tuple(slots.shape) not in shapes or slots.device != x.tensor.device:
        raise InputError(
            "slots",
            found=_described(slots),
            expected=f"({x.batch}, {x.time}) int64 on {x.tensor.device}",
            fix="give each token its slot, or -1",
        )


def _described(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return type(x).__name__
    return f"shape {tuple(x.shape)}, {x.dtype} on {x.device}"
