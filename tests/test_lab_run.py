"""Whole studies: killed workers and drivers, failures, the lab's models under `measure`."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ropewalk import InputError
from ropewalk.encodings import ALiBi, Learned, Rotary
from ropewalk.extend.journal import Journal
from ropewalk.extend.methods import method_named
from ropewalk.extend.options import Options
from ropewalk.extend.runner import Runner
from ropewalk.extend.texts import TextSet, TokenizedDocument
from ropewalk.lab import schedule, scoring
from ropewalk.lab.model import Decoder, Shape
from ropewalk.lab.reports import write_report
from ropewalk.lab.results import COLUMNS, as_csv, collect
from ropewalk.lab.schedule import run_here, share_done, unfinished
from ropewalk.lab.scoring import ByteTokenizer, LabScorer, base_setting
from ropewalk.lab.study import ModelPlan, read_study
from ropewalk.lab.training import STATE
from ropewalk.lab.units import Unit, units_of
from ropewalk.lab.work import DONE, RESULT, WEIGHTS, perform, results_of, trained_model
from ropewalk.rope import Rope
from ropewalk.scaling import Linear

STUDY = """
title = "Does a tiny study run?"
seeds = [1]
[shape]
layers = 2
heads = 2
head_dim = 8
hidden = 16
[training]
length = 64
batch = 2
steps = 220
warmup = 10
check_every = 90
[models.rope]
encoding = { kind = "rotary" }
[models.learned]
encoding = { kind = "learned", length = 64 }
training = { steps = 230 }
[models.tuned]
start = "rope"
method = "yarn"
factor = 2
training = { length = 128, batch = 1, steps = 10 }
[[measures]]
name = "both"
models = ["rope", "learned"]
methods = ["crop", "none"]
protocols = ["fixed", "sliding"]
multiples = [1, 2]
documents = 2
scored = 16
trials = 3
"""
SHAPE = Shape(layers=2, heads=2, head_dim=8, hidden=16)
_PATIENCE = 300.0
"""Seconds after which what should happen has not: a busy machine is slow, no test is judged."""


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "tiny.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def units(study_file: Path) -> list[Unit]:
    return units_of(read_study(str(study_file)))


@pytest.fixture(scope="module")
def unbroken(units: list[Unit], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study done in this process, unit after unit."""
    root = tmp_path_factory.mktemp("unbroken")
    told: list[float] = []
    for unit in units:
        perform(unit, root, told.append)
    assert told[-1] == 1.0
    return root


def result(unit: Unit, root: Path) -> Any:
    """What a unit found, without what differs from run to run: seconds and memory."""

    def settled(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                k: settled(v)
                for k, v in value.items()
                if not k.startswith(("seconds", "processor_seconds", "peak_mib", "environment"))
            }
        return [settled(v) for v in value] if isinstance(value, list) else value

    return settled(results_of(unit, root))


def wait_for(what: Callable[[], bool], driver: subprocess.Popen[bytes] | None = None) -> None:
    end = time.monotonic() + _PATIENCE
    while not what():
        assert time.monotonic() < end, "waited in vain"
        assert driver is None or driver.poll() is None, "the driver ended"
        time.sleep(0.01)


def workers_of(driver: int) -> list[int]:
    """Processes that the driver started for units."""
    try:
        children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    except OSError:
        return []
    return [int(pid) for pid in children if "spawn_main" in _command(int(pid))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_killed_workers_and_drivers_lose_nothing(
    study_file: Path, units: list[Unit], unbroken: Path, tmp_path: Path
) -> None:
    """A worker is killed within its training, then the driver; the same command finishes."""
    if not Path("/proc/self/task").is_dir():
        pytest.skip("no /proc to find the workers in")
    command = [
        sys.executable, "-m", "ropewalk.cli.main", "lab", "run", str(study_file),
        "--out", str(tmp_path), "--workers", "2", "--threads", "1",
    ]  # fmt: skip
    first, second = units[0], units[1]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as driver:
        try:
            wait_for(lambda: (tmp_path / first.key / STATE).exists(), driver)
            before = workers_of(driver.pid)
            assert 1 <= len(before) <= 2
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            # Others take their place and finish the two trainings.
            wait_for(lambda: len(unfinished(units, tmp_path)) <= 3, driver)
            running = workers_of(driver.pid)
        finally:
            driver.kill()
    wait_for(lambda: not any("spawn_main" in _command(pid) for pid in running))
    done = [unit for unit in units if (tmp_path / unit.key / DONE).exists()]
    assert {first.key, second.key} & {unit.key for unit in done}
    assert unfinished(units, tmp_path)
    stamps = {u.key: (tmp_path / u.key / RESULT).stat().st_mtime_ns for u in done}

    finished = subprocess.run(command, capture_output=True, check=True, timeout=2 * _PATIENCE)
    assert f"{len(units)} units, {len(units) - len(done)} of them to do" in finished.stderr.decode()
    assert not unfinished(units, tmp_path)
    for unit in done:
        assert (tmp_path / unit.key / RESULT).stat().st_mtime_ns == stamps[unit.key]
    for unit in units:
        assert result(unit, tmp_path) == result(unit, unbroken)
        assert json.loads((tmp_path / unit.key / "config.json").read_text()) == json.loads(
            json.dumps(unit.config)
        )
        if unit.kind == "model":
            ours, theirs = (load_file(r / unit.key / WEIGHTS) for r in (tmp_path, unbroken))
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
            assert not list((tmp_path / unit.key).glob("*.pt*"))
        for journal in (tmp_path / unit.key).glob("journal-*.jsonl"):
            keys = [json.loads(line).get("key") for line in journal.read_text().splitlines()]
            assert len(set(keys)) == len(keys)


def test_what_a_kill_cut_short_is_cleared_away(units: list[Unit], tmp_path: Path) -> None:
    unit = dataclasses.replace(units[0], model=_one_step(units[0].model))
    folder = tmp_path / unit.key
    folder.mkdir(parents=True)
    for name in (f"{STATE}.partial-123", "log.jsonl.partial-123"):
        (folder / name).write_bytes(b"half")
    perform(unit, tmp_path)
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json", DONE, "log.jsonl", WEIGHTS, RESULT,
    ]  # fmt: skip


def _one_step(plan: ModelPlan) -> ModelPlan:
    return dataclasses.replace(plan, training=dataclasses.replace(plan.training, steps=1))


def test_a_finished_study_starts_no_process(
    units: list[Unit], unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "multiprocessing", Refusing())
    told: list[tuple[float, float, str]] = []
    run_here(units, unbroken, workers=2, progress=lambda *step: told.append(step))
    assert [label for *_, label in told] == ["done"]


class Refusing:
    def get_context(self, _: str) -> Refusing:
        return self

    def Process(self, **_: Any) -> None:  # noqa: N802 (multiprocessing's name)
        raise AssertionError("a unit was started")


