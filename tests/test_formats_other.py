"""Formats of single programs, configs of mlx-lm, and how files are told apart and loaded."""

from __future__ import annotations

import json
import math

import pytest

from ropewalk import InputError, Linear, Llama3, Plain, Rope, YaRN
from ropewalk.models.flat_file import flatten
from ropewalk.models.formats import SIGNATURES, recognise
from ropewalk.models.fragment import Fragment
from ropewalk.models.plan import QueryTemperature
from ropewalk.models.read import read, read_any


def put(folder, values, name="config.json"):
    path = folder / name
    path.write_text(json.dumps(values))
    return path


def of(folder, values):
    return read(put(folder, values))


def refuse(folder, values, name="config.json"):
    with pytest.raises(InputError) as caught:
        read_any(put(folder, values, name))
    text = str(caught.value)
    assert "\n" not in text
    return text


MAXTEXT = {
    "base_emb_dim": 4096, "base_num_query_heads": 32, "base_num_decoder_layers": 4,
    "head_dim": 128, "rope_max_timescale": 500000,
}  # fmt: skip
MLA = {
    "base_emb_dim": 2048, "base_num_query_heads": 16, "base_num_decoder_layers": 2,
    "attention_type": "mla", "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "rope_type": "yarn", "rope_max_timescale": 10000, "max_position_embeddings": 163840,
    "original_max_position_embeddings": 4096, "rope_factor": 40, "beta_fast": 32, "mscale": 0.707,
}  # fmt: skip


def test_maxtext_hands_planes_out_in_turn(tmp_path):
    """``Qwen3OmniMoeThinkerTextRotaryEmbedding``: height at 1, 4, 7 …, width at 2, 5, 8 …"""
    plan = of(tmp_path, {**MAXTEXT, "use_mrope": True, "mrope_section": [24, 20, 20]})
    axes = plan.layers[0].axes
    owners = [0] * 64
    for axis in (1, 2):
        for plane in range(axis, 60, 3):
            owners[plane] = axis
    assert axes.plane_axes.tolist() == owners
    assert axes.on_text() == plan.rope
    off = of(tmp_path, {**MAXTEXT, "use_mrope": False, "mrope_section": [24, 20, 20]})
    assert off.layers[0].axes is None
    assert any("mrope_section is not used" in note for note in off.notes)


def test_maxtext_plain_may_be_llama3_by_name(tmp_path):
    plan = of(tmp_path, MAXTEXT)
    assert plan.format == "maxtext"
    assert plan.rope == Rope(head_dim=128, theta=5e5, scaling=Plain())
    assert any("by the name of the model" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"rope_type": "default"}, Plain()),
        ({"rope_linear_scaling_factor": 8.0}, Linear(factor=8.0)),
        (
            {"rope_type": "llama3.1"},
            Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192),
        ),
        ({"rope_type": "llama3.1", "rope_use_scale": False}, Plain()),
    ],
)
def test_maxtext_scalings(tmp_path, extra, expected):
    assert of(tmp_path, {**MAXTEXT, **extra}).rope.scaling == expected


def test_maxtext_yarn_for_latent_attention(tmp_path):
    plan = of(tmp_path, MLA)
    assert plan.rope.pairing == "adjacent"
    assert plan.rope.attention_factor() == 1
    expected = (0.1 * 0.707 * math.log(40) + 1) ** 2
    assert plan.layers[0].softmax_multiplier == pytest.approx(expected, rel=1e-15)
    half = of(tmp_path, {**MLA, "rope_interleave": False, "rope_truncate": False})
    assert (half.rope.pairing, half.rope.scaling.truncate) == ("half", False)
    step = of(tmp_path, {**MLA, "beta_fast": 1, "beta_slow": 1})  # Kimi K2: a step
    assert set((step.rope.inv_freq() / plan.rope.inv_freq()).round(6)) > {1.0}


