"""Frequencies and amplitudes of every scaling, against formulas in 60 digits."""

from __future__ import annotations

import decimal
import math

import mp_oracle
import numpy as np
import pytest

from ropewalk import (
    NTK,
    SCALINGS,
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
    YaRN,
)
from ropewalk.scaling import field, ntk_base, ntk_factor, scaling_from_dict
from ropewalk.scaling.field import Exact, NumpyFloat32, exact_arithmetic


class Counting:
    """A decimal context that counts what costs the most."""

    def __init__(self, context):
        self.context, self.powers = context, 0

    def power(self, *numbers):
        self.powers += 1
        return self.context.power(*numbers)

    def __getattr__(self, name):
        return getattr(self.context, name)


@pytest.mark.parametrize("lanes", [2, 6, 100, 128, 4096])
@pytest.mark.parametrize("theta", [0.5, 10000.0, 123456.789])
def test_a_ladder_takes_one_power(monkeypatch, lanes, theta):
    """Each power anew would be 2,048 of them for a head of 4,096 lanes; the digits are the same."""
    contexts = {name: Counting(getattr(field, name)) for name in ("_CONTEXT", "_GUARDED")}
    with exact_arithmetic():
        for name, context in contexts.items():
            monkeypatch.setattr(field, name, context)
        exponents = Exact().arange(lanes, 2) / lanes
        got = Exact().power(decimal.Decimal(theta), exponents)
        assert sum(context.powers for context in contexts.values()) <= 1
        apart = [
            abs(a / contexts["_CONTEXT"].power(decimal.Decimal(theta), e) - 1)
            for a, e in zip(got, exponents, strict=True)
        ]
    # An exponent is off by half a unit of digit 50, the result by that times ln(theta) and one.
    assert max(apart) <= (2 + abs(math.log(theta))) * 10.0**-49


def test_uneven_exponents_are_powers_of_their_own():
    with exact_arithmetic():
        exponents = Exact().vector((0.0, 0.5, 0.75))
        got = Exact().power(decimal.Decimal(16), exponents)
    assert [float(value) for value in got] == [1.0, 4.0, 8.0]


EVERY = pytest.mark.parametrize(
    ("rope", "length"), mp_oracle.ROPES.values(), ids=mp_oracle.ROPES.keys()
)


@EVERY
def test_inv_freq_is_the_correctly_rounded_truth(rope, length):
    want = np.array([float(f) for f in mp_oracle.frequencies(rope, length)])
    got = rope.inv_freq(length)
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, want)


@EVERY
def test_turn_fractions_are_off_by_at_most_half_a_unit(rope, length):
    mp = mp_oracle.mp
    limit = mp.mpf(2) ** -65
    for got, f in zip(
        rope.turn_fractions(length).tolist(), mp_oracle.frequencies(rope, length), strict=True
    ):
        turns = f / (2 * mp.pi)
        off = mp.mpf(got) / 2**64 - turns
        assert abs(off - mp.nint(off)) <= limit


@EVERY
def test_amplitude(rope, length):
    want = mp_oracle.amplitude(rope, length)
    # Two logarithms, a quotient and a root or sum, each rounded once: 4 half units of float64.
    assert abs(rope.attention_factor(length) - want) <= 4 * 2.0**-53 * want


@EVERY
def test_single_precision_is_the_same_formula(rope, length):
    # Per plane: rounding theta and the exponent costs ln(theta) + 1 half units, the rest of
    # the formula at most 8 more; near the edge of a band the blend's slope (in turns or
    # indices) multiplies them, by no more than the stretch.
    exact = rope.inv_freq(length)
    got = rope.frequencies_in(NumpyFloat32(), length)
    assert got.dtype == np.float32
    ulps = (math.log(max(rope.theta, math.e)) + 1 + 8) * rope.scaling.stretch
    np.testing.assert_array_less(np.abs(got - exact), exact * ulps * 2.0**-24 + 1e-300)


def test_the_callers_decimal_context_does_not_matter():
    def values():
        rope = Rope(head_dim=64, theta=12345.5, scaling=YaRN(factor=3, original_length=999))
        return rope.inv_freq(), rope.turn_fractions(), rope.scaling.correction_range(12345.5, 64)

    want = values()
    from ropewalk import rope as module

    module._inv_freq.cache_clear()
    module._turn_fractions.cache_clear()
    with decimal.localcontext(decimal.Context(prec=3, traps=[decimal.Inexact])):
        got = values()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_slowest_plane_of_ntk_is_divided_by_the_factor():
    # Equal in the algebra; each side is rounded once from 50 digits: 1 unit of float64.
    for factor in (1, 2, 4.5, 64):
        plain = Rope(head_dim=128).inv_freq()
        scaled = Rope(head_dim=128, scaling=NTK(factor=factor)).inv_freq()
        assert scaled[0] == plain[0]
        assert abs(scaled[-1] * factor - plain[-1]) <= 2 * 2.0**-53 * plain[-1]


def test_the_critical_plane_of_ntk_critical_makes_one_turn_over_the_target():
    original, factor, theta = 4096, 8, 10000.0
    s = NTKCritical(factor=factor, original_length=original)
    # theta^x = original / 2 pi is the frequency with one turn; under the new base the same
    # exponent has one turn over the target.
    exponent = math.log(original / (2 * math.pi)) / math.log(theta)
    turns = original * factor / (2 * math.pi) / s.base(theta) ** exponent
    assert abs(turns - 1) <= 1e-13
    assert NTKCritical(factor=1, original_length=original).base(theta) == theta


