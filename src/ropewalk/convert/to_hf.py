"""Writers of configs of transformers, both generations, and of mlx-lm.

A config that the model was read from is kept, and only its rope keys are replaced. Without one
the sizes are written from the plan, for a family that is named or follows from the format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..models.families import FAMILIES, TRAINED_LENGTHS, WRAPPERS
from ..models.family import Family
from ..models.plan import LayerPositions, LogNTemperature, ModelPositions, QueryTemperature
from ..models.spellings import BLOCK_KEYS, BLOCKS, NESTED_TEXT, SPELLINGS, hint
from ..rope import Rope
from ..scaling import Linear, LongRoPE, Plain, Proportional, SteppedNTK
from .document import Options, Written
from .rope_block import rope_parameters

Block = dict[str, Any]

_DEFAULT_FAMILY: dict[str, str] = {
    "meta": "llama", "executorch": "llama", "torchchat": "llama", "litgpt": "llama",
    "mistral": "mistral", "gpt-oss": "gpt_oss", "deepseek": "deepseek_v3", "megatron": "llama",
    "gpt-neox": "gpt_neox", "nanotron": "llama", "maxtext": "llama", "olmo": "olmo",
}  # fmt: skip
_ARCHITECTURE_FAMILY: dict[str, str] = {
    "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "qwen3next": "qwen3_next",
    "gemma3": "gemma3_text", "gemma4": "gemma4_text", "gemma3n": "gemma3n_text",
    "deepseek2": "deepseek_v3", "gpt-oss": "gpt_oss", "command-r": "cohere",
    "llama4": "llama4_text",
    "gptneox": "gpt_neox", "glm4moe": "glm4_moe", "mistral3": "ministral3",
    "falcon-h1": "falcon_h1",
    "ernie4_5-moe": "ernie4_5_moe", "modern-bert": "modernbert",
}  # fmt: skip
"""GGUF architectures whose family of transformers has another name."""


def family_of(plan: ModelPositions, options: Options) -> str:
    """Return the ``model_type`` to write for.

    Raises:
        InputError: an unknown family, or none that follows from the plan.
    """
    name = options.family
    if name is None:
        if plan.format in ("hf", "mlx"):
            name = WRAPPERS.get(plan.model_type, plan.model_type)
        elif plan.format == "gguf":
            name = _ARCHITECTURE_FAMILY.get(plan.model_type, plan.model_type)
        else:
            name = _DEFAULT_FAMILY.get(plan.format)
            latent = any(la.rope is not None and la.rope.rotary_offset for la in plan.layers)
            if latent and (name is None or FAMILIES[name].latent is None):
                name = "deepseek_v3"
    if name not in FAMILIES:
        near = hint(str(name), list(FAMILIES))
        raise InputError(
            "--family",
            found=repr(name) if options.family else f"{plan.model_type!r} ({plan.format})",
            expected="a model_type of transformers",
            fix=f"did you mean {near!r}?" if near else "name one, e.g. --family llama",
        )
    return name


def write_hf(plan: ModelPositions, options: Options) -> Written:
    """Write ``rope_parameters``, as transformers 5 has them."""
    return _write(plan, options, _new_keys)


def write_hf4(plan: ModelPositions, options: Options) -> Written:
    """Write ``rope_theta`` and ``rope_scaling`` at the top, as transformers 4 had them."""
    return _write(plan, options, _old_keys)


def write_mlx(plan: ModelPositions, options: Options) -> Written:
    """Write the config of mlx-lm: the older keys, and ``rope_traditional`` for the pairing."""
    written = _write(plan, options, _old_keys)
    rope = plan.rope
    values: dict[str, Any] = json.loads(json.dumps(written.values))
    if rope is not None:
        _part(values)[1]["rope_traditional"] = rope.pairing == "adjacent"
    return Written(json.dumps(values, indent=2), values, written.notes)


def _part(values: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    for key in NESTED_TEXT:
        if isinstance(values.get(key), dict):
            return key, values[key]
    return None, values


def _write(plan: ModelPositions, options: Options, keys: Any) -> Written:
    name = family_of(plan, options)
    family = FAMILIES[name]
    if options.base is None or options.family is not None or plan.format not in ("hf", "mlx"):
        values: dict[str, Any] = {"model_type": name, **_sizes(plan, family)}
        owner, own = values, {}
    else:
        values = json.loads(json.dumps(options.base))
        owner = _part(values)[1]
        own = _model_keys(owner)
        for key in _rope_keys(family):
            owner.pop(key, None)
    found = blocks(plan, own)
    if family.partial is not None:
        # The family's own default would stand in for a share that is not written.
        for block in found.values():
            block.setdefault("partial_rotary_factor", 1.0)
    owner |= keys(found, family) | _family_switches(plan, family)
    if plan.stated_length is not None:
        _set(owner, family, "stated_length", plan.stated_length)
    return Written(json.dumps(values, indent=2), values)


def family_features(plan: ModelPositions, options: Options) -> frozenset[str]:
    """Return the `FEATURES` that only this family's code has, switched on by keys of its own."""
    family = FAMILIES[family_of(plan, options)]
    switches = {
        "dynamic scaling in steps": family.stepped_ntk,
        "log-n attention": family.log_n,
    }
    return frozenset(name for name, key in switches.items() if key is not None)


