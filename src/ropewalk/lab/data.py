"""What the models of the lab are trained on: text, and lines to be recalled.

The text is the standard library's sources, files of the split ``train`` only; checks and
measurements read the other splits (see `ropewalk.extend.corpus`). Where retrieval is studied,
a share of the sequences has key-value lines sown into the text, each asked for again farther
on, and a share repeats random lines: without such practice a small model learns no retrieval
in a few million tokens, and there is nothing to measure.
The batch of a step depends on the seed and the step only, so every encoding sees the same.
"""

from __future__ import annotations

import math
import random
import string
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..extend.corpus import standard_library
from ..extend.key_value import draw_pair, line

BYTES = 256
"""Size of the vocabulary: a token is a byte."""
_PAIRS_EACH = 48
_ANSWER_WEIGHT = 4.0
_ALPHABETS = (
    "".join(map(chr, range(33, 127))),
    string.ascii_letters + string.digits,
    string.ascii_uppercase,
)
# With a dozen signs one byte says little of the next, and nothing of repeating is learned.


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a batch holds.

    Attributes:
        recall_share: share of the sequences with key-value lines in them.
        copy_share: share of the sequences that repeat a few random lines over and over.
    """

    recall_share: float = 0.0
    copy_share: float = 0.0


def training_text() -> bytes:
    """Return the text that the lab trains on."""
    return _joined("train")


def held_out_text() -> bytes:
    """Return text of files that no training saw, for checks while training runs."""
    return _joined("held_out")


def _joined(split: str) -> bytes:
    return "\n\n".join(document.text for document in standard_library(split)).encode()


Sequence = tuple[bytes, npt.NDArray[np.float32]]


def recall_sequence(text: bytes, rng: random.Random, length: int) -> Sequence:
    """Return a text of ``length + 1`` bytes with key-value lines in it, and each byte's weight.

    Every line appears two or three times. What nothing can predict (the names, and the values
    where they appear first) has weight 0; values asked for count several times.
    """
    events: list[tuple[float, int]] = []
    values: dict[str, str] = {}
    while len(values) < max(1, length // _PAIRS_EACH):
        name, value = draw_pair(rng)
        values.setdefault(name, value)
    pairs = list(values.items())
    for index in range(len(pairs)):
        at = _far_apart(rng)
        events += [(place, index) for place in at]
    events.sort()
    lines = [line(*pairs[index]) for _, index in events]
    room = length + 1 - sum(len(piece) for piece in lines)
    start = rng.randrange(len(text) - room)
    filler = text[start : start + room]
    out, weights, done = [], [], 0
    seen: set[int] = set()
    for (place, index), piece in zip(events, lines, strict=True):
        cut = round(place * room)
        out += [filler[done:cut], piece.encode()]
        weights.append(np.ones(cut - done, np.float32))
        of_line = np.zeros(len(piece), np.float32)
        answer = len(pairs[index][1])
        if index in seen:
            of_line[-answer - 1 : -1] = _ANSWER_WEIGHT
        weights.append(of_line)
        seen.add(index)
        done = cut
    out.append(filler[done:])
    weights.append(np.ones(room - done, np.float32))
    return b"".join(out), np.concatenate(weights)


def _far_apart(rng: random.Random) -> list[float]:
    """Draw where a line and its repetition lie, as shares of the text: all distances alike."""
    distance = rng.random() if rng.random() < 0.5 else 0.02 * 50.0 ** rng.random()
    first = rng.random() * (1 - distance)
    places = [first, first + distance]
    if rng.random() < 0.3:
        places.append(first + distance * rng.random())
    return places


def copy_sequence(rng: random.Random, length: int) -> Sequence:
    """Return ``length + 1`` bytes of a few random lines, repeated in random order.

    After its first bytes a repeated line can only be told by looking back for it: dense
    practice for what a key-value line asks once.
    """
    alphabet = rng.choice(_ALPHABETS)
    lines = [
        "".join(rng.choice(alphabet) for _ in range(rng.randrange(6, 30))) + "\n"
        for _ in range(rng.randrange(2, 7))
    ]
    out = "".join(lines)
    while len(out) <= length:
        out += rng.choice(lines)
    return out[: length + 1].encode(), np.ones(length + 1, np.float32)


def batch(
    text: bytes, step: int, seed: int, size: int, length: int, data: Data
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the tokens (size, length + 1) and the weights of their targets (size, length)."""
    rng = random.Random(f"{seed}/{step}")
    rows, weights = [], []
    for index in range(size):
        practice = _practice(step * size + index, data)
        if practice == "recall":
            row, weight = recall_sequence(text, rng, length)
        elif practice == "copy":
            row, weight = copy_sequence(rng, length)
        else:
            start = rng.randrange(len(text) - length - 1)
            row, weight = text[start : start + length + 1], np.ones(length + 1, np.float32)
        rows.append(np.frombuffer(row, dtype=np.uint8).astype(np.int64))
        weights.append(weight[1:])
    return np.stack(rows), np.stack(weights)


def _practice(number: int, data: Data) -> str:
    """Return what the sequence of this number is: the shares hold over all, evenly spread.

    Batches of one or two sequences get their share too, over several steps.
    """
    both = data.recall_share + data.copy_share
    earlier = _whole(number * both)
    if _whole((number + 1) * both) == earlier:
        return "text"
    recall = data.recall_share / both
    return "recall" if _whole((earlier + 1) * recall) > _whole(earlier * recall) else "copy"


def _whole(value: float) -> int:
    """Round down; a billionth guards against shares such as 0.1 that binary cannot hold."""
    return math.floor(value + 1e-9)
