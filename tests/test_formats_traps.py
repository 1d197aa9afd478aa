"""Same name, different meaning: the twelve traps, and the spellings of one meaning."""

from __future__ import annotations

import json
import math

import gguf
import numpy as np
import pytest

from ropewalk import DynamicNTK, Linear, LongRoPE, Proportional, Rope, YaRN
from ropewalk.models import read
from ropewalk.models.read import read_any, read_text

LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4,
    "num_key_value_heads": 8, "max_position_embeddings": 32768, "rope_theta": 10000.0,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
MEGATRON = (
    "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --max-position-embeddings 32768"
)
PARAMS = {"dim": 1024, "n_layers": 4, "n_heads": 8, "multiple_of": 256}


def hf(folder, **changes):
    (folder / "config.json").write_text(json.dumps({**LLAMA, **changes}))
    return read(folder / "config.json")


def params(folder, **changes):
    (folder / "params.json").write_text(json.dumps({**PARAMS, **changes}))
    return read(folder / "params.json")


def gguf_file(folder, tensors=None, architecture="llama", **values):
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    keys = {
        "block_count": 4, "context_length": 32768, "embedding_length": 1024,
        "attention.head_count": 8, "rope.freq_base": 10000.0, **values,
    }  # fmt: skip
    for key, value in keys.items():
        add = {float: writer.add_float32, int: writer.add_uint32, str: writer.add_string}
        add[type(value)](f"{architecture}.{key}", value)
    for name, data in (tensors or {}).items():
        writer.add_tensor(name, np.asarray(data, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read(path)


def amplitude(factor, slope=1.0):
    return 0.1 * slope * math.log(factor) + 1


def test_1_attn_factor_multiplies_where_attention_factor_replaces(tmp_path):
    own = pytest.approx(amplitude(4), rel=1e-15)
    plan = hf(tmp_path, rope_scaling={**YARN, "attn_factor": 0.5})
    assert plan.rope.attention_factor() == own  # transformers ignores attn_factor
    assert any("attn_factor is not used: it is not attention_factor" in n for n in plan.notes)
    plan = hf(tmp_path, rope_scaling={**YARN, "attention_factor": 0.5})
    assert plan.rope.attention_factor() == 0.5
    keys = {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 8192,
    }  # fmt: skip
    plan = gguf_file(tmp_path, **keys, **{"rope.scaling.attn_factor": 0.5})
    assert plan.rope.attention_factor() == pytest.approx(0.5 * amplitude(4), rel=1e-12)
    plan = gguf_file(tmp_path, **keys, **{"rope.scaling.yarn_attn_factor": 0.5})
    assert plan.rope.attention_factor() == own  # llama.cpp overwrites it
    found = read_text("--rope-scaling yarn --rope-scale 4 --yarn-attn-factor 0.5")
    assert any("has no effect" in note for note in found.notes)


def test_2_alpha_is_the_slow_bound_or_an_ntk_factor(tmp_path):
    yarn = {"factor": 4.0, "original_max_position_embeddings": 8192, "alpha": 2, "beta": 16}
    plan = params(tmp_path, head_dim=128, yarn=yarn)
    assert (plan.rope.scaling.beta_slow, plan.rope.scaling.beta_fast) == (2, 16)
    values = {
        "num_hidden_layers": 2, "hidden_size": 1024, "num_attention_heads": 8,
        "initial_context_length": 4096, "rope_scaling_factor": 32.0, "rope_ntk_alpha": 2,
        "rope_ntk_beta": 16,
    }  # fmt: skip
    (tmp_path / "oss.json").write_text(json.dumps(values))
    scaling = read(tmp_path / "oss.json").rope.scaling
    assert (scaling.beta_slow, scaling.beta_fast) == (2, 16)
    alpha = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    plan = hf(tmp_path, model_type="hunyuan_v1_dense", head_dim=128, rope_scaling=alpha)
    slowest = plan.rope.inv_freq()[-1]
    expected = Rope(head_dim=128, theta=10000.0 * 1000.0 ** (128 / 126)).inv_freq()[-1]
    assert slowest == pytest.approx(expected, rel=1e-12)


def test_3_factor_wins_over_the_ratio_of_lengths(tmp_path):
    plan = hf(tmp_path, rope_scaling={**YARN, "factor": 2.0})
    assert plan.rope.scaling.factor == 2
    assert any("disagree; the factor is used" in note for note in plan.notes)
    plan = hf(tmp_path, rope_scaling={k: v for k, v in YARN.items() if k != "factor"})
    assert plan.rope.scaling.factor == 4


def test_4_a_missing_original_length(tmp_path):
    block = {"rope_type": "yarn", "factor": 4.0}
    assert hf(tmp_path, rope_scaling=block).original_length == 32768  # max_position_embeddings
    keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    assert gguf_file(tmp_path, **keys).original_length == 32768  # context_length
    flags = "--position-embedding-type yarn --rotary-scaling-factor 4"
    assert read_text(f"{MEGATRON} {flags}").original_length == 4096  # Megatron's default
    assert read_text("--rope-scaling yarn --rope-scale 4").scaling is None  # that of the model


def test_5_scale_is_a_factor_or_its_inverse():
    for text in (
        "llama-server --rope-scale 4",
        "llama-server --rope-freq-scale 0.25",
        "koboldcpp --ropeconfig 0.25 10000",
        "FROM x\nPARAMETER rope_frequency_scale 0.25",
    ):
        assert read_text(text).scaling == Linear(factor=4.0), text


def test_6_frequency_factors_divide(tmp_path):
    divisors = np.linspace(1, 8, 64).astype(np.float32)
    plan = gguf_file(tmp_path, tensors={"rope_freqs.weight": divisors})
    plain = Rope(head_dim=128).inv_freq()
    assert np.allclose(plan.rope.inv_freq() * divisors, plain, rtol=2**-22, atol=0)


def test_7_one_means_rope_or_none(tmp_path):
    plan = hf(tmp_path, model_type="smollm3", no_rope_layers=[1, 1, 1, 0])
    assert [layer.rope is not None for layer in plan.layers] == [True, True, True, False]
    plan = read_text(f"{MEGATRON} --position-embedding-type rope --no-rope-freq [1,1,1,0]")
    assert [layer.rope is not None for layer in plan.layers] == [False, False, False, True]


def test_8_dynamic_grows_or_stands(tmp_path):
    plan = hf(tmp_path, rope_scaling={"type": "dynamic", "factor": 2.0})
    assert plan.rope.scaling == DynamicNTK(factor=2.0, original_length=32768)
    short, long = plan.rope.inv_freq(32768)[-1], plan.rope.inv_freq(65536)[-1]
    assert short == Rope(head_dim=128).inv_freq()[-1]
    assert long < short
    alpha = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    plan = hf(tmp_path, model_type="hunyuan_v1_dense", head_dim=128, rope_scaling=alpha)
    assert plan.rope.inv_freq(64)[-1] == plan.rope.inv_freq(10**6)[-1] < short


def test_9_yarn_in_phi3_is_longrope(tmp_path):
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    plan = hf(
        tmp_path,
        model_type="phi3",
        original_max_position_embeddings=4096,
        rope_scaling={"type": "yarn", **lists},
    )
    assert isinstance(plan.rope.scaling, LongRoPE)
    assert any("'yarn' means 'longrope' here" in note for note in plan.notes)


def test_10_mscale_alone(tmp_path):
    plan = hf(tmp_path, rope_scaling={**YARN, "mscale": 2.0})
    assert plan.rope.attention_factor() == pytest.approx(amplitude(4), rel=1e-15)
    assert any("mscale alone does not change" in note for note in plan.notes)
    plan = hf(tmp_path, rope_scaling={**YARN, "mscale": 2.0, "mscale_all_dim": 1.0})
    expected = amplitude(4, 2.0) / amplitude(4, 1.0)
    assert plan.rope.attention_factor() == pytest.approx(expected, rel=1e-15)
    flags = "--position-embedding-type yarn --rotary-scaling-factor 4 --mscale 2.0"
    found = read_text(f"{MEGATRON} {flags}").rope  # Megatron's all_dim is 0: a divisor of 1
    assert found.attention_factor() == pytest.approx(amplitude(4, 2.0), rel=1e-15)


def test_11_partial_under_proportional_keeps_the_denominator(tmp_path):
    kinds = ["sliding_attention", "full_attention"]
    blocks = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {
            "rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25,
        },
    }  # fmt: skip
    plan = hf(
        tmp_path, model_type="gemma4_text", num_hidden_layers=2, layer_types=kinds,
        head_dim=256, global_head_dim=512, sliding_window=512, rope_parameters=blocks,
        num_key_value_heads=1, rope_theta=None,
    )  # fmt: skip
    rope = plan.layers[1].rope
    assert isinstance(rope.scaling, Proportional)
    found = rope.inv_freq()
    assert found[1] == pytest.approx(1e6 ** (-2 / 512), rel=1e-15)
    assert (found[64:] == 0).all()
    partial = hf(tmp_path, model_type="glm4", head_dim=512, partial_rotary_factor=0.25).rope
    assert partial.inv_freq()[1] == pytest.approx(1e4 ** (-2 / 128), rel=1e-15)


def test_12_sections_count_planes(tmp_path):
    block = {"type": "mrope", "mrope_section": [16, 24, 24]}
    plan = hf(tmp_path, model_type="qwen2_vl", rope_scaling=block)
    assert sum(plan.sources["mrope_section"].value) == plan.rope.planes == 64


THETAS = {
    "hf, in the block": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "hf, at the top": {"rope_theta": 5e5},
    "gpt_neox": {"model_type": "gpt_neox", "rotary_emb_base": 500000, "rotary_pct": 1.0},
    "chatglm": {
        "model_type": "chatglm", "rope_ratio": 50, "kv_channels": 128, "seq_length": 4096,
        "num_layers": 4, "multi_query_group_num": 2, "num_key_value_heads": None,
        "max_position_embeddings": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", THETAS)
def test_spellings_of_the_base_in_configs(tmp_path, name):
    assert hf(tmp_path, **{"rope_theta": None, **THETAS[name]}).rope.theta == 5e5


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"rope_theta": 5e5}, ""),
        ({"rope_base": 5e5}, ""),
        ({}, "--position-embedding-type rope --rotary-base 500000"),
    ],
)
def test_spellings_of_the_base_elsewhere(tmp_path, values, flag):
    plan = read_text(f"{MEGATRON} {flag}") if flag else params(tmp_path, **values)
    assert plan.rope.theta == 5e5


