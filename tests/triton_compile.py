"""Compiles the GPU kernel for a Hopper chip where there is none, and prints what came out.

Run by test_triton.py in a process of its own, without Triton's interpreter. The entry points
are called as always; only the driver is replaced by one that names the chip, and the launch by
a compilation.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import torch

import ropewalk.torch  # noqa: F401

CAME_WITH_ROPEWALK = "triton" in sys.modules

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402

from ropewalk.rotation import triton_kernel, triton_launch  # noqa: E402


class Hopper:
    """What the compiler asks of a driver."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


compiled: list[Any] = []


def compile_only(*args: Any, **options: Any) -> None:
    rotate_kernel = triton_launch.rotate_kernel
    kernel = type(rotate_kernel).run(rotate_kernel, *args, **{**options, "warmup": True})
    if not any(kernel is k for k in compiled):
        compiled.append(kernel)


def facts(call: Any) -> list[dict[str, Any]]:
    compiled.clear()
    call()
    found = []
    for kernel in compiled:
        code = kernel.asm["ptx"]
        memory = re.findall(r"\b((?:ld|st)\.global[\w.:]*)", code)
        found.append(
            {
                "wide": sum(".v4.b32" in m or ".v2.b64" in m for m in memory),
                "narrow": sum("b16" in m for m in memory),
                "fused": len(re.findall(r"\bfma\.", code)),
                "shared": len(re.findall(r"\b(?:ld|st)\.shared|bar\.sync", code)),
                "local": len(re.findall(r"\b(?:ld|st)\.local|\.local \.", code)),
                "warps": kernel.metadata.num_warps,
            }
        )
    return found


def rotated(
    dtype: torch.dtype, times: list[int], q_heads: int = 32, dim: int = 128, **options: Any
):
    # The memory is never touched: one row, repeated, stands for a long text.
    for time in times:
        order = options.get("order", "time_heads")
        sizes = (time, q_heads) if order == "time_heads" else (q_heads, time)
        k_sizes = (time, 8) if order == "time_heads" else (8, time)
        q = torch.empty(1, *sizes, dim, dtype=dtype)
        k = torch.empty(1, *k_sizes, dim, dtype=dtype)
        planes = options.get("planes", dim // 2)
        rows = time if options.get("positions") is None else 8
        table = torch.zeros(rows, planes, dtype=torch.float32)
        positions = options.get("positions")
        if positions is not None:
            positions = torch.zeros(*positions, time, dtype=torch.int64)
        triton_kernel.rotate_qk(
            q,
            k,
            table,
            table,
            pairing=options.get("pairing", "half"),
            order=order,
            positions=positions,
            plane_axes=options.get("plane_axes"),
            out_q=q if options.get("in_place", True) else None,
            out_k=k if options.get("in_place", True) else None,
        )


def normed() -> None:
    q, k = (torch.empty(1, 16, n, 128, dtype=torch.bfloat16) for n in (32, 8))
    weight, table = torch.ones(128), torch.zeros(16, 64)
    triton_kernel.norm_rotate_qk(q, k, table, table, weight, weight)


def cached() -> None:
    q, k, v = (torch.empty(1, 16, n, 128, dtype=torch.bfloat16) for n in (32, 8, 8))
    caches = [torch.empty(4, 16, 8, 128, dtype=torch.bfloat16) for _ in range(2)]
    table = torch.zeros(16, 64)
    slots = torch.arange(16)[None]
    triton_kernel.rotate_into_cache(q, k, v, table, table, *caches, slots)


def main() -> None:
    triton.runtime.driver.set_active(Hopper())
    triton_launch.rotate_kernel.run = compile_only
    triton_launch.INTERPRETED = True  # let tensors of the CPU through
    bf16, f32 = torch.bfloat16, torch.float32
    long = [1000, 1024, 4096, 4097, 5003]
    every_other = [p % 3 for p in range(64)]
    cases = {
        "half": lambda: rotated(bf16, long),
        "heads_time": lambda: rotated(bf16, long, order="heads_time"),
        "float32": lambda: rotated(f32, [4096]),
        "adjacent": lambda: rotated(bf16, [4096], pairing="adjacent"),
        "fresh": lambda: rotated(bf16, [4096], in_place=False),
        "partial": lambda: rotated(bf16, [4096], planes=48, in_place=False),
        "ids": lambda: rotated(bf16, [1], positions=(1,)),
        "axes": lambda: rotated(bf16, [4096], positions=(3, 1), plane_axes=every_other),
        "norm": normed,
        "cache": cached,
    }
    found = {label: facts(call) for label, call in cases.items()}
    print(json.dumps({"triton came with ropewalk": CAME_WITH_ROPEWALK, "cases": found}))


if __name__ == "__main__":
    main()
