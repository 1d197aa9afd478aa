"""Study 1's page: steps to equal loss, and what they say of the claim."""

from __future__ import annotations

import math
import re

import pytest
from made_up_results import COMPARED, NOISE, decaying, found_of, row_of, study_of

from ropewalk.lab.reports import page_of
from ropewalk.lab.reports.convergence import steps_to
from ropewalk.lab.results import Found


@pytest.fixture(scope="module")
def convergence() -> Found:
    return found_of(study_of("convergence", settings=COMPARED), decaying)


def test_convergence_says_ratio_and_end(convergence: Found) -> None:
    answers = page_of(convergence).answers
    told = {
        line.split(" needs ")[0].removeprefix("Steps that "): line
        for line in answers
        if " needs per step of rope: " in line
    }
    # Held-out loss is 2 + 200 · slower / step + noise, so equal loss is at `slower` times the
    # steps of every seed; between checks 50 apart a straight line stands for the hyperbola.
    for name, wanted in (("t5", 1.5), ("sinusoidal", 1.2), ("alibi", 1.0)):
        numbers = re.findall(r"([\d.]+) \[([\d.]+), ([\d.]+)\] to 2.4", told[name])
        ((middle, low, high),) = numbers
        assert float(middle) == pytest.approx(wanted, rel=0.02)
        assert float(low) <= float(middle) <= float(high)
        # A step at which a straight line is off by a quarter of (50 / step)² of the loss.
        assert float(high) - float(low) < 0.1
    # None never comes to 2.4, so nothing is said of it there.
    assert "to 2.4" not in told.get("none", "")
    ends = next(line for line in answers if line.startswith("After the same training"))
    # The seeds' own noise cancels.
    steps = convergence.study.models["rope"].training.steps
    assert f"t5 (+{200 * 0.5 / steps:.3f} ± 0.000)" in ends
    assert f"none (+{0.5 + 200 * 0.2 / steps:.3f} ± 0.000)" in ends
    assert "alibi" not in ends
    assert any("Not told apart" in line and "alibi (+0.000 ± 0.000)" in line for line in answers)
    table = page_of(convergence).sections["Loss at the end of training"]
    assert row_of(table, "rope")[0].startswith(f"{2 + 200 / steps:.3f} ± 0.025")
    # Best first.
    assert [line.split("|")[1].strip() for line in table[2:]][-1] == "none"


def test_convergence_says_who_is_better() -> None:
    def reversed_(model: str, seed: int, _: int) -> float:
        return 2.5 + NOISE[seed] - 0.1 * (model == "t5")

    answers = page_of(found_of(study_of("convergence"), reversed_)).answers
    assert "Lower than rope: t5 (-0.100 ± 0.000)." in answers


def test_convergence_holds_the_numbers_against_the_claim(convergence: Found) -> None:
    steps, perplexities = (a for a in page_of(convergence).answers if a.startswith("Claimed: "))
    assert steps.startswith("Claimed: 20% to 30% fewer steps.")
    verdicts = dict(
        part.split(": ", 1) for part in steps.partition("), ")[2].removesuffix(".").split("; ")
    )
    # A third saved to T5's loss, a sixth to that of those 1.2 times as slow, nothing to ALiBi's.
    assert "t5 33% [33%, 33%] to 2.4 bits" in verdicts["more than claimed"]
    assert "sinusoidal 17% [1" in verdicts["fewer than claimed"]
    assert verdicts["not settled"].startswith("alibi 0% [0%, 0%] to 2.2 bits")
    # Half a bit worse for good: no loss compared is one that it reaches.
    assert verdicts["no loss compared is reached by all seeds of both"] == "none"
    assert "4.0, 1.14 times, of unnamed tokens" in perplexities
    ends = 2 ** (200 * 0.5 / convergence.study.models["rope"].training.steps)
    assert f"t5 {ends:.2f}" in perplexities


@pytest.mark.parametrize(
    ("slower", "verdict"),
    [(0.8, "none saved"), (1.1, "fewer than claimed"), (1.33, "as claimed"), (2.0, "more than")],
)
def test_every_verdict_on_the_claim_is_met(slower: float, verdict: str) -> None:
    def curve(model: str, _: int, step: int) -> float:
        return 2 + 200 * (slower if model == "t5" else 1.0) / step

    found = found_of(study_of("convergence", settings=COMPARED), curve)
    (told,) = (a for a in page_of(found).answers if "fewer steps" in a)
    (part,) = (p for p in told.partition("), ")[2].split("; ") if "t5" in p)
    assert part.startswith(verdict)


def test_convergence_says_why_there_is_no_number() -> None:
    def curve(model: str, seed: int, step: int) -> float:
        ends = {"t5": 2.5, "alibi": 1.5, "none": 2.1 if seed == 1 else 2.35}
        return ends.get(model, 2.0) + (200 / step if model != "alibi" else 0.0)

    found = found_of(study_of("convergence", settings=COMPARED), curve)
    page = page_of(found)
    table = page.sections["Steps to equal loss, relative to rope"]
    assert row_of(table, "t5")[1:] == ["not reached", "not reached"]
    # Somewhere before the first check: neither 50 nor a number between.
    assert row_of(table, "alibi") == ["before step 50"] * 3
    assert row_of(table, "none")[1:] == ["reached by 1 of 3", "not reached"]
    (told,) = (a for a in page.answers if "fewer steps" in a)
    assert "no loss compared is reached by all seeds of both: t5, alibi." in told
    # With one seed there is no interval and so no verdict.
    one = found_of(study_of("convergence", settings=COMPARED, seeds=(1,)), curve)
    assert not any(a.startswith("Claimed") for a in page_of(one).answers)


def test_steps_to_a_loss_are_interpolated() -> None:
    curve = ([50, 100, 150], [3.0, 2.0, 2.0])
    # Reached before the first check, at a step that nobody saw.
    assert steps_to(curve, 3.5) is None
    assert steps_to(curve, 3.0) == 50
    assert steps_to(curve, 2.5) == 75
    assert steps_to(curve, 2.0) == 100
    assert steps_to(curve, 1.9) == math.inf
    # A loss that rises again was reached all the same.
    assert steps_to(([50, 100, 150], [3.0, 2.4, 2.6]), 2.5) == pytest.approx(50 + 50 * 0.5 / 0.6)
