"""Work spread over a local Ray cluster of two machines, with workers and a machine lost on the way.

The numbers must be those of a run at home, bit for bit: every worker computes with one thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from ropewalk import cluster as connection
from ropewalk.errors import InputError, MissingExtraError
from ropewalk.extend.measure import measure
from ropewalk.extend.options import Options
from ropewalk.lab import on_ray
from ropewalk.lab.schedule import FAILURE
from ropewalk.lab.study import read_study
from ropewalk.lab.training import STATE
from ropewalk.lab.units import Unit, units_of
from ropewalk.lab.work import CONFIG, DONE, RESULT, WEIGHTS, perform

_STUDY = """
seeds = {seeds}
[shape]
layers = 2
heads = 2
head_dim = 16
hidden = 64
[training]
length = 64
batch = 4
steps = {steps}
warmup = 10
check_every = 30
[models.rope]
encoding = {{ kind = "rotary" }}
{more}
[[measures]]
name = "past the trained length"
methods = ["crop", "none"]
multiples = [1, 2]
documents = 2
scored = 16
"""
_SECOND = """
[models.further]
start = "rope"
training = { steps = 20 }
"""


def _units(folder: Path, *, seeds: list[int], steps: int, more: str = "") -> list[Unit]:
    path = folder / "tiny.toml"
    path.write_text(_STUDY.format(seeds=seeds, steps=steps, more=more))
    return units_of(read_study(str(path)))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As many threads here as a worker on one core has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def _two_machines(**head: Any) -> Iterator[Any]:
    """Two nodes of one core; their files in a folder of their own."""
    from ray.cluster_utils import Cluster

    # Workers are polite by default; beside other programs they would not start for minutes.
    # The paths of Ray's sockets must be short, shorter than those of tmp_path.
    folder = tempfile.mkdtemp(prefix="ray")
    settings = {
        "RAY_worker_niceness": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": folder,
    }
    # Ray notes its latest cluster there, and does not make the folder.
    (Path(folder) / "ray").mkdir()
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    found = Cluster()
    try:
        found.add_node(**node, include_dashboard=False, temp_dir=folder, **head)
        found.add_node(**node)
        yield found
    finally:
        found.shutdown()
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


def _workers(title: str) -> list[int]:
    """Return the processes of this test's clusters that are at a task or an actor's call."""
    out = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[:1] and process.cmdline()[0].startswith(title):
                out.append(process.pid)
    return out


def _at_home(units: list[Unit], root: Path) -> None:
    for unit in units:
        perform(unit, root)


def _numbers(unit: Unit, root: Path) -> Any:
    """Return all that a unit found but what depends on the machine and the hour."""
    result = json.loads((root / unit.key / RESULT).read_text())
    if unit.kind != "model":
        return [{k: v for k, v in found.items() if k != "environment"} for found in result]
    for entry in result["log"]:
        del entry["seconds_per_step"]
    weights = (root / unit.key / WEIGHTS).read_bytes()
    return result["log"], result["parameters"], weights


def _assert_equal_to_home(units: list[Unit], root: Path, home: Path) -> None:
    for unit in units:
        assert (root / unit.key / DONE).exists(), unit.label
        assert _numbers(unit, root) == _numbers(unit, home), unit.label


class _NoBoard:
    """Stands for the actor's handle."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []
        self.tell = self

    def remote(self, key: str, share: float) -> None:
        self.told.append((key, share))


class TestAddresses:
    @pytest.mark.parametrize(
        "address", ["", "head", "ray://", "ray://head", "head:0", "head:99999", "http://head:80"]
    )
    def test_malformed(self, address: str) -> None:
        with pytest.raises(InputError, match=r"--on: .*expected auto, ray://HOST:PORT"):
            connection.check_address(address)

    @pytest.mark.parametrize("scheme", ["", "ray://"])
    def test_nothing_listens(self, scheme: str) -> None:
        with pytest.raises(InputError, match=r"no Ray cluster at .*refused"):
            connection.check_address(f"{scheme}127.0.0.1:{_free_port()}")

    def test_what_listens_is_not_ray(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "_SECONDS_TO_JOIN", 4.0)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            with (
                pytest.raises(InputError, match="no answer within 4 seconds"),
                connection.connected(address),
            ):
                pass

    def test_auto_is_what_the_variable_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        address = f"127.0.0.1:{_free_port()}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InputError, match=address):
            connection.check_address("auto")

    def test_ray_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'ropewalk\[ray\]'"):
            connection.check_address("auto")

    def test_the_commands_say_it_in_one_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from ropewalk.cli.main import main

        _units(tmp_path, seeds=[1], steps=1)
        for command in (
            ["lab", "run", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "lab")],
            ["measure", "--quick"],
        ):
            with pytest.raises(SystemExit) as stop:
                main([*command, "--on", "nowhere"])
            assert stop.value.code == 2
            assert "fix: correct the address" in capsys.readouterr().err.splitlines()[-1]


