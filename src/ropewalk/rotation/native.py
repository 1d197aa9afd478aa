"""The compiled kernels: whether they are there, and how NumPy arrays are handed to them.

They do what `reference.rotate` does, with the same operations in the same order, so results
are equal bit for bit. Which instruction set is used is decided when the module is loaded:
AVX-512, AVX2, SSE2, NEON or plain scalars.

Environment:
    ROPEWALK_NATIVE: ``none`` for the readable path; a file, for a module built elsewhere.
    ROPEWALK_ISA: an instruction set instead of the best one.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError

ELEMENTS = {"float32": 0, "float64": 1, "bfloat16": 2, "float16": 3, "int32": 4, "int64": 5}
"""How the kernels number the dtypes."""


class Outcome(IntEnum):
    """What a kernel answers. Unless it is ``DONE``, nothing was written."""

    DONE = 0
    UNSUPPORTED = 1
    OUTSIDE_TABLE = 2
    OUTSIDE_CACHE = 3


@functools.cache
def kernels() -> ModuleType | None:
    """Return the compiled module, or None where there is none; says so once."""
    wanted = os.environ.get("ROPEWALK_NATIVE", "")
    if wanted == "none":
        return None
    module = _load_file(wanted) if wanted else _load_installed()
    if module is None:
        return None
    chosen = os.environ.get("ROPEWALK_ISA")
    if chosen and not module.use_instruction_set(chosen):
        raise InputError(
            "ROPEWALK_ISA",
            found=repr(chosen),
            expected="one of " + ", ".join(module.instruction_sets()),
            fix="unset it to use the best one of this processor",
        )
    return module


def _load_installed() -> ModuleType | None:
    try:
        return importlib.import_module("ropewalk._native")
    except ImportError as error:
        warnings.warn(
            f"ropewalk runs without its compiled kernels ({error}): results are the same, "
            "rotation is slower; reinstall where a C++ compiler is at hand",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


def _load_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("ropewalk._native", path)
    try:
        if spec is None or spec.loader is None:
            raise ImportError("not a compiled module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise InputError(
            "ROPEWALK_NATIVE",
            found=f"{path!r} ({error})",
            expected="a compiled module of this version, or none",
            fix="unset it to use the one that was installed",
        ) from error
    sys.modules["ropewalk._native"] = module
    return module


def instruction_set() -> str | None:
    """Return the name of the instruction set in use, or None on the readable path."""
    module = kernels()
    return None if module is None else str(module.instruction_set())


def thread_count() -> int:
    """Return how many threads work on NumPy arrays: OMP_NUM_THREADS, else all processors."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def array_view(array: Any) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None:
    """Return an array as the kernels take it, or None where they can't.

    The caller keeps the array alive for as long as the view is used.
    """
    element = ELEMENTS.get(array.dtype.name)
    size = array.dtype.itemsize
    if element is None or not array.dtype.isnative or not array.flags.aligned:
        return None
    if any(step % size for step in array.strides):
        return None
    pointer = array.__array_interface__["data"][0]
    return pointer, element, array.shape, tuple(step // size for step in array.strides)


def rotate_arrays(
    x: npt.NDArray[Any],
    out: npt.NDArray[Any],
    cos: npt.NDArray[Any],
    sin: npt.NDArray[Any],
    positions: npt.NDArray[Any] | int | None,
    plane_axes: npt.NDArray[np.int32] | None,
    *,
    pairing: str,
    order: str,
    rotary_offset: int,
    inverse: bool,
) -> Outcome:
    """Rotate NumPy arrays with the compiled kernels, where they can."""
    module = kernels()
    if module is None:
        return Outcome.UNSUPPORTED
    views: list[Any] = []
    for array in (x, out, cos, sin, positions, plane_axes):
        if array is None or isinstance(array, int):
            views.append(array)
            continue
        view = array_view(array)
        if view is None:
            return Outcome.UNSUPPORTED
        views.append(view)
    from_x, to, c, s, rows, axes = views
    return Outcome(
        module.rotate(
            from_x,
            None,
            to,
            None,
            c,
            s,
            pairing,
            order,
            rotary_offset,
            inverse,
            rows,
            axes,
            thread_count(),
        )
    )


_torch_attached: bool | None = None
_attaching = threading.Lock()


def attach_torch() -> ModuleType | None:
    """Make PyTorch's tensors readable to the kernels; return them, or None.

    The kernels then work on PyTorch's own threads. PyTorch before 2.10 has no C functions for
    reading tensors: there, the answer is None, and the operators hand over pointers.
    """
    global _torch_attached
    module = kernels()
    if module is None:
        return None
    with _attaching:
        if _torch_attached is None:
            _torch_attached = _attach(module)
    return module if _torch_attached else None


def tensor_viewer() -> Callable[[Any], Any]:
    """Return what brings a plain CPU tensor into the form that the kernels take."""
    return _itself if attach_torch() is not None else tensor_view


def _itself(tensor: Any) -> Any:
    return tensor.detach()


def tensor_view(tensor: Any) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Return a tensor as pointer, dtype, shape and strides; -1 for what the kernels lack.

    The caller keeps the tensor alive for as long as the view is used.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    element = -1 if tensor.is_neg() else ELEMENTS.get(name, -1)
    return tensor.data_ptr(), element, tuple(tensor.shape), tuple(tensor.stride())


def _attach(module: ModuleType) -> bool:
    import torch

    # A private function that a later PyTorch lacks would leave a kind of tracing unseen: then
    # all calls take the registered operator, which is slower and always right.
    try:
        functorch = torch._C._functorch.peek_interpreter_stack
        tracing = torch._C._get_tracing_state
        modes = torch._C._len_torch_dispatch_stack
        capsule = torch.Tensor.__dlpack_c_exchange_api__
    except AttributeError:
        return False
    attached = module.attach_torch(
        torch.Tensor,
        capsule,
        torch.is_grad_enabled,
        (functorch, tracing, modes),
        torch.get_num_threads,
    )
    for name in ("libgomp.so.1", "libomp.so", "libiomp5.so"):
        library = os.path.join(os.path.dirname(torch.__file__), "lib", name)  # noqa: PTH118, PTH120
        if module.use_openmp(library):
            break
    return bool(attached)
