"""Hostile files: builders of headers that can lie, values that do not belong, and seeds.

Used by ``test_hostile.py`` and by ``recipes/fuzz_readers.py``. Everything is small on the disk.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

LAYOUTS = {
    "u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"),
    "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q"), "i64": (11, "<q"),
    "f64": (12, "<d"),
}  # fmt: skip
"""The scalar types of GGUF: number and layout."""

ESCAPES = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b1m\r\n\x00\x7f\u202e\u2028"
"""What must not reach a terminal raw: escapes, line ends, a C1 control, bidirectional text."""

NASTY: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63, 2**64,
    -(2**63), 10**18, 10**308, 10**400, -(10**400), 0.0, -0.0, 0.5, 1.5, -1.5, 1e-320,
    1e-30, 1e30, 1e300, 1.7976931348623157e308, math.nan, math.inf, -math.inf, "", " ",
    "0", "1", "-1", "1e999", "nan", "yarn", "default", "longrope", "null", "true", "llama",
    "%s%n{}", "../../../etc/passwd", "[bold]x[/nope]", "[/]", ESCAPES, "\ud800", "\ufeff",
    "x" * 5000, [], [[]], {}, {"": {}},
    [None], [0], [-1], [1.0], [math.nan], ["a"], [True], [{}], [1, 2, 3], [0.0] * 64, [1.0] * 64,
    [1.0] * 63, list(range(200)), {"rope_type": "yarn"}, {"type": "linear"},
    {"rope_type": ["yarn"]},
    {"rope_type": "yarn", "factor": 4.0}, {"factor": 0}, {"full_attention": None},
    {"full_attention": {"rope_type": "default", "rope_theta": "x"}}, {"rope_theta": [1]},
    {"0": {}, "1": []}, {ESCAPES: ESCAPES},
]  # fmt: skip
"""Values for places that expect another one."""


def nested(depth: int, kind: str = "list") -> str:
    """JSON text of this depth."""
    opening, closing = ("[", "]") if kind == "list" else ('{"a":', "}")
    return opening * depth + "1" + closing * depth


def gguf_text(text: str | bytes, *, length: int | None = None) -> bytes:
    """A string of GGUF; ``length`` is what it says, where it lies."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", errors="surrogatepass")
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def gguf_value(kind: str, value: Any) -> bytes:
    """A typed value: ``kind`` is a scalar's name, ``str``, or ``[name]`` for an array."""
    if kind == "str":
        return struct.pack("<I", 8) + gguf_text(value)
    if kind.startswith("["):
        inner = kind[1:-1]
        if inner == "str":
            body = b"".join(gguf_text(item) for item in value)
            return struct.pack("<IIQ", 9, 8, len(value)) + body
        number, layout = LAYOUTS[inner]
        body = b"".join(struct.pack(layout, item) for item in value)
        return struct.pack("<IIQ", 9, number, len(value)) + body
    number, layout = LAYOUTS[kind]
    return struct.pack("<I", number) + struct.pack(layout, value)


def gguf_tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    """An entry of the list of tensors."""
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return gguf_text(name) + sizes + struct.pack("<IQ", kind, offset)


def gguf(
    pairs: list[tuple[str, str, Any]],
    tensors: list[bytes] | None = None,
    *,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    data: bytes = b"\0" * 64,
) -> bytes:
    """A GGUF file; ``counts`` are (tensors, values) as the header says, where it lies."""
    entries = [gguf_text(key) + gguf_value(kind, value) for key, kind, value in pairs]
    entries_of = tensors or []
    said = counts or (len(entries_of), len(entries))
    head = b"GGUF" + struct.pack("<IQQ", version, *said) + b"".join(entries + entries_of)
    return head + b"\0" * (-len(head) % 32) + data


GGUF_PAIRS: list[tuple[str, str, Any]] = [
    ("general.architecture", "str", "llama"), ("general.name", "str", "a name"),
    ("llama.block_count", "u32", 4), ("llama.context_length", "u32", 8192),
    ("llama.embedding_length", "u32", 256), ("llama.attention.head_count", "u32", 8),
    ("llama.attention.head_count_kv", "u32", 2), ("llama.rope.dimension_count", "u32", 32),
    ("llama.rope.freq_base", "f32", 500000.0), ("tokenizer.ggml.tokens", "[str]", ["a", "b", "c"]),
]  # fmt: skip
"""A sound header."""


def safetensors(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file: the header's values or its text, and the length that it says."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "head_dim": 8,
    "max_position_embeddings": 4096, "rope_theta": 10000.0,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024,
    },
}  # fmt: skip
"""A sound config of transformers."""


