"""The command line: help, exit codes, one-line errors, JSON on stdout, no traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk import InputError
from ropewalk.cli.lengths import parse_lengths
from ropewalk.cli.main import COMMANDS, main
from ropewalk.cli.progress import _clock, _TimeLeft


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    out = capsys.readouterr()
    code = stopped.value.code
    assert isinstance(code, int)
    return code, out.out, out.err


def test_help_lists_every_command_and_begins_with_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert out.index("Examples") < out.index("Options")
    for name in COMMANDS:
        assert name in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert out.index("Examples") < out.index("Options")
    assert max(len(line) for line in out.splitlines()) <= 100


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from ropewalk.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'torch', 'transformers', 'jax', 'matplotlib', 'gguf', 'rich', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "stretch")
    assert code == 2
    assert "No such command" in err


@pytest.mark.parametrize("command", [("inspect",), ("extend", "--to", "4096"), ("measure",)])
def test_an_unreadable_model_is_one_line_and_exit_2(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "model.gguf"
    bad.write_bytes(b"no model")
    code, out, err = run(capsys, command[0], str(bad), *command[1:])
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "; fix: " in err
    assert "Traceback" not in err


def test_extend_prints_json(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "extend", str(tiny_model), "--to", "4x", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["schema_version"] == 1
    assert (data["target"], data["method"], data["factor"]) == (768, "yarn", 4.0)
    assert len(data["engines"]) == 5


def test_extend_fits_a_hundred_columns(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "extend", str(tiny_model), "--to", "768")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "verdict  yarn" in out


def test_measure_then_extend_from_what_was_measured(
    tiny_model: Path,
    texts: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = [part for path in texts[:2] for part in ("--text", str(path))]
    out_folder = tmp_path / "out"
    code, out, err = run(
        capsys,
        "measure",
        str(tiny_model),
        *text,
        *("--lengths", "1x,2x", "--methods", "crop,none,yarn", "--trials", "2"),
        *("--dtype", "float32", "--out", str(out_folder), "--json"),
    )
    assert code == 0
    data = json.loads(out)
    assert data["schema_version"] == 1
    assert [c["method"] for c in data["cells"]][:2] == ["crop", "crop"]
    assert "wrote" in err
    assert (out_folder / "report.md").exists()
    code, out, _ = run(
        capsys, "extend", str(tiny_model), *text, "--to", "2x", "--measure", "--trials", "2"
    )
    assert code == 0
    assert "Measured at 384 tokens" in out


@pytest.mark.parametrize(
    ("text", "lengths"),
    [("1x,2x", (192, 384)), ("8192, 16k", (8192, 16384)), ("1.5×", (288,)), (None, None)],
)
def test_lengths(text: str | None, lengths: object, tiny_model: Path) -> None:
    assert parse_lengths(text, tiny_model) == lengths


@pytest.mark.parametrize("text", ["", "12q", "x", "1x,,2x"])
def test_bad_lengths_are_refused(text: str, tiny_model: Path) -> None:
    with pytest.raises(InputError, match="--lengths"):
        parse_lengths(text, tiny_model)


def test_time_left_counts_only_the_work_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    left = _TimeLeft()
    assert left.text(50, 100) == "time left: unknown yet"
    assert _TimeLeft().text(100, 100) == "all of it was done before"
    now[0] += 60
    # Ten of the fifty units left took a minute: four minutes for the other forty.
    assert left.text(60, 100) == "1:00 gone, 4:00 left"
    assert _clock(3661) == "1:01:01"
