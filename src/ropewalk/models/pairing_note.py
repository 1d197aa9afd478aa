"""The note beside weights whose pairing no key of their config can say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..axes import MultiAxisRope
from ..errors import InputError
from ..rope import PAIRINGS, Pairing, Rope
from . import json_text
from .plan import Axes, ModelPositions, Sourced

NOTE = "ropewalk-pairing.json"
"""Written by ``ropewalk convert --pairing``; no engine reads it."""
_LARGEST = 2**20


def noted_pairing(place: Path) -> Pairing | None:
    """Return the pairing that a note says of the weights there, or None where there is none.

    Args:
        place: a model's folder, or a file in it. A note that names files is about these only.

    Raises:
        InputError: a note that cannot be read, or says no pairing.
    """
    folder = place if place.is_dir() else place.parent
    path = folder / NOTE
    if not path.is_file():
        return None
    found: Any = None
    try:
        if path.stat().st_size <= _LARGEST:
            found = json_text.parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        found = None
    values = found if isinstance(found, dict) else {}
    files = values.get("files")
    if place.suffix == ".gguf" and isinstance(files, list) and place.name not in files:
        return None
    for pairing in PAIRINGS:
        if values.get("pairing") == pairing:
            return pairing
    raise InputError(
        f"{path}: pairing",
        found=repr(values.get("pairing")),
        expected="'half' or 'adjacent'",
        fix="remove the file, or correct it after `ropewalk pairing`",
    )


def disagreement(plan: ModelPositions, noted: Pairing | None) -> str | None:
    """Say what the family's code does to weights of a noted pairing; None where they agree."""
    if noted is None or plan.rope is None or plan.rope.pairing == noted:
        return None
    engine = "llama.cpp" if plan.format == "gguf" else "transformers"
    return (
        f"query and key weights are stored for {noted} pairing ({NOTE}); {engine} does not read "
        f"that file, pairs {plan.rope.pairing} lanes and computes gibberish from them"
    )


def with_note(plan: ModelPositions, place: Path) -> ModelPositions:
    """Return a plan with the pairing that the note beside the weights says.

    Raises:
        InputError: a note that cannot be read, or says no pairing.
    """
    noted = noted_pairing(place)
    said = disagreement(plan, noted)
    if noted is None or said is None:
        return plan
    layers = tuple(
        dataclasses.replace(
            layer, rope=_turned(layer.rope, noted), axes=_axes_turned(layer.axes, noted)
        )
        for layer in plan.layers
    )
    sources = {**plan.sources, "pairing": Sourced(noted, f"{NOTE}: pairing")}
    return dataclasses.replace(plan, layers=layers, sources=sources, notes=(*plan.notes, said))


def _turned(rope: Rope | None, pairing: Pairing) -> Rope | None:
    return None if rope is None else dataclasses.replace(rope, pairing=pairing)


def _axes_turned(axes: Axes | None, pairing: Pairing) -> Axes | None:
    return dataclasses.replace(axes, pairing=pairing) if isinstance(axes, MultiAxisRope) else axes
