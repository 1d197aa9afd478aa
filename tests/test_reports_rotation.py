"""Public reports of real failures about caches, layout, precision and positions.

The second half of test_reports_core.py, which holds those about formulas and numbers.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from test_reports_core import digits, phi

from ropewalk import InputError, Proportional, Rope, TableCache, YaRN, cos_sin, rotate
from ropewalk.positions import from_mask

# Caching


def test_the_same_length_at_another_offset():
    """B061, lucidrains/rotary-embedding-torch#11."""
    rope, ones = Rope(head_dim=2), np.ones((1, 1, 2))
    first = rotate(ones, *cos_sin(rope, [0], dtype=np.float64))
    second = rotate(ones, *cos_sin(rope, [5], dtype=np.float64))
    assert first[0, 0, 0] == 1
    assert digits(second[0, 0, 0], "1.242586")


def test_a_shorter_text_does_not_rebuild_the_table():
    """B063, facebookresearch/xformers#728."""
    cache, rope = TableCache(), Rope(head_dim=64)
    tables = [cache.rows(rope, n)[0] for n in (1024, 512, 1024)]
    assert cache.rows_computed == 1024
    np.testing.assert_array_equal(tables[0][:512], tables[1])
    np.testing.assert_array_equal(tables[0], tables[2])


def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)) @ v


def test_a_kept_key_can_be_turned_to_its_new_position():
    """B068, huggingface/transformers#35350 (attention sinks, partial rotary).

    After 20 tokens a window of 8 that counts 4 sinks holds tokens 0-3 and 16-19; they are
    renumbered 0-7, by turning the rotated lanes of the kept keys back.
    """
    rope = Rope(head_dim=12, rotary_dim=8)
    keys = np.random.default_rng(0).standard_normal((20, 12)).astype(np.float32)
    held = rotate(keys, *cos_sin(rope, np.arange(20)), order="time")
    kept = np.array([0, 1, 2, 3, 16, 17, 18, 19])
    new = np.arange(8)
    moved = rotate(held[kept], *cos_sin(rope, new - kept), order="time")
    fresh = rotate(keys[kept], *cos_sin(rope, new), order="time")
    # Two rotations against one: 3 units of the radius for each, and the tables' own.
    assert np.abs(moved - fresh).max() <= 12 * 2.0**-24 * np.abs(keys).max() * 2**0.5
    np.testing.assert_array_equal(moved[:, 8:], keys[kept][:, 8:])
    np.testing.assert_array_equal(moved[:4], held[:4])


@pytest.mark.parametrize("start", [1000, 10**6, 2**30])
def test_a_suffix_attends_alike_wherever_it_begins(start):
    """B069, awslabs/keys_values#140: positions 0..S-1 against P..P+S-1."""
    draw = np.random.default_rng(1)
    q, k, v = (draw.standard_normal((24, 32)).astype(np.float32) for _ in range(3))
    rope = Rope(head_dim=32)
    out = []
    for positions in (np.arange(24), start + np.arange(24)):
        tables = cos_sin(rope, positions)
        out.append(attention(*(rotate(x, *tables, order="time") for x in (q, k)), v))
    # Scores are off by some units of |q||k| / sqrt(32), weights and sums by as much.
    limit = 16 * 2.0**-24 * np.abs(v).max() * np.linalg.norm(q, axis=1).max()
    assert np.abs(out[0] - out[1]).max() <= limit


# Layout

COS, SIN = (math.cos(1), math.cos(0.01)), (math.sin(1), math.sin(0.01))
ADJACENT = [
    COS[0] - 2 * SIN[0],
    SIN[0] + 2 * COS[0],
    3 * COS[1] - 4 * SIN[1],
    3 * SIN[1] + 4 * COS[1],
]
HALF = [
    COS[0] - 3 * SIN[0],
    2 * COS[1] - 4 * SIN[1],
    SIN[0] + 3 * COS[0],
    2 * SIN[1] + 4 * COS[1],
]


@pytest.mark.parametrize(
    ("pairing", "want"),
    [
        pytest.param("adjacent", ADJACENT, id="B072 vllm-project/vllm#747 (GPT-J)"),
        pytest.param("adjacent", ADJACENT, id="B073 pytorch/torchtitan#801 (Meta's files)"),
        pytest.param("half", HALF, id="B073 Dao-AILab/flash-attention#126 (HF's files)"),
    ],
)
def test_what_each_pairing_gives(pairing, want):
    """B072 and B073: x = [1, 2, 3, 4] at position 1, theta 10000."""
    rope = Rope(head_dim=4, pairing=pairing)
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    got = rotate(x, *cos_sin(rope, [1], dtype=np.float64), pairing=rope.pairing, order="time")
    np.testing.assert_allclose(got[0], want, rtol=0, atol=8 * 4 * 2.0**-53)
    assert [round(v, 6) for v in want] in (
        [-1.142640, 1.922076, 2.959851, 4.029800],
        [-1.984111, 1.959901, 2.462378, 4.019800],
    )
    # Which one is assumed can be read off the rope.
    assert ("adjacent" in repr(rope)) == (pairing == "adjacent")


