"""The rotation, against a loop over single planes in float64, over the grid of options."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from ropewalk import Rope, cos_sin, rotate
from ropewalk.positions import from_offset, packed

BATCH, TIME, HEADS, DIM = 2, 3, 4, 10
# (planes, rotary_offset): all lanes, the leading part, a slice, the tail, one plane.
PARTS = [(5, 0), (3, 0), (3, 2), (3, 4), (1, 8)]
ORDERS = {"time_heads": (0, 1, 2, 3), "heads_time": (0, 2, 1, 3)}
POSITIONS = {
    "one for all": 11,
    "an offset": from_offset(9, TIME),
    "one row": np.array([[3], [70001]]),
    "(time,)": np.array([5, 2**30, 1]),
    "(batch, time)": np.array([[0, 1, 2], [100, 7, 131071]]),
    "packed": packed([0, 2, 3]),
    "floats": np.array([0.25, -1.5, 1e6 + 0.5]),
}

# JAX compiles each operation for each shape, which takes longer than all the rest here: each
# shape of table and each place of the rotated lanes once, not every pair.
JAX_CELLS = [
    ((3, 0), "one for all"),
    ((5, 0), "one row"),
    ((3, 4), "(batch, time)"),
    ((3, 2), "packed"),
]


@dataclass(frozen=True)
class Kind:
    """One library and dtype: how to make an array of it and read it back."""

    name: str
    make: Callable[[np.ndarray], Any]
    wide: Callable[[Any], Any]
    """The same values as float32 in the library (float64 for float64)."""
    narrow: Callable[[Any], Any]
    read: Callable[[Any], np.ndarray]
    """The same values as float64 in NumPy."""
    bits: Callable[[Any], np.ndarray]
    unit: float
    """Half a unit in the last place of 1 in the arithmetic of the rotation."""


def numpy_kind(dtype: Any) -> Kind:
    dtype = np.dtype(dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    return Kind(
        f"numpy {dtype.name}",
        make=lambda v: v.astype(dtype),
        wide=lambda x: x.astype(wide),
        narrow=lambda x: x.astype(dtype),
        read=lambda x: x.astype(np.float64),
        bits=lambda x: np.ascontiguousarray(x).view(f"u{dtype.itemsize}"),
        unit=2.0**-53 if wide == np.float64 else 2.0**-24,
    )


def torch_kind(dtype: torch.dtype) -> Kind:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return Kind(
        str(dtype).replace(".", " "),
        make=lambda v: torch.from_numpy(v).to(dtype),
        wide=lambda x: x.to(wide),
        narrow=lambda x: x.to(dtype),
        read=lambda x: x.double().numpy(),
        bits=lambda x: x.contiguous().view(whole).numpy(),
        unit=2.0**-53 if wide == torch.float64 else 2.0**-24,
    )


def jax_kind(dtype: Any) -> Kind:
    dtype = np.dtype(dtype)
    return Kind(
        f"jax {dtype.name}",
        make=lambda v: jnp.asarray(v.astype(dtype)),
        wide=lambda x: x.astype(jnp.float32),
        narrow=lambda x: x.astype(dtype),
        read=lambda x: np.asarray(x).astype(np.float64),
        bits=lambda x: np.asarray(x).view(f"u{dtype.itemsize}"),
        unit=2.0**-24,
    )


KINDS = [
    *map(numpy_kind, (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)),
    *map(torch_kind, (torch.float16, torch.float32, torch.float64, torch.bfloat16)),
    *map(jax_kind, (np.float32, np.float16, ml_dtypes.bfloat16)),
]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
BOTH = pytest.mark.parametrize("pairing", ["half", "adjacent"])


def loop(x: np.ndarray, cos, sin, pairing: str, offset: int, inverse: bool):
    """Rotate x of shape (batch, time, heads, lanes), one plane of one head at a time.

    Returns the result and, per lane, the sum of the magnitudes that went into it.
    """
    planes = cos.shape[-1]
    cos, sin = (
        np.broadcast_to(t, (BATCH, TIME, planes)).astype(np.float64).tolist() for t in (cos, sin)
    )
    out = x.tolist()
    size = np.zeros_like(x).tolist()
    for b, t, h in np.ndindex(x.shape[:3]):
        row, sizes = out[b][t][h], size[b][t][h]
        for p in range(planes):
            i = offset + (p if pairing == "half" else 2 * p)
            j = i + (planes if pairing == "half" else 1)
            u, v = row[i], row[j]
            c, s = cos[b][t][p], -sin[b][t][p] if inverse else sin[b][t][p]
            row[i], row[j] = c * u - s * v, s * u + c * v
            sizes[i], sizes[j] = abs(c * u) + abs(s * v), abs(s * u) + abs(c * v)
    return np.array(out), np.array(size)


def values(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((BATCH, TIME, HEADS, DIM))


@EVERY_KIND
@BOTH
@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@pytest.mark.parametrize("order", ["time_heads", "heads_time", "time"])
def test_grid(kind, pairing, inverse, order):
    axes = ORDERS.get(order)
    x = kind.make(values())
    plain = kind.read(x)
    cells = itertools.product(PARTS, POSITIONS)
    if kind.name.startswith("jax"):
        cells = JAX_CELLS
    for (planes, offset), name in cells:
        rope = Rope(head_dim=DIM, rotary_dim=2 * planes, theta=500.0, rotary_offset=offset)
        touched = [lane for plane in range(planes) for lane in rope.lanes(plane)]
        others = [lane for lane in range(DIM) if lane not in touched]
        tables = cos_sin(rope, POSITIONS[name], dtype=np.float64 if "64" in kind.name else None)
        want, size = loop(plain, *tables, pairing, offset, inverse)
        if axes is None:
            given, want, size = x[:, :, 0], want[:, :, 0], size[:, :, 0]
        else:
            given = x.transpose(*axes) if isinstance(x, np.ndarray | jax.Array) else x.permute(axes)
            want, size = want.transpose(axes), size.transpose(axes)
        options = {
            "pairing": pairing,
            "order": order,
            "rotary_offset": offset,
            "inverse": inverse,
        }
        got = rotate(given, *tables, **options)
        assert type(got) is type(given), name
        assert got.dtype == given.dtype
        assert tuple(got.shape) == tuple(given.shape)
        # Lanes outside the part keep their bits.
        np.testing.assert_array_equal(kind.bits(got)[..., others], kind.bits(given)[..., others])
        # Rotated in wide precision and rounded once: equal to doing just that.
        wide = rotate(kind.wide(given), *tables, **options)
        np.testing.assert_array_equal(kind.bits(kind.narrow(wide)), kind.bits(got))
        # Two products, each rounded, and their rounded sum: a unit of the magnitudes twice.
        off = np.abs(kind.read(wide) - want)
        assert (off <= 2 * kind.unit * size).all(), name


@EVERY_KIND
def test_untouched_lanes_keep_even_bits_that_are_no_numbers(kind):
    x = values()
    x[..., 0], x[..., 1], x[..., 8], x[..., 9] = np.nan, -0.0, np.inf, 1e-45
    x = kind.make(x)
    got = rotate(x, *cos_sin(Rope(head_dim=6), np.arange(TIME)), rotary_offset=2)
    for lanes in ([0, 1], [8, 9]):
        np.testing.assert_array_equal(kind.bits(got)[..., lanes], kind.bits(x)[..., lanes])


@EVERY_KIND
@BOTH
def test_inverse_undoes(kind, pairing):
    x = kind.wide(kind.make(values()))
    dtype = np.float64 if kind.unit == 2.0**-53 else np.float32
    cos, sin = cos_sin(Rope(head_dim=DIM), POSITIONS["(batch, time)"], dtype=dtype)
    there = rotate(x, cos, sin, pairing=pairing)
    back = kind.read(rotate(there, cos, sin, pairing=pairing, inverse=True))
    plain = kind.read(x)
    planes = DIM // 2
    if pairing == "half":
        radius = np.tile(np.hypot(plain[..., :planes], plain[..., planes:]), 2)
    else:
        radius = np.repeat(np.hypot(plain[..., 0::2], plain[..., 1::2]), 2, axis=-1)
    # Each way: products and sum, 3 units of the radius on each lane, sqrt(2) times that on the
    # plane; and cos^2 + sin^2 is 1 to 2 units.
    assert (np.abs(back - plain) <= (2 * 3 * 2**0.5 + 2) * kind.unit * radius).all()
    backwards = rotate(x, cos, -sin, pairing=pairing)
    again = rotate(x, cos, sin, pairing=pairing, inverse=True)
    np.testing.assert_array_equal(kind.bits(backwards), kind.bits(again))


@EVERY_KIND
def test_one_new_token_is_rotated_in_every_row(kind):
    """ml-explore/mlx#3494, #3496, #3795, #3949: only row 0 was rotated at one token."""
    rope = Rope(head_dim=256)
    x = kind.make(np.ones((2, 16, 1, 256)))
    got = rotate(x, *cos_sin(rope, [6]), order="heads_time")
    rows = kind.bits(got).reshape(32, 256)
    assert (rows == rows[0]).all()
    assert (kind.read(got) != 1).any(axis=-1).all()
    want = kind.read(kind.narrow(kind.make(np.cos(6) - np.sin(6) + np.zeros(1))))
    assert abs(kind.read(got)[1, 15, 0, 0] - want[0]) <= abs(want[0]) * 2.0**-7
    for shape, order in (((3, 1, 256), "time"), ((3, 1, 2, 256), "time_heads")):
        flat = kind.bits(rotate(kind.make(np.ones(shape)), *cos_sin(rope, [6]), order=order))
        assert (flat.reshape(-1, 256) == rows[0]).all()


