"""Writers of engine settings: what to give vLLM, SGLang or llama.cpp beside the model."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from ..errors import InputError
from ..models.engine_apply import apply_numbers, merge_overrides
from ..models.engine_settings import read_settings
from ..models.hf import read_config
from ..models.plan import ModelPositions
from ..models.spellings import NESTED_TEXT
from ..rope import Rope
from ..scaling import Linear, Plain, YaRN
from .document import Options, Written
from .rope_block import changed_base
from .to_hf import write_hf, write_hf4
from .to_params import main_rope


def _overrides(plan: ModelPositions, options: Options, *, old: bool) -> dict[str, Any]:
    """Return the keys of the model's config that are to be replaced, nested as they stand."""
    written = write_hf4(plan, options) if old else write_hf(plan, options)
    values: Any = written.values
    nested = next((key for key in NESTED_TEXT if isinstance(values.get(key), dict)), None)
    part = values if nested is None else values[nested]
    names = ("rope_theta", "partial_rotary_factor", "rope_scaling", "rope_parameters")
    out = {name: part[name] for name in names if name in part}
    return out if nested is None else {nested: out}


def write_vllm(plan: ModelPositions, options: Options) -> Written:
    """Write ``--hf-overrides`` and ``--max-model-len``."""
    overrides = _overrides(plan, options, old=False)
    words = f"--hf-overrides {shlex.quote(json.dumps(overrides))}"
    if plan.stated_length is not None:
        words += f" --max-model-len {plan.stated_length}"
    return Written(words, overrides)


def write_sglang(plan: ModelPositions, options: Options) -> Written:
    """Write ``--json-model-override-args`` and ``--context-length``."""
    overrides = _overrides(plan, options, old=True)
    words = f"--json-model-override-args {shlex.quote(json.dumps(overrides))}"
    if plan.stated_length is not None:
        words += f" --context-length {plan.stated_length}"
    return Written(words, overrides)


def read_overrides(written: Written, plan: ModelPositions, options: Options) -> ModelPositions:
    """Return the plan that an engine makes of the unstretched model with these overrides."""
    base = write_hf(_unstretched(plan), options).values
    config, _ = merge_overrides(base, written.values, "overrides")
    return read_config(config, plan.path)


def write_llama_cpp(plan: ModelPositions, _options: Options) -> Written:
    """Write llama.cpp's flags. They reach the layers without a window only."""
    rope = main_rope(plan, "llama.cpp")
    words = [] if plan.stated_length is None else ["-c", str(plan.stated_length)]
    words += _flags(rope)
    return Written(" ".join(words))


def _flags(rope: Rope) -> list[str]:
    scaling = rope.scaling
    base = changed_base(rope)
    out = ["--rope-freq-base", f"{rope.theta if base is None else base:.9g}"]
    if isinstance(scaling, Linear):
        return [*out, "--rope-scaling", "linear", "--rope-scale", f"{scaling.factor:.9g}"]
    if not isinstance(scaling, YaRN):
        return [*out, "--rope-scaling", "none"]
    out += ["--rope-scaling", "yarn", "--rope-scale", f"{scaling.factor:.9g}"]
    out += ["--yarn-orig-ctx", str(scaling.original_length)]
    if (scaling.beta_fast, scaling.beta_slow) != (32.0, 1.0):
        out += ["--yarn-beta-fast", f"{scaling.beta_fast:.9g}"]
        out += ["--yarn-beta-slow", f"{scaling.beta_slow:.9g}"]
    return out


def read_llama_cpp(written: Written, plan: ModelPositions, _options: Options) -> ModelPositions:
    """Return the plan that llama.cpp makes of the unstretched model with these flags."""
    settings = read_settings(written.text, "flags")
    if settings is None:
        raise InputError(
            "--to llama.cpp", found="no flags", expected="flags", fix="report this as a bug"
        )
    return apply_numbers(_unstretched(plan), settings)


def _unstretched(plan: ModelPositions) -> ModelPositions:
    """Return the plan with plain ropes in the layers that settings reach."""

    def plain(rope: Rope) -> Rope:
        scaling = rope.scaling
        return rope.with_scaling(Plain(original_length=scaling.original_length))

    layers = tuple(
        layer
        if layer.rope is None or layer.kind == "sliding_attention"
        else dataclasses.replace(layer, rope=plain(layer.rope))
        for layer in plan.layers
    )
    return dataclasses.replace(plan, layers=layers)
