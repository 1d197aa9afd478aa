"""The registered operators: compiled, exported, differentiated, mapped."""

from __future__ import annotations

import copy
import functools
import io
import pickle

import numpy as np
import pytest
import torch
from kernel_grid import TORCH_DTYPES, make, same_bits, tables
from torch._dynamo.testing import CompileCounterWithBackend

import ropewalk.torch as rt
from ropewalk import InputError, Linear, LongRoPE, Rope, cos_sin
from ropewalk.rotation import reference
from ropewalk.rotation.rows import pick_rows
from ropewalk.scaling import DynamicNTK

BATCH, TIME, HEADS, KV, DIM, PLANES = 2, 5, 3, 1, 20, 8
PARTIAL = {"rotary_offset": 2}
POSITIONS = torch.tensor([[4, 0, 3, 30, 1], [2, 2, 9, 31, 5]])


def inputs(dtype=torch.float32, order="time_heads", time=TIME):
    out = []
    for seed, heads in enumerate((HEADS, KV)):
        axes = (time, heads) if order == "time_heads" else (heads, time)
        out.append(make((BATCH, *axes, DIM), dtype, seed))
    return out


gradcheck = functools.partial(torch.autograd.gradcheck, fast_mode=True)
gradgradcheck = functools.partial(torch.autograd.gradgradcheck, fast_mode=True)

SAMPLES = {
    "per token": ((TIME, PLANES), None, None),
    "per sequence": ((BATCH, TIME, PLANES), None, None),
    "positions": ((32, PLANES), POSITIONS, None),
    "axes": ((32, PLANES), POSITIONS.expand(3, -1, -1), [0, 1, 2, 0, 1, 2, 0, 1]),
}


