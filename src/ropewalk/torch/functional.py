"""Rotation of PyTorch tensors: fresh, into ``out``, or in place.

Three ways lead to the same numbers. Plain eager work without gradients on the CPU goes to the
compiled kernels straight from Python. Everything that is traced, compiled or differentiated
goes through the registered operators of `operators`, and what the kernels can't do (tables
with gradients, dtypes and layouts of the exotic kind) is done by `rotation.reference`.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor
from torch.compiler import is_compiling

from ..rotation import native
from ..rotation.reference import Order
from . import operators
from .arguments import check_call, ready_call
from .memory import empty_like

Pairing = Literal["half", "adjacent"]

_module = native.attach_torch()


def _unsupported(*_: Any) -> int:
    return int(native.Outcome.UNSUPPORTED)


_kernel = _unsupported if _module is None else _module.rotate


def rotate(
    x: Tensor,
    cos: Any,
    sin: Any,
    *,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    inverse: bool = False,
    positions: Any = None,
    plane_axes: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Rotate queries or keys by the given cos and sin; see `ropewalk.rotate`.

    Differentiable in ``x``, and in ``cos`` and ``sin`` where they require a gradient.

    Args:
        x: float16, bfloat16, float32 or float64, on any device. Shape (…, time, heads,
            head_dim) for ``order="time_heads"``, (…, heads, time, head_dim) for
            ``"heads_time"``, (…, time, head_dim) for ``"time"``; any strides.
        cos: shape (time, planes) or (batch, time, planes); with ``positions`` a table
            (rows, planes). float32 (float64 for float64 ``x``); other dtypes are converted.
        sin: as ``cos``.
        pairing: ``half`` (lane i with i + planes) or ``adjacent`` (2i with 2i + 1).
        order: which axis of ``x`` is time.
        rotary_offset: index of the first rotated lane.
        inverse: turn back, by the negative angles.
        positions: an integer, the row of the first token; or an integer tensor, (time,) or
            (batch, time), the row of each; with ``plane_axes`` one more axis in front. A
            position without a row is an error on the CPU; on a GPU, where asking would stop
            the stream, it makes the token's lanes NaN.
        plane_axes: shape (planes,): which axis of ``positions`` each plane follows.
        out: tensor like ``x`` to write into. No gradient passes through it.

    Returns:
        A tensor like ``x``, or ``out``.

    Raises:
        InputError: shapes that do not fit, a position without a row, an unknown option, or
            ``x`` not a float tensor.
    """
    if not is_compiling() and type(x) is Tensor:
        target = empty_like(x) if out is None else out
        if not _kernel(
            x,
            None,
            target,
            None,
            cos,
            sin,
            pairing,
            order,
            rotary_offset,
            inverse,
            positions,
            plane_axes,
            0,
        ):
            return target
    call = ready_call((x,), cos, sin, pairing, order, rotary_offset, inverse, positions, plane_axes)
    if out is None:
        return operators.rotate(call)[0]
    check_call((x,), (out,))
    return operators.write(call, (out,))[0]


def rotate_qk(
    q: Tensor,
    k: Tensor,
    cos: Any,
    sin: Any,
    *,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    inverse: bool = False,
    positions: Any = None,
    plane_axes: Any = None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys in one call; arguments as in `rotate`.

    ``q`` and ``k`` differ at most in their number of heads. ``out`` is a pair of tensors.
    """
    if not is_compiling() and type(q) is type(k) is Tensor:
        q_out, k_out = (empty_like(q), empty_like(k)) if out is None else out
        if not _kernel(
            q,
            k,
            q_out,
            k_out,
            cos,
            sin,
            pairing,
            order,
            rotary_offset,
            inverse,
            positions,
            plane_axes,
            0,
        ):
            return q_out, k_out
    call = ready_call(
        (q, k), cos, sin, pairing, order, rotary_offset, inverse, positions, plane_axes
    )
    if out is None:
        q_turned, k_turned = operators.rotate(call)
        return q_turned, k_turned
    check_call((q, k), out)
    operators.write(call, out)
    return out


def rotate_(
    x: Tensor,
    cos: Any,
    sin: Any,
    *,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    inverse: bool = False,
    positions: Any = None,
    plane_axes: Any = None,
) -> Tensor:
    """Rotate ``x`` where it lies and return it; arguments as in `rotate`."""
    if not is_compiling() and not _kernel(
        x,
        None,
        x,
        None,
        cos,
        sin,
        pairing,
        order,
        rotary_offset,
        inverse,
        positions,
        plane_axes,
        0,
    ):
        return x
    call = ready_call((x,), cos, sin, pairing, order, rotary_offset, inverse, positions, plane_axes)
    return operators.write(call, (x,))[0]


def rotate_qk_(
    q: Tensor,
    k: Tensor,
    cos: Any,
    sin: Any,
    *,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    inverse: bool = False,
    positions: Any = None,
    plane_axes: Any = None,
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys where they lie and return them; arguments as in `rotate`."""
    if not is_compiling() and not _kernel(
        q,
        k,
        q,
        k,
        cos,
        sin,
        pairing,
        order,
        rotary_offset,
        inverse,
        positions,
        plane_axes,
        0,
    ):
        return q, k
    call = ready_call(
        (q, k), cos, sin, pairing, order, rotary_offset, inverse, positions, plane_axes
    )
    operators.write(call, (q, k))
    return q, k