def test_the_pairing_belongs_to_the_call():
    """B077, sgl-project/sglang PR#13495 (the indexer of DeepSeek-V3.2)."""
    tables = cos_sin(Rope(head_dim=4), [1], dtype=np.float64)
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    for pairing, want in (("adjacent", ADJACENT), ("half", HALF), ("adjacent", ADJACENT)):
        got = rotate(x, *tables, pairing=pairing, order="time")
        np.testing.assert_allclose(got[0], want, rtol=0, atol=8 * 4 * 2.0**-53)


def test_reordered_lanes_need_the_other_pairing():
    """B076, naklecha/llama3-from-scratch#20: why q and k are permuted and v is not."""
    draw = np.random.default_rng(2)
    q, k = draw.standard_normal((2, 9, 8))
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    tables = cos_sin(Rope(head_dim=8), np.arange(9), dtype=np.float64)

    def scores(q, k, pairing):
        q, k = (rotate(x, *tables, pairing=pairing, order="time") for x in (q, k))
        return q @ k.T

    # A permutation changes the order of a sum of 8 products only.
    limit = 8 * 2.0**-53 * np.abs(q).max() * np.abs(k).max() * 8
    assert np.abs(q @ k.T - q[:, order] @ k[:, order].T).max() <= limit
    half = scores(q, k, "half")
    assert np.abs(half - scores(q[:, order], k[:, order], "adjacent")).max() <= 2 * limit
    assert np.abs(half - scores(q[:, order], k[:, order], "half")).max() > 0.1


def test_adjacent_means_lanes_0_and_1():
    """B079, vllm-project/vllm-ascend PR#12780."""
    rope = Rope(head_dim=128, pairing="adjacent")
    assert [rope.lanes(i) for i in (0, 1, 63)] == [(0, 1), (2, 3), (126, 127)]
    assert Rope(head_dim=128).lanes(1) == (1, 65)


def test_turned_once_and_scaled_once():
    """B080, NVIDIA/TensorRT-LLM PR#16378 (gpt-oss)."""
    scaling = YaRN(factor=32, original_length=4096, truncate=False)
    rope = Rope(head_dim=64, theta=150000, scaling=scaling)
    k = np.random.default_rng(3).standard_normal((1, 64))
    for position in (1, 77, 9000):
        cos, sin = cos_sin(rope, [position], dtype=np.float64)
        angle = math.atan2(sin[0, 0], cos[0, 0])
        assert abs(math.remainder(angle - position, 2 * math.pi)) <= 1e-12
        turned = rotate(k, cos, sin, order="time")
        ratio = np.linalg.norm(turned) / np.linalg.norm(k)
        assert abs(ratio - scaling.amplitude()) <= 16 * 2.0**-53
    assert digits(scaling.amplitude(), "1.346574")


def test_partial_rotary_counts_the_rotated_lanes():
    """B081, pie-project/pie PR#603: head_dim 256, rotary_dim 64, theta 1e7."""
    rope = Rope(head_dim=256, rotary_dim=64, theta=1e7)
    assert digits(rope.inv_freq()[1], "0.604296")
    assert rope.lanes(1) == (1, 33)


def test_proportional_counts_all_lanes():
    """B082, NVIDIA-NeMo/Megatron-Bridge#4195 (Gemma 4): the opposite rule."""
    rope = Rope(head_dim=512, theta=1e6, scaling=Proportional(share=0.25))
    got = rope.inv_freq()
    assert got.shape == (256,)
    np.testing.assert_array_equal(got[:64], Rope(head_dim=512, theta=1e6).inv_freq()[:64])
    assert (got[64:] == 0).all()
    assert rope.lanes(3) == (3, 259)
    x = np.random.default_rng(4).standard_normal((1, 512)).astype(np.float32)
    turned = rotate(x, *cos_sin(rope, [12345]), order="time")
    still = [lane for i in range(64, 256) for lane in rope.lanes(i)]
    np.testing.assert_array_equal(turned[:, still], x[:, still])


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(80, 20), (128, 32)])
def test_lanes_above_the_rotated_ones_pass_through(head_dim, rotary_dim):
    """B087, linkedin/Liger-Kernel PR#1451."""
    rope = Rope(head_dim=head_dim, rotary_dim=rotary_dim)
    x = torch.randn(2, 5, 3, head_dim, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.bfloat16):
        low = x.to(dtype)
        got = rotate(low, *cos_sin(rope, torch.arange(5)))
        assert torch.equal(got[..., rotary_dim:], low[..., rotary_dim:])
        assert (got[:, 1:, :, :rotary_dim] != low[:, 1:, :, :rotary_dim]).any()


