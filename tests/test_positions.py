"""Position ids: offsets, padding, packing, chunks, context parallelism."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ropewalk import InputError, Rope, cos_sin
from ropewalk.positions import boundaries_of, from_mask, from_offset, packed, zigzag_rows


def check(got: np.ndarray, want) -> None:
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, np.array(want, np.int64))
    assert got.shape == np.array(want).shape


def test_left_padding_counts_real_tokens():
    """B126, huggingface/transformers#22161: cumsum(mask) - 1, whatever stands in the padding."""
    got = from_mask([[0, 0, 1, 1, 1]])
    check(got[:, 2:], [[0, 1, 2]])
    assert (got >= 0).all()


def test_rows_of_unequal_length_go_on_at_their_own_position():
    """B127, unslothai/unsloth#3699: the next position is the row's own count."""
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 1]])
    got = from_mask(mask)
    check(got[0, 2:], [0, 1])
    check(got[1], [0, 1, 2, 3])
    check(from_offset(mask.sum(axis=1), 1), [[2], [4]])


def test_right_padding_and_holes():
    check(from_mask([[1, 1, 0, 0]])[:, :2], [[0, 1]])
    check(from_mask([[1, 0, 1]])[0, [0, 2]], [0, 1])
    check(from_mask([[0, 0], [1, 1]]), [[0, 0], [0, 1]])
    check(from_mask(np.ones((2, 3), bool)), [[0, 1, 2]] * 2)
    check(from_mask(torch.tensor([[0.0, 1.0]])), [[0, 0]])
    check(from_mask(np.ones((2, 0), int)), np.zeros((2, 0)))
    # A mask in int8 must not wrap at 128 tokens.
    check(from_mask(np.ones((1, 300), np.int8)), [list(range(300))])


def test_an_offset_for_each_row():
    """B132, Blaizzy/mlx-vlm PR#1883: offsets of shape (batch,) must not be added along time."""
    check(from_offset([7, 9], 1), [[7], [9]])
    check(from_offset(np.array([7, 9]), 3), [[7, 8, 9], [9, 10, 11]])
    check(from_offset(torch.tensor([0, 5]), 2), [[0, 1], [5, 6]])


def test_a_scalar_offset_and_chunks():
    """B137, thunlp/Seq1F1B#6: the second chunk of four begins at 4."""
    check(from_offset(4, 4), [4, 5, 6, 7])
    check(from_offset(0, 0), [])
    check(from_offset(np.int32(2**31 - 1), 2), [2**31 - 1, 2**31])
    whole = from_offset(0, 12)
    np.testing.assert_array_equal(np.concatenate([from_offset(i, 4) for i in (0, 4, 8)]), whole)


def test_packed_sequences_begin_again():
    """B192, allenai/OLMo-core#503: cu_seqlens [0, 2, 5] are positions 0 1 0 1 2."""
    check(packed([0, 2, 5]), [0, 1, 0, 1, 2])
    check(packed([0, 2, 2, 5], total=5), [0, 1, 0, 1, 2])
    check(packed([0]), [])
    check(packed(torch.tensor([0, 3], dtype=torch.int32)), [0, 1, 2])
    # Unsigned boundaries must not wrap where two are subtracted.
    check(packed(np.array([0, 2, 5], np.uint32)), [0, 1, 0, 1, 2])


def test_tokens_past_the_last_boundary_are_an_error():
    """B141, NVIDIA/TransformerEngine PR#3057: 10 tokens, cu_seqlens [0, 4, 8]."""
    with pytest.raises(InputError) as caught:
        packed([0, 4, 8], total=10)
    assert str(caught.value) == (
        "boundaries: got 8 tokens in sequences, expected all 10 tokens; "
        "fix: end the boundaries at the number of tokens"
    )


def test_one_token_documents_stay_apart():
    """B134, modelscope/ms-swift PR#9904: positions [0, 1, 0, 0, 1] are three documents."""
    check(boundaries_of([0, 1, 0, 0, 1]), [0, 2, 3, 5])
    check(boundaries_of([0, 0]), [0, 1, 2])
    check(boundaries_of(np.zeros(0, int)), [0])


def test_packed_and_boundaries_are_inverse():
    draw = np.random.default_rng(0)
    for _ in range(20):
        edges = np.concatenate([[0], np.cumsum(draw.integers(1, 6, draw.integers(1, 8)))])
        check(boundaries_of(packed(edges)), edges)