def weights_of(config: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Header and data of the q and k weights of a small Llama."""
    hidden, dim = config["hidden_size"], config["head_dim"]
    header: dict[str, Any] = {}
    at = 0
    for layer in range(config["num_hidden_layers"]):
        for name, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads")):
            rows = config[heads] * dim
            size = 4 * rows * hidden
            header[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = {
                "dtype": "F32", "shape": [rows, hidden], "data_offsets": [at, at + size],
            }  # fmt: skip
            at += size
    values = [math.sin(index * 1.7) for index in range(at // 4)]
    return header, struct.pack(f"<{len(values)}f", *values)


SEEDS: dict[str, list[Any]] = {
    "hf": [
        LLAMA,
        {
            "model_type": "gemma3_text", "hidden_size": 64, "num_attention_heads": 2,
            "num_hidden_layers": 6, "num_key_value_heads": 1, "head_dim": 32,
            "sliding_window": 512, "max_position_embeddings": 32768, "rope_theta": 1e6,
            "rope_local_base_freq": 1e4, "sliding_window_pattern": 6,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        },
        {
            "model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 4, "num_hidden_layers": 2, "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8, "v_head_dim": 16, "max_position_embeddings": 163840,
            "rope_theta": 10000, "rope_interleave": True,
            "rope_scaling": {
                "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
                "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
            },
        },
        {
            "model_type": "qwen2_vl", "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 32768,
            "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            "vision_config": {"depth": 2, "embed_dim": 32, "num_heads": 2, "patch_size": 14},
        },
        {
            "model_type": "phi3", "hidden_size": 32, "num_attention_heads": 4,
            "num_hidden_layers": 2, "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
            "rope_scaling": {
                "type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [1.0, 2.0, 3.0, 4.0],
            },
        },
        {
            "model_type": "llama4_text", "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "num_hidden_layers": 4, "head_dim": 16,
            "max_position_embeddings": 1048576, "no_rope_layers": [1, 1, 1, 0],
            "attention_chunk_size": 8192, "attn_temperature_tuning": True, "floor_scale": 8192,
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            },
        },
        {
            "model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 4,
            "num_hidden_layers": 2, "rotary_pct": 0.25, "rotary_emb_base": 10000,
            "max_position_embeddings": 2048,
        },
        {
            "model_type": "gpt_oss", "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "num_hidden_layers": 2, "head_dim": 16,
            "sliding_window": 128, "max_position_embeddings": 131072,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 150000, "factor": 32.0, "beta_fast": 32.0,
                "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096,
            },
        },
        {
            "model_type": "llava", "text_config": {"model_type": "mistral", "hidden_size": 64,
            "num_attention_heads": 4, "num_hidden_layers": 2, "sliding_window": None,
            "max_position_embeddings": 4096}, "vision_config": {"model_type": "clip_vision_model"},
        },
        {
            "_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.30.0",
            "attention_head_dim": 32, "axes_dims_rope": [8, 12, 12], "num_attention_heads": 4,
            "num_layers": 2, "num_single_layers": 3, "in_channels": 64,
        },
        {
            "architecture": "eva02_base_patch14_448", "num_classes": 1000, "model_args": {},
            "pretrained_cfg": {"input_size": [3, 448, 448]},
        },
        {
            "model_type": "qwen", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "kv_channels": 16, "seq_length": 2048, "rotary_pct": 1.0,
            "rotary_emb_base": 10000, "max_position_embeddings": 8192, "use_dynamic_ntk": True,
            "use_logn_attn": True,
        },
    ],
    "params": [
        {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 256,
         "rope_theta": 500000.0, "use_scaled_rope": True},
        {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16,
         "hidden_dim": 128, "rope_theta": 1e6, "sliding_window": 4096, "norm_eps": 1e-5,
         "yarn": {"factor": 4, "original_max_position_embeddings": 8192, "beta": 32, "alpha": 1}},
        {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
         "head_dim": 16, "hidden_size": 128, "sliding_window": 128, "rope_theta": 150000.0,
         "initial_context_length": 4096, "rope_scaling_factor": 32.0, "rope_ntk_alpha": 1.0,
         "rope_ntk_beta": 32.0},
        {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_query_groups": 2, "rotary_percentage": 0.5,
         "rope_base": 10000, "rope_condense_ratio": 1, "block_size": 2048, "name": "x"},
        {"dim": 64, "n_layers": 2, "n_heads": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
         "v_head_dim": 8, "rope_factor": 40, "original_seq_len": 4096, "max_seq_len": 16384},
    ],
    "programs": [
        {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "seq_length": 2048,
         "rotary_base": 10000, "rotary_percent": 1.0, "position_embedding_type": "rope",
         "max_position_embeddings": 2048, "num_query_groups": 2},
        {"hidden-size": 64, "num-layers": 2, "num-attention-heads": 4, "seq-length": 2048,
         "max-position-embeddings": 2048, "pos-emb": "rotary", "rotary-pct": 0.25},
        {"base_emb_dim": 64, "base_num_query_heads": 4, "base_num_decoder_layers": 2,
         "head_dim": 16, "rope_max_timescale": 500000, "rope_type": "yarn", "rope_factor": 40,
         "max_position_embeddings": 163840, "original_max_position_embeddings": 4096},
        {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "rope_interleaved": False, "no_rope_layer": 4, "max_position_embeddings": 2048,
         "rope_theta": 10000.0},
        {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_sequence_length": 512, "rope": True,
         "alibi": False},
        {"class_name": "LlamaBackbone", "config": {"max_wavelength": 10000}},
    ],
    "fragment": [
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                          "original_max_position_embeddings": 32768}},
        {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "rope_theta": 500000.0,
                             "original_max_position_embeddings": 8192}},
    ],
    "text": [
        "llama-server -m model.gguf -c 16384 --rope-scaling yarn --rope-scale 4",
        (
            "vllm serve org/model --max-model-len 131072 --hf-overrides "
            '\'{"rope_parameters": {"rope_type": "yarn", "factor": 4.0, '
            '"original_max_position_embeddings": 32768}}\''
        ),
        (
            "python -m sglang.launch_server --model-path org/model --context-length 131072 "
            '--json-model-override-args \'{"rope_scaling": {"type": "linear", "factor": 2.0}}\''
        ),
        "FROM llama3\nPARAMETER num_ctx 32768\nPARAMETER rope_frequency_base 1e6\n",
        (
            "llama_model_loader: - kv 0: general.architecture str = llama\n"
            "llama_model_loader: - kv 5: llama.rope.freq_base f32 = 500000.000000\n"
            "llama_model_loader: - kv 6: llama.block_count u32 = 4\n"
            "llama_model_loader: - kv 7: llama.context_length u32 = 8192\n"
            "llama_model_loader: - kv 8: llama.attention.head_count u32 = 4\n"
            "llama_model_loader: - kv 9: llama.embedding_length u32 = 64\n"
        ),
        (
            "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
            "--seq-length 2048 --max-position-embeddings 2048 --position-embedding-type rope "
            "--rotary-base 10000 --rotary-percent 0.5"
        ),
    ],
    "gguf": [
        GGUF_PAIRS,
        [
            *[pair for pair in GGUF_PAIRS if "freq_base" not in pair[0]],
            ("llama.rope.freq_base", "f32", 10000.0), ("llama.rope.scaling.type", "str", "yarn"),
            ("llama.rope.scaling.factor", "f32", 4.0),
            ("llama.rope.scaling.original_context_length", "u32", 2048),
            ("llama.rope.scaling.attn_factor", "f32", 1.0),
        ],
        [
            ("general.architecture", "str", "gemma3"), ("gemma3.block_count", "u32", 4),
            ("gemma3.context_length", "u32", 32768), ("gemma3.embedding_length", "u32", 64),
            ("gemma3.attention.head_count", "[u32]", [4, 4, 2, 4]),
            ("gemma3.attention.head_count_kv", "[i32]", [1, 1, 1, 1]),
            ("gemma3.attention.key_length", "u32", 16),
            ("gemma3.attention.sliding_window", "u32", 512),
            ("gemma3.attention.sliding_window_pattern", "[bool]", [True, True, True, False]),
            ("gemma3.rope.freq_base", "f32", 1e6), ("gemma3.rope.freq_base_swa", "f32", 1e4),
        ],
        [
            ("general.architecture", "str", "qwen2vl"), ("qwen2vl.block_count", "u32", 2),
            ("qwen2vl.context_length", "u32", 32768), ("qwen2vl.embedding_length", "u32", 64),
            ("qwen2vl.attention.head_count", "u32", 4),
            ("qwen2vl.attention.head_count_kv", "u32", 2),
            ("qwen2vl.rope.freq_base", "f32", 1e6),
            ("qwen2vl.rope.dimension_sections", "[i32]", [2, 3, 3, 0]),
        ],
        [
            ("general.architecture", "str", "deepseek2"), ("deepseek2.block_count", "u32", 2),
            ("deepseek2.context_length", "u32", 163840), ("deepseek2.embedding_length", "u32", 64),
            ("deepseek2.attention.head_count", "u32", 4),
            ("deepseek2.attention.head_count_kv", "u32", 1),
            ("deepseek2.attention.key_length", "u32", 576),
            ("deepseek2.attention.value_length", "u32", 512),
            ("deepseek2.attention.key_length_mla", "u32", 192),
            ("deepseek2.attention.value_length_mla", "u32", 128),
            ("deepseek2.rope.dimension_count", "u32", 64), ("deepseek2.rope.freq_base", "f32", 1e4),
            ("deepseek2.rope.scaling.type", "str", "yarn"),
            ("deepseek2.rope.scaling.factor", "f32", 40.0),
            ("deepseek2.rope.scaling.original_context_length", "u32", 4096),
            ("deepseek2.rope.scaling.yarn_log_multiplier", "f32", 0.1),
        ],
    ],
}  # fmt: skip
"""Sound inputs of every kind that is read: values of JSON, texts, and pairs of GGUF."""
