"""``ropewalk compare``: engines side by side, and two models by meaning."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from gguf import GGUFWriter

from ropewalk import Rope, read
from ropewalk.cli.main import cli, main
from ropewalk.engines import ENGINES, compare_engines, compare_meaning
from ropewalk.engines.compare import Comparison, GroupComparison, apart
from ropewalk.engines.meaning import meaning
from ropewalk.engines.reading import EngineView, Reading, view
from ropewalk.engines.source import read_source
from ropewalk.engines.transformers import TRANSFORMERS
from ropewalk.errors import InputError
from ropewalk.models import read_config
from ropewalk.models.read import read_whole
from ropewalk.scaling import Plain, YaRN

GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "head_dim": 64,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 24,
    "max_position_embeddings": 131072,
    "rope_theta": 150000,
    "sliding_window": 128,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 3,
    "max_position_embeddings": 163840,
    "qk_rope_head_dim": 64,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
        "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
    },
}  # fmt: skip
NESTED: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_size": 640,
    "head_dim": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "num_hidden_layers": 6,
    "sliding_window": 512,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        "full_attention": {
            "rope_type": "yarn", "rope_theta": 1e6, "factor": 8.0,
            "original_max_position_embeddings": 16384, "truncate": False,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}  # fmt: skip


def written(folder: Path, values: dict[str, Any], name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(values))
    return path


def views(group: GroupComparison) -> dict[str, EngineView]:
    return {item.view.engine: item.view for item in group.engines}


def only_group(path: Path, **options: Any) -> GroupComparison:
    (group,) = compare_engines(path, **options).groups
    return group


def yarn(theta: float, dim: int, factor: float, low: float, high: float) -> Any:
    """YaRN's frequencies with a given range, written out."""
    i = np.arange(dim // 2)
    kept = theta ** (-2 * i / dim)
    ramp = np.clip((i - low) / (high - low), 0, 1)
    return kept * (1 - ramp) + kept / factor * ramp


def test_gpt_oss_untruncated_is_another_rope_in_llama_cpp_and_mlx(tmp_path: Path) -> None:
    """The range is 8.09 to 17.4; both engines round it to 8 and 18."""
    group = only_group(written(tmp_path, GPT_OSS))

    def plane(turns: float) -> float:
        return 64 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(150000))

    exact = yarn(150000, 64, 32, plane(32), plane(1))
    rounded = yarn(150000, 64, 32, math.floor(plane(32)), math.ceil(plane(1)))
    relative = np.abs(exact - rounded) / np.maximum(exact, rounded)
    angle = np.abs(exact - rounded) * 131071
    found = {item.view.engine: item for item in group.engines}
    for name in ("llama.cpp", "mlx-lm"):
        difference = found[name].apart
        assert difference is not None
        assert difference.plane == int(relative.argmax()) == 17
        # float64, and a subtraction of numbers a few times larger than their difference
        assert abs(difference.relative - relative.max()) < 16 * 2.0**-52
        assert difference.angle_plane == int(angle.argmax()) == 12
        assert abs(difference.angle - angle.max()) < 131071 * 2.0**-50
        assert any("truncate" in note for note in found[name].view.notes)
    assert 0.43 < relative.max() < 0.44
    assert 4.6 < angle.max() / (2 * math.pi) < 4.7
    for name in ("vLLM", "SGLang", "onnxruntime-genai", "keras-hub", "exllamav3"):
        difference = found[name].apart
        assert difference is not None
        assert difference.none


def test_truncated_range_is_the_same_in_all_that_round(tmp_path: Path) -> None:
    values = {**GPT_OSS, "rope_scaling": {**GPT_OSS["rope_scaling"], "truncate": True}}
    found = {item.view.engine: item.apart for item in only_group(written(tmp_path, values)).engines}
    for name in ("vLLM", "SGLang", "llama.cpp", "mlx-lm", "exllamav3"):
        assert found[name] is not None
        assert found[name].none, name
    # These two never round.
    for name in ("onnxruntime-genai", "keras-hub"):
        assert found[name].relative > 0.4


def test_order_is_apart_then_stopping_then_alike(tmp_path: Path) -> None:
    values = {**LLAMA, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    group = only_group(written(tmp_path, values), length=16384)
    kinds = [1 if item.apart is None else 0 if item.apart.none else 2 for item in group.engines[1:]]
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds) == {0, 1, 2}
    angles = [item.apart.angle for item in group.engines[1:] if item.apart and not item.apart.none]
    assert angles == sorted(angles, reverse=True)
    assert group.engines[0].view.engine == group.reference == "transformers"
    assert len(group.engines) == len(ENGINES)


