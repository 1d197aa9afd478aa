"""Configs of mlx-lm: those of transformers, with ``rope_traditional`` for the pairing.

Source: mlx-lm (2026-08), ``models/rope_utils.py``: ``traditional`` turns adjacent lanes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..rope import Pairing
from .hf import read_config
from .plan import ModelPositions, Sourced
from .spellings import NESTED_TEXT


def _part(values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    for key in NESTED_TEXT:
        if isinstance(values.get(key), Mapping):
            return f"{key}.", values[key]
    return "", values


def is_mlx(values: Mapping[str, Any]) -> bool:
    """Tell whether a config is one of mlx-lm: by its pairing switch, or MLX's quantization."""
    block = values.get("quantization")
    quantized = isinstance(block, Mapping) and {"group_size", "bits"} <= set(block)
    return "rope_traditional" in _part(values)[1] or quantized


def read_mlx(
    values: Mapping[str, Any], label: str, assume_family: str | None = None
) -> ModelPositions:
    """Read a config of mlx-lm.

    Raises:
        InputError: see `read_config`; or a ``rope_traditional`` that is no truth value.
    """
    plan = read_config(values, label, assume_family=assume_family)
    prefix, part = _part(values)
    switch = part.get("rope_traditional")
    if switch is None:
        return dataclasses.replace(plan, format="mlx")
    if not isinstance(switch, bool):
        raise InputError(
            f"{label}: {prefix}rope_traditional",
            found=repr(switch),
            expected="true (adjacent lanes) or false (halves)",
            fix="correct the value",
        )
    pairing: Pairing = "adjacent" if switch else "half"
    layers = tuple(
        layer
        if layer.rope is None
        else dataclasses.replace(layer, rope=dataclasses.replace(layer.rope, pairing=pairing))
        for layer in plan.layers
    )
    name = label.replace("\\", "/").rsplit("/", 1)[-1]
    sources = {
        **plan.sources,
        "pairing": Sourced(pairing, f"{name}: {prefix}rope_traditional"),
    }
    return dataclasses.replace(plan, format="mlx", layers=layers, sources=sources)
