"""Tiny GGUF models with random weights, llama.cpp run on them, and the same in NumPy.

One layer, one head. The feed-forward part is zero and the output matrix is the identity, so the
logits are the normalised sum of embedding and attention: rope is all that a case changes.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter

from ropewalk import Rope

Array = npt.NDArray[np.float64]
HEAD = 64
TOKENS = 256
_FORWARD = 8
_UNIT = 2.0**-24
_EPSILON = 1e-6


@dataclass(frozen=True)
class Case:
    """One model file and how it is run.

    Attributes:
        architecture: as the file names it.
        keys: metadata below the architecture's name.
        tensors: the one-row tensors of divisors.
        settings: fields of the context's parameters.
        context: tokens that the context is made for.
    """

    architecture: str = "llama"
    keys: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, list[float]] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)
    context: int = TOKENS


def weights() -> dict[str, Array]:
    """Return the matrices that matter, (out, in), in float32 values."""
    rng = np.random.default_rng(7)
    scale = HEAD**-0.5
    names = ("attn_q", "attn_k", "attn_v", "attn_output")
    out = {name: rng.standard_normal((HEAD, HEAD)) * scale for name in names}
    # Scores of a few units: attention that is neither flat nor a single token.
    out["attn_q"] *= 2.0
    out["token_embd"] = rng.standard_normal((HEAD, HEAD))
    return {name: value.astype(np.float32).astype(np.float64) for name, value in out.items()}


def tokens() -> npt.NDArray[np.int64]:
    """Return the text: token numbers, each a row of the embedding."""
    return np.random.default_rng(11).integers(0, HEAD, TOKENS)


def write(path: Path, case: Case) -> Path:
    """Write the model of a case."""
    writer = GGUFWriter(path, case.architecture)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(HEAD)
    writer.add_block_count(1)
    writer.add_embedding_length(HEAD)
    writer.add_feed_forward_length(_FORWARD)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(_EPSILON)
    writer.add_rope_dimension_count(HEAD)
    keys = {"context_length": TOKENS, **case.keys}
    for key, value in keys.items():
        name = f"{case.architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_float32(name, value)
    ones, zeros = np.ones(HEAD, np.float32), np.zeros((_FORWARD, HEAD), np.float32)
    given = {name: value.astype(np.float32) for name, value in weights().items()}
    rows = 2 if case.architecture == "phi3" else 1
    tensors = {
        "token_embd.weight": given.pop("token_embd"),
        "output.weight": np.eye(HEAD, dtype=np.float32),
        "output_norm.weight": ones,
        "blk.0.attn_norm.weight": ones,
        "blk.0.ffn_norm.weight": ones,
        "blk.0.ffn_up.weight": np.concatenate([zeros] * rows),
        "blk.0.ffn_down.weight": np.ascontiguousarray(zeros.T),
        **{f"blk.0.{name}.weight": value for name, value in given.items()},
    }
    if rows == 1:
        tensors["blk.0.ffn_gate.weight"] = zeros
    for name in ("attn_q", "attn_k", "attn_v") if case.architecture == "qwen2" else ():
        tensors[f"blk.0.{name}.bias"] = np.zeros(HEAD, np.float32)
    tensors |= {name: np.array(row, np.float32) for name, row in case.tensors.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def run(path: Path, case: Case) -> Array:
    """Return the logits of every token, (tokens, HEAD), as llama.cpp computes them."""
    import llama_cpp as engine

    fields = dict.fromkeys(("n_ctx", "n_batch", "n_ubatch"), case.context)
    fields |= {"n_threads": 1, "n_threads_batch": 1, "offload_kqv": False, "op_offload": False}
    # Attention in plain float32, with a float32 cache.
    fields |= {"flash_attn_type": engine.LLAMA_FLASH_ATTN_TYPE_DISABLED, "type_k": 0, "type_v": 0}
    return decoded(path, tokens().tolist(), fields | case.settings, HEAD)


def decoded(path: Path, text: list[int], settings: dict[str, Any], vocabulary: int) -> Array:
    """Return llama.cpp's logits of every token of a text."""
    import llama_cpp as engine

    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)
    engine.llama_backend_init()
    model_settings = engine.llama_model_default_params()
    model_settings.n_gpu_layers = 0
    model = engine.llama_model_load_from_file(str(path).encode(), model_settings)
    assert model, "llama.cpp refused the file"
    context_settings = engine.llama_context_default_params()
    for name, value in settings.items():
        setattr(context_settings, name, value)
    context = engine.llama_init_from_model(model, context_settings)
    assert context, "llama.cpp refused the settings"
    batch = engine.llama_batch_init(len(text), 0, 1)
    try:
        batch.n_tokens = len(text)
        for index, token in enumerate(text):
            batch.token[index], batch.pos[index], batch.logits[index] = token, index, 1
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
        assert engine.llama_decode(context, batch) == 0
        logits = engine.llama_get_logits(context)
        row = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
        shape = (len(text), vocabulary)
        return np.ctypeslib.as_array(row, shape=shape).astype(np.float64)
    finally:
        engine.llama_batch_free(batch)
        engine.llama_free(context)
        engine.llama_model_free(model)


def forward(inv_freq: Array, amplitude: float, pairing: str) -> Array:
    """Return the same logits by NumPy in float64, for a rope given as numbers."""
    given = weights()
    x = given["token_embd"][tokens()]
    normed = _normed(x)
    angles = np.arange(TOKENS)[:, None] * inv_freq
    cos, sin = amplitude * np.cos(angles), amplitude * np.sin(angles)
    rope = Rope(head_dim=HEAD, pairing="half" if pairing == "half" else "adjacent")
    first, second = np.array([rope.lanes(plane) for plane in range(HEAD // 2)]).T

    def turned(name: str) -> Array:
        flat = normed @ given[name].T
        out = np.empty_like(flat)
        a, b = flat[:, first], flat[:, second]
        out[:, first], out[:, second] = a * cos - b * sin, a * sin + b * cos
        return out

    scores = turned("attn_q") @ turned("attn_k").T / HEAD**0.5
    scores[np.triu_indices(TOKENS, 1)] = -np.inf
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return _normed(x + shares @ (normed @ given["attn_v"].T) @ given["attn_output"].T)


def _normed(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + _EPSILON))


def effects(inv_freq: Array, amplitude: float, pairing: str, relative: float) -> Array:
    """Return by how much the logits change if one plane's frequency does, (planes,)."""
    exact = forward(inv_freq, amplitude, pairing)
    out = []
    for plane in range(len(inv_freq)):
        changed = inv_freq.copy()
        changed[plane] *= 1 + relative
        out.append(np.abs(forward(changed, amplitude, pairing) - exact).max())
    return np.array(out)


def allowed(inv_freq: Array, amplitude: float, pairing: str) -> float:
    """Return how far float32 may be from the exact logits, to first order.

    The kernel multiplies an angle up from plane to plane by one float32 power: plane p is off
    by 2 p + 6 units at most (power and product for each plane, then divisor, scale, blend and
    sum). Its effect is taken from a small change of that frequency. Besides, each of the seven
    sums in a row (two norms, q, k and v, scores, shares, output) is off by its length in units,
    and softmax by the size of a score.
    """
    small = 1e-6
    planes = np.arange(len(inv_freq))
    angle = float(
        (effects(inv_freq, amplitude, pairing, small) / small) @ ((2 * planes + 6) * _UNIT)
    )
    largest = np.abs(forward(inv_freq, amplitude, pairing)).max()
    return angle + float(7 * (HEAD + 16) * _UNIT * largest)
