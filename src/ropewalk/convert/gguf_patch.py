"""Patching the metadata of a GGUF file into a copy, tensors untouched.

The header is rewritten value by value: what is not changed is copied as bytes, so that arrays
and strings stay as they are. Tensor offsets count from the aligned end of the header, so the
list of tensors is copied too, and the data follow byte for byte after the padding.
"""

from __future__ import annotations

import math
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..models.gguf_header import GGUFHeader
from .new_file import new_file

_UINT32, _FLOAT32, _BOOL, _STRING = 4, 6, 7, 8
_CHUNK = 16 * 2**20
_PACKED = {_UINT32: "<I", 5: "<i", _FLOAT32: "<f", 10: "<Q", 11: "<q", 12: "<d"}


def patched_copy(source: Path, target: Path, changes: Mapping[str, Any]) -> None:
    """Copy a GGUF file with some keys of its architecture changed, added or removed.

    The copy is made beside the target under another name and renamed when it is whole.

    Args:
        source: the file.
        target: the new file; it must not exist.
        changes: key without the architecture's prefix to its value, None to remove it.

    Raises:
        InputError: the target exists, the source is damaged, or a value fits no type.
    """
    with GGUFHeader(source) as header:
        architecture = str(header.values.get("general.architecture"))
        head, alignment = _head(header, {f"{architecture}.{k}": v for k, v in changes.items()})
        data = header.data_start
    with source.open("rb") as old, new_file(target) as new:
        new.write(head)
        new.write(b"\0" * (-len(head) % alignment))
        old.seek(data)
        shutil.copyfileobj(old, new, _CHUNK)


def _head(header: GGUFHeader, changes: Mapping[str, Any]) -> tuple[bytes, int]:
    """Return the new header without its padding, and the alignment of the data."""
    pairs = []
    waiting = dict(changes)
    for key, (start, end) in header.pair_spans.items():
        if key not in waiting:
            pairs.append(header.raw(start, end))
            continue
        value = waiting.pop(key)
        if value is not None:
            pairs.append(_pair(key, value, _kind_of(header, key, value)))
    for key, value in waiting.items():
        if value is not None:
            pairs.append(_pair(key, value, _own_kind(key, value)))
    first, last = header.tensors_span
    fixed = header.raw(0, 8) + struct.pack("<QQ", len(header.tensors), len(pairs))
    return fixed + b"".join(pairs) + header.raw(first, last), header.alignment


def _kind_of(header: GGUFHeader, key: str, value: Any) -> int:
    """Return the type that the file has for a key, where the value fits it."""
    kind = header.kinds[key]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind in (4, 5, 10, 11) and whole:
        return kind
    if kind in (_FLOAT32, 12) and isinstance(value, float):
        return kind
    return _own_kind(key, value)


def _own_kind(key: str, value: Any) -> int:
    kinds = {bool: _BOOL, int: _UINT32, float: _FLOAT32, str: _STRING}
    kind = kinds.get(type(value))
    if kind is None:
        raise InputError(
            f"gguf: {key}",
            found=repr(value)[:60],
            expected="a number, a text or a truth value",
            fix="lists describe layers, which a patch leaves as they are",
        )
    return kind


def _pair(key: str, value: Any, kind: int) -> bytes:
    name = key.encode()
    out = struct.pack("<Q", len(name)) + name + struct.pack("<I", kind)
    if kind == _STRING:
        text = str(value).encode()
        return out + struct.pack("<Q", len(text)) + text
    if kind == _BOOL:
        return out + struct.pack("<?", value)
    try:
        packed = struct.pack(_PACKED[kind], value)
    except (struct.error, OverflowError):
        packed = b""
    if not packed or (kind == _FLOAT32 and not math.isfinite(struct.unpack("<f", packed)[0])):
        raise InputError(
            f"gguf: {key}",
            found=repr(value),
            expected="a number that the type of the key can hold",
            fix="choose a smaller value",
        )
    return out + packed
