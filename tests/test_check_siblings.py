"""Each fault's whole kind: one sound config per family, changed in one way at a time.

The reports are about one case each; files in the wild have their siblings. Unchanged, and in
spellings that mean the same, the configs are sound.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ropewalk.check import ModelReport, check, check_text
from ropewalk.check.rules import RULES

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
QWEN: dict[str, Any] = {**LLAMA, "model_type": "qwen2", "rope_theta": 1000000.0}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
}
PHI: dict[str, Any] = {
    "model_type": "phi3",
    "hidden_size": 256,
    "num_attention_heads": 16,
    "num_hidden_layers": 2,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
LONG: dict[str, Any] = {
    "type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
}
VISION = {**QWEN, "model_type": "qwen2_5_vl"}
ABSENT = object()


def changed(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    out = {**values, **changes}
    return {key: value for key, value in out.items() if value is not ABSENT}


def qwen(**changes: Any) -> dict[str, Any]:
    return {**QWEN, "rope_scaling": changed(YARN, **changes)}


def llama(**changes: Any) -> dict[str, Any]:
    return {**LLAMA, "rope_scaling": changed(LLAMA3, **changes)}


def phi(**changes: Any) -> dict[str, Any]:
    return {**PHI, "rope_scaling": changed(LONG, **changes)}


def serious(report: Any) -> set[str]:
    assert report.unusable is None
    return {f.code for f in report.findings if f.severity != "note"}


SOUND = {
    "llama3": llama(),
    "yarn": qwen(),
    "yarn, factor a whole number": qwen(factor=4),
    "yarn, both spellings of the type": qwen(type="yarn"),
    "yarn, original length at the top": changed(
        qwen(original_max_position_embeddings=ABSENT), original_max_position_embeddings=32768
    ),
    "yarn, base in the block too": qwen(rope_theta=1000000.0),
    "yarn, both names of the block": {
        **qwen(),
        "rope_parameters": {**YARN, "rope_theta": 1000000.0},
    },
    "longrope": phi(),
    "longrope by its old name": phi(type="su"),
    "llama3 without a ramp": llama(high_freq_factor=1.0),
    "sections": {**VISION, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
    "no block": {**QWEN, "rope_scaling": None},
    "empty block": {**QWEN, "rope_scaling": {}},
    "window off": {**QWEN, "sliding_window": 131072, "use_sliding_window": False},
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_configs_and_other_spellings(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SOUND[name]))
    assert serious(check(path)) == set()


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "product below the stated length": (qwen(factor=2.0), "RW103"),
    "original length missing": (qwen(original_max_position_embeddings=ABSENT), "RW104"),
    "original length missing, llama3": (llama(original_max_position_embeddings=ABSENT), "RW104"),
    "original length is the stated one": (
        qwen(original_max_position_embeddings=131072),
        "RW102",
    ),
    "original length a text": (qwen(original_max_position_embeddings="32768"), "RW404"),
    "original length no whole number": (qwen(original_max_position_embeddings=0.5), "RW404"),
    "original length misspelt": (
        qwen(original_max_position_embeddings=ABSENT, original_max_position_embedding=32768),
        "RW401",
    ),
    "type and rope_type differ": (qwen(type="linear"), "RW402"),
    "type misspelt": (qwen(rope_type="yran"), "RW401"),
    "type in other letters": (qwen(rope_type="YaRN"), "RW401"),
    "type missing": (llama(rope_type=ABSENT), "RW403"),
    "type of another block": (llama(rope_type="linear"), "RW408"),
    "factor a text": (qwen(factor="4.0"), "RW404"),
    "factor true": (qwen(factor=True), "RW404"),
    "factor below 1": (qwen(factor=0.25), "RW404"),
    "factor 0": (qwen(factor=0), "RW404"),
    "factor negative": (qwen(factor=-4.0), "RW404"),
    "factor missing, linear": (qwen(rope_type="linear", factor=ABSENT), "RW403"),
    "dynamic with an original length": (qwen(rope_type="dynamic"), "RW105"),
    "length inside the block of dynamic": (
        qwen(rope_type="dynamic", original_max_position_embeddings=8192),
        "RW105",
    ),
    "amplitude given twice": (qwen(attention_factor=1.0, mscale=1.0), "RW302"),
    "amplitude under the other name": (qwen(attn_factor=0.88), "RW301"),
    "amplitude 0": (qwen(attention_factor=0), "RW404"),
    "betas swapped": (qwen(beta_fast=1, beta_slow=32), "RW405"),
    "beta a text": (qwen(beta_fast="32"), "RW404"),
    "bounds swapped": (llama(low_freq_factor=4.0, high_freq_factor=1.0), "RW405"),
    "upper bound missing": (llama(high_freq_factor=ABSENT), "RW403"),
    "base at two levels": (qwen(rope_theta=10000.0), "RW402"),
    "base a text": (changed(QWEN, rope_theta="1e6"), "RW404"),
    "base 0": (changed(QWEN, rope_theta=0), "RW404"),
    "base negative": (changed(QWEN, rope_theta=-1.0), "RW404"),
    "base not a number": (changed(QWEN, rope_theta=float("nan")), "RW404"),
    "base below 1": (changed(QWEN, rope_theta=0.5), "RW115"),
    "base misspelt": (changed(QWEN, rope_theta=ABSENT, rope_teta=1e6), "RW407"),
    "base by another program's word": (changed(QWEN, rope_theta=ABSENT, rope_base=1e6), "RW407"),
    "base by GPT-NeoX's word": (
        changed(llama(), rope_theta=ABSENT, rotary_emb_base=500000.0),
        "RW407",
    ),
    "block misspelt": (changed(QWEN, rope_scalings=YARN), "RW407"),
    "block in camel case": (changed(QWEN, ropeScaling=YARN), "RW407"),
    "block with a hyphen": (changed(QWEN, **{"rope-scaling": YARN}), "RW407"),
    "block a list": (changed(QWEN, rope_scaling=[YARN]), "RW404"),
    "block a text": (changed(QWEN, rope_scaling="yarn"), "RW404"),
    "blocks that differ": (
        {**qwen(factor=2.0), "rope_parameters": {**YARN, "rope_theta": 1000000.0}},
        "RW402",
    ),
    "length by another program's word": (
        changed(QWEN, max_position_embeddings=ABSENT, max_seq_len=131072),
        "RW407",
    ),
    "length a text": (changed(QWEN, max_position_embeddings="131072"), "RW404"),
    "length 0": (changed(QWEN, max_position_embeddings=0), "RW404"),
    "length lowered": (changed(QWEN, max_position_embeddings=512), "RW101"),
    "length lowered, under a raised base": (changed(QWEN, max_position_embeddings=2048), "RW101"),
    "scaling gone": (changed(LLAMA, rope_scaling=None), "RW121"),
    "scaling gone, longrope": (changed(PHI, rope_scaling=None), "RW121"),
    "list too short": (phi(long_factor=[1.0] * 7), "RW205"),
    "list of the whole head": (phi(short_factor=[1.0] * 16), "RW205"),
    "list with a negative": (phi(long_factor=[-1.0] * 8), "RW404"),
    "list missing": (phi(short_factor=ABSENT), "RW403"),
    "lists swapped": (
        phi(short_factor=LONG["long_factor"], long_factor=LONG["short_factor"]),
        "RW114",
    ),
    "lists of a model whose length was lowered": (
        changed(phi(), max_position_embeddings=4096),
        "RW114",
    ),
    "factor beside the lists": (phi(factor=4.0), "RW114"),
    "sections of another model": (
        {**VISION, "rope_scaling": {"type": "mrope", "mrope_section": [11, 11, 10]}},
        "RW204",
    ),
    "sections counted in lanes": (
        {**VISION, "rope_scaling": {"type": "mrope", "mrope_section": [32, 48, 48]}},
        "RW204",
    ),
    "sections no numbers": (
        {**VISION, "rope_scaling": {"type": "mrope", "mrope_section": ["16", 24, 24]}},
        "RW204",
    ),
    "sections outside the block": ({**VISION, "mrope_section": [16, 24, 24]}, "RW212"),
    "sections lost to a scaling": ({**VISION, "rope_scaling": YARN}, "RW212"),
    "sections in a text model": (
        {**QWEN, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
        "RW207",
    ),
    "share of no whole lanes": (
        {**LLAMA, "model_type": "stablelm", "partial_rotary_factor": 0.3},
        "RW211",
    ),
    "share in percent": (
        {**LLAMA, "model_type": "stablelm", "partial_rotary_factor": 25},
        "RW201",
    ),
    "share that is not read": (
        {**QWEN, "model_type": "mistral", "partial_rotary_factor": 0.5},
        "RW208",
    ),
    "share with a scaling, in a class that turns all lanes": (
        changed(qwen(), model_type="mistral", partial_rotary_factor=0.5),
        "RW404",
    ),
    "hidden size not divided": (changed(QWEN, hidden_size=4097), "RW203"),
    "key heads do not divide": (changed(QWEN, num_key_value_heads=5), "RW209"),
    "head odd": (changed(QWEN, head_dim=127), "RW201"),
    "head 0": (changed(QWEN, head_dim=0), "RW404"),
    "head is the hidden size": (changed(QWEN, head_dim=4096), "RW202"),
    "layer type misspelt": (
        {**QWEN, "num_hidden_layers": 2, "layer_types": ["full_atention"] * 2},
        "RW401",
    ),
    "layer types too few": (
        {**QWEN, "num_hidden_layers": 2, "layer_types": ["full_attention"]},
        "RW501",
    ),
    "rope list too short": (
        {"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1, 1, 0]},
        "RW501",
    ),
    "window negative": (changed(QWEN, model_type="mistral", sliding_window=-1), "RW404"),
    "query temperature in another class": (
        qwen(llama_4_scaling_beta=0.1),
        "RW307",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_at_a_time(name: str, tmp_path: Path) -> None:
    content, code = FAULTS[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    assert code in serious(check(path))


FOLDER = Path(__file__).parent
RELEASED: dict[str, dict[str, Any]] = json.loads((FOLDER / "configs_sound.json").read_text())
"""Configs of public models as they were released, and ways to run them that are right."""
SIBLINGS: list[dict[str, Any]] = json.loads((FOLDER / "configs_faulty.json").read_text())
"""Cases of the kinds of the reports, in other families, formats and words: the codes are what
must be found, one of them where several are named."""
# Its card says to add the block and leave the stated length: llama.cpp and others measure by it.
WARNED = {"Qwen2.5-7B-Instruct with YaRN": {"RW102"}}


@pytest.mark.parametrize("name", RELEASED)
def test_released_configs_are_sound(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(RELEASED[name]), encoding="utf-8")
    assert serious(check(path)) == WARNED.get(name, set())


def checked(case: dict[str, Any], folder: Path) -> ModelReport:
    content = case["content"]
    if case["as"] == "text":
        return check_text(content)
    path = folder / ("config.json" if case["as"] == "json" else f"settings.{case['as']}")
    text = json.dumps(content)  # which is YAML too
    if case["as"] == "ini":
        text = "[llama]\n" + "\n".join(f"{key} = {value}" for key, value in content.items())
    path.write_text(text, encoding="utf-8")
    return check(path)


@pytest.mark.parametrize("case", SIBLINGS, ids=lambda case: case["name"])
def test_siblings_of_the_reports(case: dict[str, Any], tmp_path: Path) -> None:
    report = checked(case, tmp_path)
    assert report.unusable is None
    assert {finding.code for finding in report.findings} & set(case["codes"])
    for finding in report.findings:
        assert finding.where
        assert finding.right
        assert finding.fix


def test_a_folder_that_says_a_length(tmp_path: Path) -> None:
    folder = tmp_path / "LWM-Text-Chat-1M"
    folder.mkdir()
    short = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    (folder / "config.json").write_text(json.dumps({**short, "max_position_embeddings": 2048}))
    assert "RW125" in serious(check(folder))
    long = {**LLAMA, "max_position_embeddings": 1048576, "rope_theta": 5e7}
    (folder / "config.json").write_text(json.dumps(long))
    assert "RW125" not in serious(check(folder))


_GGUF = (
    "qwen2.block_count=28; qwen2.context_length=131072; qwen2.embedding_length=3584; "
    "qwen2.attention.head_count=28; qwen2.rope.freq_base=1000000.0; "
)
_SCALED = "qwen2.rope.scaling.type=yarn; qwen2.rope.scaling.factor=4.0; "
_ORIGINAL = "qwen2.rope.scaling.original_context_length="
_SGLANG = "python -m sglang.launch_server --model-path m --json-model-override-args "


def _vllm(model: str, key: str) -> str:
    return f"vllm serve {model} --hf-overrides '{json.dumps({key: YARN})}'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{_GGUF}{_SCALED}{_ORIGINAL}32768", set()),
        (f"{_GGUF}{_SCALED}{_ORIGINAL}16384", {"RW103"}),
        (f"{_GGUF}{_SCALED}{_ORIGINAL}131072", {"RW102"}),
        (f"{_GGUF}{_SCALED}", {"RW102", "RW104"}),
        (f"{_GGUF}qwen2.rope.scaling.type=yarn; {_ORIGINAL}32768", {"RW403"}),
        (f"{_GGUF}qwen2.rope.scaling.type=yarm; qwen2.rope.scaling.factor=4.0", {"RW401"}),
        (f"{_GGUF}qwen2.rope.scaling.type=linear; qwen2.rope.scaling.factor=0.25", {"RW404"}),
        ("llama-server -c 16384 --rope-scale 0.25", {"RW701"}),
        ("llama-server -c 16384 --rope-freq-scale 0.25", set()),
        ("--contextsize 16384 --ropeconfig 4.0 10000", {"RW701"}),
        ("FROM m\nPARAMETER num_ctx 32768\nPARAMETER rope_frequency_scale 4", {"RW701"}),
        ("FROM m\nPARAMETER rope_frequency_base 1e+06", set()),
        ("llama-server -c 131072 --rope-scaling ntk --rope-scale 4", {"RW404"}),
        ("llama-server --rope-scale 4 --rope-freq-scale 4", {"RW402"}),
        ("llama-server -c 65536 --rope-scaling yarn --yarn-orig-ctx 32768", {"RW702"}),
        (
            "llama-server -c 262144 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768",
            {"RW706"},
        ),
        (_vllm("Qwen/Qwen3-8B", "rope_scaling"), set()),
        (_vllm("Qwen/Qwen3-8B", "rope-scaling"), {"RW401"}),
        (_vllm("Qwen/Qwen3-8B", "rope_scaling") + " --max-model-len 262144", {"RW706"}),
        (_vllm("openai/gpt-oss-20b", "rope_scaling"), {"RW705"}),
        (f"{_SGLANG} '{json.dumps({'rope_parameters': YARN})}'", {"RW704"}),
        (f"{_SGLANG} '{json.dumps({'rope_scaling': {'rope_type': 'yarn', 'factr': 4.0}})}'",
         {"RW401"}),
    ],
)  # fmt: skip
def test_listings_and_command_lines(text: str, expected: set[str]) -> None:
    assert serious(check_text(text)) == expected


_JUNK: list[Any] = [
    None, True, 0, -1, 0.5, float("nan"), float("inf"), 1e308, 2**70, "", "yarn", "4.0", [],
    [None], [1, 2, 3], {}, {"rope_type": "yarn"}, "x" * 300, "\u001b[2J\n",
]  # fmt: skip


def _places(values: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    out = []
    for key, value in values.items():
        out.append((values, key))
        if isinstance(value, dict):
            out += _places(value)
    return out


@pytest.mark.parametrize("seed", range(8))
def test_any_value_under_any_key_gives_findings_or_one_line(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    examples = [example.content for rule in RULES for example in (rule.bad, rule.good)]
    contents = [content for content in examples if isinstance(content, dict)]
    path = tmp_path / "config.json"
    for _ in range(60):
        values = json.loads(json.dumps(rng.choice(contents)))
        for _ in range(rng.choice([1, 1, 2, 3])):
            holder, key = rng.choice(_places(values) or [(values, "model_type")])
            if rng.random() < 0.2:
                holder.pop(key, None)
            else:
                holder[key] = json.loads(json.dumps(rng.choice(_JUNK)))
        path.write_text(json.dumps(values))
        report = check(path)
        assert report.unusable is None or "\n" not in report.unusable
