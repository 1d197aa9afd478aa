"""Norm with rotation, and rotation into a cache, against their readable forms."""

from __future__ import annotations

import itertools

import pytest
import torch
from kernel_grid import PARTS, TORCH_DTYPES, make, same_bits, tables

import ropewalk.torch as rt
from ropewalk import InputError
from ropewalk.rotation import fused_reference, native, reference

BATCH, TIME, HEADS, KV = 2, 3, 4, 2
UNIT = {
    torch.float32: 2.0**-24,
    torch.float64: 2.0**-53,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
# Half the step between subnormals, where it is not out of reach.
SUBNORMAL = {torch.float16: 2.0**-25}


def queries_and_keys(order, dim, dtype):
    shapes = [(BATCH, TIME, n, dim) for n in (HEADS, KV)]
    if order == "heads_time":
        shapes = [(b, n, t, d) for b, t, n, d in shapes]
    return [make(shape, dtype, seed) for seed, shape in enumerate(shapes)]


def weights(dim, dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return [make((dim,), wide, seed) for seed in (7, 8)]


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("pairing", ["half", "adjacent"])
@pytest.mark.usefixtures("instruction_set")
def test_norm_and_rotation(dtype, pairing):
    cells = itertools.product(PARTS, ["time_heads", "heads_time"], [0.0, 1.0])
    for (dim, planes, offset), order, shift in cells:
        q, k = queries_and_keys(order, dim, dtype)
        cos, sin = tables((TIME, planes), dtype)
        options = {"pairing": pairing, "order": order, "rotary_offset": offset}
        scale = weights(dim, dtype)
        got = rt.norm_rotate_qk(q, k, cos, sin, *scale, weight_offset=shift, **options)
        for x, w, turned in zip((q, k), scale, got, strict=True):
            wanted = fused_reference.norm_rotate(
                x.double(), w.double(), cos.double(), sin.double(), weight_offset=shift, **options
            )
            # In the wide arithmetic: the mean of dim squares to (log2(dim) + 5) units, half of
            # it in the root, four more roundings to the normalised lane, then two products and
            # a sum of lanes up to `size`; at last one rounding to the dtype.
            wide = 2.0**-53 if dtype == torch.float64 else 2.0**-24
            largest = fused_reference.norm_rotate(
                x.double().abs(),
                (w.double() + shift).abs(),
                cos.double().abs(),
                -sin.double().abs(),
                **options,
            ).abs()
            size = torch.maximum(largest, wanted.abs()).amax(-1, keepdim=True) * 2
            steps = (dim.bit_length() + 5) / 2 + 4 + 3
            bound = steps * wide * size + UNIT[dtype] * wanted.abs() + SUBNORMAL.get(dtype, 0)
            off = (turned.double() - wanted).abs()
            assert (off <= bound).all(), (dim, planes, offset, order, shift)


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_norm_has_the_same_bits_everywhere(dtype):
    """On every instruction set, and in every layout."""
    module = native.kernels()
    if module is None:
        pytest.skip("built without a compiler")
    for dim, planes, offset in PARTS:
        q, k = queries_and_keys("time_heads", dim, dtype)
        cos, sin = tables((TIME, planes), dtype)
        scale = weights(dim, dtype)
        found = []
        before = module.instruction_set()
        try:
            for name in module.instruction_sets():
                module.use_instruction_set(name)
                found.append(rt.norm_rotate_qk(q, k, cos, sin, *scale, rotary_offset=offset))
                turned = [x.transpose(1, 2).contiguous() for x in (q, k)]
                back = rt.norm_rotate_qk(
                    *turned, cos, sin, *scale, rotary_offset=offset, order="heads_time"
                )
                found.append([x.transpose(1, 2) for x in back])
                strided = [torch.stack([x, x], -1)[..., 0] for x in (q, k)]
                found.append(rt.norm_rotate_qk(*strided, cos, sin, *scale, rotary_offset=offset))
                kept = q.clone(), k.clone()
                rt.norm_rotate_qk(*kept, cos, sin, *scale, rotary_offset=offset, out=kept)
                found.append(kept)
        finally:
            module.use_instruction_set(before)
        for pair in found[1:]:
            assert all(map(same_bits, pair, found[0])), (dim, planes, offset)


def caches(dim, value_dim):
    """(blocks, block_size, heads, lanes), in the three layouts that are met."""
    blocks, size = 3, 4
    for name in ("paged", "heads before places", "keys and values in one"):
        if name == "paged":
            yield name, torch.zeros(blocks, size, KV, dim), torch.zeros(blocks, size, KV, value_dim)
        elif name == "heads before places":
            yield (
                name,
                torch.zeros(blocks, KV, size, dim).transpose(1, 2),
                torch.zeros(blocks, KV, size, value_dim).transpose(1, 2),
            )
        else:
            one = torch.zeros(blocks, size, KV, dim + value_dim)
            yield name, one[..., :dim], one[..., dim:]


@pytest.mark.parametrize("order", ["time_heads", "heads_time"])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.usefixtures("instruction_set")
def test_rotation_into_a_cache(order, normed):
    dtype, value_dim = torch.float32, 6
    slots = torch.tensor([[3, -1, 7], [8, 0, 11]])
    for dim, planes, offset in PARTS[1:7]:
        q, k = queries_and_keys(order, dim, dtype)
        v = make((*k.shape[:-1], value_dim), dtype, 9)
        cos, sin = tables((TIME, planes), dtype)
        options = {"order": order, "rotary_offset": offset}
        norms = dict(zip(("q_weight", "k_weight"), weights(dim, dtype), strict=True))
        if not normed:
            norms = {}
        for name, k_cache, v_cache in caches(dim, value_dim):
            wanted_k, wanted_v = k_cache.clone(), v_cache.clone()
            if normed:
                turned_q, turned_k = rt.norm_rotate_qk(q, k, cos, sin, **norms, **options)
            else:
                turned_q, turned_k = (reference.rotate(x, cos, sin, **options) for x in (q, k))
            fused_reference.write_cache(wanted_k, turned_k, slots, order=order)
            fused_reference.write_cache(wanted_v, v, slots, order=order)
            kept = k.clone()
            got = rt.rotate_into_cache(
                q, k, v, cos, sin, k_cache, v_cache, slots, **norms, **options
            )
            assert same_bits(got, turned_q), name
            assert same_bits(k_cache, wanted_k), name
            assert same_bits(v_cache, wanted_v), name
            assert same_bits(k, kept)
            assert not k_cache.transpose(0, 0)[1, 0].any()  # slot 4 was not written


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_decoding_into_a_flat_cache(dtype):
    """A flat cache: one block per sequence; positions pick rows; queries in place."""
    capacity, dim = 8, 16
    cos, sin = tables((capacity, 8), dtype)
    k_cache = torch.zeros(BATCH, capacity, KV, dim, dtype=dtype)
    v_cache = torch.zeros_like(k_cache)
    wanted_k, wanted_v = torch.zeros_like(k_cache), torch.zeros_like(k_cache)
    for step in range(capacity):
        q, k = (make((BATCH, 1, n, dim), dtype, step * 3 + n) for n in (HEADS, KV))
        v = make(k.shape, dtype, step * 3 + 1)
        places = torch.full((BATCH, 1), step)
        wanted_k[:, step] = reference.rotate(k, cos[step], sin[step])[:, 0]
        wanted_v[:, step] = v[:, 0]
        wanted_q = reference.rotate(q, cos[step], sin[step])
        slots = places + torch.arange(BATCH)[:, None] * capacity
        got = rt.rotate_into_cache(
            q, k, v, cos, sin, k_cache, v_cache, slots, positions=places, out=q
        )
        assert got is q
        assert same_bits(q, wanted_q)
    assert same_bits(k_cache, wanted_k)
    assert same_bits(v_cache, wanted_v)


def one_step(**changes):
    parts = {
        "q": torch.ones(1, 3, 4, 8),
        "k": torch.ones(1, 3, 2, 8),
        "v": torch.ones(1, 3, 2, 8),
        "cos": torch.ones(3, 4),
        "sin": torch.ones(3, 4),
        "k_cache": torch.zeros(2, 4, 2, 8),
        "v_cache": torch.zeros(2, 4, 2, 8),
        "slots": torch.tensor([[0, 1, 2]]),
    }
    parts.update(changes)
    return parts


REFUSED = [
    ({"slots": torch.tensor([[0, 1, 8]])}, "slots: got slot 8, expected -1 or places"),
    ({"slots": torch.tensor([[0, -2, 1]])}, "slots: got slot -2"),
    (
        {"slots": torch.tensor([[0, 1]])},
        r"slots: got shape \(1, 2\), int64, expected shape \(1, 3\)",
    ),
    ({"slots": torch.tensor([[0, 1, 2]], dtype=torch.int32)}, "slots: got .* int32"),
    ({"k_cache": torch.zeros(2, 4, 3, 8)}, r"k_cache: got shape \(2, 4, 3, 8\)"),
    ({"v_cache": torch.zeros(2, 4, 2, 7)}, r"v_cache: got shape \(2, 4, 2, 7\)"),
    ({"v_cache": torch.zeros(3, 4, 2, 8)}, r"v_cache: got \(3, 4\) blocks"),
    ({"k_cache": torch.zeros(2, 4, 2, 8, dtype=torch.bfloat16)}, "k_cache: got .*bfloat16"),
    ({"v": torch.ones(1, 2, 2, 8)}, r"v: got shape \(1, 2, 2, 8\)"),
    ({"q_weight": torch.ones(4)}, r"q_weight: got \(4,\), expected a tensor of shape \(8,\)"),
    (
        {"order": "time", "cos": torch.ones(4, 4), "sin": torch.ones(4, 4)}
        | dict.fromkeys("kv", torch.ones(1, 3, 4, 8)),
        "order: got 'time'",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refusals_leave_the_cache_alone(change, message):
    parts = one_step(**change)
    with pytest.raises(InputError, match=message):
        rt.rotate_into_cache(**parts)
    assert not parts["k_cache"].any()
    assert not parts["v_cache"].any()


def test_the_kernel_itself_looks_at_slots():
    """Python looks first; the kernel must not lean on it."""
    module = native.attach_torch()
    if module is None:
        pytest.skip("built without a compiler, or with an old PyTorch")
    for slot, outcome in ((7, native.Outcome.DONE), (8, native.Outcome.OUTSIDE_CACHE)):
        parts = one_step(slots=torch.tensor([[0, 1, slot]]))
        q, k, v, cos, sin, k_cache, v_cache, slots = parts.values()
        found = module.fused(
            q, k, v, q.clone(), k_cache, v_cache, cos, sin, "half", "time_heads", 0,
            None, None, None, None, 0.0, 0.0, slots, 1,
        )  # fmt: skip
        assert found == outcome
        assert bool(k_cache.any()) == (outcome is native.Outcome.DONE)


def test_gradients_pass_through_the_norm():
    q, k = (make((1, 3, n, 8), torch.float64, n).requires_grad_() for n in (2, 1))
    scale = [w.requires_grad_() for w in weights(8, torch.float64)]
    cos, sin = tables((3, 4), torch.float64)
    assert torch.autograd.gradcheck(
        lambda *given: rt.norm_rotate_qk(*given[:2], cos, sin, *given[2:]), (q, k, *scale)
    )
