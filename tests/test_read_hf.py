"""Reading config.json: every family against transformers, configs seen in public, the rules.

transformers computes from its own config classes; nothing is downloaded.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rotary_classes import built_classes
from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import ropewalk
from ropewalk import (
    DynamicNTK,
    InputError,
    Linear,
    Llama3,
    LongRoPE,
    Plain,
    Proportional,
    Rope,
    YaRN,
)
from ropewalk.models import FAMILIES, QueryTemperature, read, read_config

# Tables and rotation of every family are compared in test_coverage.py.
# The config of musicflamingo is that of a language model with a rope beside it.
UPSTREAM = sorted(
    name for name, family in FAMILIES.items() if not family.remote and name != "musicflamingo"
)
# Values without which the class defaults have no rope or make no model: 4096 lanes are not 96
# heads, GLM's three axes divide 32 planes, and mllama's list of cross attention layers has no
# default that fits every depth.
NEEDED = {
    "glm4v_text": {"partial_rotary_factor": 0.5},
    "glm_ocr_text": {"partial_rotary_factor": 0.5},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "mllama_text_model": {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "esm": {"position_embedding_type": "rotary"},
    "wav2vec2-bert": {"position_embeddings_type": "rotary"},
    "wav2vec2-conformer": {"position_embeddings_type": "rotary"},
    "seamless_m4t": {"position_embeddings_type": "rotary"},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "zamba2": {"use_mem_rope": True},
    "qwen3_omni_moe_text": {"head_dim": 128},
}
SEEN = json.loads((Path(__file__).parent / "configs_seen.json").read_text())


def config_class(name: str):
    """The class whose defaults a row repeats."""
    wanted = FAMILIES[name].defaults_of.removeprefix("transformers' ")
    if name in CONFIG_MAPPING:
        return CONFIG_MAPPING[name]
    built = next(b for b in built_classes() if b.config_name == wanted)
    return built.config_class


def upstream(name: str, **values):
    return config_class(name)(**{**NEEDED.get(name, {}), **values})


def module_of(config):
    return importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))


def rotary_of(config):
    module = module_of(config)
    found = [
        cls
        for name, cls in inspect.getmembers(module, inspect.isclass)
        if name.endswith("RotaryEmbedding")
        and cls.__module__ == module.__name__
        and "Vision" not in name
        and "Audio" not in name
    ]
    assert len(found) == 1, found
    return found[0](config)


def tables_of(config):
    """Return (layer kind or None, inv_freq, attention factor) of upstream's rotary class."""
    rotary = rotary_of(config)
    out = []
    for name, buffer in rotary.named_buffers():
        if name.endswith("original_inv_freq"):
            continue
        kind = None if name == "inv_freq" else name.removesuffix("_inv_freq")
        factor = getattr(
            rotary, "attention_scaling" if kind is None else f"{kind}_attention_scaling"
        )
        out.append((kind, buffer.double().numpy(), factor))
    return out


def float32_tolerance(theta: float) -> float:
    """Relative error of theta^-x formed in float32.

    x = 2i/d is rounded (2^-24), which moves the power by ln(theta) of that; the power, the
    reciprocal, and up to six more operations of a scaling round once each.
    """
    return 2.0**-24 * (8 + 2 * abs(math.log(theta)))


def check_against_upstream(config, length=None):
    plan = read_config(config.to_dict(), "config.json")
    for kind, inv_freq, factor in tables_of(config):
        ropes = {
            layer.rope
            for layer in plan.layers
            if layer.rope is not None and kind in (None, layer.kind)
        }
        assert len(ropes) == 1
        rope = ropes.pop()
        mine = rope.inv_freq(length)
        assert mine.shape == inv_freq.shape
        assert np.abs(mine - inv_freq).max() <= float32_tolerance(rope.theta) * mine.max()
        turning = mine > 0
        relative = np.abs(mine[turning] / inv_freq[turning] - 1).max()
        # Blended planes are a difference of near equals at worst: one more factor of 4.
        assert relative <= 4 * float32_tolerance(rope.theta)
        assert (inv_freq[~turning] == 0).all()
        assert rope.attention_factor(length) == pytest.approx(factor, rel=1e-15)
    return plan


