"""Passkey trials as tokens, with the key at known distances."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .passkey import draw_key, question, statement
from .texts import TextSet


@dataclass(frozen=True)
class TokenTrial:
    """One probe of an exact number of tokens.

    Attributes:
        tokens: filler with the statement planted, the question, and the answer at the end.
        answer: number of tokens of the answer.
        distance: tokens from the statement's first token to the answer's first.
    """

    tokens: tuple[int, ...]
    answer: int
    distance: int


def trials_of(
    texts: TextSet, tokenizer: Any, *, length: int, count: int, seed: int
) -> list[TokenTrial]:
    """Build ``count`` trials of ``length`` tokens, their keys spread evenly over all depths.

    The filler is drawn from the documents; the same seed gives the same trials.

    Raises:
        InputError: a length too short to hold statement and question.
    """
    rng = random.Random(f"passkey/{seed}/{length}")
    out = []
    for index in range(count):
        key = draw_key(rng)
        planted = _ids(tokenizer, statement(key))
        asked = _ids(tokenizer, question() + key)
        bare = _ids(tokenizer, question().rstrip())
        shared = next(
            (i for i, (a, b) in enumerate(zip(bare, asked, strict=False)) if a != b), len(bare)
        )
        room = length - len(planted) - len(asked)
        if room < 1:
            raise InputError(
                "--lengths",
                found=f"{length} tokens",
                expected=f"more than {len(planted) + len(asked)} for a passkey trial",
                fix="measure longer contexts or pass --trials 0",
            )
        source = texts.documents[rng.randrange(len(texts.documents))].tokens
        start = rng.randrange(len(source) - room + 1)
        filler = list(source[start : start + room])
        cut = round((index + 0.5) / count * room)
        tokens = [*filler[:cut], *planted, *filler[cut:], *asked]
        answer = len(asked) - shared
        out.append(TokenTrial(tuple(tokens), answer, length - answer - cut))
    return out


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids
