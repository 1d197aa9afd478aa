"""The sinusoidal encoding: values, layout, and what it refuses."""

import math

import mpmath
import numpy as np
import pytest

from ropewalk import InputError
from ropewalk.encodings import sinusoidal


def test_values_of_four_lanes():
    # 8ε: 6ε for the angle of the exact tables, one rounding each in m/100 and in sin or cos.
    wanted = [[math.sin(m), math.cos(m), math.sin(m / 100), math.cos(m / 100)] for m in (1, 2)]
    np.testing.assert_allclose(sinusoidal([1, 2], 4), wanted, rtol=0, atol=8 * 2.0**-52)


@pytest.mark.parametrize("position", [0, 1, -3, 4095, 2**31 - 1])
def test_far_positions_against_long_arithmetic(position):
    dim = 16
    found = sinusoidal(position, dim)
    assert found.shape == (dim,)
    assert found.dtype == np.float64
    with mpmath.workdps(50):
        angles = [position * mpmath.power(10000, mpmath.mpf(-2 * i) / dim) for i in range(8)]
        wanted = [float(f(a)) for a in angles for f in (mpmath.sin, mpmath.cos)]
    # 6ε for the angle, ε for sin or cos, and 2^-65 of a turn per token.
    bound = 7 * 2.0**-52 + 2 * math.pi * abs(position) * 2.0**-65
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (0,)])
def test_shape_is_that_of_the_positions(shape):
    assert sinusoidal(np.zeros(shape, dtype=np.int64), 6).shape == (*shape, 6)


def test_position_0_is_zeros_and_ones():
    assert sinusoidal(0, 6).tolist() == [0, 1] * 3


def test_base_and_float_positions():
    found = sinusoidal(0.5, 4, theta=100.0)
    wanted = [math.sin(0.5), math.cos(0.5), math.sin(0.05), math.cos(0.05)]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=8 * 2.0**-52)


@pytest.mark.parametrize("dim", [3, 0, -2, 1, 4.0, True, None, "4"])
def test_odd_sizes_are_refused(dim):
    with pytest.raises(InputError, match=r"^dim: got .*even number of lanes.*; fix: ") as error:
        sinusoidal([1], dim)
    assert "\n" not in str(error.value)


def test_features_are_refused():
    with pytest.raises(InputError, match="position ids, not features"):
        sinusoidal(np.zeros((2, 3, 4)), 4)


@pytest.mark.parametrize(
    "positions",
    [
        np.zeros(3, dtype=np.float16),
        [True],
        ["1"],
        [[1, 2], [3]],
        [math.nan],
        [2**60],
        [2**70],
        None,
        "1",
        {1: 2},
        1j,
    ],
    ids=str,
)
def test_what_is_no_position_is_refused(positions):
    with pytest.raises(InputError, match=r"^positions: "):
        sinusoidal(positions, 4)


def test_a_base_that_is_not_positive_is_refused():
    with pytest.raises(InputError, match=r"^theta: "):
        sinusoidal([1], 4, theta=0)
