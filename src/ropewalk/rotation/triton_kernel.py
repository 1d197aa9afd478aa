"""The rotation on a GPU, in one launch: entry points of the Triton kernels.

The same results as `rotation.reference`: lanes are rotated in float32 (float64 for float64),
as two products and one sum that are each rounded, and rounded once to the tensor's dtype, so
that float32 results equal the reference bit for bit. No gradients are recorded; the gradient
of a rotation is the rotation with ``inverse`` turned over, by the same kernel.

**Positions outside the table.** A tensor of positions lies on the device, and looking at its
values here would wait for the device. So the kernel looks: a token whose position is outside
the table reads no memory, its rotated lanes become NaN, and the position is noted in a record
on the device. `check_faults` reads the record (it waits for the device), raises `InputError`
and clears it. Slots outside the cache are noted in the same way; nothing is written for them.
An integer start is checked at once.

Where Triton's interpreter is on (``TRITON_INTERPRET=1`` before the first import of triton),
everything here works on CPU tensors, slowly: for tests.

This module imports PyTorch and Triton; import it only where it is wanted.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from ..errors import InputError
from .reference import Order
from .triton_inputs import (
    Heads,
    check_apart,
    check_cache,
    check_no_gradient,
    check_slots,
    check_weight,
    heads_of,
    output,
)
from .triton_launch import INTERPRETED, check_faults, launch, run

__all__ = [
    "INTERPRETED",
    "check_faults",
    "launch",
    "norm_rotate_qk",
    "rotate",
    "rotate_into_cache",
    "rotate_qk",
]

Pairing = Literal["half", "adjacent"]


def rotate(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    inverse: bool = False,
    positions: int | torch.Tensor | None = None,
    plane_axes: Any = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rotate one tensor on the GPU; see `rotate_qk`.

    Args:
        x: queries or keys; ``order="time"``, (batch, time, head_dim), works too.
        cos: as for `rotate_qk`.
        sin: as for `rotate_qk`.
        pairing: as for `rotate_qk`.
        order: as for `rotate_qk`, or ``time``.
        rotary_offset: as for `rotate_qk`.
        inverse: as for `rotate_qk`.
        positions: as for `rotate_qk`.
        plane_axes: as for `rotate_qk`.
        out: where the result goes: None for a fresh tensor, ``x`` itself for in place.

    Returns:
        ``out``, or a fresh tensor.

    Raises:
        InputError: as for `rotate_qk`.
    """
    check_no_gradient(x=x, cos=cos, sin=sin)
    source = heads_of("x", x, order)
    target = output("out", out, source, order, [cos, sin, positions])
    run(
        source,
        target,
        None,
        None,
        cos,
        sin,
        pairing=pairing,
        rotary_offset=rotary_offset,
        inverse=inverse,
        positions=positions,
        plane_axes=plane_axes,
    )
    return target.tensor


