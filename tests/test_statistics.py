"""Intervals, against textbook values and against simulation."""

import numpy as np
import pytest

from ropewalk import InputError
from ropewalk.extend.statistics import paired_bootstrap, wilson


def test_wilson_textbook_values() -> None:
    # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3: 81 of 263 and 15 of 148.
    for hits, trials, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)):
        found = wilson(hits, trials)
        assert abs(found.low - low) < 5e-5
        assert abs(found.high - high) < 5e-5


def test_wilson_at_the_ends() -> None:
    assert wilson(0, 20).low == 0.0
    assert wilson(20, 20).high == 1.0
    # Ten of ten is no certainty.
    assert abs(wilson(10, 10).low - 0.7225) < 5e-5


@pytest.mark.parametrize(("hits", "trials"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_impossible_counts(hits: int, trials: int) -> None:
    with pytest.raises(InputError, match="hits of"):
        wilson(hits, trials)


def test_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for index in range(200):
        found = paired_bootstrap(rng.normal(0.3, 1, 30), resamples=1000, seed=index)
        assert found is not None
        covered += found.low <= 0.3 <= found.high
    # 95 % of 200 is 190; four binomial standard deviations are 12, and the percentile
    # interval of 30 documents is known to be a few per cent too narrow.
    assert covered >= 190 - 12 - 8


def test_bootstrap_is_deterministic_and_needs_five_documents() -> None:
    values = [0.1, 0.2, 0.3, 0.2, 0.1]
    assert paired_bootstrap(values, seed=3) == paired_bootstrap(values, seed=3)
    assert paired_bootstrap(values[:4]) is None


def test_bootstrap_of_equal_differences_is_a_point() -> None:
    found = paired_bootstrap([0.25] * 6)
    assert found is not None
    assert (found.low, found.high) == (0.25, 0.25)
