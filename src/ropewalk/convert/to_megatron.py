"""Writer of Megatron's arguments."""

from __future__ import annotations

import shlex
from typing import Any

from ..models.plan import ModelPositions
from ..rope import Rope
from ..scaling import Linear, Llama3, YaRN
from .document import Options, Written
from .to_hf import share_of
from .to_params import main_rope


def write_megatron(plan: ModelPositions, _options: Options) -> Written:
    """Write flags; a JSON object of the same arguments is in ``values``."""
    rope = main_rope(plan, "megatron")
    arguments: dict[str, Any] = {"num_layers": len(plan.layers)}
    hidden = plan.sources.get("hidden_size")
    if plan.heads is not None:
        arguments |= {
            "hidden_size": plan.heads * rope.head_dim if hidden is None else hidden.value,
            "num_attention_heads": plan.heads,
            "num_query_groups": plan.kv_heads or plan.heads,
        }
    if plan.stated_length is not None:
        arguments["max_position_embeddings"] = plan.stated_length
    arguments |= _rope(plan, rope) | _scaling(rope) | _layers(plan)
    words = []
    for name, value in arguments.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not False:
            words += [flag, shlex.quote(str(value))]
    return Written(" ".join(words), arguments)


def _rope(plan: ModelPositions, rope: Rope) -> dict[str, Any]:
    yarn = isinstance(rope.scaling, YaRN)
    out: dict[str, Any] = {"position_embedding_type": "yarn" if yarn else "rope"}
    out["rotary_base"] = rope.theta
    if rope.rotary_offset:
        out |= {
            "multi_latent_attention": True,
            "qk_head_dim": rope.rotary_offset,
            "qk_pos_emb_head_dim": rope.rotary_dim,
            "v_head_dim": plan.value_dim,
        }
        # Latent attention has YaRN unless another type is named.
        out |= {"position_embedding_type": "rope", "rope_type": "yarn" if yarn else "rope"}
        return out
    out |= {
        "kv_channels": rope.head_dim,
        "rotary_percent": share_of(rope.rotary_dim, rope.head_dim),
        "rotary_interleaved": rope.pairing == "adjacent",
    }
    return out


def _scaling(rope: Rope) -> dict[str, Any]:
    scaling = rope.scaling
    if isinstance(scaling, Linear):
        return {"rotary_seq_len_interpolation_factor": int(scaling.factor)}
    if isinstance(scaling, Llama3):
        return {"use_rope_scaling": True, "rope_scaling_factor": scaling.factor}
    if isinstance(scaling, YaRN):
        both = bool(scaling.mscale and scaling.mscale_all_dim)
        return {
            "rotary_scaling_factor": scaling.factor,
            "yarn_original_max_position_embeddings": scaling.original_length,
            "yarn_beta_fast": scaling.beta_fast,
            "yarn_beta_slow": scaling.beta_slow,
            "mscale": scaling.mscale if both else 1.0,
            "mscale_all_dim": scaling.mscale_all_dim if both else 0.0,
        }
    return {}


def _layers(plan: ModelPositions) -> dict[str, Any]:
    out: dict[str, Any] = {}
    window = next((la.window for la in plan.layers if la.window is not None), None)
    if window is not None:
        out["window_size"] = f"{window - 1},0"
        full = [la.index for la in plan.layers if la.window is None]
        if full:
            out["window_attn_skip_freq"] = full[0] + 1
    flags = [int(la.rope is None) for la in plan.layers]
    if any(flags):
        out["no_rope_freq"] = "[" + ",".join(map(str, flags)) + "]"
    return out
