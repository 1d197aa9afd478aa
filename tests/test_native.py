"""The compiled kernels against the readable rotation, bit for bit, over the whole grid."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from kernel_grid import DTYPES, PAIRINGS, PARTS, TORCH_DTYPES, make, same_bits, tables

import ropewalk.torch as rt
from ropewalk import InputError, rotate
from ropewalk.rotation import native, reference
from ropewalk.rotation.rows import pick_rows

KERNELS = native.kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="built without a compiler")

BATCH, TIME, HEADS = 2, 3, 3


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.usefixtures("instruction_set")
def test_equals_the_reference(dtype, pairing):
    cells = itertools.product(PARTS, ["time_heads", "heads_time"], [False, True])
    for (dim, planes, offset), order, inverse in cells:
        axes = (TIME, HEADS) if order == "time_heads" else (HEADS, TIME)
        x = make((BATCH, *axes, dim), dtype)
        options = {
            "pairing": pairing,
            "order": order,
            "rotary_offset": offset,
            "inverse": inverse,
        }
        for shape in [(planes,), (TIME, planes), (1, planes), (BATCH, TIME, planes)]:
            cos, sin = tables(shape, dtype)
            wanted = reference.rotate(x, cos, sin, **options)
            got = np.empty_like(x)
            outcome = native.rotate_arrays(x, got, cos, sin, None, None, **options)
            assert outcome is native.Outcome.DONE
            assert same_bits(got, wanted), (dim, planes, offset, order, inverse, shape)
            kept = x.copy()
            assert rotate(kept, cos, sin, out=kept, **options) is kept
            assert same_bits(kept, wanted)
            assert same_bits(rotate(x, cos, sin, **options), wanted)


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.usefixtures("instruction_set")
def test_any_strides(dtype, pairing):
    """Views of one fused projection, transposed memory, steps over lanes, reversed lanes."""
    dim, planes, offset = 40, 18, 2
    cos, sin = tables((TIME, planes), dtype)
    options = {"pairing": pairing, "rotary_offset": offset}
    fused = make((BATCH, TIME, 2 * HEADS * dim), dtype).reshape(BATCH, TIME, 2, HEADS, dim)
    views = {
        "slices of one projection": (fused[:, :, 0], fused[:, :, 1]),
        "heads before time in memory": tuple(
            make((BATCH, HEADS, TIME, dim), dtype, s).transpose(1, 2) for s in (2, 3)
        ),
        "every second lane": tuple(
            make((BATCH, TIME, HEADS, 2 * dim), dtype, s)[..., ::2] for s in (2, 3)
        ),
        "lanes outermost": tuple(
            make((dim, BATCH, TIME, HEADS), dtype, s).permute(1, 2, 3, 0) for s in (2, 3)
        ),
        "one row for all": tuple(
            make((1, TIME, HEADS, dim), dtype, s).expand(BATCH, -1, -1, -1) for s in (2, 3)
        ),
    }
    wide_cos = torch.stack([cos, sin], -1).transpose(0, 1).contiguous().transpose(0, 1)
    for name, (q, k) in views.items():
        for c, s in ((cos, sin), (wide_cos[..., 0], wide_cos[..., 1])):
            wanted = [reference.rotate(x, c, s, **options) for x in (q, k)]
            got = rt.rotate_qk(q, k, c, s, **options)
            assert all(map(same_bits, got, wanted)), name
            target = [torch.full_like(x, 7).transpose(1, 2) for x in wanted]
            target = [t.contiguous().transpose(1, 2) for t in target]
            rt.rotate_qk(q, k, c, s, out=tuple(target), **options)
            assert all(map(same_bits, target, wanted)), name
    q, k = (x.clone() for x in views["slices of one projection"])
    wanted = [reference.rotate(x, cos, sin, **options) for x in (q, k)]
    both = torch.cat([q, k], -1)
    q, k = both[..., :dim], both[..., dim:]
    rt.rotate_qk_(q, k, cos, sin, **options)
    assert same_bits(both, torch.cat(wanted, -1))


@pytest.mark.parametrize("order", ["time_heads", "heads_time", "time"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.usefixtures("instruction_set")
def test_rows_by_position(order, dtype):
    rows, planes, dim = 50, 24, 48
    cos, sin = tables((rows, planes), dtype)
    shape = {
        "time_heads": (BATCH, TIME, HEADS, dim),
        "heads_time": (BATCH, HEADS, TIME, dim),
        "time": (BATCH, TIME, dim),
    }[order]
    x = make(shape, dtype)
    picks = {
        "a start": (7, None),
        "(time,)": (torch.tensor([49, 0, 3]), None),
        "int32": (torch.tensor([[1, 2, 3], [9, 0, 49]], dtype=torch.int32), None),
        "(batch, time)": (torch.tensor([[1, 2, 3], [9, 0, 49]]), None),
        "(batch, 1)": (torch.tensor([[1], [9]]), None),
        "three axes": (torch.arange(3 * BATCH * TIME).reshape(3, BATCH, TIME), [0, 1, 2] * 8),
        "three axes, one row": (torch.arange(3 * TIME).reshape(3, TIME), [2] * 20 + [1] * 4),
    }
    for name, (positions, axes) in picks.items():
        c, s = pick_rows(cos, sin, positions, axes, time=TIME)
        wanted = reference.rotate(x, c, s, order=order)
        for table in ((cos, sin), (cos.T.contiguous().T, sin.T.contiguous().T)):
            got = rt.rotate(x, *table, positions=positions, plane_axes=axes, order=order)
            assert same_bits(got, wanted), name
        arrays = [t.float().numpy() for t in (x, cos, sin)]
        plain = positions.numpy() if isinstance(positions, torch.Tensor) else positions
        got = rotate(*arrays, positions=plain, plane_axes=axes, order=order)
        assert same_bits(torch.from_numpy(got), reference.rotate(x.float(), c, s, order=order))


@pytest.mark.parametrize(
    "positions",
    [-1, 48, torch.tensor([0, 50, 1]), torch.tensor([0, -1, 1]), torch.tensor([[2**40] * 3] * 2)],
    ids=str,
)
@pytest.mark.usefixtures("instruction_set")
def test_a_position_without_a_row_is_an_error_and_nothing_is_written(positions):
    cos, sin = tables((50, 8), torch.float32)
    x = make((BATCH, TIME, HEADS, 16), torch.float32)
    before = x.clone()
    with pytest.raises(InputError, match=r"positions: got position .* rows of the tables, 0 to 49"):
        rt.rotate_(x, cos, sin, positions=positions)
    assert same_bits(x, before)
    plain = positions.numpy() if isinstance(positions, torch.Tensor) else positions
    with pytest.raises(InputError, match="positions: got position"):
        rotate(x.numpy(), cos.numpy(), sin.numpy(), positions=plain)


@pytest.mark.usefixtures("instruction_set")
def test_every_half_precision_number_passes():
    """cos 1, sin 0 and a partner of 0: each of the 65,536 patterns comes back."""
    patterns = np.arange(2**16, dtype=np.uint16)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        for pairing in PAIRINGS:
            x = np.zeros((2**10, 1, 128), dtype)
            lanes = slice(0, 64) if pairing == "half" else slice(0, 128, 2)
            x[:, 0, lanes] = patterns.view(dtype).reshape(-1, 64)
            cos, sin = np.ones(64, np.float32), np.zeros(64, np.float32)
            with np.errstate(invalid="ignore"):  # infinity times 0
                wanted = reference.rotate(x, cos, sin, pairing=pairing)
            got = rotate(x, cos, sin, pairing=pairing)
            finite = np.isfinite(x.astype(np.float32)).all(-1)
            assert same_bits(got[finite], x[finite])
            assert same_bits(got, wanted)


@pytest.mark.usefixtures("instruction_set")
def test_rounding_to_half_precision():
    """Float32 of every size and sign, ties among them, rounded as NumPy and PyTorch do."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, 2**16, dtype=np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    near = (np.arange(2**16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    for numbers in (values, near):
        table = np.where(np.isfinite(numbers), numbers, 1).astype(np.float32).reshape(-1, 64)
        for dtype in (np.float16, ml_dtypes.bfloat16):
            x = np.zeros((len(table), 1, 128), dtype)
            x[:, 0, :64] = 1
            with np.errstate(over="ignore"):
                wanted = reference.rotate(x, table, table)
            assert same_bits(rotate(x, table, table), wanted)
            adjacent = np.zeros_like(x)
            adjacent[:, 0, ::2] = 1
            with np.errstate(over="ignore"):
                wanted = reference.rotate(adjacent, table, table, pairing="adjacent")
            assert same_bits(rotate(adjacent, table, table, pairing="adjacent"), wanted)


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_threads_do_not_matter(dtype):
    q, k = make((2, 300, 8, 64), dtype), make((2, 300, 2, 64), dtype, 5)
    cos, sin = tables((300, 32), dtype)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(rt.rotate_qk(q, k, cos, sin))
    finally:
        torch.set_num_threads(before)
    wanted = reference.rotate(q, cos, sin), reference.rotate(k, cos, sin)
    for pair in found:
        assert all(map(same_bits, pair, wanted))


