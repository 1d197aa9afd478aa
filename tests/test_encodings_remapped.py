"""ReRoPE, Self-Extend, dual chunks and log-n against loops over pairs of positions.

The oracle takes one pair at a time: the relative position as the papers write it, angles in
float64 from frequencies in 60 digits, planes as complex numbers.
"""

from __future__ import annotations

import math

import mp_oracle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import Clipped, DynamicNTK, InputError, Linear, Proportional, Resonance, Rope, YaRN
from ropewalk.encodings import (
    ENCODINGS,
    DualChunk,
    Learned,
    LogN,
    NoPE,
    ReRoPE,
    Rotary,
    SelfExtend,
    Sinusoidal,
    Sizes,
)
from ropewalk.encodings.modules import attend, attention, module_for, remapped

ROPE = Rope(head_dim=16)
SIZES = Sizes(heads=2, head_dim=16, width=32)
LENGTH = 90


# One relative position at a time.


def rectified(window, leak=None):
    def of(m, n):
        distance = m - n
        if distance < window:
            return distance
        return window if leak is None else window + (distance - window) / leak

    return of


def grouped(group, window):
    def of(m, n):
        if m - n < window:
            return m - n
        return m // group - n // group + window - window // group

    return of


def in_chunks(s, w):
    """The paper's lists of positions: s is the chunk, c what was trained, w = c - s."""
    c = s + w
    of_key = list(range(s))
    intra = list(range(s))
    successive = [min(s + r, c - 1) if r < w else c - 1 for r in range(s)]
    inter = [c - 1] * s

    def of(m, n):
        apart = m // s - n // s
        query = intra if apart == 0 else successive if apart == 1 else inter
        return query[m % s] - of_key[n % s]

    return of


CASES = {
    "rerope": (ReRoPE(rope=ROPE, window=20), rectified(20)),
    "rerope, window 1": (ReRoPE(rope=ROPE, window=1), rectified(1)),
    "leaky": (ReRoPE(rope=ROPE, window=20, leak=3.7), rectified(20, 3.7)),
    "leaky, amplitude, adjacent": (
        ReRoPE(
            rope=Rope(head_dim=16, pairing="adjacent", scaling=YaRN(factor=4, original_length=64)),
            window=31,
            leak=16,
        ),
        rectified(31, 16),
    ),
    "self-extend": (SelfExtend(rope=ROPE, group=4, window=16), grouped(4, 16)),
    "self-extend, uneven": (SelfExtend(rope=ROPE, group=7, window=25), grouped(7, 25)),
    "self-extend, partial, turned back": (
        SelfExtend(
            rope=Rope(head_dim=16, rotary_dim=8, rotary_offset=4, direction=-1),
            group=3,
            window=10,
        ),
        grouped(3, 10),
    ),
    "dual-chunk": (DualChunk(rope=ROPE, chunk=24, local=8), in_chunks(24, 8)),
    "dual-chunk, all local": (DualChunk(rope=ROPE, chunk=13, local=13), in_chunks(13, 13)),
    "dual-chunk, interpolated": (
        DualChunk(
            rope=Rope(head_dim=16, scaling=Linear(factor=2, original_length=16)),
            chunk=21,
            local=4,
        ),
        in_chunks(21, 4),
    ),
}
EVERY = pytest.mark.parametrize(("encoding", "relative"), CASES.values(), ids=CASES.keys())
ENCODING = pytest.mark.parametrize(
    "encoding", [made for made, _ in CASES.values()], ids=CASES.keys()
)


def by_pairs(rope, q, k, relative, length=None):
    """Scores (heads, queries, keys) by a loop over pairs; q and k at positions 0, 1, …"""
    frequencies = [float(f) for f in mp_oracle.frequencies(rope, length)]
    power = float(mp_oracle.amplitude(rope, length)) ** 2
    lanes = [rope.lanes(plane) for plane in range(rope.planes)]
    rest = [
        lane for lane in range(rope.head_dim) if lane not in {i for pair in lanes for i in pair}
    ]
    first, second = ([pair[side] for pair in lanes] for side in (0, 1))
    out = np.empty((*q.shape[:2], k.shape[1]))
    start = k.shape[1] - q.shape[1]
    for m in range(q.shape[1]):
        query = q[:, m, first] + 1j * q[:, m, second]
        for n in range(k.shape[1]):
            angle = rope.direction * relative(start + m, n) * np.array(frequencies)
            key = k[:, n, first] + 1j * k[:, n, second]
            turned = (query * np.exp(1j * angle) * key.conj()).real.sum(-1)
            out[:, m, n] = power * turned + (q[:, m, rest] * k[:, n, rest]).sum(-1)
    return out / math.sqrt(rope.head_dim)