SHARES = {
    "partial_rotary_factor": {"model_type": "glm4", "partial_rotary_factor": 0.25},
    "in the block": {"model_type": "glm4", "rope_theta": None, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}},
    "rotary_pct": {"model_type": "gpt_neox", "rotary_pct": 0.25},
    "rotary_dim": {"model_type": "gptj", "rotary_dim": 32, "n_embd": 1024, "n_head": 8,
                   "n_layer": 2, "n_positions": 64},
}  # fmt: skip


@pytest.mark.parametrize("name", SHARES)
def test_spellings_of_the_share_in_configs(tmp_path, name):
    changes = {"head_dim": 128, **SHARES[name]} if "gptj" not in str(SHARES[name]) else {
        "hidden_size": None, "num_attention_heads": None, "num_hidden_layers": None,
        "num_key_value_heads": None, "max_position_embeddings": None, **SHARES[name],
    }  # fmt: skip
    if changes["model_type"] == "gpt_neox":
        changes.pop("head_dim")
    assert hf(tmp_path, **changes).rope.rotary_dim == 32


@pytest.mark.parametrize(
    "flag", ["--rotary-percent 0.25", "--rotary-percentage 0.25", "--partial-rotary-factor 0.25"]
)
def test_spellings_of_the_share_in_flags(flag):
    plan = read_text(f"{MEGATRON} --position-embedding-type rope {flag}")
    assert plan.rope.rotary_dim == 32


