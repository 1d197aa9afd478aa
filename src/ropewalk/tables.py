"""Cos and sin at any position, exact.

The default precision is right to half a unit in the last place of 1.0 in float32 (6e-8) at
every position below 2^31, integer or float, negative ones included. An integer position is
multiplied with each plane's frequency, kept as a 64-bit fraction of a turn, in unsigned
64-bit arithmetic, which drops whole turns by itself: the range reduction is exact and free,
and the error is at most ``position * 2^-65`` turns. A float position is split into its
integer part, which goes the same way, and a fraction below 1, for which float64 suffices.

``precision="float32"`` repeats the common single precision arithmetic instead, in the array
library that the positions came from: for PyTorch it equals transformers bit for bit. It is
for those who must match a model that was run that way; its angle is off by about
``position * 6e-8`` radians.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .rope import Precision, Rope
from .rotation import native
from .scaling.base import check_text
from .scaling.field import Field, NumpyFloat32, TorchFloat32

# Past this, neighbouring integers are no longer distinct as float64, and a position is
# surely a mistake.
_LARGEST_POSITION = 2.0**53


def cos_sin(
    rope: Rope,
    positions: Any,
    *,
    length: int | None = None,
    precision: Precision = "exact",
    dtype: Any = None,
) -> tuple[Any, Any]:
    """Return cos and sin of every plane's angle at the given positions.

    Args:
        rope: the rotary embedding.
        positions: integers or floats, any shape: a number, a list, a NumPy array, a PyTorch
            tensor or a JAX array. Half precision is refused: bfloat16 cannot tell 257 from 256.
        length: tokens of the text at hand; matters to ropes that depend on the length
            (dynamic NTK, LongRoPE), for which it is by default the largest position plus
            one, as transformers does it.
        precision: ``exact``, or ``float32`` for the common single precision arithmetic.
        dtype: dtype of the result in the library of the positions; by default float32.

    Returns:
        Two arrays of shape ``positions.shape + (planes,)``, multiplied by the attention
        factor, in the library and on the device of the positions (NumPy for numbers and
        lists). The sine has the sign of the rope's direction.

    Raises:
        InputError: positions in half precision, not finite, or beyond 2^53; an unknown
            precision.
    """
    if precision not in ("exact", "float32"):
        raise InputError(
            "precision",
            found=repr(precision),
            expected="'exact' or 'float32'",
            fix="use 'exact' unless a float32 model must be matched",
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(positions, torch.Tensor):
        return _torch_cos_sin(torch, rope, positions, length, precision, dtype)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(positions, jax.Array):
        target = np.dtype(np.float32 if dtype is None else dtype)
        cos, sin = _numpy_cos_sin(rope, np.asarray(positions), length, precision, target)
        return jax.numpy.asarray(cos, dtype=target), jax.numpy.asarray(sin, dtype=target)
    target = np.dtype(np.float32 if dtype is None else dtype)
    return _numpy_cos_sin(rope, np.asarray(positions), length, precision, target)


def fill_rows(
    rope: Rope,
    start: int,
    cos: npt.NDArray[np.float32],
    sin: npt.NDArray[np.float32],
    *,
    length: int | None = None,
) -> bool:
    """Write exact rows for positions from ``start`` on into float32 arrays, with no array made.

    Args:
        rope: the rotary embedding.
        start: position of the first row.
        cos: shape (rows, planes), contiguous along planes; changed.
        sin: as ``cos``, with the same strides.
        length: as for `cos_sin`.

    Returns:
        Whether it was done: False without the compiled kernels.
    """
    module = native.kernels()
    if module is None:
        return False
    _fill(module, rope, length, cos, sin, start=start)
    return True


def _fill(
    module: ModuleType,
    rope: Rope,
    length: int | None,
    cos: npt.NDArray[np.float32],
    sin: npt.NDArray[np.float32],
    *,
    start: int = 0,
    positions: npt.NDArray[np.int64] | None = None,
) -> None:
    """Hand two arrays (rows, planes) to the compiled kernel: positions, or counted from start."""
    rows, planes = cos.shape
    fractions = rope.turn_fractions(length)
    module.fill_table(
        fractions.ctypes.data,
        planes,
        0 if positions is None else positions.ctypes.data,
        start,
        rows,
        rope.attention_factor(length),
        rope.direction < 0,
        cos.ctypes.data,
        sin.ctypes.data,
        cos.strides[0] // cos.itemsize if rows else 0,
        native.thread_count(),
    )


def _fill_at(
    rope: Rope, positions: npt.NDArray[Any], length: int | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Return exact float32 tables at whole positions from the compiled kernel, if it is there."""
    module = native.kernels()
    if module is None:
        return None
    whole = np.ascontiguousarray(positions, dtype=np.int64)
    shape = (*positions.shape, rope.planes)
    cos, sin = np.empty(shape, np.float32), np.empty(shape, np.float32)
    flat = (whole.size, rope.planes)
    _fill(module, rope, length, cos.reshape(flat), sin.reshape(flat), positions=whole)
    return cos, sin