def norms(q, k, head_dim):
    return float(np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max()) / math.sqrt(
        head_dim
    )


def float32_bound(q, k, v, amplitude=1.0, growth=1.0):
    """How far attention in single precision may be from that in double.

    A score is off by its 16 products, two rotations, tables and scale; a weight by twice that
    of itself, besides the softmax's and the sum's own.
    """
    largest = [float(t.detach().double().norm(dim=-1).max()) for t in (q, k)]
    score = math.prod(largest) / 4 * amplitude**2 * growth * (16 + 12) * 2.0**-24
    return (2 * score + (LENGTH + 4) * 2.0**-24) * float(v.detach().abs().max())


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def tensors(batch=2, time=LENGTH, dtype=torch.float32, seed=0):
    made = [drawn(batch, 2, time, 16, seed=seed + i) for i in range(3)]
    return [torch.from_numpy(each).to(dtype) for each in made]


def attended(scores, v):
    """Softmax of the scores that a causal mask leaves, times v, in float64."""
    queries, keys = scores.shape[-2:]
    ahead = np.arange(keys) > np.arange(keys - queries, keys)[:, None]
    scores = np.where(ahead, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@EVERY
def test_scores_are_those_of_the_loop(encoding, relative):
    q, k = drawn(2, LENGTH, 16), drawn(2, LENGTH, 16, seed=1)
    at = np.arange(LENGTH)
    got = encoding.scores(q, k, at, at)
    causal = np.tril(np.ones((LENGTH, LENGTH), dtype=bool))
    wanted = by_pairs(encoding.rope, q, k, lambda m, n: relative(m, n) if n <= m else 0)
    # Angles below LENGTH are formed with 3 roundings, sums of products of 16 lanes with 19.
    bound = norms(q, k, 16) * (3 * LENGTH + 19) * 2.0**-53 * encoding.rope.attention_factor() ** 2
    assert np.abs(got - wanted)[:, causal].max() <= bound


@ENCODING
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("rows", [64, 7])
def test_the_module_attends_by_the_scores(monkeypatch, encoding, gradients, rows):
    """Also where blocks of queries are so small that most keys take one variant."""
    monkeypatch.setattr(attention, "_FEWEST_ROWS", rows)
    monkeypatch.setattr(attention, "_SCORES_AT_ONCE", 1)
    module = module_for(encoding, SIZES)
    q, k, v = tensors()
    at = torch.arange(LENGTH)
    for tensor in (q, k, v):
        tensor.requires_grad_(gradients)
    out = attend(module, q, k, v, at, at)
    for row in range(2):
        qn, kn, vn = (t[row].detach().numpy().astype(np.float64) for t in (q, k, v))
        want = attended(encoding.scores(qn, kn, at, at), vn)
        bound = float32_bound(q, k, v, encoding.rope.attention_factor())
        assert np.abs(out[row].detach().numpy() - want).max() <= bound


@EVERY
def test_gradients_are_those_of_the_dense_formula(encoding, relative):
    time = 50
    q, k, v = (t.requires_grad_() for t in tensors(1, time, torch.float64))
    at = torch.arange(time)
    weight = torch.from_numpy(drawn(1, 2, time, 16, seed=9))
    (attend(module_for(encoding, SIZES), q, k, v, at, at) * weight).sum().backward()
    got = [t.grad.clone() for t in (q, k, v)]

    rope = encoding.rope
    frequencies = torch.tensor([float(f) for f in mp_oracle.frequencies(rope)], dtype=torch.float64)
    mapped = torch.tensor(
        [[relative(m, n) if n <= m else 0 for n in range(time)] for m in range(time)],
        dtype=torch.float64,
    )
    angles = rope.direction * mapped[..., None] * frequencies
    first, second = zip(*(rope.lanes(plane) for plane in range(rope.planes)), strict=True)
    rest = [i for i in range(16) if i not in {*first, *second}]
    for tensor in (q, k, v):
        tensor.grad = None
    a, b, c, d = q[..., first], q[..., second], k[..., first], k[..., second]
    along = torch.einsum("bhmp,bhnp,mnp->bhmn", a, c, angles.cos())
    along = along + torch.einsum("bhmp,bhnp,mnp->bhmn", b, d, angles.cos())
    across = torch.einsum("bhmp,bhnp,mnp->bhmn", a, d, angles.sin())
    across = across - torch.einsum("bhmp,bhnp,mnp->bhmn", b, c, angles.sin())
    scores = (along + across) * float(mp_oracle.amplitude(rope)) ** 2
    scores = (scores + q[..., rest] @ k[..., rest].transpose(-1, -2)) / 4
    ahead = torch.ones(time, time, dtype=torch.bool).triu(1)
    ((scores.masked_fill(ahead, -math.inf).softmax(-1) @ v) * weight).sum().backward()
    for found, tensor in zip(got, (q, k, v), strict=True):
        # Some thousand roundings of terms no larger than the largest gradient times 100.
        bound = 1000 * 2.0**-53 * 100 * float(tensor.grad.abs().max())
        assert (found - tensor.grad).abs().max() <= bound


@ENCODING
def test_decoding_gives_the_rows_of_the_whole_pass(encoding):
    module = module_for(encoding, SIZES)
    q, k, v = tensors()
    at = torch.arange(LENGTH)
    with torch.no_grad():
        whole = attend(module, q, k, v, at, at, length=LENGTH)
        cached = module.keys(k[..., :-1, :], at[:-1], LENGTH)
        for part, full in zip(cached, module.keys(k, at, LENGTH), strict=True):
            assert torch.equal(part, full[..., :-1, :])  # a key sees its own position only
        last = attend(module, q[..., -1:, :], k, v, at[-1:], at)
        some = attend(module, q[..., -9:, :], k, v, at[-9:], at)
    bound = 2 * float32_bound(q, k, v, encoding.rope.attention_factor())
    assert (last - whole[..., -1:, :]).abs().max() <= bound
    assert (some - whole[..., -9:, :]).abs().max() <= bound


@ENCODING
def test_positions_may_differ_within_a_batch(monkeypatch, encoding):
    monkeypatch.setattr(attention, "_FEWEST_ROWS", 16)
    monkeypatch.setattr(attention, "_SCORES_AT_ONCE", 1)
    module = module_for(encoding, SIZES)
    q, k, v = tensors()
    at = torch.stack([torch.arange(LENGTH), torch.arange(LENGTH) + 11])
    with torch.no_grad():
        both = attend(module, q, k, v, at, at, length=LENGTH)
        for row in range(2):
            one = [t[row : row + 1] for t in (q, k, v)]
            alone = attend(module, *one, at[row], at[row], length=LENGTH)
            bound = 2 * float32_bound(q, k, v, encoding.rope.attention_factor())
            assert (both[row] - alone[0]).abs().max() <= bound


@ENCODING
def test_most_keys_take_one_variant_and_spans_say_which(encoding):
    module = module_for(encoding, SIZES)
    at = torch.arange(LENGTH)
    for start in range(0, LENGTH, 5):
        queries, keys = at[start : start + 5], at[: start + 5]
        spans = attention._spans(module, queries, keys)
        assert [s.start for s in spans] + [len(keys)] == [0, *(s.end for s in spans)]
        chosen = module.choice(queries, keys)
        for span in spans:
            part = chosen[:, span.start : span.end]
            assert span.lowest == part.min()
            assert span.highest == part.max()
        mixed = sum(s.end - s.start for s in spans if s.lowest < s.highest)
        # A block of 5 queries moves each border by 4 keys; a chunk may change twice in it.
        assert mixed <= 4 + 2 * getattr(encoding, "chunk", 0)


@EVERY
def test_relative_positions_are_those_of_the_loop(encoding, relative):
    at = np.arange(LENGTH)
    got = encoding.relative(at, at)
    for m in range(LENGTH):
        for n in range(m + 1):
            assert got[m, n] == relative(m, n)  # the same operations: difference 0


# What the methods promise.


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_dual_chunks_stay_below_the_trained_length_and_keep_neighbours(data):
    chunk = data.draw(st.integers(1, 40))
    local = data.draw(st.integers(1, chunk))
    length = data.draw(st.integers(1, 200))
    made = DualChunk(rope=ROPE, chunk=chunk, local=local)
    at = np.arange(length)
    causal = np.tril(np.ones((length, length), dtype=bool))
    distance = at[:, None] - at
    relative = made.relative(at, at)
    assert relative[causal].max() <= made.largest == chunk + local - 1
    assert relative[causal].min() >= 0
    near = causal & (distance <= local)
    np.testing.assert_array_equal(relative[near], distance[near])
    within = causal & (at[:, None] // chunk == at // chunk)
    np.testing.assert_array_equal(relative[within], distance[within])


@settings(max_examples=60, deadline=None)
@given(group=st.integers(1, 9), window=st.integers(1, 30), original=st.integers(1, 40))
def test_the_reach_of_self_extend_is_the_longest_text_with_trained_positions(
    group, window, original
):
    made = SelfExtend(rope=ROPE, group=group, window=window)
    longest = made.reach(original)

    def largest(length):
        at = np.arange(length)
        return np.tril(made.relative(at, at)).max()

    assert largest(longest) < original <= largest(longest + 1)
    if window % group == 0 and window < original:
        assert longest == (original - window) * group + window  # as the paper puts it


def test_texts_that_fit_are_plain_rope_bit_for_bit():
    """Within a window or a chunk: the same rotations, the same kernel."""
    q, k, v = tensors(time=40)
    at = torch.arange(40)
    plain = module_for(Rotary(rope=ROPE), SIZES)
    with torch.no_grad():
        want = attend(plain, q, k, v, at, at)
        for encoding in (
            ReRoPE(rope=ROPE, window=40),
            ReRoPE(rope=ROPE, window=40, leak=8),
            SelfExtend(rope=ROPE, group=4, window=40),
            DualChunk(rope=ROPE, chunk=40, local=8),
            LogN(inner=Rotary(rope=ROPE), original_length=40),
        ):
            assert torch.equal(attend(module_for(encoding, SIZES), q, k, v, at, at), want)
            far = attend(module_for(encoding, SIZES), *tensors(), *[torch.arange(LENGTH)] * 2)
            assert not torch.allclose(far, attend(plain, *tensors(), *[torch.arange(LENGTH)] * 2))


def test_a_leak_or_a_group_of_one_changes_nothing():
    at = np.arange(70)
    distance = at[:, None] - at
    for made in (ReRoPE(rope=ROPE, window=9, leak=1), SelfExtend(rope=ROPE, group=1, window=9)):
        np.testing.assert_array_equal(made.relative(at, at), distance)


def test_equal_rotations_of_keys_are_one(monkeypatch):
    calls = []
    turned = remapped.turned

    def counted(*arguments):
        calls.append(arguments)
        return turned(*arguments)

    monkeypatch.setattr(remapped, "turned", counted)
    module = module_for(DualChunk(rope=ROPE, chunk=8, local=2), SIZES)
    first, second, third = module.keys(tensors()[1], torch.arange(LENGTH))
    assert first is second is third
    assert len(calls) == 1


def test_a_rope_that_grows_goes_by_the_text_not_by_the_mapped_positions():
    rope = Rope(head_dim=16, scaling=DynamicNTK(factor=2, original_length=32))
    encoding = SelfExtend(rope=rope, group=4, window=8)
    q, k = drawn(2, LENGTH, 16), drawn(2, LENGTH, 16, seed=1)
    at = np.arange(LENGTH)
    relative = grouped(4, 8)
    want = by_pairs(rope, q, k, lambda m, n: relative(m, n) if n <= m else 0, LENGTH)
    got = encoding.scores(q, k, at, at)
    causal = np.tril(np.ones((LENGTH, LENGTH), dtype=bool))
    bound = norms(q, k, 16) * (3 * LENGTH + 19) * 2.0**-53
    assert np.abs(got - want)[:, causal].max() <= bound
    module = module_for(encoding, SIZES)
    here = torch.arange(LENGTH)
    for given_length in (None, LENGTH):
        keys = module.keys(torch.from_numpy(k)[None], here, given_length)
        queries = module.queries(torch.from_numpy(q)[None], here, given_length)
        far = (queries[1] @ keys[1].transpose(-1, -2))[0].numpy() / 4
        assert np.abs(far - want)[:, 60:, :40].max() <= bound


# Log-n.


def test_factors_are_those_of_qwen_to_the_token():
    """Its list: log of i to the trained length for i from 1 on where i is beyond it, else 1."""
    made = LogN(inner=NoPE(), original_length=2048)
    want = [math.log(i, 2048) if i > 2048 else 1 for i in range(1, 9000)]
    # Two logarithms, one quotient.
    np.testing.assert_allclose(made.factors(np.arange(8999)), want, rtol=4 * 2.0**-53, atol=0)
    assert (made.factors(np.arange(2048)) == 1).all()


@pytest.mark.parametrize(
    "inner",
    [
        NoPE(),
        Sinusoidal(),
        Learned(length=LENGTH),
        Rotary(rope=ROPE),
        ReRoPE(rope=ROPE, window=20),
        DualChunk(rope=ROPE, chunk=24, local=8),
        ENCODINGS["alibi"](),
    ],
    ids=lambda inner: inner.kind,
)
def test_log_n_wraps_any_encoding(inner):
    encoding = LogN(inner=inner, original_length=16)
    module = module_for(encoding, SIZES)
    learned = {name: value.detach().numpy() for name, value in module.named_parameters()}
    assert {n: p.shape for n, p in learned.items()} == encoding.parameter_shapes(SIZES)
    drawn_first = encoding.initial_parameters(SIZES)
    for name, value in learned.items():
        np.testing.assert_array_equal(value, drawn_first[name].astype(np.float32))
    q, k, v = tensors()
    at = torch.arange(LENGTH)
    with torch.no_grad():
        out = attend(module, q, k, v, at, at)
        last = attend(module, q[..., -1:, :], k, v, at[-1:], at)
        x = torch.from_numpy(drawn(2, LENGTH, 32)).float()
        added = encoding.added(np.arange(LENGTH), 32, learned)
        embedded = module.embed(x, at) - x
    wanted = np.zeros((1, 1)) if added is None else added
    assert np.abs(embedded.numpy() - wanted).max() <= 2 * 2.0**-24 * (np.abs(x.numpy()).max() + 1)
    grown = np.maximum(1, np.log(np.arange(LENGTH) + 1) / np.log(16))[:, None]
    # At most one position encoding more, whose bias is no larger than the products.
    bound = 2 * float32_bound(q, k, v, growth=grown.max())
    for row in range(2):
        qn, kn, vn = (t[row].numpy().astype(np.float64) for t in (q, k, v))
        scores = encoding.scores(qn, kn, at, at, parameters=learned)
        plain = inner.scores(qn * grown, kn, at, at, parameters=drawn_first)
        assert np.abs(scores - plain).max() <= 4 * 2.0**-53 * np.abs(plain).max()
        want = attended(scores, vn)
        assert np.abs(out[row].numpy() - want).max() <= bound
        assert np.abs(last[row].numpy() - want[:, -1:]).max() <= bound


# Partial, p-RoPE, clipped and resonant ropes are rotary encodings like any other.


def p_rope(head_dim, theta, share):
    """Barbero et al. 2024: timescales of the first share of planes; the rest infinite."""
    turning = int(share * head_dim // 2)
    scales = [theta ** (2 * i / head_dim) for i in range(turning)]
    return [1 / s for s in scales] + [0.0] * (head_dim // 2 - turning)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.7, 0.75, 1.0])
def test_p_rope_turns_the_fastest_share_of_planes(share):
    rope = Rope(head_dim=32, scaling=Proportional(share=share))
    want = p_rope(32, 10000.0, share)
    np.testing.assert_allclose(rope.inv_freq(), want, rtol=4 * 2.0**-53, atol=0)
    assert rope.inv_freq()[0] == 1  # fastest first, and it stays


@pytest.mark.parametrize(
    ("rope", "frequencies"),
    [
        (Rope(head_dim=16, rotary_dim=4), [1.0, 10000 ** (-0.5)]),
        (
            Rope(head_dim=16, rotary_dim=8, pairing="adjacent", rotary_offset=8),
            [10000 ** (-i / 4) for i in range(4)],
        ),
        (Rope(head_dim=16, scaling=Proportional(share=0.75)), p_rope(16, 10000.0, 0.75)),
        (
            Rope(head_dim=16, scaling=Clipped(original_length=64)),
            [10000 ** (-i / 8) if i <= 2 else 0.0 for i in range(8)],
        ),
        (
            Rope(head_dim=16, scaling=Resonance()),
            [2 * math.pi / round(2 * math.pi * 10000 ** (i / 8)) for i in range(8)],
        ),
    ],
    ids=["partial", "partial, last lanes", "p-RoPE", "clipped", "resonance"],
)
def test_every_form_of_rope_is_a_rotary_encoding(rope, frequencies):
    q, k = drawn(2, LENGTH, 16), drawn(2, LENGTH, 16, seed=1)
    at = np.arange(LENGTH)
    lanes = [rope.lanes(plane) for plane in range(rope.planes)]
    rest = [i for i in range(16) if i not in {lane for pair in lanes for lane in pair}]
    want = np.zeros((2, LENGTH, LENGTH))
    for (a, b), frequency in zip(lanes, frequencies, strict=True):
        query = (q[..., a] + 1j * q[..., b]) * np.exp(1j * at * frequency)
        key = (k[..., a] + 1j * k[..., b]) * np.exp(1j * at * frequency)
        want += (query[:, :, None] * key[:, None].conj()).real
    want = (want + q[..., rest] @ k[..., rest].swapaxes(-1, -2)) / 4
    encoding = Rotary(rope=rope)
    bound = norms(q, k, 16) * (6 * LENGTH + 19) * 2.0**-53
    assert np.abs(encoding.scores(q, k, at, at) - want).max() <= bound
    q32, k32, v = tensors(1)
    with torch.no_grad():
        out = attend(module_for(encoding, SIZES), q32, k32, v, *[torch.arange(LENGTH)] * 2)
    wanted = attended(
        encoding.scores(q32[0].numpy(), k32[0].numpy(), at, at), v[0].numpy().astype(np.float64)
    )
    assert np.abs(out[0].numpy() - wanted).max() <= float32_bound(q32, k32, v)


def test_values_and_registry():
    for kind in ("rerope", "self-extend", "dual-chunk", "log-n"):
        assert ENCODINGS[kind].kind == kind
    made = LogN(inner=ReRoPE(rope=ROPE, window=7), original_length=16)
    assert made == LogN(inner=ReRoPE(rope=Rope(head_dim=16), window=7), original_length=16)
    assert hash(made) == hash(LogN(inner=ReRoPE(rope=ROPE, window=7), original_length=16))
    assert made.to_dict() == {
        "kind": "log-n",
        "inner": {"kind": "rerope", "rope": ROPE.to_dict(), "window": 7, "leak": None},
        "original_length": 16,
    }
    assert made.longest is None
    assert LogN(inner=Learned(length=9), original_length=4).longest == 9


TRAINED = Rope(head_dim=16, scaling=YaRN(factor=2, original_length=64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReRoPE(rope=ROPE, window=0), "rerope: window: got 0"),
        (lambda: ReRoPE(rope=ROPE, window=8, leak=0.5), "rerope: leak: got 0.5"),
        (lambda: ReRoPE(rope=TRAINED, window=128), "rerope: window: got relative positions up to"),
        (lambda: SelfExtend(rope=ROPE, group=0, window=8), "self-extend: group: got 0"),
        (lambda: SelfExtend(rope=ROPE, group=2, window=2.5), "self-extend: window: got 2.5"),
        (lambda: DualChunk(rope=ROPE, chunk=0, local=1), "dual-chunk: chunk: got 0"),
        (lambda: DualChunk(rope=ROPE, chunk=8, local=9), "dual-chunk: local: got 9"),
        (
            lambda: DualChunk(rope=TRAINED, chunk=100, local=29),
            r"dual-chunk: chunk \+ local: got relative positions up to 128, expected all below 128",
        ),
        (lambda: SelfExtend(rope=ROPE, group=2, window=4).reach(0), "original_length: got 0"),
        (lambda: LogN(inner=ROPE, original_length=16), "log-n: inner: got Rope"),
        (lambda: LogN(inner=NoPE(), original_length=1), "log-n: original_length: got 1"),
        (lambda: LogN(inner=NoPE(), original_length=None), "log-n: original_length: got None"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_what_fits_the_trained_length_is_taken():
    assert DualChunk(rope=TRAINED, chunk=100, local=28).largest == 127
    assert ReRoPE(rope=TRAINED, window=127).window == 127
