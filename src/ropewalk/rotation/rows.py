"""Picking rows of cos and sin by position: the specification of ``positions=``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..errors import InputError


def pick_rows(
    cos: Any, sin: Any, positions: Any, plane_axes: Any = None, *, time: int | None = None
) -> tuple[Any, Any]:
    """Return the rows of two tables at the given positions.

    Args:
        cos: table of shape (rows, planes).
        sin: as ``cos``.
        positions: an integer: ``time`` consecutive rows from there on; or an integer array of
            shape (time,) or (batch, time), in the library of the tables or NumPy. With
            ``plane_axes`` it has one more axis in front.
        plane_axes: shape (planes,), integers: the axis of ``positions`` that a plane takes its
            position from (M-RoPE: time, height, width).
        time: how many rows, where ``positions`` is an integer.

    Returns:
        Two arrays of shape (time, planes) or (batch, time, planes).

    Raises:
        InputError: a position without a row, tables or positions of another shape or dtype.

    Source of the axes per plane: Wang et al. 2024, Qwen2-VL, arXiv 2409.12191, section 2.1.
    """
    if len(cos.shape) != 2 or tuple(cos.shape) != tuple(sin.shape):
        raise InputError(
            "cos",
            found=f"shape {tuple(cos.shape)} (sin: {tuple(sin.shape)})",
            expected="tables of shape (rows, planes) where positions are given",
            fix="pass whole tables, or no positions",
        )
    rows = int(cos.shape[0])
    if isinstance(positions, (int, np.integer)) and not isinstance(positions, bool):
        start, count = int(positions), time or 0
        if plane_axes is not None:
            raise _no_axes("an integer")
        if start < 0 or start + count > rows:
            raise outside(start if start < 0 else start + count - 1, rows)
        return cos[start : start + count], sin[start : start + count]
    positions = check_integers(positions)
    if plane_axes is None:
        if len(positions.shape) not in (1, 2):
            raise InputError(
                "positions",
                found=f"shape {tuple(positions.shape)}",
                expected="(time,) or (batch, time)",
                fix="give plane_axes where each plane has an axis of its own",
            )
        _check_inside(positions, rows)
        return cos[positions], sin[positions]
    axes = check_axes(plane_axes, int(cos.shape[1]), positions)
    _check_inside(positions, rows)
    # (planes, …, time) positions, one for each plane; then planes to the end.
    index = positions[axes.tolist()]
    planes = np.arange(len(axes)).reshape(-1, *[1] * (len(index.shape) - 1))
    return _last(cos[index, planes]), _last(sin[index, planes])


def _last(picked: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(picked, torch.Tensor):
        return picked.movedim(0, -1)
    return picked.transpose(*range(1, picked.ndim), 0)


def check_integers(positions: Any) -> Any:
    """Refuse positions that are no array of whole numbers."""
    if not hasattr(positions, "dtype"):
        positions = np.asarray(positions)
    name = str(positions.dtype).removeprefix("torch.")
    if name not in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        raise InputError(
            "positions",
            found=f"dtype {name}",
            expected="whole numbers, the rows of the tables",
            fix="for positions between rows form cos and sin with ropewalk.cos_sin",
        )
    return positions


def check_axes(plane_axes: Any, planes: int, positions: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return plane_axes as int32 after checking it against the planes and the positions."""
    axes = np.asarray(plane_axes)
    if axes.shape != (planes,) or axes.dtype.kind not in "iu":
        raise InputError(
            "plane_axes",
            found=f"shape {axes.shape}, dtype {axes.dtype}",
            expected=f"{planes} integers, one for each plane",
            fix="name the axis of each plane, e.g. [0] * 16 + [1] * 24 + [2] * 24",
        )
    shape = tuple(positions.shape)
    if len(shape) not in (2, 3):
        raise _no_axes(f"shape {shape}")
    if planes and not (axes.min() >= 0 and axes.max() < shape[0]):
        raise InputError(
            "plane_axes",
            found=f"axes from {axes.min()} to {axes.max()}",
            expected=f"axes of positions, 0 to {shape[0] - 1}",
            fix="positions has one row for each axis",
        )
    return axes.astype(np.int32)


def _no_axes(found: str) -> InputError:
    return InputError(
        "positions",
        found=f"{found} (plane_axes given)",
        expected="(axes, time) or (axes, batch, time)",
        fix="give one row of positions for each axis, or no plane_axes",
    )


def _check_inside(positions: Any, rows: int) -> None:
    if 0 in tuple(positions.shape):
        return
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high >= rows:
        raise outside(low if low < 0 else high, rows)


def outside(position: int, rows: int) -> InputError:
    """Return the error for a position that has no row."""
    return InputError(
        "positions",
        found=f"position {position}",
        expected=f"rows of the tables, 0 to {rows - 1}",
        fix="make the tables longer: ropewalk.cos_sin(rope, range(length))",
    )
