"""Copying a GGUF file with some of its keys changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def copy_with(source: Path, target: Path, values: dict[str, tuple[Any, Any]]) -> None:
    """Copy a GGUF file, replacing or adding ``{architecture}.{key}`` for the given keys.

    Args:
        source: the file to copy.
        target: the new file.
        values: key without the architecture's prefix to (value, GGUF type).

    Tensors are read through a memory map and written byte for byte, one at a time.
    """
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(target, architecture, endianess=reader.endianess)
    alignment = reader.get_field("general.alignment")
    if alignment is not None:
        writer.data_alignment = alignment.contents()
    waiting = {f"{architecture}.{key}": value for key, value in values.items()}
    for field in reader.fields.values():
        # Written by the writer itself, or facts of the reader and no keys of the file.
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        value_type = field.types[0]
        is_array = value_type == gguf.GGUFValueType.ARRAY
        value, value_type = waiting.pop(field.name, (field.contents(), value_type))
        writer.add_key_value(
            field.name, value, value_type, sub_type=field.types[-1] if is_array else None
        )
    for name, (value, value_type) in waiting.items():
        writer.add_key_value(name, value, value_type)
    for tensor in reader.tensors:
        writer.add_tensor_info(
            tensor.name,
            tensor.data.shape,
            tensor.data.dtype,
            tensor.data.nbytes,
            tensor.tensor_type,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(tensor.data, tensor_endianess=reader.endianess)
    writer.close()