def _family_switches(plan: ModelPositions, family: Family) -> Block:
    out: Block = {}
    layers = plan.layers
    lengths: set[int | None] = set()
    if family.stepped_ntk is not None:
        ropes = [la.rope for la in layers if la.rope is not None]
        steps = [r.original_length for r in ropes if isinstance(r.scaling, SteppedNTK)]
        out[family.stepped_ntk] = bool(steps)
        lengths |= {*steps}
    if family.log_n is not None:
        found = [la.query_temperature for la in layers]
        tempered = [t.original_length for t in found if isinstance(t, LogNTemperature)]
        out[family.log_n] = bool(tempered)
        lengths |= {*tempered}
    for switch, path in TRAINED_LENGTHS.items():
        if out.get(switch) and len(lengths) == 1 and len(path) == 1:
            out[path[0]] = lengths.pop()
            break
    return out


def _set(owner: dict[str, Any], family: Family, concept: str, value: Any) -> None:
    """Write a value under the key that the config has already, or the family's own."""
    names = (*family.spellings.get(concept, ()), *SPELLINGS.get(concept, ()))
    present = [key for key in names if key in owner]
    for key in present or names[:1]:
        owner[key] = value


def _rope_keys(family: Family) -> set[str]:
    """Keys of a config that the written ones replace."""
    names = {*BLOCKS, "trained_length"}
    for concept in ("theta", "partial", "theta_ratio", "trained_length"):
        names |= {*SPELLINGS.get(concept, ()), *family.spellings.get(concept, ())}
    if family.local is not None:
        names |= set(family.local.keys)
    return names


def _model_keys(owner: Mapping[str, Any]) -> Block:
    """Return the keys of the old rope blocks that are the model's own, whatever the scaling."""
    kept: Block = {}
    for name in BLOCKS:
        block = owner.get(name)
        if not isinstance(block, Mapping):
            continue
        inner = [v for v in block.values() if isinstance(v, Mapping)]
        for values in inner or [block]:
            kept |= {k: v for k, v in values.items() if k in BLOCK_KEYS and BLOCK_KEYS[k].stays}
    kept.pop("llama_4_scaling_beta", None)  # written from the plan
    return kept


def share_of(rotary_dim: int, head_dim: int) -> float:
    """Return a share from which ``int(head_dim * share)`` gives the rotated lanes."""
    share = rotary_dim / head_dim
    while int(head_dim * share) < rotary_dim:
        share = math.nextafter(share, math.inf)
    return share


def block_of(rope: Rope) -> Block:
    """Return the block of transformers 5 for a rope.

    Raises:
        InputError: no ``rope_type`` gives these frequencies.
    """
    # A switch of the family's beside the block turns its steps on.
    stepped = isinstance(rope.scaling, SteppedNTK)
    out = rope_parameters(rope.with_scaling(Plain()) if stepped else rope)
    if out is None:
        raise InputError(
            "--to hf",
            found=f"scaling {rope.scaling.kind}",
            expected="one that a config of transformers can say",
            fix="choose another target",
        )
    scaling = rope.scaling
    if isinstance(scaling, Linear) and scaling.original_length is not None:
        out["original_max_position_embeddings"] = scaling.original_length
    if isinstance(scaling, LongRoPE):
        for name in ("short_mscale", "long_mscale"):
            if getattr(scaling, name) is not None:
                out[name] = getattr(scaling, name)
    if "partial_rotary_factor" in out and not isinstance(scaling, Proportional):
        out["partial_rotary_factor"] = share_of(rope.rotary_dim, rope.head_dim)
    return out


