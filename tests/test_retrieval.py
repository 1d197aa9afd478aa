"""Key-value lines, and trials with what is planted at the distances that were asked for."""

from __future__ import annotations

import random
import re

import pytest

from ropewalk import InputError
from ropewalk.extend import key_value
from ropewalk.extend.passkey import statement
from ropewalk.extend.retrieval import PROBES, TokenTrial, trials_of
from ropewalk.extend.texts import TextSet, TokenizedDocument

LETTERS = "abcdefgh \n"


class Bytes:
    """A token is a byte."""

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": list(text.encode())}


class Pairs:
    """A token is two letters of the text, wherever that cuts a line; an odd end stands alone."""

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        parts = [text[i : i + 2].encode() for i in range(0, len(text), 2)]
        return {"input_ids": [int.from_bytes(b"\x01" + part) for part in parts]}


def text_of(tokens: tuple[int, ...]) -> str:
    return b"".join(t.to_bytes(3).lstrip(b"\0")[1:] for t in tokens).decode()


def texts(length: int = 1000) -> TextSet:
    rng = random.Random(3)
    rows = ["".join(rng.choices(LETTERS, k=2 * length)) for _ in range(2)]
    ids = [tuple(Bytes()(row)["input_ids"][:length]) for row in rows]
    return TextSet(tuple(TokenizedDocument(str(i), t, 1) for i, t in enumerate(ids)), "t", "d")


def trials(**options: object) -> list[TokenTrial]:
    chosen = {"length": 300, "count": 12, "seed": 5, "probe": "key-value", **options}
    return trials_of(texts(), Bytes(), **chosen)


def test_lines_say_a_value_and_ask_for_it() -> None:
    rng = random.Random(0)
    pairs = [key_value.draw_pair(rng) for _ in range(500)]
    assert all(re.fullmatch("[A-Z]{2}", name) and re.fullmatch("[A-Z]{4}", v) for name, v in pairs)
    assert {v[0] for _, v in pairs} == set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert len({name for name, _ in pairs}) > 300
    assert key_value.line("AB", "WXYZ") == "\n#ABWXYZ\n"
    assert key_value.ask("AB") == "\n#AB"


def test_a_key_value_trial_is_a_line_and_its_name_again() -> None:
    found = trials()
    names = set()
    for trial in found:
        text = bytes(trial.tokens).decode()
        assert len(text) == 300
        asked = re.search("\n#([A-Z]{2})([A-Z]{4})$", text)
        assert asked is not None
        name, value = asked.groups()
        names.add(name)
        assert trial.answer == 4
        planted = text.index(f"\n#{name}{value}\n")
        # From the value's first letter in the line to that at the end.
        assert trial.distance == (300 - 4) - (planted + len("\n#AB"))
        assert text.count("#") == 2
        # The filler is one stretch of a text.
        filler = text[:planted] + text[planted + 9 : -8]
        assert any(filler in bytes(d.tokens).decode() for d in texts().documents)
    assert len(names) == 12
    # All depths: the twelfths of the room, from the farthest on.
    room = 300 - 9 - 8
    assert [t.distance for t in found] == [
        300 - 4 - 4 - round((i + 0.5) / 12 * room) for i in range(12)
    ]


@pytest.mark.parametrize("probe", PROBES)
def test_distances_are_those_asked_for_in_turn(probe: str) -> None:
    asked = (120, 150, 200)
    found = trials(probe=probe, distances=asked, count=7)
    assert [t.distance for t in found] == [120, 150, 200, 120, 150, 200, 120]
    for trial in found:
        text = bytes(trial.tokens).decode()
        assert len(text) == 300
        # The answer to a passkey question begins with a space.
        answer = text[-trial.answer :].strip()
        line = f"{answer}\n" if probe == "key-value" else statement(answer)
        begin = text.index(line)
        assert 300 - trial.answer - begin == trial.distance


def test_the_nearest_and_the_farthest_distance_fit_and_no_other() -> None:
    room = 300 - 9 - 8
    for distance in (9, 9 + room):
        (trial,) = trials(count=1, distances=(distance,))
        assert trial.distance == distance
        assert bytes(trial.tokens).decode().count("#") == 2
    for distance in (8, 10 + room):
        with pytest.raises(
            InputError, match=rf"distances: got {distance}, expected 9 to {9 + room}"
        ):
            trials(count=1, distances=(distance,))


def test_distances_count_tokens_not_letters() -> None:
    rng = random.Random(3)
    row = "".join(rng.choices(LETTERS, k=2000))
    document = TokenizedDocument("pairs", tuple(Pairs()(row)["input_ids"]), 1)
    found = trials_of(
        TextSet((document,), "t", "d"), Pairs(), length=100, count=6, seed=1, probe="key-value",
        distances=(20, 33),
    )  # fmt: skip
    for trial in found:
        assert len(trial.tokens) == 100
        # "\n#", "AB", then the value: two tokens.
        assert trial.answer == 2
        assert trial.tokens[-2:] == trial.tokens[98 - trial.distance :][:2]
        name = text_of(trial.tokens[-4:-2])
        assert re.fullmatch("\n#[A-Z]{2}", name)
        assert text_of(trial.tokens[96 - trial.distance :][:2]) == name
    assert [t.distance for t in found] == [20, 33] * 3


def test_the_same_seed_gives_the_same_trials() -> None:
    assert trials() == trials()
    assert trials() != trials(seed=6)
    # More of them are the same ones and others, where distances are asked for.
    few, more = trials(distances=(50,), count=3), trials(distances=(50,), count=6)
    assert more[:3] == few


def test_too_short_a_text_is_refused() -> None:
    with pytest.raises(InputError, match="more than 17 for a key-value trial"):
        trials(length=17)
    assert trials(length=18, count=1)[0].distance in (9, 10)
