"""Qwen-1's own rules: dynamic NTK in steps, and log-n attention."""

from __future__ import annotations

import json
import math
from typing import Any

import mpmath
import numpy as np
import pytest

from ropewalk import InputError, Plain, Rope
from ropewalk.convert.convert import convert
from ropewalk.convert.document import Options
from ropewalk.convert.features import FEATURES
from ropewalk.convert.targets import TARGETS
from ropewalk.models import LogNTemperature, read_config
from ropewalk.scaling import SCALINGS, SteppedNTK, scaling_from_dict

CONFIG: dict[str, Any] = {
    "model_type": "qwen", "hidden_size": 4096, "num_attention_heads": 32, "kv_channels": 128,
    "num_hidden_layers": 2, "rotary_emb_base": 10000, "seq_length": 2048,
    "max_position_embeddings": 8192, "use_dynamic_ntk": True, "use_logn_attn": True,
}  # fmt: skip


def alpha(length: int, trained: int) -> float:
    """The rule of modeling_qwen.py, as it stands there."""
    context = math.log(length / trained, 2) + 1
    return max(2 ** math.ceil(context) - 1, 1)


@pytest.mark.parametrize("trained", [512, 2048, 3000])
def test_the_step_is_that_of_qwens_code(trained: int) -> None:
    scaling = SteppedNTK(original_length=trained)
    for length in (1, trained - 1, trained, trained + 1, 2 * trained, 2 * trained + 1,
                   4 * trained, 4 * trained + 1, 7 * trained, 16 * trained + 5):  # fmt: skip
        assert scaling.alpha(length) == alpha(length, trained), length
    assert scaling.alpha(None) == 1
    assert [scaling.alpha(trained * n) for n in (1, 2, 3, 4, 8)] == [1, 3, 7, 7, 15]


@pytest.mark.parametrize("length", [None, 2048, 2049, 4096, 4097, 100_000])
def test_frequencies_are_the_correctly_rounded_formula(length: int | None) -> None:
    rope = Rope(head_dim=128, theta=10000.0, scaling=SteppedNTK(original_length=2048))
    with mpmath.workdps(60):
        stretch = mpmath.mpf(1 if length is None else alpha(length, 2048))
        base = mpmath.mpf(10000) * stretch ** (mpmath.mpf(128) / 126)
        wanted = [float(base ** (-mpmath.mpf(2 * i) / 128)) for i in range(64)]
    np.testing.assert_array_equal(rope.inv_freq(length), wanted)


def test_texts_of_one_step_share_their_frequencies() -> None:
    scaling = SteppedNTK(original_length=2048)
    rope = Rope(head_dim=64, scaling=scaling)
    assert scaling.effective_length(None) == scaling.effective_length(2048) == 2048
    assert scaling.effective_length(2049) == scaling.effective_length(4096) == 4096
    assert rope.inv_freq(2049) is rope.inv_freq(4096)
    plain = rope.with_scaling(Plain())
    np.testing.assert_array_equal(rope.inv_freq(2048), plain.inv_freq())
    assert (rope.inv_freq(2049)[1:] < plain.inv_freq()[1:]).all()


def test_json_and_what_is_refused() -> None:
    scaling = SteppedNTK(original_length=2048)
    assert scaling_from_dict(scaling.to_dict()) == scaling
    rope = Rope(head_dim=64, scaling=scaling)
    assert Rope.from_json(rope.to_json()) == rope
    # A model's own rule: nothing offers it as a way to stretch.
    assert "stepped-ntk" not in SCALINGS
    with pytest.raises(InputError, match="original_length"):
        SteppedNTK()
    with pytest.raises(InputError, match="at least 4"):
        Rope(head_dim=2, scaling=scaling)


def test_the_reader_turns_both_switches_into_formulas() -> None:
    plan = read_config(CONFIG, "config.json")
    assert plan.rope == Rope(head_dim=128, scaling=SteppedNTK(original_length=2048))
    assert {la.query_temperature for la in plan.layers} == {LogNTemperature(2048)}
    assert (plan.original_length, plan.stated_length) == (2048, 8192)
    assert plan.sources["scaling"].source == "config.json: use_dynamic_ntk"
    assert plan.sources["query_temperature"].source == "config.json: use_logn_attn"
    assert any("texts of up to 2048 tokens have the plain rope" in note for note in plan.notes)
    shown = json.loads(json.dumps(plan.to_dict()))["layers"][0]["query_temperature"]
    assert shown == {"kind": "log-n", "original_length": 2048}


