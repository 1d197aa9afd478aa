"""Extended copies: loadable, with the rope that was meant, beside and never over."""

import json
from pathlib import Path

import numpy as np
import pytest

from ropewalk import InputError
from ropewalk.extend.methods import METHODS
from ropewalk.extend.plan import plan_extension
from ropewalk.extend.write import write_extended
from ropewalk.models.read import read

torch = pytest.importorskip("torch")
RESCALING = [n for n, m in METHODS.items() if m.build is not None and n != "none"]


@pytest.mark.parametrize("name", RESCALING)
@pytest.mark.parametrize("generation", [4, 5])
def test_a_written_folder_loads_and_has_the_rope(
    tiny_model: Path, tmp_path: Path, name: str, generation: int
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file in tiny_model.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    if generation == 5:
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
        (source / "config.json").write_text(json.dumps(config))
    positions = read(source)
    extension = plan_extension(positions, "tiny", 768, name)
    before = {f.name: f.read_bytes() for f in source.iterdir()}
    folder = write_extended(extension, positions, tmp_path / "out")
    assert {f.name: f.read_bytes() for f in source.iterdir()} == before
    assert sorted(f.name for f in folder.iterdir()) == sorted(before)
    written = json.loads((folder / "config.json").read_text())
    assert ("rope_parameters" in written) == (generation == 5)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    rotary = model.model.rotary_emb
    rotary(torch.zeros(1), torch.arange(768)[None])
    rope = extension.rope
    assert rope is not None
    np.testing.assert_allclose(rotary.inv_freq.numpy(), rope.inv_freq(768), rtol=16 * 2.0**-24)
    assert rotary.attention_scaling == pytest.approx(rope.attention_factor(768), rel=1e-12)


def test_nothing_is_overwritten(tiny_model: Path, tmp_path: Path) -> None:
    positions = read(tiny_model)
    extension = plan_extension(positions, "tiny", 768, "yarn")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="nothing is overwritten"):
        write_extended(extension, positions, taken)
    assert (taken / "mine.txt").read_text() == "mine"


def test_a_failed_write_leaves_nothing(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = read(tiny_model)
    extension = plan_extension(positions, "tiny", 768, "yarn")

    def full_disk(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("shutil.copy2", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_extended(extension, positions, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_no_change_writes_nothing(tiny_model: Path, tmp_path: Path) -> None:
    positions = read(tiny_model)
    extension = plan_extension(positions, "tiny", 100)
    with pytest.raises(InputError, match="changes nothing"):
        write_extended(extension, positions, tmp_path / "out")


@pytest.mark.parametrize("name", ["yarn", "ntk"])
def test_axis_sections_survive(tmp_path: Path, name: str) -> None:
    """ls1intum/edutelligence#744: nested configs replace, so mrope keys must be repeated."""
    source = tmp_path / "source"
    source.mkdir()
    config = {
        "model_type": "qwen2_vl",
        "hidden_size": 1536,
        "max_position_embeddings": 32768,
        "num_attention_heads": 12,
        "num_hidden_layers": 28,
        "num_key_value_heads": 2,
        "rope_scaling": {"mrope_section": [16, 24, 24], "type": "mrope"},
        "rope_theta": 1000000.0,
    }
    (source / "config.json").write_text(json.dumps(config))
    positions = read(source)
    extension = plan_extension(positions, "vl", 131072, name)
    assert any("mrope keys" in w for w in extension.warnings)
    folder = write_extended(extension, positions, tmp_path / "out")
    block = json.loads((folder / "config.json").read_text())["rope_scaling"]
    assert block["mrope_section"] == [16, 24, 24]
    assert block["rope_type"] == {"yarn": "yarn", "ntk": "default"}[name]


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    """A GGUF file with two tensors and a list of words."""
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("small")
    writer.add_context_length(192)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(10000.0)
    writer.add_token_list(["a", "b", "ç"])
    rng = np.random.default_rng(0)
    for name in ("token_embd.weight", "output_norm.weight"):
        writer.add_tensor(name, rng.normal(size=(3, 32)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", ["linear", "ntk", "ntk-critical", "yarn"])
def test_a_written_gguf_has_the_rope_and_the_same_tensors(gguf_file: Path, name: str) -> None:
    import gguf

    positions = read(gguf_file)
    extension = plan_extension(positions, "small", 768, name)
    written = write_extended(extension, positions, gguf_file.parent / "out")
    old, new = gguf.GGUFReader(gguf_file), gguf.GGUFReader(written)
    assert [t.name for t in new.tensors] == [t.name for t in old.tensors]
    for a, b in zip(old.tensors, new.tensors, strict=True):
        assert a.data.tobytes() == b.data.tobytes()
        assert list(a.shape) == list(b.shape)
    assert new.get_field("tokenizer.ggml.tokens").contents() == ["a", "b", "ç"]
    assert new.get_field("llama.context_length").contents() == 768
    # float32 theta and factor.
    found, meant = read(written).rope, extension.rope
    assert found is not None
    assert meant is not None
    np.testing.assert_allclose(found.inv_freq(), meant.inv_freq(), rtol=2.0**-20)


@pytest.mark.parametrize("name", ["dynamic", "by-parts", "yarn-rotations"])
def test_gguf_refuses_what_it_cannot_say(gguf_file: Path, name: str) -> None:
    positions = read(gguf_file)
    extension = plan_extension(positions, "small", 768, name)
    with pytest.raises(InputError, match="which a GGUF file can say"):
        write_extended(extension, positions, gguf_file.parent / "out")
    assert [p.name for p in gguf_file.parent.iterdir()] == ["small.gguf"]
