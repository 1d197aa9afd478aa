"""The rows of the family table, by group."""

from __future__ import annotations

from ..family import Family
from . import (
    checkpoints,
    decoders,
    encoders,
    latent,
    layered,
    more_decoders,
    multimodal,
    speech,
    towers,
)

_GROUPS = (
    decoders,
    more_decoders,
    layered,
    latent,
    multimodal,
    encoders,
    speech,
    towers,
    checkpoints,
)

ALL_ROWS: dict[str, Family] = {name: row for group in _GROUPS for name, row in group.ROWS.items()}
"""Every family by ``model_type``."""