def test_each_switch_alone_and_none() -> None:
    ntk = read_config({**CONFIG, "use_logn_attn": False}, "c")
    assert ntk.layers[0].query_temperature is None
    assert ntk.rope is not None
    assert isinstance(ntk.rope.scaling, SteppedNTK)
    log_n = read_config({**CONFIG, "use_dynamic_ntk": False}, "c")
    assert log_n.rope == Rope(head_dim=128, scaling=Plain(original_length=2048))
    assert log_n.layers[0].query_temperature == LogNTemperature(2048)
    neither = read_config({**CONFIG, "use_dynamic_ntk": False, "use_logn_attn": False}, "c")
    assert neither.rope == Rope(head_dim=128, scaling=Plain(original_length=8192))
    assert neither.layers[0].query_temperature is None
    # Another family's code does not read the keys: they stay notes.
    other = read_config({**CONFIG, "model_type": "llama", "head_dim": 128, "rope_theta": 1e4}, "c")
    assert other.rope is not None
    assert isinstance(other.rope.scaling, Plain)
    assert any("use_logn_attn" in note for note in other.notes)


def test_log_n_is_qwens_list() -> None:
    trained = 2048
    logn_list = [math.log(i, trained) if i > trained else 1 for i in range(1, 9000)]
    found = LogNTemperature(trained)
    # The quotient of two logarithms, each rounded once: 4 half units of float64.
    for position, wanted in enumerate(logn_list):
        assert abs(found.factor(position) - wanted) <= 4 * 2.0**-53 * wanted


def test_contradictions_are_refused() -> None:
    with pytest.raises(InputError, match="one way to stretch"):
        read_config({**CONFIG, "rope_scaling": {"type": "linear", "factor": 2.0}}, "c")
    with pytest.raises(InputError, match="at least 2"):
        read_config({**CONFIG, "seq_length": 1, "use_dynamic_ntk": False}, "c")


_CONFIGS = ("hf", "hf4")


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize(
    ("switch", "words"),
    [("use_dynamic_ntk", "dynamic scaling in steps"), ("use_logn_attn", "log-n attention")],
)
def test_no_target_writes_what_it_cannot_say(target: str, switch: str, words: str) -> None:
    other = {"use_dynamic_ntk": "use_logn_attn", "use_logn_attn": "use_dynamic_ntk"}[switch]
    plan = read_config({**CONFIG, other: False}, "config.json")
    assert FEATURES[words].has(plan)
    assert words not in TARGETS[target].says
    # Configs of transformers have the switch, but no other family's code looks at it.
    options = Options(family="llama") if target in _CONFIGS else None
    with pytest.raises(InputError, match=f"{words}|half pairing"):
        convert(plan, target, options=options)


@pytest.mark.parametrize("target", _CONFIGS)
@pytest.mark.parametrize("options", [None, Options(family="qwen"), Options(base=CONFIG)])
def test_its_own_config_says_both(target: str, options: Options | None) -> None:
    plan = read_config(CONFIG, "config.json")
    written = convert(plan, target, options=options)
    assert written.lost == ()
    again = read_config(dict(written.values), "config.json")
    assert again.layers == plan.layers
    assert written.values["use_dynamic_ntk"] is True
    assert written.values["use_logn_attn"] is True
    off = read_config({**CONFIG, "use_dynamic_ntk": False, "use_logn_attn": False}, "config.json")
    assert convert(off, target, options=options).values["use_dynamic_ntk"] is False


def test_lossy_names_what_is_lost() -> None:
    plan = read_config(CONFIG, "config.json")
    written = convert(plan, "hf", lossy=True, options=Options(family="llama"))
    assert "rope_parameters" in written.values
    text = " ".join(written.lost)
    assert "log-n attention" in text
    assert "dynamic scaling in steps" in text
