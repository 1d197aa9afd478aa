"""A whole measurement on a tiny model: cells, sharing, resuming, what is written."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from ropewalk import InputError
from ropewalk.extend import runner
from ropewalk.extend.measure import measure
from ropewalk.extend.options import Options
from ropewalk.extend.results import Measurement

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def options(texts: list[Path]) -> Options:
    return Options(
        lengths=(192, 384, 768), texts=tuple(texts), documents=6, trials=4, dtype="float32"
    )


@pytest.fixture(scope="module")
def measured(
    tiny_model: Path, options: Options, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Measurement, Path]:
    folder = tmp_path_factory.mktemp("run")
    return measure(tiny_model, options, journal_folder=folder), folder


def test_every_method_has_a_cell_at_every_length(measured: tuple[Measurement, Path]) -> None:
    m, _ = measured
    assert len(m.methods()) == 9
    assert len(m.cells) == 9 * 3
    assert len(m.short_cells) == 9 * 2
    assert len(m.retrieval) == 9 * 3
    assert len(m.documents) == 6
    assert m.scored == 48


def test_at_the_original_length_all_methods_are_equal(measured: tuple[Measurement, Path]) -> None:
    m, _ = measured
    values = {m.cell(name, 192).per_document for name in m.methods()}
    assert len(values) == 1


def test_cropping_gives_the_same_at_every_length(measured: tuple[Measurement, Path]) -> None:
    m, _ = measured
    assert len({m.cell("crop", n).per_document for n in m.lengths}) == 1


def test_dynamic_costs_nothing_on_short_text(measured: tuple[Measurement, Path]) -> None:
    m, _ = measured
    plain = m.cell("none", 192)
    for cell in m.short_cells:
        if cell.method in ("dynamic", "none", "crop"):
            assert cell.per_document == plain.per_document
        else:
            assert cell.per_document != plain.per_document


def test_means_differences_and_bits(measured: tuple[Measurement, Path]) -> None:
    m, _ = measured
    cell, crop = m.cell("linear", 768), m.cell("crop", 768)
    assert cell.nats == pytest.approx(sum(cell.per_document) / 6)
    assert cell.perplexity == pytest.approx(math.exp(cell.nats))
    # One byte per token here.
    assert cell.bits_per_byte == pytest.approx(cell.nats / math.log(2))
    assert cell.above_crop == pytest.approx(cell.nats - crop.nats)
    interval = cell.above_crop_interval
    assert interval.low <= cell.above_crop <= interval.high


def test_shares_by_distance_add_up(measured: tuple[Measurement, Path]) -> None:
    m, _ = measured
    for cell in m.retrieval:
        assert sum(s.trials for s in cell.by_distance) == cell.overall.trials == 4
        assert sum(s.hits for s in cell.by_distance) == cell.overall.hits
        assert all(s.farthest % 192 == 0 for s in cell.by_distance)


def test_json_round_trip(measured: tuple[Measurement, Path]) -> None:
    m, _ = measured
    text = json.dumps(m.to_dict())
    assert json.loads(text)["schema_version"] == 1
    assert Measurement.from_dict(json.loads(text)) == m


def test_a_killed_run_goes_on_where_it_was(
    tiny_model: Path,
    options: Options,
    measured: tuple[Measurement, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []
    inner = runner.score_batch

    def counted(scorer: runner.Scores, batch: runner.Batch) -> runner.Scored:
        if len(done) == 7 and not resumed:
            raise KeyboardInterrupt
        done.append(len(batch.passes))
        return inner(scorer, batch)

    monkeypatch.setattr(runner, "score_batch", counted)
    resumed = False
    with pytest.raises(KeyboardInterrupt):
        measure(tiny_model, options, journal_folder=tmp_path)
    kept = (tmp_path / "journal.jsonl").read_bytes().count(b"\n") - 1
    assert kept == sum(done)
    resumed = True
    again = measure(tiny_model, options, journal_folder=tmp_path)
    whole = (measured[1] / "journal.jsonl").read_bytes().count(b"\n") - 1
    assert sum(done) == whole
    first = measured[0]
    for name in ("cells", "short_cells", "retrieval"):
        assert getattr(again, name) == getattr(first, name)


def test_a_finished_run_runs_nothing_again(
    tiny_model: Path,
    options: Options,
    measured: tuple[Measurement, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "score_batch", None)
    assert measure(tiny_model, options, journal_folder=measured[1]) == dataclasses.replace(
        measured[0], environment=measured[0].environment
    )


def test_another_model_in_the_same_folder_is_refused(
    tiny_model: Path, options: Options, measured: tuple[Measurement, Path]
) -> None:
    other = dataclasses.replace(options, dtype="bfloat16")
    with pytest.raises(InputError, match="another run"):
        measure(tiny_model, other, journal_folder=measured[1])


def test_prefix_protocol(tiny_model: Path, texts: list[Path], tmp_path: Path) -> None:
    options = Options(
        lengths=(192, 384),
        methods=("crop", "none", "yarn"),
        texts=tuple(texts),
        protocol="prefix",
        dtype="float32",
    )
    m = measure(tiny_model, options, journal_folder=tmp_path)
    assert len(m.documents) == 1
    assert not m.retrieval
    assert not m.short_cells
    crop, plain = m.cell("crop", 192), m.cell("none", 192)
    # At the original length cropping drops nothing: the same tail.
    assert crop.tail_perplexity == pytest.approx(plain.tail_perplexity, rel=1e-5)
    from ropewalk.show.measurement_table import measurement_view

    assert measurement_view(m) is not None


def test_lengths_below_the_original_and_short_texts_are_refused(
    tiny_model: Path, texts: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="at least the original length, 192"):
        measure(tiny_model, Options(lengths=(100,)), journal_folder=tmp_path)
    long = Options(lengths=(192 * 64,), texts=tuple(texts))
    with pytest.raises(InputError, match="no text of 12288 tokens"):
        measure(tiny_model, long, journal_folder=tmp_path)


def test_files_are_written_whole(measured: tuple[Measurement, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from ropewalk.show.measurement_files import write_measurement

    paths = write_measurement(measured[0], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in paths)
    page = (tmp_path / "report.md").read_text()
    for word in ("Fixed targets", "Wilson", "bootstrap", "SHA-256", "peak memory", "loss.png"):
        assert word in page
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (tmp_path / "loss.svg").read_text()
    before = (tmp_path / "loss.svg").read_bytes()
    write_measurement(measured[0], tmp_path)
    assert (tmp_path / "loss.svg").read_bytes() == before
