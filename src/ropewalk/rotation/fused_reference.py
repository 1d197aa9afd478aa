"""The fused operations, readable: the specification of the kernels that do them in one pass.

One text serves NumPy and PyTorch.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from .reference import Order, rotate


def norm_rotate(
    x: Any,
    weight: Any | None,
    cos: Any,
    sin: Any,
    *,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    pairing: Literal["half", "adjacent"] = "half",
    order: Order = "time_heads",
    rotary_offset: int = 0,
) -> Any:
    """Normalise each head by its root mean square, scale its lanes, rotate, round once.

    Args:
        x: queries or keys, as for `reference.rotate`.
        weight: shape (head_dim,), or None: rotate only.
        cos: as for `reference.rotate`.
        sin: as ``cos``.
        eps: added to the mean square.
        weight_offset: added to the weights; 1 for Gemma.
        pairing: as for `reference.rotate`.
        order: as for `reference.rotate`.
        rotary_offset: as for `reference.rotate`.

    Returns:
        An array like ``x``.

    Source: Zhang and Sennrich 2019, RMSNorm, arXiv 1910.07467, equation 4; per head and before
    the rotation: Qwen3 technical report, arXiv 2505.09388, section 2.
    """
    options: dict[str, Any] = {"pairing": pairing, "order": order, "rotary_offset": rotary_offset}
    if weight is None:
        return rotate(x, cos, sin, **options)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        values, scale = x.to(wide), weight.to(wide) + weight_offset
        mean = (values * values).mean(-1, keepdim=True)
        normal = values / torch.sqrt(mean + eps) * scale
        return rotate(normal, cos, sin, **options).to(x.dtype)
    kind = np.float64 if x.dtype == np.float64 else np.float32
    array = x.astype(kind)
    mean = np.mean(array * array, axis=-1, keepdims=True)
    normal = array / np.sqrt(mean + kind(eps)) * (weight.astype(kind) + kind(weight_offset))
    return rotate(normal, cos, sin, **options).astype(x.dtype)


def write_cache(cache: Any, x: Any, slots: Any, *, order: Order = "time_heads") -> None:
    """Write each token's heads into its slot of a cache.

    Args:
        cache: shape (blocks, block_size, heads, lanes), any strides; changed in place.
        x: shape (…, time, heads, lanes), or (…, heads, time, lanes).
        slots: whole numbers, shape (…, time): ``block * block_size + place``; -1 writes
            nothing.
        order: which axis of ``x`` is time.
    """
    check_slots(slots, x, cache, order=order)
    tokens = x if order == "time_heads" else x.swapaxes(-2, -3)
    heads, lanes = tokens.shape[-2:]
    flat, places = tokens.reshape(-1, heads, lanes), slots.reshape(-1)
    kept = places >= 0
    blocks, within = places[kept] // cache.shape[1], places[kept] % cache.shape[1]
    cache[blocks, within] = flat[kept]


def check_slots(slots: Any, x: Any, cache: Any, *, order: Order) -> None:
    """Refuse slots that are no places of the cache, or not one for each token."""
    time = x.shape[-3 if order == "time_heads" else -2]
    wanted = (*x.shape[:-3], time)
    name = str(getattr(slots, "dtype", type(slots).__name__)).removeprefix("torch.")
    shape = tuple(getattr(slots, "shape", ()))
    fits = shape == wanted or (shape == (time,) and all(size == 1 for size in wanted[:-1]))
    if name != "int64" or not fits:
        raise InputError(
            "slots",
            found=f"shape {shape}, {name}",
            expected=f"shape {tuple(wanted)}, int64",
            fix="give one slot for each token, -1 for padding",
        )
    if 0 in shape:
        return
    low, high = int(slots.min()), int(slots.max())
    places = int(cache.shape[0] * cache.shape[1])
    if low < -1 or high >= places:
        raise InputError(
            "slots",
            found=f"slot {low if low < -1 else high}",
            expected=f"-1 or places of the cache, 0 to {places - 1}",
            fix="a slot is block * block_size + place",
        )