def blocks(plan: ModelPositions, own: Block | None = None) -> dict[str, Block]:
    """Return the block of every layer kind that rotates.

    Args:
        plan: the plan.
        own: keys of the model's own that every block keeps.
    """
    out: dict[str, Block] = {}
    for layer in plan.layers:
        if layer.rope is None or layer.kind in out:
            continue
        block = {**(own or {}), **block_of(layer.rope)}
        if isinstance(layer.query_temperature, QueryTemperature):
            block["llama_4_scaling_beta"] = layer.query_temperature.beta
        out[layer.kind] = block
    return out


def _one(found: Mapping[str, Block]) -> Block | None:
    """Return the block that all layer kinds share, or None."""
    distinct = list(found.values())
    return distinct[0] if distinct and all(b == distinct[0] for b in distinct) else None


def _new_keys(found: Mapping[str, Block], family: Family) -> Block:
    one = _one(found)
    if not found:
        return {}
    if one is not None and (family.local is None or len(found) == 1):
        return {"rope_parameters": one}
    names = family.block_names
    return {"rope_parameters": {names.get(kind, kind): block for kind, block in found.items()}}


def _old_keys(found: Mapping[str, Block], family: Family) -> Block:
    if not found:
        return {}
    kinds = list(found)
    local = [kind for kind in kinds if kind == "sliding_attention"]
    main = dict(found[next((kind for kind in kinds if kind not in local), kinds[0])])
    out: Block = {}
    _set(out, family, "theta", main.pop("rope_theta"))
    if "partial_rotary_factor" in main and main["rope_type"] != "proportional":
        _set(out, family, "partial", main.pop("partial_rotary_factor"))
    out["rope_scaling"] = None if main == {"rope_type": "default"} else main
    if local and family.local is not None and family.local.keys:
        out[family.local.keys[0]] = found[local[0]]["rope_theta"]
    return out


def _sizes(plan: ModelPositions, family: Family) -> Block:
    """Return the sizes of a config that is written anew."""
    rope = plan.rope
    heads = plan.heads
    if rope is None or heads is None:
        raise InputError(
            plan.path,
            found="no rope" if rope is None else "an unknown number of heads",
            expected="sizes that a config of transformers needs",
            fix="choose another target",
        )
    hidden = plan.sources.get("hidden_size")
    sizes: dict[str, Any] = {
        "hidden_size": heads * rope.head_dim if hidden is None else hidden.value,
        "heads": heads,
        "kv_heads": plan.kv_heads or heads,
        "layers": len(plan.layers),
    }
    if rope.rotary_offset and family.latent is not None:
        sizes |= {
            "plain_lanes": rope.rotary_offset,
            "rope_lanes": rope.rotary_dim,
            "value_dim": plan.value_dim,
        }
    else:
        sizes["head_dim"] = rope.head_dim
    out: Block = {}
    for concept, value in sizes.items():
        _set(out, family, concept, value)
    if family.pairing_switch is not None:
        out[family.pairing_switch] = rope.pairing == "adjacent"
    return out | _layer_keys(plan.layers, family)


def _layer_keys(layers: tuple[LayerPositions, ...], family: Family) -> Block:
    out: Block = {}
    kinds = [layer.kind for layer in layers]
    windows = {layer.window for layer in layers if layer.window is not None}
    if family.window is not None:
        _set(out, family, "window", max(windows) if windows else None)
        if family.window.switch is not None:
            out[family.window.switch] = bool(windows)
    if family.layers.form != "uniform":
        out["layer_types"] = kinds
    if family.no_rope == "listed":
        out["no_rope_layers"] = [int(layer.rope is not None) for layer in layers]
    if family.temperature == "layers_without_rope":
        tempered = next((la.query_temperature for la in layers if la.query_temperature), None)
        out["attn_temperature_tuning"] = tempered is not None
        if isinstance(tempered, QueryTemperature):
            out |= {"attn_scale": tempered.beta, "floor_scale": tempered.original_length}
    return out