def test_dynamic_in_each_engine(tmp_path: Path) -> None:
    """transformers grows the base with the text; vLLM's is never grown, SGLang's always."""
    values = {**LLAMA, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    found = views(only_group(written(tmp_path, values), length=16384))
    plain = 5e5 ** (-np.arange(0, 64, 2) / 64)

    def grown(growth: float) -> Any:
        return (5e5 * growth ** (64 / 62)) ** (-np.arange(0, 64, 2) / 64)

    expected = {
        "transformers": grown(4 * 2 - 3),
        "mlx-lm": grown(4 * 2 - 3),
        "vLLM": plain,
        "SGLang": grown(16 - 3),
        "llama.cpp": plain,
    }
    for name, frequencies in expected.items():
        reading = found[name].reading
        assert reading is not None
        assert np.abs(reading.inv_freq / frequencies - 1).max() < 2.0**-45, name
    assert found["SGLang"].limit == 4 * 8192
    assert found["exllamav3"].reading is None
    assert "dynamic" in found["torchtitan"].refusal


def test_latent_attention_has_its_three_numbers(tmp_path: Path) -> None:
    group = only_group(written(tmp_path, DEEPSEEK))
    softmax = (0.1 * math.log(40) + 1) ** 2
    for name, found in views(group).items():
        if found.reading is None:
            continue
        if name in ("transformers", "vLLM", "SGLang", "llama.cpp", "mlx-lm", "exllamav3"):
            assert found.reading.amplitude == 1.0, name
            assert abs(found.reading.softmax - softmax) < 2.0**-50, name


def test_truncate_within_a_block_of_a_layer_type(tmp_path: Path) -> None:
    """transformers does not find it there; vLLM and SGLang do. Its own function agrees."""
    from transformers import Gemma3TextConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    source = read_source(written(tmp_path, NESTED))
    layer = next(layer for layer, _ in source.groups if layer.kind == "full_attention")
    found = view(TRANSFORMERS, source.layer(layer, 131072))
    assert found.reading is not None
    assert any("truncate" in note for note in found.notes)
    config = Gemma3TextConfig(**NESTED)
    real, amplitude = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu", layer_type="full_attention")
    # float32 powers and blends, see test_engine_rules.tolerance
    allowed = 8 * (math.log(1e6) + 4) * 2.0**-24
    assert np.abs(real.numpy() / found.reading.inv_freq - 1).max() < allowed
    assert abs(amplitude - found.reading.amplitude) < 2.0**-50
    groups = compare_engines(written(tmp_path, NESTED)).groups
    full = next(group for group in groups if group.kind == "full_attention")
    apart_of = {item.view.engine: item.apart for item in full.engines}
    assert apart_of["vLLM"] is not None
    assert apart_of["vLLM"].relative > 0.01
    assert views(full)["onnxruntime-genai"].reading is None


def test_pairing_is_told_where_it_is_another(tmp_path: Path) -> None:
    """GGUF files of Llama have adjacent lanes, and so has an mlx-lm file that says so."""
    found = views(only_group(written(tmp_path, LLAMA)))
    assert {view.pairing for name, view in found.items() if name != "llama.cpp"} == {"half"}
    assert found["llama.cpp"].pairing == "adjacent"
    assert any("permutes" in note for note in found["llama.cpp"].notes)
    assert views(only_group(written(tmp_path, GPT_OSS)))["llama.cpp"].pairing == "half"


def test_keys_of_transformers_5_are_lost_on_old_readers(tmp_path: Path) -> None:
    """mlx-lm's Llama knows rope_theta and rope_scaling only: it runs plain rope of base 10000."""
    values = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    values["rope_parameters"] = {
        "rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0,
        "original_max_position_embeddings": 2048,
    }  # fmt: skip
    found = views(only_group(written(tmp_path, values)))["mlx-lm"]
    assert found.reading is not None
    plain = 1e4 ** (-np.arange(0, 64, 2) / 64)
    assert np.abs(found.reading.inv_freq / plain - 1).max() < 2.0**-50
    assert found.reading.amplitude == 1.0
    assert any("rope_parameters is not read" in note for note in found.notes)


def test_longrope_is_shown_within_and_beyond_the_original_length(tmp_path: Path) -> None:
    values = {
        **LLAMA,
        "model_type": "phi3",
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0] * 32,
            "long_factor": [1.0 + i for i in range(32)],
        },
    }
    groups = compare_engines(written(tmp_path, values)).groups
    assert sorted(group.length for group in groups) == [4096, 8192]
    short = next(group for group in groups if group.length == 4096)
    found = {item.view.engine: item for item in short.engines}
    difference = found["mlx-lm"].apart
    assert difference is not None
    assert difference.plane == 31
    assert abs(difference.relative - 31 / 32) < 2.0**-50
    assert views(short)["vLLM"].limit == 4096


