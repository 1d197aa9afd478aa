"""Every rule: its bad example is found fault with, its good one is not; and the pages of rules."""

from __future__ import annotations

import json
import math
import re
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from ropewalk import InputError, Rope
from ropewalk.check import ModelReport, check, check_text
from ropewalk.check.findings import SEVERITIES
from ropewalk.check.pages import pages
from ropewalk.check.rule import Example, Rule
from ropewalk.check.rules import BY_CODE, RULES
from ropewalk.check.rules.bases import first_violation
from ropewalk.check.runner import chosen
from ropewalk.models.gguf_header import GGUFHeader
from ropewalk.models.gguf_text import listed_metadata

PAGES = Path(__file__).parent.parent / "docs" / "rules"
_DTYPES = {"F16": np.float16, "F32": np.float32}


def planted(adjacent: bool) -> dict[str, np.ndarray]:
    """Queries that are their keys turned within each half-split plane, and noise beside it.

    With ``adjacent`` the rows of both are ordered as for adjacent lanes.
    """
    rng = np.random.default_rng(0)
    heads, key_heads, lanes, hidden = 4, 2, 16, 64
    order = np.arange(lanes).reshape(2, -1).T.ravel() if adjacent else np.arange(lanes)
    out = {}
    for layer in range(6):
        keys, queries = [], []
        for _ in range(key_heads):
            key = rng.normal(size=(lanes, hidden))
            keys.append(key[order])
            for _ in range(heads // key_heads):
                a, b = np.split(key, 2)
                angle = rng.uniform(0, 2 * np.pi, size=(lanes // 2, 1))
                cos, sin = np.cos(angle), np.sin(angle)
                turned = np.concatenate([cos * a - sin * b, sin * a + cos * b])
                query = 0.5 * turned + np.sqrt(0.75) * rng.normal(size=key.shape)
                queries.append(query[order])
        prefix = f"model.layers.{layer}.self_attn"
        out[f"{prefix}.q_proj.weight"] = np.concatenate(queries).astype(np.float32)
        out[f"{prefix}.k_proj.weight"] = np.concatenate(keys).astype(np.float32)
    return out


def write_gguf(path: Path, listing: str, tensors: dict[str, np.ndarray]) -> None:
    values = listed_metadata(listing)
    assert values is not None
    architecture = values.pop("general.architecture")
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        if isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_string(key, value)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def checked(example: Example, folder: Path) -> ModelReport:
    """Check an example as it would stand on a disk."""
    stored = {
        name: np.asarray(values, _DTYPES[kind]) for name, (kind, values) in example.stored.items()
    }
    if isinstance(example.content, str):
        if not stored:
            return check_text(example.content)
        write_gguf(folder / "model.gguf", example.content, stored)
        return check(folder / "model.gguf")
    (folder / "config.json").write_text(json.dumps(example.content), encoding="utf-8")
    if example.weights:
        stored |= planted("adjacent" in example.weights)
    if stored:
        save_file(stored, folder / "model.safetensors")
    for name, text in example.beside.items():
        (folder / name).write_text(text, encoding="utf-8")
    return check(folder / "config.json")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_bad_example_is_found_fault_with(rule: Rule, tmp_path: Path) -> None:
    report = checked(rule.bad, tmp_path)
    found = [finding for finding in report.findings if finding.code == rule.code]
    assert found
    for finding in found:
        assert finding.where
        assert finding.found
        assert finding.right
        assert finding.fix
        assert finding.source == rule.source
    assert report.unusable is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_good_example_is_sound(rule: Rule, tmp_path: Path) -> None:
    report = checked(rule.good, tmp_path)
    assert report.unusable is None
    assert rule.code not in {finding.code for finding in report.findings}
    assert not [finding for finding in report.findings if finding.severity == "error"]


def test_codes_are_unique_and_sorted() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert list(BY_CODE) == codes
    for rule in RULES:
        assert re.fullmatch(r"RW[0-8]\d\d", rule.code)
        assert rule.severity in SEVERITIES
        assert rule.explanation.endswith(".")
        assert not rule.title.endswith(".")


def test_pages_are_up_to_date() -> None:
    """`python -m ropewalk.check.pages docs/rules` writes them."""
    made = pages()
    assert {path.name for path in PAGES.glob("*.md")} == set(made)
    for name, text in made.items():
        assert (PAGES / name).read_text(encoding="utf-8") == text, name


def test_select_and_ignore_go_by_the_beginning() -> None:
    assert {rule.code[:3] for rule in chosen(["RW1"], [])} == {"RW1"}
    assert "RW107" not in {rule.code for rule in chosen(["rw1"], ["RW107"])}
    assert not chosen(["RW1"], ["RW"])
    with pytest.raises(InputError, match="RW999"):
        chosen([], ["RW999"])


def test_rules_that_are_left_out_do_not_make_a_file_unusable(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "rope_scaling": {"rope_type": "yran"}}')
    assert {f.code for f in check(config).findings} == {"RW401"}
    left = check(config, ignore=["RW4"])
    assert left.findings == ()
    assert left.unusable is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"model_type": "no-such-family"}',
        b'{"model_type": ["llama"], "rope_scaling": 3}',
        b'{"model_type": "llama", "rope_scaling": {"rope_type": ["yarn"], "factor": {}}}',
        b'{"model_type": "llama", "hidden_size": NaN, "no_rope_layers": {}}',
        b'{"architectures": [null], "layer_types": 7, "text_config": {"text_config": {}}}',
        b'{"model_type": "llama", "rope_theta": -1e400, "num_key_value_heads": 0}',
        b'{"rope_scaling": {"rope_type": "yarn", "mrope_section": [null], "factor": "x"}}',
    ],
)
def test_hostile_configs_give_findings_or_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    report = check(path)
    assert report.unusable is not None or report.findings
    assert report.unusable is None or "\n" not in report.unusable


