"""The engines' own code, run on a config: cos and sin at position 1 as each would have them.

Most engines cannot be imported on a machine without a GPU, and their packages start slowly. So
the named functions and classes are taken out of the installed sources as they stand and run
with stand-ins for the layers around them (a base module, a logger). Where a package is not
installed, its engine is left out. vLLM and SGLang are found if their unpacked packages are on
the path.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Values = dict[str, Any]


def place(package: str) -> Path | None:
    """Return the folder of an installed package, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def take(path: Path, names: dict[str, tuple[str, ...] | None], space: Values) -> None:
    """Run the named definitions of a source file within ``space``.

    Args:
        path: the file.
        names: function or class to the members to keep; None for all, and for functions.
        space: what the definitions find around them; they are added to it.
    """
    kept = tuple((name, None if members is None else tuple(members))
                 for name, members in names.items())  # fmt: skip
    exec(_code(path, kept), space)
    missing = set(names) - set(space)
    assert not missing, f"{path} has no {missing}"


@functools.cache
def _code(path: Path, names: tuple[tuple[str, tuple[str, ...] | None], ...]) -> types.CodeType:
    """Return the named definitions of a file, compiled."""
    wanted = dict(names)
    body: list[ast.stmt] = [ast.parse("from __future__ import annotations").body[0]]
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name not in wanted:
            continue
        members = wanted[node.name]
        if isinstance(node, ast.ClassDef) and members is not None:
            node.body = [
                item
                for item in node.body
                if isinstance(item, ast.FunctionDef | ast.ClassDef) and item.name in members
            ] or [ast.Pass()]
            node.decorator_list = []
        body.append(node)
    module = ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))
    return compile(module, str(path), "exec")


def _space(**more: Any) -> Values:
    """Return a module's namespace: dataclasses look their module up by name."""
    module = types.ModuleType("engine_code_taken")
    sys.modules[module.__name__] = module
    space = module.__dict__
    space.update(math=math, **more)
    return space


class _Module:
    """A stand-in for modules of PyTorch."""

    def register_buffer(self, name: str, value: Any, persistent: bool = True) -> None:
        setattr(self, name, value)


def _hf(values: Values) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**{k: v for k, v in values.items() if k != "model_type"})


def _rotary_dim(values: Values) -> int:
    return int(values["head_dim"])


