"""The rotation, readable: the specification that fast paths are tested against.

One text serves NumPy, PyTorch and JAX, told apart by the type of ``x`` without importing
anything. Lanes are rotated in float32 (float64 for float64 input) and rounded once to the
input's dtype. With PyTorch and JAX it is differentiable in ``x``, ``cos`` and ``sin``.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np

from ..errors import InputError

Order = Literal["time_heads", "heads_time", "time"]

ORDERS: dict[str, int] = {"time_heads": -3, "heads_time": -2, "time": -2}
"""Which axis of ``x`` is time."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def rotate(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    pairing: Literal["half", "adjacent"] = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    inverse: bool = False,
) -> Any:
    """Rotate queries or keys by the given cos and sin.

    Each plane's two lanes (a, b) become (a cos - b sin, a sin + b cos). Lanes outside
    ``[rotary_offset, rotary_offset + 2 * planes)`` are returned bit for bit.

    Args:
        x: queries or keys, float16, bfloat16, float32 or float64. Shape (…, time, heads,
            head_dim) for ``order="time_heads"``, (…, heads, time, head_dim) for
            ``"heads_time"``, (…, time, head_dim) for ``"time"``.
        cos: shape (time, planes), (batch, time, planes), or any leading axes that broadcast
            against those of ``x``; in the library of ``x``, or NumPy.
        sin: as ``cos``.
        pairing: ``half`` (lane i with i + planes) or ``adjacent`` (2i with 2i + 1).
        order: which axis of ``x`` is time. It is named, never guessed.
        rotary_offset: index of the first rotated lane.
        inverse: turn back, by the negative angles.

    Returns:
        An array like ``x``: same shape, dtype, library and device.

    Raises:
        InputError: shapes that do not fit, an unknown option, or ``x`` not a float array.

    Source: Su et al. 2021, RoFormer, arXiv 2104.09864, equation 34.
    """
    library = _library_of(x)
    cos, sin = library.like(cos, x), library.like(sin, x)
    check(x, cos, sin, pairing, order, rotary_offset)
    planes = cos.shape[-1]
    if order != "time":
        axis = ORDERS[order]
        # From (…, time, planes) to (…, time, 1, planes) or (…, 1, time, planes).
        cos, sin = (library.insert_axis(t, -2 if axis == -3 else -3) for t in (cos, sin))
    if inverse:
        sin = -sin
    end = rotary_offset + 2 * planes
    turned = library.widen(x[..., rotary_offset:end])
    if pairing == "half":
        a, b = turned[..., :planes], turned[..., planes:]
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
    first, second = a * cos - b * sin, a * sin + b * cos
    if pairing == "half":
        out = library.concat([first, second])
    else:
        out = library.interleave(first, second)
    out = library.narrow(out, x)
    if 2 * planes == x.shape[-1]:
        return out
    return library.concat([x[..., :rotary_offset], out, x[..., end:]])


_OPTIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "pairing": (
        ("half", "adjacent"),
        "'half' or 'adjacent'",
        "half is NeoX or rotate_half, adjacent is GPT-J or interleaved",
    ),
    "order": (
        tuple(ORDERS),
        "'time_heads', 'heads_time' or 'time'",
        "name the order of the axes of x",
    ),
}


def check_option(name: str, value: Any) -> None:
    """Refuse a pairing or an order that does not exist."""
    known, expected, fix = _OPTIONS[name]
    if not isinstance(value, str) or value not in known:
        raise InputError(name, found=repr(value), expected=expected, fix=fix)


def time_axis(order: str) -> int:
    """Return the axis of time, counted from the end."""
    return ORDERS[order]


def check(x: Any, cos: Any, sin: Any, pairing: str, order: str, rotary_offset: int) -> None:
    """Refuse shapes and options that do not fit together; cos and sin are per token."""
    check_option("pairing", pairing)
    check_option("order", order)
    axis, inner = ORDERS[order], 2 if order == "time" else 3
    shape, table = tuple(x.shape), tuple(cos.shape)
    if len(shape) < inner:
        raise InputError(
            "x",
            found=f"shape {shape}",
            expected=f"at least {inner} axes for order {order!r}",
            fix="name the order of the axes with order=",
        )
    if table != tuple(sin.shape) or len(table) < 1:
        raise InputError(
            "sin",
            found=f"shape {tuple(sin.shape)} (cos: {table})",
            expected="the shape of cos",
            fix="pass cos and sin of the same positions",
        )
    if not isinstance(rotary_offset, int) or rotary_offset < 0:
        raise InputError(
            "rotary_offset",
            found=repr(rotary_offset),
            expected="the index of a lane, 0 or above",
            fix="give the first rotated lane",
        )
    if rotary_offset + 2 * table[-1] > shape[-1]:
        raise InputError(
            "cos",
            found=f"{table[-1]} planes from lane {rotary_offset} on (x: {shape})",
            expected=f"at most {(shape[-1] - rotary_offset) // 2} planes",
            fix="cos holds one value per plane, half the rotated lanes; do not double it",
        )
    if len(table) >= 2 and table[-2] not in (1, shape[axis]):
        raise InputError(
            "cos",
            found=f"{table[-2]} positions (x: {shape}, order {order!r})",
            expected=f"{shape[axis]} positions, the time axis of x",
            fix="pass cos and sin of these tokens, or name the order of the axes with order=",
        )
    leading, batch = table[:-2], shape[: len(shape) - inner]
    fits = len(leading) <= len(batch) and all(
        a in (1, b) for a, b in zip(leading[::-1], batch[::-1], strict=False)
    )
    if not fits:
        raise InputError(
            "cos",
            found=f"leading axes {leading}",
            expected=f"axes that broadcast against {batch} of x",
            fix="pass cos of shape (time, planes) or (batch, time, planes)",
        )


