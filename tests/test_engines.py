"""What engines are told: transformers, given the block, must compute the very rope."""

import json
import re

import numpy as np
import pytest

from ropewalk import NTK, Linear, NTKByParts, Plain, Proportional, Rope, Scaling, YaRN
from ropewalk.convert.rope_block import rope_parameters
from ropewalk.extend.engines import ENGINES, legacy_block, settings
from ropewalk.extend.methods import METHODS

torch = pytest.importorskip("torch")
ORIGINAL, FACTOR = 512, 8
RESCALING = [name for name, method in METHODS.items() if method.build is not None]
BASE = Rope(head_dim=64, theta=10000.0, scaling=Plain(original_length=ORIGINAL))


def rotary_of(config: dict[str, object]) -> object:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    sizes = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64}
    return LlamaRotaryEmbedding(LlamaConfig(**sizes, **config))


@pytest.mark.parametrize("generation", ["transformers 5", "transformers 4"])
@pytest.mark.parametrize("name", RESCALING)
def test_transformers_computes_the_rope_from_the_block(name: str, generation: str) -> None:
    rope = METHODS[name].rope(BASE, FACTOR, ORIGINAL)
    target = ORIGINAL * FACTOR
    (setting,) = [s for s in settings(rope, target) if s.engine == generation]
    assert not setting.refusal
    rotary = rotary_of(json.loads(setting.text))
    # Dynamic and longrope set themselves by the positions they are called with.
    rotary(torch.zeros(1), torch.arange(target)[None])
    wanted = rope.inv_freq(target)
    # float32: power, product and quotient are each off by half a unit at most, the base in
    # the exponent by a few more; 16 units in all.
    np.testing.assert_allclose(rotary.inv_freq.numpy(), wanted, rtol=16 * 2.0**-24)
    assert rotary.attention_scaling == pytest.approx(rope.attention_factor(target), rel=1e-12)


def test_by_parts_is_llama3_with_other_factors() -> None:
    rope = METHODS["by-parts"].rope(BASE, FACTOR, ORIGINAL)
    block = rope_parameters(rope)
    assert block is not None
    assert (block["rope_type"], block["low_freq_factor"], block["high_freq_factor"]) == (
        "llama3",
        1.0,
        32.0,
    )


@pytest.mark.parametrize("scaling", [Linear(factor=2), NTK(factor=2), Plain()])
def test_partial_rotary_is_repeated_in_the_block(scaling: Scaling) -> None:
    rope = Rope(head_dim=64, rotary_dim=16, scaling=scaling)
    block = rope_parameters(rope)
    assert block is not None
    assert block["partial_rotary_factor"] == 0.25
    legacy = legacy_block(rope)
    assert legacy is not None
    assert legacy["partial_rotary_factor"] == 0.25
    assert "partial_rotary_factor" not in (legacy["rope_scaling"] or {})


def test_a_slice_at_an_offset_is_no_partial_rotary() -> None:
    """vllm-project/vllm PR#41185: the latent slice is rotated whole."""
    rope = Rope(head_dim=192, rotary_dim=64, rotary_offset=128, scaling=Linear(factor=2))
    block = rope_parameters(rope)
    assert block == {"rope_theta": 10000.0, "rope_type": "linear", "factor": 2.0}


def test_qwen_to_128k() -> None:
    """vllm-project/vllm#8793, ollama/ollama#8493: "Qwen2.5/3 to 128k in X"."""
    rope = Rope(head_dim=128, theta=1e6, scaling=YaRN(factor=131072 / 32768, original_length=32768))
    words = {s.engine: s.text for s in settings(rope, 131072)}
    assert json.loads(words["transformers 4"])["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    }
    assert "--hf-overrides" in words["vLLM"]
    assert words["vLLM"].endswith("--max-model-len 131072")
    assert "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768" in words["llama.cpp"]


def test_llama_cpp_table_of_base_and_scale() -> None:
    """ggml-org/llama.cpp#2402: native 4096 to 16384, base 10000, head 128."""
    plain = Rope(head_dim=128, theta=10000.0, scaling=Plain(original_length=4096))
    linear = settings(plain.with_scaling(Linear(factor=4)), 16384)[-1]
    assert "--rope-scaling linear --rope-scale 4" in linear.text
    ntk = settings(plain.with_scaling(NTK(factor=4)), 16384)[-1]
    found = re.search(r"--rope-freq-base (\S+)", ntk.text)
    assert found is not None
    assert float(found[1]) == pytest.approx(40889.94, abs=0.005)


def test_what_an_engine_cannot_say_is_refused_not_dropped() -> None:
    dynamic = METHODS["dynamic"].rope(BASE, FACTOR, ORIGINAL)
    by_name = {s.engine: s for s in settings(dynamic, 4096)}
    assert by_name["llama.cpp"].refusal
    assert not by_name["llama.cpp"].text
    assert "the unscaled one" in by_name["vLLM"].refusal
    assert "short texts change" in by_name["SGLang"].note
    rotations = METHODS["yarn-rotations"].rope(BASE, FACTOR, ORIGINAL)
    refused = {s.engine for s in settings(rotations, 4096) if s.refusal}
    assert refused == {"vLLM", "SGLang", "llama.cpp"}
    untruncated = Rope(head_dim=64, scaling=YaRN(factor=8, original_length=512, truncate=False))
    assert settings(untruncated, 4096)[-1].refusal
    own_amplitude = Rope(
        head_dim=64, scaling=YaRN(factor=8, original_length=512, attention_factor=1.0)
    )
    refused = {s.engine for s in settings(own_amplitude, 4096) if s.refusal}
    assert refused == {"SGLang", "llama.cpp"}


def test_every_engine_answers_for_every_rope() -> None:
    ropes = [method.rope(BASE, FACTOR, ORIGINAL) for method in METHODS.values()]
    ropes.append(Rope(head_dim=64, scaling=Proportional(share=0.25)))
    ropes.append(Rope(head_dim=64, scaling=NTKByParts(factor=8, original_length=512, ramp="index")))
    for rope in ropes:
        for setting in settings(rope, 4096):
            assert setting.engine in ENGINES
            assert bool(setting.text) != bool(setting.refusal)