SECOND_POOL = """
import os, torch, numpy as np
import ropewalk, ropewalk.torch as rt
from ropewalk.rotation import native
torch.set_num_threads(2)
x = torch.randn(1, 2000, 8, 64)
(x @ x.transpose(-1, -2)).sum()  # PyTorch's threads are there now
before = len(os.listdir("/proc/self/task"))
cos, sin = ropewalk.cos_sin(ropewalk.Rope(head_dim=64), torch.arange(2000))
rt.rotate_(x, cos, sin)
ropewalk.rotate(x.numpy(), cos.numpy(), sin.numpy())
print(native.kernels().pool(), len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_second_pool_of_threads():
    done = run_python(SECOND_POOL)
    assert done.stdout.split() == ["openmp", "0"], done.stderr


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


FORKED = """
import os
import numpy as np
from ropewalk import rotate
from ropewalk.rotation import native, reference
def right():
    x = np.random.default_rng(0).standard_normal((1, 4000, 8, 64)).astype(np.float32)
    return np.array_equal(rotate(x, x[0, :, 0, :32], x[0, :, 1, :32]),
                          reference.rotate(x, x[0, :, 0, :32], x[0, :, 1, :32]))
assert native.kernels().pool() == "own" and right()
child = os.fork()
if not child:
    good = right() and len(os.listdir("/proc/self/task")) == 2
    os._exit(0 if good else 1)