@pytest.mark.parametrize("factor", [1.0, 1.9, 2, 8.3])
def test_dynamic_leaves_texts_within_the_original_length_alone(factor):
    rope = Rope(head_dim=128, scaling=DynamicNTK(factor=factor, original_length=2048))
    plain = Rope(head_dim=128).inv_freq()
    for length in (None, 0, 1, 2047, 2048):
        np.testing.assert_array_equal(rope.inv_freq(length), plain)
    assert (rope.inv_freq(2049)[1:] < plain[1:]).all()


def test_longrope_switches_after_the_original_length():
    rope, _ = mp_oracle.ROPES["longrope, short"]
    assert [rope.scaling.is_long(n) for n in (None, 1, 4095, 4096, 4097)] == [False] * 4 + [True]
    np.testing.assert_array_equal(rope.inv_freq(4096), rope.inv_freq())
    assert (rope.inv_freq(4097) < rope.inv_freq(4096)).all()


def test_correction_ranges():
    def yarn(length, **fields):
        return YaRN(factor=4, original_length=length, **fields)

    assert yarn(4096).correction_range(1e4, 64) == (10, 23)
    assert yarn(32768).correction_range(1e6, 128) == (23, 40)
    assert yarn(4096).correction_range(1e4, 128) == (20, 46)
    low, high = yarn(4096, truncate=False).correction_range(150000, 64)
    for index, turns in ((low, 32), (high, 1)):
        want = 32 * math.log(4096 / (2 * math.pi * turns)) / math.log(150000)
        assert abs(index - want) <= 8 * 2.0**-53 * want
    # Limited to [0, rotary_dim - 1], not to the number of planes, as in YaRN's code.
    assert yarn(64).correction_range(1e4, 64)[0] == 0
    assert yarn(10**6).correction_range(20, 16)[1] == 15


def test_softmax_multiplier_is_a_number_of_its_own():
    s = YaRN(factor=40, original_length=4096, mscale=1.0, mscale_all_dim=1.0)
    assert s.amplitude() == 1.0
    assert s.softmax_multiplier() == (0.1 * math.log(40) + 1) ** 2
    assert YaRN(factor=40, original_length=4096).softmax_multiplier() == 1.0
    assert YaRN(factor=1, original_length=4096, mscale_all_dim=2.0).softmax_multiplier() == 1.0


def test_alpha_and_base_are_inverse():
    for theta, alpha, d in ((1e4, 4, 128), (1e6, 2.5, 64), (5e5, 1, 4)):
        base = ntk_base(theta, alpha, d)
        # Two powers of exponents near 1: 4 half units.
        assert abs(ntk_factor(theta, base, d) - alpha) <= 4 * 2.0**-53 * alpha
        same = Rope(head_dim=d, theta=base).inv_freq()
        np.testing.assert_allclose(
            same,
            Rope(head_dim=d, theta=theta, scaling=NTK(factor=alpha)).inv_freq(),
            rtol=8 * 2.0**-53,
        )


def test_a_factor_of_one_is_plain_wherever_the_formula_has_one():
    plain = Rope(head_dim=64)
    for s in (
        Linear(factor=1),
        NTK(factor=1),
        NTKCritical(factor=1, original_length=4096),
        NTKByParts(factor=1, original_length=4096),
        YaRN(factor=1, original_length=4096),
        Llama3(factor=1, low_freq_factor=1, high_freq_factor=4, original_length=4096),
        Proportional(share=1.0),
    ):
        rope = plain.with_scaling(s)
        np.testing.assert_array_equal(rope.inv_freq(), plain.inv_freq())
        assert rope.attention_factor() == 1.0


def test_the_table_of_scalings_names_each_once():
    assert set(SCALINGS) == {
        "plain",
        "linear",
        "ntk",
        "ntk-critical",
        "dynamic",
        "by-parts",
        "yarn",
        "llama3",
        "longrope",
        "proportional",
        "clipped",
    }
    assert all(cls.kind == name for name, cls in SCALINGS.items())
    tested = {type(rope.scaling) for rope, _ in mp_oracle.ROPES.values()}
    assert tested == set(SCALINGS.values())


def test_json_keeps_every_field():
    for rope, _ in mp_oracle.ROPES.values():
        again = scaling_from_dict(rope.scaling.to_dict())
        assert again == rope.scaling
        assert hash(again) == hash(rope.scaling)


def test_lists_in_longrope_become_tuples():
    s = LongRoPE(short_factor=[1, 1], long_factor=[2, 3], original_length=8)
    assert s.short_factor == (1, 1)
    assert hash(s) == hash(LongRoPE(short_factor=(1, 1), long_factor=(2, 3), original_length=8))


def test_values_cannot_be_changed():
    s = Linear(factor=2)
    with pytest.raises(AttributeError):
        s.factor = 3
    assert Plain() == Plain()
    assert Linear(factor=2) != NTK(factor=2)
    assert Linear(factor=2) != Linear(factor=2, original_length=4096)


def test_longrope_needs_a_length_with_a_logarithm():
    with pytest.raises(InputError, match="longrope: original_length: got 1, expected"):
        LongRoPE(original_length=1, short_factor=(1.0,), long_factor=(1.0,))
