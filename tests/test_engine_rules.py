"""The rules of the engines against the engines' own code, where it is installed."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import random
import re
from pathlib import Path
from typing import Any

import engine_code
import numpy as np
import pytest

from ropewalk.engines import ENGINES, exllamav3, keras_hub
from ropewalk.engines.mlx_lm import FAMILIES
from ropewalk.engines.page import engines_page
from ropewalk.engines.reading import Keys, LayerConfig, Reading, Rule, view
from ropewalk.models.spellings import BLOCK_KEYS

BY_NAME = {engine.name: engine for engine in ENGINES}
HEAD = 64
BLOCK = "rope_parameters"
BASE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_hidden_layers": 2,
    "head_dim": HEAD,
    "max_position_embeddings": 8192,
    "rope_theta": 10000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}
SHORT = [1.0 + 0.01 * i for i in range(HEAD // 2)]
LONG = [1.0 + 0.5 * i for i in range(HEAD // 2)]
LONGROPE = {
    "type": "longrope",
    "rope_type": "longrope",
    "short_factor": SHORT,
    "long_factor": LONG,
    "original_max_position_embeddings": 2048,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 2048,
}
BLOCKS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "linear, whole": {"rope_type": "linear", "factor": 4},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": YARN,
    "yarn with betas": YARN | BETAS,
    "yarn, other betas": YARN | {"beta_fast": 16.0, "beta_slow": 2.0},
    "yarn, range beyond the head": YARN | {"beta_fast": 32.0, "beta_slow": 0.01},
    "yarn untruncated": YARN | BETAS | {"truncate": False},
    "yarn mscale": YARN | BETAS | {"mscale": 0.8, "mscale_all_dim": 0.5},
    "yarn mscale alone": YARN | BETAS | {"mscale": 0.8},
    "yarn mscale_all_dim alone": YARN | BETAS | {"mscale_all_dim": 0.8},
    "yarn attention factor": YARN | BETAS | {"attention_factor": 1.25},
    "yarn attn_factor": YARN | BETAS | {"attn_factor": 1.25},
    "yarn factor against lengths": YARN | BETAS | {"factor": 16.0},
    "yarn without original": {"rope_type": "yarn", "factor": 4.0},
    "longrope": LONGROPE,
    "longrope with factor": LONGROPE | {"factor": 32.0},
    "longrope attention factor": LONGROPE | {"factor": 4.0, "attention_factor": 1.5},
    "longrope mscales": LONGROPE | {"factor": 4.0, "short_mscale": 1.1, "long_mscale": 1.3},
    "llama3": LLAMA3,
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
    "proportional with factor": {
        "rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 2.0,
    },
    "unknown": {"rope_type": "spiral", "factor": 2.0},
}  # fmt: skip
"""Kinds of scaling, each in the forms on which engines part."""


def layer(values: dict[str, Any], length: int, *, theta: float = 10000.0) -> LayerConfig:
    """The raw keys of a Llama's layers."""
    return LayerConfig(
        model_type=values["model_type"],
        values=values,
        layer_kind="full_attention",
        head_dim=HEAD,
        rotary_dim=HEAD,
        theta=theta,
        latent="qk_rope_head_dim" in values,
        new=values.get("rope_parameters"),
        old=values.get("rope_scaling"),
        nested=False,
        unscaled=False,
        softmax_multiplier=1.0,
        length=length,
    )


def tolerance(theta: float) -> float:
    """Relative error of a frequency in float32.

    A power is off by its exponent times the logarithm of the base in units of 2^-24; blends
    between two frequencies and the angle read back from cos and sin add a few more.
    """
    return 8 * (np.log(theta) + 4) * 2.0**-24


def runs(name: str, values: dict[str, Any], length: int) -> tuple[Any, float] | None:
    """Run an engine's code; None where it stops."""
    try:
        return engine_code.RUNNERS[name][1](values, length)
    except (KeyError, TypeError, ValueError, ArithmeticError, NotImplementedError, AssertionError):
        return None


def agree(name: str, values: dict[str, Any], length: int, theta: float = 10000.0) -> None:
    """Demand that the rule and the engine's code compute the same, or both stop."""
    real = runs(name, values, length)
    mine = view(BY_NAME[name], layer(values, length, theta=theta))
    if real is None:
        assert mine.reading is None, f"the code of {name} stops, the rule does not"
        return
    assert mine.reading is not None, f"the rule stops ({mine.refusal}), the code of {name} not"
    found, amplitude = real
    expected = mine.reading.inv_freq
    assert len(found) == len(expected)
    apart = np.abs(found - expected)
    assert (apart <= tolerance(theta) * expected).all(), (
        f"plane {int((apart / np.maximum(expected, 1e-30)).argmax())}"
    )
    # The amplitude of a table is a float32 product.
    assert abs(amplitude - mine.reading.amplitude) <= 4 * 2.0**-23 * amplitude


@pytest.mark.parametrize("name", engine_code.INSTALLED)
@pytest.mark.parametrize("case", BLOCKS)
def test_rule_is_what_the_code_computes(name: str, case: str) -> None:
    values = BASE | {"rope_scaling": BLOCKS[case]}
    for length in (2048, 8192, 16384) if "dynamic" in case or "longrope" in case else (8192,):
        agree(name, values, length)