print("child", os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks and reads /proc")
def test_a_forked_child_has_threads_of_its_own():
    # Without PyTorch, whose threads do not survive a fork whoever uses them.
    done = run_python(FORKED, OMP_NUM_THREADS="2")
    assert done.stdout.strip() == "child 0", done.stderr


MISSING = """
import sys, warnings
sys.modules["ropewalk._native"] = None
import numpy as np
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import ropewalk
    rope = ropewalk.Rope(head_dim=8)
    for _ in range(3):
        cos, sin = ropewalk.cos_sin(rope, range(4))
        x = ropewalk.rotate(np.ones((4, 2, 8), np.float32), cos, sin, positions=np.arange(4))
    import torch, ropewalk.torch as rt
    y = rt.rotate(torch.ones(4, 2, 8), torch.tensor(cos), torch.tensor(sin))
    rt.rotate_qk_(z := torch.ones(1, 4, 2, 8), torch.ones(1, 4, 1, 8), cos, sin, positions=0)
print(len(seen), str(seen[0].message).count("without its compiled kernels"))
print(np.array_equal(x, y.numpy()), np.array_equal(z[0].numpy(), x))
"""


def test_without_kernels_results_are_the_same_and_it_is_said_once():
    done = run_python(MISSING, ROPEWALK_NATIVE="")
    assert done.stdout.split() == ["1", "1", "True", "True"], done.stderr


def test_tensors_handed_over_as_pointers(monkeypatch):
    """As with a PyTorch that has no C functions for reading tensors."""
    monkeypatch.setattr(native, "attach_torch", lambda: None)
    seen, view = [], native.tensor_view
    monkeypatch.setattr(native, "tensor_view", lambda t: seen.append(t) or view(t))
    q, k = (make((BATCH, TIME, n, 8), torch.bfloat16, n) for n in (3, 1))
    cos, sin = tables((TIME, 4), torch.bfloat16)
    options = ("half", "time_heads", 0, False, None, None)
    got = torch.ops.ropewalk.rotate_qk(q, k, cos, sin, *options)
    assert same_bits(got[0], reference.rotate(q, cos, sin))
    assert same_bits(got[1], reference.rotate(k, cos, sin))
    assert len(seen) == 6


def test_environment_chooses():
    code = "from ropewalk.rotation import native; print(native.instruction_set())"
    assert run_python(code, ROPEWALK_NATIVE="none").stdout.strip() == "None"
    assert run_python(code, ROPEWALK_ISA="scalar").stdout.strip() == "scalar"
    bad = run_python(code, ROPEWALK_ISA="mmx").stderr
    assert "ROPEWALK_ISA: got 'mmx', expected one of scalar" in bad
    bad = run_python(code, ROPEWALK_NATIVE="/nowhere.so").stderr
    assert "ROPEWALK_NATIVE: got '/nowhere.so'" in bad


def test_wide_heads_take_the_readable_path():
    x = make((1, 2, 1, 5000), np.float32)
    cos, sin = tables((2, 2500), np.float32)
    assert same_bits(rotate(x, cos, sin), reference.rotate(x, cos, sin))


def test_foreign_arrays_take_the_readable_path():
    x = make((1, 2, 1, 8), np.float32)
    cos, sin = tables((2, 4), np.float32)
    wanted = reference.rotate(x, cos, sin)
    assert np.array_equal(rotate(x.astype(">f4"), cos, sin), wanted)
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    raw[...] = x
    assert not raw.flags.aligned
    assert np.array_equal(rotate(raw, cos, sin), wanted)


def test_overlapping_output_is_right():
    """Where the output lies over the input, but shifted, a result is formed aside first."""
    base = make(3000, torch.float32)
    x, out = base[:2560].view(1, 4, 5, 128), base[128:2688].view(1, 4, 5, 128)
    cos, sin = tables((4, 64), torch.float32)
    wanted = reference.rotate(x, cos, sin)
    rt.rotate(x, cos, sin, out=out)
    assert same_bits(out, wanted)


@pytest.mark.parametrize("shape", [(0, 3, 2, 8), (2, 0, 2, 8), (2, 3, 0, 8)])
def test_nothing_to_rotate(shape):
    x = torch.ones(shape)
    cos, sin = tables((shape[1], 4), torch.float32)
    assert rt.rotate(x, cos, sin).shape == shape
    assert rt.rotate_(x, cos, sin, positions=0).shape == shape