def told(config, key: str):
    """A value of a config, under whatever name its class keeps it; None where it has none."""
    values = config.to_dict()
    return values.get(config.attribute_map.get(key, key), values.get(key))


@pytest.mark.parametrize("name", UPSTREAM)
def test_defaults_are_those_of_transformers(name):
    config = upstream(name)
    assert type(config).__name__ in FAMILIES[name].defaults_of
    full = read_config({**config.to_dict(), "model_type": name}, "config.json")
    bare = read_config({"model_type": name, **NEEDED.get(name, {})}, "config.json")
    assert full.layers == bare.layers
    assert (full.heads, full.kv_heads, full.stated_length, full.value_dim) == (
        bare.heads,
        bare.kv_heads,
        bare.stated_length,
        bare.value_dim,
    )
    if FAMILIES[name].prepare is not None:  # counts of the part that is rotated
        return
    assert full.heads == told(config, "num_attention_heads")
    layers = told(config, "num_hidden_layers") or told(config, "num_layers")
    assert len(full.layers) == layers
    if FAMILIES[name].axial is None:
        assert full.stated_length == told(config, "max_position_embeddings")
    kv_heads = told(config, "num_key_value_heads")
    if kv_heads is not None:
        assert full.kv_heads == kv_heads
    kinds = told(config, "layer_types")
    # Falcon H1's layers are all "hybrid", RecurrentGemma's and Bamba's have other names there.
    if kinds is not None and name not in ("falcon_h1", "recurrent_gemma", "bamba"):
        assert [layer.kind for layer in full.layers] == list(kinds)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("name", "block", "values"),
    [
        ("llama", LLAMA3, {"rope_theta": 500000.0, "max_position_embeddings": 131072}),
        ("llama", {"rope_type": "linear", "factor": 8.0}, {}),
        ("llama", {"type": "linear", "factor": 8.0}, {}),
        ("qwen2", YARN, {"rope_theta": 1e6, "max_position_embeddings": 131072}),
        ("qwen2", YARN | {"attention_factor": 1.0}, {"max_position_embeddings": 131072}),
        ("qwen3", YARN | {"truncate": False, "beta_fast": 16}, {"rope_theta": 1e6}),
        ("llama", YARN | {"mscale": 1.0, "mscale_all_dim": 0.707, "beta_fast": 0}, {}),
        ("stablelm", YARN, {}),
        ("phi", {"rope_type": "linear", "factor": 2.0}, {}),
        (
            "phi3",
            {
                "type": "su",
                "short_factor": [1 + i / 64 for i in range(48)],
                "long_factor": [1.5 + i for i in range(48)],
                "original_max_position_embeddings": 4096,
            },
            {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096},
        ),
        (
            "deepseek_v3",
            YARN | {"factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0},
            {"max_position_embeddings": 163840},
        ),
        (
            "gemma3_text",
            {"rope_type": "linear", "factor": 8.0},
            {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
        ),
        ("olmo3", YARN | {"original_max_position_embeddings": 8192}, {}),
        ("modernbert", {"rope_type": "linear", "factor": 2.0}, {}),
    ],
)
def test_scalings_are_those_of_transformers(name, block, values):
    config = upstream(name, rope_scaling=dict(block), **values)
    after = check_against_upstream(config)
    before = read_config({"model_type": name, "rope_scaling": block, **values}, "config.json")
    # The generation before transformers 5 and the one after it say the same.
    assert [layer.rope for layer in before.layers] == [layer.rope for layer in after.layers]
    if name == "phi3":
        long = rotary_of(config)
        long(torch.zeros(1), torch.tensor([[5000]]))
        rope = after.rope
        assert np.abs(long.inv_freq.double().numpy() / rope.inv_freq(5001) - 1).max() <= (
            4 * float32_tolerance(rope.theta)
        )


def test_dynamic_scaling_grows_like_transformers():
    config = upstream("llama", rope_scaling={"type": "dynamic", "factor": 2.0})
    rope = check_against_upstream(config).rope
    assert rope.scaling == DynamicNTK(factor=2.0, original_length=2048)
    rotary = rotary_of(config)
    rotary(torch.zeros(1), torch.arange(5000)[None])
    error = np.abs(rotary.inv_freq.double().numpy() / rope.inv_freq(5000) - 1).max()
    # The base itself is formed in float32 here: 2^-24 of it, to powers up to 1.
    assert error <= 8 * float32_tolerance(rope.theta)


@pytest.mark.parametrize("case", [c for c in SEEN if "expected" in c], ids=lambda c: c["id"])
def test_config_seen_in_public(case):
    """Positional fields of public files, mistakes included; the source is in the data file."""
    expected = dict(case["expected"])
    plan = read_config(case["config"], "config.json")
    rope = plan.rope
    assert sum(layer.rope is not None for layer in plan.layers) == expected.pop("rope_layers")
    assert len(plan.layers) == expected.pop("layers")
    got = {
        "kind": rope.scaling.kind,
        "theta": rope.theta,
        "head_dim": rope.head_dim,
        "rotary_dim": rope.rotary_dim,
        "pairing": rope.pairing,
        "factor": getattr(rope.scaling, "factor", 1.0),
        "original_length": plan.original_length,
        "stated_length": plan.stated_length,
        "amplitude": rope.attention_factor(2**30),
        "softmax_multiplier": plan.layers[0].softmax_multiplier,
    }
    for name, value in expected.items():
        # Amplitudes were written down with six digits.
        assert got[name] == (pytest.approx(value, rel=5e-6) if isinstance(value, float) else value)


@pytest.mark.parametrize("case", [c for c in SEEN if "refused" in c], ids=lambda c: c["id"])
def test_config_seen_in_public_that_is_refused(case):
    with pytest.raises(InputError) as caught:
        read_config(case["config"], "config.json")
    assert case["refused"] in str(caught.value)
    assert "\n" not in str(caught.value)


# Rules for values.

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}


