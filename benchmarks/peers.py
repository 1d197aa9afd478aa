"""Other libraries' rotations, one row each; what each cannot do is in its row."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from .peer import Peer, importing
from .task import THETA, Pair, Prepared, RotationTask
from .usual import COMPILED, COMPLEX, EAGER, as_it_is


def _onnx() -> tuple[ModuleType, ModuleType]:
    return importing("onnx")(), importing("onnxruntime")()


def _onnx_session(modules: tuple[Any, Any], task: RotationTask, heads: int, tables: str) -> Any:
    """Return a session of one RotaryEmbedding; input (batch, tokens, heads · head_dim)."""
    onnx, ort = modules
    s, kind = task.shape, onnx.TensorProto.FLOAT
    half = s.head_dim // 2
    wide, narrow = (s.batch, s.tokens, heads * s.head_dim), (s.batch, s.tokens, half)
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node(
        "RotaryEmbedding",
        ["x", "cos", "sin"],
        ["y"],
        interleaved=int(task.pairing == "adjacent"),
        num_heads=heads,
    )
    graph = onnx.helper.make_graph(
        [node],
        f"rotary_{tables}",
        [value("x", kind, wide), value("cos", kind, narrow), value("sin", kind, narrow)],
        [value("y", kind, wide)],
    )
    opset = onnx.helper.make_opsetid("", 23)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    # Its workers may spin while it runs, but not into the next contestant's turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _onnx_runtime(modules: tuple[Any, Any], task: RotationTask) -> Prepared:
    # Everything is bound where it lies: no copy is charged.
    cos = task.cos.reshape(task.shape.batch, task.shape.tokens, -1).contiguous()
    sin = task.sin.reshape(task.shape.batch, task.shape.tokens, -1).contiguous()
    runs, out = [], task.cleared_out()
    for x, y, name in zip((task.q, task.k), out, "qk", strict=True):
        session = _onnx_session(modules, task, x.shape[2], name)
        binding = session.io_binding()
        flat = (*x.shape[:2], x.shape[2] * x.shape[3])
        for key, tensor, shape in (
            ("x", x, flat),
            ("cos", cos, cos.shape),
            ("sin", sin, sin.shape),
        ):
            binding.bind_input(key, "cpu", 0, np.float32, tuple(shape), tensor.data_ptr())
        binding.bind_output("y", "cpu", 0, np.float32, flat, y.data_ptr())
        runs.append((session.run_with_iobinding, binding))
    (run_q, binding_q), (run_k, binding_k) = runs

    # The bindings hold addresses only: what they point to is kept alive here.
    def call(_kept: Pair = (cos, sin)) -> Pair:
        run_q(binding_q)
        run_k(binding_k)
        return out

    return Prepared(call, as_it_is)


def _jax() -> ModuleType:
    # Said before it is imported: it would look for accelerators and warn.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    return importing("jax")()


def _jax_jit(jax: Any, task: RotationTask) -> Prepared:
    numpy = jax.numpy
    dtype = numpy.bfloat16 if task.dtype == torch.bfloat16 else numpy.float32
    q, k = (numpy.asarray(x.float().numpy()).astype(dtype) for x in (task.q, task.k))
    batched = task.cos.ndim == 3
    cos, sin = (
        numpy.asarray((t if batched else t[None])[:, :, None].numpy()) for t in (task.cos, task.sin)
    )
    adjacent = task.pairing == "adjacent"

    def turn(x: Any, cos: Any, sin: Any) -> Any:
        wide = x.astype(numpy.float32)
        if adjacent:
            a, b = wide[..., ::2], wide[..., 1::2]
            parts = numpy.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)
            return parts.reshape(x.shape).astype(x.dtype)
        a, b = numpy.split(wide, 2, axis=-1)
        parts = numpy.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
        return parts.astype(x.dtype)

    both = jax.jit(lambda q, k, cos, sin: (turn(q, cos, sin), turn(k, cos, sin)))
    wait = jax.block_until_ready
    return Prepared(
        lambda: wait(both(q, k, cos, sin)),
        lambda got: tuple(_from_numpy(x.astype(numpy.float32), task) for x in got),
    )


def _from_numpy(array: Any, task: RotationTask) -> torch.Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float32)).to(task.dtype)


def _rotary_embedding_torch(module: Any, task: RotationTask) -> Prepared:
    first = int(task.positions[0, 0])
    rows = first + task.shape.tokens
    embedding = module.RotaryEmbedding(
        task.shape.head_dim, theta=THETA, seq_before_head_dim=True, cache_max_seq_len=rows
    )
    q, k, rotate = task.q, task.k, embedding.rotate_queries_or_keys
    # As after a prefill: what it caches is there.
    rotate(torch.zeros(1, rows, 1, task.shape.head_dim, dtype=task.dtype))
    return Prepared(lambda: (rotate(q, offset=first), rotate(k, offset=first)), as_it_is)


def _x_transformers(module: Any, task: RotationTask) -> Prepared:
    embedding = module.RotaryEmbedding(task.shape.head_dim, base=THETA)
    freqs, scale = embedding(task.positions)
    # It wants (batch, heads, tokens, head_dim), and gets it without being charged.
    q, k = (x.transpose(1, 2).contiguous() for x in (task.q, task.k))
    rotate = module.apply_rotary_pos_emb
    return Prepared(
        lambda: (rotate(q, freqs, scale), rotate(k, freqs, scale)),
        lambda got: tuple(x.transpose(1, 2) for x in got),
    )


def _mlx() -> tuple[ModuleType, ModuleType]:
    core, fast = importing("mlx.core")(), importing("mlx.core.fast")()
    core.set_default_device(core.cpu)
    return core, fast


def _mlx_fast(modules: tuple[Any, Any], task: RotationTask) -> Prepared:
    mx, fast = modules
    dtype = mx.bfloat16 if task.dtype == torch.bfloat16 else mx.float32
    # It wants (batch, heads, tokens, head_dim), and gets it without being charged.
    q, k = (
        mx.array(x.transpose(1, 2).contiguous().float().numpy()).astype(dtype)
        for x in (task.q, task.k)
    )
    starts = mx.array(task.positions[:, 0].int().numpy())
    mx.eval(q, k, starts)
    offset = int(task.positions[0, 0]) if task.shape.batch == 1 else starts
    lanes, adjacent = task.shape.head_dim, task.pairing == "adjacent"

    def call() -> tuple[Any, Any]:
        got = tuple(
            fast.rope(x, lanes, traditional=adjacent, base=THETA, scale=1.0, offset=offset)
            for x in (q, k)
        )
        mx.eval(*got)
        return got

    return Prepared(
        call,
        lambda got: tuple(_from_numpy(x.astype(mx.float32), task).transpose(1, 2) for x in got),
    )


def _torchtune() -> ModuleType:
    """Load the one file that rotates: the package's own __init__ demands torchao."""
    spec = importlib.util.find_spec("torchtune")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("No module named 'torchtune'")
    path = Path(next(iter(spec.submodule_search_locations))) / "modules" / "position_embeddings.py"
    if not path.is_file():
        raise ImportError("torchtune has no modules/position_embeddings.py")
    alone = importlib.util.spec_from_file_location("torchtune_position_embeddings", path)
    if alone is None or alone.loader is None:
        raise ImportError(f"{path.name} cannot be loaded")
    module = importlib.util.module_from_spec(alone)
    alone.loader.exec_module(module)
    return module


def _torchtune_module(module: Any, task: RotationTask) -> Prepared:
    s = task.shape
    rows = int(task.positions.max()) + 1
    embedding = module.RotaryPositionalEmbeddings(s.head_dim, max_seq_len=rows, base=int(THETA))
    q, k, positions = task.q, task.k, task.positions
    if s.batch == 1 and int(positions[0, 0]) == 0:
        return Prepared(lambda: (embedding(q), embedding(k)), as_it_is)
    return Prepared(
        lambda: (embedding(q, input_pos=positions), embedding(k, input_pos=positions)), as_it_is
    )


ONNX_NAME = "ONNX Runtime"

PEERS = (
    EAGER,
    COMPILED,
    COMPLEX,
    Peer(
        ONNX_NAME,
        "RotaryEmbedding of opset 23, one model for q, one for k, buffers bound",
        _onnx,
        _onnx_runtime,
        package="onnxruntime",
        dtypes=(torch.float32,),
    ),
    Peer("JAX jit", "the two products and the sum, jit", _jax, _jax_jit, package="jax"),
    Peer(
        "rotary-embedding-torch",
        "rotate_queries_or_keys, cached angles",
        importing("rotary_embedding_torch"),
        _rotary_embedding_torch,
        package="rotary-embedding-torch",
        pairings=("adjacent",),
        own_angles=True,
        rows_apart=False,
    ),
    Peer(
        "x-transformers",
        "apply_rotary_pos_emb, angles given",
        importing("x_transformers.x_transformers"),
        _x_transformers,
        package="x-transformers",
        pairings=("adjacent",),
        own_angles=True,
    ),
    Peer(
        "MLX on CPU",
        "mx.fast.rope and mx.eval; takes no cos and sin",
        _mlx,
        _mlx_fast,
        package="mlx",
        own_angles=True,
    ),
    Peer(
        "torchtune",
        "RotaryPositionalEmbeddings, its one file loaded alone",
        _torchtune,
        _torchtune_module,
        package="torchtune",
        pairings=("adjacent",),
        own_angles=True,
    ),
)
"""All peers, in the order in which they are set up."""
