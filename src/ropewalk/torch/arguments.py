"""Arguments of a rotation, checked and brought into the form that the operators take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from ..errors import InputError
from ..rotation import reference
from ..rotation.dispatch import check_out
from ..rotation.reference import Order
from ..rotation.rows import check_axes, check_integers, outside

_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Call:
    """One rotation: tensors, tables in the width they are computed in, options.

    Attributes:
        xs: queries, or queries and keys.
        cos: per-token rows, or tables where ``positions`` is given.
        sin: as ``cos``.
        pairing: half or adjacent.
        order: the order of the axes of ``xs``.
        rotary_offset: first rotated lane.
        inverse: whether to turn back.
        positions: integer tensor, or None.
        plane_axes: axis of each plane, or None.
    """

    xs: tuple[Tensor, ...]
    cos: Tensor
    sin: Tensor
    pairing: Literal["half", "adjacent"]
    order: Order
    rotary_offset: int
    inverse: bool
    positions: Tensor | None
    plane_axes: list[int] | None


def ready_call(
    xs: tuple[Tensor, ...],
    cos: Any,
    sin: Any,
    pairing: Literal["half", "adjacent"],
    order: Order,
    rotary_offset: int,
    inverse: bool,
    positions: Any,
    plane_axes: Any,
) -> Call:
    """Check one call and return it in the form of the operators; see `functional.rotate`."""
    for name, x in zip(("q", "k") if len(xs) == 2 else ("x",), xs, strict=True):
        if not isinstance(x, Tensor):
            raise InputError(
                name,
                found=type(x).__name__,
                expected="a PyTorch tensor",
                fix="use ropewalk.rotate for NumPy and JAX arrays",
            )
        if x.dtype not in _FLOATS:
            raise InputError(
                name,
                found=f"dtype {str(x.dtype).removeprefix('torch.')}",
                expected="float16, bfloat16, float32 or float64",
                fix="rotate queries and keys, not token ids",
            )
    x = xs[0]
    cos, sin = (_table(t, x) for t in (cos, sin))
    reference.check_option("pairing", pairing)
    reference.check_option("order", order)
    axis = reference.time_axis(order)
    axes = None
    if positions is None:
        if plane_axes is not None:
            raise InputError(
                "plane_axes",
                found="no positions",
                expected="positions of shape (axes, time) or (axes, batch, time)",
                fix="pass positions, or no plane_axes",
            )
        per_token = cos, sin
    else:
        _check_tables(cos, sin)
        if x.ndim < -axis:
            # The reference says what is missing.
            reference.check(x, cos, sin, pairing, order, rotary_offset)
        time = x.shape[axis]
        if isinstance(positions, (int, np.integer, torch.SymInt)) and plane_axes is None:
            rows = cos.shape[0]
            if not is_compiling() and (positions < 0 or positions + time > rows):
                raise outside(int(positions if positions < 0 else positions + time - 1), rows)
            per_token = cos[positions : positions + time], sin[positions : positions + time]
            positions = None
            cos, sin = per_token
        else:
            positions, axes = _positions(positions, plane_axes, cos, x)
            shape = positions.shape if axes is None else positions.shape[1:]
            planes = cos.shape[-1]
            # Stands for the rows that will be picked: only its shape is looked at.
            picked = cos.new_empty(1).expand(*shape, planes)
            per_token = picked, picked
    # Shapes of a call that torch.jit traces are tensors; comparing them would be recorded.
    if not is_compiling() and not torch.jit.is_tracing():
        for x in xs:
            reference.check(x, *per_token, pairing, order, rotary_offset)
        _check_alike(xs, axis)
    return Call(xs, cos, sin, pairing, order, rotary_offset, bool(inverse), positions, axes)


def _table(table: Any, x: Tensor) -> Tensor:
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    if isinstance(table, Tensor):
        # Not even asked for where it would do nothing: exported graphs stay plain.
        if table.dtype == wide and table.device == x.device:
            return table
        return table.to(device=x.device, dtype=wide)
    if isinstance(table, np.ndarray):
        # A copy: PyTorch warns of read-only arrays, such as a cached table.
        kind = np.float64 if wide == torch.float64 else np.float32
        return torch.from_numpy(np.array(table, dtype=kind)).to(x.device)
    return torch.as_tensor(table, dtype=wide, device=x.device)


def _check_tables(cos: Tensor, sin: Tensor) -> None:
    if cos.ndim != 2 or cos.shape != sin.shape:
        raise InputError(
            "cos",
            found=f"shape {tuple(cos.shape)} (sin: {tuple(sin.shape)})",
            expected="tables of shape (rows, planes) where positions are given",
            fix="pass whole tables, or no positions",
        )


def _positions(
    positions: Any, plane_axes: Any, cos: Tensor, x: Tensor
) -> tuple[Tensor, list[int] | None]:
    if not isinstance(positions, Tensor):
        positions = torch.as_tensor(check_integers(positions).astype(np.int64))
    check_integers(positions)
    if positions.dtype not in (torch.int32, torch.int64):
        positions = positions.to(torch.int64)
    if positions.device != x.device:
        positions = positions.to(x.device)
    if plane_axes is not None:
        return positions, check_axes(plane_axes, int(cos.shape[-1]), positions).tolist()
    if positions.ndim not in (1, 2):
        raise InputError(
            "positions",
            found=f"shape {tuple(positions.shape)}",
            expected="(time,) or (batch, time)",
            fix="give plane_axes where each plane has an axis of its own",
        )
    return positions, None


def _check_alike(xs: tuple[Tensor, ...], axis: int) -> None:
    if len(xs) < 2:
        return
    q, k = xs
    # What may differ is the number of heads; order "time" has no such axis.
    heads = {-3: -2, -2: -3}[axis]

    def rest(x: Tensor) -> tuple[int, ...]:
        return tuple(size for i, size in enumerate(x.shape) if i != x.ndim + heads)

    if q.ndim != k.ndim or rest(q) != rest(k) or q.dtype != k.dtype or q.device != k.device:
        raise InputError(
            "k",
            found=f"shape {tuple(k.shape)}, {k.dtype} (q: {tuple(q.shape)}, {q.dtype})",
            expected="the shape and dtype of q, but for the number of heads",
            fix="rotate them in two calls",
        )


def check_call(xs: tuple[Tensor, ...], outs: tuple[Tensor, ...]) -> None:
    """Refuse outputs that can't take the results for ``xs``."""
    if not isinstance(outs, (tuple, list)) or len(outs) != len(xs):
        raise InputError(
            "out",
            found=type(outs).__name__,
            expected="a pair of tensors, for q and k",
            fix="pass out=(q_out, k_out)",
        )
    for x, out in zip(xs, outs, strict=True):
        check_out(out, x)
