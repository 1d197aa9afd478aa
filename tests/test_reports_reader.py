"""Public reports of configs read wrongly, each with its right answer.

Every test names the report; numbers are those of the report, recomputed where it gave none.
"""

from __future__ import annotations

import math

import gguf
import numpy as np
import pytest

from ropewalk import InputError, Linear, Llama3, LongRoPE, Plain, Rope, YaRN
from ropewalk.models import read, read_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 131072,
}
LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# Reports give seven significant digits or six decimals.
WRITTEN = 5e-7


def rope_of(config: dict) -> Rope:
    rope = read_config(config, "config.json").rope
    assert rope is not None
    return rope


def refusal(config: dict) -> str:
    with pytest.raises(InputError) as caught:
        read_config(config, "config.json")
    return str(caught.value)


def test_old_key_type_is_an_alias():
    """huggingface/transformers#32167: KeyError 'rope_type' on older checkpoints."""
    config = {**LLAMA, "head_dim": 128, "rope_theta": 10000}
    plan = read_config({**config, "rope_scaling": {"type": "linear", "factor": 8.0}}, "config.json")
    plain = rope_of(config)
    assert np.array_equal(plan.rope.inv_freq(), plain.inv_freq() / 8)
    assert plan.rope.attention_factor() == 1.0
    assert sum("old spelling" in note for note in plan.notes) == 1


def test_llama31_has_five_keys_not_two():
    """meta-llama/llama3#299: "rope_scaling must be a dictionary with two fields"."""
    rope = rope_of({**LLAMA, "rope_theta": 500000, "rope_scaling": LLAMA31})
    assert rope.scaling == Llama3(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192
    )
    unknown = refusal({**LLAMA, "rope_scaling": {**LLAMA31, "rope_type": "llama9"}})
    assert "'llama9'" in unknown
    for scheme in ("linear", "dynamic", "yarn", "longrope", "llama3"):
        assert scheme in unknown


def test_truncate_is_known_and_a_typo_is_not():
    """huggingface/transformers PR 42189: truncate of gpt-oss was warned about though used."""
    block = {
        "rope_type": "yarn",
        "factor": 32,
        "truncate": False,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    }
    config = {"model_type": "gpt_oss", "rope_theta": 150000, "rope_scaling": block}
    plan = read_config(config, "config.json")
    assert not any("truncate" in note for note in plan.notes)
    low, high = plan.rope.scaling.correction_range(150000, 64)
    assert (low, high) == (pytest.approx(8.092779, rel=1e-6), pytest.approx(17.398031, rel=1e-6))
    typo = {**block, "fctor": block["factor"]}
    del typo["factor"]
    text = refusal({**config, "rope_scaling": typo})
    assert "rope_scaling.fctor" in text
    assert "did you mean 'factor'" in text


def test_both_spellings_of_the_scheme():
    """lablup/mlxcel PR 1385, 1386: scheme read from `type` only; both keys failed to parse."""
    new = rope_of({**LLAMA, "rope_scaling": LLAMA31})
    assert new.scaling.kind == "llama3"
    both = {"type": "linear", "rope_type": "linear", "factor": 8}
    assert rope_of({**LLAMA, "rope_scaling": both}).scaling == Linear(factor=8)
    assert "'yarn' there and 'linear' under type" in refusal(
        {**LLAMA, "rope_scaling": {**both, "rope_type": "yarn"}}
    )


def test_reference_length_is_not_the_table_size():
    """NVIDIA/Megatron-LM#1418: one field for table size and YaRN's reference length."""
    block = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
    config = {
        "model_type": "deepseek_v3",
        "rope_theta": 10000,
        "max_position_embeddings": 163840,
        "rope_scaling": block,
    }
    plan = read_config(config, "config.json")
    rope = plan.rope
    assert rope.rotary_dim == 64
    assert rope.scaling.correction_range(10000, 64) == (10, 23)
    assert (plan.original_length, plan.stated_length) == (4096, 163840)
    untruncated = rope_of({**config, "rope_scaling": {**block, "truncate": False}})
    low, high = untruncated.scaling.correction_range(10000, 64)
    assert (round(low, 3), round(high, 3)) == (10.472, 22.513)


def test_missing_theta_is_visible():
    """meta-pytorch/gpt-fast#179: gibberish for long prompts, base left at 10000."""
    right = rope_of({**LLAMA, "rope_theta": 500000})
    assert right.inv_freq()[1] == pytest.approx(0.814617, rel=1e-6)
    plan = read_config(LLAMA, "config.json")
    assert plan.rope.inv_freq()[1] == pytest.approx(0.865964, rel=1e-6)
    assert any("assumed 10000" in note for note in plan.notes)
    assert plan.sources["theta"].source == "default of transformers' LlamaConfig"


