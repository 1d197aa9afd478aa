"""Public reports of failures that a config, a file or a command shows, each with its answer.

Every test names the report. Inputs are small and literal: the report's own, completed with the
sizes that it leaves out.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_check_rules import planted, write_gguf

from ropewalk.check import Finding, ModelReport, check, check_text

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LLAMA31 = {
    **LLAMA,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "rope_scaling": LLAMA3,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
QWEN = {**LLAMA, "model_type": "qwen2", "rope_theta": 1000000.0, "max_position_embeddings": 131072}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def checked(content: dict[str, Any] | str, **options: Any) -> ModelReport:
        if isinstance(content, str):
            return check_text(content)
        path = tmp_path / "config.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return check(path, **options)

    return checked


def codes(report: ModelReport, *severities: str) -> set[str]:
    assert report.unusable is None
    wanted = severities or ("error", "warning")
    return {finding.code for finding in report.findings if finding.severity in wanted}


def only(report: ModelReport, code: str) -> Finding:
    (found,) = [finding for finding in report.findings if finding.code == code]
    return found


def test_the_old_key_type_is_sound(run: Any) -> None:
    """huggingface/transformers#32167: KeyError 'rope_type'."""
    block = {"type": "linear", "factor": 8.0}
    assert codes(run({**LLAMA, "head_dim": 128, "rope_scaling": block})) == set()


def test_five_keys_of_llama_31_are_sound(run: Any) -> None:
    """meta-llama/llama3#299 and its like: must be a dictionary with two fields."""
    assert codes(run(LLAMA31), "error", "warning", "note") <= {"RW107"}
    scheme = run({**LLAMA31, "rope_scaling": {**LLAMA3, "rope_type": "spiral"}})
    assert "'spiral'" in scheme.unusable
    assert "llama3" in scheme.unusable


def test_truncate_is_known_and_a_typo_is_hinted(run: Any) -> None:
    """huggingface/transformers PR 42189: truncate is used, and was warned about."""
    block = {
        "rope_type": "yarn",
        "factor": 32,
        "truncate": False,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    }
    config = {"model_type": "gpt_oss", "num_hidden_layers": 2, "rope_theta": 150000}
    assert codes(run({**config, "rope_scaling": block})) == set()
    typo = {key: value for key, value in block.items() if key != "factor"} | {"fctor": 32}
    found = only(run({**config, "rope_scaling": typo}), "RW401")
    assert found.where == "rope_scaling.fctor"
    assert "'factor'" in found.fix


def test_a_block_alone_is_checked_too(run: Any) -> None:
    """The report's own input: the block of huggingface/transformers PR 42189, nothing around it."""
    block = {
        "rope_type": "yarn",
        "factor": 32,
        "truncate": False,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    }
    assert codes(run(block)) == set()
    assert codes(run({**block, "fctor": 32})) == {"RW401"}
    assert codes(run({**block, "beta_fast": 1, "beta_slow": 32})) == {"RW405"}