def rotate_qk(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    inverse: bool = False,
    positions: int | torch.Tensor | None = None,
    plane_axes: Any = None,
    out_q: torch.Tensor | None = None,
    out_k: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys in one launch.

    Args:
        q: (batch, time, heads, head_dim) for ``order="time_heads"``, (batch, heads, time,
            head_dim) for ``"heads_time"``; the batch axis may be missing. float16, bfloat16,
            float32 or float64, any strides.
        k: as ``q``, with its own number of heads.
        cos: one value per plane, half the rotated lanes. Without ``positions``: per token,
            (time, planes) or (batch, time, planes). With them: a table (rows, planes).
        sin: as ``cos``.
        pairing: ``half`` (lane i with i + planes) or ``adjacent`` (2i with 2i + 1).
        order: which axis is time.
        rotary_offset: index of the first rotated lane; the lanes outside pass bit for bit.
        inverse: turn back: the gradient of the rotation.
        positions: an integer: token t takes row ``positions + t``. A tensor of int32 or
            int64, (time,) or (batch, time): each token's row. With ``plane_axes``: (axes,
            time) or (axes, batch, time).
        plane_axes: (planes,) integers: plane p takes its row from ``positions[plane_axes[p]]``.
        out_q: where the result goes: None for a fresh tensor, ``q`` itself for in place, or a
            tensor like it with memory of its own.
        out_k: the same for ``k``.

    Returns:
        The rotated queries and keys.

    Raises:
        InputError: tensors that do not fit each other, an unknown option, a start outside the
            table, or a tensor that requires a gradient. Position tensors: see the module.

    Source: Su et al. 2021, RoFormer, arXiv 2104.09864, equation 34.
    """
    check_no_gradient(q=q, k=k, cos=cos, sin=sin)
    queries, keys = _pair(q, k, order)
    to_q = output("out_q", out_q, queries, order, [k, out_k, cos, sin, positions])
    to_k = output("out_k", out_k, keys, order, [q, out_q, cos, sin, positions])
    run(
        queries,
        to_q,
        keys,
        to_k,
        cos,
        sin,
        pairing=pairing,
        rotary_offset=rotary_offset,
        inverse=inverse,
        positions=positions,
        plane_axes=plane_axes,
    )
    return to_q.tensor, to_k.tensor


def norm_rotate_qk(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    *,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    positions: int | torch.Tensor | None = None,
    plane_axes: Any = None,
    out_q: torch.Tensor | None = None,
    out_k: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise each head of q and k, then rotate, in one launch.

    Each head x of ``head_dim`` lanes becomes ``x / sqrt(mean(x^2) + eps) * (weight_offset +
    weight)`` and is then rotated, all in float32 (float64 for float64) with one rounding at
    the end; models that round between the two steps differ from it by that rounding.

    Args:
        q: as for `rotate_qk`, as are all options not named here.
        k: as for `rotate_qk`.
        cos: as for `rotate_qk`.
        sin: as for `rotate_qk`.
        q_weight: (head_dim,), any float dtype.
        k_weight: the same for the keys.
        eps: added to the mean square.
        weight_offset: 0, or 1 for models that keep the weight minus one, such as Gemma.
        pairing: as for `rotate_qk`.
        order: as for `rotate_qk`.
        rotary_offset: as for `rotate_qk`; lanes outside the rotation are normalised only.
        positions: as for `rotate_qk`.
        plane_axes: as for `rotate_qk`.
        out_q: as for `rotate_qk`.
        out_k: as for `rotate_qk`.

    Returns:
        The rotated queries and keys.

    Raises:
        InputError: as for `rotate_qk`; weights that do not fit; eps below 0.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467; queries and keys of Qwen3 and Gemma 3.
    """
    check_no_gradient(q=q, k=k, q_weight=q_weight, k_weight=k_weight, cos=cos, sin=sin)
    queries, keys = _pair(q, k, order)
    norm = _norm(queries, keys, q_weight, k_weight, eps, weight_offset)
    held = [cos, sin, positions, q_weight, k_weight]
    to_q = output("out_q", out_q, queries, order, [k, out_k, *held])
    to_k = output("out_k", out_k, keys, order, [q, out_q, *held])
    run(
        queries,
        to_q,
        keys,
        to_k,
        cos,
        sin,
        pairing=pairing,
        rotary_offset=rotary_offset,
        inverse=False,
        positions=positions,
        plane_axes=plane_axes,
        norm=norm,
    )
    return to_q.tensor, to_k.tensor


