"""The table of weight layouts: which tensors of a family hold queries and keys, and how.

A family is a row: where its attention lies in the names, and the form of each module there.
Names and forms of families in transformers were read from release 5.24.0, those of GGUF from
llama.cpp's converter (2026), the others from the code that travels with their checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..errors import InputError
from ..models import ModelPositions
from .row_orders import (
    CONCATENATED,
    GATED_QUERY,
    KEY,
    LATENT_KEY,
    PER_GROUP,
    PER_HEAD,
    QUARTERS,
    QUERY,
    Form,
)

_TEXT = r"(?:model\.|language_model\.|text_model\.)*layers\.(\d+)\."
_NORMS = {
    r"(?:q_norm|q_layernorm(?:\.norms\.\d+)?|query_layernorm)": QUERY,
    r"(?:k_norm|k_layernorm(?:\.norms\.\d+)?|key_layernorm)": KEY,
}


@dataclass(frozen=True)
class Layout:
    """Where queries and keys lie in a family's weights.

    Attributes:
        stem: pattern of names up to the attention's modules; its group is the layer.
        matrices: pattern of a module's name to the form of its rows.
        vectors: the same for vectors over the lanes (norms of queries and keys).
    """

    stem: str
    matrices: Mapping[str, Form]
    vectors: Mapping[str, Form] = field(default_factory=dict)


SEPARATE = Layout(_TEXT + r"self_attn\.", {"q_proj": QUERY, "k_proj": KEY}, _NORMS)
_GATED = Layout(_TEXT + r"self_attn\.", {"q_proj": GATED_QUERY, "k_proj": KEY}, _NORMS)
_LATENT = Layout(
    _TEXT + r"self_attn\.",
    {"(?:q_proj|q_b_proj)": QUERY, "kv_a_proj_with_mqa": LATENT_KEY},
)
_GGUF = Layout(
    r"blk\.(\d+)\.",
    {
        "(?:attn_q|attn_q_b)": QUERY,
        "attn_k": KEY,
        "attn_qkv": CONCATENATED,
        "attn_kv_a_mqa": LATENT_KEY,
    },
    {"attn_q_norm": QUERY, "attn_k_norm": KEY},
)
_GGUF_GATED = Layout(_GGUF.stem, {**_GGUF.matrices, "attn_q": GATED_QUERY}, _GGUF.vectors)
_ORIGINAL = Layout(
    r"layers\.(\d+)\.attention\.",
    {"wq": QUERY, "wk": KEY},
    {"q_norm": QUERY, "k_norm": KEY},
)


def _fused(stem: str, module: str, form: Form) -> Layout:
    return Layout(stem, {module: form}, _NORMS)


# fmt: off
LAYOUTS: dict[str, Layout] = {
    **dict.fromkeys(
        (
            "llama", "arcee", "apertus", "mistral", "ministral", "ministral3", "mixtral",
            "qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3", "qwen3_moe",
            "qwen3_vl_text", "qwen3_vl_moe_text", "gemma", "gemma2", "gemma3_text",
            "gemma3n_text", "gemma4_text", "phi", "phimoe", "olmo", "olmo2", "olmo3", "olmoe",
            "flex_olmo", "stablelm", "cohere", "cohere2", "smollm3", "llama4_text",
            "mllama_text_model", "granite", "granitemoe", "starcoder2", "falcon_h1", "glm",
            "glm4", "glm4_moe", "exaone4", "gpt_oss", "nanochat", "nemotron", "bitnet",
            "ernie4_5", "ernie4_5_moe", "seed_oss", "helium", "lfm2", "minicpm", "dots1",
            "minimax_m2", "hunyuan_v1_dense", "hunyuan_v1_moe", "glm4v_text", "lfm2_moe",
            "granitemoeshared", "vaultgemma", "hy_v3", "hyperclovax", "jais2", "aria_text",
            "solar_open", "cwm", "flint", "afmoe", "cohere2_moe", "exaone_moe", "kolibri1",
            "lara_mini", "beam", "granite_swa", "granitemoe_swa", "laguna", "mellum", "lfm3",
            "mimo_v2_flash", "minimax", "olmo_hybrid", "bamba", "granitemoehybrid",
            "apertus1p5_text", "glm_ocr_text", "glm4v_moe_text", "minimax_m3_vl_text",
        ),
        SEPARATE,
    ),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _GATED
    ),
    **dict.fromkeys(
        (
            "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "minicpm3", "youtu", "axk1",
            "mistral4",
        ),
        _LATENT,
    ),
    "gptj": Layout(
        r"(?:transformer\.)?h\.(\d+)\.attn\.", {"q_proj": QUERY, "k_proj": KEY}
    ),
    "codegen": _fused(r"(?:transformer\.)?h\.(\d+)\.attn\.", "qkv_proj", QUARTERS),
    "gpt_neox": _fused(
        r"(?:gpt_neox\.)?layers\.(\d+)\.attention\.", "query_key_value", PER_HEAD
    ),
    "gpt_neox_japanese": _fused(
        r"(?:gpt_neox_japanese\.)?layers\.(\d+)\.attention\.", "query_key_value", PER_HEAD
    ),
    "persimmon": _fused(_TEXT + r"self_attn\.", "query_key_value", PER_HEAD),
    "phi3": _fused(_TEXT + r"self_attn\.", "qkv_proj", CONCATENATED),
    "falcon": _fused(
        r"(?:transformer\.)?h\.(\d+)\.self_attention\.", "query_key_value", PER_GROUP
    ),
    "dbrx": _fused(
        r"(?:transformer\.)?blocks\.(\d+)\.norm_attn_norm\.attn\.", "Wqkv", CONCATENATED
    ),
    "modernbert": _fused(r"(?:model\.)?layers\.(\d+)\.attn\.", "Wqkv", CONCATENATED),
    "internlm2": _fused(r"(?:model\.)?layers\.(\d+)\.attention\.", "wqkv", PER_GROUP),
    "baichuan": _fused(_TEXT + r"self_attn\.", "W_pack", CONCATENATED),
    "chatglm": _fused(
        r"(?:transformer\.)?encoder\.layers\.(\d+)\.self_attention\.", "query_key_value",
        CONCATENATED,
    ),
    "qwen": _fused(r"(?:transformer\.)?h\.(\d+)\.attn\.", "c_attn", CONCATENATED),
}
"""Layouts of folders by ``model_type``."""

BY_FORMAT: dict[str, Layout] = {"gguf": _GGUF, "meta": _ORIGINAL, "mistral": _ORIGINAL}
"""Layouts of formats whose tensors have the same names in every family."""

GGUF_OTHERS: dict[str, Layout] = {"qwen3next": _GGUF_GATED, "qwen35": _GGUF_GATED}
"""GGUF architectures that lie otherwise."""

ROWS: frozenset[str] = frozenset(
    ("weight", "bias", "lora_B.weight", "lora_B.default.weight", "lora_magnitude_vector",
     "lora_magnitude_vector.weight", "lora_magnitude_vector.default.weight", "scales", "biases",
     "weight_scale")
)
"""Fields of a module whose rows are its outputs. ``scales`` and ``biases`` are MLX's groups."""

