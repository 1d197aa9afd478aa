"""The GPU kernel against the reference, in Triton's interpreter, or on a GPU where there is one.

What the interpreter cannot tell, the width of the loads and what is compiled anew, is read off
the code that the compiler makes for a Hopper chip (tests/triton_compile.py).
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from triton_at_hand import (
    DEVICE,
    DTYPES,
    ON_GPU,
    ORDERS,
    PAIRINGS,
    PARTS,
    SOME_ROWS,
    expected,
    heads,
    kernel,
    random,
    same,
    table,
    unit,
    wide,
)

from ropewalk.errors import InputError
from ropewalk.rotation import reference
from ropewalk.rotation.triton_launch import tile_shape

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def no_faults():
    yield
    kernel.check_faults()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("order", ORDERS)
def test_equals_the_reference_bit_for_bit(dtype: Any, pairing: Any, order: Any) -> None:
    for (dim, planes, offset), inverse in itertools.product(PARTS, [False, True]):
        q, k = (heads(order, 1, 3, count, dim, dtype) for count in (3, 2))
        cos, sin = table(3, planes, dtype=dtype)
        options = {
            "pairing": pairing, "order": order, "rotary_offset": offset, "inverse": inverse
        }  # fmt: skip
        before = q.clone()
        found_q, found_k = kernel.rotate_qk(q, k, cos, sin, **options)
        assert same(found_q, expected(q, cos, sin, **options))
        assert same(found_k, expected(k, cos, sin, **options))
        assert same(q, before)
        if inverse:
            assert same(kernel.rotate(q, cos, sin, out=q, **options), found_q)


@pytest.mark.parametrize(("dim", "planes"), [(80, 40), (96, 48), (96, 24), (64, 32), (128, 56)])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_head_dims_of_real_models(dim: int, planes: int, pairing: Any) -> None:
    q, k = heads("time_heads", 2, 2, 5, dim, torch.float32), random(2, 2, 1, dim)
    cos, sin = table(2, planes)
    found = kernel.rotate_qk(q, k, cos, sin, pairing=pairing)
    for x, y in zip((q, k), found, strict=True):
        assert same(y, expected(x, cos, sin, pairing=pairing))


@pytest.mark.parametrize("order", ["time_heads", "heads_time", "time"])
@pytest.mark.parametrize("batch", [None, 2])
def test_one_tensor_in_each_order(order: Any, batch: int | None) -> None:
    inner = {"time_heads": (5, 3), "heads_time": (3, 5), "time": (5,)}[order]
    x = random(*(() if batch is None else (batch,)), *inner, 6)
    cos, sin = table(5, 3)
    assert same(kernel.rotate(x, cos, sin, order=order), expected(x, cos, sin, order=order))


@pytest.mark.parametrize("shape", [(3,), (1, 3), (4, 3), (1, 4, 3), (2, 4, 3), (2, 1, 3)])
def test_shapes_of_cos(shape: tuple[int, ...]) -> None:
    x = random(2, 4, 2, 6)
    cos, sin = table(*shape)
    assert same(kernel.rotate(x, cos, sin), expected(x, cos, sin))


def test_cos_and_sin_of_any_strides_and_dtype() -> None:
    x = random(2, 4, 2, 6)
    cos, sin = table(3, 8, 4)
    cos, sin = cos[1:, ::2, :3], sin.transpose(0, 2)[1:, ::2, :2].transpose(0, 2)
    sin = sin.contiguous().transpose(0, 1).contiguous().transpose(0, 1)
    assert cos.stride() != sin.stride()
    assert same(kernel.rotate(x, cos, sin), expected(x, cos, sin))
    cos, sin = cos.half(), sin.double()
    assert same(kernel.rotate(x, cos, sin), expected(x, cos, sin))


def views(order: str) -> dict[str, torch.Tensor]:
    fused = random(2, 3, 7, 10)
    if order == "heads_time":
        fused = fused.transpose(1, 2)
        part = fused[:, 2:5]
    else:
        part = fused[:, :, 2:5]
    sizes = part.shape
    return {
        "heads of a fused projection": part,
        "every other lane": random(*sizes[:-1], 20)[..., 1::2],
        "lanes far apart": random(sizes[3], *sizes[:3]).permute(1, 2, 3, 0),
        "every other head, from an odd address": random(2, 13, 13, 11)[
            :, 1 : 2 * sizes[1] : 2, 1 : 2 * sizes[2] : 2, 1:
        ],
    }


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_any_strides(order: Any, pairing: Any) -> None:
    cos, sin = table(3, 3)
    options = {"pairing": pairing, "order": order, "rotary_offset": 2}
    for name, x in views(order).items():
        wanted = expected(x, cos, sin, **options)
        assert same(kernel.rotate(x, cos, sin, **options), wanted), name
        for place, out in views(order).items():
            if place == name:
                assert kernel.rotate(x, cos, sin, out=x, **options) is x
                assert same(x, wanted), name
            elif pairing == "half":
                kernel.rotate(views(order)[name], cos, sin, out=out, **options)
                assert same(out, wanted), (name, place)


def test_in_place_touches_nothing_else() -> None:
    fused = random(2, 3, 7, 10)
    q, k = fused[:, :, :4], fused[:, :, 4:6]
    cos, sin = table(3, 3)
    wanted = fused.clone()
    wanted[:, :, :6] = expected(fused[:, :, :6], cos, sin, rotary_offset=2)
    version = fused._version
    found = kernel.rotate_qk(q, k, cos, sin, rotary_offset=2, out_q=q, out_k=k)
    assert found[0] is q
    assert found[1] is k
    assert same(fused, wanted)
    assert fused._version > version  # autograd would notice


def test_a_broadcast_input() -> None:
    x = random(1, 3, 2, 6).expand(4, 3, 2, 6)
    cos, sin = table(4, 3, 3)
    assert same(kernel.rotate(x, cos, sin), expected(x, cos, sin))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lanes_outside_keep_their_bits(dtype: torch.dtype) -> None:
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    low = torch.iinfo(whole).max - 4
    odd_nan = torch.arange(low, low + 4, dtype=whole).view(dtype)  # NaNs with payloads
    x = random(1, 2, 1, 10, dtype=dtype)
    x[..., :2], x[..., 8:] = odd_nan[:2], odd_nan[2:]
    found = kernel.rotate(x, *table(2, 3, dtype=dtype), rotary_offset=2)
    for lanes in (slice(0, 2), slice(8, 10)):
        assert torch.equal(found[..., lanes].view(whole), x[..., lanes].view(whole))


# Positions


@pytest.mark.parametrize("start", [0, 1, 4])
def test_consecutive_rows(start: int) -> None:
    x = random(2, 3, 2, 6)
    cos, sin = table(7, 3)
    wanted = expected(x, cos[start : start + 3], sin[start : start + 3])
    assert same(kernel.rotate(x, cos, sin, positions=start), wanted)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_by_position_ids(dtype: torch.dtype) -> None:
    x = random(2, 3, 2, 6)
    cos, sin = table(7, 3)
    apart = torch.zeros(3, 4, dtype=torch.int64)
    apart[:, ::2] = SOME_ROWS.T
    for rows in (SOME_ROWS[0], SOME_ROWS[:1], SOME_ROWS, apart.T[::2]):
        wanted = expected(x, cos[rows], sin[rows])
        assert same(kernel.rotate(x, cos, sin, positions=rows.to(DEVICE, dtype)), wanted)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_several_axes(pairing: Any) -> None:
    # Plane p takes its row from axis axes[p], as in M-RoPE, in sections and interleaved.
    cos, sin = table(7, 5)
    ids = torch.stack([SOME_ROWS, SOME_ROWS.flip(1), ((SOME_ROWS + 1) % 7).flip(0)])
    q, k = random(2, 3, 2, 10), random(2, 3, 1, 10)
    for axes, shapes in (
        ([0, 0, 1, 1, 2], (ids[:, 0], ids)),
        ([0, 1, 2, 0, 1], (ids[:, :1],)),
    ):
        for positions in shapes:
            picked = torch.stack([positions[a] for a in axes], dim=-1)
            wanted = [t.gather(0, picked.reshape(-1, 5)).reshape(picked.shape) for t in (cos, sin)]
            for given in (axes, np.array(axes), torch.tensor(axes, device=DEVICE)):
                found = kernel.rotate_qk(
                    q, k, cos, sin, pairing=pairing, positions=positions, plane_axes=given
                )
                assert same(found[0], expected(q, *wanted, pairing=pairing))
                assert same(found[1], expected(k, *wanted, pairing=pairing))
                if positions.ndim == 2:
                    break


FAR = [7, -1, 2**40, -(2**40)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bad", FAR)
def test_a_position_outside_the_table(bad: int, dtype: torch.dtype) -> None:
    # The rows around the table are there and must not be taken for it; the far ones would end
    # the process if they were read.
    around = [t.contiguous() for t in table(20, 3)]
    cos, sin = (t[5:12] for t in around)
    x = random(1, 3, 2, 8, dtype=dtype)
    rows = torch.tensor([6, bad, 0], device=DEVICE)
    found = kernel.rotate(x, cos, sin, rotary_offset=1, positions=rows)
    wanted = expected(x, cos[[6, 0, 0]], sin[[6, 0, 0]], rotary_offset=1)
    wanted[:, 1, :, 1:7] = float("nan")
    assert same(found, wanted)
    with pytest.raises(InputError, match=f"positions: got {bad}, expected rows within the table"):
        kernel.check_faults(DEVICE)
    kernel.check_faults()  # the record is clear again


def test_a_bad_position_of_one_axis_and_a_bad_axis() -> None:
    cos, sin = table(7, 3)
    x = random(1, 3, 2, 6)
    ids = torch.tensor([[0, 1, 2], [3, 99, 5]], device=DEVICE)
    rows = ids.clamp(max=6)
    wanted = expected(
        x,
        torch.stack([cos[rows[a], p] for p, a in enumerate([0, 1, 0])], dim=-1),
        torch.stack([sin[rows[a], p] for p, a in enumerate([0, 1, 0])], dim=-1),
    )
    wanted[:, 1, :, [1, 4]] = float("nan")
    assert same(kernel.rotate(x, cos, sin, positions=ids, plane_axes=[0, 1, 0]), wanted)
    with pytest.raises(InputError, match="positions: got 99"):
        kernel.check_faults()
    if ON_GPU:  # elsewhere the axes themselves are checked before the launch
        axes = torch.tensor([0, 2, 0], device=DEVICE)
        found = kernel.rotate(x, cos, sin, positions=rows, plane_axes=axes)
        assert found[..., [1, 4]].isnan().all()
        with pytest.raises(InputError, match="plane_axes: got 2"):
            kernel.check_faults()


# Gradients


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("order", ORDERS)
def test_the_inverse_is_the_gradient(dtype: Any, pairing: Any, order: Any) -> None:
    cos, sin = table(3, 3, dtype=dtype)
    options = {"pairing": pairing, "order": order, "rotary_offset": 2}
    for count in (3, 1):
        x, coming = (heads(order, 2, 3, count, 10, dtype) for _ in range(2))
        coming = coming.flip(0)
        exact = x.double().requires_grad_()
        reference.rotate(exact, cos.double(), sin.double(), **options).backward(coming.double())
        assert exact.grad is not None
        found = kernel.rotate(coming, cos, sin, inverse=True, **options)
        # Two products and a sum, each rounded once: 2 units of the two products' sizes.
        sizes = reference.rotate(coming.abs().double(), cos.abs().double(), -sin.abs().double(),
                                **options).abs()  # fmt: skip
        largest = sizes.maximum(
            reference.rotate(
                coming.abs().double(), cos.abs().double(), sin.abs().double(), **options
            )
        )
        assert ((found.double() - exact.grad).abs() <= 3 * unit(dtype) * largest).all()
        if dtype == torch.float64:
            assert torch.equal(found, exact.grad)


def test_a_gradient_that_would_be_lost_is_refused() -> None:
    x = random(1, 2, 1, 6).requires_grad_()
    with pytest.raises(InputError, match="requires a gradient"):
        kernel.rotate(x, *table(2, 3))
    with torch.no_grad():
        kernel.rotate(x, *table(2, 3))


# Norm and rotation


def normalised(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
    x = x.double()
    shrunk = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return shrunk * (offset + weight.double())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_norm_and_rotation(dtype: torch.dtype, pairing: Any) -> None:
    for (dim, planes, offset), order in zip(PARTS, ORDERS * 3, strict=False):
        q, k = (heads(order, 2, 3, count, dim, dtype) for count in (3, 1))
        weights = [random(dim, dtype=dtype, seed=s) for s in (1, 2)]
        rows = SOME_ROWS.to(DEVICE)
        cos, sin = table(7, planes, dtype=dtype)
        more, eps = offset % 4 // 2, 1e-3
        options = {"pairing": pairing, "order": order, "rotary_offset": offset}
        given = [q.clone(), k]
        found = kernel.norm_rotate_qk(
            *given, cos, sin, *weights, eps=eps, weight_offset=more, positions=rows,
            out_q=given[0], **options,
        )  # fmt: skip
        assert found[0] is given[0]
        for x, weight, y in zip((q, k), weights, found, strict=True):
            exact = normalised(x, weight, eps, more)
            turn = [t[rows].double() for t in (cos, sin)]
            wanted = reference.rotate(exact, *turn, **options)
            # Relative to the normalised lanes of a plane: the sum of dim squares, mean, eps,
            # root, division, two products and the weight's sum, then the rotation's three; and
            # one rounding to the dtype (the interpreter's bfloat16 is cut: twice that).
            largest = exact.abs().amax(-1, keepdim=True) * 2
            bound = (dim + 12) * unit(wide(dtype)) * largest + 2 * unit(dtype) * wanted.abs()
            bound += torch.finfo(dtype).smallest_normal
            assert ((y.double() - wanted).abs() <= bound).all()


# Rotation into a cache


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("keep", [False, True])
def test_rotation_into_a_cache(pairing: Any, dtype: torch.dtype, keep: bool) -> None:
    order = "heads_time" if keep else "time_heads"
    q, k = (heads(order, 2, 3, count, 10, dtype) for count in (3, 2))
    v = heads(order, 2, 3, 2, 7, dtype)
    cos, sin = table(7, 3)
    # Blocks of 4 slots, stored with the heads before the slots, as some engines do.
    keys, values = random(5, 2, 4, 10, dtype=dtype), random(5, 2, 4, 7, dtype=dtype)
    keys, values = keys.transpose(1, 2), values.transpose(1, 2)
    if pairing == "adjacent":
        keys = torch.stack((keys, keys), dim=-1)[..., 1]  # lanes apart
    slots = torch.tensor([[13, 0, 19], [-1, 6, 7]], device=DEVICE)
    options = {"pairing": pairing, "order": order, "rotary_offset": 2}
    turned = [expected(x, cos[SOME_ROWS], sin[SOME_ROWS], **options) for x in (q, k)]
    in_time = (lambda x: x.transpose(1, 2)) if keep else (lambda x: x)
    wanted_keys, wanted_values = keys.clone(), values.clone()
    for b, t in itertools.product(range(2), range(3)):
        slot = int(slots[b, t])
        if slot >= 0:
            wanted_keys[slot // 4, slot % 4] = in_time(turned[1])[b, t]
            wanted_values[slot // 4, slot % 4] = in_time(v)[b, t]
    found = kernel.rotate_into_cache(
        q, k, v, cos, sin, keys, values, slots, positions=SOME_ROWS.to(DEVICE),
        out_q=None if keep else q, out_k=k if keep else None, **options,
    )  # fmt: skip
    assert same(found, turned[0])
    assert same(keys, wanted_keys)
    assert same(values, wanted_values)
    if keep:
        assert same(k, turned[1])
    else:
        assert found is q


def test_norm_and_rotation_into_a_cache() -> None:
    q, k, v = random(1, 3, 2, 10), random(1, 3, 1, 10), random(1, 3, 1, 10)
    turn, weights = table(3, 3), [random(10, seed=s) for s in (1, 2)]
    options = {"eps": 1e-3, "weight_offset": 1.0, "rotary_offset": 2}
    wanted_q, wanted_k = kernel.norm_rotate_qk(q, k, *turn, *weights, **options)
    keys, values = random(2, 2, 1, 10), random(2, 2, 1, 10)
    slots = torch.tensor([[3, 1, 0]], device=DEVICE)
    found = kernel.rotate_into_cache(
        q, k, v, *turn, keys, values, slots, q_weight=weights[0], k_weight=weights[1], **options
    )
    assert same(found, wanted_q)
    assert same(keys.flatten(0, 1)[slots], wanted_k)
    assert same(values.flatten(0, 1)[slots], v)


@pytest.mark.parametrize("bad", [20, -2, 2**40])
def test_slots_outside_the_cache_are_never_written(bad: int) -> None:
    q, k, v = random(1, 2, 2, 6), random(1, 2, 1, 6), random(1, 2, 1, 6)
    store = random(2, 9, 4, 1, 6)  # the cache is in the middle of it
    before = store.clone()
    slots = torch.tensor([[bad, 3]], device=DEVICE)
    cos, sin = table(2, 3)
    kernel.rotate_into_cache(q, k, v, cos, sin, store[0, 2:7], store[1, 2:7], slots)
    with pytest.raises(InputError, match=f"slots: got {bad}, expected slots within the cache"):
        kernel.check_faults()
    before[0, 2, 3], before[1, 2, 3] = expected(k, cos, sin)[0, 1], v[0, 1]
    assert same(store, before)


# Sizes, tiles, code


def test_nothing_to_rotate() -> None:
    for shape in [(0, 3, 2, 6), (2, 0, 2, 6), (2, 3, 0, 6)]:
        x = torch.empty(shape, device=DEVICE)
        assert kernel.rotate(x, *table(shape[1], 3)).shape == shape


def test_more_tokens_and_heads_than_a_tile() -> None:
    # 40 KiB per token row, so a tile holds one token and one head of the largest.
    cos, sin = table(5, 512)
    x = random(1, 5, 3, 1030, dtype=torch.float64)
    assert tile_shape(5, 3, 0, 512, 6, 0, 8) == (1, 1, 4)
    cos, sin = cos.double(), sin.double()
    assert same(kernel.rotate(x, cos, sin, rotary_offset=3), expected(x, cos, sin, rotary_offset=3))


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((4096, 32, 8, 64, 0, 0, 2), (4, 8, 4)),  # Llama 3 8B, bfloat16
        ((4096, 32, 8, 64, 0, 0, 4), (2, 8, 4)),  # the same in float32
        ((4096, 9, 3, 32, 0, 0, 2), (16, 4, 4)),  # SmolLM 135M
        ((1, 32, 8, 64, 0, 0, 2), (1, 8, 1)),  # one token
        ((3, 32, 8, 64, 0, 0, 2), (4, 8, 4)),
        ((4096, 128, 1, 32, 512, 0, 2), (1, 4, 2)),  # a latent head of 512 + 64 lanes
        ((4096, 16, 16, 40, 0, 0, 2), (2, 16, 4)),  # 80 lanes take the room of 128
    ],
)
def test_tiles(sizes: tuple[int, ...], shape: tuple[int, int, int]) -> None:
    assert tile_shape(*sizes) == shape


def test_tiles_are_powers_of_two() -> None:
    for sizes in itertools.product(
        [1, 5, 4096], [0, 1, 9, 40], [0, 3], [1, 3, 48], [0, 5, 700], [0, 96], [2, 8]
    ):
        for number in tile_shape(*sizes):
            assert number > 0
            assert number & (number - 1) == 0


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "triton_compile.py")],
        env={**kept, "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_the_compiled_code(code: dict[str, Any]) -> None:
    # float32 equals the reference only without fused multiply-add; lanes move 16 bytes at a
    # time; nothing goes through shared or local memory, but for gathered rows.
    for label, kernels in code["cases"].items():
        for found in kernels:
            assert found["fused"] == 0, label
            assert found["narrow"] == 0, label
            assert found["wide"] >= 8, label
            assert found["local"] == 0, label
            assert found["shared"] == 0 or label == "axes", label


def test_one_kernel_for_all_lengths(code: dict[str, Any]) -> None:
    assert len(code["cases"]["half"]) == 1
    assert len(code["cases"]["heads_time"]) == 1


def test_imported_only_when_wanted(code: dict[str, Any]) -> None:
    assert code["triton came with ropewalk"] is False


# Called by ropewalk.torch


class Call:
    """What ropewalk.torch hands over."""

    def __init__(self, cos: Any, sin: Any, order: str, **more: Any) -> None:
        self.cos, self.sin, self.order = cos, sin, order
        self.pairing, self.rotary_offset, self.inverse = "adjacent", 1, True
        self.positions = self.plane_axes = None
        vars(self).update(more)


def test_launched_with_more_axes_than_one_in_front() -> None:
    cos, sin = table(3, 2)
    options = {"pairing": "adjacent", "order": "heads_time", "rotary_offset": 1, "inverse": True}
    q, k = random(2, 2, 2, 3, 6), random(2, 2, 1, 3, 6)
    wanted = [expected(x, cos, sin, **options) for x in (q, k)]
    outs = torch.empty_like(q), torch.empty_like(k)
    assert kernel.launch((q, k), outs, Call(cos, sin, "heads_time"))
    assert same(outs[0], wanted[0])
    assert same(outs[1], wanted[1])
    # Axes that are no single axis in memory, and tables along them, are left to the caller.
    apart = q.transpose(0, 1)[:, :1].expand(2, 2, 2, 3, 6)
    assert not kernel.launch((apart,), (outs[0],), Call(cos, sin, "heads_time"))
    assert not kernel.launch((q,), (q,), Call(*table(2, 2, 3, 2), "heads_time"))
    assert same(outs[0], wanted[0])