def check_positions(positions: npt.NDArray[Any]) -> None:
    """Refuse positions that are no usable numbers."""
    kind = positions.dtype.kind
    half = positions.dtype.itemsize < 4 and kind not in "iu"
    if half or kind not in "iuf":
        raise InputError(
            "positions",
            found=f"dtype {positions.dtype}",
            expected="integers, float32 or float64",
            fix="keep position ids as integers: half precision merges neighbouring positions",
        )
    if positions.size == 0:
        return
    largest = np.abs(positions.astype(np.float64)).max()
    if not largest <= _LARGEST_POSITION:  # also true for NaN
        raise InputError(
            "positions",
            found=f"a largest magnitude of {largest}",
            expected="finite numbers up to 2^53",
            fix="check how the position ids are built",
        )


def length_at(rope: Rope, positions: npt.NDArray[Any], length: int | None) -> int | None:
    """Return the length that a length-dependent rope is evaluated at."""
    if length is not None or not rope.scaling.length_dependent or positions.size == 0:
        return length
    return max(0, int(np.floor(positions.max())) + 1)


def _exact_turns(
    rope: Rope, positions: npt.NDArray[Any], length: int | None
) -> npt.NDArray[np.float64]:
    """Return angles in turns, within [-0.5, 0.5] and a fraction of a plane's own step."""
    fractions = rope.turn_fractions(length)
    if positions.dtype.kind in "iu":
        whole, rest = positions.astype(np.int64), None
    else:
        below = np.floor(positions.astype(np.float64))
        whole, rest = below.astype(np.int64), positions - below
    wrapped = whole.astype(np.uint64)[..., None] * fractions
    # Read as signed, the same bits are the fraction centred on 0, where float64 is finest.
    turns: npt.NDArray[np.float64] = np.multiply(wrapped.view(np.int64), 2.0**-64)
    if rest is not None:
        part: npt.NDArray[np.float64] = rest[..., None] * (rope.inv_freq(length) / (2 * np.pi))
        turns += part
    return turns


