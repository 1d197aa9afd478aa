"""ALiBi, T5's buckets, KERPLE and FIRE: right values, and the module equals the specification."""

import math
import warnings

import numpy as np
import pytest

from ropewalk import InputError
from ropewalk.encodings import ENCODINGS, ALiBi, Fire, Kerple, Sizes, T5Buckets, alibi_slopes

torch = pytest.importorskip("torch")

from written_attention import (  # noqa: E402
    HEADS,
    LANES,
    SIZES,
    TIME,
    drawn,
    gradients_agree,
    module_of,
    parameters_of,
    specified,
    tolerance,
    values_agree,
    weighted,
)

from ropewalk.encodings.modules import attend, module_for  # noqa: E402
from ropewalk.encodings.modules.by_distance import along_diagonals, attend_by_distance  # noqa: E402

MADE = {
    "alibi": ALiBi(),
    "alibi, both ways": ALiBi(symmetric=True),
    "t5": T5Buckets(),
    "t5, both ways": T5Buckets(bidirectional=True, buckets=16, max_distance=40),
    "kerple": Kerple(),
    "fire": Fire(),
    "fire, most beyond L": Fire(threshold=40.0),
}


def scaled(q, k):
    return LANES**-0.5 * q @ k.transpose(-1, -2)


def alibi_formula(q, k, away, _positions, _parameters):
    slopes = torch.tensor([2.0**-4, 2.0**-8, 2.0**-2], dtype=torch.float64)
    return scaled(q, k) - slopes[:, None, None] * away


def t5_formula(q, k, away, _positions, parameters):
    found = torch.from_numpy(T5Buckets().bucket(away.numpy()))
    return scaled(q, k) + parameters["table"][found].permute(2, 0, 1)


def kerple_formula(q, k, away, _positions, parameters):
    r1, r2 = (parameters[name].exp()[:, None, None] for name in ("log_r1", "log_r2"))
    return scaled(q, k) - r1 * torch.log(1 + r2 * away.abs())


def fire_formula(threshold):
    def formula(q, k, away, positions, parameters):
        c = parameters["c"]
        limit = (parameters["multiplier"] * threshold).abs()
        reach = torch.maximum(positions.double(), limit)
        above = torch.log((c * away).abs() + 1)
        x = above / (torch.log((c * reach).abs() + 1) + 1e-6)[:, None]
        hidden = torch.relu(x[..., None] * parameters["hidden_weight"] + parameters["hidden_bias"])
        bias = hidden @ parameters["out_weight"].T + parameters["out_bias"]
        return scaled(q, k) + bias.permute(2, 0, 1)

    return formula


