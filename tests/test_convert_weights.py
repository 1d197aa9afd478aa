"""Weights moved between pairings: the rows, the files, and the models they make."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from ropewalk import InputError
from ropewalk.check import check
from ropewalk.cli.main import main
from ropewalk.convert import weights as weights_module
from ropewalk.convert.model_weights import NOTE
from ropewalk.convert.row_orders import (
    CONCATENATED,
    GATED_QUERY,
    KEY,
    LATENT_KEY,
    PER_GROUP,
    PER_HEAD,
    QUARTERS,
    QUERY,
    Lanes,
    Sizes,
    heads_in,
    row_order,
)
from ropewalk.convert.stored_tensors import open_tensors
from ropewalk.convert.weights import convert_pairing
from ropewalk.extend.loading import load
from ropewalk.models.read import read
from ropewalk.rotation import rotate

_VOCABULARY = 61


def _order(form: Any, rows: int, lanes: Lanes, to: Any, **counts: Any) -> list[int]:
    sizes = Sizes(lanes, counts.get("heads"), counts.get("kv_heads"), lanes.size)
    return row_order(heads_in(form, rows, sizes, "w"), rows, to).tolist()


def test_rows_of_one_head() -> None:
    # karpathy/llama2.c PR 286, "coherent for ~20 tokens, then gibberish": transformers' rows in
    # the order of Meta's.
    assert Lanes(4, 0, 4).order("adjacent").tolist() == [0, 2, 1, 3]
    assert Lanes(8, 0, 8).order("adjacent").tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert Lanes(8, 0, 8).order("half").tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


def test_keys_are_moved_by_the_number_of_key_heads() -> None:
    # huggingface/transformers PR 31788: with 4 query and 2 key heads of 4 lanes, keys have 8 rows.
    assert _order(KEY, 8, Lanes(4, 0, 4), "half") == [0, 2, 1, 3, 4, 6, 5, 7]


def test_only_rotated_lanes_move() -> None:
    assert Lanes(8, 0, 4).order("adjacent").tolist() == [0, 2, 1, 3, 4, 5, 6, 7]
    assert Lanes(8, 3, 4).order("adjacent").tolist() == [0, 1, 2, 3, 5, 4, 6, 7]


@pytest.mark.parametrize("lanes", [Lanes(8, 0, 8), Lanes(10, 2, 6), Lanes(2, 0, 2)])
def test_orders_are_inverse(lanes: Lanes) -> None:
    there, back = lanes.order("adjacent"), lanes.order("half")
    assert there[back].tolist() == list(range(lanes.size))


def test_forms_of_fused_rows() -> None:
    """Two query heads and one key head of 4 lanes, or as many key heads as the form has."""
    lanes, moved = Lanes(4, 0, 4), np.array([0, 2, 1, 3])
    head = [moved + 4 * i for i in range(12)]
    stay = [np.arange(4) + 4 * i for i in range(12)]
    expected = [
        (QUERY, 8, {}, [head[0], head[1]]),
        (CONCATENATED, 16, {"heads": 2, "kv_heads": 1}, [*head[:3], stay[3]]),
        (PER_HEAD, 24, {"heads": 2, "kv_heads": 2}, [*head[:2], stay[2], *head[3:5], stay[5]]),
        (PER_GROUP, 16, {"heads": 2, "kv_heads": 1}, [*head[:3], stay[3]]),
        (GATED_QUERY, 16, {"heads": 2, "kv_heads": 1}, [head[0], stay[1], head[2], stay[3]]),
        (
            QUARTERS,
            48,
            {"heads": 4, "kv_heads": 4},
            [(stay if i % 3 == 1 else head)[i] for i in range(12)],
        ),
    ]
    for form, rows, counts, order in expected:
        found = _order(form, rows, lanes, "adjacent", **counts)
        assert found == np.concatenate(order).tolist()
    latent = _order(LATENT_KEY, 9, Lanes(6, 2, 4), "adjacent")
    assert latent == [0, 1, 2, 3, 4, 5, 7, 6, 8]


def test_rows_that_do_not_fit() -> None:
    with pytest.raises(InputError, match=r"got 17 rows, expected 16"):
        _order(CONCATENATED, 17, Lanes(4, 0, 4), "half", heads=2, kv_heads=1)
    with pytest.raises(InputError, match=r"None query and None key heads"):
        _order(CONCATENATED, 16, Lanes(4, 0, 4), "half")


_SMALL: dict[str, Any] = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_MULTI = {**_SMALL, "num_key_value_heads": 4}
_LATENT = {
    **_MULTI,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 6,
    "v_head_dim": 10,
    "first_k_dense_replace": 2,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 8,
}
_FALCON = {k: v for k, v in _SMALL.items() if k not in ("num_key_value_heads", "intermediate_size")}
_FALCON |= {"ffn_hidden_size": 32}
_FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("LlamaConfig", {**_SMALL, "attention_bias": True}, "adjacent"),
    "wide heads": ("LlamaConfig", {**_SMALL, "head_dim": 20}, "adjacent"),
    "qwen3": ("Qwen3Config", {**_SMALL, "head_dim": 16}, "adjacent"),
    "olmo2": ("Olmo2Config", _SMALL, "adjacent"),
    "gemma3_text": ("Gemma3TextConfig", {**_SMALL, "head_dim": 16}, "adjacent"),
    "phi": ("PhiConfig", {**_MULTI, "qk_layernorm": True}, "adjacent"),
    "stablelm": ("StableLmConfig", {**_SMALL, "qk_layernorm": True, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "adjacent"),
    "cohere": ("CohereConfig", {**_SMALL, "use_qk_norm": True}, "half"),
    "glm": ("GlmConfig", {**_SMALL, "head_dim": 16, "attention_bias": True}, "half"),
    "gpt_neox": ("GPTNeoXConfig", {**_MULTI, "hidden_size": 64, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "adjacent"),
    "phi3": ("Phi3Config", _SMALL, "adjacent"),
    "persimmon": ("PersimmonConfig", {**_MULTI, "qk_layernorm": True}, "adjacent"),
    "falcon, new": ("FalconConfig", {**_FALCON, "new_decoder_architecture": True,
                    "num_kv_heads": 2}, "adjacent"),
    "falcon, one key head": ("FalconConfig", _FALCON, "adjacent"),
    "gptj": ("GPTJConfig", {"vocab_size": _VOCABULARY, "n_embd": 48, "n_layer": 2, "n_head": 4,
             "rotary_dim": 8, "n_positions": 64, "bos_token_id": None,
             "eos_token_id": None}, "half"),
    "codegen": ("CodeGenConfig", {"vocab_size": _VOCABULARY, "n_embd": 64, "n_layer": 2,
                "n_head": 8, "rotary_dim": 4, "n_positions": 64, "bos_token_id": None,
                "eos_token_id": None}, "half"),
    "minicpm3": ("MiniCPM3Config", {**_LATENT, "q_lora_rank": 14}, "adjacent"),
}  # fmt: skip


def _model(name: str, folder: Path) -> Any:
    class_name, values, _ = _FAMILIES[name]
    torch.manual_seed(7)
    config = getattr(transformers, class_name)(**values)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases of their own, not all alike
            parameter.normal_(0.3 if parameter.ndim == 1 else 0.0, 0.3)
    model.save_pretrained(folder, max_shard_size="20KB")
    return model


def _patched(monkeypatch: pytest.MonkeyPatch, model: Any, pairing: Any) -> None:
    """Let the family's code rotate the lanes of another pairing."""
    module = importlib.import_module(type(model).__module__)

    def per_plane(table: torch.Tensor) -> torch.Tensor:
        repeated = torch.equal(table[..., ::2], table[..., 1::2])
        return table[..., ::2] if repeated else table[..., : table.shape[-1] // 2]

    def two(q: Any, k: Any, cos: Any, sin: Any, *_: Any, **__: Any) -> Any:
        cos, sin = per_plane(cos), per_plane(sin)
        return tuple(rotate(x, cos, sin, pairing=pairing, order="heads_time") for x in (q, k))

    def one(x: Any, sin: Any, cos: Any) -> Any:
        return rotate(x, cos, sin, pairing=pairing, order="time_heads")

    single = type(model).__name__.startswith(("GPTJ", "CodeGen"))
    monkeypatch.setattr(module, "apply_rotary_pos_emb", one if single else two)


def _logits(model: Any) -> torch.Tensor:
    tokens = torch.arange(30).reshape(2, 15) * 7 % _VOCABULARY
    with torch.inference_mode():
        return model.double().eval()(input_ids=tokens, use_cache=False).logits


def _tolerance(logits: torch.Tensor) -> float:
    """The other order of the lanes is another order of sums.

    Models compute in float64 here, but their norms and softmax in float32: a unit in its last
    place, a hundredfold for what the layers make of it.
    """
    return 100 * 2.0**-24 * logits.abs().max().item()


def _load(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)


def _same_folders(a: Path, b: Path) -> bool:
    names = sorted(p.name for p in a.iterdir())
    return names == sorted(p.name for p in b.iterdir()) and all(
        (a / name).read_bytes() == (b / name).read_bytes() for name in names
    )


@pytest.mark.parametrize("name", _FAMILIES)
def test_converted_models_compute_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to: Any = _FAMILIES[name][2]
    own: Any = "half" if to == "adjacent" else "adjacent"
    wanted = _logits(_model(name, tmp_path / "a"))
    done = convert_pairing(tmp_path / "a", to, tmp_path / "b", lossy=True)
    assert (done.before, done.after) == (own, to)
    assert f"pairs {own} lanes" in done.notes[0]
    converted = _load(tmp_path / "b")
    tolerance = _tolerance(wanted)
    with_wrong_code = (_logits(converted) - wanted).abs().max().item()
    assert with_wrong_code > 100 * tolerance
    _patched(monkeypatch, converted, to)
    assert (_logits(converted) - wanted).abs().max().item() <= tolerance
    convert_pairing(tmp_path / "b", own, tmp_path / "c")
    assert _same_folders(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("compressed", [14, None])
def test_a_family_whose_config_says_the_pairing(compressed: int | None, tmp_path: Path) -> None:
    torch.manual_seed(7)
    config = transformers.DeepseekV3Config(**{**_LATENT, "q_lora_rank": compressed})
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.3 if parameter.ndim == 1 else 0.0, 0.3)
    model.save_pretrained(tmp_path / "a")
    wanted = _logits(model)
    done = convert_pairing(tmp_path / "a", "half", tmp_path / "b")
    assert done.tensors == 4
    assert done.notes == ()
    assert json.loads((tmp_path / "b/config.json").read_text())["rope_interleave"] is False
    found = _logits(_load(tmp_path / "b"))
    assert (found - wanted).abs().max().item() <= _tolerance(wanted)
    convert_pairing(tmp_path / "b", "adjacent", tmp_path / "c")
    assert _same_folders(tmp_path / "a", tmp_path / "c")


def test_a_switch_that_the_config_does_not_have(tmp_path: Path) -> None:
    """Defaults count: the key is added, and taken away again on the way back."""
    config = transformers.DeepseekV3Config(**{**_LATENT, "q_lora_rank": None})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "a")
    values = json.loads((tmp_path / "a/config.json").read_text())
    del values["rope_interleave"]
    (tmp_path / "a/config.json").write_bytes(json.dumps(values, indent=2).encode())
    convert_pairing(tmp_path / "a", "half", tmp_path / "b")
    assert json.loads((tmp_path / "b/config.json").read_text())["rope_interleave"] is False
    convert_pairing(tmp_path / "b", "adjacent", tmp_path / "c")
    assert _same_folders(tmp_path / "a", tmp_path / "c")


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    _model("llama", tmp_path / "llama")
    return tmp_path / "llama"


