"""Launching the GPU kernel: tile shapes, arguments, and the record of faults."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl

from ..errors import InputError
from .reference import check_option
from .triton_inputs import Heads, heads_of, rows_of, table_of
from .triton_tiles import FAULTS, rotate_kernel

INTERPRETED = not isinstance(rotate_kernel, triton.JITFunction)
"""Whether kernels run in Triton's interpreter, on the CPU."""

_TILE_BYTES = 8192
"""Bytes of one tile: 64 for each of 128 threads, so four loads of 16 bytes under way at once."""

_faults: dict[torch.device, torch.Tensor] = {}


def check_faults(device: Any = None) -> None:
    """Raise for what kernels found wrong since the last call: positions and slots.

    Waits for the device, so it belongs after a batch or in a test, not after every call.

    Args:
        device: where to look; by default on every device that a kernel ran on.

    Raises:
        InputError: a position outside its table, a plane's axis outside positions, or a slot
            outside its cache; one such value is named.
    """
    wanted = None if device is None else torch.device(device)
    for where, record in _faults.items():
        if wanted is not None and wanted not in (where, torch.device(where.type)):
            continue
        seen = record.tolist()
        if not any(seen[0::2]):
            continue
        record.zero_()
        for index, (name, expected, fix) in enumerate(_MEANINGS):
            if seen[2 * index]:
                raise InputError(name, found=str(seen[2 * index + 1]), expected=expected, fix=fix)


_MEANINGS = (
    (
        "positions",
        "rows within the table",
        "make a longer table; lanes rotated by this position are NaN",
    ),
    (
        "plane_axes",
        "axes within positions",
        "give each plane an axis of positions; lanes of this plane are NaN",
    ),
    ("slots", "slots within the cache, or -1", "check the block table; nothing was written there"),
)


