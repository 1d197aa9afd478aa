"""GGUF metadata patched into a copy: tensors untouched, other keys as they were."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from ropewalk import InputError, Linear, Plain, YaRN
from ropewalk.cli.main import main
from ropewalk.convert.gguf_patch import patched_copy
from ropewalk.models.read import read, read_any


def put(folder, values, name="config.json"):
    path = folder / name
    path.write_text(json.dumps(values))
    return path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def tensor_file(path: Path, alignment: int | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, value in {
        "block_count": 2, "context_length": 4096, "embedding_length": 512,
        "attention.head_count": 8, "attention.head_count_kv": 2,
    }.items():  # fmt: skip
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_string("llama.rope.scaling.type", "linear")
    writer.add_float32("llama.rope.scaling.factor", 2.0)
    writer.add_array("tokenizer.ggml.tokens", ["a", "ü", "c" * 99])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0])
    rng = np.random.default_rng(0)
    for index, size in enumerate((3, 64, 1000)):
        writer.add_tensor(f"t{index}", rng.standard_normal(size).astype(np.float32))
    writer.add_tensor("q", np.arange(34 * 2, dtype=np.uint8).reshape(2, 34),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("alignment", [None, 8, 4096])
def test_patched_copy_keeps_tensors_and_other_keys(tmp_path, alignment):
    source = tensor_file(tmp_path / "a.gguf", alignment)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    target = tmp_path / "b.gguf"
    changes = {
        "rope.freq_base": 500000.0,
        "context_length": 131072,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
    }
    patched_copy(source, target, changes)
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(target)
    expected = {k: f.contents() for k, f in before.fields.items() if not k.startswith("GGUF.")}
    expected |= {f"llama.{key}": value for key, value in changes.items()}
    found = {k: f.contents() for k, f in after.fields.items() if not k.startswith("GGUF.")}
    assert found == expected
    assert [t.name for t in after.tensors] == ["t0", "t1", "t2", "q"]
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert bytes(old.data) == bytes(new.data)
        assert (old.tensor_type, tuple(old.shape)) == (new.tensor_type, tuple(new.shape))
        assert new.data_offset % (alignment or 32) == 0
    assert hashlib.sha256(source.read_bytes()).hexdigest() == digest
    assert read(target).rope.scaling == YaRN(factor=32.0, original_length=4096)


def test_patch_to_the_same_values_is_the_same_file(tmp_path):
    source = tensor_file(tmp_path / "a.gguf")
    patched_copy(source, tmp_path / "b.gguf", {"rope.scaling.factor": 2.0})
    assert (tmp_path / "b.gguf").read_bytes() == source.read_bytes()
    patched_copy(source, tmp_path / "c.gguf", {"rope.scaling.factor": 4.0})
    patched_copy(tmp_path / "c.gguf", tmp_path / "d.gguf", {"rope.scaling.factor": 2.0})
    assert (tmp_path / "d.gguf").read_bytes() == source.read_bytes()


def test_patch_removes_keys(tmp_path):
    source = tensor_file(tmp_path / "a.gguf")
    patched_copy(
        source, tmp_path / "b.gguf", {"rope.scaling.type": None, "rope.scaling.factor": None}
    )
    assert read(tmp_path / "b.gguf").rope.scaling == Plain(original_length=4096)


def test_patch_refusals_leave_nothing(tmp_path):
    source = tensor_file(tmp_path / "a.gguf")
    names = sorted(p.name for p in tmp_path.iterdir())
    for target, changes, said in (
        (source, {}, "something that exists"),
        (tmp_path / "b.gguf", {"rope.freq_base": 1e60}, "the type of the key can hold"),
        (tmp_path / "b.gguf", {"context_length": 2**40}, "the type of the key can hold"),
        (tmp_path / "b.gguf", {"rope.freq_base": [1]}, "expected a number, a text"),
        (tmp_path / "none" / "b.gguf", {}, "No such file"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            patched_copy(source, target, changes)
    (tmp_path / "cut.gguf").write_bytes(source.read_bytes()[:200])
    with pytest.raises(InputError, match="ends within its header"):
        patched_copy(tmp_path / "cut.gguf", tmp_path / "b.gguf", {})
    (tmp_path / "cut.gguf").unlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_command_bakes_flags_into_a_copy(tmp_path, capsys):
    source = tensor_file(tmp_path / "a.gguf")
    flags = "--rope-scaling yarn --rope-scale 8 --yarn-orig-ctx 4096"
    target = tmp_path / "b.gguf"
    code, _, err = run(
        capsys, "convert", source, "--engine-args", flags, "--to", "gguf-kv", "--write", target
    )
    assert (code, err) == (0, f"wrote {target}\n")
    assert read(target).layers == read_any(source, engine_args=flags).layers
    size = struct.unpack("<Q", target.read_bytes()[16:24])[0]
    assert size == struct.unpack("<Q", source.read_bytes()[16:24])[0] + 1  # one key was added


def test_gguf_to_a_config_and_back(tmp_path, capsys):
    source = tensor_file(tmp_path / "a.gguf")
    code, out, err = run(capsys, "convert", source, "--to", "hf", "--lossy")
    assert code == 0
    assert err == "lost: pairing 'adjacent' would be 'half'\n"
    found = read(put(tmp_path, json.loads(out)))
    assert found.rope.scaling == Linear(factor=2.0)
    assert (found.model_type, found.stated_length) == ("llama", 4096)


def test_patch_keeps_the_type_of_a_key(tmp_path):
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint64("llama.context_length", 4096)
    writer.add_float64("llama.rope.freq_base", 10000.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    patched_copy(path, tmp_path / "b.gguf", {"context_length": 8192, "rope.freq_base": 0.1})
    fields = gguf.GGUFReader(tmp_path / "b.gguf").fields
    assert fields["llama.context_length"].types == [gguf.GGUFValueType.UINT64]
    assert fields["llama.context_length"].contents() == 8192
    assert fields["llama.rope.freq_base"].contents() == 0.1  # a float32 would not give it back
