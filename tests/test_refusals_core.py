"""Every value that a rope, a scaling or its JSON refuses, with the whole message."""

from __future__ import annotations

import math

import pytest

from ropewalk import (
    NTK,
    DynamicNTK,
    InputError,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    NTKCritical,
    Plain,
    Proportional,
    Rope,
    TableCache,
    YaRN,
)
from ropewalk.scaling import ntk_base, ntk_factor, scaling_from_dict
from ropewalk.scaling.base import Scaling

NAN = math.nan
LONG = {"short_factor": (1.0, 1.0), "long_factor": (2.0, 2.0), "original_length": 4096}
LLAMA3 = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_length": 8192}
YARN = {"factor": 4, "original_length": 4096}

LANES = "expected a number of lanes, at least 2; fix: give the size of one attention head, e.g. 128"
EVEN = "expected an even number of lanes, at least 2; fix: check head_dim and partial_rotary_factor"
WITHIN = "fix: lower rotary_dim or rotary_offset"
OFFSET = "expected the index of a lane, 0 or above; fix: give the first rotated lane"
BASE = "expected a positive number; fix: give the base, e.g. 10000"
PAIRING = (
    "expected 'half' or 'adjacent'; "
    "fix: half is NeoX or rotate_half, adjacent is GPT-J or interleaved"
)
SCALING = "expected a scaling of ropewalk.scaling; fix: use e.g. Linear(factor=4)"
FACTOR = "expected a number of at least 1; fix: use target length / original length"
TRAINED = "expected a positive whole number of tokens; fix: give the trained length, e.g. 4096"
NEEDED = "got nothing, expected the length the model was trained on; fix: pass original_length=…"
POSITIVE = "expected a positive number; fix: correct the value or leave the field out"
ZERO_OR_MORE = "expected a number of at least 0; fix: correct the value or leave the field out"
FROM_CONFIG = "expected a positive number; fix: take the list from the model's own config"
ONE_LIST = (
    "expected a list with one positive number per plane; "
    "fix: take the list from the model's own config"
)
PLANES = "fix: check partial_rotary_factor and the list's length"
TWO_PLANES = (
    "expected at least 4, because the exponent is d/(d-2); fix: use linear for a rope of one plane"
)
BETAS = (
    "expected beta_slow below beta_fast; "
    "fix: swap them; gpt-oss calls them ntk_alpha (slow) and ntk_beta (fast)"
)
RAMP = (
    "expected 'index' or 'rotations'; "
    "fix: use 'index' to match shipped code, 'rotations' to match the paper"
)
TOKENS = (
    "expected a whole number of tokens, 0 or above; "
    "fix: give the number of tokens in the text, or None"
)
ROPE_FIELDS = (
    "expected one of direction, head_dim, pairing, rotary_dim, rotary_offset, scaling, theta; "
    "fix: remove it or correct its name"
)
KINDS = (
    "expected one of plain, linear, ntk, ntk-critical, dynamic, by-parts, yarn, llama3, longrope, "
    "proportional, clipped; fix: correct the name"
)