def llama(**values):
    return {key: value for key, value in (LLAMA | values).items() if value != "absent"}


def refuse(config) -> str:
    with pytest.raises(InputError) as caught:
        read_config(config, "config.json")
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("config.json: ")
    return text


def test_every_value_has_a_source():
    plan = read_config(llama(rope_scaling=LLAMA3), "some/config.json")
    assert plan.path == "some/config.json"
    sources = {name: item.source for name, item in plan.sources.items()}
    assert sources["theta"] == "config.json: rope_theta"
    assert sources["scaling"] == "config.json: rope_scaling"
    assert sources["head_dim"] == "derived: hidden_size 4096 / 32 heads"
    assert (
        sources["original_length"] == "config.json: rope_scaling.original_max_position_embeddings"
    )
    assert sources["stated_length"] == "config.json: max_position_embeddings"
    assert sources["pairing"] == "rule of transformers' LlamaConfig"
    assert plan.rope == Rope(
        head_dim=128,
        theta=500000.0,
        scaling=Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192),
    )


def test_plain_model_has_its_stated_length_as_original_length():
    plan = read_config(llama(rope_scaling=None), "config.json")
    assert plan.rope.scaling == Plain(original_length=8192)
    assert plan.original_length == 8192
    assert not plan.notes


def test_theta_in_two_places():
    agree = llama(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    assert read_config(agree, "config.json").rope.theta == 500000.0
    differ = llama(rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    text = refuse(differ)
    assert "rope_parameters.rope_theta" in text
    assert "500000.0 under rope_theta" in text


def test_theta_within_the_old_block_only():
    plan = read_config(
        llama(rope_theta="absent", rope_scaling={**LLAMA3, "rope_theta": 1e6}), "config.json"
    )
    assert plan.rope.theta == 1e6
    assert plan.sources["theta"].source == "config.json: rope_scaling.rope_theta"


def test_both_blocks():
    same = llama(rope_scaling=YARN, rope_parameters={**YARN, "rope_theta": 500000.0})
    assert read_config(same, "config.json").rope.scaling.kind == "yarn"
    text = refuse(llama(rope_scaling=YARN, rope_parameters={**YARN, "factor": 2.0}))
    assert "rope_parameters.factor" in text
    assert "rope_scaling.factor" in text


def test_partial_in_two_places():
    block = {"rope_type": "default", "partial_rotary_factor": 0.25}
    base = {**LLAMA, "model_type": "stablelm", "rope_parameters": block}
    plan = read_config({**base, "partial_rotary_factor": 0.25}, "config.json")
    assert plan.rope.rotary_dim == 32
    text = refuse({**base, "partial_rotary_factor": 0.5})
    assert "rope_parameters.partial_rotary_factor" in text
    assert "0.5" in text


def test_share_that_the_family_does_not_read():
    plan = read_config(llama(partial_rotary_factor=0.5), "config.json")
    assert plan.rope.rotary_dim == 128
    assert any("partial_rotary_factor 0.5 is not used" in note for note in plan.notes)
    assert "turns all lanes" in refuse(llama(partial_rotary_factor=0.5, rope_scaling=YARN))


def test_missing_original_length_is_the_stated_one_with_a_note():
    plan = read_config(llama(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "config.json")
    assert plan.rope.scaling == YaRN(factor=4.0, original_length=8192)
    assert any("original_max_position_embeddings is missing" in note for note in plan.notes)


def test_original_length_of_phi3_stands_beside_the_block():
    config = {
        "model_type": "phi3",
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "type": "yarn",
            "short_factor": [1.0] * 48,
            "long_factor": [2.0] * 48,
        },
    }
    plan = read_config(config, "config.json")
    # type "yarn" in a Phi-3 config means longrope; the factor is max / original.
    assert plan.rope.scaling == LongRoPE(
        short_factor=(1.0,) * 48, long_factor=(2.0,) * 48, original_length=4096, factor=32.0
    )
    assert any("'yarn' means 'longrope'" in note for note in plan.notes)
    config["rope_scaling"]["original_max_position_embeddings"] = 8192
    assert "8192" in refuse(config)


def test_factor_and_ratio_disagree():
    plan = read_config(
        llama(rope_scaling=YARN | {"factor": 2.0}, max_position_embeddings=131072), "config.json"
    )
    assert plan.rope.scaling.factor == 2.0
    assert any("disagree" in note for note in plan.notes)


def test_linear_scaling_keeps_its_original_length_unknown():
    plan = read_config(llama(rope_scaling={"type": "linear", "factor": 4.0}), "config.json")
    assert plan.rope.scaling == Linear(factor=4.0)
    assert plan.original_length is None
    assert plan.sources["original_length"].source == "unknown"
    assert any("original length is unknown" in note for note in plan.notes)


def test_dynamic_ignores_an_original_length():
    block = {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 2048}
    plan = read_config(llama(rope_scaling=block), "config.json")
    assert plan.rope.scaling == DynamicNTK(factor=2.0, original_length=8192)
    assert any("ignores original_max_position_embeddings 2048" in note for note in plan.notes)


def test_missing_values_of_llama3_are_named():
    block = {key: value for key, value in LLAMA3.items() if key != "low_freq_factor"}
    assert "rope_scaling.low_freq_factor: got nothing" in refuse(llama(rope_scaling=block))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (llama(model_type="lama"), "'lama'"),
        (llama(model_type="absent"), "model_type: got nothing"),
        (llama(model_type=7), "model_type: got 7"),
        (llama(rope_scaling={"rope_type": "yarm", "factor": 4}), "did you mean 'yarn'"),
        (llama(rope_scaling={"rope_type": "yarn", "fctor": 4}), "did you mean 'factor'"),
        (llama(rope_scaling={"factor": 4}), "rope_type: got nothing"),
        (llama(rope_scaling={"rope_type": "yarn", "type": "linear"}), "'linear' under type"),
        (llama(rope_scaling="yarn"), "expected an object or null"),
        (llama(rope_scaling={"rope_type": "linear", "factor": "4"}), "factor: got '4'"),
        (llama(rope_scaling={"rope_type": "linear", "factor": 0.5}), "at least 1"),
        (llama(rope_scaling={"rope_type": "linear"}), "factor: got nothing"),
        (llama(rope_theta="10000"), "rope_theta: got '10000'"),
        (llama(rope_theta=0), "positive number"),
        (llama(rope_theta=float("nan")), "positive number"),
        (llama(num_attention_heads=0), "num_attention_heads: got 0"),
        (llama(num_attention_heads=2.5), "num_attention_heads: got 2.5"),
        (llama(num_attention_heads=30, num_key_value_heads=5), "30 heads do not divide"),
        (llama(num_key_value_heads=5), "5 key and value heads for 32"),
        (llama(head_dim=127), "rotary_dim"),
        (llama(max_position_embeddings="8k"), "max_position_embeddings: got '8k'"),
        (llama(num_hidden_layers=10**9), "at most"),
        (llama(n_layer=5), "num_hidden_layers: got 4 there and 5 under n_layer"),
        (llama(model_type="falcon", alibi=True), "ALiBi"),
        ([], "a list"),
        (llama(model_type="qwen2", layer_types=["full_attention"]), "1 entries"),
        (llama(model_type="qwen2", layer_types=["ful_attention"] * 4), "'full_attention'"),
        (llama(model_type="smollm3", no_rope_layers=[1, 1]), "2 entries"),
        (llama(model_type="smollm3", no_rope_layer_interval=0), "no_rope_layer_interval"),
        (llama(model_type="gemma3_text", sliding_window_pattern=-1), "sliding_window_pattern"),
        (
            llama(model_type="gemma2", rope_theta="absent",
                  rope_parameters={"full_attention": {"rope_type": "default"}}),
            "rope_parameters.sliding_attention: got nothing",
        ),
        (
            llama(rope_parameters={"full_attention": {}, "rope_type": "default"}),
            "beside blocks per layer type",
        ),
    ],
)  # fmt: skip
def test_refused(config, words):
    text = refuse(config) if isinstance(config, dict) else ""
    if not text:
        with pytest.raises(InputError) as caught:
            read_config(config, "config.json")
        text = str(caught.value)
    assert words in text


