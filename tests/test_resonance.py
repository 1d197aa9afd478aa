"""Resonance: whole wavelengths, and what repeats because of them. The oracle is mpmath."""

from __future__ import annotations

import math
from fractions import Fraction

import mp_oracle
import numpy as np
import pytest
import torch
from generated_plans import plan_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import (
    NTK,
    SCALINGS,
    Clipped,
    DynamicNTK,
    InputError,
    Linear,
    Proportional,
    Resonance,
    Rope,
    YaRN,
)
from ropewalk.convert.convert import convert
from ropewalk.convert.targets import TARGETS
from ropewalk.extend.engines import settings as engine_settings
from ropewalk.scaling.field import NumpyFloat32, TorchFloat32

mp = mp_oracle.mp

UNDER = {
    "plain": Rope(head_dim=128),
    "plain, theta 5e5": Rope(head_dim=64, theta=5e5),
    "a base below 1 turns too fast": Rope(head_dim=8, theta=1e-3),
    "linear": Rope(head_dim=64, scaling=Linear(factor=3.7)),
    "ntk": Rope(head_dim=64, scaling=NTK(factor=4)),
    "yarn": Rope(head_dim=128, theta=1e6, scaling=YaRN(factor=4, original_length=32768)),
    "dynamic": Rope(head_dim=64, scaling=DynamicNTK(factor=2, original_length=2048)),
    "proportional": Rope(head_dim=64, scaling=Proportional(share=0.5)),
}
EVERY = pytest.mark.parametrize("rope", UNDER.values(), ids=UNDER.keys())


def whole(rope, length):
    """Wavelengths to the nearest token, in 60 digits; None for planes that stand still."""
    out = []
    for frequency in mp_oracle.frequencies(rope, length):
        out.append(max(1, int(mp.nint(2 * mp.pi / frequency))) if frequency else None)
    return out


@EVERY
@pytest.mark.parametrize("length", [None, 6000])
def test_every_wavelength_is_the_nearest_whole_number(rope, length):
    made = rope.with_scaling(Resonance(inner=rope.scaling))
    for got, fraction, tokens in zip(
        made.inv_freq(length), made.turn_fractions(length), whole(rope, length), strict=True
    ):
        if tokens is None:
            assert (got, fraction) == (0, 0)
            continue
        assert got == float(2 * mp.pi / tokens)
        assert int(fraction) == round(Fraction(2**64, tokens)) % 2**64
    assert made.attention_factor(length) == rope.attention_factor(length)
    assert made.original_length == rope.original_length
    assert made.scaling.stretch == rope.scaling.stretch


@settings(max_examples=60, deadline=None)
@given(
    planes=st.integers(1, 40),
    theta=st.floats(2, 1e9),
    position=st.integers(0, 2**31),
)
def test_a_position_is_off_from_its_first_repetition_by_the_stated_formula(planes, theta, position):
    """The feature gap: 0 but for the 64-bit fraction, exactly."""
    rope = Rope(head_dim=2 * planes, theta=theta, scaling=Resonance())
    for frequency, fraction in zip(
        rope.inv_freq().tolist(), rope.turn_fractions().tolist(), strict=True
    ):
        wavelength = round(2 * math.pi / frequency)
        first = position % wavelength
        gap = (position * fraction - first * fraction) % 2**64
        gap -= 2**64 if gap >= 2**63 else 0
        off = wavelength * fraction - 2**64
        assert gap == position // wavelength * off
        assert abs(gap) <= position / 2  # in units of 2^-64 turns
        if wavelength & (wavelength - 1) == 0:
            assert gap == 0


def test_below_the_critical_dimension_a_longer_text_brings_nothing_new():
    trained, longer = 512, 16384
    rope = Rope(head_dim=64, scaling=Resonance())
    wavelengths = np.array(whole(Rope(head_dim=64), None))
    critical = int((wavelengths <= trained).sum())
    assert critical == 16
    cos, sin = rope.cos_sin(np.arange(longer), dtype=np.float64)
    # Turns of the fraction, then two roundings of turns below 1/2 and one of the result.
    bound = 2 * math.pi * (longer / 2**65 + 2 * 2.0**-55) + 2.0**-53
    for plane in range(critical):
        first = np.arange(longer) % wavelengths[plane]
        assert first.max() < trained
        for table in (cos, sin):
            assert np.abs(table[:, plane] - table[first, plane]).max() <= bound
    plain, _ = Rope(head_dim=64).cos_sin(np.arange(longer), dtype=np.float64)
    far = np.abs(plain[:, 1] - plain[np.arange(longer) % wavelengths[1], 1])
    assert far.max() > 1.9  # without it the same plane is anywhere


@EVERY
def test_single_precision_rounds_as_the_published_code(rope):
    """In its order: the wavelength of a float32 frequency, rounded, and back."""
    made = rope.with_scaling(Resonance(inner=rope.scaling))
    below = rope.frequencies_in(TorchFloat32(), 6000)
    wavelengths = torch.round(2 * math.pi / below).clamp(min=1)
    want = torch.where(below == 0, below, 2 * math.pi / wavelengths)
    assert torch.equal(made.frequencies_in(TorchFloat32(), 6000), want)
    found = np.asarray(made.frequencies_in(NumpyFloat32(), 6000))
    assert found.dtype == np.float32
    # float32 wavelengths have 24 bits: beyond, or next to a half, the whole number may differ.
    wide = np.asarray(wavelengths, dtype=np.float64)
    steps = np.maximum(1, wide * 2.0**-20)
    turning = found != 0
    apart = np.abs(2 * np.pi / found[turning].astype(np.float64) - wide[turning])
    assert (apart <= steps[turning] + wide[turning] * 2.0**-23).all()


def test_json_and_the_registries():
    made = Resonance(inner=YaRN(factor=4, original_length=512))
    rope = Rope(head_dim=32, scaling=made)
    assert Rope.from_json(rope.to_json()) == rope
    assert made.to_dict() == {"kind": "resonance", "inner": made.inner.to_dict()}
    assert Resonance(inner=made.inner.to_dict()) == made
    other = Resonance(original_length=100)
    assert Rope.from_json(Rope(head_dim=8, scaling=other).to_json()).scaling == other
    nested = Resonance(inner=Clipped(original_length=512))
    assert Rope.from_json(Rope(head_dim=8, scaling=nested).to_json()).scaling == nested
    assert "resonance" not in SCALINGS  # it stretches nothing by itself
    assert Resonance(inner=DynamicNTK(original_length=9)).length_dependent


def test_refusals():
    with pytest.raises(InputError, match="resonance: inner: got 4, expected a scaling"):
        Resonance(inner=4)
    with pytest.raises(InputError, match="ntk: rotary_dim"):
        Rope(head_dim=2, scaling=Resonance(inner=NTK(factor=2)))


def test_formats_and_engines_refuse_it_by_name():
    rope = Rope(head_dim=64, scaling=Resonance(inner=YaRN(factor=4.0, original_length=2048)))
    plan = plan_of([("full_attention", rope, None)] * 2, 8192, {"heads": 8, "kv_heads": 2})
    for target in TARGETS:
        with pytest.raises(InputError, match=r"whole wavelengths \(resonance\)"):
            convert(plan, target)
    done = convert(plan, "hf", lossy=True)
    assert done.lost == ("whole wavelengths (resonance)",)
    assert done.values["rope_parameters"]["rope_type"] == "yarn"
    for setting in engine_settings(rope, 8192):
        assert setting.text == ""
        assert setting.refusal