def _numpy_cos_sin(
    rope: Rope,
    positions: npt.NDArray[Any],
    length: int | None,
    precision: Precision,
    dtype: np.dtype[Any],
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    check_positions(positions)
    length = length_at(rope, positions, length)
    if precision == "exact" and dtype == np.float32 and positions.dtype.kind in "iu":
        filled = _fill_at(rope, positions, length)
        if filled is not None:
            return filled
    cos, sin = _readable_cos_sin(rope, positions, length, precision)
    return cos.astype(dtype, copy=False), sin.astype(dtype, copy=False)


def _readable_cos_sin(
    rope: Rope, positions: npt.NDArray[Any], length: int | None, precision: Precision
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Form the tables with NumPy: the specification of the compiled kernel."""
    factor = rope.attention_factor(length)
    if precision == "exact":
        angles = _exact_turns(rope, positions, length)
        angles *= rope.direction * 2 * np.pi
        cos, sin = np.cos(angles), np.sin(angles)
        if factor != 1.0:
            cos *= factor
            sin *= factor
        return cos, sin
    single = positions.astype(np.float32)[..., None] * rope.frequencies_in(NumpyFloat32(), length)
    amplitude = np.float32(factor)
    return np.cos(single) * amplitude, np.sin(single) * (amplitude * rope.direction)


def _torch_cos_sin(
    torch: Any,
    rope: Rope,
    positions: Any,
    length: int | None,
    precision: Precision,
    dtype: Any,
) -> tuple[Any, Any]:
    target = torch.float32 if dtype is None else dtype
    if positions.dtype in (torch.float16, torch.bfloat16):
        raise InputError(
            "positions",
            found=f"dtype {positions.dtype}",
            expected="integers, float32 or float64",
            fix="keep position ids as integers: half precision merges neighbouring positions",
        )
    numeric = positions.detach().cpu().numpy()
    if precision == "exact":
        width = np.float64 if target == torch.float64 else np.float32
        if target.itemsize < 4:
            # Rounded once, from float64: half precision is not rounded from float32.
            width = np.float64
        cos, sin = _numpy_cos_sin(rope, numeric, length, precision, np.dtype(width))
        # The device is named, so that a default device of the caller's does not matter.
        return (
            torch.as_tensor(cos, dtype=target, device=positions.device),
            torch.as_tensor(sin, dtype=target, device=positions.device),
        )
    check_positions(numeric)
    length = length_at(rope, numeric, length)
    field: Field = TorchFloat32()
    frequencies = rope.frequencies_in(field, length).to(positions.device)
    with torch.autocast(device_type=positions.device.type, enabled=False):
        angles = positions.to(torch.float32)[..., None] * frequencies
        factor = rope.attention_factor(length)
        cos, sin = angles.cos() * factor, angles.sin() * (factor * rope.direction)
        return cos.to(target), sin.to(target)


class TableCache:
    """Tables of cos and sin from position 0 on, which grow by the rows that are missing.

    A table is found by the whole rope, the length it is evaluated at, precision and dtype.
    Storage doubles when it is full, so that decoding computes one row per new token. Every
    method may be called from several threads. The least recently used tables are dropped
    beyond ``max_tables``: a dynamic rope makes a new table for every length.

    Attributes:
        rows_computed: how many rows were computed so far, over all tables.
    """

    def __init__(self, max_tables: int = 32) -> None:
        if not isinstance(max_tables, int) or max_tables < 1:
            raise InputError(
                "max_tables",
                found=repr(max_tables),
                expected="a number of tables, at least 1",
                fix="use the default, 32",
            )
        self.max_tables = max_tables
        self.rows_computed = 0
        self._tables: OrderedDict[object, _Table] = OrderedDict()
        self._lock = threading.Lock()

    def rows(
        self,
        rope: Rope,
        count: int,
        *,
        length: int | None = None,
        precision: Precision = "exact",
        dtype: Any = np.float32,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return read-only views (count, planes) of cos and sin at positions 0 … count - 1.

        ``length`` is by default ``count`` for ropes that depend on it.
        """
        if not isinstance(count, int) or count < 0:
            raise InputError(
                "count", found=repr(count), expected="a number of rows", fix="pass an integer"
            )
        if rope.scaling.length_dependent and length is None:
            length = count
        # The dtype itself, not its name in an array header: there, all small floats of
        # ml_dtypes are called "V1".
        length = check_text(length)
        key = (rope, rope.scaling.effective_length(length), precision, np.dtype(dtype))
        with self._lock:
            table = self._tables.pop(key, None) or _Table(rope.planes, np.dtype(dtype))
            self._tables[key] = table
            while len(self._tables) > self.max_tables:
                self._tables.popitem(last=False)
            self.rows_computed += table.grow(rope, count, length, precision)
            return table.views(count)

    def clear(self) -> None:
        """Drop all tables; views handed out stay valid."""
        with self._lock:
            self._tables.clear()


class _Table:
    def __init__(self, planes: int, dtype: np.dtype[Any]) -> None:
        self._filled = 0
        self._store = np.empty((2, 0, planes), dtype)

    def grow(self, rope: Rope, count: int, length: int | None, precision: Precision) -> int:
        """Fill the rows up to ``count``; return how many were computed."""
        missing = count - self._filled
        if missing <= 0:
            return 0
        if count > self._store.shape[1]:
            # A new array, so that views handed out before keep what they showed.
            room = max(count, 2 * self._store.shape[1])
            bigger = np.empty((2, room, self._store.shape[2]), self._store.dtype)
            bigger[:, : self._filled] = self._store[:, : self._filled]
            self._store = bigger
        rows = self._store[:, self._filled : count]
        filled = (
            precision == "exact"
            and self._store.dtype == np.float32
            and fill_rows(rope, self._filled, rows[0], rows[1], length=length)
        )
        if not filled:
            positions = np.arange(self._filled, count)
            rows[...] = cos_sin(
                rope, positions, length=length, precision=precision, dtype=self._store.dtype
            )
        self._filled = count
        return missing

    def views(self, count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        cos, sin = self._store[0, :count], self._store[1, :count]
        cos.setflags(write=False)
        sin.setflags(write=False)
        return cos, sin