@pytest.mark.parametrize("name", engine_code.INSTALLED)
def test_keys_of_transformers_5(name: str) -> None:
    values = {key: value for key, value in BASE.items() if key != "rope_theta"}
    values["rope_parameters"] = {**YARN, **BETAS, "rope_theta": 50000.0}
    agree(name, values, 8192, theta=50000.0)


def at_hand(*names: str) -> list[str]:
    """Return those of the engines whose code is installed."""
    return [name for name in names if name in engine_code.INSTALLED]


@pytest.mark.parametrize("family", ["mistral", "phi3"])
@pytest.mark.parametrize("case", BLOCKS)
def test_other_builders_of_onnxruntime_genai(family: str, case: str) -> None:
    values = BASE | {"model_type": family, "rope_scaling": BLOCKS[case]}
    for name in at_hand("onnxruntime-genai"):
        for length in (2048, 8192) if "longrope" in case else (8192,):
            agree(name, values, length)


@pytest.mark.parametrize("case", [case for case in BLOCKS if case.startswith("yarn")])
def test_latent_attention(case: str) -> None:
    for name in at_hand("vLLM", "SGLang"):
        agree(name, BASE | {"qk_rope_head_dim": HEAD, "rope_scaling": BLOCKS[case]}, 8192)


def test_llama_of_the_builder_ignores_yarn() -> None:
    """Its Llama replaces the shared reading by one that knows llama3 only."""
    found = view(BY_NAME["onnxruntime-genai"], layer(BASE | {"rope_scaling": YARN | BETAS}, 8192))
    assert found.reading is not None
    plain = 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
    assert np.abs(found.reading.inv_freq / plain - 1).max() < 2.0**-50
    assert any("yarn is ignored" in note for note in found.notes)


def test_gpt_oss_of_keras_hub() -> None:
    values = BASE | {"model_type": "gpt_oss", "max_position_embeddings": 131072}
    block = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "beta_fast": 8.0}
    for name in at_hand("keras-hub"):
        for scaling in (block, None):
            agree(name, values | {"rope_scaling": scaling}, 131072)