CASES = [
    # Rope
    (lambda: Rope(head_dim=0), f"head_dim: got 0, {LANES}"),
    (lambda: Rope(head_dim=-64), f"head_dim: got -64, {LANES}"),
    (lambda: Rope(head_dim=64.0), f"head_dim: got 64.0, {LANES}"),
    (lambda: Rope(head_dim="64"), f"head_dim: got '64', {LANES}"),
    (lambda: Rope(head_dim=True), f"head_dim: got True, {LANES}"),
    (lambda: Rope(head_dim=9), f"rotary_dim: got 9 (head_dim 9), {EVEN}"),
    (lambda: Rope(head_dim=8, rotary_dim=3), f"rotary_dim: got 3 (head_dim 8), {EVEN}"),
    (lambda: Rope(head_dim=8, rotary_dim=0), f"rotary_dim: got 0 (head_dim 8), {EVEN}"),
    (lambda: Rope(head_dim=8, rotary_dim=4.0), f"rotary_dim: got 4.0 (head_dim 8), {EVEN}"),
    (
        lambda: Rope(head_dim=8, rotary_dim=10),
        f"rotary_dim: got lanes 0..9, expected lanes within head_dim 8; {WITHIN}",
    ),
    (
        lambda: Rope(head_dim=8, rotary_dim=4, rotary_offset=6),
        f"rotary_dim: got lanes 6..9, expected lanes within head_dim 8; {WITHIN}",
    ),
    (lambda: Rope(head_dim=8, rotary_offset=-2), f"rotary_offset: got -2, {OFFSET}"),
    (lambda: Rope(head_dim=8, rotary_offset=1.5), f"rotary_offset: got 1.5, {OFFSET}"),
    (lambda: Rope(head_dim=8, rotary_offset=True), f"rotary_offset: got True, {OFFSET}"),
    (lambda: Rope(head_dim=8, theta=0), f"theta: got 0, {BASE}"),
    (lambda: Rope(head_dim=8, theta=-1e4), f"theta: got -10000.0, {BASE}"),
    (lambda: Rope(head_dim=8, theta=NAN), f"theta: got nan, {BASE}"),
    (lambda: Rope(head_dim=8, theta=math.inf), f"theta: got inf, {BASE}"),
    (lambda: Rope(head_dim=8, theta="1e4"), f"theta: got '1e4', {BASE}"),
    (lambda: Rope(head_dim=8, theta=None), f"theta: got None, {BASE}"),
    (lambda: Rope(head_dim=8, theta=True), f"theta: got True, {BASE}"),
    (lambda: Rope(head_dim=8, theta=10**400), f"theta: got 1{'0' * 400}, {BASE}"),
    (lambda: Rope(head_dim=8, pairing="neox"), f"pairing: got 'neox', {PAIRING}"),
    (lambda: Rope(head_dim=8, direction=0), "direction: got 0, expected 1 or -1; fix: use 1"),
    (lambda: Rope(head_dim=8, direction=1.0), "direction: got 1.0, expected 1 or -1; fix: use 1"),
    (lambda: Rope(head_dim=8, scaling="linear"), f"scaling: got 'linear', {SCALING}"),
    (lambda: Rope(head_dim=8, scaling=None), f"scaling: got None, {SCALING}"),
    (lambda: Rope(head_dim=8).inv_freq(-1), f"length: got -1, {TOKENS}"),
    (lambda: Rope(head_dim=8).inv_freq(4096.0), f"length: got 4096.0, {TOKENS}"),
    (lambda: Rope(head_dim=8).turn_fractions("4096"), f"length: got '4096', {TOKENS}"),
    (lambda: Rope(head_dim=8).attention_factor(True), f"length: got True, {TOKENS}"),
    # JSON
    (
        lambda: Rope.from_dict({"head_dim": 8, "base": 1e4}),
        f"rope: base: got an unknown field, {ROPE_FIELDS}",
    ),
    (
        lambda: Rope.from_dict({"theta": 1e4}),
        "rope: head_dim: got nothing, expected a number; fix: add the field",
    ),
    (
        lambda: Rope.from_json("[8]"),
        (
            "rope: got [8], expected an object with the fields of a rope; "
            "fix: pass what to_dict or to_json wrote"
        ),
    ),
    (
        lambda: Rope.from_json("head_dim: 8"),
        (
            "rope: got text that is no JSON (Expecting value: line 1 column 1 (char 0)), "
            "expected one JSON object; fix: pass what to_json wrote"
        ),
    ),
    (lambda: scaling_from_dict({"kind": "su"}), f"scaling: kind: got 'su', {KINDS}"),
    (lambda: scaling_from_dict({"kind": []}), f"scaling: kind: got [], {KINDS}"),
    (lambda: scaling_from_dict({}), f"scaling: kind: got None, {KINDS}"),
    (
        lambda: scaling_from_dict("linear"),
        (
            "scaling: got 'linear', expected an object with a kind; "
            'fix: write e.g. {"kind": "linear", "factor": 4}'
        ),
    ),
    (
        lambda: scaling_from_dict({"kind": "linear", "fctor": 4}),
        (
            "scaling linear: fctor: got an unknown field, expected one of original_length, factor; "
            "fix: remove it or correct its name"
        ),
    ),
    (
        lambda: scaling_from_dict({"kind": "linear"}),
        "scaling linear: factor: got nothing, expected a value; fix: add the field",
    ),
    # factors
    (lambda: Linear(factor=0.5), f"linear: factor: got 0.5, {FACTOR}"),
    (lambda: Linear(factor="4"), f"linear: factor: got '4', {FACTOR}"),
    (lambda: Linear(factor=True), f"linear: factor: got True, {FACTOR}"),
    (lambda: Linear(factor=NAN), f"linear: factor: got nan, {FACTOR}"),
    (lambda: NTK(factor=0), f"ntk: factor: got 0, {FACTOR}"),
    (lambda: NTKCritical(factor=-1, original_length=64), f"ntk-critical: factor: got -1, {FACTOR}"),
    (lambda: DynamicNTK(factor=0.9, original_length=64), f"dynamic: factor: got 0.9, {FACTOR}"),
    (lambda: YaRN(factor=None, original_length=64), f"yarn: factor: got None, {FACTOR}"),
    (lambda: NTKByParts(factor=0.5, original_length=64), f"by-parts: factor: got 0.5, {FACTOR}"),
    (lambda: Llama3(**{**LLAMA3, "factor": 0}), f"llama3: factor: got 0, {FACTOR}"),
    (lambda: LongRoPE(**LONG, factor=0.1), f"longrope: factor: got 0.1, {FACTOR}"),
    (lambda: Proportional(share=0.5, factor=0.5), f"proportional: factor: got 0.5, {FACTOR}"),
    # lengths
    (lambda: Plain(original_length=0), f"plain: original_length: got 0, {TRAINED}"),
    (lambda: Linear(factor=2, original_length=8.5), f"linear: original_length: got 8.5, {TRAINED}"),
    (lambda: YaRN(factor=4), f"yarn: original_length: {NEEDED}"),
    (lambda: NTKByParts(factor=4), f"by-parts: original_length: {NEEDED}"),
    (lambda: NTKCritical(factor=4), f"ntk-critical: original_length: {NEEDED}"),
    (lambda: DynamicNTK(factor=4), f"dynamic: original_length: {NEEDED}"),
    (
        lambda: Llama3(factor=8, low_freq_factor=1, high_freq_factor=4),
        f"llama3: original_length: {NEEDED}",
    ),
    (
        lambda: LongRoPE(short_factor=(1.0,), long_factor=(1.0,)),
        f"longrope: original_length: {NEEDED}",
    ),
    (
        lambda: NTKCritical(factor=4, original_length=6),
        (
            "ntk-critical: original_length: got 6, expected at least 7, because the rule divides "
            "by ln(L/2π); fix: give the trained length in tokens"
        ),
    ),
    # bands
    (lambda: YaRN(**YARN, beta_fast=0), f"yarn: beta_fast: got 0, {POSITIVE}"),
    (lambda: YaRN(**YARN, beta_slow=-1), f"yarn: beta_slow: got -1, {POSITIVE}"),
    (
        lambda: YaRN(**YARN, beta_fast=1, beta_slow=32),
        f"yarn: beta_slow: got 32, with beta_fast 1, {BETAS}",
    ),
    (
        lambda: NTKByParts(**YARN, beta_slow=32),
        f"by-parts: beta_slow: got 32, with beta_fast 32, {BETAS}",
    ),
    (lambda: YaRN(**YARN, ramp="linear"), f"yarn: ramp: got 'linear', {RAMP}"),
    (
        lambda: YaRN(**YARN, truncate="false"),
        (
            "yarn: truncate: got 'false', expected true or false; "
            "fix: correct the value or leave the field out"
        ),
    ),
    (
        lambda: YaRN(**YARN, ramp="rotations", truncate=True),
        (
            "yarn: truncate: got True together with ramp 'rotations', expected no truncate, "
            "because this ramp has no index range; fix: leave truncate out or use ramp 'index'"
        ),
    ),
    (lambda: YaRN(**YARN, attention_factor=0), f"yarn: attention_factor: got 0, {POSITIVE}"),
    (lambda: YaRN(**YARN, mscale=-1), f"yarn: mscale: got -1, {ZERO_OR_MORE}"),
    (lambda: YaRN(**YARN, mscale_all_dim="1"), f"yarn: mscale_all_dim: got '1', {ZERO_OR_MORE}"),
    (
        lambda: Rope(head_dim=8, theta=1, scaling=YaRN(**YARN)),
        (
            "yarn: theta: got 1, expected above 1, because the ramp divides by ln(theta); "
            "fix: correct rope_theta"
        ),
    ),
    (
        lambda: Llama3(**{**LLAMA3, "low_freq_factor": 0}),
        f"llama3: low_freq_factor: got 0, {POSITIVE}",
    ),
    (
        lambda: Llama3(**{**LLAMA3, "high_freq_factor": None}),
        f"llama3: high_freq_factor: got None, {POSITIVE}",
    ),
    (
        lambda: Llama3(**{**LLAMA3, "low_freq_factor": 5}),
        (
            "llama3: low_freq_factor: got 5, with high_freq_factor 4, expected low_freq_factor no "
            "greater than high_freq_factor; fix: swap them; Llama 3.1 has low 1 and high 4"
        ),
    ),
    # planes
    (lambda: Rope(head_dim=2, scaling=NTK(factor=2)), f"ntk: rotary_dim: got 2, {TWO_PLANES}"),
    (
        lambda: Rope(head_dim=2, scaling=DynamicNTK(original_length=64)),
        f"dynamic: rotary_dim: got 2, {TWO_PLANES}",
    ),
    (
        lambda: Rope(head_dim=8, scaling=LongRoPE(**LONG)),
        f"longrope: short_factor: got 2 values, expected rotary_dim/2 = 4; {PLANES}",
    ),
    (
        lambda: Rope(head_dim=4, scaling=LongRoPE(**{**LONG, "long_factor": (1.0,)})),
        f"longrope: long_factor: got 1 values, expected rotary_dim/2 = 2; {PLANES}",
    ),
    (
        lambda: LongRoPE(**{**LONG, "short_factor": (1.0, 0.0)}),
        f"longrope: short_factor[1]: got 0.0, {FROM_CONFIG}",
    ),
    (
        lambda: LongRoPE(**{**LONG, "long_factor": ("a", 1.0)}),
        f"longrope: long_factor[0]: got 'a', {FROM_CONFIG}",
    ),
    (
        lambda: LongRoPE(**{**LONG, "long_factor": None}),
        f"longrope: long_factor: got None, {ONE_LIST}",
    ),
    (
        lambda: LongRoPE(**{**LONG, "short_factor": 2.0}),
        f"longrope: short_factor: got 2.0, {ONE_LIST}",
    ),
    (
        lambda: LongRoPE(**LONG, attention_factor=0),
        f"longrope: attention_factor: got 0, {POSITIVE}",
    ),
    (lambda: LongRoPE(**LONG, short_mscale=-1), f"longrope: short_mscale: got -1, {POSITIVE}"),
    (lambda: LongRoPE(**LONG, long_mscale=NAN), f"longrope: long_mscale: got nan, {POSITIVE}"),
    *(
        (
            lambda share=share: Proportional(share=share),
            (
                f"proportional: share: got {share}, expected a number in (0, 1]; "
                "fix: give the config's partial_rotary_factor"
            ),
        )
        for share in (0, 1.01, -0.5, None)
    ),
    # alpha and base
    (lambda: ntk_base(0, 4, 128), f"theta: got 0, {POSITIVE}"),
    (lambda: ntk_base(1e4, 0.5, 128), f"factor: got 0.5, {FACTOR}"),
    (lambda: ntk_base(1e4, 4, 2), f"ntk: rotary_dim: got 2, {TWO_PLANES}"),
    (lambda: ntk_factor(1e4, -1, 128), f"base: got -1, {POSITIVE}"),
    (
        lambda: ntk_factor(1e6, 1e4, 128),
        (
            "base: got 10000, with theta 1e+06, expected a base no smaller than theta; "
            "fix: a smaller base turns faster: it shortens the context"
        ),
    ),
    # cache
    (
        lambda: TableCache(max_tables=0),
        "max_tables: got 0, expected a number of tables, at least 1; fix: use the default, 32",
    ),
    (
        lambda: TableCache().rows(Rope(head_dim=8), -1),
        "count: got -1, expected a number of rows; fix: pass an integer",
    ),
    (
        lambda: TableCache().rows(Rope(head_dim=8), 4.0),
        "count: got 4.0, expected a number of rows; fix: pass an integer",
    ),
    (
        lambda: TableCache().rows(Rope(head_dim=8), 4, length=-1),
        f"length: got -1, {TOKENS}",
    ),
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[f"{i}" for i in range(len(CASES))])
def test_the_message_says_where_what_and_how(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message
    assert "\n" not in message
    error = caught.value
    assert isinstance(error, ValueError)
    parts = error.where, error.found, error.expected, error.fix
    assert message == "{}: got {}, expected {}; fix: {}".format(*parts)


def test_an_error_can_be_seen_from_further_out():
    with pytest.raises(InputError) as caught:
        Linear(factor=0)
    outer = caught.value.within("config.json")
    assert str(outer) == f"config.json: linear: factor: got 0, {FACTOR}"


def test_a_scaling_of_ones_own_must_say_its_formula():
    with pytest.raises(TypeError, match="abstract"):
        Scaling()
