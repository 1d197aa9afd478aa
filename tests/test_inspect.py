"""``ropewalk inspect``: one screen, JSON, one-line errors."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.console import Console

from ropewalk import Rope
from ropewalk.cli.main import cli, main
from ropewalk.models import read_config
from ropewalk.show.positions_table import planes_view, ranges

SMOLLM3 = {"model_type": "smollm3", "rope_theta": 5000000.0, "max_position_embeddings": 65536}
LATENT = {
    "model_type": "deepseek_v3",
    "max_position_embeddings": 163840,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}
GEMMA3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
}
LLAMA4 = {"model_type": "llama4_text"}
PHI3 = {
    "model_type": "phi3",
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": {"type": "su", "short_factor": [1.0] * 48, "long_factor": [4.0] * 48},
}
ALL = [SMOLLM3, LATENT, GEMMA3, LLAMA4, PHI3]


@pytest.fixture
def file(tmp_path):
    def make(config):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return str(path)

    return make


def run(*arguments):
    result = CliRunner().invoke(cli, ["inspect", *arguments], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("config", ALL, ids=lambda c: c["model_type"])
def test_fits_the_screen(file, config):
    shown = run(file(config))
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 56


def test_says_what_the_layers_are(file):
    shown = run(file(SMOLLM3))
    assert "smollm3 (hf), 36 layers: 27 rope / 9 none; 16 query heads, 4 key and value" in shown
    assert "3, 7, … 35" in shown
    assert "no rope" in shown
    assert "5,000,000" in shown
    assert "trained on 65,536; the file states 65,536" in shown
    assert "default of transformers' SmolLM3Config" in shown


def test_shows_bands_clocks_and_the_three_amplitudes(file):
    shown = " ".join(run(file(LATENT)).split())
    assert "0-10 kept (11); 11-22 blended (12); 23-31 interpolated (9)" in shown
    assert "plane 0 turns every 6.2832 tokens, plane 31 every 1,884,690" in shown
    assert "it makes 0.0869 turns, and 23 of 32 planes make at least one" in shown
    assert "attention factor 1 on cos and sin" in shown
    assert "softmax multiplier 1.87385 on the softmax scale" in shown
    assert "trained on 4,096; the file states 163,840 (× 40)" in shown
    assert "64 of 192, from 128" in shown
    shown = " ".join(run(file(LLAMA4)).split())
    assert "1 + 0.1 ln(1 + floor((position + 1) / 8192)) on queries of layers without" in shown
    shown = " ".join(run(file(PHI3)).split())
    assert "1 for texts" not in shown
    assert "1.19024 on cos and sin" in shown
    assert "at 131,072 tokens" in shown


def test_one_group_per_distinct_rope(file):
    shown = run(file(GEMMA3))
    assert "0-4, 6-10, … 30-33" in shown
    assert "layers 5, 11, … 29: 0-127 interpolated (128)" in shown
    assert "trained on unknown" in shown


def test_planes(file):
    shown = run(file(LATENT), "--planes")
    assert max(map(len, shown.splitlines())) <= 100
    rope = read_config(LATENT, "c").rope
    for plane in rope.describe():
        row = next(
            line.split()
            for line in shown.splitlines()
            if line.split()[:2] == [str(plane.index), f"{plane.lanes[0]},"]
        )
        assert row[2:4] == [str(plane.lanes[1]), f"{plane.inv_freq:.9g}"]
        assert row[-1] == plane.band


def printed(view, width):
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(view)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_planes_are_the_table_that_rich_would_lay_out(monkeypatch):
    """A table of rich takes a millisecond for every row, which is seconds for a wide head."""
    view = planes_view(read_config(LATENT, "c"))
    (rows,) = (part for part in view.renderables if hasattr(part, "_folded"))
    by_rich = printed(rows._folded(), 100)
    monkeypatch.setattr(rows, "_folded", lambda: pytest.fail("rich laid the table out"))
    assert printed(rows, 100) == by_rich
    assert len(by_rich) == 32 + 2


def test_planes_fold_on_a_narrow_terminal():
    view = planes_view(read_config(LATENT, "c"))
    shown = printed(view, 40)
    assert max(map(len, shown)) <= 40
    assert len(shown) > 32 + 4


@pytest.mark.parametrize("config", ALL, ids=lambda c: c["model_type"])
def test_json_holds_everything(file, config):
    path = file(config)
    found = json.loads(run(path, "--json"))
    plan = read_config(config, path)
    assert found["schema_version"] == 1
    assert found["path"] == path
    assert found["notes"] == list(plan.notes)
    assert found["sources"].keys() == plan.sources.keys()
    assert len(found["layers"]) == len(plan.layers)
    for entry, layer in zip(found["layers"], plan.layers, strict=True):
        assert (entry["kind"], entry["encoding"]) == (layer.kind, layer.encoding)
        if layer.rope is None:
            assert entry["rope"] is None
        else:
            fields = dict(found["ropes"][entry["rope"]])
            fields.pop("attention_factor")
            assert Rope.from_dict(fields) == layer.rope
    assert found == {"schema_version": 1, **json.loads(json.dumps(plan.to_dict()))}


def test_errors_are_one_line_and_exit_2(file, capsys):
    for arguments in (
        ["inspect", "no/such/place"],
        ["inspect", file({"model_type": "bloom"})],
        ["inspect", file({"model_type": "brand_new"}), "--json"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("ropewalk: ")
        assert len(err.splitlines()) == 1
        assert "fix: " in err


def test_assume_family(file):
    path = file({"model_type": "brand_new", "rope_theta": 10000.0})
    shown = run(path, "--assume-family", "llama")
    assert "read as family 'llama' on request; the file says 'brand_new'" in shown


def test_help_keeps_the_lines_of_its_examples():
    assert "\n    ropewalk inspect model.gguf --planes\n" in run("--help")


def test_ranges():
    assert ranges([0, 1, 2, 4, 6, 7]) == "0-2, 4, 6-7"
    assert ranges([3, 7, 11, 15]) == "3, 7, … 15"
    assert ranges([5]) == "5"
    assert ranges([0, 1, 3, 4, 6, 7, 9, 10]) == "0-1, 3-4, … 9-10"


def test_importing_the_package_stays_light():
    heavy = "('gguf', 'torch', 'transformers', 'click', 'rich')"
    code = f"import sys, ropewalk; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
