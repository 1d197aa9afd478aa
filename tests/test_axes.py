"""Ropes of several axes: rows against the definition, rotation, parts of configs, learned ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from ropewalk import InputError, Rope, YaRN, rotate
from ropewalk.axes import MultiAxisRope, Turn
from ropewalk.axis_layouts import alternating_with_tail, axial, dealt, interleaved, sectioned
from ropewalk.encodings import LaneTurns, XPos
from ropewalk.encodings.rotary_time import positions as time_positions
from ropewalk.models import read_config
from ropewalk.scaling import Learned, scaling_from_dict
from ropewalk.scaling.field import TorchFloat32

ROPE = Rope(head_dim=64, theta=1e6, scaling=YaRN(factor=4.0, original_length=4096))
LADDER = Rope(head_dim=16, theta=100.0)
MADE = {
    "sections": sectioned(ROPE, [8, 12, 12]),
    "interleaved": interleaved(ROPE, [12, 10, 10]),
    "tail": alternating_with_tail(ROPE, [11, 11, 10]),
    "axial": axial(LADDER, head_dim=32),
    "in turn": axial(LADDER, head_dim=40, order=(1, 0), mixed=True, pairing="adjacent"),
    "blocks": axial(LADDER, head_dim=32, blocks=2),
    "dealt": dealt(Rope(head_dim=32), head_dim=32),
}


@pytest.mark.parametrize("name", MADE)
def test_every_plane_turns_by_its_axis_and_rung(name):
    """cos and sin by the definition, plane by plane, in float64."""
    rope = MADE[name]
    at = np.random.default_rng(1).integers(0, 3000, (len(rope.axes), 5))
    cos, sin = rope.cos_sin(at)
    assert cos.shape == (5, len(rope.planes))
    frequencies, factor = rope.inv_freq(), rope.attention_factor()
    for index, turn in enumerate(rope.planes):
        assert turn.rung is not None
        assert frequencies[index] == rope.ladders[0].inv_freq()[turn.rung]
        angles = at[turn.axis] * frequencies[index]
        # float64 angles up to 3000 are off by 3000 * 2^-53; float32 rounds once, factor included.
        tolerance = 3000 * 2.0**-52 + factor * 2.0**-24
        assert np.abs(cos[:, index] - factor * np.cos(angles)).max() <= tolerance
        assert np.abs(sin[:, index] - factor * np.sin(angles)).max() <= tolerance
    assert sorted({lane for i in range(len(rope.planes)) for lane in rope.lanes(i)}) == list(
        range(rope.rotary_dim)
    )


@pytest.mark.parametrize("name", MADE)
def test_rotation_turns_the_lanes_that_lanes_names(name):
    rope = MADE[name]
    rng = np.random.default_rng(2)
    x = rng.standard_normal((5, 3, rope.head_dim)).astype(np.float32)
    cos, sin = rope.cos_sin(rng.integers(0, 300, (len(rope.axes), 5)))
    got = rope.rotate(x, cos, sin)
    want = x.copy()
    for plane in range(len(rope.planes)):
        a, b = rope.lanes(plane)
        c, s = cos[:, plane, None], sin[:, plane, None]
        want[..., a], want[..., b] = x[..., a] * c - x[..., b] * s, x[..., a] * s + x[..., b] * c
    assert np.array_equal(got, want)


def test_tables_by_row_with_plane_axes_are_the_same_rotation():
    """What M-RoPE kernels take: one table per plane, positions per axis."""
    rope = MADE["interleaved"]
    x = torch.randn(2, 6, 4, 64, generator=torch.Generator().manual_seed(3))
    at = torch.randint(0, 50, (3, 2, 6), generator=torch.Generator().manual_seed(4))
    cos, sin = rope.table(50)
    by_row = rotate(x, cos, sin, positions=at, plane_axes=rope.plane_axes)
    direct = rotate(x, *rope.cos_sin(at))
    assert torch.equal(by_row, direct)


@pytest.mark.parametrize("name", ["sections", "interleaved", "tail"])
def test_on_text_it_is_the_one_axis_rope(name):
    rope = MADE[name]
    assert rope.on_text() == ROPE
    line = np.arange(40)
    for mine, want in zip(rope.cos_sin(np.stack([line] * 3)), ROPE.cos_sin(line), strict=True):
        assert np.array_equal(mine, want)
    assert MADE["axial"].on_text() is None


@pytest.mark.parametrize("name", MADE)
def test_json_keeps_every_field(name):
    rope = MADE[name]
    again = MultiAxisRope.from_dict(json.loads(json.dumps(rope.to_dict())))
    assert again == rope
    assert hash(again) == hash(rope)


def test_planes_that_stand_still():
    rope = MultiAxisRope(
        head_dim=8, ladders=(LADDER,), planes=(Turn(0, 0), Turn(0, None)), axes=("x",)
    )
    for at in (np.array([[1, 2]]), torch.tensor([[1, 2]])):
        cos, sin = rope.cos_sin(at)
        assert cos[:, 1].tolist() == [1, 1]
        assert sin[:, 1].tolist() == [0, 0]
    assert rope.inv_freq()[1] == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sectioned(ROPE, [16, 24, 24]), r"\(sum 64\), expected 3 counts that add up to"),
        (lambda: sectioned(ROPE, "abc"), "mrope_section"),
        (lambda: interleaved(ROPE, [32]), "mrope_section"),
        (lambda: alternating_with_tail(ROPE, [10, 12, 10]), "as many planes for height"),
        (lambda: axial(LADDER, head_dim=16), "16 planes from lane 0 on"),
        (lambda: axial(LADDER, head_dim=32, blocks=3), "3 blocks for 16 planes"),
        (lambda: MADE["axial"].cos_sin(np.arange(4)), "one row for each of height, width"),
        (lambda: MultiAxisRope.from_dict({"head_dim": 8}), "KeyError"),
        (
            lambda: MultiAxisRope(head_dim=8, ladders=(LADDER,), planes=(Turn(1, 0),), axes=("x",)),
            r"planes\[0\]",
        ),
    ],
)
def test_refusals(make, words):
    with pytest.raises(InputError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_lane_turns_do_not_keep_norms_and_rotations_do():
    lanes = LaneTurns(
        head_dim=4,
        ladders=(Rope(head_dim=4, theta=10.0),),
        lanes=(Turn(0, 0), Turn(0, 1), Turn(0, 0), Turn(0, 1)),
        axes=("time",),
        pairing="adjacent",
    )
    x = np.ones((3, 4), np.float32)
    at = np.array([[1, 2, 3]])
    cos, sin = lanes.cos_sin(at)
    out = lanes.apply(x, cos, sin)
    c, s = np.cos([1, 10**-0.5]), np.sin([1, 10**-0.5])
    want = [c[0] - s[0], c[1] + s[1]] * 2
    assert np.abs(out[0] - want).max() <= 4 * 2.0**-24
    assert np.abs(np.linalg.norm(out, axis=-1) - 2).min() > 0.01


def test_time_positions_refuse_what_is_no_line():
    with pytest.raises(InputError, match="time_stamps"):
        time_positions([[1.0]], frame_seconds=0.01, longest=1200)


# Configs of several parts.

QWEN = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    # As the published files have it: the outer type, in the tower too.
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "num_heads": 16,
        "model_type": "qwen2_5_vl",
    },
}


def test_a_flat_file_with_a_tower():
    plan = read_config(QWEN, "config.json")
    (tower,) = plan.towers
    assert (tower.path, tower.model_type, tower.layers) == (
        "vision_config",
        "qwen2_5_vl_vision",
        32,
    )
    assert tower.positions == axial(Rope(head_dim=40), head_dim=80)
    assert plan.rope == Rope(head_dim=128, theta=1e6, scaling=plan.rope.scaling)
    told = json.loads(json.dumps(plan.to_dict()))
    assert told["towers"][0]["positions"]["axes"] == ["height", "width"]
    assert told["axes"][0]["plane_axes"] == [0] * 16 + [1] * 24 + [2] * 24
    assert told["layers"][3]["axes"] == 0


def test_a_broken_tower_is_said_and_leaves_the_text():
    broken = {**QWEN, "vision_config": {"num_heads": 0, "model_type": "qwen2_5_vl"}}
    plan = read_config(broken, "config.json")
    assert plan.towers == ()
    assert any("vision_config is not described" in note for note in plan.notes)


def test_parts_within_parts():
    omni = {
        "model_type": "qwen2_5_omni",
        "thinker_config": {"text_config": {"num_hidden_layers": 2}, "vision_config": {"depth": 3}},
        "talker_config": {"num_hidden_layers": 4},
        "token2wav_config": {"dit_config": {"num_hidden_layers": 5}},
    }
    plan = read_config(omni, "config.json")
    assert len(plan.layers) == 2
    assert [(t.path, t.layers) for t in plan.towers] == [
        ("thinker_config.vision_config", 3),
        ("talker_config", 4),
        ("token2wav_config.dit_config", 5),
    ]


def test_models_that_only_see():
    plan = read_config({"model_type": "pixtral"}, "config.json")
    assert plan.rope is None
    assert {layer.encoding for layer in plan.layers} == {"axes"}
    with pytest.raises(InputError, match="no rotary embedding"):
        plan.stretchable()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "esm"}, "learned absolute positions"),
        ({"model_type": "wav2vec2-conformer"}, "relative ones of Transformer-XL"),
        ({"model_type": "inkling2_text"}, "relative position biases"),
        ({"model_type": "lightglue"}, "projected from keypoints"),
        ({"model_type": "llama", "use_fope": True}, "FoPE, whose cosines and sines are mixed"),
        ({"model_type": "llama", "rope_parameters": {"use_fope": True}}, "FoPE"),
        # 2 pi / 2048 is the frequency of plane 40.2 of 64.
        ({"model_type": "llama", "use_fope": True}, "41 of the 64 frequencies"),
        ({"model_type": "llama", "use_fope": True, "num_inv_freq": 9}, "; 9 of the 64 frequencies"),
        ({"model_type": "llama", "use_xpos": True}, "xPos, with which q grows"),
        (
            {"model_type": "mlcd_vision_model", "rope_scaling": {"type": "linear", "factor": 2.0}},
            "refuses every scaling",
        ),
        (
            {
                "model_type": "esmfold2_atom_encoder",
                "head_dim": 8,
                "num_attention_heads": 2,
            },
            "at most the 4 planes",
        ),
    ],
)
def test_refused_by_name(config, words):
    with pytest.raises(InputError, match=words):
        read_config(config, "config.json")


def test_no_positions_at_all_are_none_and_not_plain_rope():
    for config in (
        {"model_type": "zamba2"},
        {"model_type": "granitemoehybrid"},
        {"model_type": "glm5_next_text"},
    ):
        plan = read_config(config, "config.json")
        assert all(layer.encoding == "none" for layer in plan.layers)


# Learned frequencies.


def test_learned_frequencies_are_those_of_mistral_large_4():
    from transformers.models.mistral_large4 import configuration_mistral_large4 as configuration
    from transformers.models.mistral_large4 import modeling_mistral_large4 as modeling

    config = configuration.MistralLarge4TextConfig()
    rotary = modeling.MistralLarge4TextRotaryEmbedding(config)
    alpha = torch.randn(32, generator=torch.Generator().manual_seed(5)) / 4
    rotary.alpha.data.copy_(alpha)
    plan = read_config(config.to_dict(), "config.json")
    assert any("exp(alpha)" in note for note in plan.notes)
    learned = Learned(alpha=tuple(alpha.tolist()), under=plan.rope.scaling)
    rope = plan.rope.with_scaling(learned)
    at = torch.arange(500)
    with torch.no_grad():
        cos, sin = rotary(torch.zeros(1), at[None])
    mine = rope.cos_sin(at, precision="float32")
    assert torch.equal(mine[0], cos[0, :, :32])
    assert torch.equal(mine[1], sin[0, :, :32])
    assert torch.equal(rope.frequencies_in(TorchFloat32()), rotary.inv_freq * alpha.exp())
    # exp and the product round once each in float32, and so does alpha on its way there.
    want = plan.rope.inv_freq() * np.exp(alpha.double().numpy())
    assert np.abs(rope.inv_freq() / want - 1).max() <= 4 * 2.0**-53
    assert Rope.from_json(rope.to_json()) == rope
    assert scaling_from_dict(learned.to_dict()) == learned


def test_learned_frequencies_refuse_another_number():
    with pytest.raises(InputError, match="3 values, expected rotary_dim/2 = 4"):
        Rope(head_dim=8, scaling=Learned(alpha=(0.0, 0.0, 0.0)))
    with pytest.raises(InputError, match="finite numbers"):
        Learned(alpha=(float("nan"),))


# Outside transformers.


def test_xpos_is_that_of_rotary_embedding_torch():
    theirs = pytest.importorskip("rotary_embedding_torch")
    lanes, time = 16, 40
    module = theirs.RotaryEmbedding(dim=lanes, use_xpos=True, cache_if_possible=False)
    q, k = torch.randn(2, 1, 2, time, lanes, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        want_q, want_k = module.rotate_queries_and_keys(q, k)
    xpos = XPos(rope=Rope(head_dim=lanes, pairing="adjacent"))
    at = np.arange(time)
    # It measures the amplitude from the middle of the text; scores are the same from anywhere.
    middle = xpos.scales(at - time // 2)
    cos, sin = xpos.rope.cos_sin(at, dtype=np.float64)
    mine = [
        rotate(x, cos * scale, sin * scale, pairing="adjacent", order="heads_time")
        for x, scale in ((q, middle), (k, 1 / middle))
    ]
    # float32 angles up to 40, powers and products on their side.
    bound = float(q.abs().max()) * 2 * (40 * 2.0**-24 * (8 + 2 * np.log(1e4)) + 8 * 2.0**-24)
    for got, want in zip(mine, (want_q, want_k), strict=True):
        assert float((got - want).abs().max()) <= bound
    (q_cos, q_sin), (k_cos, k_sin) = xpos.tables(at)
    scores = (
        rotate(q, q_cos, q_sin, pairing="adjacent", order="heads_time")
        @ rotate(k, k_cos, k_sin, pairing="adjacent", order="heads_time").mT
    )
    assert float((scores - want_q @ want_k.mT).abs().max()) <= 32 * lanes * bound
    with pytest.raises(InputError, match="scale_base"):
        XPos(rope=xpos.rope, scale_base=0)


def test_roformer():
    from transformers import RoFormerConfig
    from transformers.models.roformer import modeling_roformer as modeling

    config = RoFormerConfig()
    rope = read_config(config.to_dict(), "config.json").rope
    table = modeling.RoFormerSinusoidalPositionalEmbedding(64, rope.head_dim)
    table.weight.data = table.create_weight()
    q, k = torch.randn(2, 1, 3, 64, rope.head_dim, generator=torch.Generator().manual_seed(7))
    apply = modeling.RoFormerSelfAttention.apply_rotary_position_embeddings
    with torch.no_grad():
        theirs = apply(table.weight[None, None], q, k)
    cos, sin = rope.cos_sin(np.arange(64))
    for x, want in zip((q, k), theirs, strict=True):
        got = rotate(x, cos, sin, pairing=rope.pairing, order="heads_time")
        # Angles in float64 there, rounded to float32 once; two products and a sum.
        assert float((got - want).abs().max()) <= 8 * 2.0**-24 * float(x.abs().max())
