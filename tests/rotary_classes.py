"""Every rotary class of the installed transformers, and the configs that it is built from.

The classes are found in the source by name, without importing anything: those with Rotary,
RoPE or Rope in theirs.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAMED = re.compile(r"Rotary|RoPE|Rope")


def models_folder() -> Path:
    """The folder of transformers' models."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "models"


def rotary_classes() -> dict[str, list[str]]:
    """Model folder → its rotary classes, in the order of the source."""
    found: dict[str, list[str]] = {}
    for path in sorted(models_folder().glob("*/modeling_*.py")):
        names = re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
        rotary = [name for name in names if _NAMED.search(name)]
        if rotary:
            found.setdefault(path.parent.name, []).extend(rotary)
    return found


# Where the annotation of ``config`` is missing or names the outer config, although the class is
# given an inner one. The names are those of the code that builds the class.
_GIVEN: dict[str, tuple[str, ...]] = {
    "BltRotaryEmbedding": (
        "BltGlobalTransformerConfig",
        "BltLocalEncoderConfig",
        "BltLocalDecoderConfig",
        "BltPatcherConfig",
    ),
    "ClvpRotaryPositionalEmbedding": ("ClvpEncoderConfig",),
    "CsmRotaryEmbedding": ("CsmConfig", "CsmDepthDecoderConfig"),
    "DeepseekOcr2VisionRotaryEmbedding": ("DeepseekOcr2VisionEncoderConfig",),
    "DiaRotaryEmbedding": ("DiaEncoderConfig", "DiaDecoderConfig"),
    "Emu3RotaryEmbedding": ("Emu3TextConfig",),
    "EsmFold2RotaryEmbedding": ("EsmFold2AtomEncoderConfig",),
    "GlmAsrRotaryEmbedding": ("GlmAsrEncoderConfig",),
    "MiniMaxM3VLRotaryEmbedding": ("MiniMaxM3VLTextConfig",),
    "MimiRotaryEmbedding": ("MimiConfig", "MimiEncoderConfig", "MimiDecoderConfig"),
    "MuseGlimmerTextRotaryEmbedding": ("MuseGlimmerTextConfig",),
    "MuseSparkTextRotaryEmbedding": ("MuseSparkTextConfig",),
    "Nemotron3DiarizationRotaryEmbedding": ("Nemotron3DiarizationAudioConfig",),
    "Nemotron3_5TranscribeRotaryEmbedding": (
        "Nemotron3_5TranscribeAsrAudioConfig",
        "Nemotron3_5TranscribeWordTimestampConfig",
    ),
    "PaddleOCRRotaryEmbedding": ("PaddleOCRTextConfig",),
    "Qwen2VLRotaryEmbedding": ("Qwen2VLTextConfig",),
    "Qwen2_5_VLRotaryEmbedding": ("Qwen2_5_VLTextConfig",),
    "Qwen2_5OmniRotaryEmbedding": ("Qwen2_5OmniTextConfig", "Qwen2_5OmniTalkerConfig"),
    "Qwen3OmniMoeRotaryEmbedding": (
        "Qwen3OmniMoeTalkerCodePredictorConfig",
        "Qwen3OmniMoeCode2WavConfig",
    ),
    "Qwen3OmniMoeTalkerRotaryEmbedding": ("Qwen3OmniMoeTalkerTextConfig",),
    "SeamlessM4TConformerRotaryPositionalEmbedding": ("SeamlessM4TConfig",),
    "Step3p7RotaryEmbedding": ("Step3p7TextConfig",),
    "T5GemmaRotaryEmbedding": ("T5GemmaModuleConfig",),
    "T5Gemma2RotaryEmbedding": ("T5Gemma2TextConfig", "T5Gemma2DecoderConfig"),
    "VoxtralRealtimeRotaryEmbedding": (
        "VoxtralRealtimeTextConfig",
        "VoxtralRealtimeEncoderConfig",
    ),
    "Wav2Vec2BertRotaryPositionalEmbedding": ("Wav2Vec2BertConfig",),
    "Wav2Vec2ConformerRotaryPositionalEmbedding": ("Wav2Vec2ConformerConfig",),
}

