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
from ..models.families import FAMILIES
from .row_orders import (
    CONCATENATED,
    GATE_FIRST,
    GATED_QUERY,
    INDEX_KEY,
    INDEX_QUERY,
    KEY,
    KEY_VALUE,
    LATENT_KEY,
    LATENT_KEY_NORM,
    PER_GROUP,
    PER_HEAD,
    QUARTERS,
    QUERY,
    VALUE_GATED_QUERY,
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
        stem: pattern of names up to the attention's modules; its groups are the layer, as
            the two names of a checkpoint that transformers renames have it.
        matrices: pattern of a module's name to the form of its rows.
        vectors: the same for vectors over the lanes (norms of queries and keys).
        bare: the same for vectors that are no module's.
    """

    stem: str
    matrices: Mapping[str, Form]
    vectors: Mapping[str, Form] = field(default_factory=dict)
    bare: Mapping[str, Form] = field(default_factory=dict)


SEPARATE = Layout(_TEXT + r"self_attn\.", {"q_proj": QUERY, "k_proj": KEY}, _NORMS)
_GATED = Layout(_TEXT + r"self_attn\.", {"q_proj": GATED_QUERY, "k_proj": KEY}, _NORMS)
_LATENT = Layout(
    _TEXT + r"self_attn\.",
    {"(?:q_proj|q_b_proj)": QUERY, "kv_a_proj_with_mqa": LATENT_KEY},
)
# The indexer, which picks the tokens that are attended to, rotates lanes of its own. Where its
# code pairs them as the attention does, its rows move too.
_INDEXED = Layout(
    _LATENT.stem,
    {**_LATENT.matrices, r"indexer\.wq_b": INDEX_QUERY, r"indexer\.wk": INDEX_KEY},
    {r"indexer\.k_norm": INDEX_KEY, "k_rope_only_layernorm": LATENT_KEY_NORM},
)
# Where it always pairs halves, they stay.
_INDEXED_BY_HALVES = Layout(_LATENT.stem, _LATENT.matrices)
_NAMED_TWICE = Layout(
    r"(?:model\.|language_model\.)*layers\.(\d+)\.(?:attention|self_attn)\.",
    {
        "(?:wq|wq_b|q_proj|q_b_proj)": QUERY,
        "(?:wkv_a_with_mqa|kv_a_proj_with_mqa)": LATENT_KEY,
        r"indexer\.wq_b": INDEX_QUERY,
        r"indexer\.wk": INDEX_KEY,
    },
    {r"indexer\.k_norm": INDEX_KEY},
)
_BERT = Layout(r"(?:\w+\.)?encoder\.layer\.(\d+)\.attention\.self\.", {"query": QUERY, "key": KEY})
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
            "chameleon", "emu3_text_model", "doge", "diffllama", "granite_docling_text",
            "granite4_vision_text", "unlimited_ocr_text", "deepseek_ocr2_text",
            "openai_privacy_filter", "muse_glimmer_text",
            "muse_spark_text", "gemma4_unified_text",
            "embedding_gemma2_text", "step3p5", "glm_image_text",
            "paddleocr_vl_text", "qwen2_5_omni_text", "qwen2_5_omni_talker",
            "qwen3_omni_moe_text", "qwen3_omni_moe_talker_text", "cosmos3_edge_text",
            "cohere_compass_text", "ernie4_5_vl_moe_text", "eurobert", "csm",
            "t5gemma2_text",
            "csm_depth_decoder_model", "higgs_audio_v2",
            "voxtral_realtime_encoder",
            "pocket_tts", "glmasr_encoder", "lasr_encoder", "nemotron3_5_transcribe_asr_audio",
            "nemotron3_diarization_audio",
            "qwen3_omni_moe_talker_code_predictor",
            "neomme",
        ),
        SEPARATE,
    ),
    "dory": Layout(
        r"(?:model\.|backbone\.)?layers\.(\d+)\.self_attn", {r"\.q_proj": QUERY, r"\.k_proj": KEY},
        bare={r"\.sqk": QUERY},
    ),
    "ultrabert": Layout(
        r"(?:model\.|ultrabert\.)?layers\.(\d+)\.self_attn\.", SEPARATE.matrices
    ),
    "molmo2_text": Layout(
        r"(?:\w+\.)*(?:layers|blocks)\.(\d+)\.self_attn\.",
        {**SEPARATE.matrices, "att_proj": CONCATENATED}, _NORMS,
    ),
    "gte": Layout(
        r"(?:gte\.)?(?:encoder\.layer\.(\d+)\.attention|layers\.(\d+)\.self_attn)\.",
        {**SEPARATE.matrices, "qkv_proj": CONCATENATED},
    ),
    "jina_embeddings_v3": Layout(
        r"(?:roberta\.)?(?:encoder\.layers\.(\d+)\.mixer|layers\.(\d+)\.self_attn)\.",
        {**SEPARATE.matrices, "Wqkv": CONCATENATED},
    ),
    "nomic_bert": Layout(
        r"(?:nomic_bert\.)?(?:encoder\.layers\.(\d+)\.attn|layers\.(\d+)\.self_attn)\.",
        {**SEPARATE.matrices, "Wqkv": CONCATENATED},
    ),
    "esm": _BERT,
    "roformer": _BERT,
    "modernbert-decoder": Layout(r"(?:model\.)?layers\.(\d+)\.attn\.", SEPARATE.matrices),
    **dict.fromkeys(
        ("moshi", "kyutai_speech_to_text"),
        Layout(
            r"(?:model\.|decoder\.)*layers\.(\d+)\.self_attn\.",
            {r"q_proj\.linear": QUERY, r"k_proj\.linear": KEY},
        ),
    ),
    "recurrent_gemma": Layout(
        r"(?:model\.)?layers\.(\d+)\.temporal_block\.", SEPARATE.matrices
    ),
    "hrm_text": Layout(
        r"(?:model\.)?[LH]_module\.layers\.(\d+)\.(?:attn|self_attn)\.",
        {**SEPARATE.matrices, "gqkv_proj": GATE_FIRST},
    ),
    "esmc": Layout(
        r"(?:esmc\.|model\.)?layers\.(\d+)\.self_attn\.", SEPARATE.matrices, _NORMS
    ),
    "dia_encoder": Layout(r"(?:encoder\.)?layers\.(\d+)\.self_attention\.", SEPARATE.matrices),
    "jetmoe": Layout(
        r"(?:model\.)?layers\.(\d+)\.self_attention\.",
        {r"experts\.input_linear": QUERY, "kv_proj": KEY_VALUE},
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
    "longcat_flash": Layout(_TEXT + r"self_attn\.[01]\.", _LATENT.matrices),
    **dict.fromkeys(
        ("glm_moe_dsa", "dots3_note_text", "hy_v4", "hy_v4_vl_text"), _INDEXED
    ),
    "mistral_large4_text": _NAMED_TWICE,
    "bailing_hybrid": Layout(_NAMED_TWICE.stem, _LATENT.matrices),
    "deepseek_v32": _INDEXED_BY_HALVES,
    "axk2": Layout(
        _LATENT.stem,
        {"(?:q_b_proj|q_gate_proj)": VALUE_GATED_QUERY, "kv_a_proj_with_mqa": LATENT_KEY},
    ),
    "exaone": Layout(
        r"(?:transformer\.)?h\.(\d+)\.attn\.attention\.", {"q_proj": QUERY, "k_proj": KEY}
    ),
    "internlm3": SEPARATE,
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
    **dict.fromkeys(
        ("phi3", "phi4_multimodal"), _fused(_TEXT + r"self_attn\.", "qkv_proj", CONCATENATED)
    ),
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

INDEXED: frozenset[str] = frozenset(
    name
    for name, found in LAYOUTS.items()
    if any(module.startswith(r"indexer\.") for module in found.vectors)
)
"""Families whose indexer pairs lanes as its attention does."""

_BESIDE = "a part beside a language model: its own code pairs its lanes, and no file moves them"
_UNSEEN = "no run has shown where its queries and keys lie"
_HIDDEN = "it rotates hidden states before the projections: there are no rows of its own to move"
_ON_VALUES = "its keys are the values too: their order is also that of the columns that follow"

WITHOUT: dict[str, str] = {
    "zaya": "convolutions mix the lanes of queries and keys before they are rotated",
    "zamba2": "layers share one attention block, and each adds its own low-rank part",
    "deepseek_v4": _ON_VALUES,
    "diffusion_gemma_text": _ON_VALUES,
    "glm5_next_text": "it has no rope",
    "hunyuan_vl_text": "its lanes are not rotated in planes",
    "minicpmv": "its language model is of one of two families: convert that",
    **dict.fromkeys(
        ("wav2vec2-conformer", "wav2vec2-bert", "seamless_m4t"), _HIDDEN
    ),
    **dict.fromkeys(
        (
            "t5_gemma_module", "t5gemma2_decoder", "moonshine", "moonshine_streaming", "mimi",
            "mimi_encoder", "mimi_decoder", "pocket_tts_audio_tokenizer",
            "pocket_tts_audio_tokenizer_encoder", "pocket_tts_audio_tokenizer_decoder",
            "dia_decoder", "neucodec", "xcodec2", "evolla", "saprot", "idefics",
            "qwen4_exp_text", "gradium_phonon_tts", "voxtral_realtime_text",
            "blt_global_transformer", "blt_local_encoder", "blt_local_decoder", "blt_patcher",
            "timesfm2_5",
            "muse_glimmer_assistant", "nemotron3_5_transcribe_word_timestamp",
            "qwen2_5_omni_dit", "qwen3_omni_moe_code2wav", "pe_audio_encoder",
            "pe_audio_video_encoder", "pe_video_encoder", "clvp_encoder",
            "dots3_note_audio_encoder", "deepseek_ocr2_encoder", "iquestcoder", "sarvam_moe",
            "sarvam_mla",
        ),
        _UNSEEN,
    ),
    **dict.fromkeys(
        (name for name, family in FAMILIES.items() if family.axial is not None), _BESIDE
    ),
}
"""Families without a layout, and why."""

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
        for name, form in layout.bare.items():
            self._patterns.append((re.compile(f"{layout.stem}{name}()"), form, "vector"))

    def place(self, name: str) -> Place | None:
        """Return what a tensor is, or None if it is neither queries nor keys."""
        for pattern, form, kind in self._patterns:
            if match := pattern.fullmatch(name):
                layer, *_, part = (group for group in match.groups() if group is not None)
                return Place(int(layer), form, kind, part)
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
            expected="a family whose layout of query and key weights is known"
            + (f" ({reason})" if (reason := WITHOUT.get(plan.model_type)) else ""),
            fix="add its row to ropewalk's convert/layouts.py, or convert it in its own format",
        )
    return layout