class Unstarted:
    """Processes that do their unit at once and in this process, or die."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.dies: Callable[[Unit], bool] = lambda _: False
        self.together = 0

    def get_context(self, _: str) -> Unstarted:
        return self

    def Process(self, *, target: Any, args: tuple[Any, ...], daemon: bool) -> Any:  # noqa: N802
        unit, root, *_ = args
        assert daemon
        outer = self

        class Process:
            def start(self) -> None:
                outer.started.append(unit.key)
                if not outer.dies(unit):
                    (root / unit.key).mkdir(parents=True)
                    (root / unit.key / DONE).touch()

            def is_alive(self) -> bool:
                return False

            def terminate(self) -> None: ...

            def join(self) -> None: ...

        return Process()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Unstarted:
    fake = Unstarted()
    monkeypatch.setattr(schedule, "multiprocessing", fake)
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LOOKS", 0.0)
    return fake


def test_units_start_after_their_needs(
    units: list[Unit], tmp_path: Path, processes: Unstarted
) -> None:
    shares: list[float] = []
    run_here(
        units, tmp_path, workers=1, progress=lambda done, total, _: shares.append(done / total)
    )
    assert sorted(processes.started) == sorted(u.key for u in units)
    by_key = {u.key: u for u in units}
    for place, key in enumerate(processes.started):
        assert set(by_key[key].needs) <= set(processes.started[:place])
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_what_most_hangs_on_starts_first(
    units: list[Unit], tmp_path: Path, processes: Unstarted
) -> None:
    """A short training before a long one goes before a middling one that nothing needs."""
    rope, learned, tuned = (u for u in units if u.kind == "model")
    assert tuned.needs == (rope.key,)
    chain = [
        dataclasses.replace(rope, cost=1.0),
        dataclasses.replace(learned, cost=5.0),
        dataclasses.replace(tuned, cost=7.0),
    ]
    run_here(chain, tmp_path, workers=1)
    assert processes.started == [rope.key, tuned.key, learned.key]
    processes.started.clear()
    chain[1] = dataclasses.replace(learned, cost=8.5)
    run_here(chain, tmp_path / "other", workers=1)
    assert processes.started == [learned.key, rope.key, tuned.key]


def test_several_studies_share_units(units: list[Unit], study_file: Path) -> None:
    study = read_study(str(study_file))
    plan = study.models["rope"]
    fewer = dataclasses.replace(study, models={"other": plan}, measures=())
    assert units_of(study, fewer) == units
    both = units_of(fewer, study)
    assert len(both) == len(units)
    assert {u.key for u in both} == {u.key for u in units}
    # An order in which everything comes after what it needs.
    for place, unit in enumerate(both):
        assert set(unit.needs) <= {u.key for u in both[:place]}


def test_a_worker_that_dies_is_tried_three_times(
    units: list[Unit], tmp_path: Path, processes: Unstarted
) -> None:
    processes.dies = lambda unit: unit.key == units[0].key
    with pytest.raises(InputError, match="3 failures, the last: it was killed") as error:
        run_here(units, tmp_path, workers=2)
    assert processes.started.count(units[0].key) == 3
    assert str(tmp_path / units[0].key) in str(error.value)
    assert units[0].label in str(error.value)
    processes.started.clear()
    deaths = iter([True, True, False])
    processes.dies = lambda unit: unit.key == units[0].key and next(deaths)
    run_here(units, tmp_path, workers=2)
    assert processes.started.count(units[0].key) == 3
    assert not unfinished(units, tmp_path)


def test_a_unit_that_always_fails_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "MOST_TRIES", 1)
    path = tmp_path / "wrong.toml"
    path.write_text(
        STUDY.replace("steps = 220", "steps = 1").replace(
            "trials = 3", "trials = 3\ndistances = [500]"
        )
    )
    units = units_of(read_study(str(path)))
    perform(units[0], tmp_path)
    failing = next(u for u in units if u.kind == "loss" and u.needs == (units[0].key,))
    with pytest.raises(InputError) as error:
        run_here([failing], tmp_path, workers=1, threads=1)
    line = str(error.value)
    assert "\n" not in line
    assert "InputError: distances: got 500" in line
    assert str(tmp_path / failing.key) in line
    text = (tmp_path / failing.key / "failure.txt").read_text()
    assert text.startswith("Traceback")
    assert not (tmp_path / failing.key / DONE).exists()


def test_shares_are_read_from_what_workers_write(units: list[Unit], tmp_path: Path) -> None:
    unit = units[0]
    assert share_done(unit, tmp_path) == 0.0
    folder = tmp_path / unit.key
    folder.mkdir(parents=True)
    tell = schedule.Teller(folder)
    tell(0.25)
    tell(0.5)  # too soon after the first to be written
    assert share_done(unit, tmp_path) == 0.25
    tell(1.0)
    assert share_done(unit, tmp_path) == 1.0
    (folder / schedule.PROGRESS).write_text("")
    assert share_done(unit, tmp_path) == 0.0
    (folder / DONE).touch()
    assert share_done(unit, tmp_path) == 1.0


def test_the_table_has_every_number_once(study_file: Path, unbroken: Path) -> None:
    study = read_study(str(study_file))
    found = collect(study, unbroken)
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert tuple(rows[0]) == COLUMNS
    identity = [tuple(v for k, v in row.items() if k not in ("value", "trials")) for row in rows]
    assert len(set(identity)) == len(rows)
    kinds = {}
    for row in rows:
        key = (row["model"], row["what"], row["metric"])
        kinds[key] = kinds.get(key, 0) + 1
        assert row["study"] == "tiny"
        assert row["seed"] == "1"
        float(row["value"])
    logged = {"rope": 3, "learned": 3, "tuned": 1}
    for model, entries in logged.items():
        for metric in ("training_bits", "held_out_bits", "seconds_per_step"):
            assert kinds.pop((model, "training", metric)) == entries
    # Two methods, two lengths, two protocols; past its table a learned encoding is cropped only.
    for model, cells in (("rope", 8), ("learned", 6)):
        assert kinds.pop((model, "loss", "bits_per_byte")) == cells
        assert kinds.pop((model, "loss", "nats_per_token")) == 2 * cells
    assert {key[1] for key in kinds} == {"retrieval"}
    hits = [row for row in rows if row["what"] == "retrieval"]
    assert {row["measure"] for row in hits} == {"both"}
    trials: dict[tuple[str, ...], int] = {}
    for row in hits:
        cell = (row["model"], row["method"], row["length"])
        trials[cell] = trials.get(cell, 0) + int(row["trials"])
    assert set(trials.values()) == {3}
    assert len(trials) == 4 + 3


def test_any_study_has_a_page(study_file: Path, unbroken: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    study = read_study(str(study_file))
    lines = write_report(study, unbroken, tmp_path)
    assert lines[0] == study.title
    page = (tmp_path / "tiny.md").read_text()
    assert page.startswith("# Does a tiny study run?\n\n![")
    assert "| learned | none |" in page
    assert "not possible" in page
    assert "key-value trials found" in page
    names = sorted(p.name for p in (tmp_path / "tiny").iterdir())
    assert names == ["configs.json", "results.csv", "training.png", "training.svg"]
    configs = json.loads((tmp_path / "tiny" / "configs.json").read_text())
    assert set(configs) == {unit.key for unit in units_of(study)}
    assert write_report(study, unbroken, None) == lines[:-2]


def test_a_study_that_is_not_done_has_no_page(study_file: Path, tmp_path: Path) -> None:
    study = read_study(str(study_file))
    with pytest.raises(InputError, match=r"5 of 5 units not done, e\.g\. training rope, seed 1"):
        collect(study, tmp_path)


def test_tuned_models_start_from_what_was_learned(units: list[Unit], unbroken: Path) -> None:
    by_name = {u.model.name: u for u in units if u.kind == "model"}
    rope, tuned = (trained_model(by_name[name], unbroken) for name in ("rope", "tuned"))
    assert isinstance(tuned.encoding, Rotary)
    assert tuned.encoding.rope.scaling.stretch == 2
    assert rope.encoding == Rotary(rope=Rope(head_dim=8))
    # Ten steps of a warm-up move no weight by more than the sum of the rates and the decay.
    fresh = Decoder(SHAPE, rope.encoding, 1)
    near = (tuned.head - rope.head).norm()
    assert 0 < near < (fresh.head - rope.head).norm()


def random_texts(length: int) -> TextSet:
    generator = torch.Generator().manual_seed(4)
    rows = torch.randint(0, 256, (2, length), generator=generator).tolist()
    documents = tuple(TokenizedDocument(f"d{i}", tuple(row), 16) for i, row in enumerate(rows))
    return TextSet(documents, "random bytes", "none")


@pytest.mark.parametrize(
    ("encoding", "method"),
    [
        (Rotary(rope=Rope(head_dim=8)), "none"),
        (Rotary(rope=Rope(head_dim=8)), "linear"),
        (Rotary(rope=Rope(head_dim=8)), "rerope"),
        (Rotary(rope=Rope(head_dim=8)), "crop"),
        (ALiBi(), "none"),
        (Learned(length=128), "none"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_measured_nats_are_those_of_a_plain_pass(
    encoding: Any, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # bfloat16 would round away what a wrong token changes.
    monkeypatch.setattr(scoring, "mixed_precision", lambda: None)
    original, length, scored = 64, 128, 16
    model = Decoder(SHAPE, encoding, 2)
    with torch.no_grad():
        model.head *= 3  # far from all choices alike
    texts = random_texts(length)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        runner = Runner(
            LabScorer(model), texts, base_setting(encoding), original, scored,
            [method_named(method)], Options(trials=0, short=False), journal, lambda *_: None,
        )  # fmt: skip
        cell = runner.run("m", (length,)).cells[0]
    assert model.encoding == encoding
    base = Rope(head_dim=8)
    setting = {
        "linear": Rotary(rope=base.with_scaling(Linear(factor=2, original_length=64))),
        "rerope": method_named("rerope").setting(base, 2, 64),
    }.get(method, encoding)
    plain = Decoder(SHAPE, setting, 2)
    plain.load_state_dict(model.state_dict())
    for document, nats in zip(texts.documents, cell.per_document, strict=True):
        tokens = torch.tensor(
            [document.tokens[-original:] if method == "crop" else document.tokens]
        )
        with torch.no_grad():
            logits = plain(tokens).double().log_softmax(-1)
        picked = logits[:, -scored - 1 : -1].gather(-1, tokens[:, -scored:, None])
        # Logits from float32 sums over the width; the mean of losses as large adds no more.
        largest = float(logits.abs().max())
        assert nats == pytest.approx(
            -float(picked.mean()), abs=4 * SHAPE.width * largest * 2.0**-24
        )
    if method == "linear":
        assert not torch.allclose(model(tokens), plain(tokens))


def test_bytes_are_tokens() -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer("aé")["input_ids"]
    assert ids == [97, 195, 169]
    assert tokenizer.decode(ids) == "aé"
    # Within a character: its replacement is three bytes long, the token one.
    assert tokenizer.byte_count([195]) == 1


def test_what_methods_start_from() -> None:
    rope = Rope(head_dim=8)
    assert base_setting(Rotary(rope=rope)) is rope
    stretched = Rotary(rope=rope.with_scaling(Linear(factor=2)))
    assert base_setting(stretched) is stretched
    assert base_setting(ALiBi()) == ALiBi()
