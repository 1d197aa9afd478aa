"""The verdict: when nothing is needed, which method, what is warned of, what is refused."""

import dataclasses
import json
from typing import Any

import pytest

from ropewalk import InputError, Linear, Llama3, Plain, Rope, Scaling, YaRN
from ropewalk.extend.kv_cache import kv_cache_bytes
from ropewalk.extend.methods import METHODS, methods_named
from ropewalk.extend.plan import plan_extension
from ropewalk.models import LayerPositions, ModelPositions


def model(scaling: Scaling, stated: int | None = None, **changes: Any) -> ModelPositions:
    rope = Rope(head_dim=128, theta=500000.0, scaling=scaling)
    found = ModelPositions(
        path="m/config.json",
        format="hf",
        model_type="llama",
        layers=tuple(LayerPositions(i, "full_attention", rope) for i in range(4)),
        original_length=scaling.original_length,
        stated_length=stated or scaling.original_length,
        heads=32,
        kv_heads=8,
        value_dim=128,
        sources={},
    )
    return dataclasses.replace(found, **changes)


def test_target_within_the_trained_length_needs_nothing() -> None:
    verdict = plan_extension(model(Plain(original_length=8192)), "m", 8192)
    assert (verdict.needed, verdict.method, verdict.rope) == (False, None, None)
    assert "No change needed" in verdict.reasons[0]


def test_llama31_already_takes_128k() -> None:
    """vllm-project/vllm#10537: overriding the llama3 block removes trained scaling."""
    llama31 = model(
        Llama3(factor=8, low_freq_factor=1, high_freq_factor=4, original_length=8192), 131072
    )
    verdict = plan_extension(llama31, "m", 120000)
    assert verdict.method is None
    assert "llama3 scaling stays" in verdict.reasons[0]
    with pytest.raises(InputError, match=r"trained llama3 scaling.*--method yarn"):
        plan_extension(llama31, "m", 262144)
    assert plan_extension(llama31, "m", 262144, "yarn").method == "yarn"


def test_factor_is_target_over_original_not_over_the_stated_length() -> None:
    """hiyouga/LlamaFactory#8664: the factor belongs to the trained length."""
    extended = model(YaRN(factor=4, original_length=8192), 32768)
    verdict = plan_extension(extended, "m", 65536)
    assert (verdict.method, verdict.factor) == ("yarn", 8.0)
    assert isinstance(verdict.rope, Rope)
    assert verdict.rope.scaling == YaRN(factor=8.0, original_length=8192)


def test_llama3_run_past_8192_without_scaling_is_warned_of() -> None:
    """mlc-ai/mlc-llm#3202: positions 8192..9999 are untrained; factor 10000/8192."""
    verdict = plan_extension(model(Plain(original_length=8192)), "m", 10000, "none")
    assert any("8,192 … 9,999" in w and "1.221" in w for w in verdict.warnings)


def test_static_yarn_says_what_it_costs_short_texts() -> None:
    verdict = plan_extension(model(Plain(original_length=8192)), "m", 32768)
    assert verdict.method == "yarn"
    assert any("changes outputs at every length" in w for w in verdict.warnings)
    dynamic = plan_extension(model(Plain(original_length=8192)), "m", 32768, "dynamic")
    assert any("go stale" in w for w in dynamic.warnings)


def test_effects_name_the_bands() -> None:
    verdict = plan_extension(model(Plain(original_length=8192)), "m", 32768)
    effects = {e.method: e for e in verdict.effects}
    assert (effects["linear"].kept, effects["linear"].interpolated) == (0, 64)
    assert (effects["ntk"].kept, effects["ntk"].interpolated) == (1, 1)
    assert effects["yarn"].amplitude == pytest.approx(1.138629, abs=5e-7)
    assert effects["yarn"].kept + effects["yarn"].blended + effects["yarn"].interpolated == 64


