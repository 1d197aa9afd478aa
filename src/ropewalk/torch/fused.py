"""Operations that touch each byte once: norm and rotation, rotation and cache.

Each has a readable form in `rotation.fused_reference`, which is the specification and runs
where the compiled kernels can't: on other devices, and where gradients are recorded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, MissingExtraError
from ..rotation import fused_reference, native
from ..rotation.reference import Order
from .arguments import Call, check_call, ready_call
from .functional import Pairing
from .memory import empty_like
from .operators import readable_rows


def norm_rotate_qk(
    q: Tensor,
    k: Tensor,
    cos: Any,
    sin: Any,
    q_weight: Tensor,
    k_weight: Tensor,
    *,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    positions: Any = None,
    plane_axes: Any = None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Normalise each head of queries and keys, then rotate them, in one pass.

    A head becomes ``x / sqrt(mean(x^2) + eps) * (weight_offset + weight)`` and is rotated, all
    in float32 (float64 for float64 input), and rounded once. Models that round between norm
    and rotation, as transformers does in bfloat16, differ from this by that rounding.

    Args:
        q: queries, as for `rotate_qk`.
        k: keys.
        cos: as for `rotate_qk`.
        sin: as ``cos``.
        q_weight: shape (head_dim,).
        k_weight: shape (head_dim,).
        eps: added to the mean square.
        weight_offset: 0 for most models (Qwen3, OLMo), 1 for Gemma, which stores weights
            around 0.
        pairing: as for `rotate_qk`.
        order: as for `rotate_qk`.
        rotary_offset: as for `rotate_qk`.
        positions: as for `rotate_qk`.
        plane_axes: as for `rotate_qk`.
        out: a pair to write into, which may be (q, k).

    Returns:
        Two tensors like ``q`` and ``k``.

    Raises:
        InputError: as `rotate_qk`, and weights of another shape.

    Source: Zhang and Sennrich 2019, RMSNorm, arXiv 1910.07467, equation 4.
    """
    call = ready_call((q, k), cos, sin, pairing, order, rotary_offset, False, positions, plane_axes)
    weights = tuple(
        _ready_weight(name, w, q) for name, w in (("q_weight", q_weight), ("k_weight", k_weight))
    )
    if out is not None:
        check_call((q, k), out)
    target = (empty_like(q), empty_like(k)) if out is None else out
    if not _recorded(q, k, *weights, call.cos, call.sin) and (triton := _triton(q)) is not None:
        triton.norm_rotate_qk(
            q,
            k,
            cos,
            sin,
            *weights,
            eps=eps,
            weight_offset=weight_offset,
            positions=positions,
            plane_axes=plane_axes,
            out_q=target[0],
            out_k=target[1],
            **_options(call),
        )
        return target[0], target[1]
    if _recorded(q, k, *weights, call.cos, call.sin) or not _fused(
        call, (q, k, None), (*target, None), weights, eps, weight_offset, None
    ):
        turned = tuple(
            fused_reference.norm_rotate(
                x, w, *readable_rows(call), eps=eps, weight_offset=weight_offset, **_options(call)
            )
            for x, w in zip((q, k), weights, strict=True)
        )
        if out is None:
            return turned[0], turned[1]
        for to, value in zip(out, turned, strict=True):
            to.copy_(value)
    return target[0], target[1]


def rotate_into_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Any,
    sin: Any,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    *,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    pairing: Pairing = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
    positions: Any = None,
    plane_axes: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Rotate queries, and keys on their way into a cache, with the values, in one pass.

    Args:
        q: queries, as for `rotate_qk`.
        k: keys; not changed.
        v: values, with as many heads as the keys, in the same order of axes; their heads may
            have another width.
        cos: as for `rotate_qk`.
        sin: as ``cos``.
        k_cache: shape (blocks, block_size, kv_heads, head_dim), any strides: a paged cache, or
            a flat one, where a block is one sequence and block_size its capacity.
        v_cache: shape (blocks, block_size, kv_heads, value_dim).
        slots: int64, shape (batch, time), or (time,) for batch 1: where each token goes,
            ``block * block_size + place``. -1 writes nothing (padding).
        q_weight: shape (head_dim,), where queries are normalised first; see `norm_rotate_qk`.
        k_weight: shape (head_dim,), where keys are.
        eps: as for `norm_rotate_qk`.
        weight_offset: as for `norm_rotate_qk`.
        pairing: as for `rotate_qk`.
        order: as for `rotate_qk`.
        rotary_offset: as for `rotate_qk`.
        positions: as for `rotate_qk`.
        plane_axes: as for `rotate_qk`.
        out: where the rotated queries go; may be ``q``. By default a fresh tensor.

    Returns:
        The rotated queries. Two tokens of one call must not share a slot: which of them stays
        would be chance.

    Raises:
        InputError: as `rotate_qk`; a slot beyond the cache; caches of another shape or dtype.
            The caches are then unchanged.
    """
    call = ready_call((q, k), cos, sin, pairing, order, rotary_offset, False, positions, plane_axes)
    _check_caches(call, v, k_cache, v_cache, slots)
    weights = tuple(
        None if w is None else _ready_weight(name, w, q)
        for name, w in (("q_weight", q_weight), ("k_weight", k_weight))
    )
    if out is not None:
        check_call((q,), (out,))
    target = empty_like(q) if out is None else out
    # One weight of two is for the readable path.
    paired = (q_weight is None) == (k_weight is None)
    if paired and not _recorded(q, k, v) and (triton := _triton(q)) is not None:
        triton.rotate_into_cache(
            q,
            k,
            v,
            cos,
            sin,
            k_cache,
            v_cache,
            slots,
            q_weight=weights[0],
            k_weight=weights[1],
            eps=eps,
            weight_offset=weight_offset,
            positions=positions,
            plane_axes=plane_axes,
            out_q=target,
            **_options(call),
        )
        return target
    if not _recorded(q, k, v, *(w for w in weights if w is not None)) and _fused(
        call,
        (q, k, v),
        (target, k_cache, v_cache),
        weights,
        eps,
        weight_offset,
        slots,
    ):
        return target
    rows = readable_rows(call)
    turned = [
        fused_reference.norm_rotate(
            x, w, *rows, eps=eps, weight_offset=weight_offset, **_options(call)
        )
        for x, w in zip((q, k), weights, strict=True)
    ]
    fused_reference.write_cache(k_cache, turned[1], slots, order=order)
    fused_reference.write_cache(v_cache, v, slots, order=order)
    return turned[0] if out is None else out.copy_(turned[0])


def _triton(q: Tensor) -> Any:
    """Return the kernels for this tensor's GPU, or None."""
    if q.device.type != "cuda":
        return None
    try:
        from ..rotation import triton_kernel
    except MissingExtraError:
        return None
    return triton_kernel