def test_partial_rotary_of_gpt_neox_japanese():
    """huggingface/transformers PR 48652: rotary_pct ignored, the table as wide as the head."""
    rope = rope_of(
        {
            "model_type": "gpt_neox_japanese",
            "hidden_size": 32,
            "num_attention_heads": 4,
            "rotary_pct": 0.5,
        }
    )
    assert (rope.head_dim, rope.rotary_dim) == (8, 4)
    assert rope.inv_freq().tolist() == [1.0, 0.01]


def test_odd_rotary_dim():
    """huggingface/transformers#35233: int(4 * 0.75) = 3 rotated lanes, a broadcast error."""
    text = refusal(
        {
            "model_type": "gpt_neox",
            "hidden_size": 32,
            "num_attention_heads": 8,
            "rotary_pct": 0.75,
        }
    )
    assert "rotary_dim=3 is odd (head_dim 4 * 0.75); must be even" in text
    assert text.startswith("config.json: rotary_pct: ")


def test_explicit_head_dim_wins():
    """huggingface/candle#2358: Mistral Nemo's head_dim taken as 5120 / 32 = 160."""
    config = {
        "model_type": "mistral",
        "hidden_size": 5120,
        "num_attention_heads": 32,
        "head_dim": 128,
        "rope_theta": 1000000,
    }
    assert rope_of(config).planes == 64
    del config["head_dim"]
    assert rope_of(config).planes == 80


def test_share_of_other_layers_does_not_reach_latent_heads():
    """vllm-project/vllm PR 41185: partial_rotary_factor applied to the already split head."""
    plan = read_config(
        {
            "model_type": "deepseek_v3",
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "partial_rotary_factor": 0.5,
        },
        "config.json",
    )
    assert plan.rope.rotary_dim == 64
    assert any("partial_rotary_factor 0.5 is not used" in note for note in plan.notes)


GEMMA3_NESTED = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000},
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000},
}
GEMMA3_FLAT = {
    "rope_theta": 1000000,
    "rope_local_base_freq": 10000,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}


def test_gemma3_flat_and_nested():
    """huggingface/transformers PR 41922: a flat block where one per layer type is required."""
    nested = read_config(
        {"model_type": "gemma3_text", "rope_parameters": GEMMA3_NESTED}, "config.json"
    )
    flat = read_config({"model_type": "gemma3_text", **GEMMA3_FLAT}, "config.json")
    assert nested.layers == flat.layers
    local, full = nested.layers[0].rope, nested.layers[5].rope
    assert local.with_scaling(Plain()) == Rope(head_dim=256, theta=10000.0)
    assert np.array_equal(full.inv_freq(), Rope(head_dim=256, theta=1e6).inv_freq() / 8)


def test_softmax_multiplier_uses_mscale_all_dim():
    """NVIDIA/Megatron-LM#1429: the softmax factor took mscale."""
    block = {
        "rope_type": "yarn",
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
    }
    plan = read_config({"model_type": "deepseek_v2", "rope_scaling": block}, "config.json")
    assert plan.layers[0].softmax_multiplier == pytest.approx(1.589626, rel=WRITTEN)
    assert plan.rope.attention_factor() == pytest.approx(1.085726, rel=WRITTEN)


def test_zero_mscale_all_dim_and_amplitude_switched_off():
    """Avarok-Cybersecurity/atlas PR 342: rope part of the logits 1.63 times too strong."""
    block = {
        "rope_type": "yarn",
        "factor": 16,
        "mscale_all_dim": 0,
        "original_max_position_embeddings": 4096,
    }
    config = {**LLAMA, "rope_theta": 160000}
    default = rope_of({**config, "rope_scaling": block}).attention_factor()
    assert default == pytest.approx(1.277259, rel=WRITTEN)
    assert default**2 == pytest.approx(1.631390, rel=WRITTEN)
    off = {**block, "attention_factor": 1.0}
    assert rope_of({**config, "rope_scaling": off}).attention_factor() == 1.0


def test_gemma3_global_layers_are_scaled():
    """Blaizzy/mlx-vlm PR 1709, lablup/mlxcel#1340: the global layers were never scaled."""
    plan = read_config(
        {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **GEMMA3_FLAT}},
        "config.json",
    )
    assert 2915 * plan.layers[5].rope.inv_freq()[0] == 364.375
    assert 2915 * plan.layers[0].rope.inv_freq()[0] == 2915