class _Library:
    """The few operations in which the array libraries differ. Base: NumPy."""

    def like(self, table: Any, x: Any) -> Any:
        wide = np.float64 if x.dtype == np.float64 else np.float32
        return np.asarray(table).astype(wide, copy=False)

    def insert_axis(self, table: Any, axis: int) -> Any:
        # A table of one position, (planes,), broadcasts as it stands.
        return np.expand_dims(table, axis) if table.ndim >= 2 else table

    def widen(self, x: Any) -> Any:
        return x if x.dtype == np.float64 else x.astype(np.float32)

    def narrow(self, out: Any, x: Any) -> Any:
        return out.astype(x.dtype)

    def concat(self, parts: list[Any]) -> Any:
        return np.concatenate(parts, axis=-1)

    def interleave(self, first: Any, second: Any) -> Any:
        stacked = np.stack([first, second], axis=-1)
        return stacked.reshape(*stacked.shape[:-2], -1)


class _Torch(_Library):
    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def like(self, table: Any, x: Any) -> Any:
        wide = self.torch.float64 if x.dtype == self.torch.float64 else self.torch.float32
        if isinstance(table, np.ndarray):
            # PyTorch takes neither a read-only array, such as a cached table, without a
            # warning, nor the bfloat16 of ml_dtypes.
            table = np.array(table, dtype=np.float64 if wide == self.torch.float64 else np.float32)
        return self.torch.as_tensor(table, dtype=wide, device=x.device)

    def insert_axis(self, table: Any, axis: int) -> Any:
        return table.unsqueeze(axis) if table.ndim >= 2 else table

    def widen(self, x: Any) -> Any:
        return x if x.dtype == self.torch.float64 else x.to(self.torch.float32)

    def narrow(self, out: Any, x: Any) -> Any:
        return out.to(x.dtype)

    def concat(self, parts: list[Any]) -> Any:
        with self._without_autocast(parts[0]):
            return self.torch.cat(parts, dim=-1)

    def interleave(self, first: Any, second: Any) -> Any:
        with self._without_autocast(first):
            return self.torch.stack([first, second], dim=-1).flatten(-2)

    def _without_autocast(self, x: Any) -> AbstractContextManager[Any]:
        # Autocast looks at the operands of cat and stack and fails on some dtypes, such as
        # float16 on the CPU; nothing here is to be cast.
        kind = x.device.type
        if not self.torch.amp.is_autocast_available(kind):
            return nullcontext()
        off: AbstractContextManager[Any] = self.torch.autocast(device_type=kind, enabled=False)
        return off


class _Jax(_Library):
    def __init__(self, jax: Any) -> None:
        self.numpy = jax.numpy

    def like(self, table: Any, x: Any) -> Any:
        wide = self.numpy.float64 if x.dtype == self.numpy.float64 else self.numpy.float32
        return self.numpy.asarray(table).astype(wide)

    def insert_axis(self, table: Any, axis: int) -> Any:
        return self.numpy.expand_dims(table, axis) if table.ndim >= 2 else table

    def widen(self, x: Any) -> Any:
        return x if x.dtype == self.numpy.float64 else x.astype(self.numpy.float32)

    def concat(self, parts: list[Any]) -> Any:
        return self.numpy.concatenate(parts, axis=-1)

    def interleave(self, first: Any, second: Any) -> Any:
        stacked = self.numpy.stack([first, second], axis=-1)
        return stacked.reshape(*stacked.shape[:-2], -1)


def _library_of(x: Any) -> _Library:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if str(x.dtype).removeprefix("torch.") not in _FLOATS:
            raise _no_float(str(x.dtype).removeprefix("torch."))
        return _Torch(torch)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(x, jax.Array):
        if x.dtype.name not in _FLOATS:
            raise _no_float(str(x.dtype).removeprefix("torch."))
        return _Jax(jax)
    if isinstance(x, np.ndarray):
        if x.dtype.name not in _FLOATS:
            raise _no_float(str(x.dtype).removeprefix("torch."))
        return _Library()
    raise InputError(
        "x",
        found=type(x).__name__,
        expected="a NumPy array, a PyTorch tensor or a JAX array",
        fix="convert it, e.g. with numpy.asarray",
    )


def _no_float(found: str) -> InputError:
    return InputError(
        "x",
        found=f"dtype {found}",
        expected="float16, bfloat16, float32 or float64",
        fix="rotate queries and keys, not token ids",
    )
