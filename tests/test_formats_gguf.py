"""GGUF architectures with rules of their own, and metadata as a text lists it."""

from __future__ import annotations

import pytest

from ropewalk import InputError, Plain, Rope, YaRN
from ropewalk.models.fragment import Fragment
from ropewalk.models.plan import QueryTemperature
from ropewalk.models.read import read_any, read_text

BASE = {
    "block_count": 8, "context_length": 131072, "embedding_length": 4096,
    "attention.head_count": 32, "attention.head_count_kv": 8, "rope.freq_base": 500000.0,
}  # fmt: skip


def listing(architecture, **values):
    keys = BASE | {key.replace("__", "."): value for key, value in values.items()}
    return "\n".join(
        f"{architecture}.{key} = {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in keys.items()
        if value is not None
    )


def of(architecture, **values):
    return read_text(listing(architecture, **values))


def refuse(architecture, **values):
    with pytest.raises(InputError) as caught:
        of(architecture, **values)
    text = str(caught.value)
    assert "\n" not in text
    return text


def windows(plan):
    return [layer.window for layer in plan.layers]


def roped(plan):
    return [layer.rope is not None for layer in plan.layers]


@pytest.mark.parametrize(
    ("architecture", "pairing"),
    [
        ("baichuan", "adjacent"),
        ("neo-bert", "adjacent"),
        ("maincoder", "adjacent"),
        ("grok", "half"),
        ("hy_v3", "half"),
        ("rnd1", "half"),
        ("cogvlm", "half"),
        ("nomic-bert", "half"),
        ("jina-bert-v3", "half"),
        ("paddleocr", "half"),
        ("hunyuan_vl", "half"),
        ("plamo2", "half"),
    ],
)
def test_pairing_by_architecture(architecture, pairing):
    assert of(architecture).rope.pairing == pairing


def test_every_fourth_layer_of_afmoe_has_no_rope():
    plan = of("afmoe", attention__sliding_window=2048)
    assert roped(plan) == [True, True, True, False] * 2
    assert windows(plan) == [2048, 2048, 2048, None] * 2


def test_smallthinker_turns_windowed_layers_only():
    plan = of("smallthinker", attention__sliding_window=4096)
    assert windows(plan) == [None, 4096, 4096, 4096] * 2
    assert roped(plan) == [False, True, True, True] * 2
    assert all(roped(of("smallthinker", attention__sliding_window=0)))


def test_cohere2moe_turns_its_dense_layers_too():
    plan = of("cohere2moe", attention__sliding_window=4096, leading_dense_block_count=1)
    assert roped(plan) == [True, True, True, True, False, True, True, True]


def test_gemma4_lists_its_layers_and_widens_the_full_ones():
    plan = of(
        "gemma4",
        attention__sliding_window=512,
        attention__sliding_window_pattern=str([True, False] * 4).lower(),
        attention__key_length=512,
        attention__key_length_swa=256,
        rope__dimension_count=512,
        rope__dimension_count_swa=256,
        rope__freq_base=1000000.0,
        rope__freq_base_swa=10000.0,
    )
    assert plan.layers[0].rope == Rope(head_dim=256, scaling=Plain(original_length=131072))
    assert (plan.layers[1].rope.head_dim, plan.layers[1].rope.theta) == (512, 1e6)
    assert "a list of which layers have the window" in refuse(
        "gemma4", attention__sliding_window=512
    )


def test_step35_turns_half_of_full_heads():
    plan = of(
        "step35",
        attention__sliding_window=512,
        attention__sliding_window_pattern=str([True, False] * 4).lower(),
    )
    assert [layer.rope.rotary_dim for layer in plan.layers[:2]] == [128, 64]


def test_modern_bert_counts_both_sides():
    plan = of("modern-bert", attention__sliding_window=128)
    assert windows(plan)[:4] == [None, 65, 65, None]
    assert plan.layers[1].rope.theta == 10000.0


def test_linear_attention_by_interval_and_by_list():
    plan = of("qwen35", full_attention_interval=2)
    assert roped(plan) == [False, True] * 4
    assert plan.layers[0].kind == "linear_attention"
    assert roped(of("qwen35moe")) == [False, False, False, True] * 2
    listed = str([True] + [False] * 7).lower()
    assert roped(of("qwen3next", attention__recurrent_layers=listed)) == [False] + [True] * 7
    assert roped(of("minimax-01")) == [False] * 7 + [True]