# Values without which a default config has no rope, or makes no model.
NEEDED: dict[str, dict[str, Any]] = {
    "Glm4vTextConfig": {"partial_rotary_factor": 0.5},
    "GlmOcrTextConfig": {"head_dim": 128, "partial_rotary_factor": 0.5},
    "GlmImageTextConfig": {"partial_rotary_factor": 0.5},
    "Glm4vMoeTextConfig": {"head_dim": 128},
    "Glm4MoeConfig": {"head_dim": 128},
    "MllamaTextConfig": {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
    "CohereCompassTextConfig": {
        "rope_parameters": {
            "full_attention": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [24, 20, 20],
            }
        }
    },
    "Qwen3OmniMoeTextConfig": {"head_dim": 128},
    "Qwen3OmniMoeTalkerTextConfig": {"head_dim": 128},
    "HunYuanVLTextConfig": {
        "head_dim": 128,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [16, 16, 16, 16],
        },
    },
    "EsmConfig": {"position_embedding_type": "rotary"},
    "Wav2Vec2BertConfig": {"position_embeddings_type": "rotary"},
    "Wav2Vec2ConformerConfig": {"position_embeddings_type": "rotary"},
    "SeamlessM4TConfig": {"position_embeddings_type": "rotary"},
    "GraniteMoeHybridConfig": {
        "position_embedding_type": "rope",
        "layer_types": ["linear_attention", "full_attention"] * 16,
    },
    "Zamba2Config": {"use_mem_rope": True},
    "LagunaConfig": {"layer_types": ["full_attention", "sliding_attention"] * 20},
    "MellumConfig": {"layer_types": ["full_attention", "sliding_attention"] * 14},
    "ZayaConfig": {
        "layer_types": ["hybrid", "hybrid_sliding"] * 20,
        "sliding_window": 512,
    },
    "Step3p7TextConfig": {
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"] * 15,
        "rope_theta": [500000.0, 10000.0, 10000.0] * 15,
        "partial_rotary_factors": [0.5, 1.0, 1.0] * 15,
        "sliding_window": 512,
    },
    "DeepseekV4Config": {
        "layer_types": ["sliding_attention", "compressed_sparse_attention"] * 21
        + ["heavily_compressed_attention"],
    },
    # transformers computes no scaled frequencies where head_dim is None.
    **{
        name: {"head_dim": 128}
        for name in (
            "HunYuanDenseV1Config",
            "HunYuanMoEV1Config",
            "MiniMaxConfig",
            "MinistralConfig",
            "MixtralConfig",
        )
    },
    "BambaConfig": {"attn_layer_indices": [9, 18, 27]},
}

# Configs whose class has no model_type of its own: the row that its owner reads it by.
ROWS: dict[str, str] = {
    "SaProtConfig": "saprot",
    "Qwen3OmniMoeCode2WavConfig": "qwen3_omni_moe_code2wav",
    "EsmFold2AtomEncoderConfig": "esmfold2_atom_encoder",
}


@dataclass(frozen=True)
class Built:
    """A rotary class with one of its configs."""

    folder: str
    name: str
    config_name: str

    @property
    def modeling(self) -> Any:
        """The module that defines the class."""
        return importlib.import_module(f"transformers.models.{self.folder}.modeling_{self.folder}")

    @property
    def rotary(self) -> Any:
        """The class."""
        return getattr(self.modeling, self.name)

    @property
    def config_class(self) -> Any:
        """The class of its config."""
        name = f"transformers.models.{self.folder}.configuration_{self.folder}"
        return getattr(importlib.import_module(name), self.config_name)

    def config(self, **values: Any) -> Any:
        """The default config, with what it needs to have a rope."""
        return self.config_class(**{**NEEDED.get(self.config_name, {}), **values})

    def values(self, config: Any) -> dict[str, Any]:
        """What its config.json would hold, as the reader is given it."""
        made: dict[str, Any] = config.to_dict()
        made["model_type"] = ROWS.get(self.config_name, made.get("model_type"))
        return made


def _annotated(folder: str, name: str) -> str:
    """The config class that the first parameter of ``__init__`` is annotated with."""
    path = models_folder() / folder / f"modeling_{folder}.py"
    tree = ast.parse(path.read_text())
    bodies = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    init = next(
        node
        for node in bodies[name].body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    note = init.args.args[1].annotation
    assert note is not None, f"{folder}: {name} has no annotated config"
    return ast.unparse(note).strip("'\"")


@functools.cache
def built_classes() -> list[Built]:
    """Every rotary class with every config that it is built from."""
    out = []
    for folder, names in rotary_classes().items():
        for name in names:
            configs = _GIVEN.get(name) or (_annotated(folder, name),)
            out += [Built(folder, name, config) for config in configs]
    return out


def rotating_functions(module: Any) -> dict[str, Any]:
    """The functions of a modeling module that apply a rotation, by name."""
    return {
        name: found
        for name, found in vars(module).items()
        if callable(found)
        and not inspect.isclass(found)
        and (re.search(r"apply\w*rot|rotate_queries|multidimensional_rope|rotary_emb", name))
    }
