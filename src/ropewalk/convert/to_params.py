"""Writers of the ``params.json`` of Meta and Mistral and of gpt-oss's original config."""

from __future__ import annotations

import json
from typing import Any

from ..errors import InputError
from ..models.plan import ModelPositions, QueryTemperature
from ..rope import Rope
from ..scaling import Llama3, Plain, YaRN
from .document import Options, Written

Block = dict[str, Any]


def main_rope(plan: ModelPositions, target: str) -> Rope:
    """Return the one rope of a plan, or refuse a plan without."""
    rope = plan.rope
    if rope is None:
        raise InputError(
            plan.path,
            found="no rotary embedding",
            expected="a model with rope",
            fix=f"there is nothing that {target} could say",
        )
    return rope


def _sizes(plan: ModelPositions, rope: Rope) -> Block:
    hidden = plan.sources.get("hidden_size")
    out: Block = {"n_layers": len(plan.layers)}
    if plan.heads is not None:
        out |= {
            "dim": plan.heads * rope.head_dim if hidden is None else hidden.value,
            "n_heads": plan.heads,
            "n_kv_heads": plan.kv_heads or plan.heads,
        }
    return out


def _json(values: Block) -> Written:
    return Written(json.dumps(values, indent=2), values)


def _without_rope_every(plan: ModelPositions, target: str) -> int | None:
    """Return N where every Nth layer has no rope, or refuse another pattern."""
    flags = [layer.rope is None for layer in plan.layers]
    if not any(flags):
        return None
    every = flags.index(True) + 1
    if flags != [(index + 1) % every == 0 for index in range(len(flags))]:
        raise InputError(
            f"--to {target}",
            found="layers without rope at " + ", ".join(
                str(index) for index, flag in enumerate(flags[:99]) if flag
            ),
            expected="every Nth layer, which is all that the format can say",
            fix="choose another target, e.g. hf",
        )  # fmt: skip
    return every


def write_meta(plan: ModelPositions, _options: Options) -> Written:
    """Write Meta's ``params.json``. Its heads are dim / n_heads wide: sizes say the head."""
    rope = main_rope(plan, "meta")
    out = _sizes(plan, rope)
    if plan.heads is not None:
        # Meta's code has no head_dim: dim / n_heads is the head.
        out["dim"] = plan.heads * rope.head_dim
    out["rope_theta"] = rope.theta
    scaling = rope.scaling
    out["use_scaled_rope"] = isinstance(scaling, Llama3)
    if isinstance(scaling, Llama3):
        out["rope_scaling_factor"] = scaling.factor
        out["rope_high_freq_factor"] = scaling.high_freq_factor
    every = _without_rope_every(plan, "meta")
    if every is not None:
        out["nope_layer_interval"] = every
        tempered = next((la.query_temperature for la in plan.layers if la.query_temperature), None)
        if isinstance(tempered, QueryTemperature):
            out |= {
                "attn_temperature_tuning": True,
                "attn_scale": tempered.beta,
                "floor_scale": tempered.original_length,
            }
    chunk = next((la.window for la in plan.layers if la.window is not None), None)
    if chunk is not None:
        out["attention_chunk_size"] = chunk
    return _json(out)


def write_mistral(plan: ModelPositions, _options: Options) -> Written:
    """Write Mistral's ``params.json``."""
    rope = main_rope(plan, "mistral")
    out = _sizes(plan, rope)
    out["head_dim"] = rope.head_dim
    out["rope_theta"] = rope.theta
    if rope.rotary_offset:
        out |= {
            "qk_nope_head_dim": rope.rotary_offset,
            "qk_rope_head_dim": rope.rotary_dim,
            "v_head_dim": plan.value_dim,
        }
    if plan.stated_length is not None:
        out["max_position_embeddings"] = plan.stated_length
    window = next((la.window for la in plan.layers if la.window is not None), None)
    if window is not None:
        out["sliding_window"] = window
    scaling = rope.scaling
    if isinstance(scaling, YaRN):
        out["yarn"] = {
            "factor": scaling.factor,
            "original_max_position_embeddings": scaling.original_length,
            "beta": scaling.beta_fast,
            "alpha": scaling.beta_slow,
            "apply_scale": scaling.amplitude() != 1 or scaling.factor == 1,
        }
    tempered = next((la.query_temperature for la in plan.layers if la.query_temperature), None)
    if isinstance(tempered, QueryTemperature):
        out["llama_4_scaling"] = {
            "beta": tempered.beta,
            "original_max_position_embeddings": tempered.original_length,
        }
    return _json(out)


def write_gpt_oss(plan: ModelPositions, _options: Options) -> Written:
    """Write gpt-oss's original config; its length is always factor x original length."""
    rope = main_rope(plan, "gpt-oss")
    scaling = rope.scaling
    if not isinstance(scaling, Plain | YaRN) or scaling.original_length is None:
        raise InputError(
            "--to gpt-oss",
            found=f"{scaling!r}",
            expected="a rope with a known original length",
            fix="choose another target, e.g. hf",
        )
    hidden = plan.sources.get("hidden_size")
    out: Block = {"num_hidden_layers": len(plan.layers), "head_dim": rope.head_dim}
    if plan.heads is not None:
        out |= {
            "hidden_size": plan.heads * rope.head_dim if hidden is None else hidden.value,
            "num_attention_heads": plan.heads,
            "num_key_value_heads": plan.kv_heads or plan.heads,
        }
    window = next((la.window for la in plan.layers if la.window is not None), None)
    if window is not None:
        out["sliding_window"] = window
    out |= {
        "initial_context_length": scaling.original_length,
        "rope_theta": rope.theta,
        "rope_scaling_factor": scaling.stretch,
    }
    if isinstance(scaling, YaRN):
        out |= {"rope_ntk_alpha": scaling.beta_slow, "rope_ntk_beta": scaling.beta_fast}
    return _json(out)
