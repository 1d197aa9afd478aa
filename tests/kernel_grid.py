"""What the tests of the kernels share: the grid, numbers, and equality of bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
TORCH_DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
PAIRINGS = ["half", "adjacent"]
# (head_dim, planes, rotary_offset): below, at and beside the widths of vectors; tails; slices.
PARTS = [
    (2, 1, 0),
    (6, 3, 0),
    (10, 2, 3),
    (32, 16, 0),
    (34, 17, 0),
    (70, 30, 7),
    (80, 40, 0),
    (128, 64, 0),
    (192, 32, 128),
    (256, 32, 0),
]


def same_bits(a, b) -> bool:
    """Equal bits; a NaN equals any NaN."""
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        a, b = (t.detach().contiguous() for t in (a, b))
        whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.dtype.itemsize]
        nan = a.isnan() & b.isnan()
        return bool(((a.view(whole) == b.view(whole)) | nan).all())
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    a, b = (np.ascontiguousarray(t) for t in (a, b))
    whole = f"u{a.dtype.itemsize}"
    nan = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return bool(((a.view(whole) == b.view(whole)) | nan).all())


def make(shape, dtype, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) * 3
    if isinstance(dtype, torch.dtype):
        return torch.from_numpy(values).to(dtype)
    return values.astype(dtype)


def tables(shape, dtype, seed=1):
    """Cos and sin that are no cos and sin: a kernel must not lean on their being so."""
    wide = dtype in (np.float64, torch.float64)
    rng = np.random.default_rng(seed)
    out = [rng.standard_normal(shape).astype(np.float64 if wide else np.float32) for _ in "cs"]
    return [torch.from_numpy(t) for t in out] if isinstance(dtype, torch.dtype) else out