def test_spellings_of_yarn_are_one_rope(tmp_path):
    """The same YaRN in every format that can say it."""
    expected = YaRN(factor=4.0, original_length=8192)
    keys = {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 8192,
    }  # fmt: skip
    mistral = {"factor": 4.0, "original_max_position_embeddings": 8192, "alpha": 1, "beta": 32}
    flags = (
        "--position-embedding-type yarn --rotary-scaling-factor 4 "
        "--yarn-original-max-position-embeddings 8192"
    )
    maxtext = {
        "base_emb_dim": 1024, "base_num_query_heads": 8, "base_num_decoder_layers": 2,
        "rope_type": "yarn", "rope_factor": 4, "original_max_position_embeddings": 8192,
        "rope_attention_scaling": True,
    }  # fmt: skip
    (tmp_path / "maxtext.json").write_text(json.dumps(maxtext))
    (tmp_path / "base.json").write_text(json.dumps(LLAMA))
    found = {
        "hf": hf(tmp_path, rope_scaling=YARN),
        "hf, type": hf(tmp_path, rope_scaling={**YARN, "rope_type": None, "type": "yarn"}),
        "hf, deepseek_yarn": hf(tmp_path, rope_scaling={**YARN, "rope_type": "deepseek_yarn"}),
        "gguf": gguf_file(tmp_path, **keys),
        "mistral": params(tmp_path, yarn=mistral, head_dim=128),
        "megatron": read_text(f"{MEGATRON} {flags}"),
        "maxtext": read(tmp_path / "maxtext.json"),
        "llama.cpp": read_any(
            tmp_path / "base.json",
            engine_args="--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 8192",
        ),
        "vllm": read_any(
            tmp_path / "base.json",
            engine_args=f"--hf-overrides '{json.dumps({'rope_scaling': YARN})}'",
        ),
    }
    for name, plan in found.items():
        assert plan.rope.scaling == expected, name
