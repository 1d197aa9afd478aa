"""Configs of diffusers: each class's own rotation, and what is refused.

What the real classes compute lies in ``diffusers_rotations.json`` (see ``diffusers_classes``),
so that these tests also bite where diffusers is not installed; ``test_diffusers_real`` compares
the stored numbers with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from diffusers_classes import CASES, STORED, lanes

from ropewalk import InputError, Rope, rotate
from ropewalk.axes import MultiAxisRope
from ropewalk.encodings.lane_turns import LaneTurns
from ropewalk.models import read
from ropewalk.models.diffusers import read_diffusers
from ropewalk.models.plan import Axes
from ropewalk.models.rows.diffusers import DENOISERS
from ropewalk.models.rows.diffusers_without_rope import WITHOUT_ROPE

ROTATIONS = json.loads(STORED.read_text(encoding="utf-8"))


def config(name: str, **values: Any) -> dict[str, Any]:
    return {"_class_name": name, "_diffusers_version": "0.42.1", **values}


def positions_of(values: dict[str, Any]) -> Rope | Axes:
    layer = read_diffusers(values, "config.json").layers[0]
    found = layer.rope if layer.axes is None else layer.axes
    assert found is not None
    return found


def turned(found: Rope | Axes, x: Any, at: Any) -> tuple[Any, Any]:
    """Return the rotation of x (tokens, lanes), and the angle of every lane."""
    if isinstance(found, LaneTurns):
        cos, sin = found.cos_sin(at)
        per_lane = [
            np.abs(at[t.axis] * found.ladders[t.ladder].inv_freq()[t.rung]) for t in found.lanes
        ]
        return found.apply(x, cos, sin), np.stack(per_lane, axis=-1)
    angles = np.zeros(x.shape)
    length = int(np.max(at)) + 1
    if isinstance(found, Rope):
        frequencies, axes = found.inv_freq(length), [0] * found.planes
    else:
        frequencies, axes = found.inv_freq(), found.plane_axes.tolist()
    for plane, (frequency, axis) in enumerate(zip(frequencies, axes, strict=True)):
        for lane in found.lanes(plane):
            angles[:, lane] = np.abs(at[axis] * frequency)
    if isinstance(found, Rope):
        cos, sin = (t.astype(np.float32) for t in found.cos_sin(at[0], length=length))
        options: dict[str, Any] = {"pairing": found.pairing, "rotary_offset": found.rotary_offset}
        return rotate(x, cos, sin, order="time", **options), angles
    cos, sin = (t.astype(np.float32) for t in found.cos_sin(at))
    return found.rotate(x, cos, sin, order="time"), angles


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_plan_turns_lanes_as_the_class_does(name: str) -> None:
    stored = ROTATIONS[name]
    found = positions_of(config(name, **CASES[name].config))
    at = np.array(stored["positions"])
    x = lanes(stored["tokens"], found.head_dim)[-at.shape[1] :]
    got, angles = turned(found, x, at)
    # The class multiplies and takes powers in float32: a frequency is off by up to 8 units, and
    # a product by half of one; cos and sin are amplified by LongRoPE's factor, below 2, here.
    tolerance = 2 * 2 * np.abs(x).max() * 2.0**-24 * (2 + 9 * angles)
    wanted = np.array(stored["rotated"])
    assert wanted.shape == got.shape
    assert (np.abs(got - wanted) <= tolerance).all(), np.abs(got - wanted).max()
    # Something is turned, and not all of it by small angles.
    assert np.abs(wanted - x).max() > 0.5


def test_every_row_has_a_case() -> None:
    assert set(CASES) == set(DENOISERS) == set(ROTATIONS)
    assert not set(DENOISERS) & set(WITHOUT_ROPE)


def test_flux_from_a_pipelines_folder(tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    (tmp_path / "model_index.json").write_text(
        json.dumps({"_class_name": "FluxPipeline", "transformer": ["diffusers", "Flux"]})
    )
    values = config("FluxTransformer2DModel", axes_dims_rope=[16, 56, 56], num_layers=2)
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(values))
    plan = read(tmp_path)
    assert (plan.format, plan.model_type, len(plan.layers)) == (
        "diffusers", "FluxTransformer2DModel", 40,
    )  # fmt: skip
    axes = plan.layers[0].axes
    assert isinstance(axes, MultiAxisRope)
    assert axes.axes == ("image", "height", "width")
    assert [ladder.rotary_dim for ladder in axes.ladders] == [16, 56, 56]
    assert axes.pairing == "adjacent"
    assert plan.rope is None
    assert plan.sources["lanes of the axes"].source == "config.json: axes_dims_rope"
    assert plan.sources["head_dim"].source == "default of diffusers' FluxTransformer2DModel"
    with pytest.raises(InputError, match=r"pipeline of several models.*transformer/config.json"):
        read(tmp_path / "model_index.json")


def test_ace_steps_windows() -> None:
    plan = read_diffusers(config("AceStepTransformer1DModel"), "config.json")
    assert [la.window for la in plan.layers[:3]] == [129, None, 129]
    assert plan.rope == Rope(head_dim=128, theta=1e6)
    kinds = ["full_attention"] * 24
    plain = read_diffusers(config("AceStepTransformer1DModel", layer_types=kinds), "c")
    assert {la.window for la in plain.layers} == {None}


def test_ltx2_has_a_rope_over_sound_beside_the_picture() -> None:
    values = config("LTX2VideoTransformer3DModel", rope_type="split")
    plan = read_diffusers(values, "config.json")
    axes, tower = plan.layers[0].axes, plan.towers[0].positions
    assert isinstance(axes, MultiAxisRope)
    assert isinstance(tower, MultiAxisRope)
    assert (axes.head_dim, axes.blocks, axes.pairing) == (4096, 32, "half")
    assert sum(turn.rung is None for turn in axes.planes) == 2
    assert (tower.head_dim, tower.axes) == (2048, ("time",))


def test_ernie_image_is_said_to_be_no_rotation() -> None:
    found = positions_of(config("ErnieImageTransformer2DModel"))
    assert isinstance(found, LaneTurns)
    assert "turn by different angles" in found.reason


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"_class_name": "MochiTransformer3DModel"}, "learned, for every head"),
        ({"_class_name": "SD3Transformer2DModel"}, "sinusoidal positions"),
        ({"_class_name": "AuraFlowTransformer2DModel"}, "learned absolute"),
        ({"_class_name": "UNet2DConditionModel"}, "convolutions"),
        ({"_class_name": "FluxTransformer3DModel"}, "e.g. FluxTransformer2DModel"),
        ({"_class_name": "CogVideoXTransformer3DModel"}, r"False \(the default\): positions are"),
        ({"_class_name": "CogVideoXTransformer3DModel", "attention_head_dim": 40,
          "use_rotary_positional_embeddings": True}, "a multiple of 16"),
        ({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56]}, "add up to"),
        ({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [15, 57, 56]}, "even"),
        ({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [2] * 64}, "at most 8"),
        ({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": "16"}, "axes_dims_rope"),
        ({"_class_name": "FluxTransformer2DModel", "num_layers": -1}, "num_layers"),
        ({"_class_name": "FluxTransformer2DModel", "num_layers": 10**9}, "num_layers"),
        ({"_class_name": "FluxTransformer2DModel", "attention_head_dim": 2**20}, "at most|to 4096"),
        ({"_class_name": "Flux2Transformer2DModel", "rope_theta": float("nan")}, "rope_theta"),
        ({"_class_name": "LTX2VideoTransformer3DModel", "rope_theta": 1e300}, "a base above 1"),
        ({"_class_name": "LTX2VideoTransformer3DModel", "rope_type": "other"}, "rope_type"),
        ({"_class_name": "Lumina2Transformer2DModel", "hidden_size": 100}, "heads times lanes"),
        ({"_class_name": "CosmosTransformer3DModel", "rope_scale": [2.0, 1.0]}, "3, for time"),
        ({"_class_name": "CosmosTransformer3DModel", "rope_scale": [0.5, 1.0, 1.0]}, "at least 1"),
        ({"_class_name": "WanTransformer3DModel", "attention_head_dim": 4}, "at least 6"),
        ({"_class_name": "Kandinsky6Transformer3DModel", "scale_factor": [1.0]}, "one for each"),
        ({"_class_name": "MiniMaxH3Transformer3DModel", "rope_freq_dim": 40}, "no more than"),
        ({"_class_name": "MiniMaxMusic3Transformer1DModel", "rotary_dim": 80}, "head_dim 64"),
        ({"_class_name": "OmniGenTransformer2DModel"}, "short_factor"),
        ({"_class_name": "AceStepTransformer1DModel", "layer_types": [[]]}, "layer_types"),
        ({"_class_name": "Ideogram4Transformer2DModel", "mrope_section": [1, 2]}, "3 counts"),
    ],
)  # fmt: skip
def test_what_is_refused_and_why(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_diffusers(values, "config.json")
    assert str(caught.value).startswith("config.json")
    assert "\n" not in str(caught.value)