def test_maxtext_intervals_and_unknown_kinds(tmp_path):
    plan = of(tmp_path, {
        **MAXTEXT, "rope_type": "llama3.1", "nope_layer_interval": 4, "temperature_tuning": True,
        "chunk_attn_window_size": 8192,
    })  # fmt: skip
    assert [layer.window for layer in plan.layers] == [8192, 8192, 8192, None]
    assert plan.layers[3].query_temperature == QueryTemperature(0.1, 8192, offset=1)
    assert "scaling 'odd'" in refuse(tmp_path, {**MAXTEXT, "rope_type": "odd"})
    assert "rope_min_timescale: got 2" in refuse(tmp_path, {**MAXTEXT, "rope_min_timescale": 2})
    found = read_any(put(tmp_path, {
        **MAXTEXT, "local_rope_max_timescale": 10000, "sliding_window_size": 1024,
    }))  # fmt: skip
    assert isinstance(found, Fragment)
    assert found.missing == "a way to tell which layers are local"


NANOTRON = {
    "hidden_size": 2048, "max_position_embeddings": 4096, "num_attention_heads": 16,
    "num_hidden_layers": 4, "num_key_value_heads": 4, "rope_interleaved": False,
    "rope_scaling": None, "rope_theta": 50000.0, "sliding_window_size": None,
}  # fmt: skip


def test_nanotron(tmp_path):
    plan = of(tmp_path, {**NANOTRON, "no_rope_layer": 4})
    assert plan.format == "nanotron"
    assert [layer.rope is None for layer in plan.layers] == [False, False, False, True]
    assert plan.rope.pairing == "half"
    nested = of(tmp_path, {"model": {"model_config": {**NANOTRON, "rope_interleaved": True}}})
    assert nested.rope.pairing == "adjacent"
    block = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
             "original_max_position_embeddings": 8192, "rope_type": "llama3"}  # fmt: skip
    assert of(tmp_path, {**NANOTRON, "rope_scaling": block}).rope.scaling == Llama3(
        factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192
    )
    text = refuse(tmp_path, {**NANOTRON, "rope_scaling": {"rope_type": "yarn", "factor": 4}})
    assert "rope_scaling.rope_type: got 'yarn'" in text
    del block["low_freq_factor"]
    assert "low_freq_factor: got nothing" in refuse(tmp_path, {**NANOTRON, "rope_scaling": block})


OLMO = {"d_model": 128, "n_heads": 4, "n_layers": 2, "max_sequence_length": 512, "alibi": False}


def test_olmo_rotates_only_if_it_says_so(tmp_path):
    plan = of(tmp_path, {**OLMO, "rope": True, "rope_theta": 20000})
    assert (plan.rope.theta, plan.rope.head_dim, plan.stated_length) == (20000, 32, 512)
    text = refuse(tmp_path, {**OLMO, "rope": False, "rope_theta": 10000})
    assert "learned absolute positions; rope_theta is inert" in text
    assert "ALiBi" in refuse(tmp_path, {**OLMO, "rope": False, "alibi": True})


def test_keras(tmp_path):
    plan = of(tmp_path, {
        "name": "esm_backbone", "num_layers": 2, "num_heads": 20, "hidden_dim": 320,
        "max_wavelength": 10000, "position_embedding_type": "rotary", "max_sequence_length": 1026,
    })  # fmt: skip
    assert (plan.rope.theta, plan.rope.head_dim, plan.rope.pairing) == (10000, 16, "half")
    assert any("a rope has no such limit" in note for note in plan.notes)


def test_turbomind_ini(tmp_path):
    text = (
        "[llama]\nhead_num = 32\nkv_head_num = 32\nnum_layer = 2\nrotary_embedding = 128\n"
        "rope_theta = 10000.0\nsize_per_head = 128\nmax_position_embeddings = 2048\n"
        "rope_scaling_factor = 0.0\nuse_logn_attn = 0\n"
    )
    (tmp_path / "config.ini").write_text(text)
    plan = read(tmp_path / "config.ini")
    assert plan.rope == Rope(head_dim=128, scaling=Plain(original_length=2048))
    (tmp_path / "config.ini").write_text(text.replace("factor = 0.0", "factor = 1.0"))
    with pytest.raises(InputError, match=r"rope_scaling_factor: got 1\.0"):
        read(tmp_path / "config.ini")
    (tmp_path / "config.ini").write_text("no section")
    with pytest.raises(InputError, match="no INI file"):
        read(tmp_path / "config.ini")


def test_contrastors(tmp_path):
    found = read_any(put(tmp_path, {
        "model_type": "mlm", "seq_len": 2048, "rotary_emb_fraction": 1.0,
        "rotary_emb_base": 500000, "model_name": "bert-base-uncased",
    }))  # fmt: skip
    assert isinstance(found, Fragment)
    assert found.values["theta"].value == 500000