def test_windowed_layers_keep_their_rope() -> None:
    """allenai/OLMo-core#366: no extension where the window is within the trained length."""
    rope = Rope(head_dim=128, scaling=Plain(original_length=8192))
    layers = tuple(
        LayerPositions(i, "sliding", rope, window=1024)
        if i % 2
        else LayerPositions(i, "full", rope)
        for i in range(4)
    )
    verdict = plan_extension(model(Plain(original_length=8192), layers=layers), "m", 32768)
    assert any("1,024" in w and "keep their own rope" in w for w in verdict.warnings)


def test_kv_cache_bytes() -> None:
    plain = model(Plain(original_length=8192))
    # 4 layers × 8 heads × (128 + 128) lanes × 2 bytes.
    assert kv_cache_bytes(plain, 1000) == 1000 * 4 * 8 * 256 * 2
    windowed = dataclasses.replace(
        plain, layers=(*plain.layers[:3], dataclasses.replace(plain.layers[3], window=100))
    )
    assert kv_cache_bytes(windowed, 1000) == (3 * 1000 + 100) * 8 * 256 * 2
    assert kv_cache_bytes(dataclasses.replace(plain, kv_heads=None), 1000) is None
    latent = Rope(head_dim=192, rotary_dim=64, rotary_offset=128)
    layers = (LayerPositions(0, "full_attention", latent),)
    assert kv_cache_bytes(dataclasses.replace(plain, layers=layers), 1000) is None


@pytest.mark.parametrize("method", ["crop", "yarnn", ""])
def test_unknown_methods_are_refused(method: str) -> None:
    with pytest.raises(InputError, match="auto or one of"):
        plan_extension(model(Plain(original_length=8192)), "m", 32768, method)


def test_no_rope_and_no_length_are_refused() -> None:
    nope = model(Plain(original_length=8192), layers=(LayerPositions(0, "full", None),))
    with pytest.raises(InputError, match="no rotary embedding"):
        plan_extension(nope, "m", 32768)
    with pytest.raises(InputError, match="no original length"):
        plan_extension(model(Plain()), "m", 32768)


def test_at_factor_one_every_method_is_plain() -> None:
    base = Rope(head_dim=64, scaling=Plain(original_length=512))
    for method in METHODS.values():
        assert method.rope(base, 1.0, 512) == base


def test_methods_come_in_the_tables_order_each_once() -> None:
    assert [m.name for m in methods_named(["yarn", "crop", "yarn"])] == ["crop", "yarn"]
    with pytest.raises(InputError, match="'ntk2'"):
        methods_named(["ntk2"])


def test_linear_on_linear_keeps_the_original_length() -> None:
    verdict = plan_extension(model(Linear(factor=2, original_length=4096), 8192), "m", 16384)
    assert verdict.rope is not None
    assert verdict.rope.scaling == Linear(factor=4.0, original_length=4096)


def test_layer_types_with_ropes_of_their_own_get_a_block_each() -> None:
    """One flat block would stretch the local layers of a Gemma 3 too."""
    full = Rope(head_dim=256, theta=1e6, scaling=Plain(original_length=32768))
    local = Rope(head_dim=256, theta=10000.0, scaling=Plain(original_length=32768))
    layers = (
        LayerPositions(0, "sliding_attention", local, window=512),
        LayerPositions(1, "full_attention", full),
    )
    verdict = plan_extension(model(Plain(original_length=32768), layers=layers), "m", 131072)
    by_name = {s.engine: s for s in verdict.engines}
    for name, text in (
        ("transformers 5", by_name["transformers 5"].text),
        ("vLLM", by_name["vLLM"].text.split("'")[1]),
    ):
        blocks = json.loads(text)["rope_parameters"]
        assert blocks["sliding_attention"] == {"rope_type": "default", "rope_theta": 10000.0}, name
        assert blocks["full_attention"]["rope_type"] == "yarn"
        assert blocks["full_attention"]["factor"] == 4.0
    for name in ("transformers 4", "SGLang", "llama.cpp"):
        assert "different ropes" in by_name[name].refusal
