"""Command lines of engines: alone, and together with the model that they change."""

from __future__ import annotations

import json

import pytest

from ropewalk import InputError, Linear, Llama3, LongRoPE, Plain, Rope, YaRN
from ropewalk.models.fragment import Fragment
from ropewalk.models.read import read, read_any, read_text

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "rope_theta": 10000.0,
}  # fmt: skip
NEXT = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_attention_heads": 16,
    "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 256,
    "max_position_embeddings": 262144,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25,
    },
}  # fmt: skip
GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 512, "num_attention_heads": 2,
    "num_hidden_layers": 6, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
    "max_position_embeddings": 32768, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
}  # fmt: skip


def put(folder, values, name="config.json"):
    path = folder / name
    path.write_text(json.dumps(values))
    return path


def refuse(call, *arguments, **options):
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def alone(text):
    found = read_text(text)
    assert isinstance(found, Fragment)
    return found


def applied(folder, config, text):
    return read_any(put(folder, config), engine_args=text)


# llama.cpp


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--rope-scale 4", Linear(factor=4.0)),
        ("--rope-freq-scale 0.25", Linear(factor=4.0)),
        ("--rope-freq-scale 0.333333333", Linear(factor=3.0)),
        ("--rope-scaling linear --rope-scale 4", Linear(factor=4.0)),
        ("--rope-scaling none --rope-freq-base 1e6", Plain()),
        (
            "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768",
            YaRN(factor=4.0, original_length=32768),
        ),
        (
            (
                "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 --yarn-beta-fast 16 "
                "--yarn-beta-slow 2"
            ),
            YaRN(factor=4.0, original_length=32768, beta_fast=16.0, beta_slow=2.0),
        ),
        ("--rope-freq-base=500000", None),
    ],
)
def test_llama_cpp_alone(flags, expected):
    found = alone(f"llama-server {flags}")
    assert found.format == "llama.cpp"
    assert found.scaling == expected


def test_inverted_frequency_scale_is_said():
    found = alone("./main --rope-freq-scale 8.0 -m models/no-such-file.bin")
    assert found.scaling is None
    (note,) = found.notes
    assert note.startswith("--rope-freq-scale is inverted: it speeds positions up by 8, so the")
    assert note.endswith("0.125 where 8 is meant")


def test_yarn_without_a_factor_is_said():
    found = alone("./llama-server --ctx-size 65536 --rope-scaling yarn --yarn-orig-ctx 32768")
    assert any("YaRN without --rope-scale" in note for note in found.notes)


def test_context_beyond_the_reach_is_said():
    found = alone("-c 131072 --rope-scaling yarn --rope-scale 2 --yarn-orig-ctx 32768")
    assert "-c 131072 is beyond 65536 = factor x original length" in found.notes


def test_inert_and_undescribed_flags_are_said():
    found = alone("--rope-scale 2 --yarn-attn-factor 0.7 --grp-attn-n 4 --grp-attn-w 512")
    assert any("--yarn-attn-factor 0.7 has no effect" in note for note in found.notes)
    assert any("self-extend" in note for note in found.notes)
    assert (found.values["groups"].value, found.values["group_width"].value) == (4, 512)


def test_llama_cpp_on_a_config(tmp_path):
    plan = applied(tmp_path, LLAMA, "--rope-scaling yarn --rope-scale 4")
    assert plan.rope.scaling == YaRN(factor=4.0, original_length=4096)
    assert plan.sources["scaling"].source.startswith("llama.cpp flags on ")
    plan = applied(tmp_path, LLAMA, "--rope-scaling none --rope-freq-base 5e5")
    assert plan.rope == Rope(head_dim=64, theta=5e5, scaling=Plain(original_length=4096))
    assert plan.sources["theta"].source == "--rope-freq-base"


def test_flags_replace_the_scaling_of_the_file(tmp_path):
    linear = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert applied(tmp_path, linear, "--rope-scale 2").rope.scaling == Linear(
        factor=2.0, original_length=4096
    )
    # Without a factor of its own the line keeps that of the file.
    yarn = {**LLAMA, "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512,
    }}  # fmt: skip
    assert applied(tmp_path, yarn, "--yarn-beta-fast 8").rope.scaling == YaRN(
        factor=8.0, original_length=512, beta_fast=8.0
    )
    assert applied(tmp_path, yarn, "--yarn-ext-factor 0").rope.scaling == Linear(
        factor=8.0, original_length=512
    )


