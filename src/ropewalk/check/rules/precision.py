"""Numbers kept in too few bits."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...models import json_text
from ..rule import Example, Rule, Seen
from ..subject import Subject
from .samples import LLAMA_SMALL

_STORED = re.compile(r"(^|\.)(rotary_emb|rotary_embeddings|rope)\.(inv_freq|freqs|freqs_cis)$")
_HALF = ("F16", "BF16", "F8_E4M3", "F8_E5M2")
_LARGEST_HEADER = 64 * 2**20


def headers(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the header of every safetensors file of a folder; damaged ones are left out."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            if not path.is_file():
                continue  # a pipe would be waited for
            with path.open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                if size > min(_LARGEST_HEADER, path.stat().st_size):
                    continue
                header = json_text.parse(file.read(size))
        except (OSError, ValueError, struct.error):
            continue
        if isinstance(header, dict):
            yield path, header


def _stored_frequencies(subject: Subject) -> Iterator[Seen]:
    if subject.place is None or subject.kind != "values":
        return
    for path, header in headers(subject.place.parent):
        names = [name for name in header if _STORED.search(name)]
        half = [
            name
            for name in names
            if isinstance(header[name], dict) and header[name].get("dtype") in _HALF
        ]
        if half:
            kind = header[half[0]].get("dtype")
            yield Seen(
                f"{path.name}: {half[0]}",
                f"frequencies in {kind}" + (f" ({len(half)} tensors)" if len(half) > 1 else ""),
                "frequencies computed from the config in float32 or better; 16 bits leave 3 or 4 "
                "digits, which is an error of many radians at long distances",
                "remove the tensors; compute frequencies when the model is loaded",
            )
        elif names:
            yield Seen(
                f"{path.name}: {names[0]}",
                f"frequencies beside the weights ({len(names)} tensors)",
                "frequencies computed from the config: stored ones win over it in some programs",
                "remove the tensors",
                severity="note",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW601",
        title="frequencies are stored with the weights",
        severity="warning",
        explanation="Old checkpoints carry inv_freq as a buffer, often cast to 16 bits. Loaded, "
        "it replaces the right one or fails a strict load.",
        bad=Example(
            LLAMA_SMALL,
            {
                "model.layers.0.self_attn.rotary_emb.inv_freq": (
                    "F16",
                    (1.0, 0.3162, 0.1, 0.0316, 0.01, 0.0032, 0.001, 0.0003),
                )
            },
        ),
        good=Example(LLAMA_SMALL, {"model.norm.weight": ("F16", (1.0, 1.0))}),
        source="EleutherAI/gpt-neox PR 1168; huggingface/transformers#25681",
        look=_stored_frequencies,
    ),
)