def test_no_value_makes_a_traceback():
    """Every key with every kind of wrong value: an InputError or a plan, nothing else."""
    wrong = (None, True, -1, 0, 0.5, 1e400, float("nan"), "x", [], [1], {}, {"a": 1}, 2**70)
    block = YARN | {"mscale": 1, "mscale_all_dim": 1, "truncate": True, "attention_factor": 1.0}
    keys = [*LLAMA, "head_dim", "rope_scaling", "rope_parameters", "partial_rotary_factor"]
    keys += ["layer_types", "sliding_window", "no_rope_layers", "max_window_layers", "alibi"]
    keys += ["text_config", "architectures", "full_attn_idxs", "use_sliding_window"]
    for family in ("llama", "qwen2", "smollm3", "gemma3_text", "deepseek_v3", "chatglm", "lfm2"):
        for key in keys:
            for value in wrong:
                config = {**LLAMA, "model_type": family, "use_sliding_window": True, key: value}
                try:
                    read_config(config, "config.json")
                except InputError as error:
                    assert "\n" not in str(error)  # noqa: PT017 (a plan is right as well)
        for key in block:
            for value in wrong:
                try:
                    read_config(
                        {**LLAMA, "model_type": family, "rope_scaling": block | {key: value}}, "c"
                    )
                except InputError as error:
                    assert "\n" not in str(error)  # noqa: PT017