@pytest.mark.parametrize(
    ("sample", "pairing"),
    [("per token", "half"), ("per sequence", "adjacent"), ("axes", "half")],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operators_keep_their_promises(sample, pairing):
    """Schema, fake tensors, autograd registration, AOT with dynamic shapes: PyTorch's own check."""
    shape, positions, axes = SAMPLES[sample]
    cos, sin = tables(shape, torch.float32)
    options = (pairing, "time_heads", 2, False, positions, axes)
    q, k = (x.requires_grad_() for x in inputs())
    torch.library.opcheck(torch.ops.ropewalk.rotate.default, (q, cos, sin, *options))
    torch.library.opcheck(torch.ops.ropewalk.rotate_qk.default, (q, k, cos, sin, *options))
    q, k = inputs()
    torch.library.opcheck(torch.ops.ropewalk.rotate_.default, (q, cos, sin, *options))
    torch.library.opcheck(torch.ops.ropewalk.rotate_qk_.default, (q, k, cos, sin, *options))
    text = Rope(head_dim=16).to_json()
    torch.library.opcheck(
        torch.ops.ropewalk.cos_sin.default, (POSITIONS, text, None, torch.float32)
    )


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("pairing", ["half", "adjacent"])
def test_gradients_are_the_inverse_rotation(sample, pairing):
    shape, positions, axes = SAMPLES[sample]
    cos, sin = tables(shape, torch.float64)
    options = {
        "pairing": pairing,
        "positions": positions,
        "plane_axes": axes,
        **PARTIAL,
    }
    q, k = (x.requires_grad_() for x in inputs(torch.float64))
    assert gradcheck(lambda a, b: rt.rotate_qk(a, b, cos, sin, **options), (q, k))
    assert gradgradcheck(lambda a: rt.rotate(a, cos, sin, **options), (q,))
    turned = rt.rotate_qk(q, k, cos, sin, **options)
    given = [torch.randn_like(x) for x in turned]
    found = torch.autograd.grad(turned, (q, k), given)
    for gradient, got in zip(given, found, strict=True):
        assert same_bits(got, rt.rotate(gradient, cos, sin, inverse=True, **options))
    # One of two outputs unused.
    only_k = torch.autograd.grad(rt.rotate_qk(q, k, cos, sin, **options)[1].sum(), k)[0]
    ones = torch.ones_like(k)
    assert same_bits(only_k, rt.rotate(ones, cos, sin, inverse=True, **options))


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_training_and_inference_give_the_same_bits(dtype):
    q, k = inputs(dtype)
    cos, sin = tables((TIME, PLANES), dtype)
    plain = rt.rotate_qk(q, k, cos, sin, **PARTIAL)
    recorded = rt.rotate_qk(q.requires_grad_(), k.requires_grad_(), cos, sin, **PARTIAL)
    assert all(map(same_bits, plain, recorded))
    assert all(x.requires_grad for x in recorded)
    assert all(x.dtype == dtype for x in recorded)
    with torch.inference_mode():
        assert all(map(same_bits, plain, rt.rotate_qk(q, k, cos, sin, **PARTIAL)))


def test_tables_may_have_gradients():
    """Learned frequencies: the gradient reaches cos and sin."""
    q, _ = inputs(torch.float64)
    cos, sin = (t.requires_grad_() for t in tables((TIME, PLANES), torch.float64))
    assert gradcheck(lambda c, s: rt.rotate(q, c, s), (cos, sin))
    table = [t.requires_grad_() for t in tables((32, PLANES), torch.float64)]
    assert gradcheck(lambda c, s: rt.rotate(q, c, s, positions=POSITIONS), tuple(table))


def test_in_place_keeps_the_gradient_or_refuses():
    cos, sin = tables((TIME, PLANES), torch.float32)
    q, k = (x.requires_grad_() for x in inputs())
    a, b = q * 2, k * 2
    rt.rotate_qk_(a, b, cos, sin)
    (a.sum() + b.sum()).backward()
    c, d = (x.detach().requires_grad_() for x in inputs())
    sum(x.sum() for x in rt.rotate_qk(c * 2, d * 2, cos, sin)).backward()
    assert same_bits(q.grad, c.grad)
    assert same_bits(k.grad, d.grad)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        rt.rotate_(q, cos, sin)
    with torch.no_grad():
        before = q.detach().clone()
        assert rt.rotate_(q, cos, sin) is q
        assert same_bits(q.detach(), reference.rotate(before, cos, sin))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_functorch_transforms():
    q, k = inputs()
    cos, sin = tables((TIME, PLANES), torch.float32)
    wanted = reference.rotate(q, cos, sin), reference.rotate(k, cos, sin)
    vmap, turn = torch.func.vmap, rt.rotate_qk
    assert all(map(same_bits, vmap(lambda a, b: turn(a, b, cos, sin))(q, k), wanted))
    # Another axis; nested; tables of each sample; positions of each sample.
    other = vmap(lambda x: rt.rotate(x, cos, sin), in_dims=2, out_dims=2)
    single = q.reshape(BATCH, TIME, HEADS, 1, DIM)
    assert same_bits(other(single).reshape_as(q), wanted[0])
    twice = vmap(vmap(lambda x: rt.rotate(x, cos, sin)))
    assert same_bits(twice(q[None])[0], wanted[0])
    per = tables((BATCH, TIME, PLANES), torch.float32)
    got = vmap(lambda x, c, s: rt.rotate(x, c, s))(q, *per)
    assert same_bits(got, reference.rotate(q, *per))
    batched = vmap(lambda x, c, s: rt.rotate(x, c, s))(q.expand(BATCH, *q.shape), *per)
    for i in range(BATCH):
        assert same_bits(batched[i], reference.rotate(q, per[0][i], per[1][i]))
    table = tables((32, PLANES), torch.float32)
    got = vmap(lambda x, p: rt.rotate(x, *table, positions=p))(q, POSITIONS)
    rows = pick_rows(*table, POSITIONS)
    assert same_bits(got, reference.rotate(q, *rows))
    stacked = [torch.stack([t, 2 * t]) for t in table]
    got = vmap(lambda x, c, s: rt.rotate(x, c, s, positions=POSITIONS[0]))(q, *stacked)
    assert same_bits(got[1], reference.rotate(q[1], *(2 * t[POSITIONS[0]] for t in table)))
    # Gradients of each sample, Jacobians, forward mode, Hessians.
    loss = lambda x: rt.rotate(x, cos, sin).pow(3).sum()  # noqa: E731
    per_sample = vmap(torch.func.grad(loss))(q)
    whole = torch.func.grad(loss)(q)
    assert (per_sample - whole).abs().max() <= 2**-20 * whole.abs().max()
    turned, tangent = torch.func.jvp(lambda x: rt.rotate(x, cos, sin), (q,), (k.expand_as(q),))
    assert same_bits(turned, wanted[0])
    assert same_bits(tangent, reference.rotate(k.expand_as(q), cos, sin))
    small = q[0, :1, 0].double()
    c, s = cos[:1].double(), sin[:1].double()
    flat = lambda x: rt.rotate(x, c, s, order="time").pow(2).sum()  # noqa: E731
    hessian = torch.func.hessian(flat)(small)
    assert hessian.shape == (*small.shape, *small.shape)
    forward = torch.func.jacfwd(lambda x: rt.rotate(x, c, s, order="time"))(small)
    backward = torch.func.jacrev(lambda x: rt.rotate(x, c, s, order="time"))(small)
    assert (forward - backward).abs().max() <= 2**-50


class Attention(torch.nn.Module):
    def __init__(self, rope, **options):
        super().__init__()
        self.rotary = rt.RotaryEmbedding(rope, **options)

    def forward(self, q, k, offset=0):
        q, k = self.rotary(q * 1.0, k * 1.0, offset=offset)
        return torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2).expand(-1, q.shape[2], -1, -1),
            k.transpose(1, 2).expand(-1, q.shape[2], -1, -1),
        )


