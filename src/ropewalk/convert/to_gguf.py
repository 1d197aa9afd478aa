"""Writer of GGUF metadata: the keys of an architecture, as a listing or patched into a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..models.gguf_families import ARCHITECTURES, Architecture
from ..models.plan import ModelPositions, QueryTemperature
from ..models.spellings import hint
from ..rope import Rope
from ..scaling import Linear, YaRN
from .document import Options, Written
from .to_params import main_rope

_OF_FAMILY: dict[str, str] = {
    "gemma3_text": "gemma3", "gemma3n_text": "gemma3n", "gemma4_text": "gemma4",
    "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "qwen3_next": "qwen3next",
    "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "kimi_k2": "deepseek2",
    "gpt_oss": "gpt-oss", "cohere": "command-r", "gpt_neox": "gptneox", "glm4_moe": "glm4moe",
    "ministral3": "mistral3", "llama4_text": "llama4", "mistral": "llama", "mixtral": "llama",
    "falcon_h1": "falcon-h1", "phi": "phi2", "modernbert": "modern-bert", "meta": "llama",
    "executorch": "llama", "torchchat": "llama", "nanotron": "llama", "deepseek": "deepseek2",
    "gpt-neox": "gptneox",
}  # fmt: skip
"""Families of transformers, and formats, whose architecture has another name."""

Keys = dict[str, Any]


def architecture_of(plan: ModelPositions, options: Options) -> str:
    """Return the architecture to write keys for.

    Raises:
        InputError: none that is known.
    """
    name = options.family or plan.model_type
    name = _OF_FAMILY.get(name, name)
    if name not in ARCHITECTURES:
        near = hint(name, list(ARCHITECTURES))
        raise InputError(
            "--family",
            found=repr(name),
            expected="an architecture of GGUF files that is known",
            fix=f"did you mean {near!r}?" if near else "name one, e.g. --family llama",
        )
    return name


def write_gguf_keys(plan: ModelPositions, options: Options) -> Written:
    """Write the keys as a listing, one ``key = value`` a line.

    ``values`` holds them without the architecture's prefix, those to be removed as None.
    """
    name = architecture_of(plan, options)
    keys = _keys(plan, ARCHITECTURES[name])
    lines = [f"general.architecture = {json.dumps(name)}"]
    lines += [f"{name}.{key} = {json.dumps(v)}" for key, v in keys.items() if v is not None]
    return Written("\n".join(lines), keys)


def _keys(plan: ModelPositions, architecture: Architecture) -> Keys:
    rope = main_rope(plan, "gguf-kv")
    out: Keys = {"block_count": len(plan.layers), "context_length": plan.stated_length}
    linear = [la.kind == "linear_attention" for la in plan.layers]
    none = [la.kind == "no_attention" for la in plan.layers]
    heads = plan.kv_heads
    out["attention.head_count"] = plan.heads
    out["attention.head_count_kv"] = [0 if off else heads for off in none] if any(none) else heads
    if any(linear):
        out["attention.recurrent_layers"] = linear
    latent = "_mla" if rope.rotary_offset else ""
    out[f"attention.key_length{latent}"] = rope.head_dim
    out[f"attention.value_length{latent}"] = plan.value_dim
    halved = 2 if architecture.halved_full else 1
    out["rope.dimension_count"] = rope.rotary_dim * halved
    out["rope.freq_base"] = float(rope.theta)
    out |= _scaling(rope, architecture) | _windows(plan, architecture, rope)
    tempered = next(
        (la.query_temperature for la in plan.layers if la.query_temperature and la.rope), None
    )
    if isinstance(tempered, QueryTemperature):
        out["attention.temperature_scale"] = tempered.beta
        out["attention.temperature_length"] = tempered.original_length
    return out


def _scaling(rope: Rope, architecture: Architecture) -> Keys:
    scaling = rope.scaling
    out: Keys = dict.fromkeys(
        (
            "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
            "rope.scaling.original_context_length", "rope.scaling.attn_factor",
            "rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_beta_fast",
            "rope.scaling.yarn_beta_slow",
        )
    )  # fmt: skip
    if isinstance(scaling, Linear | YaRN):
        out["rope.scaling.type"] = scaling.kind
        out["rope.scaling.factor"] = float(scaling.factor)
        out["rope.scaling.original_context_length"] = scaling.original_length
    if not isinstance(scaling, YaRN):
        return out
    if architecture.betas:
        out["rope.scaling.yarn_beta_fast"] = float(scaling.beta_fast)
        out["rope.scaling.yarn_beta_slow"] = float(scaling.beta_slow)
    slope = scaling.mscale_all_dim
    if slope and architecture.log_multiplier:
        out["rope.scaling.yarn_log_multiplier"] = slope * architecture.log_multiplier
    # The engine's own amplitude follows from the factor and the slope; the rest is multiplied on.
    own = YaRN(
        factor=scaling.factor,
        original_length=scaling.original_length,
        mscale=(slope if architecture.latent else 1.0) if architecture.log_multiplier else None,
        mscale_all_dim=slope if architecture.log_multiplier else None,
    ).amplitude()
    if scaling.amplitude() != own:
        out["rope.scaling.attn_factor"] = scaling.amplitude() / own
    return out


def _windows(plan: ModelPositions, architecture: Architecture, rope: Rope) -> Keys:
    local = [la for la in plan.layers if la.kind == "sliding_attention"]
    if not local:
        return {"attention.sliding_window": 0 if architecture.chunk else None}
    window = next((la.window for la in local if la.window is not None), None)
    out: Keys = {
        "attention.sliding_window": (window - 1) * 2
        if architecture.symmetric and window is not None
        else window,
        "attention.sliding_window_pattern": [la.window is not None for la in plan.layers],
    }
    inner = next((la.rope for la in local if la.rope is not None), None)
    if inner is not None:
        # Always: some architectures have another default for windowed layers.
        out["rope.freq_base_swa"] = float(inner.theta)
    if inner is not None and inner.head_dim != rope.head_dim:
        out["attention.key_length_swa"] = inner.head_dim
        out["attention.value_length_swa"] = inner.head_dim
    if inner is not None and inner.rotary_dim != rope.rotary_dim:
        out["rope.dimension_count_swa"] = inner.rotary_dim
    return out


def write_gguf_copy(source: Path, target: Path, keys: Keys) -> None:
    """Write a copy of a GGUF file with the rope keys of a conversion in its header.

    Only keys about the rope are changed; sizes, which describe the tensors, stay.

    Raises:
        InputError: the target exists, or the source is damaged.
    """
    from .gguf_patch import patched_copy

    patched_copy(source, target, {k: v for k, v in keys.items() if _about_rope(k)})


def _about_rope(key: str) -> bool:
    if key.startswith("rope.dimension"):
        return False
    return key.startswith(("rope.", "attention.temperature")) or key == "context_length"
