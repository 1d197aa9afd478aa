"""Whether two tensors on a device meet in memory, without reading it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch


def same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two tensors are the same elements in the same order."""
    return a is b or (a.data_ptr() == b.data_ptr() and a.stride() == b.stride())


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether any element of one is an element of the other."""
    if a.device != b.device or not a.numel() or not b.numel():
        return False
    if a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    sides = [(tuple(t.shape), tuple(t.stride()), t.element_size()) for t in (a, b)]
    return _spans_meet(b.data_ptr() - a.data_ptr(), *sides)


class _Span:
    """An array's place in memory, for NumPy's exact test; nothing is read there."""

    def __init__(self, start: int, side: tuple[tuple[int, ...], tuple[int, ...], int]) -> None:
        shape, steps, size = side
        self.__array_interface__ = {
            "data": (start, False),
            "shape": shape,
            "strides": tuple(step * size for step in steps),
            "typestr": f"|V{size}",
            "version": 3,
        }


@functools.lru_cache(maxsize=256)
def _spans_meet(apart: int, a: Any, b: Any) -> bool:
    # Views of one storage, such as the parts of a fused projection, meet in the same few
    # ways over and over.
    start = 2**60
    return bool(np.shares_memory(np.asarray(_Span(start, a)), np.asarray(_Span(start + apart, b))))
