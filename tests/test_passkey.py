"""Passkey trials: exact length, the key where it is said to be, the answer at the end."""

import random
from pathlib import Path

import pytest

from ropewalk import InputError
from ropewalk.extend.passkey import draw_key, plant, question, statement
from ropewalk.extend.retrieval import trials_of
from ropewalk.extend.texts import read_texts, tokenize


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> object:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model)


def test_keys_have_five_digits_and_no_leading_zero() -> None:
    rng = random.Random(0)
    keys = [draw_key(rng) for _ in range(1000)]
    assert all(len(k) == 5 and k.isdigit() and k[0] != "0" for k in keys)


def test_planting_keeps_the_filler() -> None:
    filler = "line\n" * 50
    for depth in (0.0, 0.3, 1.0):
        trial = plant(filler, "12345", depth)
        assert trial.before + trial.after == filler
        assert trial.prompt.endswith(question())


def test_trials_have_the_exact_length_and_distance(texts: list[Path], tokenizer: object) -> None:
    found = tokenize(read_texts(texts), "t", tokenizer, length=1000, count=6, scored=10)
    trials = trials_of(found, tokenizer, length=400, count=10, seed=0)
    for trial in trials:
        text = bytes(trial.tokens).decode()
        assert len(trial.tokens) == 400
        key = text[-5:]
        assert text.count(f"The pass key is {key}. Remember it.") == 1
        begin = text.index(statement(key))
        # The answer is the space and the digits, or the digits alone.
        assert trial.answer in (5, 6)
        assert trial.distance == 400 - trial.answer - begin
    distances = [t.distance for t in trials]
    assert max(distances) - min(distances) > 200


def test_same_seed_same_trials(texts: list[Path], tokenizer: object) -> None:
    found = tokenize(read_texts(texts), "t", tokenizer, length=1000, count=6, scored=10)
    first, again = (trials_of(found, tokenizer, length=300, count=4, seed=7) for _ in range(2))
    assert first == again
    assert trials_of(found, tokenizer, length=300, count=4, seed=8) != first


def test_too_short_for_a_trial_is_refused(texts: list[Path], tokenizer: object) -> None:
    found = tokenize(read_texts(texts), "t", tokenizer, length=1000, count=1, scored=10)
    with pytest.raises(InputError, match="for a passkey trial"):
        trials_of(found, tokenizer, length=60, count=1, seed=0)
