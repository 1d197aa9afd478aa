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
    edges = np.asarray(boundaries)
    good = edges.ndim == 1 and edges.size >= 1 and edges.dtype.kind in "iu"
    if not good or edges[0] != 0 or (np.diff(edges.astype(np.int64)) < 0).any():
        raise InputError(
            "boundaries",
            found=str(np.asarray(boundaries).tolist()),
            expected="whole numbers that begin with 0 and never fall",
            fix="pass cumulative lengths, e.g. [0, 2, 5] for lengths 2 and 3",
        )
    if total is not None and total != edges[-1]:
        raise InputError(
            "boundaries",
            found=f"{int(edges[-1])} tokens in sequences",
            expected=f"all {total} tokens",
            fix="end the boundaries at the number of tokens",
        )
    lengths = np.diff(edges.astype(np.int64))
    starts = np.repeat(edges[:-1].astype(np.int64), lengths.astype(np.int64))
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
