# A kernel's arguments are pointers, numbers and compile-time values (in capitals, as usual in
# Triton); annotations other than tl.constexpr would be read by its compiler.
# ruff: noqa: ANN001, ANN202, ANN201, N803, SIM102, SIM108, SIM300
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The rotation on a GPU: what one program of the Triton kernels does.

A program owns a tile of ``TOKENS`` tokens by ``HEADS`` heads of one tensor and one batch row.
Every lane of the tile is loaded once and stored once. The queries' tiles come first in the
grid, the keys' after them, so that one launch rotates both.

The order of the loads matters: lanes first, then positions, then cos and sin, so that all of
them are under way before the first is waited for. Cos and sin are loaded in the shape of the
tile, not once per token: the repeats come out of the first-level cache, and the values are
then in the registers where they are needed, without a way through shared memory.

Index arithmetic that meets a stride is in 64 bits: a tensor may have 2^31 elements or more.
Products and sums are kept apart by ``enable_fp_fusion=False`` at the launch, so that float32
results equal the reference bit for bit.
"""

from __future__ import annotations

from ..errors import MissingExtraError

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise MissingExtraError("triton", extra="torch", needed_for="the GPU kernel") from error

FAULTS = 6
"""Words of the fault record: for positions, plane_axes and slots each a flag and a value."""


@triton.jit
def _note(faults, KIND: tl.constexpr, value, wrong):
    # All lanes write to the same two words; whichever comes last names one of the faults.
    here = faults + tl.full(value.shape, KIND, tl.int64)
    tl.store(here, tl.full(value.shape, 1, tl.int64), mask=wrong)
    tl.store(here + 1, value.to(tl.int64), mask=wrong)


@triton.jit
def _row_of(
    positions, position_axis, position_batch, position_token,
    plane_axes, axes, rows, start, faults,
    batch, tokens, token_ok,
    ROWS: tl.constexpr,
    PLANES: tl.constexpr,
    PLANES_PAD: tl.constexpr,
):  # fmt: skip
    """Return the table's row of each token, and of each plane for "axes", and where it exists.

    Shapes (TOKENS, 1) or (TOKENS, PLANES_PAD).
    """
    wanted = token_ok[:, None]
    if ROWS == "consecutive":
        row = (start + tokens)[:, None]
    elif ROWS == "ids":
        at = positions + batch * position_batch + tokens * position_token
        row = tl.load(at, mask=token_ok, other=0).to(tl.int64)[:, None]
        outside = (row < 0) | (row >= rows)
        _note(faults, 0, row, outside & wanted)
        wanted = wanted & (outside == 0)
    else:
        planes = tl.arange(0, PLANES_PAD)[None, :]
        known = planes < PLANES
        axis = tl.load(plane_axes + planes, mask=known, other=0).to(tl.int64)
        no_axis = (axis < 0) | (axis >= axes)
        _note(faults, 2, axis, no_axis)
        wanted = wanted & known & (no_axis == 0)
        at = positions + batch * position_batch + tokens[:, None] * position_token
        row = tl.load(at + axis * position_axis, mask=wanted, other=0).to(tl.int64)
        outside = (row < 0) | (row >= rows)
        _note(faults, 0, row, outside & wanted)
        wanted = wanted & (outside == 0)
    return row, wanted


@triton.jit
def _table(table, table_batch, table_row, table_plane, batch, row, there, mask, WIDE: tl.constexpr):
    """Return values of a table in the shape of ``mask``, NaN where there is no row."""
    planes = tl.arange(0, mask.shape[2]).to(tl.int64)[None, None, :]
    at = table + batch * table_batch + (row * table_row)[:, None, :] + planes * table_plane
    return tl.load(at, mask=mask & there[:, None, :], other=float("nan")).to(WIDE)


@triton.jit
def _load_pairs(
    source,
    lane_stride,
    mask,
    START: tl.constexpr,
    PLANES: tl.constexpr,
    PLANES_PAD: tl.constexpr,
    ADJACENT: tl.constexpr,
):
    """Return the first and the second lanes of all planes, (..., PLANES_PAD) each."""
    if ADJACENT:
        # One wide load and a split in registers, not two loads of every other lane.
        lanes = tl.arange(0, 2 * PLANES_PAD)[None, None, :]
        at = source + (START + lanes).to(tl.int64) * lane_stride
        both = tl.load(at, mask=mask & (lanes < 2 * PLANES), other=0.0)
        first, second = tl.split(tl.reshape(both, (both.shape[0], both.shape[1], PLANES_PAD, 2)))
    else:
        lanes = tl.arange(0, PLANES_PAD)[None, None, :]
        inside = mask & (lanes < PLANES)
        at = source + (START + lanes).to(tl.int64) * lane_stride
        first = tl.load(at, mask=inside, other=0.0)
        at = source + (START + PLANES + lanes).to(tl.int64) * lane_stride
        second = tl.load(at, mask=inside, other=0.0)
    return first, second


@triton.jit
def _store_pairs(
    target,
    lane_stride,
    mask,
    first,
    second,
    START: tl.constexpr,
    PLANES: tl.constexpr,
    PLANES_PAD: tl.constexpr,
    ADJACENT: tl.constexpr,
):
    if ADJACENT:
        lanes = tl.arange(0, 2 * PLANES_PAD)[None, None, :]
        at = target + (START + lanes).to(tl.int64) * lane_stride
        shape: tl.constexpr = (first.shape[0], first.shape[1], 2 * PLANES_PAD)
        both = tl.reshape(tl.join(first, second), shape)
        tl.store(at, both, mask=mask & (lanes < 2 * PLANES))
    else:
        lanes = tl.arange(0, PLANES_PAD)[None, None, :]
        inside = mask & (lanes < PLANES)
        tl.store(target + (START + lanes).to(tl.int64) * lane_stride, first, mask=inside)
        at = target + (START + PLANES + lanes).to(tl.int64) * lane_stride
        tl.store(at, second, mask=inside)


@triton.jit
def _other_lanes(
    HEAD_DIM: tl.constexpr, START: tl.constexpr, PLANES: tl.constexpr, REST_PAD: tl.constexpr
):
    """Return the lanes that are not rotated, and where they exist, (1, 1, REST_PAD)."""
    rest = tl.arange(0, REST_PAD)[None, None, :]
    if START == 0:
        # The usual case on its own: the compiler then sees that the lanes are contiguous.
        lanes = rest + 2 * PLANES
    else:
        lanes = rest + tl.where(rest < START, 0, 2 * PLANES)
    return lanes.to(tl.int64), rest < HEAD_DIM - 2 * PLANES


@triton.jit
def _scale(weight, lanes, known, WEIGHT_OFFSET: tl.constexpr, WIDE: tl.constexpr):
    return tl.load(weight + lanes, mask=known, other=0.0).to(WIDE) + WEIGHT_OFFSET


@triton.jit
def _inverse_root(mean, WIDE: tl.constexpr):
    # The plain operators are approximations in float32.
    if WIDE == tl.float64:
        root = 1.0 / tl.sqrt(mean)
    else:
        root = tl.div_rn(tl.full(mean.shape, 1.0, WIDE), tl.sqrt_rn(mean))
    return root


@triton.jit
def _tile(x, batch, tokens, heads, x_batch, x_token, x_head):
    """Return pointers to lane 0 of each token and head of a tile, (TOKENS, HEADS, 1)."""
    rows = x + batch * x_batch + tokens[:, None, None] * x_token
    return rows + heads.to(tl.int64)[None, :, None] * x_head


_FREE = [
    *("start", "time", "rows", "capacity", "q_heads", "k_heads", "axes"),
    *("token_blocks", "q_blocks", "k_blocks", "head_blocks"),
]
"""Numbers that vary with the text or mean nothing to the compiler: for another value of them
the kernel is not compiled anew. Strides are not among them: alignment decides how wide a load
can be."""


@triton.jit(do_not_specialize=_FREE)
def rotate_kernel(
    q, q_batch, q_token, q_head, q_lane,
    out_q, out_q_batch, out_q_token, out_q_head, out_q_lane,
    k, k_batch, k_token, k_head, k_lane,
    out_k, out_k_batch, out_k_token, out_k_head, out_k_lane,
    cos, cos_batch, cos_row, cos_plane,
    sin, sin_batch, sin_row, sin_plane,
    positions, position_axis, position_batch, position_token,
    plane_axes, axes, rows, start, faults,
    time, q_heads, k_heads, token_blocks, q_blocks, k_blocks, head_blocks,
    q_weight, k_weight,
    v, v_batch, v_token, v_head, v_lane,
    key_cache, key_block, key_row, key_head, key_lane,
    value_cache, value_block, value_row, value_head, value_lane,
    slots, slot_batch, slot_token, block_size, capacity,
    ROWS: tl.constexpr,
    INVERSE: tl.constexpr,
    ADJACENT: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    START: tl.constexpr,
    PLANES: tl.constexpr,
    PLANES_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
    UNIT_LANES: tl.constexpr,
    KEYS: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    WEIGHT_OFFSET: tl.constexpr,
    CACHE: tl.constexpr,
    KEEP_KEYS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    WIDE: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
):  # fmt: skip
    """Rotate a tile of q or of k, or copy one of v into its cache.

    The grid has one dimension: batch rows, token blocks, and the head blocks of q, then of k
    where ``KEYS``, then of v where ``CACHE``. ``NORM`` divides by the root mean square of the
    head first. ``CACHE`` writes k and v at their slots, and k to ``out_k`` too where
    ``KEEP_KEYS``. ``REST_PAD`` is 0 where the lanes that are not rotated stay as they are.
    ``UNIT_LANES``: neighbouring lanes are neighbours in memory, in all tensors.
    """
    program = tl.program_id(0)
    head_block = program % head_blocks
    token_block = program // head_blocks % token_blocks
    batch = (program // head_blocks // token_blocks).to(tl.int64)
    tokens = (token_block * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)
    token_ok = tokens < time
    is_q = head_block < q_blocks

    if CACHE:
        at = slots + batch * slot_batch + tokens * slot_token
        slot = tl.where(is_q, -1, tl.load(at, mask=token_ok, other=-1).to(tl.int64))
        kept = (slot >= 0) & (slot < capacity)
        _note(faults, 4, slot, (slot != -1) & (kept == 0))
        slot = tl.where(kept, slot, 0)
        block, block_row = slot // block_size, slot % block_size

    if head_block < q_blocks + k_blocks:
        kind: tl.constexpr = q.dtype.element_ty
        heads = tl.where(is_q, head_block, head_block - q_blocks) * HEADS + tl.arange(0, HEADS)
        head_ok = heads < tl.where(is_q, q_heads, k_heads)
        mask = token_ok[:, None, None] & head_ok[None, :, None]
        zero = tl.full((1,), 0, tl.int64)
        # Pointers are chosen here, once: from then on q and k are the same code.
        if is_q:
            source = _tile(q, batch, tokens, heads, q_batch, q_token, q_head)
            target = _tile(out_q, batch, tokens, heads, out_q_batch, out_q_token, out_q_head)
            source_lane, target_lane = zero + q_lane, zero + out_q_lane
            stored = mask
        elif CACHE:
            source = _tile(k, batch, tokens, heads, k_batch, k_token, k_head)
            target = _tile(key_cache, 0, block_row, heads, 0, key_row, key_head)
            target += (block * key_block)[:, None, None]
            source_lane, target_lane = zero + k_lane, zero + key_lane
            stored = mask & kept[:, None, None]
        elif KEYS:
            source = _tile(k, batch, tokens, heads, k_batch, k_token, k_head)
            target = _tile(out_k, batch, tokens, heads, out_k_batch, out_k_token, out_k_head)
            source_lane, target_lane = zero + k_lane, zero + out_k_lane
            stored = mask
        else:
            source = _tile(q, batch, tokens, heads, q_batch, q_token, q_head)
            target = _tile(out_q, batch, tokens, heads, out_q_batch, out_q_token, out_q_head)
            source_lane, target_lane = zero + q_lane, zero + out_q_lane
            stored = mask
        if UNIT_LANES:
            source_lane, target_lane = 1, 1

        a, b = _load_pairs(source, source_lane, mask, START, PLANES, PLANES_PAD, ADJACENT)
        if REST_PAD > 0:
            lanes, lane_ok = _other_lanes(HEAD_DIM, START, PLANES, REST_PAD)
            rest = tl.load(source + lanes * source_lane, mask=mask & lane_ok, other=0.0)
        row, there = _row_of(
            positions, position_axis, position_batch, position_token,
            plane_axes, axes, rows, start, faults,
            batch, tokens, token_ok, ROWS, PLANES, PLANES_PAD,
        )  # fmt: skip
        planes = tl.arange(0, PLANES_PAD)[None, None, :]
        turned = mask & (planes < PLANES)
        c = _table(cos, cos_batch, cos_row, cos_plane, batch, row, there, turned, WIDE)
        s = _table(sin, sin_batch, sin_row, sin_plane, batch, row, there, turned, WIDE)
        if INVERSE:
            s = -s
        a, b = a.to(WIDE), b.to(WIDE)
        if NORM:
            total = tl.sum(a * a + b * b, axis=2, keep_dims=True)
            if REST_PAD > 0:
                other = rest.to(WIDE)
                total += tl.sum(other * other, axis=2, keep_dims=True)
            shrink = _inverse_root(total * (1.0 / HEAD_DIM) + EPS, WIDE)
            weight = tl.where(is_q, q_weight, k_weight) if KEYS else q_weight
            first_lanes = START + (2 * planes if ADJACENT else planes)
            second_lanes = first_lanes + (1 if ADJACENT else PLANES)
            known = planes < PLANES
            a = a * shrink * _scale(weight, first_lanes, known, WEIGHT_OFFSET, WIDE)
            b = b * shrink * _scale(weight, second_lanes, known, WEIGHT_OFFSET, WIDE)
            if REST_PAD > 0:
                other = other * shrink * _scale(weight, lanes, lane_ok, WEIGHT_OFFSET, WIDE)
                rest = other.to(kind)
        first, second = (a * c - b * s).to(kind), (a * s + b * c).to(kind)

        _store_pairs(
            target, target_lane, stored, first, second, START, PLANES, PLANES_PAD, ADJACENT
        )
        if REST_PAD > 0:
            tl.store(target + lanes * target_lane, rest, mask=stored & lane_ok)
        if KEEP_KEYS:
            if head_block >= q_blocks:
                again = _tile(out_k, batch, tokens, heads, out_k_batch, out_k_token, out_k_head)
                again_lane = 1 if UNIT_LANES else zero + out_k_lane
                _store_pairs(
                    again, again_lane, mask, first, second, START, PLANES, PLANES_PAD, ADJACENT
                )
                if REST_PAD > 0:
                    tl.store(again + lanes * again_lane, rest, mask=mask & lane_ok)
    elif CACHE:
        v_heads = (head_block - q_blocks - k_blocks) * HEADS + tl.arange(0, HEADS)
        v_lanes = tl.arange(0, VALUE_PAD).to(tl.int64)[None, None, :]
        v_ok = (token_ok & kept)[:, None, None] & (v_heads < k_heads)[None, :, None]
        v_ok = v_ok & (v_lanes < VALUE_DIM)
        from_v = _tile(v, batch, tokens, v_heads, v_batch, v_token, v_head)
        moved = tl.load(from_v + v_lanes * v_lane, mask=v_ok, other=0.0)
        to_v = _tile(value_cache, 0, block_row, v_heads, 0, value_row, value_head)
        to_v += (block * value_block)[:, None, None]
        tl.store(to_v + v_lanes * value_lane, moved, mask=v_ok)
