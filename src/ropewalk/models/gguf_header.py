"""The header of a GGUF file: its metadata and where its tensors lie, without their data.

The layout is that of the GGUF specification, versions 2 and 3, little-endian. Every length
is checked against the size of the file before anything is read, so that a damaged or
hostile file costs no more than its own size.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import InputError

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_FLOAT_TENSORS = {0: "<f4", 1: "<f2", 28: "<f8"}
_VERSIONS = (2, 3)
# The smallest entries: a key of one byte with a one-byte value; a tensor without a name.
_LEAST_PAIR, _LEAST_TENSOR = 8 + 1 + 4 + 1, 8 + 4 + 4 + 8
_MOST_DIMENSIONS = 4
# A sparse file can be of any size and cost nothing on the disk, so the size of the file is no
# bound of the work. Large vocabularies have 2^18 texts with 2^19 merges, in 10 MB.
_LARGEST_HEADER, _LARGEST_TEXT = 2**28, 2**24
_MOST_PAIRS, _MOST_TENSORS, _MOST_TEXTS, _MOST_NUMBERS = 2**16, 2**15, 2**20, 2**16


@dataclass(frozen=True)
class LeftOut:
    """A long array of which only the length was read: texts, or more numbers than layers."""

    count: int


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies: its shape, type number, and offset into the data."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class Header(Protocol):
    """Metadata of a GGUF file, from the file or from a listing of it."""

    path: Path
    values: dict[str, Any]

    def floats(self, name: str, most: int = 65536) -> npt.NDArray[np.float64] | None:
        """Return a small one-dimensional tensor of floats, or None where there is none."""


class GGUFHeader:
    """An open GGUF file of which only the header was read. Use as a context manager.

    Attributes:
        values: the metadata by key. Arrays of texts and very long ones are
            `LeftOut`.
        tensors: the tensors by name.
        kinds: the type number of every value.
        pair_spans: where each key with its value stands, (start, end) in bytes.
        tensors_span: where the list of tensors stands.
        alignment: of the data.
        data_start: where the tensors' data begin, bytes from the start of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.kinds: dict[str, int] = {}
        self.pair_spans: dict[str, tuple[int, int]] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._at = 0
        self._texts = 0
        if path.stat().st_size < 24:
            raise self._damaged("a file shorter than a GGUF header")
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._size = len(self._bytes)
        try:
            self._read()
        except BaseException:
            self._bytes.close()
            raise

    def __enter__(self) -> GGUFHeader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bytes.close()

    def floats(self, name: str, most: int = 65536) -> npt.NDArray[np.float64] | None:
        """Return a small one-dimensional tensor of floats, or None where there is none.

        Raises:
            InputError: the tensor is not one, or lies outside the file.
        """
        info = self.tensors.get(name)
        if info is None:
            return None
        if info.kind not in _FLOAT_TENSORS or len(info.shape) != 1 or info.shape[0] > most:
            raise InputError(
                f"{self.path}: {name}",
                found=f"type {info.kind}, shape {info.shape}",
                expected="one row of float16, float32 or float64 values",
                fix="convert the model again",
            )
        dtype = np.dtype(_FLOAT_TENSORS[info.kind])
        start, count = self.data_start + info.offset, info.shape[0]
        if start + count * dtype.itemsize > self._size:
            raise self._damaged(f"a file that ends within tensor {name}")
        return np.frombuffer(self._bytes[start : start + count * dtype.itemsize], dtype).astype(
            np.float64
        )

    def _read(self) -> None:
        if self._bytes[:4] != b"GGUF":
            raise InputError(
                str(self.path),
                found=f"a file that begins with {self._bytes[:4]!r}",
                expected="b'GGUF'",
                fix="give a GGUF file",
            )
        self._at = 4
        version = self._scalar("<I")
        if version not in _VERSIONS:
            big_endian = version.to_bytes(4, "little") in (b"\0\0\0\2", b"\0\0\0\3")
            raise InputError(
                f"{self.path}: version",
                found="a big-endian file" if big_endian else str(version),
                expected="version 2 or 3, little-endian",
                fix="convert the model again with a present llama.cpp",
            )
        tensors, pairs = self._scalar("<Q"), self._scalar("<Q")
        left = self._size - self._at
        if pairs > min(left // _LEAST_PAIR, _MOST_PAIRS) or tensors > min(
            left // _LEAST_TENSOR, _MOST_TENSORS
        ):
            raise self._damaged(f"{pairs} values and {tensors} tensors in {self._size} bytes")
        for _ in range(pairs):
            start = self._at
            key = self._string()
            if not key:
                raise self._damaged("a value without a name")
            if key in self.values:
                raise self._damaged(f"the key {key!r} twice")
            self.kinds[key] = self._scalar("<I")
            self.values[key] = self._value(self.kinds[key], key)
            self.pair_spans[key] = (start, self._at)
        start = self._at
        for _ in range(tensors):
            self._tensor()
        self.tensors_span = (start, self._at)
        alignment = self.values.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment > 2**20:
            raise self._damaged(f"general.alignment {alignment!r}")
        self.alignment = alignment
        self.data_start = -(-self._at // alignment) * alignment

    def raw(self, start: int, end: int) -> bytes:
        """Return bytes of the header as they stand."""
        return self._bytes[start:end]

    def _tensor(self) -> None:
        name = self._string()
        if name in self.tensors:
            raise self._damaged(f"the tensor {name!r} twice")
        dimensions = self._scalar("<I")
        if dimensions > _MOST_DIMENSIONS:
            raise self._damaged(f"tensor {name!r} of {dimensions} dimensions")
        shape = tuple(self._scalar("<Q") for _ in range(dimensions))
        self.tensors[name] = TensorInfo(shape, self._scalar("<I"), self._scalar("<Q"))

    def _value(self, kind: int, key: str) -> Any:
        if kind == _FLOAT32:
            # The shortest decimal that means this float32 is what a converter started from:
            # 0.0707, not 0.07069999724626541.
            return float(str(np.float32(self._scalar("<f"))))
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise self._damaged(f"{key!r} of the unknown type {kind}")
        item, count = self._scalar("<I"), self._scalar("<Q")
        if item in _SCALARS:
            size = struct.calcsize(_SCALARS[item])
            if count > _MOST_NUMBERS:
                self._skip(count * size)
                return LeftOut(count)
            raw = self._take(count * size)
            return np.frombuffer(raw, np.dtype(_SCALARS[item])).tolist()
        if item != _STRING:
            raise self._damaged(f"{key!r}, an array of type {item}")
        self._texts += count
        if count > (self._size - self._at) // 8 or self._texts > _MOST_TEXTS:
            raise self._damaged(f"{key!r} with {count} texts")
        at, last, length_at = self._at, self._size - 8, struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at > last:
                break
            at += 8 + length_at(self._bytes, at)[0]
        else:
            self._skip(at - self._at)
            return LeftOut(count)
        raise self._damaged("a file that ends within its header")

    def _scalar(self, layout: str) -> Any:
        raw = self._take(struct.calcsize(layout))
        return struct.unpack(layout, raw)[0]

    def _string(self) -> str:
        length = self._scalar("<Q")
        if _LARGEST_TEXT < length <= self._size - self._at:
            raise self._damaged(f"a text of {length} bytes in the header")
        return self._take(length).decode("utf-8", errors="replace")

    def _take(self, count: int) -> bytes:
        start = self._at
        self._skip(count)
        return self._bytes[start : self._at]

    def _skip(self, count: int) -> None:
        if count > self._size - self._at:
            raise self._damaged("a file that ends within its header")
        self._at += count
        if self._at > _LARGEST_HEADER:
            raise self._damaged(f"a header of more than {_LARGEST_HEADER} bytes")

    def _damaged(self, found: str) -> InputError:
        return InputError(
            str(self.path),
            found=found,
            expected="a whole GGUF file",
            fix="fetch the file again; it is damaged or not complete",
        )
