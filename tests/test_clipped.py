"""Clipped RoPE: what stands still, and who refuses to say it. The oracle is mpmath."""

from __future__ import annotations

import math

import mp_oracle
import numpy as np
import pytest
from generated_plans import plan_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import Clipped, InputError, Plain, Proportional, Rope
from ropewalk.convert.convert import convert
from ropewalk.convert.targets import TARGETS
from ropewalk.extend.engines import settings as engine_settings
from ropewalk.extend.engines import settings_by_kind
from ropewalk.scaling import scaling_from_dict
from ropewalk.scaling.field import TorchFloat32

mp = mp_oracle.mp


@settings(max_examples=40, deadline=None)
@given(planes=st.integers(1, 24), theta=st.floats(2, 1e7), length=st.integers(1, 10**6))
def test_planes_that_make_a_full_turn_are_kept_and_no_other(planes, theta, length):
    rope = Rope(head_dim=2 * planes, theta=theta, scaling=Clipped(original_length=length))
    plain = Rope(head_dim=2 * planes, theta=theta).inv_freq()
    for plane, (got, full) in enumerate(zip(rope.inv_freq(), plain, strict=True)):
        frequency = mp.mpf(theta) ** (-mp.mpf(plane) / planes)
        turns = length * frequency / (2 * mp.pi)
        assert got == (full if turns >= 1 else 0.0)


def test_it_is_proportional_with_a_share_that_the_length_decides():
    """HoPE and RoPE-A for a model trained at 512 tokens: wavelengths 6.28 … 353 stay."""
    rope = Rope(head_dim=32, scaling=Clipped(original_length=512))
    turning = sum(2 * math.pi * 10000 ** (i / 16) <= 512 for i in range(16))
    assert turning == 8
    same = Rope(head_dim=32, scaling=Proportional(share=turning / 16))
    np.testing.assert_array_equal(rope.inv_freq(), same.inv_freq())
    assert [plane.band for plane in rope.describe()] == ["kept"] * 8 + ["still"] * 8


def test_within_a_trained_turn_no_angle_is_new():
    """Every angle of a long text is within half a step of an angle of the trained length."""
    length, longer = 256, 4096
    rope = Rope(head_dim=64, theta=1e5, scaling=Clipped(original_length=length))
    for frequency in rope.inv_freq():
        seen = np.sort(np.arange(length) * frequency % (2 * np.pi))
        gaps = np.diff(seen, append=seen[0] + 2 * np.pi) if frequency else np.zeros(1)
        at = np.arange(longer) * frequency % (2 * np.pi)
        nearest = np.abs((at[:, None] - seen + np.pi) % (2 * np.pi) - np.pi).min(1)
        assert nearest.max() <= gaps.max() / 2 + 1e-9  # angles near 4096 radians: 4096 * 2^-53
    plain = Rope(head_dim=64, theta=1e5).inv_freq()[-1]
    assert (longer - 1) * plain - (length - 1) * plain > plain  # what clipping is against


def test_single_precision_in_pytorch_too():
    rope = Rope(head_dim=64, scaling=Clipped(original_length=1000))
    single = rope.frequencies_in(TorchFloat32()).numpy()
    np.testing.assert_array_equal(single == 0, rope.inv_freq() == 0)
    plain = Rope(head_dim=64).frequencies_in(TorchFloat32()).numpy()
    np.testing.assert_array_equal(single[single != 0], plain[single != 0])


def test_json():
    rope = Rope(head_dim=32, scaling=Clipped(original_length=512))
    assert rope.scaling.to_dict() == {"kind": "clipped", "original_length": 512}
    assert Rope.from_json(rope.to_json()) == rope
    assert scaling_from_dict(rope.scaling.to_dict()) == rope.scaling


@pytest.mark.parametrize("length", [None, 0, 2.5, True])
def test_a_length_is_needed(length):
    with pytest.raises(InputError, match="clipped: original_length: got"):
        Clipped(original_length=length)


def test_formats_refuse_it_by_name():
    rope = Rope(head_dim=64, scaling=Clipped(original_length=512))
    plan = plan_of([("full_attention", rope, None)] * 2, 512, {"heads": 8, "kv_heads": 2})
    for target in TARGETS:
        with pytest.raises(InputError, match="clipped planes"):
            convert(plan, target)
    lost = convert(plan, "hf", lossy=True).lost
    assert lost == ("clipped planes (Clipped(original_length=512))",)


def test_engines_have_no_words_for_it():
    rope = Rope(head_dim=64, scaling=Clipped(original_length=512))
    for setting in engine_settings(rope, 4096):
        assert setting.text == ""
        assert setting.refusal
    local = Rope(head_dim=64, scaling=Plain(original_length=512))
    kinds = {"full_attention": rope, "sliding_attention": local}
    for setting in settings_by_kind(kinds, 4096):
        assert setting.text == ""
        assert setting.refusal == "no rope_type gives these frequencies"
