"""The installed timm: its ropes turn lanes as stored, and its builders fill in what the rows say.

Not collected where timm is absent, see ``conftest``. torchvision is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from test_timm import ROTATIONS, axes_of, plan_of
from timm_classes import CONFIGS, builders, forget, real

from ropewalk.models.rows.timm import VITS


@pytest.fixture(autouse=True)
def without_timm() -> Iterator[None]:
    """Parts of timm that a test loads must not look like timm to another test."""
    yield
    forget()


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_stored_rotation_is_that_of_the_installed_timm(name: str) -> None:
    size = axes_of(plan_of(name, CONFIGS[name])).head_dim
    out = real(name, size, {**VITS[name].rest, **CONFIGS[name]})[-2:]
    np.testing.assert_allclose(out, ROTATIONS[name], atol=2.0**-20)


@pytest.mark.parametrize("file", ["eva", "qwen3_vit", "deepseek_vit"])
def test_rows_are_what_timms_builders_fill_in(file: str) -> None:
    found = dict(builders(file))
    assert len(found) > 2
    seen = 0
    for name, arguments in found.items():
        if file == "eva" and not arguments.get("use_rot_pos_emb") and "sapiens2" not in name:
            assert name not in VITS, name
            continue
        row, seen = VITS[name], seen + 1
        sizes = {"embed_dim": row.width, "depth": row.depth, "num_heads": row.heads}
        for key, value in sizes.items():
            assert arguments.get(key, value) == value, (name, key)
        for key in ("rope_type", "rope_temperature", "rope_grid_offset", "rope_grid_indexing",
                    "rope_rotate_half", "img_size", "patch_size"):  # fmt: skip
            default = {"rope_type": "cat"}.get(key)
            if key in arguments and key in row.rest:
                assert row.rest[key] == arguments[key], (name, key)
            elif key in arguments and key not in ("img_size", "patch_size", "rope_type"):
                # Mixed ropes are refused whatever their base is.
                assert row.rest.get("rope_type") == "mixed", (name, key)
            elif key in row.rest and file == "eva" and "sapiens2" not in name:
                given = row.rest[key]
                assert given in (default, 0.0) or key in ("img_size", "patch_size"), (name, key)
        reference = arguments.get("ref_feat_shape")
        if reference is not None:
            assert row.rest["ref_feat_shape"] == reference[0] == reference[1], name
    assert seen > 2
