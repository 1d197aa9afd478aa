"""Retrieval trials as tokens, with what is planted at known distances."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from . import key_value
from .passkey import draw_key, question, statement
from .texts import TextSet


@dataclass(frozen=True)
class Probe:
    """A way to plant something and ask for it.

    Attributes:
        name: as in options.
        draw: from a random generator to the statement, the question and the answer.
        whole_statement: whether distances count from the statement's first token; else from
            that of the answer in it.
    """

    name: str
    draw: Callable[[random.Random], tuple[str, str, str]]
    whole_statement: bool


def _passkey(rng: random.Random) -> tuple[str, str, str]:
    key = draw_key(rng)
    return statement(key), question(), key


def _key_value(rng: random.Random) -> tuple[str, str, str]:
    name, value = key_value.draw_pair(rng)
    return key_value.line(name, value), key_value.ask(name), value


PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        Probe("passkey", _passkey, whole_statement=True),
        Probe("key-value", _key_value, whole_statement=False),
    )
}
"""Every probe by name."""


@dataclass(frozen=True)
class TokenTrial:
    """One probe of an exact number of tokens.

    Attributes:
        tokens: filler with the statement planted, the question, and the answer at the end.
        answer: number of tokens of the answer.
        distance: tokens from the first of what was planted to the answer's first; of a
            key-value line the value counts, not its name.
    """

    tokens: tuple[int, ...]
    answer: int
    distance: int


def trials_of(
    texts: TextSet,
    tokenizer: Any,
    *,
    length: int,
    count: int,
    seed: int,
    probe: str = "passkey",
    distances: tuple[int, ...] | None = None,
) -> list[TokenTrial]:
    """Build ``count`` trials of ``length`` tokens.

    What is planted lies at all depths evenly, or at the given distances in turn. The filler is
    drawn from the documents; the same seed gives the same trials.

    Raises:
        InputError: a length too short to hold statement and question, or a distance that
            does not fit.
    """
    kind = PROBES[probe]
    rng = random.Random(f"{probe}/{seed}/{length}")
    out = []
    for index in range(count):
        stated, asking, answer_text = kind.draw(rng)
        planted = _ids(tokenizer, stated)
        asked = _ids(tokenizer, asking + answer_text)
        shared = _shared(_ids(tokenizer, asking.rstrip()), asked)
        answer = len(asked) - shared
        skipped = 0
        if not kind.whole_statement:
            skipped = _shared(_ids(tokenizer, stated[: stated.rindex(answer_text)]), planted)
        room = length - len(planted) - len(asked)
        if room < 1:
            raise InputError(
                "--lengths",
                found=f"{length} tokens",
                expected=f"more than {len(planted) + len(asked)} for a {probe} trial",
                fix="measure longer contexts or pass --trials 0",
            )
        source = texts.documents[rng.randrange(len(texts.documents))].tokens
        start = rng.randrange(len(source) - room + 1)
        filler = list(source[start : start + room])
        if distances is None:
            cut = round((index + 0.5) / count * room)
        else:
            cut = length - answer - skipped - distances[index % len(distances)]
            if not 0 <= cut <= room:
                nearest = len(planted) + shared - skipped
                raise InputError(
                    "distances",
                    found=str(distances[index % len(distances)]),
                    expected=f"{nearest} to {nearest + room} tokens in a text of {length}",
                    fix="leave it out or measure a longer text",
                )
        tokens = [*filler[:cut], *planted, *filler[cut:], *asked]
        out.append(TokenTrial(tuple(tokens), answer, length - answer - cut - skipped))
    return out


def _shared(start: list[int], whole: list[int]) -> int:
    """Return how many tokens two lists begin with in common."""
    return next(
        (i for i, (a, b) in enumerate(zip(start, whole, strict=False)) if a != b), len(start)
    )


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids
