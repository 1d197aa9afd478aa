"""xPos as an encoding: values, long texts, cached keys, and others' code."""

import warnings

import numpy as np
import pytest

from ropewalk import InputError, Rope, YaRN
from ropewalk.encodings import ENCODINGS, XPos

torch = pytest.importorskip("torch")

from written_attention import (  # noqa: E402
    HEADS,
    LANES,
    SIZES,
    TIME,
    drawn,
    gradients_agree,
    module_of,
    specified,
    tolerance,
    values_agree,
    weighted,
)

from ropewalk.encodings.modules import attend, attention, module_for  # noqa: E402

MADE = {
    "half": XPos(rope=Rope(head_dim=LANES)),
    "adjacent": XPos(rope=Rope(head_dim=LANES, pairing="adjacent")),
    "partial": XPos(rope=Rope(head_dim=LANES, rotary_dim=4)),
    "stretched": XPos(rope=Rope(head_dim=LANES, scaling=YaRN(factor=4.0, original_length=64))),
    "steep": XPos(rope=Rope(head_dim=LANES), scale_base=20.5),
}


def formula(q, k, away, _positions, _parameters):
    """Plane by plane: cos and sin of the distance, times zeta^(distance/512)."""
    total, away = 0, away.double()
    for plane in range(LANES // 2):
        angle = away * 10000.0 ** (-2 * plane / LANES)
        zeta = (2 * plane / LANES + 0.4) / 1.4
        a, b = q[..., plane, None], q[..., plane + LANES // 2, None]
        c, d = k[..., None, :, plane], k[..., None, :, plane + LANES // 2]
        turned = (a * c + b * d) * angle.cos() + (a * d - b * c) * angle.sin()
        total = total + zeta ** (away / 512) * turned
    return LANES**-0.5 * total


@pytest.mark.parametrize("name", MADE)
def test_module_equals_specification(name):
    values_agree(MADE[name], torch.arange(TIME))


def test_module_equals_specification_with_gaps():
    values_agree(MADE["half"], torch.arange(TIME) * 2)


def test_gradients_are_those_of_the_formula():
    gradients_agree(MADE["half"], formula, torch.arange(TIME))


def test_scores_by_the_tables():
    """Queries and keys scaled each by its own table, as the paper writes it."""
    from ropewalk import rotate

    q, k = np.random.default_rng(0).normal(size=(2, HEADS, 20, LANES))
    at = np.arange(20)
    for name in ("half", "adjacent", "partial"):
        xpos = MADE[name]
        layout = {"pairing": xpos.rope.pairing, "order": "heads_time"}
        (q_cos, q_sin), (k_cos, k_sin) = xpos.tables(at, origin=10)
        wanted = rotate(q, q_cos, q_sin, **layout) @ rotate(k, k_cos, k_sin, **layout).swapaxes(
            -1, -2
        )
        found = xpos.scores(q, k, at, at, scale=1.0)
        # Powers, rotations and sums of LANES lanes in float64.
        bound = 32 * LANES * 2.0**-52 * np.abs(q).max() * np.abs(k).max() * LANES
        assert np.abs(found - wanted).max() <= bound


@pytest.mark.parametrize("first", [0, 10**6, 10**9])
def test_only_the_difference_counts(first):
    """Nothing overflows however far the text begins."""
    q, k = np.random.default_rng(1).normal(size=(2, HEADS, 9, LANES))
    near = MADE["half"].scores(q, k, np.arange(9), np.arange(9))
    far = MADE["half"].scores(q, k, first + np.arange(9), first + np.arange(9))
    # Exact tables: the angles of far positions are off by 6 ulp and 2^-65 of a turn per token.
    bound = LANES * 2 * (8 * 2.0**-52 + 7 * first * 2.0**-65) * 9 * 2
    assert np.abs(near - far).max() <= bound


@pytest.mark.parametrize(("base", "segments"), [(4.0, 5), (4.3, 4)])
def test_long_texts_take_several_segments(base, segments, monkeypatch):
    """At scale_base 4 a segment is 256 tokens, the first half of them below 0."""
    encoding = XPos(rope=Rope(head_dim=LANES), scale_base=base)
    module, (q, k, v) = module_of(encoding), drawn(time=900)
    at = torch.arange(900)
    scores = specified(encoding, {}, q, k, at, at)
    wanted = weighted(scores, v.double(), at, at)
    seen = at[:, None] >= at
    bound = tolerance(scores[..., seen], 900)
    assert len(module.queries(q, at)) == segments
    with torch.no_grad():
        whole = attend(module, q, k, v, at, at)
        last = attend(module, q[..., -3:, :], k, v, at[-3:], at)
        # Blocks of 100 queries: the first sees one segment and must not stand for all.
        monkeypatch.setattr(attention, "_SCORES_AT_ONCE", 100 * q.shape[0] * HEADS * 900)
        blocks = attend(module, q, k, v, at, at)
    assert float((blocks - wanted).abs().max()) <= bound
    assert float((whole - wanted).abs().max()) <= bound
    assert float((last - wanted[..., -3:, :]).abs().max()) <= bound
    trained = attend(module, q.requires_grad_(), k, v, at, at)
    assert float((trained.detach() - wanted).abs().max()) <= bound


def test_a_hundred_thousand_tokens_stay_finite():
    """One power of the position would be 3.5^195 here, beyond float32."""
    module = module_for(MADE["half"], SIZES)
    q, k = (t[:, :, :2] for t in drawn(time=4)[:2])
    at = torch.tensor([10, 100_000])
    for tensors in (module.keys(k, at), module.queries(q, at)):
        assert all(bool(torch.isfinite(t).all()) for t in tensors)
    wanted = specified(MADE["half"], {}, q, k, at, at, scale=1.0)[..., 1, :]
    back = module.choice(at, at)[1]
    keys, queries = module.keys(k, at), module.queries(q, at)
    found = torch.stack(
        [(queries[n][..., 1, :] * keys[n][..., j, :]).sum(-1) for j, n in enumerate(back.tolist())],
        dim=-1,
    )
    # float32 tables, powers and LANES products.
    bound = 8 * LANES * 2.0**-24 * float(q.abs().max() * k.abs().max()) * LANES
    assert float((found - wanted).abs().max()) <= bound


def test_a_key_is_kept_once_and_for_all():
    """What is stored for a key does not change as the text grows, bit for bit."""
    encoding = XPos(rope=Rope(head_dim=LANES), scale_base=4.0)
    module, (_, k, _) = module_for(encoding, SIZES), drawn(time=700)
    at = torch.arange(700)
    early, late = module.keys(k[..., :50, :], at[:50], 50), module.keys(k, at, 700)
    assert torch.equal(early[0], late[0][..., :50, :])
    assert all(torch.equal(variant, late[0]) for variant in late)


def test_short_texts_cost_one_product():
    module, (q, k, _) = module_for(MADE["half"], SIZES), drawn()
    at = torch.arange(16_384 - TIME, 16_384)
    assert len(module.queries(q, at)) == len(module.keys(k, at)) == 1
    assert module.choice(at, at) is None
    assert len(module.queries(q, at + 1)) == 2


def test_future_keys_grow_and_the_note_says_so():
    ones = np.ones((1, 1, LANES))
    away = [0, 710, 7100]  # whole turns of plane 0; the others hardly turn at this base
    still = XPos(rope=Rope(head_dim=LANES, theta=1e30))
    sizes = [np.abs(still.scores(ones, ones, [0], [d], scale=1.0)).item() for d in away]
    assert sizes[0] < sizes[1] < sizes[2]
    (note,) = MADE["half"].notes()
    assert "causal attention only" in note
    assert "3.5 per 512 tokens" in note


def test_kind_and_refusals():
    assert ENCODINGS["xpos"] is XPos
    assert MADE["half"].to_dict()["scale_base"] == 512.0
    assert MADE["half"].parameter_shapes(SIZES) == {}
    module = module_for(MADE["half"], SIZES)
    q, k, _ = drawn(dtype=torch.float16)
    with pytest.raises(InputError, match="3072 tokens in float16"):
        module.keys(k, torch.arange(TIME) + 4000)
    assert module.queries(q, torch.arange(TIME))[0].dtype == torch.float16
    with pytest.raises(InputError, match="at least -16384"):
        module.keys(k.float(), torch.arange(TIME) - 20_000)


def test_is_that_of_rotary_embedding_torch_and_x_transformers():
    packages = pytest.importorskip("rotary_embedding_torch")
    pytest.importorskip("x_transformers")
    with warnings.catch_warnings():
        # It uses torch.jit.script when it is imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        from x_transformers import x_transformers
    q, k, _ = drawn(time=40)
    at = torch.arange(40)
    found = specified(MADE["adjacent"], {}, q, k, at, at, scale=1.0)
    one = packages.RotaryEmbedding(dim=LANES, use_xpos=True, cache_if_possible=False)
    theirs_q, theirs_k = one.rotate_queries_and_keys(q, k)
    two = x_transformers.RotaryEmbedding(LANES, use_xpos=True)
    angles, scale = two.forward_from_seq_len(40)
    others = (
        x_transformers.apply_rotary_pos_emb(q, angles, scale),
        x_transformers.apply_rotary_pos_emb(k, angles, scale**-1),
    )
    # float32 angles up to 40 with frequencies by a power, powers of zeta, LANES products.
    size = float(q.abs().max() * k.abs().max())
    bound = LANES * size * 2 * (40 * (8 + 2 * np.log(1e4)) + 16) * 2.0**-24
    for their_q, their_k in ((theirs_q, theirs_k), others):
        with torch.no_grad():
            assert float((their_q @ their_k.mT - found).abs().max()) <= bound
