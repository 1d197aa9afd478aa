"""params.json of Meta and Mistral, gpt-oss's, DeepSeek's and other programs' files."""

from __future__ import annotations

import json
import math

import pytest

from ropewalk import InputError, Linear, Llama3, Plain, Rope, YaRN
from ropewalk.models.fragment import Fragment
from ropewalk.models.plan import QueryTemperature
from ropewalk.models.read import read, read_any

LLAMA2 = {
    "dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-5,
    "vocab_size": -1,
}  # fmt: skip
LLAMA31 = {
    "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256,
    "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "norm_eps": 1e-05, "rope_theta": 500000.0,
    "use_scaled_rope": True,
}  # fmt: skip
LLAMA4 = {
    "dim": 5120, "n_layers": 48, "n_heads": 40, "n_kv_heads": 8, "rope_theta": 500000.0,
    "use_scaled_rope": True, "rope_scaling_factor": 16.0, "rope_high_freq_factor": 1.0,
    "nope_layer_interval": 4, "attention_chunk_size": 8192, "attn_temperature_tuning": True,
    "multiple_of": 2048,
}  # fmt: skip
MISTRAL = {
    "dim": 4096, "n_layers": 4, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32,
    "n_kv_heads": 8, "rope_theta": 1e6, "norm_eps": 1e-5, "vocab_size": 32768,
}  # fmt: skip
GPT_OSS = {
    "num_hidden_layers": 24, "num_experts": 32, "vocab_size": 201088, "hidden_size": 2880,
    "swiglu_limit": 7.0, "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
    "sliding_window": 128, "initial_context_length": 4096, "rope_theta": 150000,
    "rope_scaling_factor": 32.0, "rope_ntk_alpha": 1, "rope_ntk_beta": 32,
}  # fmt: skip


def put(folder, values, name="params.json"):
    path = folder / name
    path.write_text(json.dumps(values))
    return path


def of(folder, values):
    return read(put(folder, values))


def refuse(folder, values):
    with pytest.raises(InputError) as caught:
        read_any(put(folder, values))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_llama_2_has_no_base(tmp_path):
    plan = read(put(tmp_path, LLAMA2).parent)  # the folder alone
    assert plan.format == "meta"
    assert plan.rope == Rope(head_dim=128, theta=10000.0, pairing="adjacent", scaling=Plain())
    assert plan.sources["theta"].source == "default of Meta's llama-models"
    assert any("no base in the file; assumed 10000" in note for note in plan.notes)
    assert (plan.stated_length, plan.original_length, plan.kv_heads) == (None, None, 32)


def test_llama_31_is_scaled(tmp_path):
    plan = of(tmp_path, LLAMA31)
    assert plan.rope.scaling == Llama3(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192
    )
    assert (plan.rope.theta, plan.rope.pairing, plan.kv_heads) == (500000.0, "adjacent", 8)
    assert plan.sources["scaling"].source == "params.json: use_scaled_rope"
    assert any("assumed 8" in note and "32" in note for note in plan.notes)


def test_llama_3_without_the_switch_is_not(tmp_path):
    plan = of(tmp_path, {**LLAMA31, "use_scaled_rope": False})
    assert plan.rope.scaling == Plain()


def test_llama_4_interval_chunks_and_temperature(tmp_path):
    plan = of(tmp_path, LLAMA4)
    without = [layer.index for layer in plan.layers if layer.rope is None]
    assert without == list(range(3, 48, 4))
    assert plan.layers[0].kind == "chunked_attention"
    assert plan.layers[0].window == 8192
    assert plan.layers[3].kind == "full_attention"
    assert plan.layers[3].query_temperature == QueryTemperature(0.1, 8192, offset=1)
    assert plan.layers[0].query_temperature is None
    assert plan.rope.scaling == Llama3(
        factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_length=8192
    )


def test_arcee_cannot_be_told(tmp_path):
    plan = of(tmp_path, {
        "dim": 2560, "n_layers": 36, "n_heads": 20, "n_kv_heads": 4, "rope_theta": 10000.0,
        "use_scaled_rope": True, "rope_scaling_factor": 20, "model_type": "arcee",
    })  # fmt: skip
    assert plan.rope.scaling.factor == 20
    assert any("YaRN" in note and "cannot tell" in note for note in plan.notes)


def test_mistral_plain_and_windowed(tmp_path):
    plan = of(tmp_path, {**MISTRAL, "sliding_window": 4096, "max_seq_len": 32768})
    assert plan.format == "mistral"
    assert plan.rope == Rope(
        head_dim=128, theta=1e6, pairing="adjacent", scaling=Plain(original_length=32768)
    )
    assert {layer.window for layer in plan.layers} == {4096}


def test_mistral_alpha_is_slow_and_beta_fast(tmp_path):
    yarn = {"factor": 16, "original_max_position_embeddings": 16384, "beta": 30, "alpha": 2}
    plan = of(tmp_path, {**MISTRAL, "yarn": yarn})
    assert plan.rope.scaling == YaRN(
        factor=16.0, original_length=16384, beta_fast=30.0, beta_slow=2.0
    )
    assert plan.rope.attention_factor() == pytest.approx(0.1 * math.log(16) + 1, rel=1e-15)