def test_olmo3_windowed_layers_are_not_stretched():
    """allenai/OLMo-core PR 366: extension applied to layers that a window limits."""
    block = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
    plan = read_config(
        {"model_type": "olmo3", "max_position_embeddings": 65536, "rope_scaling": block},
        "config.json",
    )
    for layer in plan.layers:
        kind = "plain" if layer.window is not None else "yarn"
        assert layer.rope.scaling.kind == kind


def test_length_of_longrope_lists_with_partial_rotary():
    """apache/tvm PR 18102, 18520: Phi-4-mini's lists hold 48 divisors, not 64."""

    def config(count: int) -> dict:
        return {
            "model_type": "phi3",
            "hidden_size": 3072,
            "num_attention_heads": 24,
            "partial_rotary_factor": 0.75,
            "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0] * count,
                "long_factor": [1.5] * count,
            },
        }

    rope = rope_of(config(48))
    assert (rope.head_dim, rope.rotary_dim) == (128, 96)
    assert isinstance(rope.scaling, LongRoPE)
    assert rope.attention_factor() == pytest.approx(1.190238, rel=WRITTEN)
    assert "expected rotary_dim/2 = 48" in refusal(config(64))


def test_style_of_axes_is_not_the_pairing():
    """vllm-project/vllm-ascend PR 12780, 12820: mrope_interleaved taken for the pairing."""
    for interleaved in (True, False):
        block = {
            "rope_type": "default",
            "mrope_section": [8, 12, 12],
            "mrope_interleaved": interleaved,
        }
        glm = rope_of({"model_type": "glm4v", "partial_rotary_factor": 0.5, "rope_scaling": block})
        assert glm.lanes(0) == (0, 1)
        block["mrope_section"] = [24, 20, 20]
        qwen = rope_of({"model_type": "qwen3_vl", "rope_scaling": block})
        assert qwen.lanes(0) == (0, 64)


def test_frequencies_over_the_rotary_width():
    """pie-project/pie PR 603: frequencies and partner lanes taken from head_dim."""
    rope = rope_of({"model_type": "qwen3_next", "head_dim": 256, "rope_theta": 1e7})
    assert rope.rotary_dim == 64
    assert rope.inv_freq()[1] == pytest.approx(0.604296, rel=1e-6)
    assert rope.lanes(1) == (1, 33)


def test_proportional_is_the_opposite_rule():
    """NVIDIA-NeMo/Megatron-Bridge#4195: Gemma 4's full layers spread over the whole head."""
    plan = read_config({"model_type": "gemma4_text"}, "config.json")
    rope = plan.rope
    inv_freq = rope.inv_freq()
    assert inv_freq.shape == (256,)
    whole = Rope(head_dim=512, theta=1e6).inv_freq()
    assert np.array_equal(inv_freq[:64], whole[:64])
    assert (inv_freq[64:] == 0).all()
    assert rope.lanes(3) == (3, 259)


def test_no_rope_layers_means_its_opposite():
    """huggingface/transformers#43756: in SmolLM3's no_rope_layers, 1 means rope."""
    listed = {"no_rope_layers": [1, 1, 1, 0] * 9}
    for extra in ({}, listed, {"no_rope_layer_interval": 4}):
        plan = read_config(
            {"model_type": "smollm3", "num_hidden_layers": 36, **extra}, "config.json"
        )
        without = [layer.index for layer in plan.layers if layer.rope is None]
        assert without == list(range(3, 36, 4))