def test_granite_switches_rope_off():
    assert all(roped(of("granitehybrid")))
    assert not any(roped(of("granitehybrid", rope__scaling__finetuned=False)))


def test_granite_swa_has_a_pattern_where_one_means_rope():
    plan = of(
        "granite_swa",
        attention__sliding_window=128,
        attention__sliding_window_pattern=str([True, False] * 4).lower(),
        attention__rope_pattern=str([1, 0] * 4),
    )
    assert roped(plan) == [True, False] * 4
    text = refuse(
        "granite_swa",
        attention__sliding_window=128,
        attention__sliding_window_pattern=str([True] * 8).lower(),
        attention__rope_pattern="[1]",
    )
    assert "attention.rope_pattern: got 1 entries, expected 8" in text


def test_mistral4_is_latent_with_a_temperature():
    plan = of(
        "mistral4",
        attention__key_length_mla=128,
        attention__value_length_mla=128,
        rope__dimension_count=64,
        rope__scaling__type="yarn",
        rope__scaling__factor=128.0,
        rope__scaling__original_context_length=8192,
        rope__scaling__yarn_log_multiplier=0.1,
        attention__temperature_scale=0.1,
        attention__temperature_length=8192,
    )
    rope = plan.rope
    assert (rope.rotary_dim, rope.rotary_offset, rope.pairing) == (64, 64, "adjacent")
    assert rope.scaling.mscale_all_dim == pytest.approx(1)
    assert plan.layers[0].query_temperature == QueryTemperature(0.1, 8192)


def test_grok_reads_betas_with_its_own_default():
    yarn = {
        "rope__scaling__type": "yarn", "rope__scaling__factor": 16.0,
        "rope__scaling__original_context_length": 8192,
    }  # fmt: skip
    assert of("grok", **yarn).rope.scaling == YaRN(factor=16.0, original_length=8192, beta_fast=8.0)
    assert of("grok", **yarn, rope__scaling__yarn_beta_fast=24.0).rope.scaling.beta_fast == 24


def test_baichuan_13b_has_alibi():
    assert "40 layers: the baichuan model of that size has ALiBi" in refuse(
        "baichuan", block_count=40
    )


@pytest.mark.parametrize(
    ("architecture", "what"),
    [
        ("bert", "learned absolute positions"),
        ("starcoder", "learned absolute positions"),
        ("kimi-linear", "no position encoding"),
        ("nemotron_h_moe", "no position encoding"),
        ("gptj", "no rope that llama.cpp applies"),
        ("deepseek4", "two ropes, told apart by attention.compress_ratios"),
        ("deepseek9", "an architecture that is not in the table"),
    ],
)
def test_refused_by_name(architecture, what):
    text = refuse(architecture)
    assert repr(architecture) in text
    assert what in text


def test_draft_models():
    """src/models/eagle3.cpp and dflash.cpp of llama.cpp, 2026-08."""
    plan = of("eagle3", block_count=1)
    assert plan.rope == Rope(
        head_dim=128, theta=500000.0, pairing="adjacent", scaling=Plain(original_length=131072)
    )
    plain = of("dflash", block_count=2)
    assert (plain.rope.pairing, windows(plain)) == ("half", [None, None])
    values = {
        "block_count": 3,
        "attention__sliding_window": 2048,
        "attention__sliding_window_pattern": "[true, true, false]",
    }
    windowed = of("dflash", **values)
    assert windows(windowed) == [2048, 2048, None]
    # One rope for both kinds of layers.
    assert len({layer.rope for layer in windowed.layers}) == 1
    assert "hyper_connection.count: got 4: a draft of DeepSeek-V4" in refuse(
        "dflash", hyper_connection__count=4
    )


def test_deepseek_ocr_turns_halves_of_whole_heads():
    """``is_ocr`` in src/models/deepseek2.cpp, whatever llama_model_rope_type says."""
    plan = of("deepseek2-ocr", rope__freq_base=10000.0)
    assert (plan.rope.pairing, plan.rope.head_dim, plan.rope.rotary_dim) == ("half", 128, 128)
    assert "R-SWA" in refuse("deepseek2-ocr", attention__sliding_window=128)


