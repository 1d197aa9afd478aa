"""`ropewalk.rotate`: one call for NumPy, PyTorch and JAX, fast where it can be."""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from . import native, reference
from .reference import Order
from .rows import check_axes, check_integers, outside, pick_rows


def rotate(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    pairing: Literal["half", "adjacent"] = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    inverse: bool = False,
    positions: Any = None,
    plane_axes: Any = None,
    out: Any = None,
) -> Any:
    """Rotate queries or keys by the given cos and sin.

    Each plane's two lanes (a, b) become (a cos - b sin, a sin + b cos), in float32 (float64
    for float64 input), rounded once to the dtype of ``x``. Lanes outside
    ``[rotary_offset, rotary_offset + 2 * planes)`` are returned bit for bit.

    Args:
        x: queries or keys, float16, bfloat16, float32 or float64, in NumPy, PyTorch or JAX.
            Shape (…, time, heads, head_dim) for ``order="time_heads"``, (…, heads, time,
            head_dim) for ``"heads_time"``, (…, time, head_dim) for ``"time"``.
        cos: shape (time, planes), (batch, time, planes), or any leading axes that broadcast
            against those of ``x``; in the library of ``x``, or NumPy. With ``positions``:
            a table (rows, planes).
        sin: as ``cos``.
        pairing: ``half`` (lane i with i + planes) or ``adjacent`` (2i with 2i + 1).
        order: which axis of ``x`` is time. It is named, never guessed.
        rotary_offset: index of the first rotated lane.
        inverse: turn back, by the negative angles.
        positions: rows of the tables: an integer, the row of the first token; or whole numbers
            of shape (time,) or (batch, time); with ``plane_axes`` (axes, time) or
            (axes, batch, time).
        plane_axes: shape (planes,): which axis of ``positions`` each plane follows.
        out: an array like ``x`` to write into; may be ``x`` itself. Not for JAX.

    Returns:
        An array like ``x``: same shape, dtype, library and device; ``out`` where given.

    Raises:
        InputError: shapes that do not fit, a position without a row, an unknown option, or
            ``x`` not a float array.

    Source: Su et al. 2021, RoFormer, arXiv 2104.09864, equation 34.
    """
    options: dict[str, Any] = {
        "pairing": pairing,
        "order": order,
        "rotary_offset": rotary_offset,
        "inverse": inverse,
    }
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        from ..torch import rotate as rotate_tensor

        return rotate_tensor(
            x, cos, sin, positions=positions, plane_axes=plane_axes, out=out, **options
        )
    if isinstance(x, np.ndarray):
        return _rotate_array(x, cos, sin, positions, plane_axes, out, options)
    if out is not None:
        raise InputError(
            "out",
            found=type(out).__name__,
            expected="nothing: arrays of this library can't be written into",
            fix="use the returned array",
        )
    if positions is not None:
        reference.check_option("order", order)
        time = x.shape[reference.time_axis(order)] if hasattr(x, "shape") else None
        cos, sin = pick_rows(cos, sin, positions, plane_axes, time=time)
    return reference.rotate(x, cos, sin, **options)


def _rotate_array(
    x: Any, cos: Any, sin: Any, positions: Any, plane_axes: Any, out: Any, options: dict[str, Any]
) -> Any:
    if out is not None:
        check_out(out, x)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    cos, sin = (np.asarray(t).astype(wide, copy=False) for t in (cos, sin))
    if positions is not None and not isinstance(positions, int):
        positions = check_integers(positions).astype(np.int64, copy=False)
        if plane_axes is not None and cos.ndim == 2:
            plane_axes = check_axes(plane_axes, cos.shape[-1], positions)
    # Float arrays of a foreign byte order and the like take the readable path.
    target = np.empty_like(x) if out is None else out
    outcome = native.rotate_arrays(x, target, cos, sin, positions, plane_axes, **options)
    if outcome is native.Outcome.DONE:
        return target
    if positions is not None:
        reference.check_option("order", options["order"])
        time = x.shape[reference.time_axis(options["order"])] if x.ndim > 1 else None
        cos, sin = pick_rows(cos, sin, positions, plane_axes, time=time)
    turned = reference.rotate(x, cos, sin, **options)
    if out is None:
        return turned
    out[...] = turned
    return out


def check_out(out: Any, x: Any) -> None:
    """Refuse an ``out`` that can't take the result for ``x``."""
    found = f"{type(out).__name__}"
    if isinstance(out, type(x)):
        if tuple(out.shape) == tuple(x.shape) and out.dtype == x.dtype:
            if getattr(getattr(out, "flags", None), "writeable", True):
                return
            found = "a read-only array"
        else:
            found = f"shape {tuple(out.shape)}, dtype {out.dtype}"
    raise InputError(
        "out",
        found=found,
        expected=f"an array like x: shape {tuple(x.shape)}, dtype {x.dtype}",
        fix="make it with empty_like(x), or pass no out",
    )


__all__ = ["check_out", "outside", "rotate"]
