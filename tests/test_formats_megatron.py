"""Megatron's arguments, as flags and as files, and the formats that grew from them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ropewalk import InputError, Linear, Llama3, LongRoPE, Plain, Rope, YaRN
from ropewalk.models.flat_format import read_flat
from ropewalk.models.megatron_formats import MEGATRON
from ropewalk.models.read import read, read_any, read_text

SIZES = (
    "--num-layers 4 --hidden-size 4096 --num-attention-heads 32 --num-query-groups 8 "
    "--max-position-embeddings 8192"
)
ROPE = f"{SIZES} --position-embedding-type rope --rotary-base 500000"


def refuse(text):
    with pytest.raises(InputError) as caught:
        read_text(text)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("command line: ")
    return message


def scaling(text):
    return read_text(text).rope.scaling


def test_plain():
    plan = read_text(ROPE)
    assert plan.format == "megatron"
    assert {layer.rope for layer in plan.layers} == {
        Rope(head_dim=128, theta=500000.0, scaling=Plain(original_length=8192))
    }
    assert (plan.heads, plan.kv_heads) == (32, 8)
    assert plan.sources["theta"].source == "command line: rotary_base"


def test_the_same_from_a_script_json_and_nested_yaml(tmp_path):
    plan = read_text(ROPE)
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/bash\n# a comment\npython pretrain_gpt.py \\\n  " + ROPE + "\n")
    values = {
        "num_layers": 4, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8,
        "max_position_embeddings": 8192, "position_embedding_type": "rope", "rotary_base": 500000,
    }  # fmt: skip
    (tmp_path / "args.json").write_text(json.dumps(values))
    lines = "".join(f"  {key}: {value}\n" for key, value in values.items())
    (tmp_path / "nemo.yaml").write_text(f"name: megatron_gpt\nmodel:\n{lines}")
    for name in ("train.sh", "args.json", "nemo.yaml"):
        found = read(tmp_path / name)
        assert found.layers == plan.layers, name
        assert found.stated_length == 8192


def test_base_written_as_a_power(tmp_path):
    # YAML 1.1 takes 1e6 for a text.
    path = tmp_path / "nemo.yml"
    path.write_text(
        "hidden_size: 64\nnum_attention_heads: 4\nnum_layers: 1\nrotary_base: 1e6\n"
        "position_embedding_type: rope\n"
    )
    assert read(path).rope.theta == 1e6


@pytest.mark.parametrize(
    ("flags", "pairing", "lanes"),
    [
        ("", "half", 128),
        ("--rotary-interleaved", "adjacent", 128),
        ("--rotary-percent 0.5", "half", 64),
        ("--use-glm-rope --rotary-percent 0.5", "adjacent", 64),
    ],
)
def test_pairing_and_share(flags, pairing, lanes):
    rope = read_text(f"{ROPE} {flags}").rope
    assert (rope.pairing, rope.rotary_dim) == (pairing, lanes)


def test_old_switch_stands_for_rope():
    plan = read_text(f"{SIZES} --use-rotary-position-embeddings --no-position-embedding")
    assert plan.rope.theta == 10000.0


def test_no_type_means_learned_positions():
    text = refuse(f"{SIZES} --rotary-base 150000 --rotary-percent 1.0")
    assert "position_embedding_type: got nothing beside rotary_base" in text
    assert "learned absolute positions" in text


def test_none_is_no_rope_at_all():
    plan = read_text(f"{SIZES} --position-embedding-type none")
    assert [layer.rope for layer in plan.layers] == [None] * 4


def test_another_type_is_refused():
    text = f"{SIZES} --position-embedding-type deepseek4"
    assert "'deepseek4' positions" in refuse(text)
    text = refuse(f"{text} --rope-factor 16 --rope-scaling-factor 40")
    assert "rope_factor: got 16 there and 40 under rope_scaling_factor" in text


def test_llama3_flags():
    assert scaling(f"{ROPE} --use-rope-scaling --rope-scaling-factor 32") == Llama3(
        factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192
    )
    plan = read_text(f"{ROPE} --use-rope-scaling --rotary-scaling-factor 16")
    assert plan.rope.scaling.factor == 8
    assert any("rotary_scaling_factor is that of YaRN" in note for note in plan.notes)


def test_interpolation():
    assert scaling(f"{ROPE} --rotary-seq-len-interpolation-factor 4") == Linear(factor=4.0)
    assert scaling(f"{ROPE} --rotary-seq-len-interpolation-factor 1") == Plain(original_length=8192)


def test_yarn_of_gpt_oss():
    plan = read_text(
        "--num-layers 4 --hidden-size 2880 --num-attention-heads 64 --num-query-groups 8 "
        "--kv-channels 64 --position-embedding-type yarn --rotary-base 150000 "
        "--rotary-scaling-factor 32.0 --yarn-original-max-position-embeddings 4096 "
        "--yarn-beta-fast 32.0 --yarn-beta-slow 1.0 --mscale 1.0 --mscale-all-dim 0.0 "
        "--window-size 127,0 --window-attn-skip-freq 2 --max-position-embeddings 40960"
    )
    assert plan.rope.scaling == YaRN(factor=32.0, original_length=4096)
    assert plan.rope.attention_factor() == pytest.approx(0.1 * math.log(32) + 1, rel=1e-15)
    # 127 tokens back and the query itself.
    assert [layer.window for layer in plan.layers] == [128, None, 128, None]


def test_yarn_without_rounding_and_with_its_own_mscale():
    flags = "--position-embedding-type yarn --rotary-scaling-factor 4"
    found = scaling(f"{SIZES} {flags} --yarn-correction-range-round-to-int false")
    assert found.truncate is False
    assert found.original_length == 4096  # Megatron's default, not the stated length
    found = scaling(f"{SIZES} {flags} --mscale 2.0")
    assert found.amplitude() == pytest.approx(0.2 * math.log(4) + 1, rel=1e-15)


def test_latent_attention_has_yarn_unless_told_otherwise():
    sizes = (
        "--num-layers 2 --hidden-size 7168 --num-attention-heads 64 --multi-latent-attention "
        "--v-head-dim 128 --qk-head-dim 128 --qk-pos-emb-head-dim 64 "
        "--max-position-embeddings 131072 --position-embedding-type rope"
    )
    plan = read_text(f"{sizes} --rotary-scaling-factor 32 --mscale 1.0 --mscale-all-dim 1.0")
    rope = plan.rope
    assert (rope.head_dim, rope.rotary_dim, rope.rotary_offset) == (192, 64, 128)
    assert rope.pairing == "adjacent"  # Megatron reorders the lanes itself while running
    assert (rope.scaling.factor, rope.attention_factor()) == (32, 1)
    expected = (0.1 * math.log(32) + 1) ** 2
    assert plan.layers[0].softmax_multiplier == pytest.approx(expected, rel=1e-15)
    assert scaling(sizes).factor == 40
    assert isinstance(scaling(f"{sizes} --rope-type rope"), Plain)


def test_mindspeed_scalings():
    yarn = (
        f"{ROPE} --rope-scaling-type yarn --rope-scaling-factor 40 --rope-scaling-mscale 1.0 "
        "--rope-scaling-original-max-position-embeddings 4096 --beta-fast 16"
    )
    assert scaling(yarn) == YaRN(factor=40.0, original_length=4096, beta_fast=16.0)
    assert "scaling 'plm'" in refuse(f"{ROPE} --rope-scaling-type plm")
    text = refuse(f"{yarn} --rope-factor 16")
    assert "rope_factor: got 16 there and 40 under rope_scaling_factor" in text
    lists = ",".join(["1.5"] * 64)
    found = scaling(
        f"{ROPE} --rope-scaling-type longrope --short-factor {lists} --long-factor {lists} "
        "--rope-scaling-original-max-position-embeddings 4096 --short-mscale 1.24 "
        "--long-mscale 1.24"
    )
    assert found == LongRoPE(
        short_factor=(1.5,) * 64, long_factor=(1.5,) * 64, original_length=4096,
        short_mscale=1.24, long_mscale=1.24,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "without"),
    [
        ("4", [3]),
        ("2", [1, 3]),
        ("[0,0,0,1]", [3]),
        ("([0]*3+[1]*1)*1", [3]),
        ("([1]+[0])*2", [0, 2]),
    ],
)
def test_no_rope_freq_counts_layers_without(pattern, without):
    """Here 1 means no rope, the opposite of transformers' no_rope_layers."""
    plan = read_text(f"{ROPE} --no-rope-freq '{pattern}'")
    assert [layer.index for layer in plan.layers if layer.rope is None] == without