def run(
    q: Heads,
    out_q: Heads,
    k: Heads | None,
    out_k: Heads | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    pairing: str,
    rotary_offset: int,
    inverse: bool,
    positions: Any,
    plane_axes: Any,
    norm: tuple[torch.Tensor, torch.Tensor, float, float] | None = None,
    cache: tuple[Heads, torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
) -> None:
    """Check the rest of the input and run the kernel.

    Args:
        q: what is rotated.
        out_q: where it goes; the same memory for in place.
        k: keys rotated in the same launch, or None.
        out_k: where they go; may be None with a cache.
        cos: as for `triton_kernel.rotate_qk`, like all that follow up to plane_axes.
        sin: the same.
        pairing: the same.
        rotary_offset: the same.
        inverse: the same.
        positions: the same.
        plane_axes: the same.
        norm: weights of q and k, eps and weight offset.
        cache: values, key cache, value cache, slots.
    """
    check_option("pairing", pairing)
    x = q.tensor
    if not (x.is_cuda or INTERPRETED):
        raise InputError(
            "q" if k is not None else "x",
            found=f"device {x.device}",
            expected="a GPU",
            fix="use ropewalk.rotate on the CPU, or move the tensors",
        )
    picked = positions is not None
    planes, cos_strides, sin_strides, rows = table_of(cos, sin, q, rotary_offset, picked=picked)
    taken = rows_of(positions, plane_axes, q, planes, rows)
    if not q.batch * q.time:
        return

    in_place = out_q.tensor is x and (k is None or (out_k is not None and out_k.tensor is k.tensor))
    others = q.lanes - 2 * planes
    if others and in_place and norm is None and cache is None:
        others = 0
    q_heads, k_heads = q.heads, k.heads if k is not None else 0
    value_lanes = cache[0].lanes if cache is not None else 0
    tokens, heads, warps = tile_shape(
        q.time, q_heads, k_heads, planes, others, value_lanes, x.element_size()
    )
    q_blocks, k_blocks = triton.cdiv(q_heads, heads), triton.cdiv(k_heads, heads)
    head_blocks = q_blocks + k_blocks * (2 if cache is not None else 1)
    token_blocks = triton.cdiv(q.time, tokens)
    if not head_blocks:
        return

    stored = [t for t in (q, out_q, k, out_k) if t is not None]
    unit = all(t.strides[3] == 1 for t in stored)
    cache_arguments: tuple[Any, ...] = (None,) * 20
    if cache is not None:
        v, k_cache, v_cache, slots = cache
        unit = unit and k_cache.stride(3) == 1
        slot_batch, slot_token = (0, *slots.stride())[-2:]
        cache_arguments = (
            *_pointer(v),
            *(k_cache, *k_cache.stride()),
            *(v_cache, *v_cache.stride()),
            *(slots, slot_batch, slot_token),
            *(k_cache.shape[1], k_cache.shape[0] * k_cache.shape[1]),
        )
    elsewhere = x.is_cuda and x.device.index != torch.cuda.current_device()
    with torch.cuda.device(x.device) if elsewhere else nullcontext():
        rotate_kernel[(q.batch * token_blocks * head_blocks,)](
            *_pointer(q),
            *_pointer(out_q),
            *_pointer(k),
            *_pointer(out_k),
            *(cos, *cos_strides),
            *(sin, *sin_strides),
            *(taken.positions, *taken.strides),
            *(taken.plane_axes, taken.axes, taken.rows, taken.start, _fault_record(x.device)),
            *(q.time, q_heads, k_heads, token_blocks, q_blocks, k_blocks, head_blocks),
            *(norm[:2] if norm is not None else (None, None)),
            *cache_arguments,
            ROWS=taken.kind,
            INVERSE=inverse,
            ADJACENT=pairing == "adjacent",
            HEAD_DIM=q.lanes,
            START=rotary_offset,
            PLANES=planes,
            PLANES_PAD=triton.next_power_of_2(planes),
            REST_PAD=triton.next_power_of_2(others) if others else 0,
            UNIT_LANES=unit,
            KEYS=k is not None,
            NORM=norm is not None,
            EPS=norm[2] if norm is not None else 0.0,
            WEIGHT_OFFSET=norm[3] if norm is not None else 0.0,
            CACHE=cache is not None,
            KEEP_KEYS=cache is not None and out_k is not None,
            VALUE_DIM=value_lanes,
            VALUE_PAD=triton.next_power_of_2(value_lanes) if value_lanes else 1,
            WIDE=tl.float64 if x.dtype == torch.float64 else tl.float32,
            TOKENS=tokens,
            HEADS=heads,
            num_warps=warps,
            enable_fp_fusion=False,
        )
    _note_writes(out_q, out_k, cache)


def launch(xs: tuple[torch.Tensor, ...], outs: tuple[torch.Tensor, ...], call: Any) -> bool:
    """Run a rotation that `ropewalk.torch` has checked already.

    Args:
        xs: queries, or queries and keys.
        outs: where they go; the same tensors for in place.
        call: cos, sin and the options, a `ropewalk.torch.arguments.Call`.

    Returns:
        False, with nothing done, for a layout this kernel does not know: several axes before
        time and heads that are no single axis in memory, or tables with such axes.
    """
    inner = 2 if call.order == "time" else 3
    if call.cos.ndim > (3 if xs[0].ndim <= inner + 1 else 2):
        return False
    flat = [_one_batch_axis(x, inner) for x in (*xs, *outs)]
    if any(x is None for x in flat) or (call.positions is not None and xs[0].ndim > inner + 1):
        return False
    sources = [heads_of("x", x, call.order) for x in flat[: len(xs)]]
    targets = [heads_of("out", x, call.order) for x in flat[len(xs) :]]
    both = len(xs) == 2
    run(
        sources[0],
        targets[0],
        sources[1] if both else None,
        targets[1] if both else None,
        call.cos,
        call.sin,
        pairing=call.pairing,
        rotary_offset=call.rotary_offset,
        inverse=call.inverse,
        positions=call.positions,
        plane_axes=call.plane_axes,
    )
    return True


def _one_batch_axis(x: torch.Tensor, inner: int) -> torch.Tensor | None:
    if x.ndim <= inner + 1:
        return x
    try:
        return x.view(-1, *x.shape[-inner:])
    except RuntimeError:  # it would have to be copied
        return None


@functools.lru_cache(maxsize=1024)
def tile_shape(
    time: int, q_heads: int, k_heads: int, planes: int, others: int, values: int, size: int
) -> tuple[int, int, int]:
    """Return the tokens and heads of a tile, and the warps that work on it.

    All are powers of two. More heads share a token's table rows; fewer leave less of the last
    tile empty: 32 + 8 heads go in tiles of 8, 9 + 3 in tiles of 4. A tile has about
    ``_TILE_BYTES``, fewer where the text is short.
    """
    lanes = 2 * triton.next_power_of_2(planes)
    lanes += triton.next_power_of_2(others) if others else 0
    lanes = max(lanes, triton.next_power_of_2(values) if values else 0)
    room = _power_below(_TILE_BYTES // (lanes * size))
    most = triton.next_power_of_2(max(q_heads, k_heads, 1))
    heads, best = 1, None
    for tried in (2**n for n in range(min(room, most).bit_length())):
        blocks = -(-q_heads // tried) - (-k_heads // tried)
        # In halves of a head's traffic: an empty place costs a thread's time only, a block
        # reads the table's rows again, which are as long as a head of 16-bit numbers.
        cost = blocks * tried + 2 * blocks
        if best is None or cost <= best:
            heads, best = tried, cost
    tokens = min(room // heads, triton.next_power_of_2(time))
    vectors = tokens * heads * lanes * size // 16
    return tokens, heads, min(4, _power_below(vectors // 128))


def _power_below(number: int) -> int:
    """Return the largest power of two that is not larger, at least 1."""
    return int(1 << (max(1, number).bit_length() - 1))


def _pointer(x: Heads | None) -> tuple[Any, ...]:
    return (None,) * 5 if x is None else (x.tensor, *x.strides)


def _fault_record(device: torch.device) -> torch.Tensor:
    record = _faults.get(device)
    if record is None:
        record = _faults[device] = torch.zeros(FAULTS, dtype=torch.int64, device=device)
        if record.is_cuda:
            # Once per device: kernels on other streams must find it cleared.
            torch.cuda.synchronize(device)
    return record


def _note_writes(out_q: Heads, out_k: Heads | None, cache: Any) -> None:
    # So that autograd notices when something it saved was overwritten.
    written = [out_q.tensor, *([out_k.tensor] if out_k is not None else [])]
    written += cache[1:3] if cache is not None else []
    for tensor in written:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
