"""Which tokens are scored, and what each of them sees: the protocols of measuring a loss.

The protocol changes the conclusion, not just the number: with windows side by side a longer
window leaves fewer tokens with little context, and the loss falls without any long-range use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ProtocolName = Literal["fixed", "prefix", "non-overlapping", "sliding"]
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Reach:
    """What a pass plan needs to know.

    Attributes:
        length: tokens of context at most.
        original: tokens that the model was trained on.
        scored: tokens scored at the end of a document, where the protocol scores its end.
        crops: whether the method drops all but the last ``original`` tokens.
    """

    length: int
    original: int
    scored: int
    crops: bool


@dataclass(frozen=True)
class Protocol:
    """One way to measure.

    Attributes:
        name: as on the command line.
        passes: from a document's tokens to rows, each with how many of its last tokens count.
        whole_text: whether the scored tokens are (about) the whole document, so that bits per
            byte are reckoned over it.
        title: what is scored, for tables and plots; ``{scored}`` is filled in.
        rule: the protocol in whole sentences; ``{scored}`` and ``{original}`` are filled in.
    """

    name: ProtocolName
    passes: Callable[[Tokens, Reach], list[tuple[Tokens, int]]]
    whole_text: bool
    title: str
    rule: str


def _fixed(tokens: Tokens, reach: Reach) -> list[tuple[Tokens, int]]:
    return [(tokens[-(reach.original if reach.crops else reach.length) :], reach.scored)]


def _prefix(tokens: Tokens, reach: Reach) -> list[tuple[Tokens, int]]:
    first = tokens[: reach.length]
    if reach.crops:
        # Cropping can only be given the tail.
        return [(first[-reach.original :], reach.scored)]
    return [(first, len(first) - 1)]


def _non_overlapping(tokens: Tokens, reach: Reach) -> list[tuple[Tokens, int]]:
    window = reach.original if reach.crops else reach.length
    parts = [tokens[start : start + window] for start in range(0, len(tokens), window)]
    return [(part, len(part) - 1) for part in parts if len(part) > 1]


def _sliding(tokens: Tokens, reach: Reach) -> list[tuple[Tokens, int]]:
    window = reach.original if reach.crops else reach.length
    stride = max(1, window // 2)
    first_target = len(tokens) - len(tokens) // 2
    out = []
    for end in range(len(tokens), first_target, -stride):
        out.append((tokens[max(0, end - window) : end], min(stride, end - first_target)))
    return out


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "fixed",
            _fixed,
            whole_text=False,
            title="the same last {scored:,} tokens of each document at every length",
            rule="Fixed targets: the same last {scored:,} tokens of every document are scored with "
            "contexts of each length, so that a difference is due to the context. `crop` gives the "
            "last {original:,} tokens whatever the length.",
        ),
        Protocol(
            "prefix",
            _prefix,
            whole_text=False,
            title="the first N tokens (last {scored:,} in brackets)",
            rule="Prefix: one pass over the first N tokens of the text, every token but the first "
            "scored. In brackets the last {scored:,} tokens only. `crop` gives the "
            "last {original:,} of the N tokens. The mean covers other tokens at each N: "
            "compare within a column, not along a row.",
        ),
        Protocol(
            "non-overlapping",
            _non_overlapping,
            whole_text=True,
            title="whole documents, cut into windows of the length",
            rule="Non-overlapping windows: every document is cut into windows of the length, and "
            "each token sees what comes before it in its window: from nothing to a whole window. A "
            "longer window leaves fewer tokens with little context, and the loss falls for that "
            "reason alone. `crop` has windows of {original:,} tokens whatever the length.",
        ),
        Protocol(
            "sliding",
            _sliding,
            whole_text=True,
            title="the second half of each document, in windows that overlap by half",
            rule="Sliding windows: the second half of every document is scored in windows of the "
            "length that overlap by half, so that each token sees at least half a window. `crop` "
            "has windows of {original:,} tokens whatever the length.",
        ),
    )
}
"""Every protocol by name."""