def test_zigzag_of_packed_sequences():
    """B135, NVIDIA/Megatron-LM PR#5243: each sequence is split for itself."""
    rows = zigzag_rows([0, 4, 8], 2, 0)
    check(rows, [0, 3, 4, 7])
    check(packed([0, 4, 8])[rows], [0, 3, 0, 3])
    check(zigzag_rows([0, 4, 8], 2, 1), [1, 2, 5, 6])
    check(zigzag_rows([0, 16], 4, 1), [2, 3, 12, 13])
    check(zigzag_rows([0, 6], 1, 0), [0, 1, 2, 3, 4, 5])
    check(zigzag_rows([0], 2, 0), [])


def test_zigzag_gives_each_token_to_one_rank_and_equal_work():
    edges = [0, 8, 24, 24, 48]
    parts = [zigzag_rows(edges, 4, rank) for rank in range(4)]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(48))
    work = [(packed(edges)[rows] + 1).sum() for rows in parts]
    assert len(set(work)) == 1
    rope = Rope(head_dim=16)
    whole = cos_sin(rope, packed(edges))
    for rows in parts:
        part = cos_sin(rope, packed(edges)[rows])
        for table, full in zip(part, whole, strict=True):
            np.testing.assert_array_equal(table, full[rows])


OFFSET = "expected an integer or one integer per row; fix: pass the number of tokens already seen"
MASK = "expected 0 and 1 of shape (batch, time); fix: pass the attention mask of the tokenizer"
EDGES = (
    "expected whole numbers that begin with 0 and never fall; "
    "fix: pass cumulative lengths, e.g. [0, 2, 5] for lengths 2 and 3"
)
ROW = (
    "expected one row of integers that begins with 0; fix: pass the position ids of one packed row"
)

REFUSED = [
    (lambda: from_offset(1.0, 2), f"offset: got dtype float64, shape (), {OFFSET}"),
    (lambda: from_offset([[1]], 2), f"offset: got dtype int64, shape (1, 1), {OFFSET}"),
    (lambda: from_offset("a", 2), f"offset: got dtype <U1, shape (), {OFFSET}"),
    (lambda: from_offset(True, 2), f"offset: got dtype bool, shape (), {OFFSET}"),
    (
        lambda: from_offset(0, -1),
        "count: got -1, expected a number of tokens; fix: pass an integer",
    ),
    (
        lambda: from_offset(0, 2.0),
        "count: got 2.0, expected a number of tokens; fix: pass an integer",
    ),
    (lambda: from_mask([0, 1]), f"mask: got shape (2,), {MASK}"),
    (lambda: from_mask([[0, 2]]), f"mask: got values other than 0 and 1, {MASK}"),
    (lambda: from_mask([[0.5]]), f"mask: got values other than 0 and 1, {MASK}"),
    (lambda: from_mask([[np.nan]]), f"mask: got values other than 0 and 1, {MASK}"),
    (lambda: packed([]), f"boundaries: got [], {EDGES}"),
    (lambda: packed([1, 2]), f"boundaries: got [1, 2], {EDGES}"),
    (lambda: packed([0, 3, 2]), f"boundaries: got [0, 3, 2], {EDGES}"),
    (lambda: packed([0.0, 2.0]), f"boundaries: got [0.0, 2.0], {EDGES}"),
    (lambda: packed([[0, 2]]), f"boundaries: got [[0, 2]], {EDGES}"),
    (lambda: packed(5), f"boundaries: got 5, {EDGES}"),
    (
        lambda: packed(np.arange(1, 10**5)),
        "boundaries: got [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,  ..., " + EDGES,
    ),
    (lambda: boundaries_of([1, 0]), f"positions: got dtype int64, shape (2,), {ROW}"),
    (lambda: boundaries_of([[0]]), f"positions: got dtype int64, shape (1, 1), {ROW}"),
    (lambda: boundaries_of([0.0]), f"positions: got dtype float64, shape (1,), {ROW}"),
    (
        lambda: zigzag_rows([0, 6], 2, 0),
        (
            "boundaries: got a sequence of 6 tokens, expected a multiple of 4, two chunks for each "
            "rank; fix: pad each sequence before it is split"
        ),
    ),
    (
        lambda: zigzag_rows([0, 4], 2, 2),
        "rank: got 2, expected 0 to 1; fix: pass this rank's number",
    ),
    (lambda: zigzag_rows([0, 4], 0, 0), "ranks: got 0, expected at least 1; fix: pass the number"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[f"{i}" for i in range(len(REFUSED))])
def test_refusals(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message