@pytest.mark.parametrize("pattern", ["[0,1]", "([0]*999999999)", "__import__('os')", "[2,0,0,0]"])
def test_bad_patterns_are_refused(pattern):
    assert "no_rope_freq" in refuse(f'{ROPE} --no-rope-freq "{pattern}"')


def test_linear_attention_layers():
    plan = read_text(
        f"{SIZES} --kv-channels 256 --full-attention-interval 4 --partial-rotary-factor 0.25 "
        "--position-embedding-type rope"
    )
    assert [layer.rope is None for layer in plan.layers] == [True, True, True, False]
    assert plan.rope.rotary_dim == 64


def test_placeholders_of_scripts():
    text = ROPE.replace("--num-layers 4", "--num-layers ${LAYERS}")
    plan = read_text(text)
    assert "num_layers is the placeholder ${LAYERS}: unknown" in plan.notes
    assert any("number of layers is not in the file" in note for note in plan.notes)
    message = refuse(ROPE.replace("500000", "${BASE}"))
    assert "rotary_base: got the placeholder ${BASE}" in message


def test_training_length_stands_in_and_is_noted():
    text = ROPE.replace("--max-position-embeddings 8192", "--seq-length 4096")
    assert read_text(text).stated_length == 4096
    plan = read_text(f"{ROPE} --seq-length 4096")
    assert plan.stated_length == 8192
    assert any("texts of 4096 tokens and states 8192" in note for note in plan.notes)