def test_families_are_read_as_their_config_says(tmp_path: Path) -> None:
    """The rules of transformers give what the reader of its configs gives."""
    seen = json.loads((Path(__file__).parent / "configs_seen.json").read_text())
    compared = 0
    for entry in seen:
        try:
            source = read_source(written(tmp_path, entry["config"]))
        except InputError:
            # Not a rope, or contradictory: what the reader refuses is tested with it.
            continue
        for layer, _ in source.groups:
            rope = layer.rope
            assert rope is not None
            for length in {rope.original_length or 4096, source.plan.stated_length or 4096}:
                found = view(TRANSFORMERS, source.layer(layer, length))
                assert found.reading is not None, (entry["id"], found.refusal)
                difference = apart(
                    found.reading,
                    Reading(
                        rope.inv_freq(length),
                        rope.attention_factor(length),
                        layer.softmax_multiplier,
                    ),
                    length,
                )
                assert difference.none, (entry["id"], difference)
                compared += 1
    assert compared >= 60


def gguf(folder: Path, name: str = "model.gguf", **keys: float | str) -> Path:
    path = folder / name
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(2048)
    writer.add_block_count(4)
    writer.add_head_count(32)
    writer.add_head_count_kv(8)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(64)
    for key, value in keys.items():
        full = "llama.rope.scaling." + key
        if isinstance(value, str):
            writer.add_string(full, value)
        else:
            writer.add_float32(full, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("engine", "block"),
    [
        ("SGLang", {"rope_type": "yarn", "factor": 4.0, "attn_factor": -1.0}),
        ("keras-hub", {"rope_type": "linear", "factor": 0.5}),
        ("vLLM", {"rope_type": "dynamic", "factor": 4.0, "max_trained_positions": 1e9}),
        ("exllamav3", {"rope_type": "yarn", "factor": 4.0,
                       "original_max_position_embeddings": 2048.5}),
    ],
)  # fmt: skip
def test_values_that_make_no_rope_are_told(
    tmp_path: Path, engine: str, block: dict[str, Any]
) -> None:
    """An engine that computes nothing usable stops; the others are shown all the same."""
    source = read_source(written(tmp_path, LLAMA))
    layer = dataclasses.replace(source.layer(source.groups[0][0], 8192), old=block)
    found = next(view(known, layer) for known in ENGINES if known.name == engine)
    assert found.refusal, found.reading
    assert "\n" not in found.refusal


def test_gguf_file_is_measured_against_llama_cpp(tmp_path: Path) -> None:
    comparison = compare_engines(gguf(tmp_path))
    (group,) = comparison.groups
    assert group.reference == "llama.cpp"
    assert any("convert" in note for note in comparison.notes)
    found = {item.view.engine: item.apart for item in group.engines}
    assert found["transformers"] is not None
    assert found["transformers"].none


def test_same_meaning_in_two_spellings(tmp_path: Path) -> None:
    new = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    new["rope_parameters"] = {"rope_type": "default", "rope_theta": 500000.0}
    diff = compare_meaning(written(tmp_path, LLAMA), written(tmp_path, new, "new.json"))
    assert diff.same
    assert any(
        (point.what, point.a, point.b) == ("theta", "rope_theta", "rope_parameters.rope_theta")
        for point in diff.spelled
    )


def test_config_and_its_gguf_file(tmp_path: Path) -> None:
    diff = compare_meaning(written(tmp_path, LLAMA), gguf(tmp_path))
    assert [point.what for point in diff.differs] == ["pairing"]
    assert "permuted" in diff.differs[0].effect