def test_latent_heads_of_ling_3_and_dots_3():
    """src/models/bailingmoe3.cpp and dots3note.cpp: rotated lanes last, adjacent."""
    latent = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    lanes = {"attention__key_length": 576, "rope__dimension_count": 64}
    ling = of(
        "bailingmoe3", block_count=4, attention__head_count_kv="[0, 0, 0, 1]", **latent, **lanes
    )
    assert [layer.kind for layer in ling.layers] == ["no_attention"] * 3 + ["full_attention"]
    assert ling.rope == Rope(
        head_dim=192, rotary_dim=64, rotary_offset=128, theta=500000.0, pairing="adjacent",
        scaling=Plain(original_length=131072),
    )  # fmt: skip
    dots = of(
        "dots3note", block_count=3, rope__freq_base_swa=50000.0, attention__sliding_window=1024,
        attention__sliding_window_pattern="[false, true, true]",
        attention__key_length_mla_swa=256, **latent, **lanes,
    )  # fmt: skip
    full, local, _ = (layer.rope for layer in dots.layers)
    assert (full.head_dim, full.rotary_offset, full.theta) == (192, 128, 500000.0)
    assert (local.head_dim, local.rotary_offset, local.theta) == (256, 192, 50000.0)
    assert {full.pairing, local.pairing} == {"adjacent"}
    assert windows(dots) == [None, 1024, 1024]


# Listings


def test_log_of_a_loader(tmp_path):
    text = (
        "llama_model_loader: loaded meta data with 9 key-value pairs\n"
        "llama_model_loader: - kv   0:  general.architecture str              = qwen3moe\n"
        "llama_model_loader: - kv   1:  qwen3moe.block_count u32              = 62\n"
        "llama_model_loader: - kv   2:  qwen3moe.context_length u32           = 262144\n"
        "llama_model_loader: - kv   3:  qwen3moe.embedding_length u32         = 6144\n"
        "llama_model_loader: - kv   4:  qwen3moe.attention.head_count u32     = 96\n"
        "llama_model_loader: - kv   5:  qwen3moe.attention.head_count_kv u32  = 8\n"
        "llama_model_loader: - kv   6:  qwen3moe.rope.freq_base f32           = 10000000.000000\n"
        "llama_model_loader: - kv   7:  qwen3moe.attention.key_length u32     = 128\n"
        "llama_model_loader: - kv   8:  tokenizer.ggml.model str              = gpt2\n"
    )
    plan = read_text(text)
    assert plan.format == "gguf"
    assert len(plan.layers) == 62
    assert plan.rope == Rope(head_dim=128, theta=1e7, scaling=Plain(original_length=262144))
    assert any("a listing has no tensors" in note for note in plan.notes)
    (tmp_path / "run.log").write_text(text)
    assert read_any(tmp_path / "run.log").layers == plan.layers


def test_pairs_on_one_line():
    plan = read_text(
        "deepseek2.block_count=61; deepseek2.context_length=163840; "
        "deepseek2.attention.head_count=128; deepseek2.rope.freq_base=10000.000000; "
        "deepseek2.attention.key_length_mla=192; deepseek2.attention.value_length_mla=128; "
        "deepseek2.rope.dimension_count=64; deepseek2.rope.scaling.type=yarn; "
        "deepseek2.rope.scaling.factor=40.000000; "
        "deepseek2.rope.scaling.original_context_length=4096; "
        "deepseek2.rope.scaling.yarn_log_multiplier=0.100000"
    )
    assert plan.rope.scaling == YaRN(
        factor=40.0, original_length=4096, mscale=1.0, mscale_all_dim=1.0
    )
    assert plan.value_dim == 128


def test_part_of_a_listing_says_what_it_can():
    found = read_text("llama.context_length=8192; llama.rope.freq_base=500000.000000")
    assert isinstance(found, Fragment)
    assert found.missing == "block_count, attention.head_count, embedding_length"
    assert found.values["rope.freq_base"].value == 500000
    assert found.values["pairing"].value == "adjacent"
    assert found.scaling == Plain(original_length=8192)


def test_metadata_that_a_command_line_replaces(tmp_path):
    import gguf

    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in BASE.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"llama.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    plan = read_any(
        path, engine_args="--override-kv llama.context_length=int:262144 --rope-scale 2"
    )
    assert plan.stated_length == 262144
    assert plan.rope.scaling.factor == 2
    with pytest.raises(InputError, match="overrides of a config with a GGUF file"):
        read_any(path, overrides={"rope_theta": 1e6})
