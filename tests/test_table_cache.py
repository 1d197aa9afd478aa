"""The table cache: what it computes, what it shares, what it must never change."""

from __future__ import annotations

import dataclasses
import threading

import ml_dtypes
import mp_oracle
import numpy as np
import pytest
import torch

from ropewalk import DynamicNTK, InputError, Rope, TableCache, cos_sin, rotate

ROPE = Rope(head_dim=64, theta=1e6)
DYNAMIC = Rope(head_dim=64, scaling=DynamicNTK(factor=2, original_length=64))


def same(got, want) -> bool:
    return all(g.dtype == w.dtype and np.array_equal(g, w) for g, w in zip(got, want, strict=True))


def test_one_build_serves_shorter_texts_too():
    cache = TableCache()
    first, shorter, again = (cache.rows(ROPE, n) for n in (1024, 512, 1024))
    assert cache.rows_computed == 1024
    want = cos_sin(ROPE, np.arange(1024))
    assert same(first, want)
    assert same(again, want)
    assert same(shorter, [table[:512] for table in want])
    assert np.shares_memory(first[0], shorter[0])


def test_decoding_computes_one_row_for_each_token():
    cache = TableCache()
    cache.rows(ROPE, 100)
    for length in range(101, 400):
        tables = cache.rows(ROPE, length)
        assert cache.rows_computed == length
    assert same(tables, cos_sin(ROPE, np.arange(399)))


def test_storage_grows_geometrically():
    cache = TableCache()
    blocks = set()
    keep = []
    for length in range(1, 1025):
        keep.append(cache.rows(ROPE, length)[0])
        blocks.add(keep[-1].__array_interface__["data"][0])
    # 1, 2, 4 … 1024: log2(1024) + 1 blocks.
    assert len(blocks) == 11


def test_views_that_were_handed_out_never_change():
    cache = TableCache()
    early = cache.rows(ROPE, 10)
    copies = [table.copy() for table in early]
    for length in (11, 20, 21, 1000):
        cache.rows(ROPE, length)
    cache.clear()
    cache.rows(ROPE, 5)
    assert same(early, copies)
    for table in early:
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 5


def test_ropes_that_differ_in_one_field_share_nothing():
    """A shared table that forgot theta is a real bug of a well-known library."""
    base = Rope(head_dim=64, theta=10000.0)
    others = [
        dataclasses.replace(base, theta=500000.0),
        dataclasses.replace(base, theta=10000.5),
        dataclasses.replace(base, direction=-1),
        *(rope for rope, _ in mp_oracle.ROPES.values() if rope.rotary_dim == 64),
    ]
    cache = TableCache(max_tables=100)
    got = [cache.rows(rope, 33) for rope in (base, *others)]
    assert cache.rows_computed == 33 * (1 + len(others))
    for rope, tables in zip((base, *others), got, strict=True):
        assert same(tables, cos_sin(rope, np.arange(33)))
    # The value counts, not the object.
    cache.rows(Rope(head_dim=64, theta=10000), 33)
    assert cache.rows_computed == 33 * (1 + len(others))


def test_dtype_and_precision_are_part_of_the_key():
    cache = TableCache()
    dtypes = (
        np.float32,
        np.float64,
        np.float16,
        ml_dtypes.bfloat16,
        # An array header calls both of these V1.
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3b11fnuz,
    )
    for done, dtype in enumerate(dtypes, 1):
        assert same(cache.rows(ROPE, 40, dtype=dtype), cos_sin(ROPE, np.arange(40), dtype=dtype))
        assert cache.rows_computed == 40 * done
    single = cache.rows(ROPE, 40, precision="float32")
    assert same(single, cos_sin(ROPE, np.arange(40), precision="float32"))
    assert cache.rows_computed == 40 * (len(dtypes) + 1)
    cache.rows(ROPE, 40, dtype="float32")
    assert cache.rows_computed == 40 * (len(dtypes) + 1)


def test_a_dynamic_rope_has_a_table_for_every_length():
    cache = TableCache()
    for length in (100, 101, 100):
        assert same(cache.rows(DYNAMIC, length), cos_sin(DYNAMIC, np.arange(length)))
    assert cache.rows_computed == 201
    # A pinned length: one table, however many rows of it are asked for.
    for count in (10, 60, 100):
        want = cos_sin(DYNAMIC, np.arange(count), length=100)
        assert same(cache.rows(DYNAMIC, count, length=100), want)
    assert cache.rows_computed == 201
    # All texts within the original length share one.
    for length in (30, 64, 12):
        assert same(cache.rows(DYNAMIC, length), cos_sin(Rope(head_dim=64), np.arange(length)))
    assert cache.rows_computed == 201 + 64


def test_longrope_has_one_short_and_one_long_table():
    cache = TableCache()
    rope, _ = mp_oracle.ROPES["longrope, short"]
    for length in (4000, 4096, 4097, 5000):
        assert same(cache.rows(rope, length), cos_sin(rope, np.arange(length), length=length))
    assert cache.rows_computed == 4096 + 5000


def test_the_least_recently_used_table_goes_first():
    cache = TableCache(max_tables=2)
    a, b, c = (Rope(head_dim=8, theta=t) for t in (10.0, 100.0, 1000.0))
    kept = cache.rows(a, 5)
    cache.rows(b, 5)
    cache.rows(a, 3)
    cache.rows(c, 5)
    assert cache.rows_computed == 15
    cache.rows(a, 5)
    assert cache.rows_computed == 15
    cache.rows(b, 5)
    assert cache.rows_computed == 20
    assert same(kept, cos_sin(a, np.arange(5)))


def test_a_refused_call_leaves_the_cache_usable():
    cache = TableCache()
    with pytest.raises(InputError, match="precision: got 'double'"):
        cache.rows(ROPE, 5, precision="double")
    assert cache.rows_computed == 0
    assert same(cache.rows(ROPE, 5), cos_sin(ROPE, np.arange(5)))
    assert [t.shape for t in cache.rows(ROPE, 0)] == [(0, 32)] * 2


def test_cached_tables_rotate_without_a_warning():
    # Warnings are errors here; PyTorch warns about read-only arrays.
    tables = TableCache().rows(ROPE, 7)
    x = np.random.default_rng(0).standard_normal((7, 2, 64)).astype(np.float32)
    got = rotate(torch.from_numpy(x), *tables)
    np.testing.assert_array_equal(got.numpy(), rotate(x, *tables))
    rounded = TableCache().rows(ROPE, 7, dtype=ml_dtypes.bfloat16)
    np.testing.assert_array_equal(
        rotate(torch.from_numpy(x), *rounded).numpy(), rotate(x, *rounded)
    )


def test_eight_threads_get_what_they_asked_for():
    cache = TableCache(max_tables=3)
    ropes = [Rope(head_dim=16, theta=100.0 * (i + 1)) for i in range(4)]
    want = {rope: cos_sin(rope, np.arange(600)) for rope in ropes}
    wrong: list[object] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        draw = np.random.default_rng(seed)
        held = []
        try:
            start.wait()
            for _ in range(60):
                rope, count = ropes[draw.integers(4)], int(draw.integers(0, 600))
                held.append((rope, count, cache.rows(rope, count)))
            for rope, count, tables in held:
                if not same(tables, [table[:count] for table in want[rope]]):
                    wrong.append((rope, count))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
