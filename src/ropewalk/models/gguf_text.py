"""Reader of listed GGUF metadata: what a loader's log or a dump says about a file.

Lines such as ``llama_model_loader: - kv 5: llama.rope.freq_base f32 = 500000.000000`` and
pairs such as ``llama.rope.freq_base=500000.0; llama.block_count=32``. Tensors are not in such
a text, so divisors of frequencies stay unknown.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import json_text
from .fragment import Fragment
from .gguf import find_architecture, read_header
from .gguf_scaling import GGUFScaling
from .gguf_values import GGUFValues
from .plan import ModelPositions, Sourced

_PAIR = re.compile(
    # No two parts that match the same signs stand side by side: time is linear in the line.
    r"^(?:.*?-\s*kv\s+\d+:\s*)?([a-z][\w-]*(?:\.[\w-]+)+)\s*"
    r"(?:(?:[uif]\d+|bool|str|arr\[[^\]]{0,40}\])\s*)?=(.*)$"
)
_NEEDED = ("block_count", "attention.head_count")
_SIZES = ("attention.key_length_mla", "attention.key_length", "embedding_length")


class ListedHeader:
    """The metadata that a text lists."""

    def __init__(self, label: str, values: dict[str, Any]) -> None:
        self.path, self.values = Path(label), values

    def floats(self, name: str, most: int = 65536) -> npt.NDArray[np.float64] | None:
        """Return None: a listing has no tensors."""
        return None


def listed_metadata(text: str) -> dict[str, Any] | None:
    """Return the keys and values of a listing, or None where the text is none.

    A listing has at least one key of an architecture, such as ``llama.context_length``.
    """
    values: dict[str, Any] = {}
    for line in re.split(r"[;\n]", text):
        found = _PAIR.match(line.strip())
        if found is not None:
            values.setdefault(found[1], _value(found[2].strip()))
    architectures = {key.split(".")[0] for key in values} - {"general", "tokenizer", "quantize"}
    positional = any(key.split(".", 1)[1].startswith(("rope.", "context_length")) for key in values)
    if len(architectures) != 1 or not positional:
        return None
    values.setdefault("general.architecture", architectures.pop())
    return values


def _value(text: str) -> Any:
    try:
        return json_text.parse(text)
    except ValueError:
        return text.strip("\"'")


def read_listing(values: dict[str, Any], label: str) -> ModelPositions | Fragment:
    """Read listed metadata as the file that it was listed from.

    Raises:
        InputError: an unknown architecture, or values that fit no rope.
    """
    header = ListedHeader(label, values)
    prefix = str(values["general.architecture"])
    architecture = find_architecture(label, values["general.architecture"])
    named = GGUFValues(header, prefix)
    missing = [key for key in _NEEDED if named.get(key) is None]
    if all(named.get(key) is None for key in _SIZES):
        missing.append("embedding_length")
    if not missing:
        plan = read_header(header)
        note = "a listing has no tensors: divisors such as rope_freqs.weight would not be seen"
        return dataclasses.replace(plan, notes=(*plan.notes, note))
    stated = named.count("context_length")
    scaling = GGUFScaling(named, architecture, stated).of(local=False, rotary_dim=2, theta=1.0)
    found = {
        key.split(".", 1)[1]: Sourced(value, named.origin(key.split(".", 1)[1]))
        for key, value in values.items()
        if key.startswith(f"{prefix}.")
    }
    found["pairing"] = Sourced(architecture.pairing, f"rule of llama.cpp for architecture {prefix}")
    return Fragment(label, "gguf", ", ".join(missing), found, scaling, tuple(named.notes))