FORMULAS = {
    "t5": (MADE["t5"], t5_formula),
    "alibi": (MADE["alibi"], alibi_formula),
    "kerple": (MADE["kerple"], kerple_formula),
    "fire": (MADE["fire"], fire_formula(512.0)),
    "fire, most beyond L": (MADE["fire, most beyond L"], fire_formula(40.0)),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("first", [0, 1000])
def test_module_equals_specification(name, first):
    values_agree(MADE[name], torch.arange(first, first + TIME))


@pytest.mark.parametrize("name", MADE)
def test_module_equals_specification_with_gaps(name):
    values_agree(MADE[name], torch.arange(TIME) * 2 + (torch.arange(TIME) > 40) * 7)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("step", [1, 3])
def test_gradients_are_those_of_the_formula(name, step):
    gradients_agree(*FORMULAS[name], step * torch.arange(TIME))


@pytest.mark.parametrize("name", MADE)
def test_kinds_and_names(name):
    encoding = MADE[name]
    assert ENCODINGS[encoding.kind] is type(encoding)
    shapes = {n: tuple(p.shape) for n, p in module_for(encoding, SIZES).named_parameters()}
    assert shapes == encoding.parameter_shapes(SIZES)
    assert encoding.added(np.arange(3), 4) is None
    drawn_twice = [encoding.initial_parameters(SIZES, seed) for seed in (5, 5, 6)]
    for parameter in shapes:
        assert np.array_equal(drawn_twice[0][parameter], drawn_twice[1][parameter])
    assert encoding.to_dict()["kind"] == encoding.kind


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("heads", [1, 5])
def test_other_head_counts(name, heads):
    sizes = Sizes(heads=heads, head_dim=4, width=8)
    module = module_for(MADE[name], sizes)
    q = torch.randn(1, heads, 6, 4, generator=torch.Generator().manual_seed(0))
    at = torch.arange(6)
    scores = specified(MADE[name], parameters_of(module), q, q, at, at)
    found = attend(module, q, q, q, at, at).detach()
    wanted = weighted(scores, q.double(), at, at)
    assert float((found - wanted).abs().max()) <= tolerance(scores)


@pytest.mark.parametrize("name", [name for name in MADE if "fire" not in name])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (1, 300), (256, 256), (257, 300), (600, 600)]
)
@pytest.mark.parametrize("start", [0, 1000])
@torch.no_grad()
def test_by_distance_is_what_the_specification_says(name, queries, keys, start):
    """Several blocks, and queries that are the last of the keys, wherever positions start."""
    encoding = MADE[name]
    module, (q, k, v) = module_of(encoding), drawn(time=keys)
    at = torch.arange(start, start + keys)
    q, last = q[..., -queries:, :], at[-queries:]
    scores = specified(encoding, parameters_of(module), q, k, last, at)
    wanted = weighted(scores, v.double(), last, at)
    found = attend_by_distance(module, q, k, v, last, at, LANES**-0.5)
    assert torch.equal(found, attend(module, q, k, v, last, at))
    assert float((found - wanted).abs().max()) <= tolerance(scores)
    double = attend(module, q.double(), k.double(), v.double(), last, at)
    # Biases are float32 numbers; the rest is not.
    assert float((double - wanted).abs().max()) <= tolerance(scores)
    half = attend(module, *(t.bfloat16() for t in (q, k, v)), last, at)
    assert half.dtype == torch.bfloat16
    # Inputs, weights and output are rounded to 8 bits; scores are of LANES products each.
    largest = float(v.abs().max()) * (3 + 2 * float(scaled(q, k).abs().max()))
    assert float((half.double() - wanted).abs().max()) <= 2.0**-8 * largest
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(attend(module, *(t.bfloat16() for t in (q, k, v)), last, at), half)


@torch.no_grad()
def test_by_distance_takes_neighbours_only():
    module, (q, k, v) = module_of(ALiBi()), drawn(time=8)
    apart = torch.arange(8) * 2
    assert attend_by_distance(module, q, k, v, apart, apart, 1.0) is None
    scores = specified(ALiBi(), {}, q, k, apart, apart)
    found = attend(module, q, k, v, apart, apart)
    assert float((found - weighted(scores, v.double(), apart, apart)).abs().max()) <= tolerance(
        scores
    )


@pytest.mark.parametrize("name", MADE)
def test_the_scale_is_on_products_only(name):
    module, (q, k, v) = module_of(MADE[name]), drawn()
    at = torch.arange(TIME)
    scores = specified(MADE[name], parameters_of(module), q, k, at, at, scale=1.0)
    wanted = weighted(scores, v.double(), at, at)
    found = attend(module, q, k, v, at, at, scale=1.0).detach()
    assert float((found - wanted).abs().max()) <= tolerance(scores)


def test_a_bias_goes_along_the_diagonals():
    """Without arithmetic, so the difference is 0: value, and the gradient's sums."""
    distances = []

    def of_distance(away):
        distances.append(away.numel())
        return torch.stack([away, 10 * away]).double().requires_grad_()

    at, to = torch.arange(5, 9), torch.arange(2, 13)
    found = along_diagonals(of_distance, at, to)
    assert torch.equal(found[0], (at[:, None] - to).double())
    assert torch.equal(found[1], 10 * found[0])
    assert distances == [4 + 11 - 1]
    values = torch.arange(14.0, dtype=torch.float64).expand(2, -1).clone().requires_grad_()
    slope = torch.arange(2 * 4 * 11, dtype=torch.float64).view(2, 4, 11)
    (along_diagonals(lambda _: values, at, to) * slope).sum().backward()
    wanted = torch.zeros(2, 14, dtype=torch.float64)
    for i in range(4):
        for j in range(11):
            wanted[:, 3 - i + j] += slope[:, i, j]
    assert torch.equal(values.grad, wanted)


# ALiBi.


def test_alibi_slopes():
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    added = [0.707107, 0.353553, 0.176777, 0.088388]
    assert alibi_slopes(12)[:8].tolist() == alibi_slopes(8).tolist()
    np.testing.assert_allclose(alibi_slopes(12)[8:], added, rtol=0, atol=5e-7)
    assert alibi_slopes(1).tolist() == [2.0**-8]
    assert alibi_slopes(3).tolist() == [2.0**-4, 2.0**-8, 2.0**-2]


