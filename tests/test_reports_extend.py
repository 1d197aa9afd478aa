"""Public reports about extending and running models, each with its right answer."""

import dataclasses
import json
from pathlib import Path

import pytest

from ropewalk import InputError, Linear, Plain
from ropewalk.cli.main import main
from ropewalk.encodings.sinusoidal import sinusoidal
from ropewalk.extend.engines import settings
from ropewalk.extend.plan import plan_extension
from ropewalk.models import ModelPositions
from ropewalk.models.hf import read_config


def llama(theta: float, length: int) -> ModelPositions:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 2,
        "max_position_embeddings": length,
        "rope_theta": theta,
    }
    return read_config(config, "config.json")


def test_scaling_is_applied_or_refused_never_dropped() -> None:
    """hiyouga/LlamaFactory#9589: linear to 65536 from 40960 became plain RoPE in silence."""
    verdict = plan_extension(llama(1e6, 40960), "m", 65536, "linear")
    assert verdict.rope is not None
    assert verdict.rope.scaling == Linear(factor=1.6, original_length=40960)
    for setting in verdict.engines:
        assert "1.6" in setting.text


def test_the_whole_block_reaches_the_engine() -> None:
    """unslothai/unsloth#3083: the scaling argument never reached the inference engine."""
    verdict = plan_extension(llama(1e6, 32768), "m", 131072, "yarn")
    words = {s.engine: s.text for s in verdict.engines}
    for name in ("vLLM", "SGLang"):
        for part in ('"yarn"', '"factor": 4.0', '"original_max_position_embeddings": 32768'):
            assert part in words[name]


def test_the_maximum_length_follows_from_factor_and_original() -> None:
    """NovaSky-AI/SkyRL PR#561: factor 4, original 32768 is a max_model_len of 131072."""
    verdict = plan_extension(llama(1e6, 32768), "m", 131072, "yarn")
    assert verdict.factor == 4.0
    assert json.loads(verdict.engines[0].text)["max_position_embeddings"] == 131072
    assert "--max-model-len 131072" in verdict.engines[2].text


def test_training_within_the_trained_length_keeps_theta() -> None:
    """QwenLM/Qwen3#778: change theta when continuing at 4k? No: keep 1e6."""
    verdict = plan_extension(llama(1e6, 32768), "m", 4096)
    assert verdict.method is None
    assert verdict.now.theta == 1e6


def test_a_config_changed_after_the_model_was_built_is_found(tiny_model: Path) -> None:
    """lm-sys/FastChat PR#2124: scaling set on the config after construction has no effect."""
    pytest.importorskip("torch")
    from ropewalk.extend.loading import load
    from ropewalk.extend.override import RopeSlot

    loaded = load(tiny_model, dtype="float32")
    layers = tuple(
        dataclasses.replace(layer, rope=layer.rope.with_scaling(Linear(factor=4)))
        for layer in loaded.positions.layers
        if layer.rope is not None
    )
    with pytest.raises(InputError, match="not those of the rope in the file"):
        RopeSlot(loaded.model, dataclasses.replace(loaded.positions, layers=layers))


def test_a_flag_that_does_not_exist_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    """NVIDIA/TensorRT-LLM#1595: a documented flag that the command does not have."""
    with pytest.raises(SystemExit) as stopped:
        main(["extend", "--to", "4096", "--rotary_scaling", "dynamic"])
    assert stopped.value.code == 2
    assert "No such option" in capsys.readouterr().err


def test_llama_cpp_scale_is_the_factor_not_its_inverse() -> None:
    """ggml-org/llama.cpp#2402: freq_scale = 1/factor; --rope-scale takes the factor."""
    rope = llama(10000.0, 4096).rope
    assert rope is not None
    assert rope.scaling == Plain(original_length=4096)
    linear = settings(rope.with_scaling(Linear(factor=4)), 16384)[-1]
    assert "--rope-scale 4" in linear.text
    assert "0.25" not in linear.text


def test_sinusoids_of_odd_width_are_refused_clearly() -> None:
    """datawhalechina/base-llm#67 and ports: a sinusoid table crashed for an odd width."""
    with pytest.raises(InputError, match="even"):
        sinusoidal([1], 3)


def test_sinusoids_take_positions_not_features() -> None:
    """ml-explore/mlx#147: a feature tensor was taken for positions."""
    import numpy as np

    assert sinusoidal(np.arange(5), 8).shape == (5, 8)
    with pytest.raises(InputError):
        sinusoidal(np.ones((2, 4, 5, 8)), 8)