def test_a_lying_header_of_safetensors_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BY_CODE["RW601"].good.content))
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    (tmp_path / "other.safetensors").write_bytes(b"\x00")
    assert not [f for f in check(tmp_path).findings if f.code == "RW601"]


@pytest.mark.parametrize(
    ("head_dim", "theta", "distance"),
    [
        (128, 100.0, 59),
        (128, 10000.0, 1707),
        (128, 100000.0, 7757),
        (64, 1000.0, 197),
        (64, 10000.0, 725),
        (64, 500000.0, 9937),
        (32, 10000.0, 474),
    ],
)
def test_where_the_sum_of_cosines_first_falls_below_0(
    head_dim: int, theta: float, distance: int
) -> None:
    """Men et al. 2024, arXiv 2405.14591; the oracle adds the cosines one by one."""
    inv_freq = [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]

    def total(m: int) -> float:
        return math.fsum(math.cos(m * f) for f in inv_freq)

    rope = Rope(head_dim=head_dim, theta=theta)
    assert first_violation(rope, 16384) == distance
    assert total(distance) < 0
    assert min(total(m) for m in range(1, distance)) >= 0
    assert first_violation(rope, distance) is None


def test_past_the_dense_part_every_eighth_distance_is_looked_at() -> None:
    rope = Rope(head_dim=128, theta=1000000.0)
    found = first_violation(rope, 131072)
    assert found is not None
    assert found > 16384
    assert found % 8 == 0
    assert first_violation(rope, found) is None


@pytest.mark.parametrize("weights", [None, True])
def test_a_gguf_header_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: bool | None
) -> None:
    """The rules, the reader and the look at the weights share it; it is closed in the end."""
    opened: list[GGUFHeader] = []
    read = GGUFHeader._read

    def counted(header: GGUFHeader) -> None:
        opened.append(header)
        read(header)

    path = tmp_path / "model.gguf"
    listing = "general.architecture=llama; llama.block_count=1; llama.attention.head_count=2"
    listing += "; llama.embedding_length=16; llama.context_length=64"
    write_gguf(path, listing, {"rope_freqs.weight": np.array([1, 0.5, 0.5, 0.25], np.float32)})
    monkeypatch.setattr(GGUFHeader, "_read", counted)
    report = check(path, weights=weights)
    assert report.unusable is None
    assert "RW802" in {finding.code for finding in report.findings}
    assert len(opened) == 1
    assert opened[0]._bytes.closed