def test_flags_of_nemo(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({"model": {
        "num_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "encoder_seq_length": 2048,
        "position_embedding_type": "rope", "rotary_percentage": 0.5, "rotary_interleaved": True,
        "seq_len_interpolation_factor": 2,
    }}))  # fmt: skip
    plan = read(tmp_path / "c.json")
    assert plan.rope == Rope(
        head_dim=64, rotary_dim=32, pairing="adjacent", scaling=Linear(factor=2.0)
    )
    assert plan.stated_length == 2048


NEOX = {
    "num-layers": 2, "hidden-size": 768, "num-attention-heads": 12, "seq-length": 2048,
    "max-position-embeddings": 2048, "pos-emb": "rotary", "rotary-pct": 0.25,
}  # fmt: skip


def test_gpt_neox(tmp_path):
    path = tmp_path / "neox.yml"
    path.write_text(json.dumps(NEOX))
    plan = read(path)
    assert plan.format == "gpt-neox"
    assert plan.rope == Rope(head_dim=64, rotary_dim=16, scaling=Plain(original_length=2048))
    path.write_text(json.dumps({**NEOX, "sliding-window-width": 512, "rotary-emb-base": 50000}))
    plan = read(path)
    assert (plan.layers[0].window, plan.rope.theta) == (512, 50000)


def test_gpt_neox_without_pos_emb_has_no_rope(tmp_path):
    """RWKV's file: rotary_pct stands there, and nothing rotates."""
    values = {key: value for key, value in NEOX.items() if key != "pos-emb"}
    (tmp_path / "rwkv.yml").write_text(json.dumps(values))
    with pytest.raises(InputError, match="nothing beside rotary_pct, and GPT-NeoX's default"):
        read_any(tmp_path / "rwkv.yml")


MROPE = ROPE.replace("type rope", "type mrope")


def test_sections_are_the_axes_of_megatrons_multimodal_rope():
    """``MultimodalRotaryEmbedding``: the doubled table is cut into the sections, twice over."""
    plan = read_text(f"{MROPE} --mrope-section 16 24 24")
    axes = plan.layers[0].axes
    assert axes.axes == ("time", "height", "width")
    assert axes.plane_axes.tolist() == [0] * 16 + [1] * 24 + [2] * 24
    assert axes.on_text() == plan.rope
    # Its formula, written out: split the table of 128 lanes by the sections twice, axis i % 3.
    owners = np.concatenate([[i % 3] * n for i, n in enumerate([16, 24, 24] * 2)])
    for plane in range(64):
        for lane in axes.lanes(plane):
            assert owners[lane] == axes.plane_axes[plane]
    assert plan.sources["mrope_section"].source == "command line: mrope_section"
    listed = {
        "num_layers": 2, "hidden_size": 4096, "num_attention_heads": 32, "rotary_base": 500000,
        "position_embedding_type": "mrope", "mrope_section": [16, 24, 24],
    }  # fmt: skip
    assert read_flat(listed, "args", MEGATRON).layers[0].axes.planes == axes.planes


def test_sections_that_have_no_axes():
    assert read_text(MROPE).layers[0].axes is None
    assert "axes of images and video are unknown" in " ".join(read_text(MROPE).notes)
    unused = read_text(f"{ROPE} --mrope-section 16 24 24")
    assert unused.layers[0].axes is None
    assert "mrope_section is not used" in " ".join(unused.notes)
    assert "add up to the 64 planes" in refuse(f"{MROPE} --mrope-section 16 24 25")
    assert "add up to" in refuse(f"{MROPE} --mrope-section a,b")
    assert "sections with interleaved lanes" in refuse(
        f"{MROPE} --mrope-section 16 24 24 --rotary-interleaved"
    )