@pytest.mark.parametrize("heads", [0, -1, 2.0, True, None])
def test_alibi_slopes_refuse(heads):
    with pytest.raises(InputError, match=r"^heads: got .*; fix: "):
        alibi_slopes(heads)


def test_alibi_directions():
    zeros = np.zeros((1, 3, 2))
    causal = ALiBi().scores(zeros, zeros, range(3), range(3))[0]
    both = ALiBi(symmetric=True).scores(zeros, zeros, range(3), range(3))[0]
    slope = 2.0**-8
    assert causal.tolist() == [[0, slope, 2 * slope], [-slope, 0, slope], [-2 * slope, -slope, 0]]
    assert both.tolist() == (-np.abs(causal)).tolist()


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 8, 12, 20])
def test_alibi_is_that_of_bloom_and_mpt(heads):
    pytest.importorskip("transformers")
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    keys = 40
    zeros = np.zeros((heads, 1, 4))
    mine = ALiBi().scores(zeros, np.zeros((heads, keys, 4)), [keys - 1], range(keys))[:, 0]
    bloom = build_alibi_tensor(torch.ones(1, keys, dtype=torch.long), heads, torch.float32)
    # Theirs grows from 0 at the first key, which the softmax cannot tell from ours.
    theirs = bloom.numpy()[:, 0] - bloom.numpy()[:, 0, -1:]
    # float32 slopes by repeated products, one more product, one difference.
    bound = keys * (heads + 2) * 2.0**-24
    assert np.abs(mine - theirs).max() <= bound
    mpt = build_mpt_alibi_tensor(heads, keys).numpy().reshape(heads, keys)
    assert np.abs(mine - (mpt - mpt[:, -1:])).max() <= bound


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
def test_alibi_is_that_of_x_transformers(heads):
    theirs = x_transformers().AlibiPositionalBias(heads)(7, 30).numpy()
    module = module_for(ALiBi(symmetric=True), Sizes(heads=heads, head_dim=4, width=4))
    q = torch.zeros(1, heads, 7, 4)
    found = module.bias(q, torch.arange(23, 30), torch.arange(30), 1.0)
    assert np.abs(found.numpy() - theirs).max() <= 30 * (heads + 2) * 2.0**-24


def x_transformers():
    pytest.importorskip("x_transformers")
    with warnings.catch_warnings():
        # It uses torch.jit.script when it is imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        from x_transformers import x_transformers as module
    return module


# T5.


def test_t5_buckets_of_reports():
    causal, both = T5Buckets(), T5Buckets(bidirectional=True)
    assert causal.bucket([0, 1, 15, 16, 32, 64, 112, 113, 128, 10**9]).tolist() == [
        0,
        1,
        15,
        16,
        21,
        26,
        30,
        31,
        31,
        31,
    ]
    assert causal.bucket([-1, -500]).tolist() == [0, 0]
    # T5 counts key minus query.
    relative = np.array([-1, 1, -8, 8, 128, 0, -128])
    assert both.bucket(-relative).tolist() == [1, 17, 8, 24, 31, 0, 15]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("buckets", [(32, 128), (32, 256), (16, 64), (8, 20), (64, 1000), (4, 9)])
def test_t5_buckets_by_the_definition(buckets, bidirectional):
    """The largest t with (max/e)^(t/w) <= d/e, decided in exact integers."""
    encoding = T5Buckets(buckets=buckets[0], max_distance=buckets[1], bidirectional=bidirectional)
    one_way = buckets[0] // 2 if bidirectional else buckets[0]
    exact = one_way // 2
    wide = one_way - exact
    for away in range(3 * buckets[1]):
        if away < exact:
            wanted = away
        else:
            fits = [t for t in range(wide) if buckets[1] ** t * exact ** (wide - t) <= away**wide]
            wanted = exact + fits[-1]
        assert encoding.bucket(away) == wanted
        if away:
            assert encoding.bucket(-away) == (wanted + one_way if bidirectional else 0)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("buckets", [(32, 128), (32, 256), (16, 64), (8, 20), (48, 100)])