def ggml(block: dict[str, Any], log_multiplier: float, own_betas: bool) -> tuple[Any, float]:
    """llama.cpp's chain in its own steps: context set-up, range, rope_yarn, in float32."""
    single = np.float32
    factor = single(block["factor"])
    scale, grown = single(1) / factor, single(1) + single(0.1) * np.log(factor)
    attn = (
        grown
        if not log_multiplier
        else grown / (single(1) + single(0.1) * single(log_multiplier) * np.log(factor))
    )
    attn *= single(1) / grown
    fast, slow = (block["beta_fast"], block["beta_slow"]) if own_betas else (32.0, 1.0)
    length = block["original_max_position_embeddings"]

    def dim(turns: float) -> float:
        return float(HEAD * np.log(length / (turns * 2 * np.pi)) / (2 * np.log(10000.0)))

    start, end = max(0.0, np.floor(dim(fast))), min(HEAD - 1.0, np.ceil(dim(slow)))
    theta, step, out = single(1), single(10000.0 ** (-2 / HEAD)), []
    for plane in range(HEAD // 2):
        mix = single(1 - min(1, max(0, (plane - start) / max(0.001, end - start))))
        out.append(theta * scale * (1 - mix) + theta * mix)
        theta *= step
    return np.array(out, np.float64), float(attn * grown)


@pytest.mark.parametrize("family", ["llama", "ministral3"])
@pytest.mark.parametrize("extra", [{}, {"mscale": 1.0, "mscale_all_dim": 1.0}])
@pytest.mark.parametrize("truncate", [True, False])
def test_llama_cpp_in_its_own_steps(family: str, extra: dict[str, Any], truncate: bool) -> None:
    """Read from source: the rule against the steps of its context and its kernel, written out."""
    block = YARN | {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": truncate} | extra
    own = family == "ministral3"
    found = view(
        BY_NAME["llama.cpp"], layer(BASE | {"model_type": family, "rope_scaling": block}, 8192)
    )
    frequencies, amplitude = ggml(block, extra.get("mscale_all_dim", 0.0) if own else 0.0, own)
    assert found.reading is not None
    # It multiplies the frequency up plane by plane: each step rounds once more.
    allowed = (HEAD // 2 + 4) * 2.0**-24 + tolerance(10000.0)
    assert np.abs(found.reading.inv_freq / frequencies - 1).max() < allowed
    assert abs(found.reading.amplitude - amplitude) < 8 * 2.0**-24
    assert any("truncate" in note for note in found.notes) != truncate
    assert any("loader reads 32 and 1" in note for note in found.notes) != own


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_families_of_mlx_lm(family: str) -> None:
    """The base each model assumes, and which keys and scalings it knows, by its source."""
    folder = engine_code.place("mlx_lm")
    if folder is None:
        return
    aliases = {"mistral": "llama", "kimi_k2": "deepseek_v3", "minimax_m2": "minimax",
               "qwen2_vl": "qwen2",
               "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3",
               "youtu": "youtu_llm"}  # fmt: skip
    name = aliases.get(family, family)
    text = (folder / f"models/{name}.py").read_text(encoding="utf-8")
    if name == "smollm3":
        # Its arguments and its rope are those of its Llama.
        assert "class ModelArgs(llama.ModelArgs)" in text
        text = (folder / "models/llama.py").read_text(encoding="utf-8")
    row = FAMILIES[family]
    assert ("rope_parameters" in text) == row.new_keys
    knows = "initialize_rope(" in text
    if row.form == "all":
        assert knows or "YarnRotaryEmbedding" in text or "rope_scaling" in text
    elif row.form == "plain":
        passed_on = re.search(r"scaling_config=\S*rope_scaling|args.rope_scaling,", text)
        assert not knows or not passed_on
    defaults = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "rope_theta"
    ]
    if not defaults:
        assert row.new_keys, "it has no rope_theta, so it must read rope_parameters"
        return
    value = None if defaults[0] is None else ast.literal_eval(defaults[0])
    assert value == row.theta


def test_versions_are_those_installed() -> None:
    """An engine's rules name the version that they were read from."""
    for name in engine_code.INSTALLED:
        package = engine_code.RUNNERS[name][0]
        try:
            found = importlib.metadata.version(package.replace("_", "-"))
        except importlib.metadata.PackageNotFoundError:
            continue
        assert found == BY_NAME[name].version


def test_engines_marked_run_have_a_runner() -> None:
    marked = {engine.name for engine in ENGINES if engine.evidence == "run"}
    # llama.cpp is run whole, by test_llama_cpp.
    assert marked == {*engine_code.RUNNERS, "llama.cpp"}


def test_page_is_up_to_date() -> None:
    """docs/engines.md is written by `engines_page`; how to renew it stands in it."""
    page = Path(__file__).parent.parent / "docs/engines.md"
    assert page.read_text(encoding="utf-8") == engines_page()


def test_converters_of_keras_hub_that_read_no_scaling() -> None:
    folder = engine_code.place("keras_hub")
    if folder is None:
        return
    names = {"qwen2": "qwen", "qwen2_moe": "qwen_moe"}
    for family in keras_hub.BASE_ONLY:
        path = folder / f"src/utils/transformers/convert_{names.get(family, family)}.py"
        text = path.read_text(encoding="utf-8")
        assert "rope_theta" in text, family
        assert "rope_scaling" not in text, family


def test_architectures_of_exllamav3() -> None:
    """Every family of the rule has a module, and the base where its code gives another one."""
    folder = engine_code.place("exllamav3")
    if folder is None:
        return
    names = {
        "gemma3_text": "gemma3", "seed_oss": "seedoss", "solar_open": "solar_open_moe",
        "qwen3_5_moe": "qwen3_5",
    }  # fmt: skip
    for family in exllamav3.FAMILIES:
        path = folder / f"architecture/{names.get(family, family)}.py"
        assert path.is_file(), family
        text = path.read_text(encoding="utf-8")
        if family in exllamav3.THETA:
            given = re.findall(r"default_rope_theta = (?:self\.read_cfg\([^)]*, )?([\d.e]+)", text)
            assert exllamav3.THETA[family] in [float(number) for number in given], family


JUNK = (
    None, True, 0, -1, 0.5, 1e308, -1e308, 1e-320, float("nan"), float("inf"), 10**400, "x", "4",
    [], [1], [1.0] * (HEAD // 2), ["a"] * (HEAD // 2), {}, {"a": 1}, 4096, 8192.5,
)  # fmt: skip


def test_values_of_any_kind_end_in_a_reading_or_a_refusal() -> None:
    """What `view` lets through is a mistake in a rule: see the test below."""
    rng = random.Random(0)
    kinds = sorted({kind for engine in ENGINES for kind in engine.rules})
    named = sorted(BLOCK_KEYS)
    for _ in range(500):
        block = dict(rng.choice([block for block in BLOCKS.values() if block]))
        block["rope_type"] = block["type"] = rng.choice(kinds)
        for _ in range(rng.randint(1, 3)):
            block[rng.choice(named)] = rng.choice(JUNK)
        family = rng.choice(("llama", "phi3", "phimoe", "minicpm3", "gpt_oss", "ministral3"))
        values = BASE | {"model_type": family, rng.choice(("rope_scaling", BLOCK)): block}
        for engine in ENGINES:
            found = view(engine, layer(values, rng.choice((1, 8192, 10**6))))
            assert (found.reading is None) == bool(found.refusal)


@pytest.mark.parametrize("mistake", [TypeError, KeyError, ValueError, AttributeError, IndexError])
def test_a_mistake_in_a_rule_is_no_refusal_of_the_engine(mistake: type[Exception]) -> None:
    def wrong(_: Keys) -> Reading:
        raise mistake("in the rule")

    engine = dataclasses.replace(BY_NAME["vLLM"], rules={"default": Rule(wrong, "wrong")})
    with pytest.raises(mistake, match="in the rule"):
        view(engine, layer(BASE, 8192))