# Precision, dtype, memory


def test_a_half_precision_table_grows_from_full_frequencies():
    """B094, huggingface/transformers#25681."""
    cache, rope = TableCache(), Rope(head_dim=128)
    cache.rows(rope, 4096, dtype=np.float16)
    grown = cache.rows(rope, 5000, dtype=np.float16)
    for got, want in zip(grown, cos_sin(rope, np.arange(5000)), strict=True):
        # Rounded once from float64, which differs from a rounded float32 by less than a unit.
        assert np.abs(got.astype(np.float32) - want).max() <= 2.0**-11
    assert rope.inv_freq().dtype == np.float64


def test_a_default_dtype_of_bfloat16_does_not_reach_the_table():
    """B096, deepspeedai/DeepSpeed#4932."""
    rope, positions = Rope(head_dim=64), torch.arange(4096)
    want = [cos_sin(rope, positions, precision=p)[1] for p in ("exact", "float32")]
    torch.set_default_dtype(torch.bfloat16)
    try:
        got = [cos_sin(rope, positions, precision=p)[1] for p in ("exact", "float32")]
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b)


def test_positions_in_bfloat16_are_refused_because_they_merge():
    """B099, Nerogar/OneTrainer#1177: only 385 of the ids 0..511 survive."""
    ids = np.arange(512).astype(ml_dtypes.bfloat16)
    assert len(set(ids.astype(float).tolist())) == 385
    for given in (ids, torch.arange(512).to(torch.bfloat16)):
        with pytest.raises(InputError, match="half precision merges neighbouring positions"):
            cos_sin(Rope(head_dim=8), given)


@pytest.mark.parametrize("scaling", ["plain", "longrope", "yarn"])
def test_large_angles_are_fully_reduced(scaling):
    """B100, kekzl/imp#1630: position 60000, plane 0, in every branch."""
    rope = {
        "plain": Rope(head_dim=96),
        "longrope": phi(),
        "yarn": Rope(head_dim=96, scaling=YaRN(factor=4, original_length=4096)),
    }[scaling]
    cos, sin = cos_sin(rope, [60000])
    factor, angle = rope.attention_factor(60001), 60000 * rope.inv_freq(60001)[0]
    assert angle == 60000
    assert abs(cos[0, 0] - math.cos(60000) * factor) <= 6e-8 * factor
    assert abs(sin[0, 0] - math.sin(60000) * factor) <= 6e-8 * factor


def test_no_cosine_is_above_one():
    """B101, tenstorrent/tt-metal#51845: angle 131071."""
    cos, sin = cos_sin(Rope(head_dim=128), [131071])
    assert abs(cos[0, 0] - math.cos(131071)) <= 6e-8
    assert abs(sin[0, 0] - math.sin(131071)) <= 6e-8
    for table in cos_sin(Rope(head_dim=128), np.arange(131071 - 4096, 131072)):
        assert np.abs(table).max() <= 1


@pytest.mark.parametrize("precision", ["exact", "float32"])
def test_cached_and_uncached_tables_are_equal(precision):
    """B103, NVlabs/Fast-dLLM PR#51: length 3000, bit for bit."""
    rope, cache = Rope(head_dim=64, theta=1e6), TableCache()
    for length in (1, 7, 2999, 3000):
        cached = cache.rows(rope, length, precision=precision)
    for got, want in zip(cached, cos_sin(rope, np.arange(3000), precision=precision), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(torch.float16, id="B106 huggingface/transformers PR#24262"),
        pytest.param(torch.bfloat16, id="B107 EleutherAI/gpt-neox#1305"),
    ],
)
def test_half_precision_queries_stay_half(dtype):
    """B106 and B107: float32 tables do not widen the output, nor fail."""
    x = torch.ones(1, 4, 2, 8, dtype=dtype)
    got = rotate(x, *cos_sin(Rope(head_dim=8), torch.arange(4)))
    assert got.dtype == dtype