def test_both_spellings_of_the_type_and_when_they_differ(run: Any) -> None:
    """lablup/mlxcel PR 1385 and 1386: one spelling, or an error for both."""
    same = {**LLAMA, "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 8}}
    assert codes(run(same)) == set()
    both = {**LLAMA, "rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 8}}
    assert codes(run(both)) == {"RW402"}


def test_yarn_measures_from_the_length_before_stretching(run: Any) -> None:
    """NVIDIA/Megatron-LM#1418: one field for table size and YaRN's reference."""
    block = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    config = {"model_type": "deepseek_v3", "max_position_embeddings": 163840, "rope_theta": 10000}
    assert codes(run({**config, "rope_scaling": block})) == set()
    wrong = run({**config, "rope_scaling": {**block, "original_max_position_embeddings": 163840}})
    assert codes(wrong) == {"RW102"}
    absent = {key: value for key, value in block.items() if not key.startswith("original")}
    assert codes(run({**config, "rope_scaling": absent})) >= {"RW104"}


def test_a_missing_base_is_visible(run: Any) -> None:
    """meta-pytorch/gpt-fast#179: base left at 10000, the checkpoint has 500000."""
    config = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    found = only(run(config), "RW109")
    assert found.severity == "note"
    assert "assumed 10000" in found.found


def test_an_odd_number_of_rotated_lanes(run: Any) -> None:
    """huggingface/transformers#35233: int(4 * 0.75) = 3."""
    config = {
        "model_type": "gpt_neox",
        "hidden_size": 32,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "rotary_pct": 0.75,
    }
    found = only(run(config), "RW201")
    assert "rotary_dim=3 is odd (head_dim 4 * 0.75); must be even" in found.found
    assert codes(run({**config, "num_attention_heads": 4, "rotary_pct": 0.5})) == set()


def test_an_odd_head(run: Any) -> None:
    """lucidrains/rotary-embedding-torch#45: dim 9."""
    assert codes(run({**LLAMA, "head_dim": 9})) == {"RW201"}


def test_an_explicit_head_dim_wins_and_is_sound(run: Any) -> None:
    """huggingface/candle#2358: 5120 / 32 = 160, but head_dim 128."""
    config = {**LLAMA, "model_type": "mistral", "hidden_size": 5120, "head_dim": 128}
    assert codes(run(config)) == set()


def test_a_share_beside_latent_attention_is_no_error(run: Any) -> None:
    """vllm-project/vllm PR 41185: the share belongs to other layers."""
    config = {
        "model_type": "deepseek_v3",
        "max_position_embeddings": 4096,
        "rope_theta": 10000,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "partial_rotary_factor": 0.5,
    }
    report = run(config)
    assert codes(report) == set()
    assert "64" in only(report, "RW208").right


def test_a_flat_block_where_layer_types_need_their_own(run: Any) -> None:
    """huggingface/transformers PR 41922, and Blaizzy/mlx-vlm PR 1709 (never scaled)."""
    gemma = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "head_dim": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_hidden_layers": 6,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
    }
    block = {"rope_type": "linear", "factor": 8.0}
    flat = {**gemma, "rope_parameters": {**block, "rope_theta": 1000000}}
    assert codes(run(flat)) == {"RW505"}
    nested = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000},
        "full_attention": {**block, "rope_theta": 1000000},
    }
    assert codes(run({**gemma, "rope_parameters": nested})) == set()
    legacy = {"rope_theta": 1000000, "rope_local_base_freq": 10000, "rope_scaling": block}
    assert codes(run({**gemma, **legacy})) == set()
    swapped = {**legacy, "rope_theta": 10000, "rope_local_base_freq": 1000000}
    assert codes(run({**gemma, **swapped})) == {"RW507"}


def test_the_softmax_multiplier_hangs_on_mscale_all_dim(run: Any) -> None:
    """NVIDIA/Megatron-LM#1429: (0.1 * 0.707 * ln 40 + 1)^2 = 1.589626."""
    block = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 0.707,
    }
    config = {"max_position_embeddings": 163840, "rope_theta": 10000.0, "rope_scaling": block}
    assert codes(run({"model_type": "deepseek_v3", **config})) == set()
    lost = only(run({**LLAMA, **config}), "RW304")
    assert "1.58963" in lost.right


def test_a_lone_mscale_leaves_the_default_amplitude(run: Any) -> None:
    """Avarok-Cybersecurity/atlas PR 342: g(16, 1) / g(16, 0) = 1.277259."""
    block = {
        "type": "yarn",
        "factor": 16,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 0,
    }
    found = only(run({**LLAMA, "max_position_embeddings": 65536, "rope_scaling": block}), "RW303")
    assert "1.27726" in found.right


def test_a_raised_base_with_a_scale_on_top(run: Any) -> None:
    """turboderp/exllama#115 and PR 118: alpha and linear compression are multiplied."""
    base = 10000 * 4 ** (128 / 126)
    line = f"llama-server -m m.gguf -c 8192 --rope-freq-base {base:.2f}"
    assert codes(run(f"{line} --rope-scale 4")) == {"RW703"}
    assert codes(run(line)) == set()
    assert codes(run("--contextsize 16384 --ropeconfig 0.25 10000")) == set()


