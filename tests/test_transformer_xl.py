"""Transformer-XL: the two biases, the vectors of distances and the relative shift."""

import math

import numpy as np
import pytest

from ropewalk import InputError
from ropewalk.encodings import ENCODINGS, TransformerXL

torch = pytest.importorskip("torch")

from written_attention import (  # noqa: E402
    HEADS,
    LANES,
    SIZES,
    TIME,
    WIDTH,
    drawn,
    gradients_agree,
    module_of,
    parameters_of,
    values_agree,
)

from ropewalk.encodings.modules import attend, module_for  # noqa: E402
from ropewalk.encodings.modules.transformer_xl import relative_shift  # noqa: E402


def distance_vectors(away):
    """R written out: lane 2i is sin(d * 10000^(-2i/width)), lane 2i+1 its cosine."""
    frequencies = 10000.0 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    angles = away[..., None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def formula(q, k, away, _positions, parameters):
    """The paper's four terms, (a) to (d), each with its own sum over lanes."""
    u, v = (parameters[name] for name in ("u", "v"))
    vectors = distance_vectors(away) @ parameters["w_r"]
    vectors = vectors.view(*away.shape, HEADS, LANES)
    content = torch.einsum("bhid,bhjd->bhij", q, k)
    distance = torch.einsum("bhid,ijhd->bhij", q, vectors)
    content_bias = torch.einsum("hd,bhjd->bhj", u, k)[:, :, None]
    distance_bias = torch.einsum("hd,ijhd->hij", v, vectors)
    return LANES**-0.5 * (content + distance + content_bias + distance_bias)


@pytest.mark.parametrize("first", [0, 300])
def test_module_equals_specification(first):
    values_agree(TransformerXL(), torch.arange(first, first + TIME))


def test_module_equals_specification_with_gaps():
    values_agree(TransformerXL(), torch.arange(TIME) * 2)


@pytest.mark.parametrize("step", [1, 2])
def test_gradients_are_those_of_the_four_terms(step):
    gradients_agree(TransformerXL(), formula, step * torch.arange(TIME))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (9, 9), (4, 9)])
def test_the_shift_moves_and_computes_nothing(queries, keys):
    """Entry (i, j) is the product at distance i - j, difference 0; so is the gradient."""
    products = torch.randn(
        2, 3, queries, keys + 1, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    shifted = relative_shift(products)
    slope = torch.randn(shifted.shape, generator=torch.Generator().manual_seed(1))
    wanted = torch.zeros_like(products)
    for i in range(queries):
        for j in range(keys):
            away = keys - queries + i - j
            if away >= 0:
                assert torch.equal(shifted[:, :, i, j], products[:, :, i, keys - away])
                wanted[:, :, i, keys - away] += slope[:, :, i, j]
    seen = torch.ones(queries, keys).tril(keys - queries)
    (shifted * slope * seen).sum().backward()
    assert torch.equal(products.grad, wanted)


def test_shifted_bias_equals_the_double_index():
    module, (q, _, _) = module_of(TransformerXL()), drawn()
    at = torch.arange(TIME)
    with torch.no_grad():
        found = module.bias(q, at, at, 1.0)
        # Other positions, same distances: one row of vectors is picked per pair.
        picked = module.bias(q, torch.stack([at, at + 5]), torch.stack([at, at + 5]), 1.0)
    parameters = {n: torch.from_numpy(p) for n, p in parameters_of(module).items()}
    vectors = distance_vectors(at[:, None] - at) @ parameters["w_r"]
    vectors = vectors.view(TIME, TIME, HEADS, LANES)
    wanted = torch.einsum("bhid,ijhd->bhij", q.double() + parameters["v"][:, None], vectors)
    seen = at[:, None] >= at
    # R and its product of WIDTH lanes in float32, a sum and a product of LANES lanes.
    size = float(vectors.abs().max() * (q.abs().max() + parameters["v"].abs().max()))
    bound = LANES * (WIDTH + LANES + 4) * 2.0**-24 * size
    assert float((found - wanted)[..., seen].abs().max()) <= bound
    assert float((picked - wanted)[..., seen].abs().max()) <= bound


def test_values_by_hand():
    """One head of two lanes, R of two lanes, W_r the identity."""
    parameters = {"u": np.array([[0.5, 0.0]]), "v": np.array([[0.0, 2.0]]), "w_r": np.eye(2)}
    q, k = np.array([[[1.0, 3.0]]]), np.array([[[2.0, 4.0], [1.0, 1.0]]])
    found = TransformerXL().scores(q, k, [1], [0, 1], parameters=parameters, scale=1.0)
    back = 1.5 * 2 + 3 * 4 + 1 * math.sin(1) + 5 * math.cos(1)
    here = 1.5 * 1 + 3 * 1 + 1 * 0 + 5 * 1
    np.testing.assert_allclose(found, [[[back, here]]], rtol=16 * 2.0**-52, atol=0)


def test_each_layer_has_its_own():
    encoding = TransformerXL()
    assert ENCODINGS["transformer-xl"] is TransformerXL
    assert encoding.per_layer
    shapes = {n: tuple(p.shape) for n, p in module_for(encoding, SIZES).named_parameters()}
    assert shapes == encoding.parameter_shapes(SIZES)
    assert shapes == {"u": (3, 8), "v": (3, 8), "w_r": (12, 24)}


def test_decoding_step_by_step_with_kept_keys():
    """Keys never change, while the text grows past every kept row of R."""
    module, (q, k, v) = module_of(TransformerXL()), drawn(time=40)
    at = torch.arange(40)
    with torch.no_grad():
        whole = attend(module, q, k, v, at, at)
        fresh = module_of(TransformerXL())
        for end in range(1, 41):
            row = attend(
                fresh,
                q[..., end - 1 : end, :],
                k[..., :end, :],
                v[..., :end, :],
                at[end - 1 : end],
                at[:end],
            )
            # The same products in other blocks: rounding of LANES lanes and of `end` weights.
            bound = 5 * 4 * (2 * 4 * LANES * 8 + end) * 2.0**-24
            assert float((row - whole[..., end - 1 : end, :]).abs().max()) <= bound
        assert torch.equal(fresh.keys(k, at)[0], k)


def test_refusals():
    with pytest.raises(InputError, match="'u' of transformer-xl"):
        TransformerXL().scores(np.zeros((1, 2, 4)), np.zeros((1, 2, 4)), [0, 1], [0, 1])
    with pytest.raises(InputError, match=r"^dim: .*even"):
        TransformerXL().distance_vectors([1], 3)