ROPES = {
    "plain": Rope(head_dim=DIM),
    "partial, adjacent": Rope(head_dim=DIM, rotary_dim=8, rotary_offset=4, pairing="adjacent"),
    "linear": Rope(head_dim=DIM, scaling=Linear(factor=4)),
    "dynamic": Rope(head_dim=DIM, scaling=DynamicNTK(factor=2, original_length=8)),
    "longrope": Rope(
        head_dim=DIM,
        scaling=LongRoPE(
            short_factor=(1,) * 10, long_factor=(2,) * 10, original_length=8, factor=4
        ),
    ),
}


@pytest.mark.parametrize(
    ("backend", "name"),
    # The code that inductor makes is the same for every rope, and takes long.
    [("inductor", "plain"), *(("aot_eager", name) for name in ROPES)],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_without_compiling_again_for_each_length(name, backend):
    torch._dynamo.reset()
    block = Attention(ROPES[name])
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=counter)
    for time in (4, 7, 12, 31):
        q, k = inputs(time=time)
        for offset in (3, 17):
            wanted = block(q, k, offset)
            assert (compiled(q, k, offset) - wanted).abs().max() <= 2**-20
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_functions_in_place_and_with_gradients():
    torch._dynamo.reset()
    cos, sin = tables((64, PLANES), torch.float32)

    def step(q, k, positions):
        q, k = q * 2, k * 2
        rt.rotate_qk_(q, k, cos, sin, positions=positions, **PARTIAL)
        return rt.rotate(q, cos, sin, positions=3, inverse=True), k

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=counter)
    for time in (5, 6, 9):
        q, k = inputs(time=time)
        positions = torch.arange(time) + 2
        for pair in zip(compiled(q, k, positions), step(q, k, positions), strict=True):
            assert same_bits(*pair)
    assert counter.frame_count == 1
    q, k = (x.requires_grad_() for x in inputs())
    positions = torch.arange(TIME)
    gradients = [
        torch.autograd.grad(sum(x.pow(2).sum() for x in f(q, k, positions)), (q, k))
        for f in (compiled, step)
    ]
    for pair in zip(*gradients, strict=True):
        assert same_bits(*pair)


@pytest.mark.parametrize("name", ["plain", "dynamic"])
def test_exported_and_loaded_again(name):
    block = Attention(ROPES[name])
    time = torch.export.Dim("time", min=2, max=4096)
    exported = torch.export.export(
        block, tuple(inputs()), dynamic_shapes={"q": {1: time}, "k": {1: time}}
    )
    names = {str(node.target) for node in exported.graph.nodes}
    assert {"ropewalk.rotate_qk.default", "ropewalk.cos_sin.default"} <= names
    assert not exported.state_dict
    held = io.BytesIO()
    torch.export.save(exported, held)
    held.seek(0)
    loaded = torch.export.load(held).module()
    for length in (2, 9, 40):
        q, k = inputs(time=length)
        assert same_bits(loaded(q, k), block(q, k))


def test_traced_calls_are_recorded():
    """torch.jit.trace and make_fx see the operator, not a kernel that runs past them."""
    from torch.fx.experimental.proxy_tensor import make_fx

    cos, sin = tables((TIME, PLANES), torch.float32)
    q, _ = inputs()
    for mode in ("real", "symbolic"):
        for recording in (torch.enable_grad, torch.no_grad):
            with recording():
                graph = make_fx(lambda x, c, s: rt.rotate(x, c, s), tracing_mode=mode)(q, cos, sin)
            assert "ropewalk.rotate" in graph.code
            assert same_bits(graph(2 * q, cos, sin), reference.rotate(2 * q, cos, sin))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_trace_records_the_call():
    cos, sin = tables((TIME, PLANES), torch.float32)
    q, _ = inputs()
    traced = torch.jit.trace(lambda x: rt.rotate(x, cos, sin), (q,))
    assert same_bits(traced(2 * q), reference.rotate(2 * q, cos, sin))