@pytest.fixture
def gguf_file(tmp_path):
    def make(tensors=None, **values):
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_block_count(2)
        writer.add_context_length(131072)
        writer.add_embedding_length(4096)
        writer.add_head_count(32)
        for key, value in values.items():
            getattr(writer, f"add_{key}")(value)
        for name, data in (tensors or {}).items():
            writer.add_tensor(name, np.asarray(data, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return read(path)

    return make


def test_theta_of_a_converted_codellama(gguf_file):
    """ggml-org/llama.cpp PR 2768, 2773: rope_theta was not converted."""
    assert gguf_file(rope_freq_base=1000000.0).rope.theta == 1000000.0
    lost = gguf_file()
    assert lost.rope.theta == 10000.0
    assert any("assumed 10000 (default of llama.cpp)" in note for note in lost.notes)


def test_rope_freqs_are_divisors(gguf_file):
    """ggml-org/llama.cpp PR 8676: Llama 3.1's file without rope_freqs; they are divisors."""
    between = [1.2075, 1.5534, 2.0263, 2.6945, 3.6843, 5.2573]
    rope = rope_of({**LLAMA, "rope_theta": 500000, "rope_scaling": LLAMA31})
    plain = rope.with_scaling(Plain())
    divisors = plain.inv_freq() / rope.inv_freq()
    assert np.abs(divisors[:29] - 1).max() <= 2**-52
    assert np.abs(divisors[29:35] - between).max() <= 5.1e-5  # four decimals are written
    assert np.abs(divisors[35:] - 8).max() <= 8 * 2**-52
    plan = gguf_file({"rope_freqs.weight": divisors}, rope_freq_base=500000.0)
    # Pairing aside, the GGUF file and the config say the same.
    assert plan.rope.scaling == rope.scaling
    assert (plan.rope.pairing, rope.pairing) == ("adjacent", "half")
    without = gguf_file(rope_freq_base=500000.0)
    assert without.rope.scaling == Plain(original_length=131072)


def test_draft_theta_follows_the_config():
    """wejoncy/sfllm PR 32: the label of a draft may be wrong; it is followed, with its source."""
    plan = read_config({**LLAMA, "rope_theta": 1e6}, "config.json")
    assert plan.rope.theta == 1e6
    assert plan.sources["theta"].source == "config.json: rope_theta"


def test_odd_head_is_a_clear_error():
    """lucidrains/rotary-embedding-torch#45: dimension 9 fails in the cache."""
    text = refusal({**LLAMA, "head_dim": 9})
    assert "9 (head_dim 9)" in text
    assert "an even number of lanes" in text


def test_llama31_needs_no_change_to_reach_its_length():
    """vllm-project/vllm#10537: llama3's block replaced by dynamic scaling."""
    plan = read_config({**LLAMA, "rope_theta": 500000, "rope_scaling": LLAMA31}, "config.json")
    assert (plan.original_length, plan.stated_length) == (8192, 131072)


def test_yarn_block_of_qwen25():
    """vllm-project/vllm#8793, QwenLM: the block for 131072 tokens and what it computes."""
    rope = rope_of(
        {
            "model_type": "qwen2",
            "hidden_size": 3584,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "rope_theta": 1000000.0,
            "max_position_embeddings": 131072,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
            },
        }
    )
    assert rope.scaling == YaRN(factor=4.0, original_length=32768)
    assert rope.scaling.correction_range(1e6, 128) == (23, 40)
    plain = rope.with_scaling(Plain()).inv_freq()
    inv_freq = rope.inv_freq()
    assert plain[30] == pytest.approx(0.00153993, rel=5e-6)
    assert inv_freq[30] == pytest.approx(0.00106436, rel=5e-6)
    assert inv_freq[32] == pytest.approx(0.000602941, rel=1e-6)
    assert inv_freq[63] == plain[63] / 4
    assert rope.attention_factor() == pytest.approx(1.138629, rel=WRITTEN)


def test_block_within_text_config():
    """ls1intum/edutelligence#744: a whole block inside text_config, with axes and share."""
    block = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 262144,
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    }
    plan = read_config(
        {
            "model_type": "qwen3_5",
            "text_config": {
                "model_type": "qwen3_5_text",
                "max_position_embeddings": 1048576,
                "rope_parameters": block,
            },
        },
        "config.json",
    )
    assert plan.rope == Rope(
        head_dim=256,
        rotary_dim=64,
        theta=1e7,
        scaling=YaRN(factor=4.0, original_length=262144),
    )
    assert plan.sources["mrope_section"].value == [11, 11, 10]


def test_amplitudes_of_kimi():
    """ikawrakow/ik_llama.cpp#1298: how the attention factor of Kimi K2 comes about."""
    plan = read_config(
        {
            "model_type": "kimi_k2",
            "rope_theta": 50000,
            "max_position_embeddings": 262144,
            "rope_scaling": {
                "type": "yarn",
                "factor": 64,
                "original_max_position_embeddings": 4096,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
        "config.json",
    )
    assert plan.rope.rotary_dim == 64
    assert plan.rope.scaling.correction_range(50000, 64) == (8, 20)
    assert plan.rope.attention_factor() == 1.0
    assert plan.layers[0].softmax_multiplier == pytest.approx(2.004740, rel=WRITTEN)
    assert plan.layers[0].softmax_multiplier == (0.1 * math.log(64) + 1) ** 2


def test_attn_factor_is_not_attention_factor():
    """deepseek-ai/DeepSeek-R1#684: attn_factor in the block, ignored by transformers."""
    block = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
        "attn_factor": 0.8782488562869419,
    }
    plan = read_config(
        {"model_type": "qwen3", "max_position_embeddings": 131072, "rope_scaling": block},
        "config.json",
    )
    assert plan.rope.attention_factor() == pytest.approx(1.138629, rel=WRITTEN)
    assert any("not attention_factor" in note for note in plan.notes)