def test_what_differs_is_named_with_its_effect(tmp_path: Path) -> None:
    other = {
        **LLAMA,
        "max_position_embeddings": 32768,
        "num_key_value_heads": 4,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192,
        },
    }  # fmt: skip
    diff = compare_meaning(written(tmp_path, LLAMA), written(tmp_path, other, "other.json"))
    points = {point.what: point for point in diff.differs}
    assert set(points) == {"stated length", "kv heads", "scaling"}
    assert "75.000% apart" in points["scaling"].effect
    assert f"× {0.1 * math.log(4) + 1:.6g}" in points["scaling"].effect
    theta = compare_meaning(
        written(tmp_path, LLAMA), written(tmp_path, {**LLAMA, "rope_theta": 1e4}, "theta.json")
    )
    assert [point.what for point in theta.differs] == ["theta"]


def test_layers_that_differ_are_named() -> None:
    plan = read_config({**LLAMA, "model_type": "smollm3"}, "a")
    layers = list(plan.layers)
    layers[2] = dataclasses.replace(layers[2], rope=None, window=128)
    diff = meaning(plan, dataclasses.replace(plan, layers=tuple(layers)))
    assert {(point.what, point.layers) for point in diff.differs} == {
        ("rope", (2,)),
        ("window", (2,)),
    }


def test_two_formulas_of_one_rope_mean_the_same() -> None:
    plan = read_config(LLAMA, "a")
    rope = Rope(head_dim=64, theta=5e5, scaling=YaRN(factor=4, original_length=8192))
    given = rope.with_scaling(
        YaRN(factor=4, original_length=8192, attention_factor=0.1 * math.log(4) + 1)
    )

    def with_rope(new: Rope) -> Any:
        layers = tuple(dataclasses.replace(layer, rope=new) for layer in plan.layers)
        return dataclasses.replace(plan, layers=layers)

    diff = meaning(with_rope(rope), with_rope(given))
    assert diff.same
    assert [point.what for point in diff.spelled] == ["scaling"]
    assert not meaning(with_rope(rope), with_rope(rope.with_scaling(Plain()))).same


def test_unknown_values_and_towers_are_only_in_one() -> None:
    plan = read_config(LLAMA, "a")
    diff = meaning(plan, dataclasses.replace(plan, stated_length=None))
    assert diff.same
    assert diff.only_a == ("stated length 8,192",)


def test_command_shows_one_screen(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["compare", str(written(tmp_path, GPT_OSS))])
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 100
    for engine in ENGINES:
        assert engine.name in result.output
    assert re.search(r"llama\.cpp +43\.\d+% apart, plane 17", result.output)


def test_command_prints_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["compare", str(written(tmp_path, GPT_OSS)), "--json"])
    report = json.loads(result.output)
    assert report["schema_version"] == 1
    (group,) = report["groups"]
    assert group["layers"] == list(range(24))
    assert {item["engine"] for item in group["engines"]} == {engine.name for engine in ENGINES}
    first = group["engines"][1]
    assert first["difference"]["angle_radians"] > 0


def test_exit_codes_of_two_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same, theta = written(tmp_path, LLAMA), written(tmp_path, {**LLAMA, "rope_theta": 1.0e6}, "b")
    theta = theta.rename(tmp_path / "b.json")

    def code(*arguments: object) -> object:
        with pytest.raises(SystemExit) as stop:
            main(["compare", *map(str, arguments)])
        return stop.value.code

    assert code(same, same) == 0
    assert "same meaning" in capsys.readouterr().out
    assert code(same, theta) == 1
    assert code(same, theta, "--json") == 1
    capsys.readouterr()
    assert code(same, tmp_path / "missing.json") == 2
    assert code(same, theta, "--length", "4") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("ropewalk: ")


OVERRIDE = {
    "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192,
    },
    "max_position_embeddings": 32768,
}  # fmt: skip
FLAGS = "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 8192"


def shown(comparison: Comparison) -> list[dict[str, Any]]:
    return comparison.to_dict()["groups"]


@pytest.mark.parametrize(
    ("engine_args", "overrides"),
    [
        (None, json.dumps(OVERRIDE)),
        (f"vllm serve model --hf-overrides '{json.dumps(OVERRIDE)}'", None),
        (f"python -m sglang.launch_server --json-model-override-args '{json.dumps(OVERRIDE)}'",
         None),
    ],
)  # fmt: skip
def test_overrides_are_keys_of_the_config(
    tmp_path: Path, engine_args: str | None, overrides: str | None
) -> None:
    path = written(tmp_path, LLAMA)
    found = compare_engines(path, engine_args=engine_args, overrides=overrides)
    rewritten = compare_engines(written(tmp_path, {**LLAMA, **OVERRIDE}, "rewritten.json"))
    assert shown(found) == shown(rewritten)
    assert shown(found) != shown(compare_engines(path))
    assert any("overrides replace keys" in note for note in found.notes)


