"""A rope as the rope block of transformers: its type, its keys, its base."""

from __future__ import annotations

from typing import Any

from ..rope import Rope
from ..scaling import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    NTKCritical,
    Plain,
    Proportional,
    YaRN,
)
from ..scaling.ntk import ntk_base

Block = dict[str, Any]


def changed_base(rope: Rope) -> float | None:
    """Return the base that alone makes ``rope`` from plain RoPE, or None if none does."""
    scaling = rope.scaling
    if isinstance(scaling, Plain):
        return rope.theta
    if isinstance(scaling, NTK):
        return ntk_base(rope.theta, scaling.factor, rope.rotary_dim)
    if isinstance(scaling, NTKCritical):
        return scaling.base(rope.theta)
    return None


def rope_parameters(rope: Rope) -> Block | None:
    """Return the ``rope_parameters`` of transformers 5 for a rope, or None if there are none.

    NTK and the critical-dimension rule are a larger ``rope_theta``. By-parts with the ramp in
    turns is ``llama3`` with ``beta_slow`` and ``beta_fast`` as its factors: the same formula.
    YaRN with the ramp in turns has no type of its own; ``longrope`` with one list of divisors
    for short and long texts and an explicit amplitude gives its frequencies.
    """
    out = _scaling_block(rope)
    # Latent attention rotates a slice at an offset; its config names the slice's size, and a
    # share of the head would halve it once more.
    if out is not None and rope.rotary_dim != rope.head_dim and not rope.rotary_offset:
        out["partial_rotary_factor"] = rope.rotary_dim / rope.head_dim
    return out


def _scaling_block(rope: Rope) -> Block | None:
    scaling = rope.scaling
    if (base := changed_base(rope)) is not None:
        return {"rope_type": "default", "rope_theta": base}
    # Factors are written as floats: vLLM 0.33 takes an integer one for a list.
    out: Block = {"rope_theta": rope.theta}
    match scaling:
        case Linear():
            out |= {"rope_type": "linear", "factor": float(scaling.factor)}
        case DynamicNTK():
            out |= {"rope_type": "dynamic", "factor": float(scaling.factor)}
        case Llama3():
            out |= {
                "rope_type": "llama3",
                "factor": float(scaling.factor),
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_length,
            }
        case NTKByParts() if scaling.ramp == "rotations":
            out |= {
                "rope_type": "llama3",
                "factor": float(scaling.factor),
                "low_freq_factor": scaling.beta_slow,
                "high_freq_factor": scaling.beta_fast,
                "original_max_position_embeddings": scaling.original_length,
            }
        case YaRN() if scaling.ramp == "rotations":
            plain = rope.with_scaling(Plain()).inv_freq()
            divisors = (plain / rope.inv_freq()).tolist()
            out |= {
                "rope_type": "longrope",
                "short_factor": divisors,
                "long_factor": divisors,
                "factor": float(scaling.factor),
                "attention_factor": scaling.amplitude(),
                "original_max_position_embeddings": scaling.original_length,
            }
        case YaRN() | NTKByParts():
            out |= _yarn_block(scaling)
        case LongRoPE():
            out |= {
                "rope_type": "longrope",
                "short_factor": list(scaling.short_factor),
                "long_factor": list(scaling.long_factor),
                "factor": float(scaling.factor),
                "original_max_position_embeddings": scaling.original_length,
            }
            if scaling.attention_factor is not None:
                out["attention_factor"] = scaling.attention_factor
        case Proportional():
            out |= {
                "rope_type": "proportional",
                "partial_rotary_factor": scaling.share,
                "factor": float(scaling.factor),
            }
        case _:
            return None
    return out


def _yarn_block(scaling: YaRN | NTKByParts) -> Block:
    out: Block = {
        "rope_type": "yarn",
        "factor": float(scaling.factor),
        "original_max_position_embeddings": scaling.original_length,
    }
    if isinstance(scaling, NTKByParts):
        out["attention_factor"] = 1.0
    else:
        for name in ("attention_factor", "mscale", "mscale_all_dim"):
            if (value := getattr(scaling, name)) is not None:
                out[name] = value
    for name, default in (("beta_fast", 32.0), ("beta_slow", 1.0), ("truncate", None)):
        if (value := getattr(scaling, name)) != default:
            out[name] = value
    return out