def run_transformers(values: Values, length: int) -> tuple[Any, float]:
    """Frequencies and amplitude of transformers."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = _hf(values)
    kind = config.rope_parameters["rope_type"]
    plain = LlamaRotaryEmbedding.compute_default_rope_parameters
    make = plain if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
    found, amplitude = make(config, device="cpu", seq_len=length)
    return found.numpy(), float(amplitude)


def _turned(cos: Any, sin: Any) -> tuple[Any, float]:
    """Return frequencies and amplitude from cos and sin at position 1."""
    cos, sin = np.asarray(cos, np.float64), np.asarray(sin, np.float64)
    size = np.hypot(cos, sin)
    return np.arctan2(sin, cos), float(size.mean())


def run_mlx(values: Values, length: int) -> tuple[Any, float]:
    """mlx-lm's Llama: its arguments, its rope, applied to unit vectors."""
    from dataclasses import dataclass

    import mlx.core as mx
    import mlx.nn as nn

    folder = place("mlx_lm")
    assert folder is not None
    import inspect

    space = _space(mx=mx, nn=nn, dataclass=dataclass, inspect=inspect)
    exec("from typing import *", space)
    take(folder / "models/base.py", {"BaseModelArgs": None}, space)
    take(folder / "models/llama.py", {"ModelArgs": None}, space)
    names = ["SuScaledRoPE", "Llama3RoPE", "YarnRoPE", "ProportionalRoPE", "DynamicNTKScalingRoPE"]
    take(folder / "models/rope_utils.py", dict.fromkeys([*names, "initialize_rope"]), space)
    values = {"intermediate_size": 1, "rms_norm_eps": 1e-5, "vocab_size": 1, **values}
    args = space["ModelArgs"].from_dict(values)
    rope = space["initialize_rope"](
        args.head_dim, args.rope_theta, args.rope_traditional, args.rope_scaling,
        args.max_position_embeddings,
    )  # fmt: skip
    dim = args.head_dim
    tokens = length if type(rope).__name__.startswith("Dynamic") else 2
    x = np.zeros((1, 1, tokens, dim), np.float32)
    x[..., : dim // 2] = 1
    out = np.array(rope(mx.array(x)))[0, 0, 1]
    return _turned(out[: dim // 2], out[dim // 2 :])


def run_genai(values: Values, length: int) -> tuple[Any, float]:
    """The builder of onnxruntime-genai: its Llama and its Phi-3."""
    import torch

    folder = place("onnxruntime_genai")
    assert folder is not None
    space = _space(np=np, torch=torch)
    base = folder / "models/builders"
    take(
        base / "base.py",
        {
            "Model": (
                "make_rope_init", "make_mscale", "make_mscale_su", "make_mscale_yarn",
                "make_inv_freq_rescaled", "make_inv_freq_rescaled_with_freq_factors",
                "make_inv_freq_rescaled_with_ntk", "make_rotary_embedding_caches_from_scratch",
            )
        },
        space,
    )  # fmt: skip
    take(base / "llama.py", {"LlamaModel": ("make_rope_init",)}, space)
    space["Phi3MiniModel"] = space["Model"]
    take(base / "phi.py", {"Phi3MiniLongRoPEModel": ("make_rope_init",)}, space)
    builders = {"phi3": "Phi3MiniLongRoPEModel", "llama": "LlamaModel", "mistral": "Model"}
    model = space[builders[values["model_type"]]]()
    config = _hf(values)
    block = config.rope_parameters
    model.head_size = config.head_dim
    model.context_length = config.max_position_embeddings
    model.original_context_length = block.get(
        "original_max_position_embeddings", model.context_length
    )
    model.rope_attrs = {
        "theta": block["rope_theta"],
        "partial_rotary_factor": block.get("partial_rotary_factor", 1.0),
        "rescale_factors": 1, "t_dtype": torch.int64, "position_scale": 1, "mscale": 1,
        "mscale_policy": "", "cache_length": 2,
    }  # fmt: skip
    model.make_rope_init(types.SimpleNamespace(rope_parameters=block))
    if "multi_cache" in model.rope_attrs:
        which = "long" if length > model.original_context_length else "short"
        caches = model.rope_attrs["multi_cache"]
        model.rope_attrs["rescale_factors"] = caches[f"{which}_factor"]
        model.rope_attrs["mscale"] = caches[f"{which}_mscale"]
    cos, sin = model.make_rotary_embedding_caches_from_scratch()
    planes = cos.shape[-1] // 2
    return _turned(cos[1, :planes], sin[1, :planes])


def run_torchtitan(values: Values, _length: int) -> tuple[Any, float]:
    """torchtitan's complex module, given the values of the config."""
    from dataclasses import dataclass
    from typing import Literal

    import torch

    folder = place("torchtitan")
    assert folder is not None

    class Module:
        @dataclass(kw_only=True, slots=True)
        class Config:
            pass

    space = _space(torch=torch, dataclass=dataclass, Literal=Literal, Module=Module)
    take(
        folder / "models/common/rope.py",
        {"_yarn_inv_freq": None, "RoPE": ("Config",), "ComplexRoPE": ("_precompute_cache",)},
        space,
    )
    block = dict(_hf(values).rope_parameters)
    names = {
        "llama3": {
            "factor": "scaling_factor", "low_freq_factor": "low_freq_factor",
            "high_freq_factor": "high_freq_factor",
            "original_max_position_embeddings": "original_max_position_embeddings",
        },
        "yarn": {
            "factor": "rope_factor", "beta_fast": "beta_fast", "beta_slow": "beta_slow",
            "original_max_position_embeddings": "original_seq_len", "truncate": "truncate",
        },
        "default": {},
    }[block["rope_type"]]  # fmt: skip
    given = {names[key]: value for key, value in block.items() if key in names}
    kinds = {"llama3": "llama", "yarn": "yarn", "default": "none"}
    config = space["RoPE"].Config(
        dim=_rotary_dim(values), max_seq_len=2, theta=block["rope_theta"],
        scaling=kinds[block["rope_type"]], **given,
    )  # fmt: skip
    rope = types.SimpleNamespace(config=config)
    table = space["ComplexRoPE"]._precompute_cache(rope)[1].numpy()
    return _turned(table.real, table.imag)


def run_litgpt(values: Values, _length: int) -> tuple[Any, float]:
    """litgpt's cache, given the values of the config under its own names."""
    import torch

    folder = place("litgpt")
    assert folder is not None
    space = _space(torch=torch)
    space["nn"] = types.SimpleNamespace(Module=object)
    take(
        folder / "model.py",
        {"build_rope_cache": None, "yarn_get_mscale": None, "GPT": ("rope_cache",)},
        space,
    )
    block = dict(_hf(values).rope_parameters)
    kind = block["rope_type"]
    if kind not in ("default", "linear", "yarn", "llama3"):
        raise KeyError(kind)
    names = {"original_max_position_embeddings": "original_max_seq_len"}
    left_out = {"rope_type", "type", "rope_theta"}
    adjustments = {names.get(k, k): v for k, v in block.items() if k not in left_out}
    model = types.SimpleNamespace(
        max_seq_length=2,
        config=types.SimpleNamespace(
            rope_adjustments=None if kind == "default" else adjustments,
            rope_n_elem=_rotary_dim(values), rope_condense_ratio=1,
            rope_base=block["rope_theta"], rope_local_base_freq=None,
        ),
    )  # fmt: skip
    if kind == "yarn" and not {"beta_fast", "beta_slow"} <= set(adjustments):
        # Without them it would take the block for another kind.
        raise KeyError("beta_fast")
    cos, sin = space["GPT"].rope_cache(model)
    planes = _rotary_dim(values) // 2
    return _turned(cos[1, :planes], sin[1, :planes])


def _keras_ops() -> Any:
    """NumPy under the names of keras.ops."""

    def cast(x: Any, dtype: str) -> Any:  # noqa: ARG001 (its name is keras')
        return np.asarray(x, np.float32)

    return types.SimpleNamespace(
        arange=lambda *a, dtype=None: np.arange(*a, dtype=dtype), cast=cast, power=np.power,
        log=np.log, floor=np.floor, ceil=np.ceil, maximum=np.maximum, minimum=np.minimum,
        clip=np.clip, divide=np.divide, where=np.where, greater=np.greater, add=np.add,
        logical_and=np.logical_and, greater_equal=np.greater_equal, less_equal=np.less_equal,
        multiply=np.multiply, shape=np.shape, expand_dims=np.expand_dims, einsum=np.einsum,
        stack=np.stack, reshape=np.reshape, cos=np.cos, sin=np.sin,
    )  # fmt: skip


def run_keras(values: Values, _length: int) -> tuple[Any, float]:
    """keras-hub's converter of Llama or gpt-oss, then its rotary layer."""
    folder = place("keras_hub")
    assert folder is not None
    source = folder / "src"
    space = _space(np=np, ops=_keras_ops())
    space["keras"] = types.SimpleNamespace(layers=types.SimpleNamespace(Layer=_Module))
    layer = {
        "RotaryEmbedding": (
            "_compute_cos_sin_embedding", "_get_inverse_freq", "_get_yarn_inverse_freq",
            "_compute_positions",
        )
    }  # fmt: skip
    take(source / "layers/modeling/rotary_embedding.py", layer, space)
    take(
        source / "models/llama/llama_rotary_embedding.py",
        {"LlamaRotaryEmbedding": ("_get_inverse_freq",)},
        space,
    )
    kind = values["model_type"]
    name = {"llama": "convert_llama3", "gpt_oss": "convert_gpt_oss"}[kind]
    take(source / f"utils/transformers/{name}.py", {"convert_backbone_config": None}, space)
    sizes = dict.fromkeys(
        ("vocab_size", "intermediate_size", "num_local_experts", "num_experts_per_tok",
         "rms_norm_eps", "tie_word_embeddings"), 1,
    )  # fmt: skip
    made = space["convert_backbone_config"]({**sizes, **values})
    rope = space["LlamaRotaryEmbedding" if kind == "llama" else "RotaryEmbedding"]()
    rope.compute_dtype = "float32"
    rope.max_wavelength, rope.denominator_dim = made["rope_max_wavelength"], None
    if kind == "llama":
        rope.rope_type = "linear"
        rope.frequency_adjustment_factor = made.get("rope_frequency_adjustment_factor")
        rope.low_freq_factor = made.get("rope_low_freq_factor")
        rope.high_freq_factor = made.get("rope_high_freq_factor")
        rope.pretraining_sequence_length = made.get("rope_pretraining_sequence_length")
    else:
        # As gpt_oss_attention.py builds its layer.
        rope.rope_type, rope.truncate = "yarn", False
        rope.scaling_factor = made.get("rope_scaling_factor", 1.0)
        rope.beta_fast, rope.beta_slow = 32.0, 1.0
        rope.original_max_position_embeddings = 4096
    x = np.zeros((1, 2, _rotary_dim(values)), np.float32)
    cos, sin = rope._compute_cos_sin_embedding(x)
    planes = x.shape[-1] // 2
    return _turned(cos[0, 1, :planes], sin[0, 1, :planes])


def run_exllamav3(values: Values, _length: int) -> tuple[Any, float]:
    """exllamav3's settings and rope."""
    from dataclasses import dataclass
    from enum import IntEnum

    import torch

    folder = place("exllamav3")
    assert folder is not None
    space = _space(torch=torch, dataclass=dataclass, IntEnum=IntEnum, no_default=object(), ext=None)
    exec("from typing import *\nT = TypeVar('T')", space)
    take(folder / "util/file.py", {"read_dict": None}, space)
    names = ("RopeStyle", "RopeSettings", "RoPE", "yarn_inv_freq", "yarn_get_mscale")
    take(folder / "util/rope.py", dict.fromkeys(names), space)
    space["ABC"] = object
    take(folder / "model/config.py", {"Config": ("read_rope_settings_default",)}, space)
    config = types.SimpleNamespace(config_dict=values, head_dim=values["head_dim"])
    settings = space["Config"].read_rope_settings_default(config, space["RopeStyle"].NEOX)
    rope = space["RoPE"]("cpu", settings)
    return rope.inv_freq.numpy(), float(rope.attn_factor)


class _Table:
    """A stand-in for the base of vLLM's and SGLang's rope classes."""

    _force_native = False
    position_start = 0

    def __init__(
        self, head_size: int, rotary_dim: int, max_position_embeddings: int, base: float,
        is_neox_style: bool, dtype: Any, init_cache: bool = True,
    ) -> None:  # fmt: skip
        self.head_size, self.rotary_dim, self.base = head_size, rotary_dim, base
        self.max_position_embeddings, self.is_neox_style = max_position_embeddings, is_neox_style
        self.cos_sin_cache = self._compute_cos_sin_cache()

    def enabled(self) -> bool:
        return False


_YARN_FUNCTIONS = ("yarn_find_correction_dim", "yarn_find_correction_range", "yarn_get_mscale",
                   "yarn_linear_ramp_mask")  # fmt: skip
_FORMULAS = ("__init__", "_compute_inv_freq", "_compute_cos_sin_cache")


def _of_table(rope: Any, length: int, original: int) -> tuple[Any, float]:
    table = getattr(rope, "cos_sin_cache", None)
    row = 1
    if table is None:
        table = rope.long_short_cos_sin_cache
        row += original if length > original else 0
    cos, sin = table[row].chunk(2)
    return _turned(cos, sin)


def _as_latent(values: Values, block: Values) -> Values:
    """Name the kind as the engine's DeepSeek code does before it asks for a rope."""
    return {**block, "rope_type": "deepseek_yarn"} if "qk_rope_head_dim" in values else block


def _quiet_logger() -> Any:
    silent = types.SimpleNamespace()
    silent.warning = silent.warning_once = lambda *_, **__: None
    return silent


def run_vllm(values: Values, length: int) -> tuple[Any, float]:
    """vLLM's get_rope on a block that a config class of transformers filled in."""
    import torch

    folder = place("vllm")
    assert folder is not None
    source = folder / "model_executor/layers/rotary_embedding"
    engine = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=length))
    space = _space(
        torch=torch, nn=types.SimpleNamespace(Module=_Module), logger=_quiet_logger(),
        CustomOp=_Table, get_current_vllm_config=lambda: engine, Any=Any, _ROPE_DICT={},
        current_platform=types.SimpleNamespace(is_cuda=lambda: False),
        has_flashinfer=lambda: False,
    )  # fmt: skip
    take(source / "common.py", dict.fromkeys(_YARN_FUNCTIONS), space)
    take(source / "base.py", {"RotaryEmbeddingBase": _FORMULAS[1:]}, space)
    space["RotaryEmbedding"] = space["RotaryEmbeddingBase"]
    for file, name in (
        ("linear_scaling_rope", "LinearScalingRotaryEmbedding"),
        ("dynamic_ntk_scaling_rope", "DynamicNTKScalingRotaryEmbedding"),
        ("yarn_scaling_rope", "YaRNScalingRotaryEmbedding"),
        ("phi3_long_rope_scaled_rope", "Phi3LongRoPEScaledRotaryEmbedding"),
        ("llama3_rope", "Llama3RotaryEmbedding"),
        ("gemma4_rope", "Gemma4RotaryEmbedding"),
        ("deepseek_scaling_rope", "DeepseekScalingRotaryEmbedding"),
    ):
        take(source / f"{file}.py", {name: _FORMULAS}, space)
    take(source / "__init__.py", {"get_rope": None}, space)
    block = _as_latent(values, dict(_hf(values).rope_parameters))
    rope = space["get_rope"](
        values["head_dim"], values["max_position_embeddings"], True, block, torch.float32
    )
    return _of_table(rope, length, block.get("original_max_position_embeddings", 0))


def run_sglang(values: Values, length: int) -> tuple[Any, float]:
    """SGLang's get_rope, as its Llama calls it."""
    import torch

    folder = place("sglang")
    assert folder is not None
    source = folder / "srt/layers/rotary_embedding"
    space = _space(
        torch=torch, nn=types.SimpleNamespace(Module=_Module), logger=_quiet_logger(),
        BaseFusedOp=_Table, _is_hip=False, _is_npu=False, get_device=lambda: "cpu", _ROPE_DICT={},
        _get_live_rope_cache_entry=lambda _: None,
    )  # fmt: skip
    exec("from typing import *", space)
    take(source / "base.py",
         {"RotaryEmbedding": _FORMULAS[1:], "LinearScalingRotaryEmbedding": _FORMULAS},
         space)  # fmt: skip
    take(source / "yarn.py",
         dict.fromkeys((*_YARN_FUNCTIONS, "yarn_get_mscale_simple", "YaRNScalingRotaryEmbedding")),
         space)  # fmt: skip
    names = ("Phi3LongRoPEScaledRotaryEmbedding", "DeepseekScalingRotaryEmbedding",
             "Llama3RotaryEmbedding", "DynamicNTKAlphaRotaryEmbedding",
             "DynamicNTKScalingRotaryEmbedding", "Gemma4RotaryEmbedding")  # fmt: skip
    take(source / "rope_variant.py", dict.fromkeys(names, _FORMULAS), space)
    take(source / "factory.py", dict.fromkeys(("get_rope", "_get_rope_param")), space)
    block = _as_latent(values, dict(_hf(values).rope_parameters))
    head = values["head_dim"]
    partial = block.get("partial_rotary_factor", 1.0)
    rope = space["get_rope"](
        head, int(head * partial), values["max_position_embeddings"], block["rope_theta"],
        True, block, torch.float32,
    )  # fmt: skip
    return _of_table(rope, length, block.get("original_max_position_embeddings", 0))


RUNNERS: dict[str, tuple[str, Callable[[Values, int], tuple[Any, float]]]] = {
    "transformers": ("transformers", run_transformers),
    "mlx-lm": ("mlx_lm", run_mlx),
    "onnxruntime-genai": ("onnxruntime_genai", run_genai),
    "torchtitan": ("torchtitan", run_torchtitan),
    "litgpt": ("litgpt", run_litgpt),
    "keras-hub": ("keras_hub", run_keras),
    "exllamav3": ("exllamav3", run_exllamav3),
    "vLLM": ("vllm", run_vllm),
    "SGLang": ("sglang", run_sglang),
}
"""Engine to its package and the function that runs its code."""

INSTALLED = [name for name, (package, _) in RUNNERS.items() if place(package) is not None]
"""The engines whose code is at hand."""
