"""The pages of studies: do their sentences say what the numbers say?"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
from made_up_results import CLAIM, COMPARED, NOISE, decaying, found_of, row_of, study_of

from ropewalk.errors import InputError
from ropewalk.lab import intervals, reports
from ropewalk.lab.intervals import Mean, mean_of, paired, ratio
from ropewalk.lab.reports import REPORTS, check_report, page_of, write_report
from ropewalk.lab.reports.base_bound import reach
from ropewalk.lab.results import COLUMNS, Found, as_csv
from ropewalk.lab.study import names


def flat(*_: Any) -> float:
    return 2.0


def beyond_bits(model: str, seed: int, method: str, length: int, protocol: str, _: str) -> float:
    """Rope falls side by side and rises on fixed targets; ALiBi falls everywhere; T5 stays."""
    if method == "crop":
        return 2.1 + NOISE[seed]
    longer = math.log2(length / 512)
    slopes = {
        ("rope", "non-overlapping"): -0.05,
        ("rope", "sliding"): 0.02,
        ("rope", "fixed"): 0.3,
        ("t5", "non-overlapping"): -0.02,
    }
    slope = {"alibi": -0.03, "t5": 0.0}.get(model, 0.2)
    jitter = 0.02 * seed * (length > 512) * (-1) ** seed if model == "t5" else 0.0
    jitter = jitter if protocol == "fixed" else 0.0
    return 2.1 + NOISE[seed] + slopes.get((model, protocol), slope) * longer + jitter


def stages_bits(_model: str, seed: int, method: str, length: int, _: str, measure: str) -> float:
    longer = math.log2(length / 512)
    if measure.startswith("slopes"):
        slope = float(method.partition("@")[2] or 0)
        # The best on held-out files is 0.2; on the test files it gains what 0.1 lacks.
        return 2 + NOISE[seed] + (slope - 0.2) ** 2 + (0.01 if measure == "slopes-test" else 0)
    above = {
        "crop": 0.0, "self-extend": -0.02, "dual-chunk": 0.0, "none": 1.0,
    }.get(method, 0.4)  # fmt: skip
    return 2.1 + NOISE[seed] + above * longer


def stages_hits(_: str, __: int, method: str, length: int, ___: int | None) -> tuple[int, int]:
    share = {"dual-chunk": 0.9, "self-extend": 0.8, "crop": 512 / length}.get(method, 0.1)
    return round(40 * share), 40


def tuning_bits(model: str, seed: int, method: str, length: int, _: str, __: str) -> float:
    kind, _, steps = model.rpartition("-")
    if model == "long":
        value = 2.0
    elif steps.isdigit() and kind != "control":
        value = {"none": 2.5, "linear": 2.3, "yarn": 2.1, "ntk": 2.15, "pose": 2.2}[kind]
        value -= int(steps) / 4000
    else:
        value = {"crop": 2.4, "none": 5.0, "linear": 4.0, "ntk": 3.0, "yarn": 2.6}.get(method, 2.3)
        value -= 0.05 if kind == "control" else 0
    return value + NOISE[seed] + (0.1 if length == 512 else 0)


def tuning_hits(model: str, *_: Any) -> tuple[int, int]:
    return {"long": 54, "yarn-400": 48, "control-400": 15}.get(model, 6), 60


PREDICTED = {
    "base-100": 28, "base-500": 103, "base-1000": 122, "base-10000": 474, "base-100000": 1283,
}  # fmt: skip


def bound_hits(model: str, _: int, __: str, ___: int, distance: int | None) -> tuple[int, int]:
    """All found before the predicted distance, none from there on."""
    if distance is None:
        return 10, 520
    return (40, 40) if distance < PREDICTED[model] else (0, 40)


def made(name: str) -> Found:
    parts: dict[str, dict[str, Any]] = {
        "convergence": {"curve": decaying},
        "beyond": {"curve": flat, "bits": beyond_bits},
        "stages": {
            "curve": flat, "bits": stages_bits, "hits": stages_hits,
            "seconds": lambda method: {"dual-chunk": 3.0}.get(method, 1.5),
        },
        "tuning": {"curve": flat, "bits": tuning_bits, "hits": tuning_hits},
        "base-bound": {"curve": flat, "hits": bound_hits},
    }  # fmt: skip
    return found_of(study_of(name), **parts[name])


PAGES = ["convergence", "beyond", "stages", "tuning", "base-bound"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_all_that_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    found = made(name)
    monkeypatch.setattr(reports, "collect", lambda *_: found)
    lines = write_report(found.study, tmp_path, tmp_path)
    text = (tmp_path / f"{name}.md").read_text()
    assert text.startswith(f"# {found.study.title}\n\n![")
    pictures = re.findall(r"^!\[.+\]\((.+)\)$", text, flags=re.M)
    assert len(pictures) == len(page_of(found).plots)
    for picture in pictures:
        assert (tmp_path / picture).read_bytes()[:4] == b"\x89PNG"
        assert "<svg" in (tmp_path / picture).with_suffix(".svg").read_text()
    for answer in page_of(found).answers:
        assert f"- {answer}" in text
        assert f"• {answer}" in lines
        assert answer.endswith(".")
    # The protocol comes last, and every table is whole.
    assert text.index("## Protocol") == max(m.start() for m in re.finditer("^## ", text, re.M))
    for block in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M):
        assert len({line.count("|") for line in block.splitlines()}) == 1
    assert "nan" not in text
    assert "None" not in re.sub(r"Matrix products in \w+", "", text)
    rows = list(csv.DictReader(io.StringIO((tmp_path / name / "results.csv").read_text())))
    trained = [row for row in rows if row["what"] == "training"]
    assert len(trained) == 3 * sum(len(r["log"]) for r in found.trainings.values())
    cells = [c for parts in found.measurements.values() for m in parts for c in m.cells]
    losses = [row for row in rows if row["metric"] == "bits_per_byte"]
    assert len(losses) == len(cells)
    assert sum(row["metric"] == "nats_per_token" for row in rows) == 4 * len(cells)
    shares = [
        s for parts in found.measurements.values() for m in parts for r in m.retrieval
        for s in r.by_distance
    ]  # fmt: skip
    assert sum(row["what"] == "retrieval" for row in rows) == len(shares)
    identity = {tuple(v for k, v in row.items() if k != "value") for row in rows}
    assert len(identity) == len(rows)
    assert tuple(rows[0]) == COLUMNS
    assert as_csv(found) == (tmp_path / name / "results.csv").read_text()


def test_every_report_has_a_page() -> None:
    assert set(PAGES) | {"decay", "table"} == set(REPORTS)
    for name in names():
        check_report(study_of(name))


@pytest.mark.parametrize(
    ("name", "table", "missing"),
    [
        ("tuning", "models", "long"),
        ("tuning", "models", "pose-400"),
        ("tuning", "measures", "short"),
        ("convergence", "settings", "reference"),
        ("beyond", "measures", "beyond"),
        ("base-bound", "settings", "predicted"),
        ("decay", "measures", "decay"),
    ],
)
def test_a_study_without_what_its_page_reads_is_refused(
    name: str, table: str, missing: str
) -> None:
    study = study_of(name)
    kept: Any = getattr(study, table)
    if table == "measures":
        kept = tuple(m for m in kept if m.name != missing)
    else:
        kept = {key: value for key, value in kept.items() if key != missing}
    with pytest.raises(InputError, match=rf"^{table}: got no '{missing}', .*report = .table"):
        check_report(dataclasses.replace(study, **{table: kept}))


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("convergence", COMPARED | {"shown": ["rope"]}, "settings: shown: got a key that nothing"),
        ("convergence", COMPARED | {"reference": "rop"}, "settings: reference: got 'rop'"),
        ("convergence", COMPARED | {"thresholds": []}, "settings: thresholds: got "),
        ("convergence", COMPARED | {"thresholds": 2.0}, "settings: thresholds: got 2.0"),
        ("convergence", COMPARED | {"claim": {"fewer_steps": [1, 2]}}, "settings: claim: got "),
        ("convergence", COMPARED | {"claim": CLAIM | {"perplexities": [4]}}, "settings: claim"),
        ("convergence", COMPARED | {"claim": CLAIM | {"fewer_steps": [0.2, 1]}}, "settings: cl"),
        ("base-bound", {"predicted": {"base-100": 28}}, "settings: predicted: got "),
        ("beyond", {"reference": "rope"}, "settings: reference: got a key that nothing reads"),
        ("beyond", {"remarks": "One."}, "settings: remarks: got 'One.', expected a list of sent"),
    ],
)
def test_settings_that_no_page_can_read_are_refused(
    name: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_report(study_of(name, settings=settings))
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_beyond_says_where_the_protocol_turns_the_conclusion() -> None:
    page = page_of(made("beyond"))
    at_two, at_eight, at_most, *rest = page.answers
    assert at_most.startswith("Fixed targets at 32× (16,384)")
    assert "alibi -0.150 ± 0.000" in at_most
    assert at_two.startswith("Fixed targets at 2× (1,024)")
    assert "gain from the longer context: alibi -0.030 ± 0.000" in at_two
    assert "lose: rope +0.300 ± 0.000" in at_two
    assert "alibi -0.090 ± 0.000" in at_eight
    assert re.search(r"are not told apart from the trained length: t5 [+-]", at_eight)
    # Past its table a learned encoding is no position at all.
    assert "learned" not in at_two + at_eight
    at_two, at_most = [line for line in rest if "What the protocol alone does" in line]
    assert "rope -0.050, +0.020, +0.300" in at_two
    assert "rope -0.250, +0.100, +1.500" in at_most
    # The same under all three, and one that the seeds do not tell apart.
    assert not re.search("alibi|sinusoidal|t5", at_two)
    (turned,) = [line for line in rest if "turns the conclusion round" in line]
    for length, multiple in ((1024, 1), (4096, 3), (16384, 5)):
        assert (
            f"rope at {length:,} (-{0.05 * multiple:.3f} against +{0.3 * multiple:.3f})" in turned
        )
    assert "alibi" not in turned
    (gains,) = [line for line in rest if "fixed targets confirm" in line]
    assert "alibi -0.150 ± 0.000 of -0.150 ± 0.000" in gains
    assert re.search(r"t5 nothing \([+-].*\) of -0\.100 ±", gains)
    assert "rope nothing (+1.500 ± 0.000) of -0.250 ± 0.000" in gains
    section = page.sections["Bits per byte: the same last tokens (`fixed`)"]
    assert row_of(section, "rope")[0].startswith("2.100 ± 0.025")
    assert row_of(section, "learned")[1:] == ["no position"] * 5


def test_remarks_of_the_file_stand_after_what_was_found() -> None:
    study = study_of("beyond")
    plain, said = (
        page_of(found_of(dataclasses.replace(study, settings=settings), flat)).answers
        for settings in ({}, {"remarks": ["What one seed said."]})
    )
    assert said == [*plain, "What one seed said."]


def test_beyond_says_nothing_of_turning_where_nothing_turns() -> None:
    found = found_of(study_of("beyond"), flat, lambda _, s, *__: 2.0 + NOISE[s])
    answers = page_of(found).answers
    assert len(answers) == 3
    assert "are not told apart from the trained length: rope +0.000 ± 0.000" in answers[0]


def test_stages_names_the_best_and_judges_it_by_cropping() -> None:
    page = page_of(made("stages"))
    assert len(page.answers) == 6
    holding, first, last = page.answers[0], page.answers[1], page.answers[-1]
    assert "up to 32×: self-extend, dual-chunk; worse at once: none, linear, ntk, " in holding
    assert first.startswith("2×: the lowest loss is self-extend's, 2.080 ± 0.025 bits per byte")
    assert "better than cropping (-0.020 ± 0.000)" in first
    assert "most lines are found by dual-chunk, 108 of 120 (cropping 60 of 120)" in first
    assert last.startswith("32×: the lowest loss is self-extend's, 2.000")
    assert "(cropping 6 of 120)" in page.answers[-2]
    assert "most lines are found by dual-chunk, 108 of 120 (cropping 3 of 120)" in last
    above = page.sections["Above cropping"]
    assert row_of(above, "none") == [f"+{k}.000 ± 0.000" for k in range(1, 6)]
    assert "90% [83, 94]" in row_of(page.sections["Retrieval"], "dual-chunk")
    times = page.sections["Time"]
    assert row_of(times, "dual-chunk") == ["2.00"]
    assert row_of(times, "yarn") == ["1.00"]
    fitted = page.sections["YaRN's temperature, fitted"]
    assert row_of(fitted, "2×")[-2:] == ["0.2", "-0.0100 ± 0.0000"]


@pytest.mark.parametrize(
    ("above", "spread", "verdict"),
    [(0.1, 0.0, "worse than cropping"), (0.01, 0.1, "not told apart from cropping")],
)
def test_stages_says_when_nothing_beats_cropping(above: float, spread: float, verdict: str) -> None:
    def bits(_: str, seed: int, method: str, *__: Any) -> float:
        return 2.0 if method == "crop" else 2.0 + above + spread * (seed - 2)

    holding, *answers = page_of(found_of(study_of("stages"), flat, bits)).answers
    assert ("up to 32×: none, linear," in holding) == (spread > 0)
    for answer in answers:
        assert verdict in answer
        assert "better" not in answer


def test_stages_reads_what_was_measured_of_its_model_only() -> None:
    """Retrieval or a fit of another model of the file is none of the page's model."""
    study = study_of("stages")
    others = tuple(
        dataclasses.replace(m, models=("short",)) if m.name != "stages" else m
        for m in study.measures
    )
    page = page_of(found_of(dataclasses.replace(study, measures=others), flat, stages_bits))
    assert not any("lines" in answer for answer in page.answers)
    assert row_of(page.sections["Retrieval"], "dual-chunk") == [""] * 6
    assert page.sections["YaRN's temperature, fitted"] == ["Not measured of rope."]
    # Fitted, and the second split not measured: there is nothing to say how it does there.
    fitted = tuple(m for m in study.measures if m.name != "slopes-test")
    page = page_of(found_of(dataclasses.replace(study, measures=fitted), flat, stages_bits))
    assert page.sections["YaRN's temperature, fitted"] == ["Not measured of rope."]