def test_t5_buckets_are_those_of_transformers(buckets, bidirectional):
    pytest.importorskip("transformers")
    from transformers.models.t5.modeling_t5 import T5Attention

    encoding = T5Buckets(buckets=buckets[0], max_distance=buckets[1], bidirectional=bidirectional)
    away = torch.arange(-2000, 2001)
    theirs = T5Attention._relative_position_bucket(
        -away, bidirectional=bidirectional, num_buckets=buckets[0], max_distance=buckets[1]
    )
    assert torch.equal(module_for(encoding, SIZES).bucket(away), theirs)
    assert np.array_equal(encoding.bucket(away.numpy()), theirs.numpy())


@pytest.mark.parametrize("decoder", [True, False])
def test_t5_bias_is_that_of_transformers_with_20_cached_keys(decoder):
    pytest.importorskip("transformers")
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(num_heads=HEADS, d_kv=LANES, d_model=24, is_decoder=decoder)
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    module = module_for(T5Buckets(bidirectional=not decoder), SIZES)
    with torch.no_grad():
        module.table.copy_(layer.relative_attention_bias.weight)
        q = torch.zeros(1, HEADS, 1, LANES)
        row = module.bias(q, torch.tensor([20]), torch.arange(21), 1.0)
        assert torch.equal(row[None], layer.compute_bias(1, 21, past_seen_tokens=20))
        whole = module.bias(q, torch.arange(21), torch.arange(21), 1.0)
        assert torch.equal(whole[None], layer.compute_bias(21, 21))
        assert torch.equal(whole[:, -1:], row)


def test_t5_attention_of_transformers_is_ours_with_scale_1():
    pytest.importorskip("transformers")
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(num_heads=HEADS, d_kv=LANES, d_model=24, is_decoder=True, dropout_rate=0.0)
    config._attn_implementation = "eager"
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    x = torch.randn(1, 30, 24, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        q, k, v = (
            part(x).view(1, 30, HEADS, LANES).transpose(1, 2)
            for part in (layer.q, layer.k, layer.v)
        )
        module = module_for(T5Buckets(), SIZES)
        module.table.copy_(layer.relative_attention_bias.weight)
        at = torch.arange(30)
        mixed = attend(module, q, k, v, at, at, scale=1.0)
        found = layer.o(mixed.transpose(1, 2).reshape(1, 30, HEADS * LANES))
        mask = torch.full((30, 30), torch.finfo(torch.float32).min).triu(1)[None, None]
        theirs = layer(x, mask=mask)[0]
    # Two orders of the same float32 sums: 30 keys, 24 lanes of the output.
    assert float((found - theirs).abs().max()) <= 8 * (30 + 24) * 2.0**-24 * float(
        theirs.abs().max().clamp(min=1)
    )


@pytest.mark.parametrize("causal", [True, False])
def test_t5_bias_is_that_of_x_transformers(causal):
    layer = x_transformers().RelativePositionBias(scale=1.0, causal=causal, heads=HEADS)
    module = module_for(T5Buckets(bidirectional=not causal), SIZES)
    with torch.no_grad():
        module.table.copy_(layer.relative_attention_bias.weight)
        q = torch.zeros(1, HEADS, 4, LANES)
        found = module.bias(q, torch.arange(196, 200), torch.arange(200), 1.0)
        assert torch.equal(found, layer(4, 200))


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"buckets": 31}, "buckets"),
        ({"buckets": 0}, "buckets"),
        ({"buckets": 2, "bidirectional": True}, "buckets"),
        ({"buckets": 32.0}, "buckets"),
        ({"max_distance": 16}, "max_distance"),
        ({"max_distance": True}, "max_distance"),
    ],
)
def test_t5_refuses(fields, where):
    with pytest.raises(InputError, match=rf"^{where}: got .*; fix: "):
        T5Buckets(**fields)


def test_t5_takes_one_wide_bucket():
    assert T5Buckets(buckets=2, max_distance=2).bucket([0, 1, 2, 9]).tolist() == [0, 1, 1, 1]
    assert T5Buckets(max_distance=17).bucket(16) == 16


def test_t5_refuses_positions_between_tokens():
    with pytest.raises(InputError, match="integer positions"):
        T5Buckets().bucket([0.5])
    with pytest.raises(InputError, match="integer positions"):
        module_for(T5Buckets(), SIZES).bucket(torch.tensor([0.5]))


# KERPLE and FIRE.