def test_flags_of_llama_cpp_reach_it_alone(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA)
    without = views(only_group(path))
    found = views(compare_engines(path, engine_args=FLAGS).groups[0])
    yarn = Rope(head_dim=64, theta=5e5, scaling=YaRN(factor=4, original_length=8192))
    for name, item in found.items():
        assert item.reading is not None
        wanted = without[name].reading.inv_freq
        if name == "llama.cpp":
            wanted = yarn.inv_freq()
            assert item.reading.amplitude == yarn.attention_factor()
        assert (item.reading.inv_freq == wanted).all(), name


def test_flags_on_a_gguf_file_are_those_of_inspect(tmp_path: Path) -> None:
    path = gguf(tmp_path)
    (group,) = compare_engines(path, engine_args=FLAGS).groups
    plan = read_whole(path, engine_args=FLAGS)
    assert plan.rope is not None
    reading = views(group)["llama.cpp"].reading
    assert reading is not None
    assert (reading.inv_freq == plan.rope.inv_freq()).all()
    other = views(group)["transformers"].reading
    assert other is not None
    assert other.amplitude == 1.0


def test_flags_that_llama_cpp_cannot_take_stop_its_row_alone(tmp_path: Path) -> None:
    block = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192}  # fmt: skip
    path = written(tmp_path, {**LLAMA, "rope_scaling": block})
    found = views(compare_engines(path, engine_args="--rope-scale 4").groups[0])
    assert "divisors" in found["llama.cpp"].refusal
    assert found["transformers"].reading is not None


def test_windowed_layers_are_not_reached_by_flags(tmp_path: Path) -> None:
    groups = compare_engines(written(tmp_path, NESTED), engine_args="--rope-freq-base 2e6").groups
    without = compare_engines(written(tmp_path, NESTED)).groups
    bases = {}
    for name, found in (("with", groups), ("without", without)):
        for group in found:
            reading = views(group)["llama.cpp"].reading
            assert reading is not None
            bases[group.kind, name] = reading.inv_freq.tolist()
    kinds = {kind for kind, _ in bases}
    assert {k for k in kinds if bases[k, "with"] == bases[k, "without"]} == {"sliding_attention"}


@pytest.mark.parametrize(("text", "length"), [
    ("vllm serve model --max-model-len 16384", 16384), ("llama-server -c 4096", 4096),
])  # fmt: skip
def test_length_comes_from_the_command_line(tmp_path: Path, text: str, length: int) -> None:
    path = written(tmp_path, LLAMA)
    assert only_group(path, engine_args=text).length == length
    assert only_group(path, engine_args=text, length=100).length == 100


@pytest.mark.parametrize(
    "arguments",
    [
        ["-"], ["--overrides", "-"], ["--overrides", "["], ["--overrides", "[1]"],
        ["--overrides", '{"rope-theta": 1}'], ["--overrides", '{"rope_theta": "x"}'],
        ["--overrides", '{"rope_parameters": 3}'], ["--engine-args", "-"], ["--engine-args", ""],
        ["--engine-args", '"'], ["--engine-args", "--rope-freq-scale 4"],
        ["--engine-args", "--rope-scale x"], ["--engine-args", "--rope-scaling spiral"],
        ["--engine-args", "vllm serve m --hf-overrides {"],
        ["--overrides", "{}", "--engine-args", "vllm serve m --hf-overrides {}"],
    ],
)  # fmt: skip
def test_bad_settings_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    model = [] if arguments == ["-"] else [str(written(tmp_path, LLAMA))]
    with pytest.raises(SystemExit) as stop:
        main(["compare", *model, *arguments])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith("ropewalk: ")


@pytest.mark.parametrize("option", ["--overrides", "--engine-args"])
def test_settings_are_for_one_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    path = str(written(tmp_path, LLAMA))
    with pytest.raises(SystemExit) as stop:
        main(["compare", path, path, option, "{}"])
    assert stop.value.code == 2
    assert option in capsys.readouterr().err


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    path = written(tmp_path, GPT_OSS)
    text = (
        "import sys\nfrom ropewalk.cli.main import main\n"
        f"try: main(['compare', {str(path)!r}])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'jax', 'mlx', 'onnx', 'gguf', 'matplotlib'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_plan_is_the_same_as_itself() -> None:
    folder = Path(__file__).parent.parent / "src/ropewalk/data/byte_model"
    assert compare_meaning(folder, folder).same
    assert read(folder).path