def test_tuning_measures_every_way_from_the_model_trained_long() -> None:
    page = page_of(made("tuning"))
    start, tuned, control = page.answers
    assert "2.000 ± 0.025 bits per byte, 162 of 180 lines found" in start
    for name, gap in (("none", 3.0), ("linear", 2.0), ("ntk", 1.0), ("yarn", 0.6)):
        assert f"{name} +{gap:.3f} ± 0.000 bits (18 of 180 lines)" in start
    assert "yarn-400 +0.000 ± 0.000 bits (144 of 180 lines)" in tuned
    assert "linear-100 +0.275" in tuned
    assert "control" not in tuned
    assert "+0.350 ± 0.000 bits (45 of 180 lines)" in control
    table = page.sections["At 2,048 bytes (4×)"]
    assert row_of(table, "cropped")[:3] == ["2.400 ± 0.025", "+0.400 ± 0.000", "+0.050 ± 0.000"]
    assert row_of(table, "long")[1] == ""
    assert row_of(table, "yarn-400")[-1] == "80% [74, 85]"
    short = page.sections["At the trained length, 512 bytes"]
    assert row_of(short, "long")[0].startswith("2.100")


def test_base_bound_compares_the_reach_with_the_prediction() -> None:
    page = page_of(made("base-bound"))
    told, verdict, shares, rank = page.answers
    assert "the order holds and the numbers do." in verdict
    assert "base-100 0.7, base-500 0.6, base-1000 0.8." in verdict
    for name, measured in zip(PREDICTED, (20, 64, 103, 400, 500), strict=True):
        assert f"{name} {PREDICTED[name]} against {measured}" in told
    assert "base-500 100% before, 0% from there on" in shares
    # Asked for up to 500: nothing is beyond 1,283.
    assert "base-100000" not in shares
    assert rank.endswith("1.00.")
    assert row_of(page.sections["Predicted and measured"], "base-1000")[:3] == [
        "122", "103", "103, 103, 103",
    ]  # fmt: skip