def _options(call: Call) -> dict[str, Any]:
    return {
        "pairing": call.pairing,
        "order": call.order,
        "rotary_offset": call.rotary_offset,
    }


def _recorded(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _ready_weight(name: str, weight: Any, x: Tensor) -> Tensor:
    if not isinstance(weight, Tensor) or tuple(weight.shape) != (x.shape[-1],):
        found = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise InputError(
            name,
            found=f"{found}",
            expected=f"a tensor of shape ({x.shape[-1]},), one weight for each lane of a head",
            fix="norms over all heads together (OLMo 2) come before the heads are split",
        )
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return weight.to(device=x.device, dtype=wide).contiguous()


def _check_caches(call: Call, v: Any, k_cache: Any, v_cache: Any, slots: Any) -> None:
    q, k = call.xs
    if call.order == "time":
        raise InputError(
            "order",
            found="'time'",
            expected="'time_heads' or 'heads_time'",
            fix="a cache has heads: give q, k and v an axis of heads",
        )
    axis = {"time_heads": -2, "heads_time": -3}[call.order]
    for name, x, cache in (("k_cache", k, k_cache), ("v_cache", v, v_cache)):
        if not isinstance(cache, Tensor) or not isinstance(x, Tensor):
            raise InputError(
                name,
                found=f"{type(cache).__name__} for {type(x).__name__}",
                expected="tensors",
                fix="pass k, v and their caches as tensors",
            )
        wanted = (k.shape[axis], x.shape[-1])
        if cache.ndim != 4 or tuple(cache.shape[2:]) != wanted or cache.dtype != q.dtype:
            raise InputError(
                name,
                found=f"shape {tuple(cache.shape)}, {cache.dtype}",
                expected=f"(blocks, block_size, {wanted[0]}, {wanted[1]}), {q.dtype}",
                fix="permute the cache to this order; any strides will do",
            )
    if v.ndim != k.ndim or v.shape[:-1] != k.shape[:-1] or v.dtype != k.dtype:
        raise InputError(
            "v",
            found=f"shape {tuple(v.shape)}, {v.dtype}",
            expected=f"the axes of k but for the width of a head, {tuple(k.shape)}, {k.dtype}",
            fix="pass the values of the same tokens",
        )
    if k_cache.shape[:2] != v_cache.shape[:2]:
        raise InputError(
            "v_cache",
            found=f"{tuple(v_cache.shape[:2])} blocks and places",
            expected=f"those of k_cache, {tuple(k_cache.shape[:2])}",
            fix="make both caches alike",
        )
    # On a GPU the kernel looks at the slots itself: asking here would stop the stream.
    if q.device.type != "cuda":
        fused_reference.check_slots(slots, q, k_cache, order=call.order)


def _fused(
    call: Call,
    xs: tuple[Tensor | None, ...],
    outs: tuple[Tensor | None, ...],
    weights: tuple[Tensor | None, ...],
    eps: float,
    weight_offset: float,
    slots: Tensor | None,
) -> bool:
    """Run the compiled kernel; False where it can't."""
    module = native.attach_torch()
    if module is None or call.cos.device.type != "cpu":
        return False
    axes = None
    if call.plane_axes is not None:
        axes = torch.tensor(call.plane_axes, dtype=torch.int32)
    outcome = module.fused(
        *xs,
        *outs,
        call.cos,
        call.sin,
        call.pairing,
        call.order,
        call.rotary_offset,
        call.positions,
        axes,
        *weights,
        eps,
        weight_offset,
        slots,
        0,
    )
    return bool(outcome == native.Outcome.DONE)