def test_windowed_layers_keep_their_own(tmp_path):
    before = read(put(tmp_path, GEMMA))
    plan = applied(tmp_path, GEMMA, "--rope-scale 4 --rope-freq-base 2e6")
    assert plan.layers[0].rope == before.layers[0].rope
    assert plan.layers[5].rope.theta == 2e6
    assert plan.layers[5].rope.scaling == Linear(factor=4.0, original_length=32768)
    assert any("windowed layers keep their own" in note for note in plan.notes)


def test_flags_that_do_not_fit(tmp_path):
    path = put(tmp_path, LLAMA)
    text = refuse(read_any, path, engine_args="--rope-freq-scale 2")
    assert "--rope-freq-scale: got a stretch by 0.5" in text
    assert "--rope-freq-scale 0.5 or --rope-scale 2 is meant" in text
    llama3 = {**LLAMA, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    }}  # fmt: skip
    text = refuse(read_any, put(tmp_path, llama3), engine_args="--rope-scale 4")
    assert "flags on a model with llama3 scaling" in text
    put(tmp_path, LLAMA)
    for flags, said in (
        ("--rope-scaling longrope", "--rope-scaling: got 'longrope', expected none, linear or"),
        ("--rope-scale four", "--rope-scale: got 'four', expected a number"),
        ("--rope-scale nan", "expected a number"),
        ("--rope-freq-base -5", "expected a number above 0"),
        ("--rope-scale 4 --rope-freq-scale 0.5", "expected one of the two"),
        ("--rope-scale 4 --rope-scale 8", "got '4' and later '8'"),
        ("--yarn-orig-ctx 0.5 --rope-scale 2", "expected a whole number"),
        ("--override-kv llama.context_length=8192", "expected key=type:value"),
        ("--rope-scale '4", "text that cannot be split"),
        ("--yarn-ext-factor 0.5 --rope-scaling yarn --rope-scale 2", "0 (linear) or 1 (YaRN)"),
        ("hello world", "expected flags of vLLM, SGLang or llama.cpp"),
    ):
        assert said in refuse(read_any, path, engine_args=flags), flags


def test_a_model_that_the_line_names_is_read_with_it(tmp_path):
    path = put(tmp_path, LLAMA)
    plan = read_text(f"llama-server -m {path} --rope-scale 4")
    assert plan.rope.scaling.factor == 4
    plan = read_text(f"vllm serve {tmp_path} --hf-overrides '{{\"rope_theta\": 5e6}}'")
    assert plan.rope.theta == 5e6


# Ollama and KoboldCpp


def test_modelfile(tmp_path):
    text = (
        "FROM qwen2.5-coder:14b\n# PARAMETER num_ctx 5\nPARAMETER num_ctx 262144\n"
        "PARAMETER rope_frequency_scale 0.125\nPARAMETER rope_frequency_base 1e+06\n"
    )
    found = alone(text)
    assert found.format == "ollama"
    assert found.scaling == Linear(factor=8.0)
    assert found.values["base"].value == 1e6
    assert found.values["context"].value == 262144
    (tmp_path / "Modelfile").write_text(text)
    assert read_any(tmp_path / "Modelfile").values == found.values
    inverted = alone("FROM gemma2:27b\nPARAMETER rope_frequency_scale 2.0")
    assert any("is inverted: it speeds positions up by 2" in note for note in inverted.notes)


def test_koboldcpp():
    found = alone("koboldcpp.exe --contextsize 16384 --ropeconfig 0.25 10000")
    assert found.format == "koboldcpp"
    assert found.scaling == Linear(factor=4.0)
    assert found.values["base"].value == 10000


# vLLM and SGLang


def test_vllm_alone():
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 262144}
    found = alone(f"vllm serve Q/M --max-model-len 1010000 --hf-overrides "
                  f"'{json.dumps({'rope_parameters': block})}'")  # fmt: skip
    assert found.format == "vllm"
    assert found.scaling == YaRN(factor=4.0, original_length=262144)
    assert found.values["context"].value == 1010000
    assert any(
        "rope_theta, partial_rotary_factor, mrope_section" in note and "repeated" in note
        for note in found.notes
    )


