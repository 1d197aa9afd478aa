"""``ropewalk convert --to``: refusals that name what is lost, --lossy, files, GGUF patches."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from generated_plans import plan_of

from ropewalk import NTK, InputError, Linear, Llama3, LongRoPE, Plain, Rope, YaRN
from ropewalk.cli.main import main
from ropewalk.convert.convert import convert
from ropewalk.convert.differences import differences
from ropewalk.convert.document import Options
from ropewalk.convert.features import FEATURES
from ropewalk.convert.new_file import new_file
from ropewalk.convert.targets import TARGETS
from ropewalk.convert.to_hf import share_of
from ropewalk.models.plan import QueryTemperature
from ropewalk.models.read import read, read_any
from ropewalk.scaling import Learned, NTKByParts, NTKCritical

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 131072, "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "vocab_size": 1000, "torch_dtype": "bfloat16",
}  # fmt: skip
COUNTS = {"heads": 8, "kv_heads": 2}


def put(folder, values, name="config.json"):
    path = folder / name
    path.write_text(json.dumps(values))
    return path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def plan(rope, stated=8192, layers=2, **changes):
    made = plan_of([("full_attention", rope, None)] * layers, stated, COUNTS)
    return dataclasses.replace(made, **changes)


def refused(made, target, **options):
    with pytest.raises(InputError) as caught:
        convert(made, target, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"--to {target}: got ")
    return text


def adjacent(scaling, **changes):
    return Rope(head_dim=64, theta=1e4, pairing="adjacent", scaling=scaling, **changes)


def half(scaling, **changes):
    return Rope(head_dim=64, theta=1e4, scaling=scaling, **changes)


YARN = YaRN(factor=4.0, original_length=2048)


@pytest.mark.parametrize(
    ("target", "rope", "lost"),
    [
        ("meta", half(Plain(original_length=8192)), "half pairing"),
        ("meta", adjacent(YARN), "yarn scaling (YaRN(original_length=2048, factor=4))"),
        ("meta", adjacent(Linear(factor=2.0)), "linear scaling"),
        ("meta", adjacent(Plain(), rotary_dim=32), "partial rotary (32 of 64 lanes)"),
        ("mistral", half(YARN), "half pairing"),
        ("mistral", adjacent(dataclasses.replace(YARN, truncate=False)), "truncate false"),
        (
            "mistral",
            adjacent(dataclasses.replace(YARN, attention_factor=1.2)),
            "yarn amplitude of its own (attention factor 1.2)",
        ),
        ("gpt-oss", half(YARN), "yarn with rounding (truncate true)"),
        ("megatron", half(Linear(factor=1.5)), "fractional factor (factor 1.5)"),
        (
            "megatron",
            half(
                Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=4096)
            ),
            "llama3 original length (4096)",
        ),
        ("gguf-kv", half(dataclasses.replace(YARN, truncate=False)), "truncate false"),
        ("mlx", half(dataclasses.replace(YARN, truncate=False)), "truncate false"),
        ("sglang", half(dataclasses.replace(YARN, attention_factor=1.0)), "attention factor 1"),
        ("llama.cpp", half(dataclasses.replace(YARN, attention_factor=1.0)), "attention factor 1"),
        ("llama.cpp", half(dataclasses.replace(YARN, truncate=False)), "truncate false"),
        ("llama.cpp", half(Plain(), direction=-1), None),
    ],
)
def test_what_a_target_cannot_say(target, rope, lost):
    made = plan(rope, stated=None)
    if lost is None:
        assert convert(made, target).lost == ()
        return
    assert lost in refused(made, target)
    done = convert(made, target, lossy=True)
    assert any(lost in text for text in done.lost)
    assert done.text


def test_lossy_names_every_loss_and_no_other():
    rope = half(LongRoPE(short_factor=(1.0,) * 32, long_factor=(2.0,) * 32, original_length=4096))
    done = convert(plan(rope, stated=131072), "meta", lossy=True)
    assert [text.split(" (")[0] for text in done.lost] == [
        "longrope scaling", "half pairing", "stated length",
    ]  # fmt: skip
    assert json.loads(done.text)["use_scaled_rope"] is False


def test_a_family_that_reads_it_otherwise_is_refused():
    rope = half(Plain(original_length=8192), rotary_dim=32)
    text = refused(plan(rope), "hf")  # LlamaConfig turns all lanes
    assert "rotary_dim 32 would be 64" in text
    assert convert(plan(rope), "hf", options=Options(family="glm4_moe")).lost == ()
    text = refused(plan(adjacent(Plain(original_length=8192))), "hf")
    assert "pairing 'adjacent' would be 'half'" in text
    assert "permute the weights too" in text
    done = convert(plan(adjacent(Plain(original_length=8192))), "hf", lossy=True)
    assert done.lost == ("pairing 'adjacent' would be 'half'",)


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="--to: got 'gpt-os', expected one of hf, hf4"):
        convert(plan(half(Plain())), "gpt-os")
    with pytest.raises(InputError, match="did you mean 'llama'"):
        convert(plan(half(Plain())), "hf", options=Options(family="lama"))
    with pytest.raises(InputError, match="an architecture of GGUF files"):
        convert(plan(half(Plain())), "gguf-kv", options=Options(family="esmfold"))


def test_a_length_that_is_unknown_is_noted_not_lost():
    done = convert(plan(half(Plain()), stated=None), "hf")
    assert done.lost == ()
    assert any("stated_length is not known" in note for note in done.notes)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class _Wobbling(Rope):
    wobble: float = 0.0


def test_fields_that_the_writers_do_not_know_are_refused(monkeypatch):
    from ropewalk.convert import plan_changes

    known = plan_changes._KNOWN_FIELDS
    monkeypatch.setitem(known, _Wobbling, known[Rope])
    quiet = _Wobbling(head_dim=64, theta=1e4, scaling=Plain(original_length=8192))
    assert convert(plan(quiet), "hf").lost == ()
    loud = dataclasses.replace(quiet, wobble=0.5)
    with pytest.raises(InputError, match=r"wobble: got 0\.5, which the writers do not know"):
        convert(plan(loud), "hf")


@pytest.mark.parametrize(
    "scaling",
    [
        NTK(factor=4.0, original_length=2048),
        NTKCritical(factor=4.0, original_length=2048),
        NTKByParts(factor=4.0, original_length=2048),
        NTKByParts(factor=4.0, original_length=2048, ramp="rotations"),
        YaRN(factor=4.0, original_length=2048, ramp="rotations"),
    ],
)
def test_scalings_without_a_name_of_their_own(tmp_path, scaling):
    """Written as another formula for the same frequencies and amplitude."""
    rope = half(scaling)
    made = plan(rope, stated=2048 if isinstance(scaling, NTK | NTKCritical) else 8192)
    found = read(put(tmp_path, json.loads(convert(made, "hf").text))).rope
    apart = abs(found.inv_freq(9999) / rope.inv_freq(9999) - 1).max()
    assert apart <= 2.0**-48
    assert found.attention_factor() == pytest.approx(rope.attention_factor(), rel=2**-50)


def test_table_is_consistent():
    for target in TARGETS.values():
        assert target.says <= set(FEATURES)
    # A feature that every target can say would need no row; some kinds of windows are beyond.
    assert set.intersection(*(set(t.says) for t in TARGETS.values())) == {"windows"}


def test_each_feature_is_gone_without_it():
    """What --lossy leaves out is no longer needed."""
    rope = Rope(
        head_dim=64, rotary_dim=32, theta=1e4, direction=-1, pairing="adjacent",
        scaling=YaRN(
            factor=3.5, original_length=512, beta_fast=8.0, attention_factor=1.3, truncate=False
        ),
    )  # fmt: skip
    query = QueryTemperature(0.1, 512)
    made = plan_of(
        [
            ("full_attention", rope, None, query),
            ("sliding_attention", dataclasses.replace(rope, theta=2e4), 128),
            ("full_attention", None, None, query),
            ("chunked_attention", rope, 256),
        ],
        8192, COUNTS, value_dim=48,
    )  # fmt: skip
    needed = [name for name, feature in FEATURES.items() if feature.has(made)]
    assert len(needed) >= 14
    for name in needed:
        assert not FEATURES[name].has(FEATURES[name].without(made)), name


# The command line


def test_prints_and_writes(tmp_path, capsys):
    source = put(tmp_path, LLAMA)
    code, out, err = run(capsys, "convert", source, "--to", "hf")
    assert (code, err) == (0, "")
    values = json.loads(out)
    assert values["rope_parameters"]["rope_type"] == "llama3"
    assert values["vocab_size"] == 1000  # all other keys stay
    assert "rope_scaling" not in values
    assert "rope_theta" not in values
    target = tmp_path / "new.json"
    code, out, err = run(capsys, "convert", source, "--to", "hf", "--write", target)
    assert (code, out, err) == (0, "", f"wrote {target}\n")
    assert read(target).layers == read(source).layers
    before = target.read_bytes()
    code, _, err = run(capsys, "convert", source, "--to", "hf4", "--write", target)
    assert code == 2
    assert "something that exists" in err
    assert target.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "new.json"]


def test_there_and_back_keeps_the_file(tmp_path):
    source = put(tmp_path, LLAMA)
    base = json.loads(source.read_text())
    new = json.loads(convert(read(source), "hf", options=Options(base=base)).text)
    old = json.loads(convert(read(source), "hf4", options=Options(base=new)).text)
    assert old == base


def test_nested_text_models_stay_nested(tmp_path):
    outer = {"model_type": "voxtral", "text_config": LLAMA, "audio_config": {"x": 1}}
    source = put(tmp_path, outer)
    found = json.loads(convert(read(source), "hf", options=Options(base=outer)).text)
    assert found["text_config"]["rope_parameters"]["factor"] == 8.0
    assert found["audio_config"] == {"x": 1}
    text = convert(read(source), "vllm", options=Options(base=outer)).text
    assert '{"text_config": {"rope_parameters": ' in text
    assert read_any(source, engine_args=text).layers == read(source).layers


def test_losses_stand_on_stderr_and_in_json(tmp_path, capsys):
    source = put(tmp_path, LLAMA)
    code, out, err = run(capsys, "convert", source, "--to", "meta")
    assert (code, out) == (2, "")
    assert re.match(r"ropewalk: --to meta: got half pairing \(.*\), expected .*; fix: .*\n$", err)
    code, out, err = run(capsys, "convert", source, "--to", "meta", "--lossy", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["schema_version"] == 1
    assert [text.split(" (")[0] for text in report["lost"]] == ["half pairing", "stated length"]
    assert err.splitlines() == [f"lost: {text}" for text in report["lost"]]
    assert json.loads(report["text"])["use_scaled_rope"] is True
    code, _, err = run(capsys, "convert", source, "--to", "hf", "--write", tmp_path / "no" / "x")
    assert code == 2
    assert "No such file" in err
    code, _, err = run(capsys, "convert", source, "--to", "hf", "--pairing", "half")
    assert code == 2
    code, _, err = run(capsys, "convert", source, "--to", "hf", "--write", tmp_path / "x.gguf")
    assert "a GGUF file from a model that is none" in err


def test_inspect_reads_texts_and_settings(tmp_path, capsys):
    source = put(tmp_path, {**LLAMA, "rope_scaling": None})
    code, out, _ = run(capsys, "inspect", "--", "llama-server", "--rope-scale", "4", "-c", "9")
    assert code == 0
    assert "Linear(factor=4)" in out
    code, out, _ = run(capsys, "inspect", "FROM x\nPARAMETER rope_frequency_scale 0.5", "--json")
    assert json.loads(out)["scaling"] == {"kind": "linear", "factor": 2.0}
    code, out, _ = run(capsys, "inspect", source, "--engine-args", "--rope-scale 4")
    assert "linear factor 4" in out
    code, out, _ = run(capsys, "inspect", source, "--overrides", '{"rope_theta": 1e7}', "--json")
    assert json.loads(out)["ropes"][0]["theta"] == 1e7
    code, _, err = run(capsys, "inspect", "--overrides", "{}", "--", "--rope-scale", "4")
    assert (code, "a text with --engine-args" in err) == (2, True)
    code, _, err = run(capsys, "inspect", "--rope-scale", "4")
    assert code == 2


def test_a_share_of_lanes_comes_back_whole():
    """49 x (6/49) is 5.999… in floats: the share is written one unit higher there."""
    sizes = [(head, lanes) for head in range(2, 513) for lanes in range(2, head + 1, 2)]
    assert any(int(head * (lanes / head)) < lanes for head, lanes in sizes)
    assert all(int(head * share_of(lanes, head)) == lanes for head, lanes in sizes)


def test_differences_are_named():
    rope = half(YARN)
    made = plan(rope)
    assert differences(made, made, 0.0) == []

    def apart(other, **changes):
        return differences(made, plan(other, **changes), 0.0)

    (text,) = apart(dataclasses.replace(rope, theta=10001.0))
    assert text == "theta 10000 would be 10001"
    (text,) = apart(half(dataclasses.replace(YARN, factor=4.001)))
    assert text.startswith("YaRN(original_length=2048, factor=4) would be YaRN(")
    (text,) = apart(half(dataclasses.replace(YARN, attention_factor=1.0)))
    assert text == "attention factor 1.13863 would be 1"
    assert apart(rope, stated=4096) == ["stated_length 8192 would be 4096"]
    assert apart(rope, layers=3) == ["2 layers would be 3"]
    # Nothing apart where another formula gives the same, and within a tolerance.
    same = dataclasses.replace(YARN, attention_factor=YARN.amplitude(), truncate=True)
    assert apart(half(same)) == []
    near = plan(dataclasses.replace(rope, theta=10000.001))
    assert differences(made, near, 2.0**-20) == []


def test_a_file_that_comes_to_exist_meanwhile_is_kept(tmp_path):
    target, broken = tmp_path / "x", tmp_path / "y"

    def too_late():
        with new_file(target) as file:
            file.write(b"mine")
            target.write_bytes(b"theirs")

    def interrupted():
        with new_file(broken) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(InputError, match="something that exists"):
        too_late()
    assert target.read_bytes() == b"theirs"
    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_learned_frequencies_stand_in_no_settings():
    rope = half(Learned(alpha=(0.5,) * 32, under=YARN))
    for target in TARGETS:
        assert "learned frequencies (of the weights)" in refused(plan(rope), target)
    done = convert(plan(rope), "hf", lossy=True)
    assert done.lost == ("learned frequencies (of the weights)",)
    assert json.loads(done.text)["rope_parameters"]["rope_type"] == "yarn"
