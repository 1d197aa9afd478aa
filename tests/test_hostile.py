"""Hostile files: only Ropewalk's own errors come out, on one printable line, exit 2.

Each input goes through every command that reads files, in this process. That work is bounded is
shown by inputs that would take hours or all memory if it were not; no test looks at a clock.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hostile import (
    ESCAPES,
    GGUF_PAIRS,
    LLAMA,
    NASTY,
    SEEDS,
    gguf,
    gguf_tensor,
    gguf_text,
    gguf_value,
    nested,
    safetensors,
    weights_of,
)

from ropewalk import InputError, Rope
from ropewalk.errors import printable
from ropewalk.models import json_text
from ropewalk.models.gguf_header import GGUFHeader, LeftOut
from ropewalk.models.load import is_there
from ropewalk.models.read import read_any, read_text

RECIPE = Path(__file__).parents[1] / "recipes" / "fuzz_readers.py"


def _recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_readers", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules["fuzz_readers"] = module
    spec.loader.exec_module(module)
    return module


fuzz = _recipe()

READING = (
    ["inspect"], ["inspect", "--json"], ["check"], ["check", "--format", "github"], ["compare"],
    ["convert", "--to", "hf"], ["convert", "--lossy", "--to", "vllm"], ["extend", "--to", "4x"],
    ["pairing"],
)  # fmt: skip


def survives(path: Path, *, commands=READING) -> set[str]:
    """Run the commands on a path and return what became of it; an escape fails the test."""
    outcomes = set()
    for command in commands:
        outcome, reason = fuzz.judge([*command, str(path)])
        assert outcome != "escape", f"{command}: {reason}"
        outcomes.add(outcome)
    return outcomes


def refused(path: Path) -> str:
    """The one line that reading it ends with."""
    survives(path)
    with pytest.raises(InputError) as caught:
        read_any(path)
    text = str(caught.value)
    assert text == printable(text)
    return text


def put(folder: Path, content: object, name: str = "config.json") -> Path:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# Errors


def test_errors_are_one_printable_bounded_line():
    error = InputError(ESCAPES, found="x" * 10**6, expected="\ud800\n", fix="a\tb")
    text = str(error)
    assert text == printable(text)
    assert len(text) < fuzz.MOST_MESSAGE
    assert "\\x1b" in error.where
    assert (error.expected, error.fix) == ("\\ud800\\n", "a\\tb")
    again = error.within("path")
    assert (again.where, again.found) == (f"path: {error.where}", error.found)


def test_the_judge_sees_escapes():
    assert fuzz.unprintable("a\x1bb") == "\x1b"
    assert fuzz.unprintable("a\u202eb") == "\u202e"
    assert fuzz.unprintable("θ ✓ …\n\t") == ""


# JSON


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (nested(100_000), "nested"),
        (nested(100_000, "dict"), "nested"),
        (nested(500), "nested more than 64"),
        ('{"a": ' + nested(500, "dict") + "}", "nested more than 64"),
        (json.dumps(LLAMA)[:-1] + f', "rope_theta": {"9" * 100_000}}}', "limit"),
        (json.dumps(LLAMA)[:-1] + f', "x": {"9" * 4000}}}', "a whole number of"),
        ("[" + "0," * 70_000 + "0]", "more than 65536 values"),
        ('{"rope_theta": 1.5, "rope_theta": 2.5}', "the key twice"),
        ("", "line 1"),
        ("\0" * 100, "line 1"),
        ("{", "line 1"),
        ("null", "a NoneType"),
        ('"\\ud800"', "a str"),
        (json.dumps(LLAMA).encode("utf-16"), "not UTF-8"),
        (b"\xff" * 40, "not UTF-8"),
        (b" " * (4 * 2**20 + 1), "bytes"),
    ],
    ids=range(16),
)
def test_json(tmp_path, text, words):
    assert words in refused(put(tmp_path, text))


def test_a_byte_order_mark_is_no_fault(tmp_path):
    assert survives(put(tmp_path, b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())) <= {
        "read", "refused",
    }  # fmt: skip
    assert read_any(tmp_path / "config.json").model_type == "llama"


def test_depth_and_size_of_json_are_bounded():
    assert json_text.parse(nested(json_text.MOST_DEPTH)) is not None
    with pytest.raises(ValueError, match="levels deep"):
        json_text.parse(nested(json_text.MOST_DEPTH + 1))
    assert json_text.parse(b"[1, 2]", most=4) == [1, 2]
    with pytest.raises(ValueError, match="more than 2 values"):
        json_text.parse("[1, 2]", most=2)
    for text in ("9" * 400, "-" + "9" * 400):
        with pytest.raises(ValueError, match="bits"):
            json_text.parse(text)


# Wrong types and values for every key


_KEYS = [
    (kind, index, path)
    for kind in ("hf", "params", "programs", "fragment")
    for index, seed in enumerate(SEEDS[kind])
    for path in fuzz._places(seed)
]


@pytest.mark.parametrize(
    ("kind", "index", "path"), _KEYS, ids=["-".join(map(str, (k, i, *p))) for k, i, p in _KEYS]
)
def test_every_key_with_values_that_do_not_belong(tmp_path, kind, index, path):
    place = tmp_path / "config.json"
    # Every other value: the fuzz run tries the rest.
    for number, value in enumerate(NASTY[(len(path) + index) % 2 :: 2]):
        values = json.loads(json.dumps(SEEDS[kind][index]))
        holder = values
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        place.write_text(json.dumps(values))
        # One command each, another one for every value and key.
        command = READING[(number + len(path) + index) % 2 * 2]
        survives(place, commands=[command])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope_theta": float("nan")}, "nan"),
        ({"rope_theta": float("inf")}, "inf"),
        ({"rope_theta": -10000.0}, "-10000"),
        ({"rope_theta": 0}, "0"),
        ({"head_dim": 7}, "7"),
        ({"head_dim": 0}, "0"),
        ({"head_dim": -64}, "-64"),
        ({"head_dim": 2**40}, "at most"),
        ({"num_hidden_layers": 2**31}, "at most"),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}, "1"),
        (
            {"rope_theta": 10000.0, "rope_parameters": {"rope_theta": 5.0, "rope_type": "default"}},
            "",
        ),
        ({"model_type": ESCAPES}, "\\x1b"),
        ({"rope_scaling": {"rope_type": ESCAPES, "factor": 2.0}}, "\\x1b"),
        ({"rope_scaling": {"rope_type": "[/nope]", "factor": 2.0}}, "[/nope]"),
    ],
)
def test_values_of_no_rope(tmp_path, changes, words):
    assert words in refused(put(tmp_path, {**LLAMA, **changes}))


@pytest.mark.parametrize("value", [[1], {"a": 1}, "x", True, [None]])
def test_engines_stop_on_values_of_the_wrong_type(tmp_path, value):
    # Families with a base per layer type do not use the one at the top; engines do.
    config = {**SEEDS["hf"][5], "rope_theta": value}
    for family in ("laguna", "gpt_oss", "llama4_text", "olmo3"):
        place = put(tmp_path, {**config, "model_type": family})
        survives(place, commands=[["compare"], ["compare", "--json"]])


@pytest.mark.parametrize("factor", [1e300, 1.7976931348623157e308])
def test_planes_that_all_stand_still(tmp_path, factor):
    litgpt = {**SEEDS["params"][3], "rope_condense_ratio": factor}
    linear = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": factor}}
    for values in (litgpt, linear, {**LLAMA, "rope_theta": factor, "rope_scaling": None}):
        survives(put(tmp_path, values))


def test_a_head_has_a_bound():
    assert Rope(head_dim=4096).planes == 2048
    with pytest.raises(InputError, match="at most 4096 lanes"):
        Rope(head_dim=4098)


# YAML, texts


@pytest.mark.parametrize("value", fuzz.YAML_VALUES, ids=range(len(fuzz.YAML_VALUES)))
def test_yaml(tmp_path, value):
    program = "".join(f"{k}: {json.dumps(v)}\n" for k, v in SEEDS["programs"][0].items())
    for key in ("extra", "rotary_base", "other"):
        place = put(tmp_path, f"{program}{key}: {value}\n", "config.yaml")
        survives(place, commands=[["inspect"], ["check"]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [*b]", "aliases"),
        ("a: 1\na: 2\n", "the key twice"),
        ("a: " + "[" * 100_000, "nested"),
        ("a:\n" + "- " * 50_000 + "1", "nested"),
        ("{a: " * 70 + "1" + "}" * 70, "nested"),
        ("a: 0x" + "F" * 5000, "bits"),
        ("a: !!set {b, c}", "no YAML"),
        ("[a]: 1", "a key that is no text"),
        ("- 1", "a list"),
    ],
)
def test_yaml_that_is_refused(tmp_path, text, words):
    assert words in refused(put(tmp_path, text, "config.yaml"))


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 500_000 + "x",
        "{{" * 250_000,
        "- kv 1: a.b arr[" * 30_000,
        "llama.context_length" + " " * 500_000 + "x",
        "llama.context_length = x" + " " * 500_000 + "x",
        "--rope-scale 4 " * 5000,
        "llama-server --rope-scale '" + ESCAPES,
        "llama-server --rope-scale " + ESCAPES,
        "vllm serve " + "x" * 300 + " --max-model-len 4",
        'vllm serve x --hf-overrides \'{"a": ' + nested(5000) + "}'",
    ],
    ids=range(10),
)
def test_texts(tmp_path, text):
    place = put(tmp_path, text, "command.txt")
    survives(place)
    for command in ("inspect", "check"):
        outcome, reason = fuzz.judge([command, "--", text[:100_000]])
        assert outcome != "escape", reason


def test_a_text_too_long_for_a_file_name_is_a_text():
    assert not is_there("x" * 5000)
    assert not is_there("a\0b")
    found = read_text("llama-server --rope-scale 4 -m " + "x" * 5000)
    assert found.format == "llama.cpp"


# GGUF


def _replaced(key: str, kind: str, value: object) -> bytes:
    return gguf([(k, kind, value) if k == key else (k, t, v) for k, t, v in GGUF_PAIRS])


HUGE = 2**64 - 1
_ARRAY = gguf_text("x") + struct.pack("<I", 9)
GGUF_FILES = {
    "empty": b"",
    "magic only": b"GGUF",
    "counts": gguf(GGUF_PAIRS, counts=(HUGE, HUGE)),
    "values too many": gguf(GGUF_PAIRS, counts=(0, 11)),
    "values too few": gguf(GGUF_PAIRS, counts=(0, 1)),
    "length of a key": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_text("a", length=HUGE),
    "length of a text": gguf([])[:24].replace(b"\0" * 8, b"\0" * 8)[:16]
    + struct.pack("<Q", 1) + gguf_text("a") + struct.pack("<I", 8) + gguf_text("b", length=HUGE),
    "array of arrays": gguf([])[:16] + struct.pack("<Q", 1) + _ARRAY + struct.pack("<IQ", 9, 1)
    + bytes(64),
    "array count": gguf([])[:16] + struct.pack("<Q", 1) + _ARRAY + struct.pack("<IQ", 4, 2**61)
    + bytes(64),
    "array of texts": gguf([])[:16] + struct.pack("<Q", 1) + _ARRAY + struct.pack("<IQ", 8, 2**61)
    + bytes(64),
    "unknown type": gguf([])[:16] + struct.pack("<Q", 1) + gguf_text("x") + struct.pack("<I", 77)
    + bytes(64),
    "version": gguf(GGUF_PAIRS, version=9),
    "big-endian": gguf(GGUF_PAIRS, version=0x03000000),
    "alignment 0": gguf([*GGUF_PAIRS, ("general.alignment", "u32", 0)]),
    "alignment": gguf([*GGUF_PAIRS, ("general.alignment", "u32", 2**32 - 1)]),
    "alignment of text": gguf([*GGUF_PAIRS, ("general.alignment", "str", "32")]),
    "key twice": gguf([*GGUF_PAIRS, GGUF_PAIRS[-1]]),
    "tensor twice": gguf(GGUF_PAIRS, [gguf_tensor("t", (1,))] * 2),
    "dimensions": gguf(GGUF_PAIRS, [gguf_text("t") + struct.pack("<I", 2**31) + bytes(99)]),
    "no architecture": gguf(GGUF_PAIRS[1:]),
    "architecture": _replaced("general.architecture", "str", ESCAPES),
    "heads as texts": _replaced("llama.attention.head_count", "[str]", ["a"] * 8),
    "heads as many numbers": _replaced("llama.attention.head_count", "[u8]", [1] * 70_000),
    "heads as bools": _replaced("llama.attention.head_count", "[bool]", [True] * 4),
    "heads as floats": _replaced("llama.attention.head_count", "[f32]", [8.0] * 4),
    "theta": _replaced("llama.rope.freq_base", "f32", float("nan")),
    "theta as text": _replaced("llama.rope.freq_base", "str", "1e4"),
    "theta as list": _replaced("llama.rope.freq_base", "[f32]", [1e4]),
    "odd": _replaced("llama.rope.dimension_count", "u32", 7),
    "no lanes": _replaced("llama.rope.dimension_count", "u32", 0),
    "layers": _replaced("llama.block_count", "u32", 2**32 - 1),
    "head": _replaced("llama.embedding_length", "u64", 2**63),
    "frequencies far away": gguf(
        GGUF_PAIRS, [gguf_tensor("rope_freqs.weight", (16,), offset=2**64 - 1)]
    ),
    "frequencies too many": gguf(GGUF_PAIRS, [gguf_tensor("rope_freqs.weight", (2**63,))]),
    "frequencies 0": gguf(GGUF_PAIRS, [gguf_tensor("rope_freqs.weight", (16,))]),
}  # fmt: skip


@pytest.mark.parametrize("name", GGUF_FILES)
def test_gguf(tmp_path, name):
    assert refused(put(tmp_path, GGUF_FILES[name], "model.gguf")).startswith(str(tmp_path))


def test_tensors_without_columns_claim_any_number_of_rows(tmp_path):
    pairs = [(k, t, 2**31 if k == "llama.attention.head_count" else v) for k, t, v in GGUF_PAIRS]
    pairs.append(("llama.attention.key_length", "u32", 32))
    names = ("blk.0.attn_q.weight", "blk.0.attn_k.weight")
    tensors = [gguf_tensor(name, (0, 2**36)) for name in names]
    place = put(tmp_path, gguf(pairs, tensors), "model.gguf")
    assert survives(place, commands=[["pairing"]]) == {"refused"}
    survives(place)


def test_gguf_cut_everywhere(tmp_path):
    whole = gguf(GGUF_PAIRS, [gguf_tensor("rope_freqs.weight", (16,))], data=b"\0\0\x80\x3f" * 16)
    assert survives(put(tmp_path, whole, "model.gguf"), commands=[["inspect"]]) == {"read"}
    for end in range(len(whole)):
        place = put(tmp_path, whole[:end], "model.gguf")
        assert survives(place, commands=[["inspect"]]) == {"refused"}


@pytest.mark.parametrize(
    ("tail", "counts"),
    [
        (b"", (2**30, 10)),
        (b"", (200, 10)),
        (b"", (0, 2**20)),
        (gguf_text("z") + struct.pack("<IIQ", 9, 8, 2**34), (0, 11)),
        (gguf_text("z") + struct.pack("<IIQ", 9, 0, 2**34), (0, 11)),
        (gguf_text("z") + struct.pack("<IQ", 8, 2**33), (0, 11)),
        (gguf_text("z", length=2**33), (0, 11)),
    ],
)
def test_a_sparse_file_is_no_excuse_for_work(tmp_path, tail, counts):
    # 64 GB that cost nothing on the disk: the size of the file does not bound the work.
    body = b"".join(gguf_text(key) + gguf_value(kind, value) for key, kind, value in GGUF_PAIRS)
    place = put(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, *counts) + body + tail, "model.gguf")
    os.truncate(place, 2**36)
    refused(place)


def test_long_arrays_are_left_out(tmp_path):
    pairs = [*GGUF_PAIRS, ("long", "[u8]", [1] * 70_000), ("short", "[u8]", [1] * 3)]
    with GGUFHeader(put(tmp_path, gguf(pairs), "model.gguf")) as header:
        assert header.values["long"] == LeftOut(70_000)
        assert header.values["short"] == [1, 1, 1]
        assert header.values["tokenizer.ggml.tokens"] == LeftOut(3)


# Safetensors


def _tensor(**changes: object) -> dict[str, object]:
    entry = {"dtype": "F32", "shape": [32, 32], "data_offsets": [0, 4096], **changes}
    return {"model.layers.0.self_attn.q_proj.weight": entry}


_DATA = bytes(4096)
SAFETENSORS = {
    "empty": b"",
    "length": safetensors(_tensor(), _DATA, length=HUGE),
    "length of 0": safetensors(_tensor(), _DATA, length=0),
    "length beyond the file": safetensors(_tensor(), _DATA, length=8192),
    "no JSON": safetensors(b"{" * 40, _DATA),
    "no object": safetensors([1], _DATA),
    "deep": safetensors(nested(100_000).encode(), _DATA),
    "digits": safetensors(("[" + "9" * 10_000 + "]").encode(), _DATA),
    "not UTF-8": safetensors(b'{"\xff": 1}', _DATA),
    "type": safetensors(_tensor(dtype="F33"), _DATA),
    "type as list": safetensors(_tensor(dtype=["F32"]), _DATA),
    "shape": safetensors(_tensor(shape=[2**62, 2**62]), _DATA),
    "negative shape": safetensors(_tensor(shape=[-32, -32]), _DATA),
    "shape as text": safetensors(_tensor(shape="32"), _DATA),
    "many dimensions": safetensors(_tensor(shape=[1] * 10_000), _DATA),
    "offsets": safetensors(_tensor(data_offsets=[0, 2**59]), _DATA),
    "offsets backwards": safetensors(_tensor(data_offsets=[4096, 0]), _DATA),
    "one offset": safetensors(_tensor(data_offsets=[0]), _DATA),
    "past the end": safetensors(_tensor(data_offsets=[64, 4160]), _DATA),
    "overlapping": safetensors({**_tensor(), "b": _tensor().popitem()[1]}, _DATA),
    "escapes": safetensors({ESCAPES: {**_tensor(dtype=ESCAPES).popitem()[1]}}, _DATA),
    "cut": safetensors(_tensor(), _DATA[:-1]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors(tmp_path, name):
    put(tmp_path, LLAMA)
    put(tmp_path, SAFETENSORS[name], "model.safetensors")
    assert survives(tmp_path, commands=[["pairing"], ["pairing", "--json"]]) == {"refused"}
    survives(tmp_path, commands=[["check"], ["inspect"]])
    target = tmp_path / "out"
    convert = ["convert", str(tmp_path), "--pairing", "adjacent", "--write", str(target)]
    outcome, reason = fuzz.judge(convert)
    assert outcome == "refused", reason
    assert not target.exists()


@pytest.mark.parametrize("value", [*NASTY, {"a": "../../etc/passwd"}, {"a": "missing.safetensors"}])
def test_index_of_shards(tmp_path, value):
    header, data = weights_of(LLAMA)
    put(tmp_path, LLAMA)
    put(tmp_path, safetensors(header, data), "model.safetensors")
    put(tmp_path, {"weight_map": value}, "model.safetensors.index.json")
    assert survives(tmp_path, commands=[["pairing"]]) == {"refused"}


# Folders and what is no file


def test_things_that_are_no_files(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("loop", "gone", "pipe.json", "missing", "x" * 5000, ESCAPES.replace("\0", "")):
        survives(tmp_path / name)
        with pytest.raises(InputError):
            read_any(tmp_path / name)
    survives(Path("/dev/zero"))


@pytest.mark.parametrize("name", ["config.json", "model.gguf", "params.json"])
def test_folders_named_like_files(tmp_path, name):
    (tmp_path / name).mkdir()
    refused(tmp_path)
    refused(tmp_path / name)


def test_a_pipe_or_a_loop_among_the_files(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    refused(tmp_path)
    put(tmp_path, LLAMA, "params.json")
    os.mkfifo(tmp_path / "model.safetensors")
    (tmp_path / "other.safetensors").symlink_to(tmp_path / "other.safetensors")
    (tmp_path / "model.safetensors.index.json").symlink_to(tmp_path)
    survives(tmp_path)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    place = put(tmp_path, LLAMA)

    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    assert "Permission denied" in refused(place)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "is_file", forbidden)
    assert "Permission denied" in refused(place)


def test_names_do_not_steer_the_terminal(tmp_path):
    folder = tmp_path / ESCAPES.replace("\0", "").replace("\n", "")
    folder.mkdir()
    assert survives(put(folder, LLAMA)) >= {"read"}
    survives(
        put(folder, {**LLAMA, "architectures": [ESCAPES], ESCAPES: 1, "_name_or_path": ESCAPES})
    )
    survives(put(folder, gguf([*GGUF_PAIRS, (ESCAPES, "str", ESCAPES)]), "model.gguf"))


# The fuzz run


@pytest.mark.parametrize("name", fuzz.FORMATS)
def test_a_slice_of_the_fuzz_run(tmp_path, name):
    tried = [fuzz.run_one(name, number, 0, tmp_path / "input")[:2] for number in range(40)]
    assert [reason for outcome, reason in tried if outcome == "escape"] == []
    # The inputs are not all refused, nor all read: both sides are seen.
    assert {outcome for outcome, _ in tried} == {"read", "refused"}


def test_the_same_seed_gives_the_same_inputs(tmp_path):
    first = fuzz.run_one("hf", 7, 5, tmp_path / "input")
    before = sorted((p.name, p.read_bytes()) for p in (tmp_path / "input").iterdir())
    assert fuzz.run_one("hf", 7, 5, tmp_path / "input")[3] == first[3]
    assert sorted((p.name, p.read_bytes()) for p in (tmp_path / "input").iterdir()) == before
