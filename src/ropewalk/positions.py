"""Position ids for the ways that tokens come in: an offset, padding, packing, chunks.

All return int64 NumPy arrays. Positions are integers on purpose: a position id in bfloat16
merges neighbours from 257 on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError

Int64Array = npt.NDArray[np.int64]


def from_offset(offset: Any, count: int) -> Int64Array:
    """Return the positions of ``count`` tokens that begin at ``offset``.

    A scalar offset gives shape (count,); offsets of shape (batch,), one per row, give
    (batch, count).
    """
    starts = np.asarray(offset)
    if starts.dtype.kind not in "iu" or starts.ndim > 1:
        raise InputError(
            "offset",
            found=f"dtype {starts.dtype}, shape {starts.shape}",
            expected="an integer or one integer per row",
            fix="pass the number of tokens already seen",
        )
    if not isinstance(count, int) or count < 0:
        raise InputError(
            "count", found=repr(count), expected="a number of tokens", fix="pass an integer"
        )
    return starts.astype(np.int64)[..., None] + np.arange(count, dtype=np.int64)


def from_mask(mask: Any) -> Int64Array:
    """Return positions that count real tokens only, for left or right padding.

    Args:
        mask: shape (batch, time), 1 for a token and 0 for padding.

    Returns:
        Shape (batch, time): ``cumsum(mask) - 1``, 0 where a row begins with padding. The
        next token of a row has the position ``mask.sum(row)``, not the batch's length.
    """
    real = np.asarray(mask)
    if real.ndim != 2 or not np.isin(real, (0, 1)).all():
        raise InputError(
            "mask",
            found=f"shape {real.shape}" if real.ndim != 2 else "values other than 0 and 1",
            expected="0 and 1 of shape (batch, time)",
            fix="pass the attention mask of the tokenizer",
        )
    return np.maximum(np.cumsum(real, axis=1, dtype=np.int64) - 1, 0)


def packed(boundaries: Any, total: int | None = None) -> Int64Array:
    """Return positions that start again at 0 in every packed sequence.

    Args:
        boundaries: cumulative lengths, ``cu_seqlens``: [0, 2, 5] is two sequences of 2 and 3.
        total: number of tokens, where known; tokens past the last boundary are an error.

    Returns:
        Shape (boundaries[-1],); [0, 1, 0, 1, 2] in the example.
    """
    edges = _edges(boundaries)
    if total is not None and total != edges[-1]:
        raise InputError(
            "boundaries",
            found=f"{int(edges[-1])} tokens in sequences",
            expected=f"all {total} tokens",
            fix="end the boundaries at the number of tokens",
        )
    starts = np.repeat(edges[:-1], np.diff(edges))
    return np.arange(int(edges[-1]), dtype=np.int64) - starts


def boundaries_of(positions: Any) -> Int64Array:
    """Return cumulative lengths of the packed sequences in a row of positions.

    Every 0 begins a sequence, so one-token sequences stay apart: [0, 1, 0, 0, 1] gives
    [0, 2, 3, 5].
    """
    row = np.asarray(positions)
    if row.ndim != 1 or row.dtype.kind not in "iu" or (row.size and row[0] != 0):
        raise InputError(
            "positions",
            found=f"dtype {row.dtype}, shape {row.shape}",
            expected="one row of integers that begins with 0",
            fix="pass the position ids of one packed row",
        )
    return np.append(np.flatnonzero(row == 0), row.size).astype(np.int64)


def zigzag_rows(boundaries: Any, ranks: int, rank: int) -> Int64Array:
    """Return the tokens of a packed row that one rank of context parallelism holds.

    Each sequence is cut into ``2 * ranks`` equal chunks, of which a rank holds the chunks
    ``rank`` and ``2 * ranks - 1 - rank``, so that all ranks have equal work under a causal
    mask. The positions of those tokens are ``packed(boundaries)[rows]``: they begin again in
    every sequence, as the sequences do.

    Args:
        boundaries: cumulative lengths, as in `packed`; for one sequence ``[0, length]``.
        ranks: number of ranks.
        rank: the rank asked for, from 0.

    Returns:
        Rows of the packed tokens, ascending; boundaries [0, 4, 8], 2 ranks, rank 0 give
        [0, 3, 4, 7].

    Raises:
        InputError: a sequence that does not divide into the chunks, or no such rank.

    Source: the load-balanced split of Megatron-LM and TransformerEngine.
    """
    edges = _edges(boundaries)
    if not isinstance(ranks, int) or ranks < 1:
        raise InputError("ranks", found=repr(ranks), expected="at least 1", fix="pass the number")
    if not isinstance(rank, int) or not 0 <= rank < ranks:
        raise InputError(
            "rank", found=repr(rank), expected=f"0 to {ranks - 1}", fix="pass this rank's number"
        )
    chunks = 2 * ranks
    rows = [np.empty(0, np.int64)]
    for begin, length in zip(edges[:-1].tolist(), np.diff(edges).tolist(), strict=True):
        if length % chunks:
            raise InputError(
                "boundaries",
                found=f"a sequence of {length} tokens",
                expected=f"a multiple of {chunks}, two chunks for each rank",
                fix="pad each sequence before it is split",
            )
        size = length // chunks
        for chunk in (rank, chunks - 1 - rank):
            rows.append(begin + np.arange(chunk * size, (chunk + 1) * size, dtype=np.int64))
    return np.concatenate(rows)


def _edges(boundaries: Any) -> Int64Array:
    edges = np.asarray(boundaries)
    good = edges.ndim == 1 and edges.size >= 1 and edges.dtype.kind in "iu"
    if not good or edges[0] != 0 or (np.diff(edges.astype(np.int64)) < 0).any():
        shown = str(edges.tolist())
        raise InputError(
            "boundaries",
            found=shown if len(shown) <= 60 else f"{shown[:56]} ...",
            expected="whole numbers that begin with 0 and never fall",
            fix="pass cumulative lengths, e.g. [0, 2, 5] for lengths 2 and 3",
        )
    return edges.astype(np.int64)