def test_base_bound_says_when_the_prediction_fails() -> None:
    def opposite(model: str, _: int, __: str, ___: int, distance: int | None) -> tuple[int, int]:
        order = list(PREDICTED)[::-1]
        limit = PREDICTED[order[list(PREDICTED).index(model)]]
        return (40, 40) if distance is not None and distance <= limit else (0, 40)

    study = study_of("base-bound")
    assert page_of(found_of(study, flat, hits=opposite)).answers[-1].endswith("-1.00.")
    wrong = page_of(found_of(study, flat, hits=opposite)).answers[1]
    assert "the order does not hold and the numbers do not." in wrong
    assert "base-100 at least 17.9" in wrong
    nowhere = page_of(found_of(study, flat)).answers
    assert "base-100 28 against none" in nowhere[0]
    assert nowhere[-1].endswith("undefined, all reaches are equal.")


def test_reach_ends_before_the_first_failure() -> None:
    assert reach({12: (10, 10), 20: (5, 10), 30: (4, 10), 40: (10, 10)}) == 20
    assert reach({12: (4, 10), 20: (10, 10)}) is None
    assert reach({12: (10, 10)}) == 12


def test_intervals_are_students() -> None:
    # 2.0, 2.1, 2.2: deviation 0.1, and Student's t of two degrees of freedom is 4.3027.
    found = mean_of([2.0, 2.1, 2.2])
    assert found.value == pytest.approx(2.1, rel=2**-50)
    assert found.half == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-12)
    assert found.text(3) == "2.100 ± 0.248"
    assert Mean(0.5, None).text(2, sign=True) == "+0.50"
    assert mean_of([1.0]) == Mean(1.0, None)
    assert (mean_of([1.0]).low, mean_of([1.0]).high) == (1.0, 1.0)
    sides = [Mean(v, h).side for v, h in ((0.2, 0.1), (-0.2, 0.1), (0.1, 0.2), (0.1, 0.1))]
    assert sides == [1, -1, 0, 0]
    difference = paired([1.0, 3.0, 5.0], [0.5, 2.5, 4.5])
    assert (difference.value, difference.half) == (0.5, 0.0)
    assert ratio([2.0, 4.0], [1.0, 2.0]) == pytest.approx((2.0, 2.0, 2.0), rel=2**-50)
    assert ratio([2.0], [1.0]) is None
    middle, low, high = ratio([2.0, 8.0], [1.0, 1.0]) or (0, 0, 0)
    assert middle == pytest.approx(4)
    assert low * high == pytest.approx(16)
    # The quantiles fall towards the normal curve's.
    assert all(a > b > 1.96 for a, b in zip(intervals._T, intervals._T[1:], strict=False))
