"""The GPU kernel in Triton's interpreter, or on a GPU where there is one, and tensors for it."""

from __future__ import annotations

import os
from typing import Any

import torch

from ropewalk.rotation import reference

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"

# Triton reads the variable when a kernel is defined, so it is set for the imports only (the
# first launch brings in the rest of Triton): nothing else in this process is to be interpreted.
_before = os.environ.get("TRITON_INTERPRET")
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
try:
    from ropewalk.rotation import triton_kernel as kernel

    kernel.rotate(*(torch.zeros(1, 1, n, device=DEVICE) for n in (2, 1, 1)), order="time")
finally:
    if _before is None:
        os.environ.pop("TRITON_INTERPRET", None)
    else:
        os.environ["TRITON_INTERPRET"] = _before

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
PAIRINGS = ["half", "adjacent"]
ORDERS = ["time_heads", "heads_time"]
# (head_dim, planes, rotary_offset): all lanes, the leading part, a slice, the tail, one plane.
PARTS = [(10, 5, 0), (10, 3, 0), (10, 3, 2), (10, 3, 4), (6, 1, 4)]
SOME_ROWS = torch.tensor([[4, 0, 6], [1, 1, 5]])


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def unit(dtype: torch.dtype) -> float:
    """Half a unit in the last place of 1."""
    return torch.finfo(dtype).eps / 2


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).to(DEVICE)


def table(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    angles = 3 * random(*shape, dtype=torch.float64, seed=7)
    return angles.cos().to(wide(dtype)), angles.sin().to(wide(dtype))


def heads(order: str, batch: int, time: int, count: int, dim: int, dtype: Any) -> torch.Tensor:
    sizes = (time, count) if order == "time_heads" else (count, time)
    return random(batch, *sizes, dim, dtype=dtype, seed=count)


def narrowed(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round once to ``dtype``, as the device at hand does it."""
    if dtype == torch.bfloat16 and not ON_GPU:
        # Triton's interpreter cuts the last 16 bits off instead of rounding.
        return (x.view(torch.int32) & -65536).view(torch.float32).to(dtype)
    return x.to(dtype)


def expected(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **options: Any) -> torch.Tensor:
    """The reference; lanes that are not rotated keep their bits through float32 and back."""
    return narrowed(reference.rotate(x.to(wide(x.dtype)), cos, sin, **options), x.dtype)


def same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Equal bit for bit, but that any NaN equals any other."""
    return found.dtype == wanted.dtype and torch.equal(
        found.double().nan_to_num(nan=1e300), wanted.double().nan_to_num(nan=1e300)
    )