class TestAWorkerAlone:
    """What a worker does with a unit, without a cluster round it."""

    def test_another_version_is_refused(self, tmp_path: Path) -> None:
        unit = _units(tmp_path, seeds=[1], steps=3)[0]
        lab = on_ray.Lab(str(tmp_path), "token", "0.0.0")
        reply = on_ray.perform_there(unit, lab, _NoBoard())
        assert reply.outcome == "failed"
        assert "0.0.0 where it was started" in reply.reason

    @pytest.mark.usefixtures("one_thread")
    def test_in_the_folder_that_it_sees(self, tmp_path: Path) -> None:
        unit = _units(tmp_path, seeds=[1], steps=3)[0]
        board = _NoBoard()
        reply = on_ray.perform_there(unit, on_ray.open_lab(tmp_path), board)
        assert reply == on_ray.Reply("done")
        assert (tmp_path / unit.key / DONE).exists()
        assert board.told[0] == (unit.key, 0.0)

    @pytest.mark.usefixtures("one_thread")
    def test_elsewhere_it_asks_for_what_it_needs(self, tmp_path: Path) -> None:
        model, measurement = _units(tmp_path, seeds=[1], steps=3)
        home, lab = tmp_path / "home", on_ray.Lab("/nowhere", "on-ray-token", on_ray.__version__)
        _at_home([model, measurement], home)
        assert on_ray.perform_there(measurement, lab, _NoBoard()).outcome == "wanting"
        needs = on_ray.files_of(home / model.key)
        assert set(needs) == {CONFIG, DONE, RESULT, WEIGHTS, "log.jsonl"}
        reply = on_ray.perform_there(measurement, lab, _NoBoard(), needs)
        assert reply.outcome == "files"
        on_ray.put_files(tmp_path / "lab" / measurement.key, reply.files)
        _assert_equal_to_home([measurement], tmp_path / "lab", home)
        assert not (Path(tempfile.gettempdir()) / "ropewalk-on-ray-token").exists()

    def test_what_went_wrong_comes_back(self, tmp_path: Path) -> None:
        _, measurement = _units(tmp_path, seeds=[1], steps=3)
        lab = on_ray.open_lab(tmp_path)
        reply = on_ray.perform_there(measurement, lab, _NoBoard())
        assert reply.outcome == "failed"
        assert WEIGHTS in reply.reason.strip().splitlines()[-1]


def _hide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let workers look for the lab's folder where it is not."""
    open_lab = on_ray.open_lab

    def elsewhere(root: Path) -> on_ray.Lab:
        lab = open_lab(root)
        return on_ray.Lab(str(tmp_path / "no such folder"), lab.token, lab.version)

    monkeypatch.setattr(on_ray, "open_lab", elsewhere)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_results_come_back_from_machines_with_disks_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = _units(tmp_path, seeds=[1], steps=20)
    root = tmp_path / "lab"
    _hide(monkeypatch, tmp_path)
    shown: list[tuple[float, float, str]] = []
    with _two_machines() as cluster:
        on_ray.run_on_ray(
            units, root, address=cluster.address, progress=lambda *now: shown.append(now)
        )
    _at_home(units, tmp_path / "home")
    _assert_equal_to_home(units, root, tmp_path / "home")
    assert shown[-1] == (sum(u.cost for u in units), sum(u.cost for u in units), "done")
    assert not list(root.glob("on-ray-*"))