def test_the_error_names_the_dtype():
    """B107, EleutherAI/gpt-neox#1305."""
    with pytest.raises(InputError, match=r"x: got dtype int64, expected float16, bfloat16"):
        rotate(torch.ones(4, 2, 8, dtype=torch.int64), *cos_sin(Rope(head_dim=8), range(4)))


def test_a_table_has_one_value_for_each_plane():
    """B118, karpathy/autoresearch#6: 0.5 MiB for 2048 tokens of 128 lanes in bfloat16."""
    cache, rope = TableCache(), Rope(head_dim=128)
    tables = cache.rows(rope, 2048, dtype=ml_dtypes.bfloat16)
    assert sum(table.nbytes for table in tables) == 2**19
    assert tables[0].base.nbytes == 2**19


def test_a_table_is_as_long_as_what_is_run():
    """B120, vllm-project/vllm PR#44738: clipped, with the prefix of the long one."""
    rope = Rope(head_dim=16, scaling=YaRN(factor=32, original_length=32768))
    short, cache = TableCache().rows(rope, 300), TableCache()
    long = cache.rows(rope, 9000)
    for a, b in zip(short, long, strict=True):
        assert a.shape == (300, 8)
        np.testing.assert_array_equal(a, b[:300])


def test_decoding_past_the_table_adds_one_row_a_token():
    """B122, huggingface/optimum-habana PR#532: 4096 to 5000."""
    cache, rope = TableCache(), Rope(head_dim=8)
    cache.rows(rope, 4096)
    blocks = set()
    for length in range(4097, 5001):
        blocks.add(cache.rows(rope, length)[0].__array_interface__["data"][0])
    assert cache.rows_computed == 5000
    assert len(blocks) == 1


# Positions


def test_scores_do_not_change_when_both_positions_shift():
    """B129, huggingface/transformers#22683, and B128, ndif-team/nnsight PR#673.

    For rotary embeddings alone: ids counted from the padding and ids counted from the first
    token give the same scores, as long as one row does not mix the two.
    """
    draw = np.random.default_rng(5)
    q, k = draw.standard_normal((2, 1, 64)).astype(np.float32)
    rope = Rope(head_dim=64)

    def score(q_at, k_at):
        turned = [rotate(x, *cos_sin(rope, [p]), order="time") for x, p in ((q, q_at), (k, k_at))]
        return float((turned[0] @ turned[1].T)[0, 0])

    limit = 64 * 4 * 2.0**-24 * float(np.abs(q).max() * np.abs(k).max())
    assert abs(score(5, 2) - score(105, 102)) <= limit
    counted = from_mask([[0, 0, 1, 1, 1]])[0, 2:]
    raw = np.arange(5)[2:]
    assert abs(score(*counted[[2, 0]]) - score(*raw[[2, 0]])) <= limit
    assert abs(score(counted[2], raw[0]) - score(*raw[[2, 0]])) > 100 * limit


def test_every_row_of_a_batch_is_rotated_at_one_token():
    """B131, ml-explore/mlx#3494: ones of shape (2, 16, 1, 256) at offset 6."""
    rope = Rope(head_dim=256)
    got = rotate(np.ones((2, 16, 1, 256), np.float32), *cos_sin(rope, [6]), order="heads_time")
    assert (got == got[0, 0]).all()
    assert (got[1] != 1).any()
    flat = rotate(np.ones((2, 1, 256), np.float32), *cos_sin(rope, [6]), order="time")
    assert (flat == got[:, 0]).all()


def test_no_position_is_out_of_the_table():
    """B139, microsoft/onnxruntime PR#27597: 4096 after a table of 4096, and -1.

    Nothing is looked up, so nothing can be read past the end or wrap to the last row.
    """
    cache, rope = TableCache(), Rope(head_dim=64)
    cache.rows(rope, 4096)
    assert cache.rows(rope, 4097)[0].shape == (4097, 32)
    cos, sin = cos_sin(rope, [4096, -1, 1])
    np.testing.assert_array_equal(cos[0], cache.rows(rope, 4097)[0][4096])
    np.testing.assert_array_equal(cos[1], cos[2])
    np.testing.assert_array_equal(sin[1], -sin[2])
    with pytest.raises(InputError, match="count: got -1"):
        cache.rows(rope, -1)


def test_only_the_tokens_used_need_rows():
    """B140, microsoft/onnxruntime-genai#383: a buffer of 131072, 100 tokens used."""
    rope = Rope(head_dim=64)
    buffer = np.zeros((1, 131072, 1, 64), np.float16)
    got = rotate(buffer[:, :100], *TableCache().rows(rope, 100))
    assert got.shape == (1, 100, 1, 64)