# Layers.


def counts(plan):
    rope = sum(layer.rope is not None for layer in plan.layers)
    return rope, len(plan.layers) - rope


def test_gemma3_flat_and_nested_are_the_same():
    sizes = {"model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024}
    flat = read_config(
        sizes
        | {
            "rope_theta": 1000000,
            "rope_local_base_freq": 10000,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        "config.json",
    )
    nested = read_config(
        sizes
        | {
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000},
            }
        },
        "config.json",
    )
    assert flat.layers == nested.layers
    local, full = flat.layers[0], flat.layers[5]
    assert (local.kind, local.window, local.rope.theta) == ("sliding_attention", 1024, 10000.0)
    assert local.rope.scaling == Plain(original_length=131072)
    assert (full.kind, full.window, full.rope.theta) == ("full_attention", None, 1e6)
    assert full.rope.scaling == Linear(factor=8.0)
    assert flat.rope == full.rope  # that of the layers without a window


def test_null_block_of_a_layer_type_means_no_rope():
    config = llama(
        model_type="gemma2",
        rope_theta="absent",
        rope_parameters={
            "full_attention": None,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    )
    assert counts(read_config(config, "config.json")) == (2, 2)


def test_windows_of_qwen2():
    base = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 3}
    off = read_config(base, "config.json")
    assert {layer.window for layer in off.layers} == {None}
    assert any("the window of 4096 is not used" in note for note in off.notes)
    on = read_config({**base, "use_sliding_window": True}, "config.json")
    assert [layer.window for layer in on.layers] == [None, None, None, 4096]


