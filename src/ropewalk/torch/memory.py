"""Memory for fresh results: large ones on the CPU are recycled.

PyTorch's CPU allocator gives large memory back to the system when a tensor is dropped, and the
next tensor costs a page fault for each 4 KB: several times what the rotation itself costs. So
memory of large results is kept when they are dropped, up to a sixteenth of the machine's, or
``ROPEWALK_KEEP_MB``; 0 keeps nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rotation import native

_LARGE = 8 * 1024 * 1024
"""Bytes; below this, memory does not go back to the system each time."""


def empty_like(x: Tensor) -> Tensor:
    """Return a tensor like ``x``, of any contents; as `torch.empty_like`."""
    if x.nbytes < _LARGE or not x.is_cpu or type(x) is not Tensor:
        return torch.empty_like(x)
    module = native.attach_torch()
    element = native.ELEMENTS.get(str(x.dtype)[6:], -1)
    if module is None or element < 0:
        return torch.empty_like(x)
    # The strides that torch.empty_like would choose.
    form = torch.empty_like(x, device="meta")
    made: Tensor | None = module.recycled(tuple(form.shape), form.stride(), element)
    return torch.empty_like(x) if made is None else made


def kept_bytes() -> int:
    """Return how much memory is kept for the next results."""
    module = native.kernels()
    return 0 if module is None else int(module.recycled_bytes())


def release_memory() -> None:
    """Give the memory that is kept for the next results back to the system."""
    module = native.kernels()
    if module is not None:
        module.release_recycled()