def test_values_and_other_tensors_stay(llama: Path, tmp_path: Path) -> None:
    convert_pairing(llama, "adjacent", tmp_path / "b", lossy=True)
    for shard in llama.glob("*.safetensors"):
        before, after = load_file(shard), load_file(tmp_path / "b" / shard.name)
        assert list(before) == list(after)
        for name in before:
            moves = ".q_proj." in name or ".k_proj." in name
            assert np.array_equal(before[name], after[name]) != moves


def test_what_the_family_cannot_say_is_refused(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no key .* can say.*'llama' pairs half.*lossy"):
        convert_pairing(llama, "adjacent", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    convert_pairing(llama, "adjacent", tmp_path / "b", lossy=True)
    assert json.loads((tmp_path / "b" / NOTE).read_text())["pairing"] == "adjacent"
    with pytest.raises(InputError, match="stored for adjacent pairing already"):
        convert_pairing(tmp_path / "b", "adjacent", tmp_path / "c", lossy=True)


def test_a_noted_pairing_is_read_everywhere(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No engine reads the note: what would run such weights through one refuses them."""
    noted = tmp_path / "b"
    convert_pairing(llama, "adjacent", noted, lossy=True)
    for place in (noted, noted / "config.json"):
        plan = read(place)
        assert {layer.rope.pairing for layer in plan.layers if layer.rope} == {"adjacent"}
        assert plan.sources["pairing"].source == f"{NOTE}: pairing"
        assert "pairs half lanes and computes gibberish" in plan.notes[-1]
    assert read(llama).sources["pairing"].source != plan.sources["pairing"].source
    assert "RW804" in [f.code for f in check(noted).findings]
    assert "RW804" not in [f.code for f in check(llama).findings]
    with pytest.raises(InputError, match="that transformers' code rotates: it reads no such"):
        load(noted)
    for command, code, said in (
        (["inspect", str(noted)], 0, "computes gibberish"),
        (["measure", str(noted)], 2, NOTE),
        (["extend", str(noted), "--to", "2x", "--measure"], 2, NOTE),
        (["extend", str(noted), "--to", "2x"], 0, "computes gibberish"),
        (["convert", str(noted), "--to", "hf"], 2, "permute the weights too"),
        (["check", str(noted)], 1, "RW804"),
    ):
        with pytest.raises(SystemExit) as exit_:
            main(command)
        printed = capsys.readouterr()
        assert exit_.value.code == code, printed
        assert said in " ".join((printed.out + printed.err).split()), command


def test_a_note_of_a_gguf_file_is_about_that_file(tmp_path: Path) -> None:
    _gguf(tmp_path / "m.gguf", "F32")
    convert_pairing(tmp_path / "m.gguf", "half", tmp_path / "b", lossy=True)
    (tmp_path / "b/other.gguf").write_bytes((tmp_path / "m.gguf").read_bytes())
    plans = [read(tmp_path / "b" / name) for name in ("m.gguf", "other.gguf")]
    assert [plan.rope.pairing for plan in plans if plan.rope] == ["half", "adjacent"]
    assert "llama.cpp does not read" in plans[0].notes[-1]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pairing": "both"}', '{"pairing": ["half"]}'])
def test_a_note_that_says_nothing(text: str, llama: Path) -> None:
    (llama / NOTE).write_text(text)
    with pytest.raises(InputError, match="expected 'half' or 'adjacent'"):
        read(llama)
    assert any(f.code == "RW804" for f in check(llama).findings)


def test_weights_of_which_only_a_part_has_the_names(llama: Path, tmp_path: Path) -> None:
    for shard in llama.glob("*.safetensors"):
        values = load_file(shard)
        values = {
            n.replace("0.self_attn.q_proj", "0.self_attn.query"): v for n, v in values.items()
        }
        save_file(values, shard, {"format": "pt"})
    with pytest.raises(InputError, match=r"no queries of layer 0.*half a conversion is none"):
        convert_pairing(llama, "adjacent", tmp_path / "b", lossy=True)
    assert not (tmp_path / "b").exists()


def test_a_switch_that_the_code_does_not_read_is_not_written(tmp_path: Path) -> None:
    """Kimi K2 runs DeepSeek's remote code, which moves lanes whatever rope_interleave says."""
    config = transformers.DeepseekV3Config(**{**_LATENT, "q_lora_rank": 14})
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path / "a")
    _config(tmp_path / "a", model_type="kimi_k2", rope_interleave=False)
    plan = read(tmp_path / "a")
    assert plan.rope is not None
    assert plan.rope.pairing == "adjacent"
    with pytest.raises(InputError, match="no key of the config can say"):
        convert_pairing(tmp_path / "a", "half", tmp_path / "b")
    before = (tmp_path / "a/config.json").read_bytes()
    convert_pairing(tmp_path / "a", "half", tmp_path / "b", lossy=True)
    assert (tmp_path / "b/config.json").read_bytes() == before


def test_a_switch_beside_code_of_the_checkpoint(tmp_path: Path) -> None:
    config = transformers.DeepseekV3Config(**{**_LATENT, "q_lora_rank": 14})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "a")
    _config(tmp_path / "a", auto_map={"AutoModel": "modeling_deepseek.DeepseekV3Model"})
    done = convert_pairing(tmp_path / "a", "half", tmp_path / "b")
    assert "without trust_remote_code" in done.notes[0]


def test_nothing_is_overwritten(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="nothing is overwritten"):
        convert_pairing(llama, "adjacent", tmp_path / "b", lossy=True)


@pytest.mark.parametrize("changed", [False, True])
def test_a_killed_run_goes_on(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    write, calls = weights_module._copy_rows, []

    def killed(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 6:
            raise KeyboardInterrupt
        write(*arguments)

    monkeypatch.setattr(weights_module, "_copy_rows", killed)
    with pytest.raises(KeyboardInterrupt):
        convert_pairing(llama, "adjacent", tmp_path / "b", lossy=True)
    assert not (tmp_path / "b").exists()
    finished = len(list((tmp_path / ".partial-b").glob("*.safetensors")))
    assert finished > 0
    if changed:  # then what is finished is of another model
        (llama / "model.safetensors.index.json").touch()
        shard = next(llama.glob("*.safetensors"))
        values = load_file(shard)
        save_file({n: v + 1 for n, v in values.items()}, shard, {"format": "pt"})
    done = convert_pairing(llama, "adjacent", tmp_path / "b", lossy=True)
    assert done.kept == (0 if changed else finished)
    assert not (tmp_path / ".partial-b").exists()
    convert_pairing(llama, "adjacent", tmp_path / "whole", lossy=True)
    assert _same_folders(tmp_path / "b", tmp_path / "whole")


def test_other_weights_of_the_folder_are_left_out(llama: Path, tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "consolidated.safetensors", "model.gguf"):
        (llama / name).write_bytes(b"other weights")
    (llama / "tokenizer.json").write_text("{}")
    done = convert_pairing(llama, "adjacent", tmp_path / "b", lossy=True)
    assert "consolidated.safetensors, model.gguf, pytorch_model.bin" in done.notes[1]
    assert (tmp_path / "b/tokenizer.json").exists()
    assert not list((tmp_path / "b").glob("*.bin"))


def _adapter(folder: Path, base: object) -> dict[str, np.ndarray]:
    stem = "base_model.model.model.layers.0.self_attn."
    rng = np.random.default_rng(0)
    tensors = {}
    for module, rows in (("q_proj", 48), ("k_proj", 24), ("v_proj", 24)):
        tensors[f"{stem}{module}.lora_A.weight"] = rng.normal(size=(3, 48)).astype(np.float32)
        tensors[f"{stem}{module}.lora_B.weight"] = rng.normal(size=(rows, 3)).astype(np.float32)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    text = json.dumps({"peft_type": "LORA", "base_model_name_or_path": base})
    (folder / "adapter_config.json").write_text(text)
    return tensors


@pytest.mark.parametrize("named", [True, False])
def test_adapters_follow_their_base(llama: Path, tmp_path: Path, named: bool) -> None:
    before = _adapter(tmp_path / "lora", str(llama) if named else "someone/model")
    base = None if named else llama
    convert_pairing(tmp_path / "lora", "adjacent", tmp_path / "b", lossy=True, base=base)
    after = load_file(tmp_path / "b/adapter_model.safetensors")
    order = Lanes(12, 0, 12).order("adjacent")
    for name, tensor in before.items():
        if "v_proj" in name or "lora_A" in name:
            assert np.array_equal(after[name], tensor)
        else:
            heads = tensor.reshape(-1, 12, 3)[:, order].reshape(tensor.shape)
            assert np.array_equal(after[name], heads)


def test_an_adapter_without_its_base(tmp_path: Path) -> None:
    _adapter(tmp_path / "lora", "someone/model")
    with pytest.raises(InputError, match="name it with --base"):
        convert_pairing(tmp_path / "lora", "adjacent", tmp_path / "b", lossy=True)


def _gguf(path: Path, kind: str) -> None:
    import gguf

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_embedding_length(64)
    writer.add_context_length(64)
    writer.add_rope_dimension_count(16)
    quantisation = gguf.GGMLQuantizationType[kind]
    for name, rows in (("attn_q", 64), ("attn_k", 32), ("attn_v", 32)):
        values = rng.normal(size=(rows, 64)).astype(np.float32)
        data = gguf.quants.quantize(values, quantisation)
        writer.add_tensor(f"blk.0.{name}.weight", data, raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0"])
def test_rows_of_quantised_gguf_files(kind: str, tmp_path: Path) -> None:
    _gguf(tmp_path / "m.gguf", kind)
    with pytest.raises(InputError, match="architecture 'llama' pairs adjacent lanes"):
        convert_pairing(tmp_path / "m.gguf", "half", tmp_path / "b")
    convert_pairing(tmp_path / "m.gguf", "half", tmp_path / "b", lossy=True)
    order = Lanes(16, 0, 16).order("half")
    with open_tensors(tmp_path / "m.gguf") as a, open_tensors(tmp_path / "b/m.gguf") as b:
        for name, tensor in a.tensors.items():
            old = a.numbers(tensor, slice(None)).reshape(-1, 16, 64)
            new = b.numbers(b.tensors[name], slice(None)).reshape(-1, 16, 64)
            assert np.array_equal(new, old if "attn_v" in name else old[:, order])
    convert_pairing(tmp_path / "b/m.gguf", "adjacent", tmp_path / "c")
    assert (tmp_path / "c/m.gguf").read_bytes() == (tmp_path / "m.gguf").read_bytes()
    assert not (tmp_path / "c" / NOTE).exists()


def _config(folder: Path, **changes: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changes}))


def _refusal(llama: Path, change: str) -> None:
    shard = next(p for p in llama.glob("*.safetensors") if "q_proj" in str(load_file(p).keys()))
    name = next(n for n in load_file(shard) if n.endswith("q_proj.weight"))
    if change == "heads":
        _config(llama, head_dim=10)
    elif change == "packed":
        values = load_file(shard)
        values[name.replace("weight", "qweight")] = values.pop(name)
        save_file(values, shard)
    elif change == "shared":
        for path in llama.glob("*.safetensors"):
            values = {n: v for n, v in load_file(path).items() if "v_proj" not in n}
            save_file(values, path)
    elif change == "truncated":
        shard.write_bytes(shard.read_bytes()[:-8])
    elif change == "missing":
        shard.unlink()
    elif change == "pickled":
        for path in [*llama.glob("*.safetensors"), llama / "model.safetensors.index.json"]:
            path.unlink()
        (llama / "pytorch_model.bin").write_bytes(b"")
    elif change == "other names":
        index = json.loads((llama / "model.safetensors.index.json").read_text())
        index["weight_map"][name] = "../elsewhere.safetensors"
        (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    elif change == "not json":
        raw = bytearray(shard.read_bytes())
        raw[8:10] = b"xx"
        shard.write_bytes(raw)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("heads", "check head counts and head_dim"),
        ("packed", "a quantised or adapted part 'qweight'"),
        ("shared", "keys without v_proj.weight: they are the values too"),
        ("truncated", "outside the file"),
        ("missing", "fetch the missing shards"),
        ("pickled", "pickled weights are not read"),
        ("other names", "no weight_map of plain file names"),
        ("not json", "a header that is not JSON"),
    ],
)
def test_refusals(llama: Path, tmp_path: Path, change: str, message: str) -> None:
    _refusal(llama, change)
    with pytest.raises(InputError, match=message):
        convert_pairing(llama, "adjacent", tmp_path / "b", lossy=True)
    assert not list(tmp_path.glob("*b"))


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{" * 5000,
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [1e9], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
        b'{"a": {"dtype": "X", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [9999999999], "data_offsets": [0, 39999999996]}}',
    ],
)
def test_hostile_safetensors_headers(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(InputError, match="a whole safetensors or GGUF file"):
        open_tensors(path)


def test_an_absurd_header_length(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes((2**62).to_bytes(8, "little") + bytes(40))
    with pytest.raises(InputError, match="a header of"):
        open_tensors(path)


def test_the_command(llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["convert", str(llama), "--pairing", "adjacent", "--write", str(tmp_path / "b")]
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "add --lossy" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--lossy"])
    assert exit_.value.code == 0
    printed = capsys.readouterr()
    assert "half → adjacent, 8 tensors" in printed.out
    assert "note: query and key weights are stored for adjacent pairing" in printed.err
    with pytest.raises(SystemExit) as exit_:
        main(["convert", str(llama), "--pairing", "adjacent"])
    assert exit_.value.code == 2
    assert "needs --write" in capsys.readouterr().err
