"""``ropewalk check`` and ``ropewalk explain``: formats, exit codes, several models at once."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ropewalk.check.formats import as_github, as_text
from ropewalk.check.rules import RULES
from ropewalk.check.runner import CheckReport, ModelReport, check, check_text
from ropewalk.cli.main import main

SOUND: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
WARNED = {**SOUND, "max_position_embeddings": 512}
NOTED = {**SOUND, "rope_theta": 10000.0}
WRONG = {**SOUND, "rope_scaling": {"rope_type": "yran", "factor": 4.0}}
UNKNOWN = {**SOUND, "model_type": "unheard-of"}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(content: dict[str, Any], name: str = "config.json") -> str:
        path = tmp_path / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    return written


@pytest.fixture
def ropewalk(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        out = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, out.out, out.err

    return run


@pytest.mark.parametrize(
    ("content", "fail_on", "code"),
    [
        (SOUND, "note", 0),
        (NOTED, "note", 1),
        (NOTED, "warning", 0),
        (WARNED, "warning", 1),
        (WARNED, "error", 0),
        (WRONG, "error", 1),
        (WRONG, "never", 0),
        (UNKNOWN, "never", 2),
    ],
)
def test_exit_codes(content: dict[str, Any], fail_on: str, code: int, write: Any, ropewalk: Any):
    assert ropewalk("check", write(content), "--fail-on", fail_on)[0] == code


def test_warnings_fail_by_default(write: Any, ropewalk: Any) -> None:
    assert ropewalk("check", write(WARNED))[0] == 1
    assert ropewalk("check", write(NOTED))[0] == 0


def test_a_text_block_names_everything_within_100_columns(write: Any, ropewalk: Any) -> None:
    path = write(WRONG)
    _, out, err = ropewalk("check", path)
    lines = out.splitlines()
    assert err == ""
    assert max(map(len, lines)) <= 100
    # A long path is folded.
    assert (
        "".join(lines)
        .replace(" ", "")
        .startswith(f"{path}:rope_scaling.rope_type".replace(" ", ""))
    )
    for word in ("error RW401", "  found  ", "  right  ", "  fix    ", "  source ", "'yarn'"):
        assert word in out
    assert lines[-1] == "1 model: 1 error, 0 warnings, 0 notes"


def test_a_sound_model_is_one_line(write: Any, ropewalk: Any) -> None:
    assert ropewalk("check", write(SOUND))[1] == "1 model: 0 errors, 0 warnings, 0 notes\n"


def test_several_models_and_one_that_cannot_be_read(write: Any, ropewalk: Any) -> None:
    paths = [write(SOUND, "a.json"), write(UNKNOWN, "b.json"), write(WRONG, "c.json")]
    code, out, _ = ropewalk("check", *paths)
    assert code == 2
    assert "RW401" in out
    assert "unheard-of" in out
    assert out.splitlines()[-1].endswith("; 1 could not be read")
    code, out, err = ropewalk("check", *paths, "--json")
    report = json.loads(out)
    assert code == 2
    assert report["schema_version"] == 1
    assert [model["path"] for model in report["models"]] == paths
    assert report["counts"] == {"error": 1, "warning": 0, "note": 0}
    assert report["models"][1]["unusable"].count("\n") == 0
    assert len(err.splitlines()) == 1
    (finding,) = report["models"][2]["findings"]
    assert set(finding) == {
        "code", "severity", "title", "path", "where", "found", "right", "fix", "source",
    }  # fmt: skip


def test_output_is_the_same_every_time(write: Any, ropewalk: Any) -> None:
    path = write({**WARNED, "rope_theta": 10000.0, "rope_scalling": {}})
    assert ropewalk("check", path, "--json") == ropewalk("check", path, "--json")


def test_sarif(write: Any, ropewalk: Any) -> None:
    wrong, noted = write(WRONG, "a b.json"), write(NOTED, "c.json")
    code, out, _ = ropewalk("check", wrong, noted, "--format", "sarif")
    log = json.loads(out)
    assert code == 1
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["RW107", "RW401"]
    assert run["invocations"][0]["executionSuccessful"] is True
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert "a%20b.json" in uri
    log = json.loads(ropewalk("check", write(UNKNOWN), "--format", "sarif")[1])
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_github_annotations_are_one_line_each(write: Any, ropewalk: Any) -> None:
    code, out, _ = ropewalk("check", write(WRONG), write(NOTED, "n.json"), "--format", "github")
    lines = out.splitlines()
    assert code == 1
    assert [line.split(" ")[0] for line in lines] == ["::error", "::notice"]
    assert all("title=RW" in line for line in lines)


def test_names_and_values_cannot_steer_a_terminal_or_a_log(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({**SOUND, "rope_scaling": {"rope_type": "y\u001b[2J\nran::error::x"}})
    )
    report = CheckReport((check(path),))
    assert "\u001b" not in as_text(report)
    assert "\n" not in as_github(report).rstrip("\n")


def test_every_rule_fits_100_columns_and_one_annotation_each() -> None:
    contents = [rule.bad.content for rule in RULES if isinstance(rule.bad.content, str)]
    report = CheckReport(tuple(check_text(str(content)) for content in contents))
    words = "a right answer that is long enough to be folded more than once, " * 5
    long = dataclasses.replace(report.findings[0], right=words, found="50%\nof it", where="a,b:c")
    report = CheckReport((*report.models, ModelReport("m", (long,), "no\nfile")))
    assert max(map(len, as_text(report).splitlines())) <= 100
    lines = as_github(report).splitlines()
    assert len(lines) == len(report.findings) + 1
    assert "found 50%25%0Aof it" in lines[-2]
    assert lines[-1] == "::error file=m::no%0Afile"


def test_select_and_ignore(write: Any, ropewalk: Any) -> None:
    path = write({**WARNED, "rope_scalling": {}, "rope_theta": None})
    every = {
        f["code"] for f in json.loads(ropewalk("check", path, "--json")[1])["models"][0]["findings"]
    }
    assert every == {"RW101", "RW109", "RW407"}
    some = json.loads(
        ropewalk("check", path, "--json", "--select", "RW1,RW4", "--ignore", "RW109")[1]
    )
    assert {f["code"] for f in some["models"][0]["findings"]} == {"RW101", "RW407"}
    code, out, err = ropewalk("check", path, "--select", "RW999")
    assert (code, out) == (2, "")
    assert "RW999" in err
    assert len(err.splitlines()) == 1


def test_a_command_line_after_dashes(ropewalk: Any) -> None:
    code, out, _ = ropewalk("check", "--", "llama-server", "-c", "16384", "--rope-freq-scale", "4")
    assert code == 1
    assert "error RW701" in out
    quoted = ropewalk("check", "llama-server -c 16384 --rope-freq-scale 0.25")
    assert quoted[0] == 0


def test_engine_args_and_overrides(write: Any, ropewalk: Any) -> None:
    path = write(SOUND)
    code, out, _ = ropewalk("check", path, "--engine-args", "--max-model-len 16384")
    assert code == 1
    assert "RW706" in out
    block = '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}'
    code, out, _ = ropewalk("check", path, "--overrides", block)
    assert "RW104" in out
    code, _, err = ropewalk("check", "--overrides", block, "--", "llama-server", "-c", "1")
    assert code == 2
    assert len(err.splitlines()) == 1


def test_a_path_that_is_not_there(ropewalk: Any) -> None:
    code, out, _ = ropewalk("check", "no-such-folder")
    assert code == 2
    assert "no such file" in out


def test_explain_lists_and_explains(ropewalk: Any) -> None:
    code, out, _ = ropewalk("explain")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [rule.code for rule in RULES]
    for rule in RULES:
        code, out, _ = ropewalk("explain", rule.code.lower())
        assert code == 0
        assert rule.title in out
        assert "Found fault with:" in out
        assert "As it should be:" in out
    told = json.loads(ropewalk("explain", "RW103", "--json")[1])
    assert told["schema_version"] == 1
    assert told["code"] == "RW103"
    code, out, err = ropewalk("explain", "RW10")
    assert (code, out) == (2, "")
    assert "did you mean RW" in err
