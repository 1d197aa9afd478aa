"""What the tests of encodings measure a module against: its scores written out, in float64."""

import numpy as np
import torch

from ropewalk.encodings import Sizes
from ropewalk.encodings.modules import attend, module_for

HEADS, LANES, WIDTH, TIME, BATCH = 3, 8, 12, 150, 2
SIZES = Sizes(heads=HEADS, head_dim=LANES, width=WIDTH)


def drawn(seed=0, time=TIME, dtype=torch.float32):
    """q, k and v, (batch, heads, time, lanes)."""
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(3, BATCH, HEADS, time, LANES, generator=generator).to(dtype))


def module_of(encoding, sizes=SIZES):
    """The module with parameters away from their first values."""
    module = module_for(encoding, sizes, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return module


def parameters_of(module):
    return {name: p.detach().double().numpy() for name, p in module.named_parameters()}


def weighted(scores, v, query_positions, key_positions):
    """Causal softmax of scores, times v."""
    ahead = key_positions[..., None, :] > query_positions[..., :, None]
    return scores.masked_fill(ahead, float("-inf")).softmax(-1) @ v


def specified(encoding, parameters, q, k, query_positions, key_positions, scale=None):
    """The scores of the specification, (batch, heads, queries, keys)."""
    return torch.from_numpy(
        np.stack(
            [
                encoding.scores(
                    one_q.numpy(),
                    one_k.numpy(),
                    query_positions.numpy(),
                    key_positions.numpy(),
                    parameters=parameters,
                    scale=scale,
                )
                for one_q, one_k in zip(q.double(), k.double(), strict=True)
            ]
        )
    )


def tolerance(scores, time=TIME):
    """How far a float32 output may be off.

    A score is off by 2^-24 of the largest for each of its 4 * lanes operations, weights by twice
    that of their size; a sum of `time` weighted values of at most 5 rounds once per term.
    """
    largest = max(1.0, float(scores.abs().max()))
    return 5 * (2 * 4 * LANES * largest + time) * 2.0**-24


def values_agree(encoding, positions):
    """The module equals the specification: both paths, decoding, rows that differ."""
    module, (q, k, v) = module_of(encoding), drawn()
    parameters = parameters_of(module)
    scores = specified(encoding, parameters, q, k, positions, positions)
    wanted = weighted(scores, v.double(), positions, positions)
    seen = positions[:, None] >= positions
    bound = tolerance(scores[..., seen])
    with torch.no_grad():
        whole = attend(module, q, k, v, positions, positions)
        last = attend(module, q[..., -1:, :], k, v, positions[-1:], positions)
        some = attend(module, q[..., -5:, :], k, v, positions[-5:], positions)
        far = torch.stack([positions, 3 * positions + 1])
        rows = attend(module, q, k, v, far, far)
        same = attend(module, q, k, v, positions.expand(BATCH, -1), positions.expand(BATCH, -1))
    blocked = attend(module, q.requires_grad_(), k, v, positions, positions)
    q.requires_grad_(False)
    other = specified(encoding, parameters, q[1:], k[1:], far[1], far[1])
    other_row = weighted(other, v[1:].double(), far[1], far[1])
    for found, want in (
        (whole, wanted),
        (last, wanted[..., -1:, :]),
        (some, wanted[..., -5:, :]),
        (same, wanted),
        (rows[:1], wanted[:1]),
        (rows[1:], other_row),
        (blocked.detach(), wanted),
    ):
        assert found.dtype == v.dtype
        assert float((found - want).abs().max()) <= bound


def gradients_agree(encoding, formula, positions):
    """The module's gradients are those of ``formula``, differentiated by autograd in float64.

    Args:
        encoding: the encoding.
        formula: (q, k, i - j as (queries, keys), positions, parameters) -> scores.
        positions: (time,).
    """
    module, inputs = module_of(encoding), drawn()
    slope = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(3))
    for tensor in inputs:
        tensor.requires_grad_()
    (attend(module, *inputs, positions, positions) * slope).sum().backward()

    exact = [t.detach().double().requires_grad_() for t in inputs]
    named = {n: p.detach().double().requires_grad_() for n, p in module.named_parameters()}
    q, k, v = exact
    scores = formula(q, k, positions[:, None] - positions, positions, named)
    parameters = parameters_of(module)
    seen = positions[:, None] >= positions
    spec = specified(encoding, parameters, q.detach(), k.detach(), positions, positions)
    # The specification is the formula: float64 roundings of lanes and of R's angles.
    difference = (scores.detach() - spec)[..., seen].abs().max()
    assert float(difference) <= 200 * LANES * WIDTH * 2.0**-52 * max(1.0, float(spec.abs().max()))
    (weighted(scores, v, positions, positions) * slope).sum().backward()
    mine = [*inputs, *module.parameters()]
    assert all(t.grad is not None for t in mine)
    for found, want in zip(mine, [*exact, *named.values()], strict=True):
        # Sums of up to time * time * batch terms whose roundings are random: their root counts.
        terms = TIME * BATCH**0.5
        bound = 8 * terms * 2.0**-24 * max(1.0, float(want.grad.abs().max()))
        assert found.grad.shape == want.grad.shape
        assert float((found.grad - want.grad).abs().max()) <= bound