def test_kerple_values():
    parameters = {"log_r1": np.log([2.0, 1.0]), "log_r2": np.log([1.0, 0.5])}
    found = Kerple().of_distance([0, 1, 3, -3], 2, parameters)
    two, one = 2 * math.log(2), math.log(1.5)
    wanted = [[0, -two, -2 * two, -2 * two], [0, -one, -math.log(2.5), -math.log(2.5)]]
    # exp of a logarithm, log1p and two products.
    np.testing.assert_allclose(found, wanted, rtol=8 * 2.0**-52, atol=0)


def test_kerple_starts_within_its_bounds():
    first = Kerple().initial_parameters(Sizes(heads=64, head_dim=4, width=4))
    for name, highest in (("log_r1", 2.0), ("log_r2", 1.0)):
        assert np.exp(first[name]).min() >= 0.01 * (1 - 2.0**-50)
        assert np.exp(first[name]).max() <= highest


def test_fire_values():
    """One hidden lane that passes its input on shows the quotient itself."""
    fire = Fire(threshold=10.0, initial_c=1.0, hidden=1)
    parameters = {
        "c": np.array(1.0),
        "multiplier": np.array(-1.0),
        "hidden_weight": np.array([1.0]),
        "hidden_bias": np.array([0.0]),
        "out_weight": np.array([[1.0]]),
        "out_bias": np.array([0.0]),
    }
    found = fire.bias([5, 20], [0, 5, 20], parameters)[0]
    low, high = math.log(11) + 1e-6, math.log(21) + 1e-6
    wanted = [
        [math.log(6) / low, 0.0, math.log(16) / low],
        [math.log(21) / high, math.log(16) / high, 0.0],
    ]
    np.testing.assert_allclose(found, wanted, rtol=8 * 2.0**-52, atol=0)


def test_fire_stays_within_what_it_has_seen():
    """From the first token the quotient is at most 1, at any length."""
    fire = Fire(threshold=64.0, hidden=1)
    parameters = {
        **fire.initial_parameters(Sizes(heads=1, head_dim=2, width=2)),
        "hidden_weight": np.array([1.0]),
        "hidden_bias": np.array([0.0]),
        "out_weight": np.array([[1.0]]),
        "out_bias": np.array([0.0]),
    }
    found = fire.bias([10, 10**6, 10**12], [0], parameters)
    assert found.max() < 1
    assert found.min() > 0


def test_fire_with_a_lane_without_a_weight():
    module = module_of(Fire(hidden=4, threshold=10.0))
    with torch.no_grad():
        module.hidden_weight[1] = 0
        module.hidden_weight[2] = 0
        module.hidden_bias[1] = 0.5
        module.hidden_bias[2] = -0.5
        at = torch.arange(TIME)
        found = module.bias(torch.zeros(1, HEADS, TIME, LANES), at, at, 1.0)
    wanted = module.encoding.bias(at.numpy(), at.numpy(), parameters_of(module))
    seen = at[:, None] >= at
    # The quotient in float32 and five terms of at most 1.
    assert np.abs(found.numpy() - wanted)[:, seen].max() <= 40 * 2.0**-24


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"threshold": 0}, "threshold"),
        ({"threshold": math.nan}, "threshold"),
        ({"initial_c": -1.0}, "initial_c"),
        ({"hidden": 0}, "hidden"),
        ({"hidden": 2.5}, "hidden"),
    ],
)
def test_fire_refuses(fields, where):
    with pytest.raises(InputError, match=rf"^{where}: got .*; fix: "):
        Fire(**fields)


def test_missing_parameters_are_named():
    q = np.zeros((2, 3, 4))
    for encoding, name in ((T5Buckets(), "table"), (Kerple(), "log_r1"), (Fire(), "c")):
        with pytest.raises(InputError, match=f"'{name}' of {encoding.kind}"):
            encoding.scores(q, q, range(3), range(3))


@pytest.mark.parametrize("name", MADE)
def test_positions_are_one_per_token(name: str) -> None:
    """Another number of positions would broadcast in silence."""
    q, k = np.ones((2, 5, 8)), np.ones((2, 6, 8))
    scores = MADE[name].scores
    with pytest.raises(InputError, match="query_positions: got shape"):
        scores(q, k, [4], np.arange(6))
    with pytest.raises(InputError, match="key_positions: got shape"):
        scores(q, k, np.arange(5), np.arange(5))
    with pytest.raises(InputError, match="k: got shape"):
        scores(q, k[:1], np.arange(5), np.arange(6))
    with pytest.raises(InputError, match="q: got shape"):
        scores(q[0], k, np.arange(5), np.arange(6))
