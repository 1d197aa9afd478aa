"""Fixtures: a tiny model folder that transformers loads, and texts for it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk.extend.loading import builtin_model
from ropewalk.rotation.native import kernels

# Triton decides once, when it is first imported, whether kernels are interpreted; other tests
# import it by way of torch.compile.
if importlib.util.find_spec("triton") is not None:
    importlib.import_module("triton_at_hand")

# Tests of engines and of other libraries are collected where these are installed: see
# `make engines`.
_NEEDS = {
    "llama_cpp": "test_llama_cpp.py",
    "diffusers": "test_diffusers_real.py",
    "timm": "test_timm_real.py",
}
collect_ignore = [
    file for package, file in _NEEDS.items() if importlib.util.find_spec(package) is None
]

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 192,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def _instruction_sets() -> list[str | None]:
    module = kernels()
    return [None] if module is None else list(module.instruction_sets())


@pytest.fixture(params=_instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Each instruction set of this processor in turn; None without compiled kernels."""
    module = kernels()
    if module is None:
        yield None
        return
    before = module.instruction_set()
    assert module.use_instruction_set(request.param)
    yield request.param
    module.use_instruction_set(before)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers with the byte tokenizer, original length 192."""
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny") / "model"
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**TINY)).save_pretrained(folder)
    # The generation of config that transformers 4 wrote, with what this version needs.
    (folder / "config.json").write_text(json.dumps({**TINY, "dtype": "float32"}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(builtin_model() / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Six files of 4,000 letters each."""
    folder = tmp_path_factory.mktemp("texts")
    rng = random.Random(0)
    out = []
    for index in range(6):
        path = folder / f"text{index}.txt"
        path.write_text("".join(rng.choice("abcdefgh \n") for _ in range(4000)))
        out.append(path)
    return out