def test_mistral_large_3_has_frequencies_without_magnitude(tmp_path):
    found = read_any(put(tmp_path, {
        "yarn": {
            "factor": 36, "beta": 32, "alpha": 1, "original_max_position_embeddings": 8192,
            "apply_scale": False,
        },
        "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192},
    }))  # fmt: skip
    assert isinstance(found, Fragment)
    assert found.missing == "head sizes"
    assert found.scaling == YaRN(factor=36.0, original_length=8192, attention_factor=1.0)
    assert found.values["query_temperature"].value == 0.1
    with pytest.raises(InputError, match="mistral settings without head sizes"):
        read(tmp_path / "params.json")


def test_mistral_4_has_latent_attention_and_temperature(tmp_path):
    plan = of(tmp_path, {
        "dim": 4096, "n_layers": 2, "n_heads": 32, "head_dim": 128, "n_kv_heads": 32,
        "rope_theta": 10000.0, "max_position_embeddings": 1048576, "q_lora_rank": 1024,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "kv_lora_rank": 256, "v_head_dim": 128,
        "yarn": {
            "factor": 128.0, "original_max_position_embeddings": 8192, "beta": 32.0, "alpha": 1.0,
        },
        "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192},
        "moe": {"num_experts": 128},
    })  # fmt: skip
    rope = plan.rope
    assert (rope.head_dim, rope.rotary_dim, rope.rotary_offset) == (128, 64, 64)
    assert rope.scaling.factor * rope.original_length == plan.stated_length == 1048576
    assert {layer.query_temperature for layer in plan.layers} == {QueryTemperature(0.1, 8192)}


def test_gpt_oss_original(tmp_path):
    plan = of(tmp_path, GPT_OSS)
    assert plan.format == "gpt-oss"
    scaling = YaRN(factor=32.0, original_length=4096, truncate=False)
    assert plan.rope == Rope(head_dim=64, theta=150000.0, scaling=scaling)
    assert plan.stated_length == 131072
    assert [layer.window for layer in plan.layers[:4]] == [128, None, 128, None]
    assert plan.rope.attention_factor() == pytest.approx(0.1 * math.log(32) + 1, rel=1e-15)


def test_gpt_oss_alpha_is_slow_and_beta_fast(tmp_path):
    plan = of(tmp_path, {**GPT_OSS, "rope_ntk_alpha": 2, "rope_ntk_beta": 20})
    assert (plan.rope.scaling.beta_slow, plan.rope.scaling.beta_fast) == (2, 20)


def test_deepseek_native_has_yarn_by_default(tmp_path):
    plan = of(tmp_path, {
        "dim": 2048, "n_layers": 27, "n_heads": 16, "q_lora_rank": 0, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mscale": 0.707,
    })  # fmt: skip
    rope = plan.rope
    assert plan.format == "deepseek"
    assert (rope.rotary_dim, rope.rotary_offset, rope.pairing) == (64, 128, "adjacent")
    assert (rope.scaling.factor, rope.original_length) == (40, 4096)
    assert rope.attention_factor() == 1
    expected = (0.1 * 0.707 * math.log(40) + 1) ** 2
    assert plan.layers[0].softmax_multiplier == pytest.approx(expected, rel=1e-15)
    assert any("the file has no rope keys" in note for note in plan.notes)


def test_deepseek_native_within_the_original_length(tmp_path):
    plan = of(tmp_path, {
        "dim": 2048, "n_layers": 2, "n_heads": 16, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "max_seq_len": 4096,
    })  # fmt: skip
    assert plan.rope.scaling == Plain(original_length=4096)


def test_executorch_pairing_follows_its_switch(tmp_path):
    base = {"dim": 3072, "n_heads": 24, "n_kv_heads": 8, "n_layers": 4, "rope_theta": 1e4}
    half = of(tmp_path, {**base, "use_hf_rope": True, "partial_rotary_factor": 0.75})
    assert half.format == "executorch"
    assert (half.rope.pairing, half.rope.rotary_dim, half.rope.head_dim) == ("half", 96, 128)
    adjacent = of(tmp_path, {**base, "use_hf_rope": False, "no_rope_layer_interval": 4})
    assert adjacent.rope.pairing == "adjacent"
    assert adjacent.layers[3].rope is None
    assert adjacent.sources["pairing"].source == "params.json: use_hf_rope"


def test_executorch_layer_types_in_its_own_words(tmp_path):
    base = {
        "dim": 2304, "n_heads": 8, "head_dim": 256, "n_kv_heads": 4, "n_layers": 4,
        "rope_theta": 1e6, "use_hf_rope": True, "sliding_window": 4096,
        "local_rope_theta": 10000.0,
    }  # fmt: skip
    plan = of(tmp_path, {**base, "layer_types": ["local", "global", "local", "global"]})
    assert [layer.window for layer in plan.layers] == [4096, None, 4096, None]
    assert [layer.rope.theta for layer in plan.layers] == [1e4, 1e6, 1e4, 1e6]
    text = refuse(tmp_path, {**base, "layer_types": ["local", "global", "local"]})
    assert "layer_types: got 3 entries, expected 4" in text
    text = refuse(tmp_path, {**base, "layer_types": ["local", "globl", "local", "global"]})
    assert "did you mean 'global'?" in text


