"""Backward through the rotation, and what autocast must not do to it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from ropewalk import Rope, YaRN, cos_sin, rotate

ROPE = Rope(head_dim=10, rotary_dim=6, rotary_offset=2, scaling=YaRN(factor=4, original_length=64))
SHAPE = (2, 3, 2, 10)
OPTIONS = [
    {"pairing": pairing, "inverse": inverse, "rotary_offset": 2}
    for pairing in ("half", "adjacent")
    for inverse in (False, True)
]
EVERY = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: f"{o['pairing']}-{o['inverse']}")


def draw(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE)


@EVERY
def test_torch_gradcheck(options):
    """By x, cos and sin, against finite differences in float64."""
    x = torch.from_numpy(draw(0)).requires_grad_()
    cos, sin = cos_sin(ROPE, torch.arange(3), dtype=torch.float64)
    tables = cos.requires_grad_(), sin.requires_grad_()
    for order in ("time_heads", "time"):
        given = x if order == "time_heads" else x[:, :, 0].detach().requires_grad_()
        assert torch.autograd.gradcheck(
            lambda x, c, s, order=order: rotate(x, c, s, order=order, **options), (given, *tables)
        )


@EVERY
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
def test_torch_gradient_is_the_inverse_rotation(options, dtype):
    x = torch.from_numpy(draw(0)).to(dtype).requires_grad_()
    gradient = torch.from_numpy(draw(1)).to(dtype)
    tables = cos_sin(ROPE, torch.tensor([0, 7, 90001]))
    rotate(x, *tables, **options).backward(gradient)
    back = {**options, "inverse": not options["inverse"]}
    assert x.grad.dtype == dtype
    # The same two products and the same sum: no difference.
    assert torch.equal(x.grad, rotate(gradient, *tables, **back))


@EVERY
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=lambda d: d.__name__)
def test_jax_gradient_is_the_inverse_rotation(options, dtype):
    x, gradient = (jnp.asarray(draw(seed), dtype) for seed in (0, 1))
    tables = cos_sin(ROPE, jnp.array([0, 7, 90001]))
    _, pull = jax.vjp(lambda x: rotate(x, *tables, **options), x)
    (got,) = pull(gradient)
    back = {**options, "inverse": not options["inverse"]}
    assert got.dtype == dtype
    np.testing.assert_array_equal(
        np.asarray(got, np.float64), np.asarray(rotate(gradient, *tables, **back), np.float64)
    )


def test_jax_grad_of_a_score_and_double_precision():
    with jax.enable_x64(True):
        q, k = (jnp.asarray(draw(seed)) for seed in (2, 3))
        tables = cos_sin(ROPE, jnp.arange(3), dtype=jnp.float64)
        assert tables[0].dtype == jnp.float64

        def score(q):
            return (rotate(q, *tables, rotary_offset=2) * k).sum()

        got = jax.grad(score)(q)
        assert got.dtype == jnp.float64
        back = rotate(np.asarray(k), *map(np.asarray, tables), rotary_offset=2, inverse=True)
        np.testing.assert_array_equal(np.asarray(got), back)
        # And the forward pass equals NumPy's.
        np.testing.assert_array_equal(
            np.asarray(rotate(q, *tables, rotary_offset=2)),
            rotate(np.asarray(q), *map(np.asarray, tables), rotary_offset=2),
        )


def test_jitted_rotation_is_within_rounding():
    x = jnp.asarray(draw(0), jnp.float32)
    tables = cos_sin(ROPE, jnp.arange(3))
    got = jax.jit(lambda x: rotate(x, *tables, rotary_offset=2))(x)
    want = rotate(x, *tables, rotary_offset=2)
    # A compiler may fuse a product and the sum, which saves one rounding: 2 units of the
    # magnitudes, themselves at most sqrt(2) of the plane's radius times the amplitude.
    limit = 2 * 2**0.5 * 2.0**-24 * ROPE.attention_factor() * np.abs(x).max() * 2**0.5
    assert np.abs(np.asarray(got) - np.asarray(want)).max() <= limit


@pytest.mark.parametrize("pairing", ["half", "adjacent"])
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
def test_autocast_changes_neither_dtype_nor_values(dtype, pairing):
    """lucidrains/rotary-embedding-torch#46 (B105)."""
    x = torch.from_numpy(draw(0)).to(dtype)
    options = {"rotary_offset": 2, "pairing": pairing}
    want = rotate(x, *cos_sin(ROPE, torch.arange(3)), **options)
    for low in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", low):
            got = rotate(x, *cos_sin(ROPE, torch.arange(3)), **options)
        assert got.dtype == dtype
        assert torch.equal(got, want)


def test_positions_carry_no_gradient_and_none_is_lost():
    positions = torch.arange(3.0, requires_grad=True)
    cos, sin = cos_sin(ROPE, positions)
    assert not cos.requires_grad
    x = torch.from_numpy(draw(0)).requires_grad_()
    assert rotate(x, cos, sin, rotary_offset=2).requires_grad


def test_numpy_half_types_round_once():
    x = draw(0)
    cos, sin = cos_sin(ROPE, np.arange(3))
    for dtype in (np.float16, ml_dtypes.bfloat16):
        low = x.astype(dtype)
        wide = rotate(low.astype(np.float32), cos, sin, rotary_offset=2)
        assert (rotate(low, cos, sin, rotary_offset=2) == wide.astype(dtype)).all()