def test_window_no_smaller_than_the_length_is_reported_with_a_note():
    plan = read_config(llama(model_type="mistral", sliding_window=8192), "config.json")
    assert {layer.window for layer in plan.layers} == {8192}
    assert any("no effect" in note for note in plan.notes)


def test_window_null_and_window_missing():
    assert (
        read_config(llama(model_type="mistral", sliding_window=None), "c").layers[0].window is None
    )
    missing = read_config(llama(model_type="mistral"), "c")
    assert missing.layers[0].window == 4096
    assert missing.sources["window"].source == "default of transformers' MistralConfig"


def test_layers_without_rope():
    assert counts(read_config({"model_type": "smollm3"}, "c")) == (27, 9)
    assert counts(read_config({"model_type": "cohere2"}, "c")) == (30, 10)
    assert counts(read_config({"model_type": "exaone4"}, "c")) == (24, 8)
    assert counts(read_config({"model_type": "exaone4", "sliding_window": None}, "c")) == (32, 0)
    assert counts(read_config({"model_type": "qwen3_next"}, "c")) == (12, 36)
    llama4 = read_config({"model_type": "llama4_text"}, "c")
    assert counts(llama4) == (36, 12)
    assert llama4.layers[3].query_temperature == QueryTemperature(0.1, 8192, offset=1)
    assert llama4.layers[0].query_temperature is None
    assert llama4.layers[0].window == 8192


def test_query_temperature_of_ministral3():
    plan = read_config({"model_type": "ministral3"}, "config.json")
    assert plan.layers[0].query_temperature == QueryTemperature(0.1, 16384)
    assert plan.rope.attention_factor() == 1.0  # mscale and mscale_all_dim are equal


def test_latent_attention():
    plan = read_config(
        {
            "model_type": "deepseek_v3",
            "partial_rotary_factor": 0.5,
            "rope_scaling": YARN | {"factor": 40, "mscale": 1.0, "mscale_all_dim": 0.707},
        },
        "config.json",
    )
    rope = plan.rope
    assert (rope.head_dim, rope.rotary_dim, rope.rotary_offset) == (192, 64, 128)
    assert plan.value_dim == 128
    assert plan.layers[0].softmax_multiplier == (0.1 * 0.707 * math.log(40) + 1) ** 2
    assert rope.attention_factor() == (0.1 * math.log(40) + 1) / (0.1 * 0.707 * math.log(40) + 1)
    half = read_config({"model_type": "deepseek_v3", "rope_interleave": False}, "config.json")
    assert (rope.pairing, half.rope.pairing) == ("adjacent", "half")