def rotate_into_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    q_weight: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    positions: int | torch.Tensor | None = None,
    plane_axes: Any = None,
    out_q: torch.Tensor | None = None,
    out_k: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rotate q and k and write k and v into a cache of blocks, in one launch.

    Slot s is row ``s % block_size`` of block ``s // block_size``. The slots of one call must
    differ: of two tokens with one slot, either may be found there afterwards.

    Args:
        q: as for `rotate_qk`, as are all options not named here.
        k: as for `rotate_qk`.
        v: values, as ``k``; their lanes may be another number.
        cos: as for `rotate_qk`.
        sin: as for `rotate_qk`.
        k_cache: (blocks, block_size, key heads, head_dim), of the dtype of ``k``, any strides.
        v_cache: the same with the lanes of ``v``.
        slots: (batch, time) or (time,), int64: where each token goes; -1 for nowhere. Any
            other slot outside the cache is noted for `check_faults`; nothing is written for it.
        q_weight: where queries and keys are normalised first, as for `norm_rotate_qk`.
        k_weight: the same for the keys; both or none.
        eps: as for `norm_rotate_qk`.
        weight_offset: as for `norm_rotate_qk`.
        pairing: as for `rotate_qk`.
        order: as for `rotate_qk`.
        rotary_offset: as for `rotate_qk`.
        positions: as for `rotate_qk`.
        plane_axes: as for `rotate_qk`.
        out_q: as for `rotate_qk`.
        out_k: where rotated keys go besides the cache, for all tokens; None for nowhere.

    Returns:
        The rotated queries.

    Raises:
        InputError: as for `rotate_qk`, or a cache or slots that do not fit.
    """
    check_no_gradient(q=q, k=k, v=v, cos=cos, sin=sin, k_cache=k_cache, v_cache=v_cache)
    check_no_gradient(q_weight=q_weight, k_weight=k_weight)
    queries, keys = _pair(q, k, order)
    values = heads_of("v", v, order, like=queries)
    if values.heads != keys.heads:
        raise InputError(
            "v",
            found=f"{values.heads} heads",
            expected=f"{keys.heads}, as the keys have",
            fix="pass the values of these keys",
        )
    check_cache("k_cache", k_cache, keys)
    check_cache("v_cache", v_cache, values)
    if k_cache.shape[:2] != v_cache.shape[:2]:
        raise InputError(
            "v_cache",
            found=f"shape {tuple(v_cache.shape)}",
            expected=f"{k_cache.shape[0]} blocks of {k_cache.shape[1]}, as the key cache",
            fix="make both caches of the same blocks",
        )
    check_slots(slots, queries)
    norm = None
    if q_weight is not None or k_weight is not None:
        norm = _norm(queries, keys, q_weight, k_weight, eps, weight_offset)
    read = [cos, sin, positions, slots, q_weight, k_weight]
    check_apart("k_cache", k_cache, [v_cache, q, k, v, *read])
    check_apart("v_cache", v_cache, [q, k, v, *read])
    read += [v, k_cache, v_cache]
    to_q = output("out_q", out_q, queries, order, [k, out_k, *read])
    to_k = None if out_k is None else output("out_k", out_k, keys, order, [q, out_q, *read])
    run(
        queries,
        to_q,
        keys,
        to_k,
        cos,
        sin,
        pairing=pairing,
        rotary_offset=rotary_offset,
        inverse=False,
        positions=positions,
        plane_axes=plane_axes,
        norm=norm,
        cache=(values, k_cache, v_cache, slots),
    )
    return to_q.tensor


def _pair(q: Any, k: Any, order: Order) -> tuple[Heads, Heads]:
    queries = heads_of("q", q, order)
    keys = heads_of("k", k, order, like=queries)
    if keys.lanes != queries.lanes:
        raise InputError(
            "k",
            found=f"{keys.lanes} lanes",
            expected=f"{queries.lanes}, as the queries have",
            fix="rotate tensors of different head sizes one by one, with rotate",
        )
    return queries, keys


def _norm(
    queries: Heads, keys: Heads, q_weight: Any, k_weight: Any, eps: Any, weight_offset: Any
) -> tuple[torch.Tensor, torch.Tensor, float, float]:
    for name, value in (("eps", eps), ("weight_offset", weight_offset)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise InputError(
                name, found=repr(value), expected="a number, 0 or above", fix="use the default"
            )
    return (
        check_weight("q_weight", q_weight, queries),
        check_weight("k_weight", k_weight, keys),
        float(eps),
        float(weight_offset),
    )