class _Fate:
    """Does something once, at the first look where a condition holds."""

    def __init__(self, when: Callable[[], Any], then: Callable[[], None]) -> None:
        self.when, self.then, self.happened = when, then, False

    def look(self) -> None:
        if not self.happened and self.when():
            self.happened = True
            self.then()


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.usefixtures("one_thread")
def test_nothing_is_lost_with_a_killed_worker_and_a_lost_machine(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = _units(tmp_path, seeds=[1, 2], steps=400, more=_SECOND)
    root, temporary = tmp_path / "lab", tmp_path / "own"
    # Ray takes it too, for a note of the last address.
    (temporary / "ray").mkdir(parents=True)
    # Workers inherit it: their own folders are seen from here.
    monkeypatch.setenv("TMPDIR", str(temporary))
    if not shared:
        _hide(monkeypatch, tmp_path)
    kept: dict[Path, int] = {}
    resumed_from: list[Path] = []

    def states() -> list[Path]:
        return list((root if shared else temporary).rglob(STATE))

    def kill() -> None:
        resumed_from.extend(states())
        for pid in _workers("ray::perform_there"):
            os.kill(pid, signal.SIGKILL)

    def remove() -> None:
        for path in root.rglob(DONE):
            result = path.with_name(RESULT)
            kept[result] = result.stat().st_mtime_ns
        cluster.remove_node(cluster.list_all_nodes()[1], allow_graceful=False)

    with _two_machines() as cluster:
        first = _Fate(states, kill)
        second = _Fate(lambda: first.happened and list(root.rglob(DONE)), remove)

        def progress(*_: object) -> None:
            first.look()
            second.look()

        on_ray.run_on_ray(units, root, address=cluster.address, progress=progress)
    assert resumed_from
    assert kept
    for result, written in kept.items():
        assert result.stat().st_mtime_ns == written
    assert list(root.rglob(FAILURE))
    _at_home(units, tmp_path / "home")
    _assert_equal_to_home(units, root, tmp_path / "home")


@pytest.mark.slow
def test_a_unit_that_always_fails_is_told_after_three_tries(tmp_path: Path) -> None:
    units = _units(tmp_path, seeds=[1], steps=3)
    root = tmp_path / "lab"
    # A file where the training's state belongs, that holds none.
    (root / units[0].key).mkdir(parents=True)
    (root / units[0].key / STATE).write_bytes(b"none")
    with _two_machines() as cluster, pytest.raises(InputError, match="3 failures, the last"):
        on_ray.run_on_ray(units, root, address=cluster.address)


@pytest.mark.slow
# Ray leaves the logs of the server that it starts here open.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <_io.FileIO name=.*ray_client_server"
    ":pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.usefixtures("one_thread")
def test_a_study_is_started_from_outside_of_the_cluster(tmp_path: Path) -> None:
    units = _units(tmp_path, seeds=[1], steps=20)
    port = _free_port()
    with _two_machines(ray_client_server_port=port):
        on_ray.run_on_ray(units, tmp_path / "lab", address=f"ray://127.0.0.1:{port}")
    _at_home(units, tmp_path / "home")
    _assert_equal_to_home(units, tmp_path / "lab", tmp_path / "home")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_measurement_is_the_same_on_a_cluster_with_a_killed_worker(
    tiny_model: Path, texts: list[Path], tmp_path: Path
) -> None:
    options = Options(
        lengths=(192, 384), methods=("crop", "none", "yarn"), texts=tuple(texts), trials=4
    )
    home = measure(tiny_model, options, journal_folder=tmp_path / "home")
    frozen: list[int] = []
    killed: list[int] = []
    seen = [0.0]

    def progress(done: float, *_: object) -> None:
        if done and not frozen:
            # One that is frozen is handed its next batch and does not finish it.
            frozen.extend(_workers("ray::Machine"))
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
        elif frozen and not killed and done == seen[0]:
            killed.extend(frozen)
            for pid in frozen:
                os.kill(pid, signal.SIGKILL)
        seen[0] = done

    with _two_machines() as cluster:
        there = measure(
            tiny_model,
            options,
            journal_folder=tmp_path / "there",
            progress=progress,
            on=cluster.address,
        )
    assert killed
    numbers, expected = there.to_dict(), home.to_dict()
    environment = numbers.pop("environment")
    del expected["environment"]
    assert numbers == expected
    assert environment["threads"] == 1
    assert environment["machines"] in (1, 2)


@pytest.mark.slow
def test_a_machine_without_the_model_is_told_in_one_line(
    tiny_model: Path, texts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropewalk.extend import on_ray as passes

    source = passes.Source

    def elsewhere(_: str, digest: str, dtype: str) -> passes.Source:
        return source(str(tmp_path / "nothing"), digest, dtype)

    monkeypatch.setattr(passes, "Source", elsewhere)
    options = Options(lengths=(192,), methods=("crop",), texts=tuple(texts), trials=0)
    with (
        _two_machines() as cluster,
        pytest.raises(InputError, match=r"machine .*nothing: got no such file or folder"),
    ):
        measure(tiny_model, options, journal_folder=tmp_path, on=cluster.address)
