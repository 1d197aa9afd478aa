"""Attention by distance: hand-made queries and keys, models against written-out references."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from ropewalk.encodings import (
    ALiBi,
    Encoding,
    LogN,
    NoPE,
    Rotary,
    SelfExtend,
    T5Buckets,
    TransformerXL,
    XPos,
)
from ropewalk.encodings.modules import module_for
from ropewalk.errors import InputError
from ropewalk.extend.loading import load
from ropewalk.extend.texts import TextSet, TokenizedDocument
from ropewalk.lab.decay import condensed, measure_decay, scores_of
from ropewalk.lab.decay_real import measure_transformers_decay
from ropewalk.lab.decay_sums import Bins, PlaneSums, WeightSums, diagonal_sums, spans, within
from ropewalk.lab.model import Decoder, Shape
from ropewalk.lab.results import Found, tidy
from ropewalk.rope import Rope
from ropewalk.scaling import Linear

LENGTH = 64
FLOAT32 = 2.0**-24
DIGITS = 5e-5
"""Relative rounding of what is written: five digits, with some room."""


def drawn(length: int = LENGTH, count: int = 2) -> TextSet:
    """Documents of random bytes."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 256, (count, length)).tolist()
    documents = tuple(TokenizedDocument(str(i), tuple(row), 1) for i, row in enumerate(rows))
    return TextSet(documents, "random bytes", "none")


def planes_of(rope: Rope, q: torch.Tensor, k: torch.Tensor, scale: float = 1.0) -> dict:
    """Observe one pass of one layer."""
    sums = PlaneSums(rope, Bins.of(q.shape[1]), 1, q.shape[0])
    sums.add(0, q, k, scale)
    return sums.to_dict()


def weights_of(rope: Rope, q: torch.Tensor, k: torch.Tensor, scale: float = 1.0) -> dict:
    """Observe one pass of one layer under a rope."""
    sums = WeightSums(Bins.of(q.shape[1]), 1, q.shape[0])
    module = module_for(Rotary(rope=rope), Shape(heads=q.shape[0]).sizes)
    sums.add(0, scores_of(module, q[None], k[None], scale))
    return sums.to_dict()


