"""litgpt 0.5.13: ``model.py``, ``build_rope_cache`` and ``GPT.rope_cache``.

It reads no config of transformers: models are named presets with ``rope_adjustments``. The rule
is what it computes from the values of the config under its own names.
"""

from __future__ import annotations

from . import formulas
from .config_classes import standardised
from .reading import Engine, Keys, LayerConfig, Reading, Rule
from .shared_rules import LINEAR, PLAIN, strict_llama3, truncates


def _find(layer: LayerConfig) -> Keys:
    return standardised(layer)


def _yarn(keys: Keys) -> Reading:
    factor, original = keys.need("factor"), keys.need_original()
    fast, slow = keys.need("beta_fast"), keys.need("beta_slow")
    mscale, all_dim = keys.get("mscale") or 0.0, keys.get("mscale_all_dim") or 0.0
    amplitude = 1.0
    if mscale and all_dim:
        amplitude = formulas.magnitude(factor, mscale) / formulas.magnitude(factor, all_dim)
    elif mscale or all_dim:
        amplitude = formulas.magnitude(factor, mscale or all_dim)
    notes = ["its blend is inverted: fast planes are interpolated, slow ones kept"]
    if not truncates(keys):
        notes.append("truncate is not handed on: it always rounds the range")
    if keys.get("attention_factor") is not None:
        notes.append("attention_factor is not read")
    frequencies = formulas.yarn(
        keys.theta,
        keys.dim,
        factor,
        original,
        fast=fast,
        slow=slow,
        top=keys.dim // 2 - 1,
        inverted=True,
    )
    softmax = formulas.magnitude(factor, all_dim) ** 2 if all_dim else 1.0
    return Reading(frequencies, amplitude, softmax, tuple(notes))


LITGPT = Engine(
    name="litgpt",
    version="0.5.13",
    source="model.py",
    evidence="run",
    find=_find,
    reads="no config: its rope_adjustments, given the config's values",
    rules={
        "default": PLAIN,
        "linear": LINEAR,
        "yarn": Rule(
            _yarn,
            "blend inverted, range limited to d/2 - 1, truncate not handed on; both betas "
            "required; amplitude 1 unless mscale or mscale_all_dim is there",
        ),
        "llama3": Rule(strict_llama3, "all four values required"),
    },
    otherwise="cannot: its rope_adjustments have no {kind}",
    length="block_size of the preset; its table grows with max_seq_length",
)
