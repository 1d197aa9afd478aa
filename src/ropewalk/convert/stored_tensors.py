"""Tensors where they lie in a file: names, shapes and bytes, without loading them.

Safetensors and GGUF alike are seen as named rows of bytes. That is all that moving rows needs:
a row keeps its bytes whatever its numbers are, quantised or not.
"""

from __future__ import annotations

import math
import mmap
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..models import json_text
from ..models.gguf_header import GGUFHeader

FloatArray = npt.NDArray[np.float64]

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_NUMPY = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
# The limit of the safetensors library itself.
_LARGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a file.

    Attributes:
        name: as the file names it.
        dtype: the file's word for its type, e.g. ``BF16`` or ``Q4_K``.
        shape: rows first, as PyTorch has it.
        start: its first byte in the file.
        size: its bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int

    @property
    def rows(self) -> int:
        """Its rows: those of all experts, where a tensor holds the matrices of several."""
        return math.prod(self.shape[:-1]) if len(self.shape) > 1 else math.prod(self.shape)


class TensorFile:
    """An open file of tensors, mapped into memory. Use as a context manager.

    Attributes:
        path: the file.
        tensors: what it holds, by name, in the order of their bytes.
    """

    def __init__(self, path: Path, tensors: list[StoredTensor], handle: Any) -> None:
        self.path = path
        self.tensors = {t.name: t for t in sorted(tensors, key=lambda t: t.start)}
        self._handle = handle
        size = path.stat().st_size
        self.bytes: npt.NDArray[np.uint8] = (
            np.memmap(path, dtype=np.uint8, mode="r") if size else np.zeros(0, np.uint8)
        )
        at = 0
        for tensor in self.tensors.values():
            if tensor.start < at or tensor.start + tensor.size > size:
                raise damaged(path, f"tensor {tensor.name!r} outside the file or over another one")
            at = tensor.start + tensor.size

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *exception: object) -> None:
        mapping = getattr(self.bytes, "_mmap", None)
        del self.bytes
        if isinstance(mapping, mmap.mmap):
            # Rows that somebody still holds keep the mapping open until they go.
            with suppress(BufferError):
                mapping.close()
        if self._handle is not None:
            self._handle.__exit__(None, None, None)

    def raw(self, tensor: StoredTensor) -> npt.NDArray[np.uint8]:
        """Return the tensor's bytes, (rows, bytes of a row), still on the disk.

        Raises:
            InputError: rows that are no whole bytes.
        """
        rows = tensor.rows
        if not rows or tensor.size % rows:
            raise InputError(
                f"{self.path}: {tensor.name}",
                found=f"{tensor.size} bytes in {rows} rows",
                expected="rows of whole bytes",
                fix="use the model before it was quantised",
            )
        flat = self.bytes[tensor.start : tensor.start + tensor.size]
        return flat.reshape(rows, tensor.size // rows)

    def numbers(self, tensor: StoredTensor, rows: npt.NDArray[np.intp] | slice) -> FloatArray:
        """Return rows of a tensor as float64, dequantised, shape (rows, columns).

        Raises:
            InputError: a type that is not read, or a number that is not finite.
        """
        raw = np.ascontiguousarray(self.raw(tensor)[rows])
        # Damaged weights hold NaN and overflow; they are refused below, without warnings.
        with np.errstate(all="ignore"):
            out = self._widened(tensor, raw)
        if out is None:
            raise InputError(
                f"{self.path}: {tensor.name}",
                found=f"weights of type {tensor.dtype}",
                expected="F64, F32, F16 or BF16",
                fix="use the model before it was quantised",
            )
        if not np.isfinite(out).all():
            raise InputError(
                f"{self.path}: {tensor.name}",
                found="a weight that is no finite number",
                expected="finite weights",
                fix="fetch the file again",
            )
        return out.reshape(len(raw), -1)

    def _widened(self, tensor: StoredTensor, raw: npt.NDArray[np.uint8]) -> FloatArray | None:
        if tensor.dtype == "BF16":
            wide = raw.view("<u2").astype(np.uint32) << 16
            return wide.view(np.float32).astype(np.float64)
        if tensor.dtype in _NUMPY:
            return raw.view(_NUMPY[tensor.dtype]).astype(np.float64)
        return None if self._handle is None else _dequantised(self.path, tensor, raw)


def open_tensors(path: Path, header: GGUFHeader | None = None) -> TensorFile:
    """Open a safetensors or GGUF file; only its header is read.

    Args:
        path: the file.
        header: that of a GGUF file, where it is open already; it is left open.

    Raises:
        InputError: not readable, damaged, or of another kind.
    """
    try:
        if not path.is_file():
            raise damaged(path, "no regular file")  # a pipe would be waited for
        with path.open("rb") as file:
            magic = file.read(4)
        return _open_gguf(path, header) if magic == b"GGUF" else _open_safetensors(path)
    except OSError as error:
        raise InputError(
            str(path),
            found=error.strerror or str(error),
            expected="a file that can be read",
            fix="check the path and its permissions",
        ) from None


def damaged(path: Path, found: str) -> InputError:
    """Return the error for a file that is not what it should be."""
    return InputError(
        str(path),
        found=found,
        expected="a whole safetensors or GGUF file",
        fix="fetch the file again; it is damaged or not complete",
    )


def _open_safetensors(path: Path) -> TensorFile:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 10 or not 2 <= length <= min(size - 8, _LARGEST_HEADER):
            raise damaged(path, f"a header of {length} bytes in {size}")
        text = file.read(length)
    try:
        header = json_text.parse(text)
    except ValueError as error:
        raise damaged(path, f"a header that is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise damaged(path, "a header that is no table of tensors")
    tensors = []
    for name, entry in header.items():
        if name != "__metadata__":
            tensors.append(_safetensor(path, name, entry, 8 + length))
    return TensorFile(path, tensors, None)


def _safetensor(path: Path, name: str, entry: Any, data: int) -> StoredTensor:
    good = isinstance(entry, dict) and isinstance(entry.get("dtype"), str)
    shape, span = (entry.get("shape"), entry.get("data_offsets")) if good else (None, None)
    for numbers in (shape, span):
        if not isinstance(numbers, list) or not all(
            isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**60 for n in numbers
        ):
            raise damaged(path, f"the entry {str(name)[:80]!r} without type, shape and place")
    shape, (start, *end) = cast("list[int]", shape), cast("list[int]", span) or [0]
    bits = _BITS.get(entry["dtype"])
    if bits is None or len(end) != 1 or (end[0] - start) * 8 != bits * math.prod(shape):
        raise damaged(
            path, f"{str(name)[:80]!r}: {entry['dtype'][:20]} {shape[:6]} in bytes {start} to {end}"
        )
    return StoredTensor(name, entry["dtype"], tuple(shape), data + start, end[0] - start)


def _open_gguf(path: Path, known: GGUFHeader | None) -> TensorFile:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    header = GGUFHeader(path) if known is None else known
    tensors = []
    for name, info in header.tensors.items():
        try:
            kind = GGMLQuantizationType(info.kind)
            block, size = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise damaged(path, f"tensor {name[:80]!r} of the unknown type {info.kind}") from None
        if info.shape and info.shape[0] % block:
            raise damaged(path, f"tensor {name[:80]!r} with rows of {info.shape[0]} {kind.name}")
        tensors.append(
            StoredTensor(
                name,
                kind.name,
                info.shape[::-1],
                header.data_start + info.offset,
                math.prod(info.shape) // block * size,
            )
        )
    return TensorFile(path, tensors, header if known is None else nullcontext(known))


def _dequantised(path: Path, tensor: StoredTensor, raw: npt.NDArray[np.uint8]) -> FloatArray:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        out = dequantize(raw, GGMLQuantizationType[tensor.dtype])
    except NotImplementedError:
        raise InputError(
            f"{path}: {tensor.name}",
            found=f"weights of type {tensor.dtype}",
            expected="a type that the gguf package dequantises",
            fix="use another quantisation of the model",
        ) from None
    return cast("FloatArray", np.asarray(out, np.float64))
