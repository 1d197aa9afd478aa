"""Cos and sin at any position, against 60 digits; what positions may be; both precisions."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import mp_oracle
import numpy as np
import pytest
import torch

from ropewalk import DynamicNTK, InputError, Linear, Rope, YaRN, cos_sin
from ropewalk.scaling.field import NumpyFloat32, TorchFloat32

TOP = 2**31
TOLERANCE = 6e-8
EVERY = pytest.mark.parametrize(
    ("rope", "length"), mp_oracle.ROPES.values(), ids=mp_oracle.ROPES.keys()
)


def some_positions(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    spread = np.exp(draw.uniform(0, np.log(TOP), 6)) * draw.choice([-1, 1], 6)
    return {
        "int64": np.concatenate([draw.integers(-TOP, TOP, 8), [0, 1, -1, TOP - 1, 1 - TOP]]),
        "int32": draw.integers(0, TOP, 4).astype(np.int32),
        "float64": np.concatenate([draw.uniform(-TOP, TOP, 8), spread, [0.5, -1e-9, TOP - 0.25]]),
        "float32": spread.astype(np.float32),
    }


@EVERY
def test_cos_and_sin_are_right_below_two_to_the_31(rope, length):
    mp, factor = mp_oracle.mp, mp_oracle.amplitude(rope, length)
    draw = np.random.default_rng(rope.planes)
    planes = {0, rope.planes - 1, *draw.integers(0, rope.planes, 4).tolist()}
    for name, positions in some_positions(rope.head_dim).items():
        # By default the text is as long as the largest position says.
        text = int(np.floor(positions.max())) + 1 if length is None else length
        truth = mp_oracle.frequencies(rope, text)
        single = cos_sin(rope, positions, length=length)
        double = cos_sin(rope, positions, length=length, dtype=np.float64)
        assert single[0].dtype == single[1].dtype == np.float32
        assert single[0].shape == (len(positions), rope.planes)
        for row, position in enumerate(positions.tolist()):
            # The turns dropped from the product, the float64 fraction of a turn, and one
            # rounding of pi, of the angle and of the result.
            fine = 2 * np.pi * (abs(position) * 2.0**-65 + 2.0**-53) + 4 * 2.0**-53 * np.pi
            for plane in planes:
                angle = mp.mpf(position) * truth[plane]
                want = mp.cos(angle) * factor, mp.sin(angle) * factor
                for got, better, w in zip(single, double, want, strict=True):
                    assert abs(float(got[row, plane]) - w) <= TOLERANCE * factor, name
                    assert abs(float(better[row, plane]) - w) <= fine * factor, name


def test_single_precision_loses_what_exact_keeps():
    # The numbers of the module's claim: theta 500000, head_dim 128.
    rope, at = Rope(head_dim=128, theta=5e5), [131072, 10_000_000]
    exact = rope.cos_sin(at, dtype=np.float64)
    common = rope.cos_sin(at, precision="float32")
    off = np.max([np.abs(a - b).max(axis=1) for a, b in zip(exact, common, strict=True)], axis=0)
    for got, position in zip(off.tolist(), at, strict=True):
        assert position * 6e-8 * 0.1 < got <= position * 6e-8 * 2


def test_shapes_follow_the_positions():
    rope = Rope(head_dim=16, rotary_dim=8)
    for positions, shape in (
        (3, (4,)),
        (-2.5, (4,)),
        ([], (0, 4)),
        ([1, 2], (2, 4)),
        (np.zeros((2, 3, 5), np.uint8), (2, 3, 5, 4)),
        (np.zeros((2, 0)), (2, 0, 4)),
    ):
        for table in cos_sin(rope, positions):
            assert isinstance(table, np.ndarray)
            assert table.shape == shape
    one, many = cos_sin(rope, 7), cos_sin(rope, np.arange(9))
    np.testing.assert_array_equal(one[0], many[0][7])
    np.testing.assert_array_equal(one[1], many[1][7])


def test_integers_of_every_kind_give_the_same():
    rope = Rope(head_dim=64)
    want = cos_sin(rope, [0, 5, 100])
    for positions in (
        np.array([0, 5, 100], np.uint64),
        np.array([0, 5, 100], ">i4"),
        np.array([0, 5, 100], np.int8),
        np.array([0.0, 5.0, 100.0]),
        np.array([0.0, 5.0, 100.0], np.float32),
        torch.tensor([0, 5, 100], dtype=torch.int16),
        torch.tensor([0.0, 5.0, 100.0], dtype=torch.float64),
        jnp.array([0, 5, 100]),
        jnp.array([0.0, 5.0, 100.0]),
    ):
        for got, w in zip(cos_sin(rope, positions), want, strict=True):
            np.testing.assert_array_equal(np.asarray(got), w)


def test_the_result_stays_in_the_library_of_the_positions():
    rope = Rope(head_dim=64)
    for dtype in (None, torch.float16, torch.bfloat16, torch.float64):
        cos, sin = cos_sin(rope, torch.arange(5), dtype=dtype)
        assert cos.dtype == sin.dtype == (dtype or torch.float32)
    for dtype in (None, jnp.float16, jnp.bfloat16):
        cos, sin = cos_sin(rope, jnp.arange(5), dtype=dtype)
        assert isinstance(cos, jax.Array)
        assert cos.dtype == sin.dtype == (dtype or jnp.float32)
    for dtype in (None, np.float16, ml_dtypes.bfloat16, np.float64):
        cos, sin = cos_sin(rope, np.arange(5), dtype=dtype)
        assert cos.dtype == sin.dtype == (dtype or np.float32)
        assert cos.flags.writeable


@pytest.mark.parametrize("precision", ["exact", "float32"])
def test_direction_turns_the_other_way(precision):
    forward = Rope(head_dim=64, scaling=YaRN(factor=4, original_length=64))
    backward = dataclasses.replace(forward, direction=-1)
    for positions in (np.arange(-9, 300), torch.arange(-9, 300), np.linspace(0, 9, 50)):
        cos, sin = cos_sin(forward, positions, precision=precision)
        back = cos_sin(backward, positions, precision=precision)
        assert (back[0] == cos).all()
        assert (back[1] == -sin).all()


HALF = (
    "positions: got dtype {}, expected integers, float32 or float64; "
    "fix: keep position ids as integers: half precision merges neighbouring positions"
)
RANGE = (
    "positions: got a largest magnitude of {}, expected finite numbers up to 2^53; "
    "fix: check how the position ids are built"
)


@pytest.mark.parametrize("precision", ["exact", "float32"])
@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (np.zeros(2, np.float16), HALF.format("float16")),
        (np.zeros(2, ml_dtypes.bfloat16), HALF.format("bfloat16")),
        (torch.zeros(2, dtype=torch.float16), HALF.format("torch.float16")),
        (torch.zeros(2, dtype=torch.bfloat16), HALF.format("torch.bfloat16")),
        (jnp.zeros(2, jnp.bfloat16), HALF.format("bfloat16")),
        (jnp.zeros(2, jnp.float16), HALF.format("float16")),
        ([True, False], HALF.format("bool")),
        (torch.tensor([True]), HALF.format("bool")),
        ([1j], HALF.format("complex128")),
        (["1"], HALF.format("<U1")),
        ([2**70], HALF.format("object")),
        ([0.0, np.nan], RANGE.format("nan")),
        (torch.tensor([np.inf]), RANGE.format("inf")),
        ([-(2**53) - 2], RANGE.format("9007199254740994.0")),
    ],
    ids=lambda v: None if isinstance(v, str) else str(getattr(v, "dtype", v)),
)
def test_positions_that_are_refused(positions, message, precision):
    with pytest.raises(InputError) as caught:
        cos_sin(Rope(head_dim=8), positions, precision=precision)
    assert str(caught.value) == message


def test_other_refusals():
    with pytest.raises(InputError) as caught:
        cos_sin(Rope(head_dim=8), [0], precision="float64")
    assert str(caught.value) == (
        "precision: got 'float64', expected 'exact' or 'float32'; "
        "fix: use 'exact' unless a float32 model must be matched"
    )
    with pytest.raises(InputError, match="length: got -1, expected a whole number"):
        cos_sin(Rope(head_dim=8), [0], length=-1)
    assert cos_sin(Rope(head_dim=8), [2**53])[0].shape == (1, 4)


def test_the_length_is_by_default_the_largest_position_plus_one():
    rope = Rope(head_dim=64, scaling=DynamicNTK(factor=2, original_length=100))
    for positions in (np.arange(150), torch.arange(150), jnp.arange(150), [149, 3], [149.9, 0]):
        cos, _ = cos_sin(rope, positions)
        want, _ = cos_sin(rope, positions, length=150)
        assert (np.asarray(cos) == np.asarray(want)).all()
    given, _ = cos_sin(rope, np.arange(150), length=400)
    assert (given != cos_sin(rope, np.arange(150))[0]).any()
    # Decoding one token at a time at its own length is what dynamic means; a pinned length
    # keeps the table of the whole text.
    pinned, _ = cos_sin(rope, [20], length=150)
    np.testing.assert_array_equal(pinned[0], cos_sin(rope, np.arange(150))[0][20])
    for early in ([-5], [], [0]):
        np.testing.assert_array_equal(cos_sin(rope, early)[0], cos_sin(Rope(head_dim=64), early)[0])


@EVERY
def test_numpy_single_precision_is_close_to_torch(rope, length):
    positions = np.concatenate([np.arange(64), [1000, 4095, 100_003]])
    a = rope.frequencies_in(NumpyFloat32(), length).astype(np.float64)
    b = rope.frequencies_in(TorchFloat32(), length).double().numpy()
    # The two libraries' powers differ by at most 2 units, which the blends carry on; the
    # angles then differ by that times the position, and cos and sin by 2 units of 1.0 more.
    units = np.abs(a - b) / np.maximum(np.spacing(a.astype(np.float32)), 1e-45)
    slope = 2 + 2 * rope.scaling.stretch
    assert units.max() <= slope
    factor = rope.attention_factor(length)
    angles = np.abs(positions[:, None] * a)
    limit = (angles * (2 * slope + 1) * 2.0**-24 + 2 * 2.0**-23) * factor
    ours = cos_sin(rope, positions, length=length, precision="float32")
    theirs = cos_sin(rope, torch.from_numpy(positions), length=length, precision="float32")
    for x, y in zip(ours, theirs, strict=True):
        assert x.dtype == np.float32
        assert (np.abs(x.astype(np.float64) - y.double().numpy()) <= limit).all()


def test_autocast_and_default_dtype_do_not_reach_the_tables():
    """lucidrains/rotary-embedding-torch#46 and deepspeedai/DeepSpeed#4932."""
    ropes = [
        Rope(head_dim=64, scaling=s) for s in (Linear(factor=2), YaRN(factor=4, original_length=64))
    ]
    ropes.append(Rope(head_dim=64, scaling=DynamicNTK(factor=2, original_length=64)))
    positions = torch.arange(300)

    def tables():
        out = [
            table
            for rope in ropes
            for precision in ("exact", "float32")
            for table in cos_sin(rope, positions, precision=precision)
        ]
        assert {t.dtype for t in out} == {torch.float32}
        return torch.stack([t.float() for t in out])

    want = tables()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(tables(), want)
    with torch.device("meta"):
        assert torch.equal(tables(), want)
    before = torch.get_default_dtype()
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            assert torch.equal(tables(), want)
        finally:
            torch.set_default_dtype(before)
