"""`ropewalk verify`: every identity holds, and every check can fail."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from ropewalk import InputError, positions, rotation, tables
from ropewalk.cli.main import cli, main
from ropewalk.encodings import sinusoidal
from ropewalk.show.decay_plot import plot_decay
from ropewalk.verify import attention, decay_curve, forms, verify
from ropewalk.verify.check import compare

REAL_ROTATE = rotation.rotate
REAL_COS_SIN = tables.cos_sin


def flipped_sign(x, cos, sin, **options):
    return REAL_ROTATE(x, cos, -sin, **options)


def wrong_pairing(x, cos, sin, *, pairing="half", **options):
    other = {"half": "adjacent", "adjacent": "half"}[pairing]
    return REAL_ROTATE(x, cos, sin, pairing=other, **options)


def swapped_tables(x, cos, sin, **options):
    return REAL_ROTATE(x, sin, cos, **options)


def no_rotation(x, *_, **__):
    return x.copy()


def reflection(x, cos, sin, *, pairing="half", **options):
    # (a cos + b sin, a sin - b cos): orthogonal, but determinant -1.
    turned = x.copy()
    planes = cos.shape[-1]
    second = slice(planes, 2 * planes) if pairing == "half" else slice(1, 2 * planes, 2)
    turned[..., second] *= -1
    return REAL_ROTATE(turned, cos, sin, pairing=pairing, **options)


def longer_by_a_millionth(x, cos, sin, **options):
    return REAL_ROTATE(x, cos, sin, **options) * (1 + 1e-6)


def inverse_ignored(x, cos, sin, **options):
    options.pop("inverse", None)
    return REAL_ROTATE(x, cos, sin, **options)


def double_angle(x, cos, sin, **options):
    return REAL_ROTATE(x, cos * cos - sin * sin, 2 * sin * cos, **options)


def rounded_to_bfloat16(x, cos, sin, **options):
    turned = np.ascontiguousarray(REAL_ROTATE(x, cos, sin, **options), dtype=np.float32)
    return (turned.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(x.dtype)


def not_a_number(x, *_, **__):
    return np.full_like(x, np.nan)


def positions_from_one(rope, ids, **options):
    return REAL_COS_SIN(rope, np.asarray(ids) + 1, **options)


def squared_positions(rope, ids, **options):
    return REAL_COS_SIN(rope, np.asarray(ids) ** 2, **options)


def half_tables(rope, ids, **options):
    cos, sin = REAL_COS_SIN(rope, ids, **options)
    return cos / 2, sin / 2


def lanes_in_halves(ids, dim, theta=10000.0):
    # All sines, then all cosines: tensor2tensor's layout, not the paper's.
    pairs = sinusoidal(ids, dim, theta)
    return np.concatenate([pairs[..., 0::2], pairs[..., 1::2]], axis=-1)


def decode_restarts(_, count):
    return np.arange(count)


def conjugated(x, ids, pairing, real=forms.complex_form):
    return real(x, [-i for i in ids], pairing)


def looks_ahead(q, k, v, *, real=attention.softmax_attention, **_):
    return real(q, k, v, causal=False)


def cares_for_order(q, k, v, *, causal, real=attention.softmax_attention):
    return real(q, k, v * np.arange(1, len(v) + 1)[:, None], causal=causal)


# What is broken, how, and checks that must notice it among others.
BREAKAGES = {
    flipped_sign: ("ropewalk.rotation.rotate", ["key turned by 30°", "half: O(d) = matrix"]),
    wrong_pairing: (
        "ropewalk.rotation.rotate",
        ["half: O(d) = matrix", "adjacent: O(d) = complex", "half: scores by m - n, complex"],
    ),
    swapped_tables: (
        "ropewalk.rotation.rotate",
        ["position 0 turns nothing", "key turned by 0°", "half: O(d) = complex"],
    ),
    no_rotation: (
        "ropewalk.rotation.rotate",
        [
            "30° per token, m = 0, n = 2",
            "45° per token, m = 0, n = 2",
            "with positions: other outputs",
            "slowest-plane pair: cos(Δθ)",
        ],
    ),
    reflection: ("ropewalk.rotation.rotate", ["det R at 30°, 45°, 137°"]),
    longer_by_a_millionth: (
        "ropewalk.rotation.rotate",
        [
            *(f"RᵀR - I at {angle}°" for angle in (30, 45, 137)),
            "length kept, d = 64, m to 131072",
            "the pair at Δ = 54410, a turn",
        ],
    ),
    inverse_ignored: ("ropewalk.rotation.rotate", ["turned and turned back"]),
    double_angle: (
        "ropewalk.rotation.rotate",
        [
            *(f"30° per token, m = {m}, n = {m + 2}" for m in (0, 1, 5, 10)),
            "m = 1, n = 3 directly, 30° and 90°",
            "m = 1, n = 3 by q·R(2)k = cos 60°",
            "score of the keys at 0° and 30°",
            "score of the keys at 0° and 60°",
            "score of the keys at 30° and 60°",
            "key turned by 60°",
            "adjacent: scores by m - n, complex",
        ],
    ),
    rounded_to_bfloat16: ("ropewalk.rotation.rotate", ["d = 64, all positions + 131072"]),
    not_a_number: (
        "ropewalk.rotation.rotate",
        ["length kept, d = 64, m to 131072", "with positions: other outputs"],
    ),
    positions_from_one: ("ropewalk.tables.cos_sin", ["position 0 turns nothing"]),
    squared_positions: ("ropewalk.tables.cos_sin", ["d = 64, all positions + 131072"]),
    half_tables: (
        "ropewalk.tables.cos_sin",
        ["bound at Δ = 0: (64 planes + 1)/2", "length kept, d = 64, m to 131072"],
    ),
    lanes_in_halves: (
        "ropewalk.encodings.sinusoidal",
        ["all lanes at m = 1 and 2"],
    ),
    decode_restarts: (
        "ropewalk.positions.from_offset",
        ["prefill 16 + 8 decoded = one pass"],
    ),
    conjugated: (
        "ropewalk.verify.forms.complex_form",
        ["half: complex = matrix", "adjacent: complex = matrix", "half: O(d) = complex"],
    ),
    looks_ahead: (
        "ropewalk.verify.attention.softmax_attention",
        ["prefill 16 + 8 decoded = one pass"],
    ),
    cares_for_order: (
        "ropewalk.verify.attention.softmax_attention",
        ["no positions: the outputs follow"],
    ),
}


def break_it(monkeypatch, broken):
    monkeypatch.setattr(BREAKAGES[broken][0], broken)


def failing():
    return {check.name for check in verify().checks if not check.passed}


@pytest.mark.parametrize("precision", ["exact", "float32"])
def test_every_identity_holds(precision):
    report = verify(precision)
    assert [c.name for c in report.checks if not c.passed] == []
    assert report.passed
    assert report.held == len(report.checks)
    assert len({check.name for check in report.checks}) == len(report.checks)


def test_numbers_that_texts_print():
    found = {check.name: check for check in verify().checks}
    for name, printed in [
        ("score of the keys at 0° and 30°", "0.87"),
        ("score of the keys at 0° and 60°", "0.50"),
        ("score of the keys at 30° and 60°", "0.87"),
    ]:
        assert f"{found[name].computed[0]:.2f}" == printed
    for angle in (30, 45, 137):
        check = found[f"RᵀR - I at {angle}°"]
        assert check.difference <= check.tolerance <= 1e-15
    for name, value, digits in [
        ("lane 0 at m = 1: sin 1", math.sin(1), 3),
        ("lane 0 at m = 2: sin 2", math.sin(2), 3),
        ("lane 3 at m = 1: cos 0.01", math.cos(0.01), 5),
        ("lane 3 at m = 2: cos 0.02", math.cos(0.02), 4),
    ]:
        assert found[name].expected[0] == round(value, digits)


@pytest.mark.parametrize("broken", BREAKAGES, ids=lambda broken: broken.__name__)
def test_broken_code_is_noticed(monkeypatch, broken):
    break_it(monkeypatch, broken)
    names = failing()
    assert names >= set(BREAKAGES[broken][1])
    assert names


def test_every_check_can_fail(monkeypatch):
    never = {check.name for check in verify().checks}
    for broken in BREAKAGES:
        with monkeypatch.context() as patch:
            break_it(patch, broken)
            never -= failing()
    assert never == set()


def test_a_difference_that_is_no_number_fails():
    same = {"formula": "", "tolerance_formula": "", "source": "", "tolerance": 1.0}
    for relation in ("equal", "at most", "differs"):
        check = compare("g", "n", computed=[1, math.nan], expected=1, relation=relation, **same)
        assert not check.passed
    assert compare("g", "n", computed=[0.5], expected=1, relation="at most", **same).difference == 0
    assert not compare("g", "n", computed=[1.5], expected=1, relation="differs", **same).passed


def test_unknown_precision_is_refused():
    with pytest.raises(InputError, match="precision: got 'float16'"):
        verify("float16")


def test_decay_bound_against_sums_written_out():
    head_dim, theta, distances = 8, 100.0, (0, 1, 7)
    curve = decay_curve(distances, head_dim=head_dim, theta=theta)
    for distance, bound, score in zip(distances, curve.bound, curve.pair_score, strict=True):
        partial, sizes = 0j, []
        for plane in range(head_dim // 2):
            angle = distance * theta ** (-2 * plane / head_dim)
            partial += complex(math.cos(angle), math.sin(angle))
            sizes.append(abs(partial))
        # Each of the 4 terms of a sum is off by 2p ε (this loop) + 6ε + 2π p 2^-65 (the table)
        # at most, and the sizes are averaged.
        epsilon = 2.0**-52
        term = (2 * distance + 8) * epsilon + 2 * math.pi * distance * 2.0**-65
        assert bound == pytest.approx(sum(sizes) / 4, rel=0, abs=4 * term)
        assert score == pytest.approx(math.cos(angle), rel=0, abs=2 * term)


def test_decay_refuses_an_odd_head():
    with pytest.raises(InputError, match="rotary_dim"):
        decay_curve((0, 1), head_dim=7)


def test_command_exits_0_and_prints_the_count_last():
    result = CliRunner().invoke(cli, ["verify"])
    count = len(verify().checks)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"{count} of {count} hold"
    assert "FAIL" not in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    assert "Upper bound on a magnitude, not the score" in result.stdout
    assert result.stderr == ""


def test_every_check_fits_one_line():
    lines = CliRunner().invoke(cli, ["verify"]).stdout.splitlines()
    for check in verify().checks:
        assert sum(line.startswith(f"  {check.name} ") for line in lines) == 1, check.name


def test_formulas_are_printed_on_demand():
    text = CliRunner().invoke(cli, ["verify", "--formulas"]).stdout
    flat = " ".join(text.split())
    for check in verify().checks:
        assert " ".join(check.formula.split()) in flat
        assert " ".join(check.tolerance_formula.split()) in flat
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.parametrize("broken", [flipped_sign, wrong_pairing, swapped_tables, not_a_number])
def test_command_exits_1_when_broken(monkeypatch, broken):
    break_it(monkeypatch, broken)
    result = CliRunner().invoke(cli, ["verify"])
    names = failing()
    assert result.exit_code == 1
    for name in names:
        assert f"FAIL: {name}: " in result.stdout
    count = len(verify().checks)
    assert result.stdout.splitlines()[-1] == f"{count - len(names)} of {count} hold"
    with pytest.raises(SystemExit) as stop:
        main(["verify"])
    assert stop.value.code == 1


def test_json(monkeypatch):
    result = CliRunner().invoke(cli, ["verify", "--json"])
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data["schema_version"] == 1
    assert data["passed"] is True
    assert data["held"] == len(data["checks"]) == len(verify().checks)
    assert all(check["passed"] for check in data["checks"])
    assert data["decay"]["title"] == "upper bound on a magnitude, not the score"
    assert len(data["decay"]["bound"]) == len(data["decay"]["distances"])

    break_it(monkeypatch, not_a_number)
    result = CliRunner().invoke(cli, ["verify", "--json"])
    assert result.exit_code == 1

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    data = json.loads(result.stdout, parse_constant=refuse)
    assert data["passed"] is False
    assert any(check["difference"] is None for check in data["checks"])


def test_json_in_float32():
    data = json.loads(
        CliRunner().invoke(cli, ["verify", "--json", "--precision", "float32"]).stdout
    )
    assert data["precision"] == "float32"
    assert data["epsilon"] == 2.0**-23
    assert data["passed"] is True


@pytest.mark.parametrize(
    ("name", "start"), [("decay.png", b"\x89PNG"), ("decay.svg", b"<?xml"), ("D.PNG", b"\x89PNG")]
)
def test_plot(tmp_path, name, start):
    path = tmp_path / name
    result = CliRunner().invoke(cli, ["verify", "--plot", str(path)])
    assert result.exit_code == 0
    assert result.stderr == f"wrote {path}\n"
    first = path.read_bytes()
    assert first.startswith(start)
    plot_decay(path)
    assert path.read_bytes() == first


def test_plot_says_what_it_is(tmp_path):
    path = tmp_path / "decay.svg"
    plot_decay(path)
    text = path.read_text()
    assert "Upper bound on a magnitude, not the score" in text
    assert "distance between query and key (tokens" in text


def test_plot_that_cannot_be_written(tmp_path, capsys):
    for name, words in [("decay.pdf", "ends in .png or .svg"), ("none/decay.png", "writable")]:
        with pytest.raises(SystemExit) as stop:
            main(["verify", "--plot", str(tmp_path / name)])
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert words in error
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_without_greek_letters():
    done = subprocess.run(
        [sys.executable, "-m", "ropewalk.cli.main", "verify"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert b" ok" in done.stdout
    assert done.stdout.isascii()


def test_positions_module_is_what_decoding_uses():
    # The breakage `decode_restarts` replaces this name; it must stay the library's own.
    assert attention.position_ids is positions