# mlx-lm

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 1e5,
}  # fmt: skip


@pytest.mark.parametrize(("switch", "pairing"), [(True, "adjacent"), (False, "half")])
def test_mlx_traditional_is_adjacent(tmp_path, switch, pairing):
    plan = of(tmp_path, {**LLAMA, "rope_traditional": switch})
    assert plan.format == "mlx"
    assert plan.rope.pairing == pairing
    assert plan.sources["pairing"].source == "config.json: rope_traditional"


def test_mlx_is_told_by_its_quantization_too(tmp_path):
    plan = of(tmp_path, {**LLAMA, "quantization": {"group_size": 64, "bits": 4}})
    assert (plan.format, plan.rope.pairing) == ("mlx", "half")
    assert of(tmp_path, LLAMA).format == "hf"
    text = refuse(tmp_path, {**LLAMA, "rope_traditional": "yes"})
    assert "rope_traditional: got 'yes', expected true (adjacent lanes) or false" in text


# Recognition and loading


def test_keys_of_two_programs_are_refused(tmp_path):
    text = refuse(tmp_path, {**MAXTEXT, "head_num": 2, "size_per_head": 4})
    assert "keys of the formats maxtext and turbomind" in text


def test_a_config_of_transformers_is_none_of_the_table():
    for config in (
        LLAMA,
        {"model_type": "gpt_neox", "rotary_pct": 0.25, "hidden_size": 8, "num_layers": 2},
        {"model_type": "chatglm", "num_layers": 28, "hidden_size": 8, "kv_channels": 128},
        {"model_type": "gptj", "n_layer": 2, "n_head": 2, "rotary_dim": 64},
        {"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 4},
    ):
        assert recognise(config, "config.json") is None


def test_signatures_need_something():
    assert all(signature.needs for signature in SIGNATURES)
    assert not any(signature.matches({}) for signature in SIGNATURES)


def test_yaml_of_every_hostile_kind(tmp_path):
    path = tmp_path / "args.yaml"
    for text, said in (
        ("a: &x [1]\nb: *x\n", "got aliases"),
        ("a: [1\n", "no YAML"),
        ("- 1\n- 2\n", "got a list"),
        ("", "got a NoneType"),
        ("a: " + "[" * 3000 + "]" * 3000, "no YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "no YAML"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=said) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_json_of_every_hostile_kind(tmp_path):
    path = tmp_path / "params.json"
    for text, said in (
        ('{"dim": ' + "9" * 5000 + "}", "Exceeds the limit"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 60 + "1" + "}" * 60, "nested too deep"),
        ('{"dim": 1, "dim": 2}', "the key twice"),
        ('{"dim": NaN, "n_layers": 2, "n_heads": 2}', "got nan"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=said) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_nested_settings_are_flattened_once():
    assert flatten({"a-b": {"c": 1}}, "x") == {"a_b": {"c": 1}, "a_b.c": 1}


def test_texts_that_are_nothing(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("just some words")
    with pytest.raises(InputError, match="no command line and no listing"):
        read_any(path)
    path.write_text("rope_scaling:\n  type: ${ROPE_SCALING_TYPE}\n")
    with pytest.raises(InputError, match=r"got the placeholder \$\{ROPE_SCALING_TYPE\}"):
        read_any(path)
    path.write_text("--rope-scale 2")
    with pytest.raises(InputError, match="a text of settings, with more settings beside it"):
        read_any(path, engine_args="--rope-scale 4")


def test_yarn_step_where_both_betas_are_one():
    rope = Rope(
        head_dim=64, theta=50000.0,
        scaling=YaRN(factor=32.0, original_length=4096, beta_fast=1.0, beta_slow=1.0),
    )  # fmt: skip
    kept = rope.inv_freq() / Rope(head_dim=64, theta=50000.0).inv_freq()
    # One turn over 4096 tokens falls between planes 19 and 20.
    assert (kept[:20] == 1).all()
    assert abs(kept[20:] * 32 - 1).max() < 1e-12
    with pytest.raises(InputError, match="beta_slow below beta_fast"):
        YaRN(factor=2.0, original_length=64, beta_fast=1.0, beta_slow=1.0, ramp="rotations")