def test_local_layers_that_cannot_be_told(tmp_path):
    found = read_any(put(tmp_path, {
        "dim": 1152, "n_heads": 4, "head_dim": 256, "n_kv_heads": 1, "n_layers": 26,
        "rope_theta": 1e6, "local_rope_theta": 10000.0, "use_hf_rope": True,
    }))  # fmt: skip
    assert isinstance(found, Fragment)
    assert found.missing == "a way to tell which layers are local"
    assert found.values["theta (sliding_attention)"].value == 10000.0


def test_torchchat_in_both_forms(tmp_path):
    plan = of(tmp_path, {
        "block_size": 131072, "dim": 2048, "n_layers": 2, "n_heads": 32, "n_local_heads": 8,
        "rope_base": 500000.0, "rope_scaling": {
            "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    })  # fmt: skip
    assert plan.format == "torchchat"
    assert (plan.rope.scaling.factor, plan.rope.head_dim, plan.stated_length) == (32, 64, 131072)
    nested = of(tmp_path, {"model_type": "llama3_1", "text": {
        "num_layers": 2, "num_heads": 32, "num_kv_heads": 8, "embed_dim": 4096,
        "max_seq_len": 8192, "rope_base": 500000.0,
    }})  # fmt: skip
    assert nested.rope.scaling.factor == 8
    assert any("implied by model_type" in note for note in nested.notes)


LITGPT = {
    "name": "x", "block_size": 4096, "n_layer": 2, "n_head": 8, "n_embd": 512,
    "n_query_groups": 2, "rotary_percentage": 1.0, "rope_base": 1e6,
}  # fmt: skip


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, Plain(original_length=4096)),
        ({"rope_condense_ratio": 8}, Linear(factor=8.0)),
        ({"rope_adjustments": {"factor": 8.0}}, Linear(factor=8.0)),
        (
            {
                "rope_adjustments": {
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_seq_len": 8192,
                }
            },
            Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192),
        ),
    ],
)
def test_litgpt_scalings(tmp_path, extra, expected):
    plan = of(tmp_path, {**LITGPT, **extra})
    assert plan.format == "litgpt"
    assert plan.rope.scaling == expected
    assert plan.rope.head_dim == plan.rope.rotary_dim == 64


def test_litgpt_indices_tell_the_local_layers(tmp_path):
    plan = of(tmp_path, {
        **LITGPT, "rope_local_base_freq": 1e4, "sliding_window_size": 64, "rope_indices": [1, 0],
    })  # fmt: skip
    assert [layer.rope.theta for layer in plan.layers] == [1e4, 1e6]
    assert [layer.window for layer in plan.layers] == [64, None]
    stretched = of(tmp_path, {
        **LITGPT, "rope_local_base_freq": 1e4, "sliding_window_size": 64, "rope_indices": [1, 0],
        "rope_adjustments": {"factor": 8.0},
    })  # fmt: skip
    assert [layer.rope.scaling for layer in stretched.layers] == [
        Plain(original_length=4096), Linear(factor=8.0),
    ]  # fmt: skip


def test_litgpt_turns_a_quarter_by_default(tmp_path):
    values = {key: value for key, value in LITGPT.items() if key != "rotary_percentage"}
    assert of(tmp_path, values).rope.rotary_dim == 16


def test_wrong_values_are_refused_by_name(tmp_path):
    assert "n_heads: got -3, expected a whole number above 0" in refuse(
        tmp_path, {**LLAMA31, "n_heads": -3}
    )
    assert "rope_theta: got 'big', expected a number" in refuse(
        tmp_path, {**LLAMA31, "rope_theta": "big"}
    )
    assert "expected a positive number" in refuse(tmp_path, {**LLAMA31, "rope_theta": -1.0})
    assert "use_scaled_rope: got 7, expected true or false" in refuse(
        tmp_path, {**LLAMA31, "use_scaled_rope": 7}
    )
    assert "dim: got 4095, which 32 heads do not divide" in refuse(
        tmp_path, {**LLAMA31, "dim": 4095}
    )
    assert "5 key and value heads for 32 query heads" in refuse(
        tmp_path, {**LLAMA31, "n_kv_heads": 5}
    )
    assert "yarn.factor: got nothing" in refuse(
        tmp_path, {**MISTRAL, "yarn": {"original_max_position_embeddings": 8192}}
    )
    assert "at most 2048" in refuse(tmp_path, {**LLAMA31, "n_layers": 10**9})
    text = refuse(tmp_path, {**LLAMA31, "rope_theta": 1e4, "rope-theta": 1e6})
    assert "rope_theta: got the key twice" in text


def test_unread_positional_keys_are_named(tmp_path):
    plan = of(tmp_path, {**LLAMA31, "rope_magic": 3})
    assert "rope_magic is not read here" in plan.notes
