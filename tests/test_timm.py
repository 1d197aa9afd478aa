"""Configs of timm: the rotation of each kind of rope, the table of architectures, refusals.

What timm computes lies in ``timm_rotations.json`` (see ``timm_classes``), so that these tests
also bite where timm is not installed; ``test_timm_real`` compares the stored numbers with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from diffusers_classes import lanes
from timm_classes import CONFIGS, GRID, STORED, positions

from ropewalk import InputError
from ropewalk.axes import MultiAxisRope
from ropewalk.models import read
from ropewalk.models.plan import ModelPositions
from ropewalk.models.timm import read_timm

ROTATIONS = json.loads(STORED.read_text(encoding="utf-8"))


def plan_of(name: str, arguments: dict[str, Any] | None = None) -> ModelPositions:
    values = {"architecture": name, "num_features": 768, "model_args": arguments or {}}
    return read_timm(values, "config.json")


def axes_of(plan: ModelPositions) -> MultiAxisRope:
    axes = plan.layers[0].axes
    assert isinstance(axes, MultiAxisRope)
    return axes


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_plan_turns_lanes_as_timm_does(name: str) -> None:
    axes = axes_of(plan_of(name, CONFIGS[name]))
    at = positions(name)[:, -2:]
    x = lanes(GRID[0] * GRID[1], axes.head_dim)[-2:]
    cos, sin = (t.astype(np.float32) for t in axes.cos_sin(at))
    got = axes.rotate(x, cos, sin, order="time")
    angles = np.zeros(x.shape)
    turn = 2 * np.pi if axes.unit == "turn" else 1.0
    for plane, (frequency, axis) in enumerate(
        zip(axes.inv_freq(), axes.plane_axes.tolist(), strict=True)
    ):
        for lane in axes.lanes(plane):
            angles[:, lane] = np.abs(at[axis] * turn * frequency)
    # Powers, divisions and products in float32: 8 units of the angle, and two products of x.
    tolerance = 2 * np.abs(x).max() * 2.0**-24 * (2 + 9 * angles)
    wanted = np.array(ROTATIONS[name])
    assert wanted.shape == got.shape
    assert (np.abs(got - wanted) <= tolerance).all(), np.abs(got - wanted).max()
    assert np.abs(wanted - x).max() > 0.5


def test_a_config_of_the_hub(tmp_path: Path) -> None:
    values = {
        "architecture": "eva02_large_patch14_448.mim_m38m_ft_in22k_in1k",
        "num_classes": 1000,
        "num_features": 1024,
        "global_pool": "avg",
        "pretrained_cfg": {"input_size": [3, 448, 448]},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    plan = read(path)
    assert (plan.format, len(plan.layers), plan.heads, plan.value_dim) == ("timm", 24, 16, 64)
    axes = axes_of(plan)
    assert (axes.axes, axes.pairing, axes.unit) == (("height", "width"), "adjacent", "index")
    assert "16 / rows for height" in plan.sources["positions"].value
    assert "32 rows and 32 columns" in plan.sources["positions"].value
    wrapped = {**values, "model_type": "timm_wrapper"}
    path.write_text(json.dumps(wrapped))
    assert read(path).layers == plan.layers


def test_arguments_of_the_config_come_first() -> None:
    plan = plan_of("vit_small_patch16_dinov3", {"depth": 3, "rope_temperature": 50.0})
    assert (len(plan.layers), axes_of(plan).ladders[0].theta) == (3, 50.0)
    assert plan.sources["theta"].source == "config.json: model_args.rope_temperature"
    assert plan.sources["heads"].source == "default of timm's vit_small_patch16_dinov3"
    assert axes_of(plan).unit == "turn"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("vit_base_patch16_224", {}, "not in the table"),
        ("resnet50.a1_in1k", {}, "not in the table"),
        ("vit_base_patch16_rope_mixed_224", {}, "learned direction"),
        ("naflexvit_base_patch16_gap", {}, "learned and absolute"),
        ("eva02_base_patch14_224", {"use_rot_pos_emb": False}, "learned and absolute"),
        ("eva02_base_patch14_224", {"rope_type": "spiral"}, "cat, axial"),
        ("eva02_base_patch14_224", {"rope_type": []}, "cat, axial"),
        ("eva02_base_patch14_224", {"rope_grid_indexing": "yx"}, "ij or xy"),
        ("eva02_base_patch14_224", {"rope_temperature": -1}, "a positive number"),
        ("eva02_base_patch14_224", {"ref_feat_shape": [16, 0]}, "ref_feat_shape"),
        ("eva02_base_patch14_224", {"num_heads": 5}, "heads of a multiple of 4"),
        ("eva02_base_patch14_224", {"embed_dim": 2**40, "num_heads": 1}, "at most 4096"),
        ("eva02_base_patch14_224", {"depth": 0}, "depth"),
        ("eva02_base_patch14_224", {"depth": 10**9}, "depth"),
        ("naflexvit_base_patch16_gap", {"rope_type": "mrope", "rope_mrope_section": [1]},
         "3 counts"),
    ],
)  # fmt: skip
def test_what_is_refused_and_why(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        plan_of(name, arguments)
    assert str(caught.value).startswith("config.json")


def test_arguments_that_are_no_object() -> None:
    with pytest.raises(InputError, match="model_args"):
        read_timm({"architecture": "eva02_base_patch14_224", "model_args": [1]}, "config.json")
