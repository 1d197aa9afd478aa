"""The GPU benchmark, rehearsed in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import gpu  # noqa: E402


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # In a process of its own: the interpreter is chosen when triton is imported.
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *arguments],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_rehearsal(tmp_path: Path) -> None:
    done = run("--interpret", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["rehearsal"] is True
    assert all(c["passed"] for c in report["checks"])
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        for source in ("per token", "start", "ids", "axes"):
            found = [c for c in report["checks"] if dtype in c["label"] and source in c["label"]]
            assert len(found) >= 2
    kinds = {case["name"].partition(",")[0] for case in report["cases"]}
    assert kinds == {"forward", "forward+backward", "norm", "cache"}
    for case in report["cases"]:
        names = {row["name"] for row in case["rows"]}
        assert {"copy", "eager", "ropewalk"} <= names, case["left_out"]
    page = (tmp_path / "gpu.md").read_text()
    assert "A rehearsal in Triton's interpreter" in page
    assert " µs" not in page
    assert " ms" not in page


def test_out_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    report: dict[str, Any] = {"cases": [], "dropped": []}
    from benchmarks.gpu_cases import all_cases

    gpu.time_all("cuda", 0.0, None, report)
    assert report["cases"] == []
    assert report["dropped"] == [case.name for case in all_cases(small=False)]
    assert capsys.readouterr().out.count("Dropped, out of time: ") == len(report["dropped"])


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "--interpret" in captured.err


def test_shares_and_ratios() -> None:
    # A clock that goes by the name of the contestant's function.
    class Clock:
        samples, shortest = 4, 1.0

        def __init__(self) -> None:
            self.counts: dict[str, int] = {}

        def __call__(self, call: Any, count: int) -> float:
            self.counts[call.__name__] = count
            return {"quick": 1e-3, "slow": 4.0}[call.__name__]

    def quick() -> None:
        pass

    def slow() -> None:
        pass

    clock = Clock()
    found = gpu.measure({"quick": quick, "slow, graph": slow}, clock)
    assert clock.counts == {"quick": 1000, "slow": 1}
    assert found["quick"].median == 1e-3
    assert found["slow, graph"].median == 4.0 / gpu._GRAPH_CALLS
    row = {
        "name": "a contestant with a name so long that it has to be cut short somewhere near here",
        "seconds": [1e-3, 2e-3, 3e-3],
        "bytes_per_second": 4.3e12,
        "share_of_copy": 0.987,
        "over_eager": 0.0512,
    }
    case = {"name": "a case", "rows": [row, {**row, "share_of_copy": None}], "left_out": {"x": "y"}}
    text = gpu.lines(case)
    assert max(map(len, text)) <= 100
    assert "4,300" in text[4]
    assert "99 %" in text[4]
    assert "0.05" in text[4]
    assert "Left out: x (y)." in text