@EVERY_KIND
def test_the_pairings_are_one_rotation_of_reordered_lanes(kind):
    x = kind.make(values())
    tables = cos_sin(Rope(head_dim=DIM), np.arange(TIME))
    # Lane i of each half, one after the other: the row order of converted weight files.
    order = [lane for i in range(DIM // 2) for lane in (i, i + DIM // 2)]
    half = kind.bits(rotate(x, *tables))[..., order]
    adjacent = kind.bits(rotate(x[..., order], *tables, pairing="adjacent"))
    np.testing.assert_array_equal(adjacent, half)


def test_shapes_with_more_and_fewer_axes():
    rope = Rope(head_dim=DIM)
    tables = cos_sin(rope, np.arange(TIME))
    x = values()
    whole = rotate(x, *tables)
    np.testing.assert_array_equal(rotate(x[0], *tables), whole[0])
    np.testing.assert_array_equal(rotate(x[0, :, 0], *tables, order="time"), whole[0, :, 0])
    np.testing.assert_array_equal(rotate(x[None, None], *tables)[0, 0], whole)
    deep = [t[None, :, :] for t in tables]
    np.testing.assert_array_equal(rotate(x[None], *deep)[0], whole)
    assert rotate(x[:, :0], *[t[:0] for t in tables]).shape == (BATCH, 0, HEADS, DIM)
    assert rotate(x[:0], *tables).shape == (0, TIME, HEADS, DIM)


def test_arrays_that_are_not_contiguous_and_inputs_that_stay():
    rope = Rope(head_dim=DIM)
    tables = cos_sin(rope, np.arange(TIME))
    big = np.random.default_rng(1).standard_normal((BATCH, 2 * TIME, HEADS, 2 * DIM))
    strided = big[:, ::2, :, ::-2]
    before = strided.copy()
    np.testing.assert_array_equal(rotate(strided, *tables), rotate(before, *tables))
    np.testing.assert_array_equal(strided, before)
    t = torch.from_numpy(before).transpose(1, 2)
    np.testing.assert_array_equal(
        rotate(t, *tables, order="heads_time").transpose(1, 2).numpy(), rotate(before, *tables)
    )
    one = torch.from_numpy(before[:, :, :1]).expand(-1, -1, HEADS, -1)
    got = rotate(one, *tables)
    assert (got == got[:, :, :1]).all()


def test_tables_of_another_library_or_dtype():
    rope = Rope(head_dim=DIM)
    x = values().astype(np.float32)
    numpy_tables = cos_sin(rope, np.arange(TIME))
    torch_tables = cos_sin(rope, torch.arange(TIME))
    jax_tables = cos_sin(rope, jnp.arange(TIME))
    want = rotate(x, *numpy_tables)
    for given in (x, torch.from_numpy(x), jnp.asarray(x)):
        for tables in (numpy_tables, torch_tables, jax_tables):
            if isinstance(given, torch.Tensor) and isinstance(tables[0], jax.Array):
                continue
            np.testing.assert_array_equal(np.asarray(rotate(given, *tables)), want)
    # Tables in double precision are rounded to the arithmetic of x.
    double = cos_sin(rope, np.arange(TIME), dtype=np.float64)
    np.testing.assert_array_equal(rotate(x, *double), want)


def test_the_cpu_table_under_another_default_device():
    x = torch.from_numpy(values())
    tables = cos_sin(Rope(head_dim=DIM), np.arange(TIME))
    want = rotate(x, *tables)
    with torch.device("meta"):
        assert torch.equal(rotate(x, *tables), want)
    shape = rotate(x.to("meta"), *tables, pairing="adjacent").shape
    assert shape == x.shape