STAY: frozenset[str] = frozenset(
    ("lora_A.weight", "lora_A.default.weight", "input_scale", "input_global_scale")
)
"""Fields that are about a module's inputs."""
# fmt: on


@dataclass(frozen=True)
class Place:
    """What one tensor is: its layer, its form, whether a vector, and the field of its module."""

    layer: int
    form: Form
    kind: Literal["matrix", "vector"]
    field: str


class Names:
    """Tells from a tensor's name what it is.

    Raises:
        InputError: a family whose weights are not in the table.
    """

    def __init__(self, plan: ModelPositions) -> None:
        layout = layout_of(plan)
        self._patterns: list[tuple[re.Pattern[str], Form, Literal["matrix", "vector"]]] = []
        for modules, kind in ((layout.matrices, "matrix"), (layout.vectors, "vector")):
            for module, form in modules.items():
                pattern = rf"(?:base_model\.model\.)?{layout.stem}{module}\.(.+)"
                self._patterns.append(
                    (re.compile(pattern), form, "matrix" if kind == "matrix" else "vector")
                )

    def place(self, name: str) -> Place | None:
        """Return what a tensor is, or None if it is neither queries nor keys."""
        for pattern, form, kind in self._patterns:
            if match := pattern.fullmatch(name):
                return Place(int(match[1]), form, kind, match[2])
        return None


def layout_of(plan: ModelPositions) -> Layout:
    """Return where queries and keys lie in a model's weights.

    Raises:
        InputError: a family whose weights are not in the table.
    """
    layout = BY_FORMAT.get(plan.format)
    if plan.format == "gguf":
        layout = GGUF_OTHERS.get(plan.model_type, layout)
    elif layout is None:
        layout = LAYOUTS.get(plan.model_type)
    if layout is None:
        raise InputError(
            f"{plan.path}: model_type",
            found=repr(plan.model_type),
            expected="a family whose layout of query and key weights is known",
            fix="add its row to ropewalk's convert/layouts.py, or convert it in its own format",
        )
    return layout
