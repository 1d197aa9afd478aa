"""Study files: those of the package, what equal models share, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropewalk import InputError
from ropewalk.cli.main import main
from ropewalk.encodings import ALiBi, LogN, ReRoPE, Rotary
from ropewalk.lab.reports import REPORTS
from ropewalk.lab.study import Study, names, read_study
from ropewalk.lab.training import Training
from ropewalk.lab.units import planned_units, units_of
from ropewalk.lab.work import trained_encoding
from ropewalk.scaling import YaRN

SMALL = """
seeds = [1, 2]
[shape]
layers = 2
heads = 2
head_dim = 8
hidden = 16
[training]
length = 64
batch = 2
steps = 4
[models.rope]
encoding = { kind = "rotary" }
"""
TINY_MODEL = '[models.rope]\nencoding = { kind = "rotary" }\n'


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def study_of(folder: Path, text: str) -> Study:
    return read_study(str(written(folder, text)))


def trainings(study: Study) -> dict[str, dict[int, str]]:
    """Model name → seed → key of its training."""
    out: dict[str, dict[int, str]] = {}
    for unit in planned_units(study):
        if unit.kind == "model":
            out.setdefault(unit.model.name, {})[unit.seed] = unit.key
    return out


@pytest.mark.parametrize("name", names())
def test_every_study_of_the_package_reads(name: str) -> None:
    study = read_study(name)
    assert study.name == name
    assert len(study.seeds) >= 3
    assert study.title.endswith("?")
    assert study.report in REPORTS
    units = units_of(study)
    assert len({unit.key for unit in units}) == len(units)
    before: set[str] = set()
    for unit in units:
        assert set(unit.needs) <= before
        before.add(unit.key)


def test_the_studies_are_six() -> None:
    assert names() == ["base-bound", "beyond", "convergence", "decay", "stages", "tuning"]


def test_equal_models_of_studies_are_one_unit() -> None:
    convergence, beyond, decay = (
        trainings(read_study(name)) for name in ("convergence", "beyond", "decay")
    )
    for model, keys in convergence.items():
        assert beyond[model] == keys
    for model, keys in decay.items():
        assert convergence[model] == keys
    stages, tuning, bound = (
        trainings(read_study(name)) for name in ("stages", "tuning", "base-bound")
    )
    assert stages["rope"] == tuning["rope"]
    # The name of a model in a file is none of its properties.
    assert bound["base-10000"] == stages["rope"]
    assert bound["base-500"] != bound["base-10000"]
    assert stages["rope"] != convergence["rope"]


def test_what_changes_a_result_changes_the_key(tmp_path: Path) -> None:
    keys = {trainings(study_of(tmp_path, SMALL))["rope"][1]}
    changes = [
        ("hidden = 16", "hidden = 24"),
        ("steps = 4", "steps = 5"),
        ("length = 64", "length = 65"),
        ('kind = "rotary"', 'kind = "rotary", theta = 500.0'),
        ('kind = "rotary"', 'kind = "none"'),
        ("[models", "[data]\ncopy_share = 0.5\n[models"),
    ]
    for old, new in changes:
        assert old in SMALL
        keys.add(trainings(study_of(tmp_path, SMALL.replace(old, new)))["rope"][1])
    assert len(keys) == 1 + len(changes)
    same = SMALL.replace("[models.rope]", "[models.other]").replace("seeds = [1, 2]", "seeds = [1]")
    assert trainings(study_of(tmp_path, same))["other"][1] in keys


def test_equal_models_of_one_study_are_trained_once(tmp_path: Path) -> None:
    text = SMALL + '[models.again]\nencoding = { kind = "rotary" }\n[[measures]]\nname = "m"\n'
    study = study_of(tmp_path, text)
    found = trainings(study)
    assert found["rope"] == found["again"]
    # The digest alone tells two seeds apart: others refer to a training by it.
    assert len({key.rpartition("-")[2] for key in found["rope"].values()}) == 2
    assert [u.kind for u in units_of(study)] == ["model", "model", "loss", "loss"]
    assert len(planned_units(study)) == 8


def test_the_committed_results_are_those_of_the_study_files() -> None:
    """Neither a study file nor the code that reads it changes what a page says was run."""
    pages = Path(__file__).parent.parent / "docs" / "studies"
    kept = {path.parent.name for path in pages.glob("*/configs.json")}
    assert kept >= {"base-bound", "stages", "tuning"}
    for name in kept:
        planned = {unit.key: unit.config for unit in units_of(read_study(name))}
        stored = json.loads((pages / name / "configs.json").read_text())
        assert stored == json.loads(json.dumps(planned))


def test_a_start_hands_on_its_encoding_and_the_place_in_the_data(tmp_path: Path) -> None:
    text = SMALL.replace("[models.rope]", "[models.rope]\ntraining = { end_share = 1.0 }") + (
        '[models.tuned]\nstart = "rope"\nmethod = "yarn"\nfactor = 4\n'
        "training = { length = 256, steps = 7 }\n"
        '[models.more]\nstart = "tuned"\n'
    )
    study = study_of(tmp_path, text)
    tuned, more = study.models["tuned"], study.models["more"]
    assert (tuned.training.first_step, more.training.first_step) == (4, 11)
    assert tuned.training.batch == 2
    # Not the rest of its start's schedule: a start of another kind would change it unseen.
    plain = Training().end_share
    assert [study.models[n].training.end_share for n in study.models] == [1.0, plain, plain]
    assert more.training.length == study.length
    encoding = trained_encoding(tuned)
    assert isinstance(encoding, Rotary)
    assert encoding.rope.scaling == YaRN(factor=4.0, original_length=64)
    assert tuned.encoding == study.models["rope"].encoding
    units = {u.model.name: u for u in units_of(study) if u.seed == 1}
    assert units["tuned"].needs == (units["rope"].key,)


def test_encodings_are_built_from_their_tables(tmp_path: Path) -> None:
    text = SMALL + (
        '[models.a]\nencoding = { kind = "rerope", window = 32, theta = 500.0 }\n'
        '[models.b]\nencoding = { kind = "log-n", original_length = 64, inner = '
        '{ kind = "rotary", rotary_dim = 4 } }\n'
        '[models.c]\nencoding = { kind = "alibi" }\n'
    )
    models = study_of(tmp_path, text).models
    a, b, c = (models[name].encoding for name in "abc")
    assert isinstance(a, ReRoPE)
    assert (a.window, a.rope.theta, a.rope.head_dim) == (32, 500.0, 8)
    assert isinstance(b, LogN)
    assert isinstance(b.inner, Rotary)
    assert b.inner.rope.rotary_dim == 4
    assert c == ALiBi()


def model(values: str) -> str:
    return SMALL + f"[models.x]\n{values}\n"


def encoded(table: str) -> str:
    return model(f"encoding = {table}")


def measured(values: str) -> str:
    return SMALL + f"[[measures]]\n{values}\n"


WRONG = {
    "not TOML": ("models = [", "expected TOML"),
    "unknown key": ("colour = 1\n" + SMALL, "colour: got an unknown key"),
    "no models": ("seeds = [1]\n", "models: got None"),
    "models no table": ("models = 3\n", "models: got 3"),
    "model no table": ("[models]\nx = 3\n", "models x: got 3"),
    "unknown model key": (model('encoding = { kind = "none" }\nstep = 3'), "unknown key 'step'"),
    "seeds empty": (SMALL.replace("[1, 2]", "[]"), "seeds: got []"),
    "seeds equal": (SMALL.replace("[1, 2]", "[1, 1]"), "seeds: got [1, 1]"),
    "seeds no list": (SMALL.replace("[1, 2]", "3"), "seeds: got 3"),
    "seeds words": (SMALL.replace("[1, 2]", '["a"]'), "seeds: got ['a']"),
    "seeds truth": (SMALL.replace("[1, 2]", "[true]"), "seeds: got [True]"),
    "shape key": (SMALL.replace("hidden", "width"), "shape: width: got an unknown key"),
    "shape no table": (TINY_MODEL.replace("[", "shape = 3\n[", 1), "shape: got 3"),
    "shape zero": (SMALL.replace("layers = 2", "layers = 0"), "shape: layers: got 0"),
    "length word": (SMALL.replace("= 64", '= "64"'), "training: length: got '64'"),
    "length fraction": (SMALL.replace("= 64", "= 6.5"), "training: length: got 6.5"),
    "rate negative": (SMALL.replace("steps = 4", "peak_rate = -1.0"), "peak_rate: got -1.0"),
    "share above one": (
        SMALL.replace("[models", "[data]\nrecall_share = 0.7\ncopy_share = 0.7\n[models"),
        "together at most 1",
    ),
    "recall too short": (
        SMALL.replace("= 64", "= 16").replace("[models", "[data]\nrecall_share = 0.5\n[models"),
        "at least 32",
    ),
    "unknown encoding": (encoded('{ kind = "rot" }'), "models x: encoding"),
    "encoding no table": (encoded('"rotary"'), "models x: encoding"),
    "kind a list": (encoded('{ kind = ["rotary"] }'), "models x: encoding"),
    "encoding key": (encoded('{ kind = "none", window = 3 }'), "window: got an unknown key"),
    "encoding field": (encoded('{ kind = "rerope" }'), "models x: encoding"),
    "inner missing": (encoded('{ kind = "log-n", original_length = 9 }'), "encoding: inner"),
    "theta word": (encoded('{ kind = "rotary", theta = "x" }'), "models x: encoding"),
    "theta zero": (encoded('{ kind = "rotary", theta = 0.0 }'), "models x: encoding"),
    "scaling number": (encoded('{ kind = "rotary", scaling = 3 }'), "models x: encoding"),
    "scaling name": (encoded('{ kind = "rotary", scaling = { kind = "x" } }'), "encoding"),
    "window word": (encoded('{ kind = "rerope", window = "x" }'), "models x: encoding"),
    "odd rotary_dim": (encoded('{ kind = "rotary", rotary_dim = 3 }'), "models x: encoding"),
    "learned too short": (encoded('{ kind = "learned", length = 32 }'), "at most the 32"),
    "neither": (model("factor = 2"), "neither encoding nor start"),
    "start further down": (model('start = "y"'), "models x: start: got 'y'"),
    "start itself": (model('start = "x"'), "expected a model further up: rope"),
    "start a number": (model("start = 3"), "models x: start: got 3"),
    "unknown method": (model('start = "rope"\nmethod = "magic"'), "models x: method"),
    "method a number": (model('start = "rope"\nmethod = 3'), "models x: method: got 3"),
    "slope of linear": (model('start = "rope"\nmethod = "linear@2"'), "a YaRN and a slope"),
    "factor word": (model('start = "rope"\nfactor = "x"'), "models x: factor: got 'x'"),
    "factor below one": (model('start = "rope"\nfactor = 0.5'), "models x: factor: got 0.5"),
    "skips too short": (
        model('start = "rope"\ntraining = { skips = 32 }'),
        "skips: got 32, expected at least the length, 64",
    ),
    "measures no list": ("measures = 3\n" + SMALL, "measures: got 3"),
    "measure key": (measured("length = 3"), "measures 1: length: got an unknown key"),
    "measure method": (measured('methods = ["crop", "magic"]'), "got 'magic'"),
    "methods a word": (measured('methods = "crop"'), "methods: got 'crop'"),
    "no methods": (measured("methods = []"), "methods: got []"),
    "protocol": (measured('protocols = ["fixd"]'), "protocols: got 'fixd'"),
    "probe": (measured('probe = "key"'), "probe: got 'key'"),
    "kind": (measured('kind = "losses"'), "kind: got 'losses'"),
    "split": (measured('split = "train"'), "split: got 'train'"),
    "model of a measure": (measured('models = ["nope"]'), "models: got 'nope'"),
    "multiples zero": (measured("multiples = [0]"), "multiples: got [0]"),
    "trials negative": (measured("trials = -1"), "trials: got -1"),
    "two of a name": (
        measured('name = "m"\n[[measures]]\nname = "m"'),
        "2 of the name 'm'",
    ),
    "report": ('report = "poem"\n' + SMALL, "report: got 'poem'"),
    "report a number": ("report = 3\n" + SMALL, "report: got 3"),
    "settings": ("settings = 3\n" + SMALL, "settings: got 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_studies_give_one_line(case: str, tmp_path: Path) -> None:
    text, told = WRONG[case]
    path = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_study(str(path))
    line = str(error.value)
    assert told in line
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    assert "; fix: " in line


@pytest.mark.parametrize(
    "arguments",
    [["run", "{wrong}"], ["report", "{wrong}"], ["run", "{missing}"], ["run", "{folder}"],
     ["run", "{binary}"], ["run", "{right}", "{wrong}"], ["report", "{right}"]],
)  # fmt: skip
def test_the_command_says_it_in_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    paths = {
        "wrong": written(tmp_path, WRONG["protocol"][0]),
        "right": written(tmp_path, SMALL, "right.toml"),
        "missing": tmp_path / "missing.toml",
        "folder": tmp_path,
        "binary": binary,
    }
    given = [a.format(**paths) for a in arguments]
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as end:
        main(["lab", *given, "--out", str(out)])
    assert end.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("ropewalk: ")
    assert printed.count("\n") == 1
    assert not out.exists()


def test_the_command_lists_the_studies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["lab", "list"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names()