def test_signs_that_are_turned_when_read():
    """The imaginary part of a conjugate is a view with a sign bit that pointers do not show."""
    values = torch.randn(BATCH, TIME, HEADS, DIM, dtype=torch.cfloat)
    x = values.conj().imag
    assert x.is_neg()
    cos, sin = tables((TIME, PLANES), torch.float32)
    assert same_bits(rt.rotate(x, cos, sin), reference.rotate(x.clone(), cos, sin))


def test_autocast_changes_nothing():
    q, k = inputs(torch.float16)
    cos, sin = tables((TIME, PLANES), torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = rt.rotate_qk(q, k, cos, sin)
        trained = rt.rotate(q.requires_grad_(), cos, sin)
    assert same_bits(got[0], reference.rotate(q.detach(), cos, sin))
    assert same_bits(trained.detach(), got[0])


def test_other_dtypes_of_tables():
    q, _ = inputs()
    cos, sin = tables((TIME, PLANES), torch.float32)
    for dtype in (torch.float64, torch.bfloat16):
        c, s = cos.to(dtype), sin.to(dtype)
        assert same_bits(rt.rotate(q, c, s), reference.rotate(q, c.float(), s.float()))
    assert same_bits(rt.rotate(q, cos.numpy(), sin.numpy()), reference.rotate(q, cos, sin))


# ---- the module ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("order", ["time_heads", "heads_time"])
def test_the_module_rotates_by_its_rope(name, dtype, order):
    rope = ROPES[name]
    module = rt.RotaryEmbedding(rope)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    options = {"pairing": rope.pairing, "rotary_offset": rope.rotary_offset, "order": order}
    for offset in (0, 7, 2000):
        q, k = inputs(dtype, order)
        cos, sin = cos_sin(rope, torch.arange(offset, offset + TIME), dtype=wide)
        wanted = [reference.rotate(x, cos, sin, **options) for x in (q, k)]
        assert all(map(same_bits, module(q, k, offset=offset, order=order), wanted))
        positions = torch.arange(offset, offset + TIME).expand(BATCH, -1)
        got = module(q, k, positions=positions, order=order)
        assert all(map(same_bits, got, wanted))
        kept = q.clone(), k.clone()
        assert module(*kept, offset=offset, order=order, in_place=True)[0] is kept[0]
        assert all(map(same_bits, kept, wanted))
    back = module(*wanted, offset=2000, order=order, inverse=True)[0].double()
    back /= rope.attention_factor(2000 + TIME) ** 2
    unit = {2: 2.0**-8, 4: 2.0**-22, 8: 2.0**-50}[dtype.itemsize]
    assert (back - q.double()).abs().max() <= 8 * unit * q.abs().max()


def test_positions_before_the_first_and_far_away():
    module = rt.RotaryEmbedding(ROPES["plain"])
    q, k = inputs()
    for places in ([-3, 0, 5, 2, 1], [2**31 - 1, 0, 5, 2**40, 1], [0, 1, 2, 130_000, 4]):
        positions = torch.tensor(places)
        cos, sin = cos_sin(ROPES["plain"], positions)
        assert same_bits(module(q, k, positions=positions)[0], reference.rotate(q, cos, sin))


def test_floats_between_tokens_are_positions_too():
    module = rt.RotaryEmbedding(ROPES["plain"])
    q, k = inputs()
    places = torch.tensor([0.0, 0.5, 1.0, 2.25, 1e6 + 0.5], dtype=torch.float64)
    cos, sin = cos_sin(ROPES["plain"], places)
    assert same_bits(module(q, k, positions=places)[0], reference.rotate(q, cos, sin))


def test_the_module_holds_nothing_to_save_cast_or_move():
    """transformers#25306 and its kind: frequencies cast to half, or lost on the meta device."""
    module = rt.RotaryEmbedding(ROPES["plain"])
    q, k = inputs()
    wanted = module(q, k, offset=3000)
    assert not module.state_dict()
    assert not list(module.parameters())
    assert not list(module.buffers())
    changed = [
        module.to(torch.bfloat16),
        module.half(),
        module.to("meta").to_empty(device="cpu"),
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
    ]
    held = io.BytesIO()
    torch.save(module, held)
    held.seek(0)
    changed.append(torch.load(held, weights_only=False))
    with torch.device("meta"):
        changed.append(rt.RotaryEmbedding(ROPES["plain"]))
    for other in changed:
        assert all(map(same_bits, other(q, k, offset=3000), wanted))
    with torch.device("meta"):
        assert all(map(same_bits, rt.RotaryEmbedding(ROPES["plain"])(q, k, offset=3000), wanted))
    # Tables made under inference mode serve training.
    fresh = rt.RotaryEmbedding(ROPES["plain"])
    with torch.inference_mode():
        fresh(q, k)
    a, b = fresh(q.requires_grad_(), k.requires_grad_())
    (a.sum() + b.sum()).backward()
    assert q.grad is not None


def test_tables_grow_without_being_formed_anew():
    module = rt.RotaryEmbedding(ROPES["plain"])
    q, k = inputs(time=1)
    module(q, k, offset=10)
    first = next(iter(module._tables.values())).rows(11)
    module(q, k, offset=200)
    assert next(iter(module._tables.values())).rows(201)[0] is first[0]
    module(q, k, offset=5000)
    grown = next(iter(module._tables.values())).rows(1)
    assert grown[0].shape[0] >= 5001
    exact = cos_sin(ROPES["plain"], np.arange(grown[0].shape[0]))
    for table, wanted in zip(grown, exact, strict=True):
        assert np.array_equal(table.numpy(), wanted)


def test_a_fixed_length_is_a_bound():
    module = rt.RotaryEmbedding(ROPES["plain"], max_length=16)
    q, k = inputs()
    wanted = rt.RotaryEmbedding(ROPES["plain"])(q, k, offset=11)
    assert all(map(same_bits, module(q, k, offset=11), wanted))
    assert all(map(same_bits, module(q, k, positions=torch.arange(11, 16)), wanted))
    with pytest.raises(InputError, match=r"positions: got position 16, .* below max_length, 16"):
        module(q, k, offset=12)
    with pytest.raises(InputError, match="positions: got position 16, expected rows"):
        module(q, k, positions=torch.arange(12, 17))


REFUSED = [
    (lambda: rt.RotaryEmbedding({"head_dim": 8}), "rope: got dict"),
    (lambda: rt.RotaryEmbedding(ROPES["plain"], max_length=0), "max_length: got 0"),
    (lambda: rt.RotaryEmbedding(Rope(head_dim=8))(*inputs()), "q: got heads of 20 lanes"),
    (
        lambda: rt.RotaryEmbedding(ROPES["plain"])(*inputs(), order="bhtd"),
        "order: got 'bhtd'",
    ),
    (lambda: rt.rotate([1.0], 1, 1), "x: got list, expected a PyTorch tensor"),
    (lambda: rt.rotate_qk(inputs()[0], None, 1, 1), "k: got NoneType"),
    (
        lambda: rt.rotate_qk(inputs()[0], torch.ones(2, 4, 1, 20), *tables((5, 4), torch.float32)),
        r"x: |k: |cos: ",
    ),
    (
        lambda: rt.rotate(
            inputs()[0], *tables((9, 4), torch.float32), positions=torch.tensor([0.5] * 5)
        ),
        "positions: got dtype float32, expected whole numbers",
    ),
    (
        lambda: rt.rotate(inputs()[0], *tables((9, 4), torch.float32), plane_axes=[0] * 4),
        "plane_axes: got no positions",
    ),
    (
        lambda: rt.rotate(
            inputs()[0],
            *tables((9, 4), torch.float32),
            positions=torch.zeros(2, 5, dtype=torch.int64),
            plane_axes=[0, 1, 2, 0],
        ),
        "plane_axes: got axes from 0 to 2",
    ),
    (
        lambda: rt.rotate_(
            torch.ones(2, 1, 1, 8).expand(2, 5, 1, 8), *tables((5, 4), torch.float32)
        ),
        "x: got an expanded tensor",
    ),
    (
        lambda: rt.rotate_qk_(*[inputs()[0]] * 2, *tables((5, 4), torch.float32)),
        "k: got the memory of q",
    ),
    (
        lambda: rt.rotate(
            inputs()[0], *tables((5, 4), torch.float32), out=torch.ones(2, 5, 3, 20).double()
        ),
        r"out: got shape \(2, 5, 3, 20\), dtype torch.float64",
    ),
    (
        lambda: rt.rotate(inputs()[0], *tables((5, 4), torch.float32), rotary_offset=1.5),
        "rotary_offset: got 1.5",
    ),
    (
        lambda: rt.rotate(inputs()[0], *tables((5, 4), torch.float32), pairing="neox"),
        "pairing: got 'neox'",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refusals(call, message):
    with pytest.raises(InputError, match=message):
        call()