def test_windowed_layers_need_no_stretching(run: Any) -> None:
    """allenai/OLMo-core PR 366: no rope extension in sliding window layers."""
    block = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
    config = {
        **LLAMA,
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "max_position_embeddings": 65536,
        "rope_theta": 500000.0,
        "sliding_window": 4096,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    }
    both = {
        kind: {**block, "rope_theta": 500000.0} for kind in ("sliding_attention", "full_attention")
    }
    assert "RW504" in codes(run({**config, "rope_parameters": both}), "note")


def test_the_length_at_which_longrope_switches(run: Any) -> None:
    """llama.cpp#24823, vLLM PR 27431, unslothai/unsloth PR 10681: 4096 short, 4097 long."""
    config = {
        "model_type": "phi3",
        "hidden_size": 3072,
        "num_attention_heads": 24,
        "num_hidden_layers": 2,
        "partial_rotary_factor": 0.75,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
    }
    found = only(run(config), "RW710")
    assert "short up to 4096" in found.right
    assert "long from 4097" in found.right


def test_the_length_of_longrope_lists(run: Any) -> None:
    """apache/tvm PR 18102 and 18520: accept 48, reject 64 with rotary_dim/2 = 48."""
    config = {
        "model_type": "phi3",
        "hidden_size": 3072,
        "num_attention_heads": 24,
        "num_hidden_layers": 2,
        "partial_rotary_factor": 0.75,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_theta": 10000.0,
    }
    for count, expected in ((48, set()), (64, {"RW205"})):
        block = {"type": "longrope", "short_factor": [1.0] * count, "long_factor": [2.0] * count}
        report = run({**config, "rope_scaling": block})
        assert codes(report) == expected
    assert only(report, "RW205").right == "rotary_dim/2 = 48"


