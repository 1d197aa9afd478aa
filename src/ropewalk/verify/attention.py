"""What positions do to attention: one small softmax head over `rotate`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import positions as position_ids
from ..rope import Rope
from .arithmetic import Arithmetic, longest
from .check import Check, compare

GROUP = "attention: 'the dog bites the man' reordered, and decoding"
SOURCE = "RoFormer, arXiv 2104.09864, section 3.1; Attention Is All You Need, section 3.5"

SENTENCE = ("the", "dog", "bites", "the", "man")
REORDER = (0, 4, 2, 3, 1)
"""the dog bites the man -> the man bites the dog."""

DIM = 16
TOKENS, PREFILL = 24, 16

FloatArray = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head: projections, and the arithmetic and rope it rotates with.

    Attributes:
        weights: the projections to queries, keys and values, shape (3, d, d).
    """

    weights: FloatArray
    arithmetic: Arithmetic
    rope: Rope

    def project(self, x: FloatArray, at: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return queries and keys, rotated to positions ``at`` (None: not at all), and values."""
        q, k, v = (x @ w for w in self.weights)
        if at is not None:
            q, k = (self.arithmetic.turn(self.rope, y, at) for y in (q, k))
        return q, k, v

    def attend(self, x: FloatArray, at: Any, *, causal: bool) -> FloatArray:
        """Return the outputs of all tokens in one pass, shape (tokens, d)."""
        q, k, v = self.project(x, at)
        return softmax_attention(q, k, v, causal=causal)

    def attend_in_steps(self, x: FloatArray, prefill: int) -> FloatArray:
        """Return the same, causal, from a prefill and then one token at a time.

        Keys are cached as rotated; the position of a new token is the number of tokens seen.
        """
        q, keys, values = self.project(x[:prefill], position_ids.from_offset(0, prefill))
        outputs = [softmax_attention(q, keys, values, causal=True)]
        for seen in range(prefill, len(x)):
            q, k, v = self.project(x[seen : seen + 1], position_ids.from_offset(seen, 1))
            keys, values = np.concatenate([keys, k]), np.concatenate([values, v])
            outputs.append(softmax_attention(q, keys, values, causal=True))
        return np.concatenate(outputs)

    def error(self, x: FloatArray) -> float:
        """Bound how far rounding can set two computations of one output apart.

        With A the largest possible |logit|, each logit is off by s at most: projections
        (d/2 ε per side), turns (3ε per side), the inner product (d/2 ε) and the division by
        √d (2ε with its root). Two computations' weights then differ by 4s relative, and by
        what exp (A ε), the sum over T tokens and the division add; so do their values,
        projected with d/2 ε each. V is the largest possible |value|.
        """
        tokens, dim = len(x), DIM
        query, key, value = (longest(x) * float(np.linalg.norm(w)) for w in self.weights)
        epsilon = self.arithmetic.epsilon
        largest = query * key / math.sqrt(dim)
        per_logit = (8 + 3 * dim / 2) * epsilon * largest
        rounding = (2 * largest + 2 * tokens + 8 + dim) * epsilon
        return value * (4 * per_logit + rounding)


ERROR = "V(4s + (2A + 2T + 8 + d)ε), s = (8 + 3d/2)εA, A = |x|²‖Wq‖‖Wk‖/√d, V = |x|‖Wv‖, T tokens"
"""`Head.error` as text."""


def softmax_attention(q: FloatArray, k: FloatArray, v: FloatArray, *, causal: bool) -> FloatArray:
    """Return softmax(q kᵀ / √d) v; the last query is the last key's token."""
    logits = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        age = np.subtract.outer(np.arange(len(q)) + len(k) - len(q), np.arange(len(k)))
        logits = np.where(age < 0, -np.inf, logits)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    out: FloatArray = (weights / weights.sum(axis=-1, keepdims=True)) @ v
    return out


def checks(arithmetic: Arithmetic) -> list[Check]:
    """Return the checks of this group."""
    rng = np.random.default_rng(4)
    weights = (rng.standard_normal((3, DIM, DIM)) / math.sqrt(DIM)).astype(arithmetic.dtype)
    head = Head(weights, arithmetic, Rope(head_dim=DIM))
    vectors = {
        word: rng.standard_normal(DIM).astype(arithmetic.dtype) for word in dict.fromkeys(SENTENCE)
    }
    sentence = np.stack([vectors[word] for word in SENTENCE])
    text = rng.standard_normal((TOKENS, DIM)).astype(arithmetic.dtype)
    return [*_reordered(head, sentence), _prefill_and_decode(head, text)]


def _reordered(head: Head, sentence: FloatArray) -> list[Check]:
    order = list(REORDER)
    at = np.arange(len(sentence))
    bare = head.attend(sentence, None, causal=False)
    placed = head.attend(sentence, at, causal=False)
    bound = head.error(sentence)
    return [
        compare(
            GROUP,
            "no positions: the outputs follow",
            formula="attention(P x) = P attention(x): word order is invisible",
            computed=head.attend(sentence[order], None, causal=False),
            expected=bare[order],
            tolerance=bound,
            tolerance_formula=ERROR,
            source=SOURCE,
        ),
        compare(
            GROUP,
            "with positions: other outputs",
            formula="attention(P x, positions) ≠ P attention(x, positions)",
            computed=head.attend(sentence[order], at, causal=False),
            expected=placed[order],
            tolerance=bound,
            tolerance_formula="more than rounding explains: " + ERROR,
            source=SOURCE,
            relation="differs",
        ),
    ]


def _prefill_and_decode(head: Head, text: FloatArray) -> Check:
    return compare(
        GROUP,
        f"prefill {PREFILL} + {TOKENS - PREFILL} decoded = one pass",
        formula="keys rotated once and cached serve every later query",
        computed=head.attend_in_steps(text, PREFILL),
        expected=head.attend(text, np.arange(len(text)), causal=True),
        tolerance=head.error(text),
        tolerance_formula=ERROR,
        source=SOURCE,
    )