def gaussian(heads: int, length: int, head_dim: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(
        np.random.default_rng(seed).standard_normal((heads, length, head_dim))
    ).float()


@pytest.mark.parametrize("length", [32, 33, 64, 512, 2048])
def test_bins_cover_every_distance_once(length):
    bins = Bins.of(length)
    covered = [d for a, b in zip(bins.first, bins.last, strict=True) for d in range(a, b + 1)]
    assert covered == list(range(length - 1))
    assert bins.first[: min(32, length - 1)] == tuple(range(min(32, length - 1)))
    counts = [sum(1 for i in range(length // 2, length) if i - d >= 1) for d in range(length - 1)]
    assert bins.counts.tolist() == counts
    for span in spans(length).values():
        assert within(bins.first, bins.last, span).any()


def test_too_short_a_pass_is_refused():
    with pytest.raises(InputError, match="31 tokens"):
        Bins.of(31)


@pytest.mark.parametrize(("start", "queries"), [(8, 8), (8, 3), (11, 5), (2, 14)])
def test_sums_along_diagonals(start, queries):
    length = 16
    values = torch.from_numpy(np.random.default_rng(0).integers(1, 9, (2, queries, length)))
    at, to = np.arange(start, start + queries)[:, None], np.arange(length)
    seen = torch.from_numpy((to <= at) & (to > 0))
    values = torch.where(seen, values, 0).float()
    expected = np.zeros((2, length - 1))
    for row in range(queries):
        for key in range(1, start + row + 1):
            expected[:, start + row - key] += values[:, row, key].numpy()
    assert np.array_equal(diagonal_sums(values, start).numpy(), expected)


@pytest.mark.parametrize("pairing", ["half", "adjacent"])
def test_a_pair_in_the_slowest_plane_does_not_decay(pairing):
    rope = Rope(head_dim=16, theta=1e6, pairing=pairing)
    slowest = rope.planes - 1
    x = torch.zeros(1, LENGTH, 16)
    x[..., rope.lanes(slowest)[0]] = 1.0
    found, seen = planes_of(rope, x, x), weights_of(rope, x, x)
    theta = rope.inv_freq()[slowest]
    # The cosine falls by less than (d θ)²/2 over the whole pass; scores are float32 sums.
    fall = (LENGTH * theta) ** 2 / 2
    allowed = fall + 16 * FLOAT32 + DIGITS
    assert np.abs(np.array(found["turned"])[0, slowest] - 1).max() <= allowed
    assert np.abs(np.array(seen["score"])[0, 0] - 1).max() <= allowed
    assert np.abs(np.array(found["amplitude"])[0, slowest] - 1).max() <= DIGITS
    assert np.abs(np.array(found["turned"])[0, :slowest]).max() <= FLOAT32
    weight = np.array(seen["weight"])[0, 0]
    assert np.abs(weight / np.array(seen["uniform"]) - 1).max() <= math.expm1(2 * allowed) + DIGITS


def test_a_fast_plane_turns_and_its_size_stays():
    rope = Rope(head_dim=16)
    x = torch.zeros(1, LENGTH, 16)
    x[..., rope.lanes(0)[0]] = 2.0
    found = planes_of(rope, x, x, scale=0.5)
    turned = np.array(found["turned"])[0, 0, :32]
    assert np.abs(turned - 2.0 * np.cos(np.arange(32))).max() <= 2 * DIGITS
    assert np.array(found["amplitude"])[0, 0] == pytest.approx(2.0, rel=DIGITS)
    assert np.array(found["unturned"])[0, 0] == pytest.approx(2.0, rel=DIGITS)


@pytest.mark.parametrize("wanted", [1, 7, 19, 31])
def test_a_head_may_look_anywhere(wanted):
    """q = R(-wanted) k: all planes agree at that distance and nowhere else nearby."""
    rope = Rope(head_dim=32)
    k = torch.zeros(1, LENGTH, 32)
    k[..., [rope.lanes(plane)[0] for plane in range(rope.planes)]] = 1.0
    angles = torch.from_numpy(-wanted * rope.inv_freq()).float()
    q = torch.zeros_like(k)
    for plane in range(rope.planes):
        first, second = rope.lanes(plane)
        q[..., first], q[..., second] = angles[plane].cos(), angles[plane].sin()
    seen = weights_of(rope, q, k)
    for key in ("score", "weight"):
        values = np.array(seen[key])[0, 0]
        assert int(values.argmax()) == wanted
    # At most rounding of the angle (32 radians) and of a sum of 32 products off.
    top = np.array(seen["score"])[0, 0].max()
    assert abs(top - rope.planes) <= rope.planes * (64 * FLOAT32 + DIGITS)


def test_planes_add_up_to_the_score():
    for rope in (
        Rope(head_dim=16),
        Rope(head_dim=16, pairing="adjacent", direction=-1),
        Rope(head_dim=16, scaling=Linear(factor=4.0)),
    ):
        q, k = gaussian(2, LENGTH, 16, 1), gaussian(2, LENGTH, 16, 2)
        found, seen = planes_of(rope, q, k, 0.25), weights_of(rope, q, k, 0.25)
        added = np.array(found["turned"])[0].sum(0)
        score = np.array(seen["score"])[0].mean(0)
        largest = 0.25 * 16 * float(q.abs().max() * k.abs().max())
        rounding = DIGITS * np.abs(found["turned"]).sum(1).max()
        assert np.abs(added - score).max() <= largest * 32 * FLOAT32 + rounding


def test_plane_sums_equal_sums_over_pairs():
    rope = Rope(head_dim=12, rotary_dim=8, rotary_offset=2)
    q, k = gaussian(2, 40, 12, 1), gaussian(2, 40, 12, 2)
    found = planes_of(rope, q, k, 0.5)
    bins = Bins.of(40)
    lanes = np.array([rope.lanes(plane) for plane in range(4)]).T
    a, b = (x[..., lanes[0]].double() + 1j * x[..., lanes[1]].double() for x in (q, k))
    turned, size = np.zeros((2, 4, 39)), np.zeros((2, 4, 39))
    for i in range(20, 40):
        for j in range(1, i + 1):
            h = 0.5 * (a[:, i] * b[:, j].conj()).numpy()
            turned[..., i - j] += (h * np.exp(1j * (i - j) * rope.inv_freq())).real
            size[..., i - j] += np.abs(h)
    pairs = bins.total(bins.counts)
    expected = (bins.total(turned) / pairs).mean(0), (bins.total(size) / pairs).mean(0)
    for key, values in zip(("turned", "amplitude"), expected, strict=True):
        # Five digits of each number; sums of 20 products of float32 inputs in float64.
        assert np.allclose(np.array(found[key])[0], values, rtol=DIGITS, atol=20 * 2.0**-50), key


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rotary_dim", [2, 8, 16])
def test_the_bound_is_never_exceeded(seed, rotary_dim):
    rope = Rope(head_dim=16, rotary_dim=rotary_dim)
    q, k = (30 ** (seed - 1) * gaussian(3, LENGTH, 16, s) for s in (seed, seed + 50))
    found = planes_of(rope, q, k)
    # A sum of products in float32 on both sides.
    most = 1 + 8 * rotary_dim * FLOAT32 + DIGITS
    assert np.max(found["share_of_bound"]["largest"]) <= most
    assert np.min(found["share_of_bound"]["mean"]) > 0


def test_the_bound_is_that_of_the_paper():
    """Equation 37 written out: max |h_(i+1) - h_i| times the sum of |S_(i+1)|, h closed with 0."""
    rope = Rope(head_dim=12, rotary_dim=8)
    q, k = gaussian(1, LENGTH, 12, 1), gaussian(1, LENGTH, 12, 2)
    found = planes_of(rope, q, k)
    theta = rope.inv_freq()
    lanes = np.array([rope.lanes(plane) for plane in range(4)]).T
    a, b = (x[0][:, lanes[0]].double().numpy() + 1j * x[0][:, lanes[1]].numpy() for x in (q, k))
    bounds: dict[int, list[float]] = {d: [] for d in range(32)}
    for i in {round(x) for x in np.linspace(LENGTH // 2, LENGTH - 1, 16)}:
        for d in bounds:
            if i - d < 1:
                continue
            h = a[i] * b[i - d].conj()
            steps = [abs(h[p + 1] - h[p]) for p in range(3)] + [abs(h[3])]
            turns = np.exp(1j * d * theta)
            sums = [abs(sum(turns[: count + 1])) for count in range(4)]
            bounds[d].append(max(steps) * sum(sums))
    expected = [np.mean(bounds[d]) for d in range(32)]
    # Five digits; differences and sizes of products in float32.
    assert np.allclose(found["bound"][0][0][:32], expected, rtol=DIGITS + 64 * FLOAT32, atol=0)


def test_the_bound_is_reached_by_one_plane():
    """With one plane the bound is |h|, and at distance 0 the score of q = k is |h|."""
    rope = Rope(head_dim=2)
    q = gaussian(1, LENGTH, 2)
    sums = WeightSums(Bins.of(LENGTH), 1, 1)
    found = planes_of(rope, q, q)
    assert found["share_of_bound"]["largest"][0][0][0] == pytest.approx(1.0, abs=DIGITS)
    assert sums.bins.first[0] == 0


def test_gaussian_pairs_have_no_mean_score_at_any_distance():
    rope = Rope(head_dim=32)
    length, heads = 256, 4
    found = planes_of(rope, gaussian(heads, length, 32, 1), gaussian(heads, length, 32, 2))
    mean, error = (np.array(found["shuffled"][key]) for key in ("mean", "standard_error"))
    # The largest of about 200 values of a standard normal is below 5 but for 1e-4.
    assert np.abs(mean / error).max() <= 5
    # Of a sum of 32 products of two standard normals: deviation sqrt(32) at every distance,
    # whose estimate from 128 pairs is off by a fifth at most (3 deviations of 1/sqrt(256)).
    assert np.abs(error * math.sqrt(length / 2) / math.sqrt(32) - 1).max() <= 0.35
    # All pairings: a product of means of 128 and of 255 vectors.
    deviation = math.sqrt(32 / (length / 2) / (length - 1))
    assert np.abs(found["shuffled"]["of_means"]).max() <= 5 * deviation


def test_shuffled_pairs_keep_what_the_means_give():
    """Queries and keys with one mean: shuffled scores are those of the mean vectors."""
    rope = Rope(head_dim=16)
    length = 256
    q, k = gaussian(2, length, 16, 1) * 0.1 + 1.0, gaussian(2, length, 16, 2) * 0.1 + 1.0
    k[..., [rope.lanes(plane)[1] for plane in range(rope.planes)]] -= 0.5
    shuffled = planes_of(rope, q, k)["shuffled"]
    expected = np.array(shuffled["of_means"])[0]
    # h = (1 + i)(1 - i/2) = 1.5 + i/2 in every plane, turned.
    angles = np.outer(np.arange(32), rope.inv_freq())
    plain = (1.5 * np.cos(angles) - 0.5 * np.sin(angles)).sum(-1)
    # The means of 128 draws of deviation 0.1 differ from theirs by 0.05 at most: 16 lanes, twice.
    assert np.abs(expected[:, :32] - plain).max() <= 16 * 2 * 0.05
    gap = np.abs(np.array(shuffled["mean"])[0] - expected)
    # Wide bins draw distances evenly where pairs are not: single distances are compared.
    assert (gap / np.array(shuffled["standard_error"])[0])[:, :32].max() <= 5


ENCODINGS: list[Encoding] = [
    NoPE(),
    ALiBi(),
    T5Buckets(),
    TransformerXL(),
    Rotary(rope=Rope(head_dim=8, rotary_dim=4)),
    XPos(rope=Rope(head_dim=8)),
    LogN(inner=Rotary(rope=Rope(head_dim=8)), original_length=24),
    SelfExtend(rope=Rope(head_dim=8), window=8, group=4),
]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.kind)
def test_a_model_against_dense_scores(encoding):
    """The first layer's weights and scores by distance are those of the specification."""
    length = 48
    model = Decoder(Shape(layers=2, heads=2, head_dim=8, hidden=16), encoding, 1)
    given = drawn(length)
    found = measure_decay(model, given)
    assert found["encoding"] == encoding.to_dict()
    bins = Bins.of(length)
    totals = {key: np.zeros((2, length - 1)) for key in ("weight", "score", "score_magnitude")}
    first_token = np.zeros(2)
    module = model.positions[0]
    learned = {n: p.detach().numpy() for n, p in module.named_parameters()}
    at = np.arange(length)
    for document in given.documents:
        x = model.embedding[torch.tensor([document.tokens])]
        q, k, _ = (t[0].detach().numpy() for t in model.blocks[0].heads(x))
        scores = encoding.scores(q, k, at, at, parameters=learned, length=length)
        scores = np.where(at <= at[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        first_token += weights[:, length // 2 :, 0].mean(-1) / len(given.documents)
        for i in range(length // 2, length):
            for j in range(1, i + 1):
                totals["weight"][:, i - j] += weights[:, i, j]
                totals["score"][:, i - j] += scores[:, i, j]
                totals["score_magnitude"][:, i - j] += np.abs(scores[:, i, j])
    pairs = bins.total(bins.counts) * len(given.documents)
    assert found["distances"]["pairs"] == pairs.astype(int).tolist()
    largest = np.abs(scores[np.isfinite(scores)]).max()
    for key, total in totals.items():
        # Five digits, and scores of 8 products and a few roundings more in float32.
        error = np.abs(np.array(found[key])[0] - bins.total(total) / pairs)
        allowed = 64 * FLOAT32 * (largest + 1) + DIGITS * np.abs(bins.total(total) / pairs)
        assert (error <= allowed).all(), key
    assert np.array(found["first_token"])[0] == pytest.approx(first_token, rel=2 * DIGITS)
    assert (found["rotary"] is not None) == isinstance(encoding, Rotary)


def test_uniform_attention_is_called_uniform():
    """Without an encoding and with zero queries, weights are the reference curve."""
    model = Decoder(Shape(layers=1, heads=2, head_dim=8, hidden=16), NoPE(), 1)
    model.blocks[0].qkv.data[:16] = 0
    found = measure_decay(model, drawn())
    weight, uniform = np.array(found["weight"])[0], np.array(found["uniform"])
    assert np.abs(weight / uniform - 1).max() <= 4 * FLOAT32 + 2 * DIGITS


def test_results_survive_json():
    model = Decoder(Shape(layers=2, heads=2, head_dim=8, hidden=16), ENCODINGS[4], 1)
    told: list[float] = []
    found = measure_decay(model, drawn(), told.append)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert told == [0.5, 1.0]
    small = condensed(found)
    assert json.loads(json.dumps(small, allow_nan=False)) == small
    assert small["score"] == found["score"]
    assert np.shape(small["weight"]) == (1, 1, len(found["distances"]["first"]))
    assert small.keys() == found.keys()
    assert small["rotary"].keys() == found["rotary"].keys()
    largest = np.max(found["rotary"]["share_of_bound"]["largest"])
    assert np.max(small["rotary"]["share_of_bound"]["largest"]) == largest
    plain = measure_decay(Decoder(model.shape, NoPE(), 1), drawn())
    assert condensed(plain)["rotary"] is None


@pytest.fixture
def tiny_texts() -> TextSet:
    return drawn(LENGTH, 1)


def test_a_transformers_model_against_its_own_weights(tiny_model, tiny_texts):
    loaded = load(tiny_model, dtype="float32")
    before = loaded.model.config._attn_implementation
    found = measure_transformers_decay(loaded, tiny_texts)
    assert loaded.model.config._attn_implementation == before
    assert found["layers"] == [0, 1]
    loaded.model.set_attn_implementation("eager")
    tokens = torch.tensor([tiny_texts.documents[0].tokens])
    with torch.inference_mode():
        weights = loaded.model(tokens, output_attentions=True).attentions
    bins = Bins.of(LENGTH)
    seen = torch.arange(LENGTH) > 0
    pairs = bins.total(bins.counts)
    for layer, theirs in enumerate(weights):
        half = torch.where(seen, theirs[0, :, LENGTH // 2 :], 0.0)
        expected = bins.total(diagonal_sums(half, LENGTH // 2).numpy()) / pairs
        # Weights below 1 from scores of 16 products in float32, two layers deep.
        error = np.abs(np.array(found["weight"])[layer] - expected)
        assert (error <= 512 * FLOAT32 + DIGITS * expected).all()


def test_the_pairing_in_memory_is_found_out(tiny_model, tiny_texts):
    """A file may say adjacent where transformers has put its weights in the other order."""
    loaded = load(tiny_model, dtype="float32")
    right = measure_transformers_decay(loaded, tiny_texts)
    plan = loaded.positions
    told = dataclasses.replace(
        plan,
        layers=tuple(
            dataclasses.replace(x, rope=dataclasses.replace(x.rope, pairing="adjacent"))
            for x in plan.layers
        ),
    )
    found = measure_transformers_decay(dataclasses.replace(loaded, positions=told), tiny_texts)
    assert found == right
    assert found["encoding"]["rope"]["pairing"] == "half"


def test_a_models_soft_cap_is_refused(tiny_model, tiny_texts):
    loaded = load(tiny_model, dtype="float32")
    loaded.model.config.attn_logit_softcapping = 30.0
    with pytest.raises(InputError, match="soft-capped"):
        measure_transformers_decay(loaded, tiny_texts)


def test_the_study_and_its_page(tmp_path: Path):
    """The packaged study's measurement on a model of its shape, and the page of the results."""
    from safetensors.torch import save_file

    from ropewalk.lab.reports.decay import page_of
    from ropewalk.lab.reports.decay_plot import Data, over, ratio, rising
    from ropewalk.lab.reports.page import draw
    from ropewalk.lab.study import read_study
    from ropewalk.lab.units import units_of
    from ropewalk.lab.work import WEIGHTS, perform, results_of

    study = read_study("decay")
    base = read_study("convergence")
    for name, plan in study.models.items():
        assert plan == base.models[name], "checkpoints are shared"
    units = [u for u in units_of(study) if u.kind == "decay" and u.seed == 1]
    unit = next(u for u in units if u.model.name == "rope")
    model = Decoder(unit.shape, unit.model.encoding, 1)
    (tmp_path / unit.needs[0]).mkdir(parents=True)
    save_file(model.state_dict(), tmp_path / unit.needs[0] / WEIGHTS)
    small = dataclasses.replace(unit, plan=dataclasses.replace(unit.plan, documents=1))
    perform(small, tmp_path)
    found = results_of(small, tmp_path)
    assert found["length"] == 512
    # Near is 1 to 31 tokens: single distances with as many pairs each.
    weight = np.array(found["weight"])
    assert over(found, weight, "near") == pytest.approx(weight[..., 1:32].mean(-1))
    score = np.array(found["score"])
    assert rising(found, -score)[0] == score[..., 0].size - rising(found, score)[0]
    equal = ratio(found, [[found["uniform"]]])
    # Queries of the second half see all these distances alike.
    assert equal == pytest.approx(1.0, abs=2 * DIGITS)
    plain = measure_decay(Decoder(Shape(), ALiBi(), 1), drawn(512, 1))
    data = Data({"rope": [found, found], "alibi": [plain, plain], "other": [condensed(found)]})
    page = page_of(data)
    for suffix in (".png", ".svg"):
        draw(page.plots[0], tmp_path / f"decay{suffix}")
    assert len(page.answers) == 3 + 2 * 2
    lines = [line for lines in page.sections.values() for line in lines]
    assert any(line.startswith("| other, slow | ") for line in lines)
    assert not any("nan" in line for line in [*lines, *page.answers])
    others = {("decay", "rope", 1): found, ("decay", "alibi", 1): plain}
    rows = list(tidy(Found(study, {}, {}, others, {})))
    count = len(found["distances"]["first"])
    assert len(rows) == count * (5 + 3)
    assert rows[3]["distance"] == "3-3"
    assert rows[count - 1]["distance"].endswith(f"-{512 - 2}")
    assert (rows[3]["metric"], rows[3]["trials"]) == ("weight", found["distances"]["pairs"][3])
    assert rows[3]["value"] == pytest.approx(weight[:, :, 3].mean(), rel=1e-5)
    assert {row["metric"] for row in rows if row["model"] == "rope"} - {
        row["metric"] for row in rows if row["model"] == "alibi"
    } == {"bound", "share_of_bound"}