@pytest.mark.parametrize("adjacent", [False, True])
def test_rows_ordered_for_the_other_pairing(adjacent: bool, run: Any, tmp_path: Path) -> None:
    """karpathy/llama2.c PR 286 and jzhang38/TinyLlama#24: coherent, then gibberish."""
    from safetensors.numpy import save_file

    config = {**LLAMA, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    save_file(planted(adjacent), tmp_path / "model.safetensors")
    report = run({**config, "num_hidden_layers": 6})
    assert codes(report) == ({"RW801"} if adjacent else set())
    if adjacent:
        found = only(report, "RW801")
        assert "adjacent" in found.found
        assert "half" in found.right
    assert codes(run({**config, "num_hidden_layers": 6}, weights=False)) == set()


def test_no_rope_layers_reads_the_other_way_round(run: Any) -> None:
    """huggingface/transformers#43756: 1 means rope; NoPE are layers 3, 7 … 35, 9 of 36."""
    config = {"model_type": "smollm3", "num_hidden_layers": 36, "rope_theta": 5e6}
    listed = [int((index + 1) % 4 != 0) for index in range(36)]
    found = only(run({**config, "no_rope_layers": listed}), "RW503")
    assert found.severity == "note"
    assert found.found == "27 layers with rope, 9 without"
    swapped = only(run({**config, "no_rope_layers": [1 - entry for entry in listed]}), "RW503")
    assert swapped.severity == "warning"


def test_mrope_interleaved_is_no_pairing(run: Any) -> None:
    """vllm-project/vllm-ascend PR 12780: the order of axes was taken for the pairing."""
    config = {
        **LLAMA,
        "model_type": "qwen3_vl_text",
        "rope_theta": 5e6,
        "head_dim": 128,
        "rope_scaling": {
            "rope_type": "default",
            "mrope_interleaved": True,
            "mrope_section": [24, 20, 20],
        },
    }
    assert codes(run(config)) == set()


def test_half_precision_frequencies_beside_the_weights(run: Any, tmp_path: Path) -> None:
    """EleutherAI/gpt-neox PR 1168; the buffer of huggingface/transformers#25681."""
    from safetensors.numpy import save_file

    frequencies = (10000.0 ** (-np.arange(0, 16, 2) / 16)).astype(np.float16)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file({name: frequencies}, tmp_path / "model.safetensors")
    config = {**LLAMA, "hidden_size": 64, "num_attention_heads": 4}
    assert codes(run(config)) == {"RW601"}
    save_file({name: frequencies.astype(np.float32)}, tmp_path / "model.safetensors")
    assert only(run(config), "RW601").severity == "note"


def test_a_gguf_file_without_a_base() -> None:
    """ggml-org/llama.cpp PR 2768 and 2773: CodeLlama's base was not converted."""
    listing = (
        "llama.block_count=2; llama.context_length=16384; llama.embedding_length=4096; "
        "llama.attention.head_count=32"
    )
    assert codes(check_text(listing)) == {"RW109"}
    assert codes(check_text(f"{listing}; llama.rope.freq_base=1000000.0")) == set()


def test_a_gguf_file_without_the_divisors_of_llama3(tmp_path: Path) -> None:
    """ggml-org/llama.cpp PR 8676 and #8808: 291 tensors, not 292; divisors, not multipliers."""
    listing = (
        "llama.block_count=2; llama.context_length=131072; llama.embedding_length=4096; "
        "llama.attention.head_count=32; llama.rope.freq_base=500000.0"
    )
    other = {"output_norm.weight": np.ones(8, np.float32)}
    write_gguf(tmp_path / "without.gguf", listing, other)
    assert codes(check(tmp_path / "without.gguf")) == {"RW121"}
    inv_freq = 500000.0 ** (-np.arange(64) / 64)
    turns = 8192 * inv_freq / (2 * math.pi)
    share = np.clip((turns - 1) / (4 - 1), 0, 1)
    divisors = (1 / ((1 - share) / 8 + share)).astype(np.float32)
    write_gguf(tmp_path / "with.gguf", listing, {"rope_freqs.weight": divisors})
    assert codes(check(tmp_path / "with.gguf")) == set()
    write_gguf(tmp_path / "inverse.gguf", listing, {"rope_freqs.weight": 1 / divisors})
    assert codes(check(tmp_path / "inverse.gguf"), "error") == {"RW802"}


def test_a_draft_shorter_than_its_prompts(run: Any) -> None:
    """sgl-project/sglang#6783: draft max 2048, prompts of 4000 are slower than no drafting."""
    config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}
    assert only(run(config), "RW112").severity == "note"


def test_a_context_raised_without_a_scaling(run: Any) -> None:
    """mlc-ai/mlc-llm#3202: 8192 to 10000; positions 8192..9999 are untrained, factor 1.22."""
    config = {**LLAMA, "rope_theta": 500000.0, "max_position_embeddings": 8192}
    report = run(config, engine_args="--max-model-len 10000")
    found = only(report, "RW706")
    assert "8192..9999" in found.right
    assert "1.221" in found.right
    assert codes(run(config, engine_args="--max-model-len 8192")) == set()


def test_an_override_of_the_trained_scaling(run: Any) -> None:
    """vllm-project/vllm#10537: llama3 replaced by dynamic 8; the model reaches 131072 as it is."""
    line = (
        "vllm serve meta-llama/Meta-Llama-3.1-8B-Instruct --max-model-len 120000 --rope-scaling "
        """'{"factor": 8.0, "type": "dynamic"}'"""
    )
    assert codes(run(line)) == {"RW705"}
    report = run(LLAMA31, overrides='{"rope_scaling": {"rope_type": "dynamic", "factor": 8.0}}')
    assert "RW705" in codes(report)


