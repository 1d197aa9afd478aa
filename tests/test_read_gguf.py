"""Reading GGUF headers: written with the gguf package, or damaged by hand."""

from __future__ import annotations

import math
import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from ropewalk import (
    InputError,
    Linear,
    Llama3,
    LongRoPE,
    Plain,
    Proportional,
    Rope,
    YaRN,
)
from ropewalk.models import QueryTemperature, read

BASE = {
    "block_count": 4,
    "context_length": 131072,
    "embedding_length": 4096,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
    "rope.freq_base": 500000.0,
}


def write(folder: Path, architecture="llama", tensors=None, **values) -> Path:
    """Write a GGUF file; None removes a value of `BASE`, underscores stand for dots."""
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    merged = BASE | {key.replace("__", "."): value for key, value in values.items()}
    for key, value in merged.items():
        name = f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "ü"])
    for name, data in (tensors or {}).items():
        writer.add_tensor(name, np.asarray(data, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refuse(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text


def test_plain(tmp_path):
    path = write(tmp_path)
    plan = read(tmp_path)
    assert plan == read(path)
    assert (plan.format, plan.model_type, plan.path) == ("gguf", "llama", str(path))
    assert (plan.heads, plan.kv_heads, plan.value_dim, plan.stated_length) == (32, 8, 128, 131072)
    assert {layer.rope for layer in plan.layers} == {
        Rope(
            head_dim=128, theta=500000.0, pairing="adjacent", scaling=Plain(original_length=131072)
        )
    }
    assert plan.sources["theta"].source == "model.gguf: llama.rope.freq_base"
    assert plan.sources["head_dim"].source == "derived: embedding_length 4096 / 32 heads"
    assert not plan.notes


def test_missing_base_is_visible(tmp_path):
    plan = read(write(tmp_path, rope__freq_base=None))
    assert plan.rope.theta == 10000.0
    assert plan.sources["theta"].source == "default of llama.cpp"
    assert any("rope.freq_base is missing; assumed 10000" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("architecture", "pairing"),
    [
        ("llama", "adjacent"),
        ("command-r", "adjacent"),
        ("glm4", "adjacent"),
        ("qwen2", "half"),
        ("qwen3moe", "half"),
        ("phi3", "half"),
        ("gptneox", "half"),
        ("stablelm", "half"),
        ("qwen2vl", "half"),
    ],
)
def test_pairing_follows_the_architecture(tmp_path, architecture, pairing):
    plan = read(write(tmp_path, architecture))
    assert plan.rope.pairing == pairing
    assert plan.sources["pairing"].source == f"rule of llama.cpp for architecture {architecture}"


def test_explicit_lengths_of_heads(tmp_path):
    plan = read(
        write(
            tmp_path,
            "qwen3moe",
            attention__key_length=256,
            attention__value_length=192,
            rope__dimension_count=64,
        )
    )
    assert (plan.rope.head_dim, plan.rope.rotary_dim, plan.value_dim) == (256, 64, 192)


def test_float32_values_are_read_as_what_was_written(tmp_path):
    plan = read(write(tmp_path, rope__freq_base=1e11))
    assert plan.rope.theta == 1e11  # the float32 next to it is 99999997952


def test_scaling_types(tmp_path):
    def scaling(**values):
        plan = read(write(tmp_path, "qwen2", **values))
        return plan.rope.scaling, plan.notes

    found, _ = scaling(
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32768,
    )
    assert found == YaRN(factor=4.0, original_length=32768)
    found, notes = scaling(
        rope__scaling__type="yarn", rope__scaling__factor=4.0, context_length=32768
    )
    assert found == YaRN(factor=4.0, original_length=32768)
    assert any("taken to be context_length 32768" in note for note in notes)
    found, notes = scaling(rope__scaling__type="linear", rope__scaling__factor=8.0)
    assert found == Linear(factor=8.0)
    assert any("original length is unknown" in note for note in notes)
    found, notes = scaling(rope__scaling__factor=8.0)  # llama.cpp's default type is linear
    assert found == Linear(factor=8.0)
    assert any("takes it as linear" in note for note in notes)
    found, _ = scaling(rope__scale_linear=2.0)
    assert found == Linear(factor=2.0)
    found, _ = scaling(rope__scaling__type="none", rope__scaling__original_context_length=4096)
    assert found == Plain(original_length=4096)


def test_yarn_values_that_llama_cpp_does_not_use(tmp_path):
    yarn = {
        "rope__scaling__type": "yarn",
        "rope__scaling__factor": 4.0,
        "rope__scaling__original_context_length": 32768,
        "rope__scaling__yarn_beta_fast": 16.0,
        "rope__scaling__yarn_attn_factor": 0.5,
    }
    plan = read(write(tmp_path, "qwen2", **yarn))
    assert plan.rope.scaling == YaRN(factor=4.0, original_length=32768)
    assert any("yarn_beta_fast 16 is not used" in note for note in plan.notes)
    assert any("yarn_attn_factor 0.5 is not used" in note for note in plan.notes)
    plan = read(write(tmp_path, "mistral3", **yarn))
    assert plan.rope.scaling.beta_fast == 16.0


def test_attn_factor_is_a_multiplier(tmp_path):
    plan = read(
        write(
            tmp_path,
            "qwen2",
            rope__scaling__type="yarn",
            rope__scaling__factor=4.0,
            rope__scaling__original_context_length=32768,
            rope__scaling__attn_factor=0.5,
        )
    )
    assert plan.rope.attention_factor() == 0.5 * (0.1 * math.log(4) + 1)


def test_longrope(tmp_path):
    short, long = [1.0 + i / 64 for i in range(48)], [1.0 + i for i in range(48)]
    values = {
        "embedding_length": 3072,
        "rope__scaling__original_context_length": 4096,
        "rope__scaling__type": "longrope",
        "rope__scaling__attn_factor": 1.1902380714238083,
    }
    tensors = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    plan = read(write(tmp_path, "phi3", tensors, **values))
    scaling = plan.rope.scaling
    assert isinstance(scaling, LongRoPE)
    assert scaling.original_length == 4096
    assert scaling.short_factor == tuple(short)
    assert scaling.long_factor == tuple(long)
    # The file holds a float32: half a unit of 1.19 is 2^-24.
    assert abs(scaling.attention_factor - math.sqrt(1 + math.log(32) / math.log(4096))) <= 2**-24
    assert "no such tensor" in refuse(write(tmp_path, "phi3", **values))
    tensors["rope_factors_long.weight"] = long[:40]
    text = refuse(write(tmp_path, "phi3", tensors, **values))
    assert "40 values" in text
    assert "rotary_dim/2 = 48" in text


def llama3_divisors(factor: float) -> np.ndarray:
    plain = Rope(head_dim=128, theta=500000.0)
    scaling = Llama3(factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192)
    return plain.inv_freq() / plain.with_scaling(scaling).inv_freq()


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_divisors_of_llama3_are_recognised(tmp_path, factor):
    plan = read(write(tmp_path, tensors={"rope_freqs.weight": llama3_divisors(factor)}))
    assert plan.rope.scaling == Llama3(
        factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192
    )
    assert plan.original_length == 8192
    assert plan.sources["scaling"].source == "model.gguf: tensor rope_freqs.weight"
    assert any("llama3" in note for note in plan.notes)


def test_other_divisors_are_kept_as_they_stand(tmp_path):
    divisors = llama3_divisors(8.0)
    divisors[40] *= 1.001
    plan = read(write(tmp_path, tensors={"rope_freqs.weight": divisors}))
    assert isinstance(plan.rope.scaling, LongRoPE)
    stored = divisors.astype(np.float32).astype(float)
    plain = Rope(head_dim=128, theta=500000.0).inv_freq()
    for length in (None, 10**6):
        # One rounding each of the frequency, the quotient, and the division here.
        assert np.abs(plan.rope.inv_freq(length) * stored / plain - 1).max() <= 3 * 2.0**-53
    assert plan.rope.attention_factor(10**6) == 1.0
    assert any("no known scaling" in note for note in plan.notes)


def test_divisors_of_ones_and_of_still_planes(tmp_path):
    plan = read(write(tmp_path, tensors={"rope_freqs.weight": np.ones(64)}))
    assert plan.rope.scaling == Plain(original_length=131072)
    stopped = np.where(np.arange(64) < 16, 1.0, 1e30)
    plan = read(write(tmp_path, tensors={"rope_freqs.weight": stopped}))
    assert plan.rope.scaling == Proportional(share=0.25, original_length=131072)


def test_divisors_that_fit_nothing(tmp_path):
    text = refuse(write(tmp_path, tensors={"rope_freqs.weight": np.ones(32)}))
    assert "32 values" in text
    assert "rotary_dim/2 = 64" in text
    broken = np.ones(64)
    broken[3] = 0
    assert "not positive" in refuse(write(tmp_path, tensors={"rope_freqs.weight": broken}))
    text = refuse(
        write(
            tmp_path,
            tensors={"rope_freqs.weight": llama3_divisors(8.0)},
            rope__scaling__type="linear",
            rope__scaling__factor=4.0,
        )
    )
    assert "one of the two" in text


def test_gemma3_local_layers(tmp_path):
    values = {
        "block_count": 7,
        "rope__freq_base": 1e6,
        "attention__sliding_window": 1024,
        "rope__scaling__type": "linear",
        "rope__scaling__factor": 8.0,
    }
    plan = read(write(tmp_path, "gemma3", **values))
    kinds = [layer.kind for layer in plan.layers]
    assert kinds == ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]
    local, full = plan.layers[0], plan.layers[5]
    assert (local.rope.theta, local.window) == (10000.0, 1024)
    assert local.rope.scaling == Plain(original_length=131072)
    assert (full.rope.theta, full.window, full.rope.scaling) == (1e6, None, Linear(factor=8.0))
    assert any("rope.freq_base_swa is missing; assumed 10000" in note for note in plan.notes)
    plan = read(write(tmp_path, "gemma3", rope__freq_base_swa=20000.0, **values))
    assert plan.layers[0].rope.theta == 20000.0
    pattern = [True, False, True, True, True, True, False]
    plan = read(write(tmp_path, "gemma3", attention__sliding_window_pattern=pattern, **values))
    assert [layer.window is not None for layer in plan.layers] == pattern


def test_layers_without_rope(tmp_path):
    def roped(architecture, **values):
        plan = read(write(tmp_path, architecture, block_count=8, **values))
        return [layer.rope is not None for layer in plan.layers], plan

    three_of_four = [True, True, True, False] * 2
    assert roped("smollm3")[0] == three_of_four
    found, plan = roped("llama4")
    assert found == three_of_four
    assert plan.layers[3].query_temperature == QueryTemperature(0.1, 8192, offset=1)
    assert plan.layers[0].window == 8192
    assert roped("llama4", attention__sliding_window=0)[0] == [True] * 8
    assert roped("cohere2", attention__sliding_window=4096)[0] == three_of_four
    assert roped("exaone4")[0] == [True] * 8
    assert roped("exaone4", attention__sliding_window=4096)[0] == three_of_four
    assert roped("qwen3next")[0] == [False, False, False, True] * 2
    found, plan = roped("lfm2", attention__head_count_kv=[0, 8, 0, 8, 0, 0, 0, 8])
    assert found == [False, True, False, True, False, False, False, True]
    assert plan.kv_heads == 8


def test_latent_attention(tmp_path):
    """The fields of DeepSeek-V2-Lite's GGUF as public listings show them."""
    plan = read(
        write(
            tmp_path,
            "deepseek2",
            rope__freq_base=10000.0,
            attention__key_length=192,
            attention__value_length=128,
            rope__dimension_count=64,
            rope__scaling__type="yarn",
            rope__scaling__factor=40.0,
            rope__scaling__original_context_length=4096,
            rope__scaling__yarn_log_multiplier=0.0707,
        )
    )
    rope = plan.rope
    assert (rope.head_dim, rope.rotary_dim, rope.rotary_offset) == (192, 64, 128)
    assert rope.scaling.mscale_all_dim == 0.707
    assert rope.attention_factor() == 1.0
    assert plan.layers[0].softmax_multiplier == (0.1 * 0.707 * math.log(40) + 1) ** 2
    assert plan.value_dim == 128


def test_latent_attention_of_deepseek_v3(tmp_path):
    """Lengths of a head of the newer layout: key_length is the latent's, _mla the head's."""
    plan = read(
        write(
            tmp_path,
            "deepseek2",
            rope__freq_base=10000.0,
            attention__key_length=576,
            attention__key_length_mla=192,
            attention__value_length_mla=128,
            rope__dimension_count=64,
            rope__scaling__type="yarn",
            rope__scaling__factor=40.0,
            rope__scaling__original_context_length=4096,
            rope__scaling__yarn_log_multiplier=0.1,
        )
    )
    assert (plan.rope.head_dim, plan.rope.rotary_offset, plan.value_dim) == (192, 128, 128)
    assert plan.rope.scaling.mscale_all_dim == 1.0
    assert plan.original_length * plan.rope.scaling.factor == 163840


def test_phi4_without_scaling(tmp_path):
    """Phi-4: an original length without a scaling type, and a window of 0."""
    plan = read(
        write(
            tmp_path,
            "phi3",
            context_length=16384,
            embedding_length=5120,
            attention__head_count=40,
            attention__head_count_kv=10,
            rope__dimension_count=128,
            rope__freq_base=250000.0,
            rope__scaling__original_context_length=16384,
            attention__sliding_window=0,
        )
    )
    assert plan.rope == Rope(head_dim=128, theta=250000.0, scaling=Plain(original_length=16384))
    assert plan.layers[0].window is None


def test_query_temperature_of_mistral3(tmp_path):
    plan = read(
        write(
            tmp_path,
            "mistral3",
            attention__temperature_scale=0.1,
            attention__temperature_length=16384,
        )
    )
    assert plan.layers[0].query_temperature == QueryTemperature(0.1, 16384)


@pytest.mark.parametrize(
    ("architecture", "values", "words"),
    [
        ("bloom", {}, "ALiBi"),
        ("mamba", {}, "recurrent"),
        ("brandnew", {}, "'brandnew'"),
        ("llama", {"block_count": None}, "llama.block_count: got nothing"),
        ("llama", {"block_count": 0}, "llama.block_count: got 0"),
        ("llama", {"block_count": 10**9}, "at most"),
        ("llama", {"attention__head_count": None}, "attention.head_count: got nothing"),
        ("llama", {"embedding_length": None}, "embedding_length: got nothing"),
        ("llama", {"embedding_length": 4097}, "32 heads do not divide"),
        ("llama", {"rope__dimension_count": 127}, "rotary_dim"),
        ("llama", {"rope__dimension_count": 256}, "within head_dim 128"),
        ("llama", {"rope__freq_base": 0.0}, "rope.freq_base: got 0"),
        ("llama", {"rope__freq_base": math.nan}, "rope.freq_base"),
        ("llama", {"rope__freq_base": "x"}, "rope.freq_base"),
        ("llama", {"rope__scaling__type": "yarm"}, "did you mean 'yarn'"),
        ("llama", {"rope__scaling__type": "yarn"}, "rope.scaling.factor: got nothing"),
        ("llama", {"rope__scaling__type": "linear", "rope__scaling__factor": 0.5}, "at least 1"),
        (
            "llama",
            {"context_length": None, "rope__scaling__type": "yarn", "rope__scaling__factor": 4.0},
            "original_context_length",
        ),
    ],
)
def test_refused(tmp_path, architecture, values, words):
    assert words in refuse(write(tmp_path, architecture, **values))


def test_every_truncation_is_one_quick_line(tmp_path):
    whole = write(tmp_path, tensors={"rope_freqs.weight": llama3_divisors(8.0)}).read_bytes()
    path = tmp_path / "cut.gguf"
    end_of_divisors = 0
    started = time.monotonic()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        try:
            read(path)
            end_of_divisors = end_of_divisors or length
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017 (a header may be whole already)
            assert not end_of_divisors
    assert end_of_divisors
    assert time.monotonic() - started < 20


def header(version=3, tensors=0, pairs=0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def pair(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


HUGE = struct.pack("<Q", 2**63)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF", "shorter than a GGUF header"),
        (b"GGML" + bytes(40), "begins with b'GGML'"),
        (header(version=1), "version"),
        (header(version=99), "99"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (header(pairs=2**63), "9223372036854775808 values"),
        (header(tensors=2**63), "9223372036854775808 tensors"),
        (header(pairs=1) + HUGE + bytes(100), "ends within its header"),
        (header(pairs=1) + pair("a", 8, HUGE) + bytes(100), "ends within its header"),
        (header(pairs=1) + pair("a", 9, struct.pack("<I", 5) + HUGE) + bytes(99), "ends within"),
        (header(pairs=1) + pair("a", 9, struct.pack("<I", 8) + HUGE) + bytes(99), "texts"),
        (
            header(pairs=1) + pair("a", 9, struct.pack("<I", 9) + HUGE) + bytes(99),
            "array of type 9",
        ),
        (header(pairs=1) + pair("a", 77, bytes(99)), "unknown type 77"),
        (header(pairs=2) + pair("a", 0, b"1") * 2 + bytes(99), "'a' twice"),
        (header(tensors=1) + text("t") + struct.pack("<I", 2**31) + bytes(99), "dimensions"),
        (
            header(pairs=1) + pair("general.alignment", 4, struct.pack("<I", 0)) + bytes(99),
            "general.alignment 0",
        ),
        (header(), "general.architecture: got nothing"),
        (header(pairs=1) + pair("general.architecture", 4, bytes(4)), "architecture: got 0"),
    ],
)
def test_hostile_files(tmp_path, content, words):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    started = time.monotonic()
    assert words in refuse(path)
    assert time.monotonic() - started < 2


def test_split_model_is_read_from_its_first_part(tmp_path):
    path = write(tmp_path)
    path.rename(tmp_path / "m-00001-of-00002.gguf")
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(header())
    assert read(tmp_path).path.endswith("m-00001-of-00002.gguf")


def test_family_cannot_be_assumed(tmp_path):
    with pytest.raises(InputError, match="names its architecture"):
        read(write(tmp_path), assume_family="llama")