def test_gemma4_proportional():
    plan = read_config({"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}}, "c")
    assert plan.rope == Rope(
        head_dim=512,
        theta=1e6,
        scaling=Proportional(share=0.25, original_length=131072),
    )
    assert plan.layers[0].rope == Rope(
        head_dim=256, theta=1e4, scaling=Plain(original_length=131072)
    )


def test_nested_text_config():
    inner = llama(rope_scaling=LLAMA3)
    for key in ("text_config", "llm_config"):
        config = {"model_type": "some_new_vision_model", key: inner, "rope_theta": 1.0}
        plan = read_config(config, "config.json")
        assert plan.rope.theta == 500000.0
        assert plan.sources["theta"].source == f"config.json: {key}.rope_theta"
        assert any("rope_theta at the top of the file is not used" in note for note in plan.notes)
    text = refuse({"model_type": "some_new_vision_model", "text_config": {"hidden_size": 8}})
    assert "some_new_vision_model" in text


def test_sections_of_several_axes():
    block = {"type": "mrope", "mrope_section": [16, 24, 24]}
    plan = read_config({"model_type": "qwen2_vl", "rope_scaling": block}, "config.json")
    assert plan.rope.scaling.kind == "plain"
    assert plan.sources["mrope_section"].value == [16, 24, 24]
    axes = plan.layers[0].axes
    assert axes.plane_axes.tolist() == [0] * 16 + [1] * 24 + [2] * 24
    assert axes.on_text() == plan.rope
    block["mrope_section"] = [16, 24, 25]
    plan = read_config({"model_type": "qwen2_vl", "rope_scaling": block}, "config.json")
    assert plan.layers[0].axes is None
    assert any("does not add up to the 64 planes" in note for note in plan.notes)


def test_trained_length_with_dual_chunk_attention():
    plan = read_config(
        {
            "model_type": "qwen2",
            "max_position_embeddings": 1010000,
            "dual_chunk_attention_config": {"original_max_position_embeddings": 262144},
        },
        "config.json",
    )
    assert plan.original_length == 262144
    assert any("dual chunk attention" in note for note in plan.notes)


def test_assumed_family():
    config = llama(model_type="brand_new")
    assert "--assume-family" in refuse(config)
    plan = read_config(config, "config.json", assume_family="llama")
    assert plan.model_type == "brand_new"
    assert any("read as family 'llama' on request" in note for note in plan.notes)
    with pytest.raises(InputError, match="did you mean 'llama'"):
        read_config(config, "config.json", assume_family="lama")


# Files.


def test_read_file_and_folder(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(llama()))
    by_folder, by_file = read(tmp_path), ropewalk.read(str(file))
    assert by_folder == by_file
    assert by_file.path == str(file)
    assert by_file.format == "hf"
    AutoConfig.from_pretrained(tmp_path)  # the same file is a config to transformers


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", b"{", "line 1"),
        ("config.json", b"\xff\xfe", "not UTF-8"),
        ("config.json", b"[" * 100_000, "nested too deep"),
        ("config.json", b'{"rope_theta": 1, "rope_theta": 2}', "the key twice"),
        ("config.json", b"3", "a int"),
        ("weights.bin", b"abcdef", "begins with b'abcd'"),
        ("model.gguf", b"abcd" * 10, "begins with b'abcd'"),
        ("model.gguf", b"", "shorter than a GGUF header"),
    ],
)
def test_unreadable_files(tmp_path, name, content, words):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(file)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_that_hold_no_model(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        read(tmp_path / "missing")
    with pytest.raises(InputError, match="a folder with nothing"):
        read(tmp_path)
    (tmp_path / "a.gguf").touch()
    (tmp_path / "b.gguf").touch()
    with pytest.raises(InputError, match=r"2 GGUF files: a\.gguf, b\.gguf"):
        read(tmp_path)


def test_a_trained_length_written_as_a_float():
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32768.0,
        },
    }
    assert read_config(config, "x").original_length == 32768


def test_gemma4_written_flat():
    """The share is that of the full layers, which span 512 lanes; local layers turn all 256."""
    config = {
        "model_type": "gemma4_text",
        "hidden_size": 2560,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_key_value_heads": 2,
        "max_position_embeddings": 131072,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "partial_rotary_factor": 0.25,
        "sliding_window": 512,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    plan = read_config(config, "x")
    local, full = (layer.rope for layer in plan.layers)
    assert (local.theta, local.rotary_dim, local.scaling.kind) == (10000.0, 256, "plain")
    assert (full.theta, full.rotary_dim, full.scaling.share) == (1000000.0, 512, 0.25)
    assert not any("is not used" in note for note in plan.notes)
    # No source names a key that the file does not have.
    defaults = "default of transformers' Gemma4TextConfig"
    assert plan.sources["theta (full_attention)"].source == "x: rope_theta"
    assert plan.sources["theta (sliding_attention)"].source == defaults
    assert not any("rope_parameters" in item.source for item in plan.sources.values())
    del config["rope_theta"]
    plan = read_config(config, "x")
    assert plan.sources["theta (full_attention)"].source == defaults
    with pytest.raises(InputError) as refused:
        read_config({**config, "rope_theta": 5e5}, "x")
    assert refused.value.where == "x: rope_theta"
    assert defaults in refused.value.found