def test_the_common_how_to_is_sound(run: Any) -> None:
    """vllm-project/vllm#8793 and its like: Qwen2.5 to 131072, in each engine's words."""
    assert codes(run({**QWEN, "rope_scaling": YARN})) == set()
    block = json.dumps({"rope_scaling": YARN})
    vllm = f"vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 131072 --hf-overrides '{block}'"
    assert codes(run(vllm)) == set()
    cpp = "llama-server -c 131072 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768"
    assert codes(run(cpp)) == set()


def test_an_override_must_repeat_the_block(run: Any) -> None:
    """ls1intum/edutelligence#744: a nested block is replaced, not merged."""
    own = {
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    }
    text = {
        "model_type": "qwen3_5_text",
        "head_dim": 256,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "max_position_embeddings": 262144,
        "rope_parameters": own,
    }
    config = {"model_type": "qwen3_5", "text_config": text}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 262144}
    bare = json.dumps({"text_config": {"rope_parameters": yarn}})
    assert "RW704" in codes(run(config, overrides=bare))
    whole = json.dumps({"text_config": {"rope_parameters": {**own, **yarn}}})
    assert "RW704" not in codes(run(config, overrides=whole))
    line = f"vllm serve M --hf-overrides '{bare}'"
    assert codes(run(line)) == {"RW704"}
    assert codes(run(f"vllm serve M --hf-overrides '{whole}'")) == set()


def test_the_length_follows_from_factor_and_original(run: Any) -> None:
    """NovaSky-AI/SkyRL PR 561: factor 4 over 32768 is 131072."""
    short = {**QWEN, "max_position_embeddings": 262144, "rope_scaling": YARN}
    found = only(run(short), "RW103")
    assert "= 131072" in found.found
    assert "factor 8" in found.right


def test_a_scale_in_the_wrong_direction(run: Any) -> None:
    """ggml-org/llama.cpp#2402: freq_scale = 1 / factor."""
    inverted = only(run("llama-server -m m -c 16384 --rope-freq-scale 4"), "RW701")
    assert inverted.severity == "error"
    assert "0.25" in inverted.fix
    assert codes(run("llama-server -m m -c 16384 --rope-freq-scale 0.25")) == set()
    assert codes(run("llama-server -m m -c 16384 --rope-scale 0.25")) == {"RW701"}


def test_latent_amplitude_of_kimi_is_sound(run: Any) -> None:
    """ikawrakow/ik_llama.cpp#1298: Kimi K2.5, factor 64, mscale = mscale_all_dim = 1."""
    config = {
        "model_type": "deepseek_v3",
        "max_position_embeddings": 262144,
        "rope_theta": 50000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 64.0,
            "original_max_position_embeddings": 4096,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
        },
    }
    assert codes(run(config)) == set()


def test_training_beyond_the_trained_length_keeps_the_factor(run: Any) -> None:
    """JIA-Lab-research/LongLoRA: 4096 x 25 = 102400 needs linear 25."""
    config = {**LLAMA, "max_position_embeddings": 102400}
    block = {"type": "linear", "factor": 25.0, "original_max_position_embeddings": 4096}
    assert codes(run({**config, "rope_scaling": block})) == set()
    assert codes(run({**config, "rope_scaling": {**block, "factor": 2.0}})) == {"RW103"}


def test_ids_of_sinusoidal_and_learned_models_are_not_checked(run: Any) -> None:
    """huggingface/transformers#9116 and its like: no rope, nothing to say."""
    report = run({"model_type": "roberta", "max_position_embeddings": 514})
    assert codes(report) == set()
    assert "learned" in only(report, "RW001").found


def test_large_weights_are_looked_at_on_request(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header of 70 billion parameters is checked without its tensors."""
    from safetensors.numpy import save_file

    monkeypatch.setattr("ropewalk.check.rules.weights._LARGEST_UNASKED", 1000)
    config = {**LLAMA, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    save_file(planted(True), tmp_path / "model.safetensors")
    assert codes(run({**config, "num_hidden_layers": 6})) == set()
    assert codes(run({**config, "num_hidden_layers": 6}, weights=True)) == {"RW801"}
