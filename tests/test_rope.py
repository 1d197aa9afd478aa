"""The rope as a value: equal, hashed, printed, written and read, described."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import threading

import mp_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ropewalk
from ropewalk import (
    NTK,
    SCALINGS,
    Clipped,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    NTKCritical,
    Plain,
    Proportional,
    Rope,
    YaRN,
)

positive = st.floats(1e-3, 1e6, allow_nan=False)
factors = st.one_of(st.integers(1, 10**6), st.floats(1, 1e6))
lengths = st.integers(7, 2**40)
maybe_length = st.none() | lengths


@st.composite
def parts(draw, cls):
    slow, fast = sorted(draw(st.lists(positive, min_size=2, max_size=2, unique=True)))
    ramp = draw(st.sampled_from(["index", "rotations"]))
    fields = {
        "factor": draw(factors),
        "original_length": draw(lengths),
        "beta_fast": fast,
        "beta_slow": slow,
        "ramp": ramp,
        "truncate": draw(st.sampled_from([None, True, False])) if ramp == "index" else None,
    }
    if cls is YaRN:
        fields |= {
            "attention_factor": draw(st.none() | positive),
            "mscale": draw(st.none() | st.just(0) | positive),
            "mscale_all_dim": draw(st.none() | st.just(0) | positive),
        }
    return cls(**fields)


@st.composite
def llama3(draw):
    low, high = sorted(draw(st.lists(positive, min_size=2, max_size=2)))
    return Llama3(
        factor=draw(factors),
        low_freq_factor=low,
        high_freq_factor=high,
        original_length=draw(lengths),
    )


@st.composite
def scalings(draw, planes: int):
    kind = draw(st.sampled_from(sorted(SCALINGS)))
    divisors = st.lists(positive, min_size=planes, max_size=planes)
    if kind == "plain":
        return Plain(original_length=draw(maybe_length))
    if kind in ("linear", "ntk"):
        return SCALINGS[kind](factor=draw(factors), original_length=draw(maybe_length))
    if kind in ("ntk-critical", "dynamic"):
        return SCALINGS[kind](factor=draw(factors), original_length=draw(lengths))
    if kind in ("by-parts", "yarn"):
        return draw(parts(SCALINGS[kind]))
    if kind == "llama3":
        return draw(llama3())
    if kind == "longrope":
        return LongRoPE(
            short_factor=tuple(draw(divisors)),
            long_factor=tuple(draw(divisors)),
            original_length=draw(lengths),
            factor=draw(factors),
            attention_factor=draw(st.none() | positive),
            short_mscale=draw(st.none() | positive),
            long_mscale=draw(st.none() | positive),
        )
    if kind == "clipped":
        return Clipped(original_length=draw(lengths))
    return Proportional(share=draw(st.floats(0.01, 1)), factor=draw(factors))


@st.composite
def ropes(draw):
    planes = draw(st.integers(2, 12))
    offset, spare = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    return Rope(
        head_dim=offset + 2 * planes + spare,
        rotary_dim=2 * planes,
        theta=draw(st.integers(2, 10**9) | st.floats(1.001, 1e12)),
        pairing=draw(st.sampled_from(["half", "adjacent"])),
        rotary_offset=offset,
        direction=draw(st.sampled_from([1, -1])),
        scaling=draw(scalings(planes)),
    )


# A fixed seed and no store of examples: the same run everywhere.
fixed = settings(max_examples=300, derandomize=True, database=None, deadline=None)


@fixed
@given(ropes())
def test_json_gives_an_equal_rope(rope):
    text = rope.to_json()
    assert "\n" not in text
    again = Rope.from_json(text)
    assert again == rope
    assert hash(again) == hash(rope)
    assert again.to_json() == text
    assert Rope.from_dict(rope.to_dict()) == rope


@fixed
@given(ropes())
def test_repr_is_readable_and_can_be_evaluated(rope):
    text = repr(rope)
    assert "\n" not in text
    assert text.startswith(f"Rope(head_dim={rope.head_dim}, ")
    lists = isinstance(rope.scaling, LongRoPE) and rope.planes > 4
    if lists:
        assert f"; {rope.planes} values)" in text
    else:
        assert eval(text, vars(ropewalk).copy()) == rope


@fixed
@given(ropes(), ropes())
def test_ropes_are_equal_where_all_their_fields_are(a, b):
    assert (a == b) == (a.to_dict() == b.to_dict())
    assert a == dataclasses.replace(a)
    assert len({a, dataclasses.replace(a)}) == 1


def test_repr_of_the_docstring():
    rope = Rope(head_dim=128, theta=1e6, scaling=YaRN(factor=4, original_length=32768))
    assert repr(rope) == (
        "Rope(head_dim=128, theta=1000000, scaling=YaRN(original_length=32768, factor=4))"
    )
    assert repr(Rope(head_dim=8)) == "Rope(head_dim=8, theta=10000)"
    full = Rope(
        head_dim=16, rotary_dim=4, theta=0.1, pairing="adjacent", rotary_offset=2, direction=-1
    )
    assert repr(full) == (
        "Rope(head_dim=16, rotary_dim=4, theta=0.1, pairing='adjacent', rotary_offset=2, "
        "direction=-1)"
    )
    lists = mp_oracle.ROPES["longrope, long"][0]
    assert repr(lists.scaling) == (
        "LongRoPE(original_length=4096, short_factor=(1, 1.013, … 1.611; 48 values), "
        "long_factor=(1.05, 1.76, … 34.42; 48 values), factor=32)"
    )


def test_every_field_makes_a_difference():
    base = Rope(head_dim=16, rotary_dim=8, scaling=Linear(factor=2))
    others = [
        dataclasses.replace(base, **change)
        for change in (
            {"head_dim": 18},
            {"rotary_dim": 6},
            {"theta": 10001},
            {"pairing": "adjacent"},
            {"rotary_offset": 1},
            {"direction": -1},
            {"scaling": Linear(factor=3)},
            {"scaling": NTK(factor=2)},
        )
    ]
    assert len({base, *others}) == 1 + len(others)
    assert {f.name for f in dataclasses.fields(Rope)} == {
        "head_dim",
        "rotary_dim",
        "theta",
        "pairing",
        "scaling",
        "rotary_offset",
        "direction",
    }


def test_json_is_plain_values():
    rope = Rope(head_dim=64, theta=1e6, scaling=YaRN(factor=4, original_length=4096))
    assert json.loads(rope.to_json()) == {
        "head_dim": 64,
        "rotary_dim": 64,
        "theta": 1e6,
        "pairing": "half",
        "rotary_offset": 0,
        "direction": 1,
        "scaling": {"kind": "yarn", "factor": 4, "original_length": 4096},
    }


def test_nothing_can_be_changed():
    rope = Rope(head_dim=64)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rope.theta = 1.0
    for array in (rope.inv_freq(), rope.turn_fractions()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    # The same array is handed out again: it is safe only because it is read-only.
    assert rope.inv_freq() is Rope(head_dim=64).inv_freq()


def test_ropes_can_be_asked_from_several_threads():
    ropes = [Rope(head_dim=32, theta=1000.0 + i) for i in range(20)]
    want = [float(mp_oracle.frequencies(rope)[-1]) for rope in ropes]
    wrong = []

    def ask():
        wrong.extend(r for r, w in zip(ropes, want, strict=True) if r.inv_freq()[-1] != w)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_lanes():
    half = Rope(head_dim=16, rotary_dim=8, rotary_offset=2)
    assert [half.lanes(i) for i in range(4)] == [(2, 6), (3, 7), (4, 8), (5, 9)]
    adjacent = dataclasses.replace(half, pairing="adjacent")
    assert [adjacent.lanes(i) for i in range(4)] == [(2, 3), (4, 5), (6, 7), (8, 9)]
    for rope in (half, adjacent):
        assert rope.planes == 4
        assert sorted(sum((rope.lanes(i) for i in range(4)), ())) == list(range(2, 10))


def test_bands_of_yarn():
    rope = Rope(head_dim=64, theta=1e4, scaling=YaRN(factor=40, original_length=4096))
    planes = rope.describe()
    bands = [plane.band for plane in planes]
    assert bands == ["kept"] * 11 + ["blended"] * 12 + ["interpolated"] * 9
    assert bands.index("interpolated") == 23
    assert [plane.index for plane in planes] == list(range(32))
    assert planes[3].lanes == (3, 35)
    for plane in planes:
        assert plane.wavelength == 2 * math.pi / plane.inv_freq
        plain = 1e4 ** (-2 * plane.index / 64)
        assert plane.turns == pytest.approx(4096 * plain / (2 * math.pi), rel=1e-14)
        assert plane.kept == pytest.approx(plane.inv_freq / plain, rel=1e-14)


def test_bands_of_the_others():
    def bands(scaling, length=None, **fields):
        planes = Rope(**{"head_dim": 64, **fields}, scaling=scaling).describe(length)
        return [plane.band for plane in planes]

    assert bands(Plain()) == ["kept"] * 32
    assert bands(Linear(factor=4)) == ["interpolated"] * 32
    assert bands(NTK(factor=4)) == ["kept", *["blended"] * 30, "interpolated"]
    assert bands(NTKCritical(factor=8, original_length=4096))[0] == "kept"
    assert bands(DynamicNTK(factor=2, original_length=2048)) == ["kept"] * 32
    assert bands(DynamicNTK(factor=2, original_length=2048), 4096) == ["kept", *["blended"] * 31]
    llama = Llama3(factor=32, low_freq_factor=1, high_freq_factor=4, original_length=8192)
    assert bands(llama, theta=5e5) == ["kept"] * 15 + ["blended"] * 3 + ["interpolated"] * 14
    by_parts = NTKByParts(factor=16, original_length=4096)
    assert bands(by_parts)[0] == "kept"
    assert bands(by_parts)[-1] == "interpolated"
    assert bands(Proportional(share=0.25)) == ["kept"] * 8 + ["still"] * 24
    assert bands(Proportional(share=0.25, factor=4)) == ["interpolated"] * 8 + ["still"] * 24
    still = Rope(head_dim=64, scaling=Proportional(share=0.25)).describe()[-1]
    assert (still.inv_freq, still.wavelength, still.kept) == (0.0, math.inf, 0.0)
    assert still.turns is None


def test_original_length_comes_from_the_scaling():
    assert Rope(head_dim=64).original_length is None
    assert Rope(head_dim=64, scaling=Plain(original_length=4096)).original_length == 4096
    rope = Rope(head_dim=64).with_scaling(Linear(factor=2, original_length=512))
    assert (rope.original_length, rope.scaling.stretch) == (512, 2.0)


def test_importing_the_package_imports_numpy_only():
    code = (
        "import sys, ropewalk; r = ropewalk.Rope(head_dim=64); "
        "c, s = r.cos_sin([0, 1]); ropewalk.rotate(c.reshape(2, 1, 32), c[:, :16], s[:, :16]); "
        "print([m for m in ('torch', 'transformers', 'jax', 'matplotlib', 'scipy', 'rich', "
        "'click', 'gguf', 'safetensors', 'mpmath', 'ml_dtypes') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")