def test_nothing_to_repeat_where_all_is_there():
    block = {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 262144,
        "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    }  # fmt: skip
    text = json.dumps({"text_config": {"rope_parameters": block}})
    assert alone(f"vllm serve x --hf-overrides '{text}'").notes == ()


def test_override_of_a_length_stretches_nothing():
    found = alone("vllm serve x --hf-overrides '{\"max_position_embeddings\": 1010000}'")
    assert found.scaling is None
    assert "the override raises the length only: nothing is stretched" in found.notes


def test_old_vllm_flag():
    found = alone(
        'vllm serve Qwen3-8B --rope-scaling \'{"type":"yarn","factor":4.0, '
        '"original_max_position_embeddings":32768,"rope_type": "yarn"}\''
    )
    assert found.scaling == YaRN(factor=4.0, original_length=32768)
    assert any("--rope-scaling was removed from vLLM" in note for note in found.notes)


def test_a_hyphen_is_no_underscore():
    text = refuse(read_text, 'vllm serve x --hf-overrides \'{"rope-scaling": {"factor": 4}}\'')
    assert "rope-scaling: got a key that engines do not know and ignore in silence" in text
    assert "did you mean 'rope_scaling'?" in text


def test_overrides_replace_the_block_whole(tmp_path):
    override = {"rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 262144,
    }}  # fmt: skip
    plan = read_any(put(tmp_path, NEXT), overrides=json.dumps(override))
    assert plan.rope.theta == 10000.0  # 1e7 stood in the block that is gone
    assert any(
        "replaces rope_parameters whole: rope_theta 10000000.0, partial_rotary_factor 0.25 would "
        "be lost" in note
        for note in plan.notes
    )
    override["rope_parameters"] |= {"rope_theta": 1e7, "partial_rotary_factor": 0.25}
    plan = read_any(put(tmp_path, NEXT), overrides=override)
    assert (plan.rope.theta, plan.rope.rotary_dim) == (1e7, 64)
    assert plan.sources["theta"].source == "override: rope_parameters.rope_theta"


def test_the_old_name_of_the_block_replaces_the_new_one(tmp_path):
    override = {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e7}}
    plan = read_any(put(tmp_path, NEXT), overrides=override)
    assert plan.rope.scaling == Linear(factor=2.0)
    assert plan.rope.theta == 1e7
    assert any("partial_rotary_factor 0.25 would be lost; repeat it" in n for n in plan.notes)


def test_theta_at_the_top_outlives_the_override(tmp_path):
    override = {"rope_scaling": {
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048,
    }}  # fmt: skip
    text = f"--json-model-override-args '{json.dumps(override)}' --context-length 9999"
    plan = applied(tmp_path, {**LLAMA, "rope_theta": 1e6}, text)
    assert plan.rope.theta == 1e6
    assert plan.sources["theta"].source == "config.json: rope_theta"
    assert plan.rope.scaling == YaRN(factor=2.0, original_length=2048)
    assert "--context-length 9999 is beyond the stated length 4096" in plan.notes


def test_an_own_scaling_that_is_replaced_is_named(tmp_path):
    own = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 512}  # fmt: skip
    plan = applied(
        tmp_path,
        {**LLAMA, "rope_scaling": own},
        '--rope-scaling \'{"factor": 8.0, "type": "dynamic"}\'',
    )
    assert any("own scaling 'llama3' by 'dynamic'" in note for note in plan.notes)
    assert read(put(tmp_path, {**LLAMA, "rope_scaling": own})).rope.scaling == Llama3(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=512
    )


def test_overrides_that_are_no_json(tmp_path):
    path = put(tmp_path, LLAMA)
    assert "--overrides: got text that is no JSON" in refuse(read_any, path, overrides="{a: 1}")
    assert "--overrides: got a list" in refuse(read_any, path, overrides="[1]")
    text = refuse(read_any, path, overrides="{}", engine_args="--hf-overrides '{}'")
    assert "--overrides: got overrides here and in --engine-args" in text
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    assert "no JSON" in refuse(read_any, path, overrides=deep)


def test_excerpt_of_a_config(tmp_path):
    found = read_any(put(tmp_path, {"rope_scaling": {"factor": 8.0, "type": "linear"}}))
    assert isinstance(found, Fragment)
    assert found.scaling == Linear(factor=8.0)
    found = read_any(put(tmp_path, {"rope_theta": 1e7, "max_position_embeddings": 1010000}))
    assert (found.values["theta"].value, found.scaling) == (1e7, None)
    text = refuse(read, tmp_path / "config.json")
    assert "hf settings without the family and sizes of the model" in text
    lists = {"short_factor": [1.0, 2.0], "long_factor": [2.0, 4.0], "rope_type": "longrope",
             "original_max_position_embeddings": 4096}  # fmt: skip
    found = read_any(put(tmp_path, {"rope_parameters": lists}))
    assert isinstance(found.scaling, LongRoPE)


def test_training_flags_of_the_yarn_repository():
    found = alone("finetune.py --scaling-type ntk --scaling-factor 1 --rope-theta 20000")
    assert (found.scaling, found.values["theta"].value) == (Plain(), 20000)
    assert "factor 1: ntk changes nothing more than the base" in found.notes
    assert alone("--scaling-type linear --scaling-factor 4").scaling == Linear(factor=4.0)
    assert "--scaling-type: got 'magic'" in refuse(read_text, "--scaling-type magic")
