"""Training in the lab: batches, recall lines, first weights, resuming, skipped positions."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ropewalk.encodings import (
    ENCODINGS,
    ALiBi,
    DualChunk,
    Encoding,
    Fire,
    Kerple,
    Learned,
    LogN,
    NoPE,
    ReRoPE,
    Rotary,
    SelfExtend,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
    XPos,
)
from ropewalk.extend.corpus import standard_library
from ropewalk.lab import training as training_module
from ropewalk.lab.data import (
    Data,
    batch,
    copy_sequence,
    held_out_text,
    recall_sequence,
    training_text,
)
from ropewalk.lab.model import Decoder, Shape
from ropewalk.lab.training import (
    LOG,
    STATE,
    Trainer,
    Training,
    bits_per_byte,
    describe,
    learning_rate,
    optimizer_for,
    skipped_positions,
)
from ropewalk.rope import Rope
from ropewalk.scaling import YaRN

SHAPE = Shape(layers=2, heads=2, head_dim=8, hidden=32)
ROPE = Rope(head_dim=8)
LENGTH = 64
EXAMPLES: tuple[Encoding, ...] = (
    NoPE(),
    Sinusoidal(),
    Learned(length=LENGTH),
    Rotary(rope=ROPE),
    ReRoPE(rope=ROPE, window=32),
    SelfExtend(rope=ROPE, group=4, window=16),
    DualChunk(rope=ROPE, chunk=48, local=16),
    LogN(inner=Rotary(rope=ROPE), original_length=32),
    TransformerXL(),
    T5Buckets(),
    ALiBi(),
    Kerple(),
    Fire(),
    XPos(rope=ROPE),
)
TEXT = bytes(random.Random(0).choices(b"abcdefgh \n()", k=20_000))
"""Without # or =, so that lines to be recalled stand out."""


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that need not be gathered from the standard library."""
    monkeypatch.setattr(training_module, "training_text", lambda: TEXT)
    monkeypatch.setattr(training_module, "held_out_text", lambda: TEXT[::-1])


def test_texts_are_of_their_splits() -> None:
    train, held_out = training_text(), held_out_text()
    files = standard_library("held_out")
    inside = max(files, key=lambda d: len(d.text)).text.encode()
    assert inside in held_out
    assert inside not in train
    assert len(train) > 5 * len(held_out) > 1_000_000


def test_a_batch_depends_on_seed_and_step_only() -> None:
    data = Data(recall_share=0.25, copy_share=0.25)

    def drawn(step: int, seed: int):
        return batch(TEXT, step, seed, 8, LENGTH, data)

    rows, weights = drawn(3, 1)
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    drawn(2, 1)
    again = drawn(3, 1)
    assert (rows == again[0]).all()
    assert (weights == again[1]).all()
    assert rows.shape == (8, LENGTH + 1)
    assert weights.shape == (8, LENGTH)
    assert rows.dtype == np.int64
    for step, seed in ((4, 1), (3, 2), (1, 3)):
        assert (rows != drawn(step, seed)[0]).any(axis=1).all()
    # Plain text, copies and recalled lines, evenly spread.
    assert kinds(rows, weights) == ["text", "copy", "text", "recall"] * 2
    # A weight stands beside the byte that is to be told, and the heavy ones are capitals.
    heavy = rows[:, 1:][weights == 4]
    assert len(heavy) >= 8
    assert set(heavy.tolist()) <= set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def kinds(rows: Any, weights: Any) -> list[str]:
    out = []
    for row, weight in zip(rows.astype(np.uint8), weights, strict=True):
        plain = bytes(row.tolist()) in TEXT
        out.append("text" if plain else "recall" if (weight == 0).any() else "copy")
    return out


@pytest.mark.parametrize(
    ("size", "recall", "copy"),
    [
        (1, 0.25, 0.0),
        (1, 0.25, 0.375),
        (2, 0.125, 0.5),
        (3, 0.1, 0.2),
        (8, 1.0, 0.0),
        (5, 0.7, 0.3),
    ],
)
def test_shares_hold_over_the_steps(size: int, recall: float, copy: float) -> None:
    data = Data(recall_share=recall, copy_share=copy)
    count = 240 // size
    seen = [
        kind for step in range(count) for kind in kinds(*batch(TEXT, step, 1, size, LENGTH, data))
    ]
    # Any run of sequences has its share, within one: no stretch goes without practice.
    for start in range(0, len(seen), 40):
        part = seen[start : start + 40]
        assert abs(part.count("text") - len(part) * (1 - recall - copy)) <= 1 + 1e-9
        assert abs(part.count("recall") - len(part) * recall) <= 1 + 1e-9
    assert seen.count("copy") == round(len(seen) * copy)


@pytest.mark.parametrize("length", [32, 33, 64, 100, 513])
def test_recall_lines_repeat_what_they_planted(length: int) -> None:
    rng = random.Random(length)
    repeats = 0
    for _ in range(40):
        text, weights = recall_sequence(TEXT, rng, length)
        assert len(text) == len(weights) == length + 1
        found = list(re.finditer(rb"\n#([A-Z]{2})([A-Z]{4})\n", text))
        planted: dict[bytes, bytes] = {}
        wanted = np.ones(length + 1, np.float32)
        for line in found:
            wanted[line.start() : line.end()] = 0
            if line[1] in planted:
                assert planted[line[1]] == line[2]
                # The four letters, and nothing of the name.
                wanted[line.start(2) : line.end(2)] = 4
                repeats += 1
            planted[line[1]] = line[2]
        assert len(planted) == max(1, length // 48)
        assert 2 * len(planted) <= len(found) <= 3 * len(planted)
        assert (weights == wanted).all()
        # All but the lines is one stretch of the text.
        assert re.sub(rb"\n#[A-Z]{6}\n", b"", text) in TEXT
    assert repeats >= 40


def test_copies_repeat_a_few_lines() -> None:
    rng = random.Random(1)
    for length in (63, 64, 512):
        for _ in range(20):
            text, weights = copy_sequence(rng, length)
            assert len(text) == len(weights) == length + 1
            assert (weights == 1).all()
            lines = text.decode().split("\n")[:-1]
            assert len(set(lines)) <= 6
            if length == 512:
                assert len(lines) > len(set(lines))


def test_the_rate_rises_and_falls() -> None:
    training = Training(steps=100, warmup=10, peak_rate=1.0)
    rates = [learning_rate(step, training) for step in range(101)]
    assert rates[0] == 0.1
    assert rates[9] == rates[10] == 1.0
    assert all(a < b for a, b in itertools.pairwise(rates[:10]))
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    # Half way down the cosine, and at its end.
    assert rates[55] == pytest.approx(0.55, rel=2**-50)
    assert rates[100] == pytest.approx(0.1, rel=2**-50)
    # Other ends: none, and no fall at all.
    to_zero = dataclasses.replace(training, end_share=0.0)
    assert learning_rate(100, to_zero) == pytest.approx(0, abs=2**-52)
    assert learning_rate(55, to_zero) == pytest.approx(0.5, rel=2**-50)
    constant = dataclasses.replace(training, end_share=1.0)
    assert [learning_rate(step, constant) for step in range(101)] == [*rates[:10], *[1.0] * 91]


def test_weights_in_common_start_equal() -> None:
    models = {
        e.kind: dict(Decoder(SHAPE, e, 3).named_parameters())
        for e in (Rotary(rope=ROPE), Learned(length=LENGTH), T5Buckets(), TransformerXL())
    }
    ours = models["rotary"]
    for kind, parameters in models.items():
        assert ours.keys() <= parameters.keys()
        assert (kind == "rotary") == (parameters.keys() == ours.keys())
        assert all(torch.equal(ours[name], parameters[name]) for name in ours)
    other = dict(Decoder(SHAPE, Rotary(rope=ROPE), 4).named_parameters())
    for name in ours:
        assert torch.equal(ours[name], other[name]) == (ours[name].dim() == 1)
    # Blocks are not alike either.
    assert not torch.equal(ours["blocks.0.qkv"], ours["blocks.1.qkv"])


def test_decay_is_for_matrices_of_blocks() -> None:
    model = Decoder(SHAPE, Learned(length=LENGTH))
    groups = optimizer_for(model, Training(weight_decay=0.3)).param_groups
    decayed = {id(p) for g in groups if g["weight_decay"] == 0.3 for p in g["params"]}
    free = {id(p) for g in groups if g["weight_decay"] == 0.0 for p in g["params"]}
    matrices = {id(p) for p in model.blocks.parameters() if p.dim() == 2}
    assert decayed == matrices
    assert len(matrices) == 4 * SHAPE.layers
    assert decayed | free == {id(p) for p in model.parameters()}


def test_examples_are_of_every_kind() -> None:
    assert {e.kind for e in EXAMPLES} == set(ENCODINGS)


@pytest.mark.parametrize("encoding", EXAMPLES, ids=lambda e: e.kind)
@pytest.mark.usefixtures("short_texts")
def test_every_encoding_learns(encoding: Encoding, tmp_path: Path) -> None:
    """Thirty steps on few different letters: the loss falls, and every parameter moves."""
    model = Decoder(SHAPE, encoding, 1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    training = Training(length=LENGTH, batch=2, steps=30, warmup=5, peak_rate=0.01, check_every=10)
    trainer = Trainer(model, training, Data(recall_share=0.5), 1, tmp_path)
    assert list(trainer.steps(lambda: 0.0)) == list(range(1, 31))
    losses = [entry["training_bits"] for entry in trainer.log]
    checks = [entry["held_out_bits"] for entry in trainer.log]
    assert [entry["step"] for entry in trainer.log] == [10, 20, 30]
    # Twelve letters alike are 3.6 bits; to begin with it is 8 and more.
    assert losses[0] > losses[1] > losses[2]
    assert checks[0] > checks[2]
    assert checks[2] < 5.5
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all()
        assert not torch.equal(before[name], parameter), name


@pytest.mark.parametrize("killed_at", [3, 20, 33])
@pytest.mark.usefixtures("short_texts")
def test_a_killed_training_goes_on_as_if_nothing_was(
    killed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Saves lie between checks, so that what a check averages is cut too.
    monkeypatch.setattr(training_module, "_SAVE_EVERY", 10)
    training = Training(length=LENGTH, batch=2, steps=36, warmup=4, check_every=7)

    def trainer(folder: str) -> Trainer:
        model = Decoder(SHAPE, T5Buckets(), 2)
        return Trainer(model, training, Data(recall_share=0.5), 2, tmp_path / folder)

    whole = trainer("whole")
    list(whole.steps(lambda: 0.0))
    first = trainer("killed")
    for done in first.steps(lambda: 0.0):
        if done == killed_at:
            break
    second = trainer("killed")
    assert second.done == killed_at // 10 * 10
    list(second.steps(lambda: 0.0))
    assert second.log == whole.log
    ours, theirs = second.model.state_dict(), whole.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    logs = [(tmp_path / name / LOG).read_text() for name in ("whole", "killed")]
    assert logs[0] == logs[1]
    assert [json.loads(line) for line in logs[0].splitlines()] == whole.log
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == [LOG, STATE]


@pytest.mark.usefixtures("short_texts")
def test_a_kill_while_saving_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_module, "_SAVE_EVERY", 2)
    training = Training(length=LENGTH, batch=1, steps=6, check_every=3)

    def trainer() -> Trainer:
        return Trainer(Decoder(SHAPE, NoPE(), 2), training, Data(), 2, tmp_path)

    first = trainer()
    steps = first.steps(lambda: 0.0)
    next(steps)
    next(steps)
    kept = (tmp_path / STATE).read_bytes()

    def cut_short(_: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", cut_short)
        with pytest.raises(KeyboardInterrupt):
            list(steps)
    assert (tmp_path / STATE).read_bytes() == kept
    assert trainer().done == 2


@pytest.mark.usefixtures("short_texts")
def test_a_loss_is_the_weighted_mean(tmp_path: Path) -> None:
    training, data = Training(length=LENGTH, batch=2, steps=1), Data(recall_share=1.0)
    model = Decoder(SHAPE, NoPE(), 2)
    rows, weights = batch(TEXT, 0, 2, 2, LENGTH, data)
    tokens, weight = torch.from_numpy(rows), torch.from_numpy(weights).double()
    trainer = Trainer(model, training, data, 2, tmp_path)
    # With and without gradients attention takes two ways, which bfloat16 would round apart.
    trainer.dtype = None
    with torch.no_grad():
        logits = model(tokens[:, :-1])
    nats = -logits.double().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    wanted = float((nats * weight).sum() / weight.sum()) / math.log(2)
    list(trainer.steps(lambda: 0.0))
    # Kept to five digits; below that, float32 sums of 128 losses of about 6 nats.
    bound = 0.5e-5 + 128 * 6 * 2.0**-24
    assert trainer.log[0]["training_bits"] == pytest.approx(wanted, abs=bound)
    # Unweighted it is another number.
    assert abs(float(nats.mean()) / math.log(2) - wanted) > 100 * bound


@pytest.mark.usefixtures("short_texts")
def test_fine_tuning_goes_on_in_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    inner = training_module.batch

    def watched(text: bytes, step: int, *rest: int):
        seen.append(step)
        return inner(text, step, *rest)

    monkeypatch.setattr(training_module, "batch", watched)
    training = Training(length=LENGTH, batch=1, steps=3, first_step=17)
    list(Trainer(Decoder(SHAPE, NoPE()), training, Data(), 1, tmp_path).steps(lambda: 0.0))
    assert seen == [17, 18, 19]


def test_skipped_positions_are_two_runs_within_the_length() -> None:
    assert skipped_positions(Training(length=LENGTH), 1, 1) is None
    training = Training(length=LENGTH, batch=4, skips=256)
    gaps, cuts = [], []
    for step in range(60):
        rows = skipped_positions(training, 7, step)
        assert rows is not None
        assert rows.shape == (4, LENGTH)
        assert (rows[:, 0] == 0).all()
        assert int(rows.max()) < 256
        moves = rows.diff(dim=1) - 1
        assert (moves >= 0).all()
        assert ((moves > 0).sum(1) <= 1).all()
        gaps += moves.max(1).values.tolist()
        cuts += [int(row.argmax()) for row in moves if row.max() > 0]
    # 240 draws of 193 gaps and 63 places reach both ends within a tenth.
    assert min(gaps) < 20
    assert max(gaps) > 172
    assert min(cuts) < 6
    assert max(cuts) > 56
    again = skipped_positions(training, 7, 5)
    assert torch.equal(again, skipped_positions(training, 7, 5))
    assert not torch.equal(again, skipped_positions(training, 7, 6))
    assert not torch.equal(again, skipped_positions(training, 8, 5))


@pytest.mark.usefixtures("short_texts")
def test_skips_reach_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(length=LENGTH, batch=2, steps=1, skips=256)
    model = Decoder(SHAPE, Rotary(rope=ROPE.with_scaling(YaRN(factor=4, original_length=64))))
    seen = []
    inner = model.forward

    def watched(tokens, positions=None, length=None):
        seen.append((positions, length))
        return inner(tokens, positions, length)

    monkeypatch.setattr(model, "forward", watched)
    list(Trainer(model, training, Data(), 3, tmp_path).steps(lambda: 0.0))
    positions, length = seen[0]
    assert torch.equal(positions, skipped_positions(training, 3, 0))
    assert length == 256


def test_another_encoding_may_be_taken_and_the_first_again() -> None:
    model = Decoder(SHAPE, T5Buckets(), 5)
    tokens = torch.arange(20)[None] * 7 % 256
    with torch.no_grad():
        for parameter in model.positions.parameters():
            parameter += 1
        before = model(tokens)
        kept = model.positions
        (learned,) = model.positions.parameters()
        model.use(NoPE())
        assert not list(model.positions.parameters())
        assert not torch.equal(model(tokens), before)
        model.encoding, model.positions = T5Buckets(), kept
        assert torch.equal(model(tokens), before)
        # Equal names and shapes: what was learned stays.
        model.use(T5Buckets(max_distance=64), 9)
        (same,) = model.positions.parameters()
        assert torch.equal(same, learned)
        model.use(T5Buckets(), 9)
        assert torch.equal(model(tokens), before)
        model.use(T5Buckets(buckets=16))
        (other,) = model.positions.parameters()
        assert other.shape != learned.shape


def test_transformer_xl_has_its_own_for_each_layer() -> None:
    assert len(Decoder(SHAPE, TransformerXL()).positions) == (
        SHAPE.layers if TransformerXL.per_layer else 1
    )
    assert len(Decoder(SHAPE, T5Buckets()).positions) == 1


class Known(torch.nn.Module):
    """Logits that say how probable a space is, whatever came before; the rest alike."""

    def __init__(self, space: float) -> None:
        super().__init__()
        logits = torch.full((256,), math.log((1 - space) / 255))
        logits[32] = math.log(space)
        self.logits = logits

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, 256)


def test_bits_per_byte_of_known_logits() -> None:
    spaces = b" " * 5000
    # float32 logarithms of sizes up to 9, a softmax of 256 and a mean: their rounding.
    tolerance = (9 * 4 + 256) * 2.0**-24 / math.log(2)
    assert bits_per_byte(Known(0.25), spaces, 64, None) == pytest.approx(2, abs=tolerance)
    assert bits_per_byte(Known(1 / 256), TEXT, 64, None) == pytest.approx(8, abs=tolerance)
    # The first byte of a window is given, the others are scored: windows of 10, each one
    # letter and then spaces, are nothing but spaces.
    text = (b"x" + b" " * 10) * 33
    assert bits_per_byte(Known(0.5), text, 10, None) == pytest.approx(1, abs=tolerance)


def test_describe_is_json() -> None:
    told = describe(Training(steps=7), Data(copy_share=0.5))
    assert json.loads(json.dumps(told))["training"]["steps"] == 7
    assert told["data"]["copy_share"] == 0.5
