"""torchtitan 0.3.0: ``models/common/rope.py``.

It reads no config: its models are presets in Python. The rule is what its rope modules compute
when they are given the values of the config.
"""

from __future__ import annotations

from . import formulas
from .config_classes import standardised
from .reading import Engine, Keys, LayerConfig, Reading, Rule
from .shared_rules import PLAIN, lenient_llama3, truncates


def _find(layer: LayerConfig) -> Keys:
    return standardised(layer)


def _yarn(keys: Keys) -> Reading:
    factor = keys.need("factor")
    original = 4096.0 if keys.original is None else keys.original
    if factor <= 1:
        return Reading(formulas.ladder(keys.theta, keys.dim))
    frequencies = formulas.yarn(
        keys.theta,
        keys.dim,
        factor,
        original,
        fast=keys.given("beta_fast", 32.0),
        slow=keys.given("beta_slow", 1.0),
        truncate=truncates(keys),
    )
    note = "no amplitude on cos and sin: its models put it into the softmax scale, if at all"
    return Reading(frequencies, notes=(note,))


TORCHTITAN = Engine(
    name="torchtitan",
    version="0.3.0",
    source="models/common/rope.py",
    evidence="run",
    find=_find,
    reads="no config: its rope modules, given the config's values",
    rules={
        "default": PLAIN,
        "yarn": Rule(_yarn, "truncate honoured; amplitude always 1"),
        "llama3": Rule(
            lenient_llama3(8.0, 8192.0), "in its complex module only; missing values 8, 1, 4, 8192"
        ),
    },
    otherwise="cannot: its rope modules have none, llama and yarn, not {kind}",
    length="max_seq_len of the preset: the rows of its table",
)
