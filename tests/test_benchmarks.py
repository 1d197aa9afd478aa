"""The benchmark's arithmetic, its report, and that the peers compute what they are timed for."""

from __future__ import annotations

import gc
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

# The benchmark is not installed; it lies beside the tests' folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import cases, claims, cpu, flat, models, own, peers, report, usual
from benchmarks.machine import this_machine
from benchmarks.peer import Peer, enter, nothing
from benchmarks.progress import Progress
from benchmarks.result import CaseResult
from benchmarks.task import Prepared, RotationTask, Shape, TableTask
from benchmarks.timing import Contestant, Timing, measure, quartiles, ratio

TINY = Shape(1, 6, 4, 2, 16)
ONE_TOKEN = Shape(3, 1, 4, 2, 16)


class FakeClock:
    """Time passes only where a contestant says so: ``pause=float`` does not wait."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> Contestant:
        def call() -> None:
            self.now += seconds

        return Contestant(call)


def timing(*rounds: tuple[float, ...]) -> Timing:
    return Timing(rounds, 1)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 100])
def test_quartiles_are_numpys(count: int) -> None:
    values = np.random.default_rng(count).random(count)
    got = quartiles(values.tolist())
    want = np.percentile(values, [25, 50, 75])
    # Two roundings of an interpolation between numbers below 1.
    assert np.abs(np.array([got.low, got.median, got.high]) - want).max() <= 2 * 2.0**-53


def test_quartiles_of_one_value_and_of_none() -> None:
    one = quartiles([3.0])
    assert (one.low, one.median, one.high) == (3.0, 3.0, 3.0)
    with pytest.raises(ValueError, match="no values"):
        quartiles([])


def test_ratio_is_taken_within_rounds() -> None:
    # The machine is ten times slower in the second round; the third was played by one only.
    ours = timing((2.0, 2.0), (20.0,), (5.0,))
    theirs = timing((1.0,), (10.0, 10.0), ())
    found = ratio(ours, theirs)
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="no values"):
        ratio(timing((), (1.0,)), timing((1.0,), ()))


def test_measure_finds_what_a_call_takes() -> None:
    clock = FakeClock()
    # Powers of two, so that sums of them are exact.
    lengths = {"short": 2.0**-18, "middle": 2.0**-7, "long": 2.0**-3}
    found = measure(
        {name: clock.takes(seconds) for name, seconds in lengths.items()},
        budget=2.0,
        clock=clock,
        pause=float,
    )
    for name, seconds in lengths.items():
        assert set(found[name].samples) == {seconds}
    assert found["short"].batch > 1
    assert found["short"].batch * lengths["short"] >= 5e-4
    assert found["middle"].batch == found["long"].batch == 1


def test_a_slow_contestant_sits_out_after_the_least_rounds() -> None:
    clock = FakeClock()
    found = measure(
        {"slow": clock.takes(1.0), "fast": clock.takes(2.0**-10)},
        budget=6.0,
        least_rounds=3,
        most_rounds=20,
        clock=clock,
        pause=float,
    )
    # Its share is 3 s, and it sits out once it has used more.
    assert [len(r) for r in found["slow"].rounds] == [1] * 4 + [0] * 16
    assert all(found["fast"].rounds)
    assert len(found["fast"].rounds) == 20


def test_the_least_rounds_are_played_beyond_the_budget() -> None:
    clock = FakeClock()
    shares: list[float] = []
    found = measure(
        {"slow": clock.takes(5.0)},
        budget=1.0,
        least_rounds=3,
        report=shares.append,
        clock=clock,
        pause=float,
    )
    assert found["slow"].rounds == ((5.0,),) * 3
    assert shares == [1.0] * 3


def test_setup_runs_before_each_turn_and_garbage_waits() -> None:
    clock, seen = FakeClock(), []

    def call() -> None:
        clock.now += 1.0
        seen.append(gc.isenabled())

    setups: list[int] = []
    contestant = Contestant(call, setup=lambda: setups.append(len(seen)))
    assert gc.isenabled()
    measure(
        {"one": contestant},
        budget=1.0,
        least_rounds=2,
        clock=clock,
        pause=float,
    )
    assert gc.isenabled()
    assert not any(seen)
    # Before the pilot call and before each of two turns.
    assert setups == [0, 1, 2]


def everybody() -> tuple[Peer, ...]:
    # Without torch.compile: it is the row "eager" through a compiler that takes its time.
    others = tuple(p for p in peers.PEERS if p is not usual.COMPILED)
    return own.IN_PLACE, own.BY_POSITIONS, own.INTO_OUT, own.FRESH, *others


# Other libraries' warnings are theirs.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", [TINY, ONE_TOKEN], ids=["prefill", "decode"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pairing", ["half", "adjacent"])
def test_every_installed_peer_is_right(shape: Shape, dtype: torch.dtype, pairing: str) -> None:
    first = 1000 if shape is ONE_TOKEN else 0
    task = RotationTask(shape, dtype, pairing, first_position=first)
    field = enter(everybody(), task)
    for name, reason in field.left_out.items():
        assert reason.startswith(("not installed", "cannot", "takes one position")), (name, reason)
    assert {"eager", *(p.name for p in everybody()[:4])} <= field.contestants.keys()
    assert all(worst <= 1 for worst in field.errors.values())
    assert all(field.errors[p.name] == 0 for p in everybody()[:4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pairing", ["half", "adjacent"])
def test_gradients_are_right(dtype: torch.dtype, pairing: str) -> None:
    task = RotationTask(TINY, dtype, pairing, gradient=True)
    field = enter((usual.EAGER, own.GRADIENT), task)
    assert not field.left_out
    assert field.errors["ropewalk"] == 0


def test_tables_are_right() -> None:
    field = enter(
        (usual.COPY_TABLES, usual.OUTER_PRODUCT, own.EXACT_TABLES, own.FLOAT32_TABLES),
        TableTask(5000, 32),
    )
    assert not field.left_out
    assert usual.COPY_TABLES.name not in field.errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_usual_code_is_that_of_transformers(dtype: torch.dtype) -> None:
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as adjacent
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as half

    task = RotationTask(TINY, dtype, "half")
    cos, sin = task.doubled()
    want = half(task.q, task.k, cos[:, :, 0], sin[:, :, 0], unsqueeze_dim=2)
    for got, right in zip(usual.rotate_half(task.q, task.k, cos, sin), want, strict=True):
        assert torch.equal(got, right)
    # GPT-J's function doubles its tables itself.
    task = RotationTask(TINY, dtype, "adjacent")
    single = task.cos[None].to(dtype), task.sin[None].to(dtype)
    got = usual.rotate_adjacent(task.q, task.k, *task.doubled())
    for result, x in zip(got, (task.q, task.k), strict=True):
        assert torch.equal(result, adjacent(x, single[1], single[0]))


def wrong(name: str, spoil: float, **traits: bool) -> Peer:
    """Return a peer whose first lane is off by a share of itself."""

    def prepare(_: None, task: RotationTask) -> Prepared:
        def call() -> tuple[torch.Tensor, torch.Tensor]:
            q, k = usual.USUAL[task.pairing](task.q, task.k, *task.doubled())
            k[0, -1, 0, 0] *= 1 + spoil
            return q, k

        return Prepared(call, usual.as_it_is)

    return Peer(name, "spoiled", nothing, prepare, **traits)


def test_a_wrong_peer_is_left_out() -> None:
    task = RotationTask(TINY, torch.float32, "half")
    # 2^-23 is one unit in the last place: within rounding, but not bit for bit.
    rows = (
        wrong("off", 1e-4),
        wrong("nan", float("nan")),
        wrong("rounded", 2.0**-23),
        wrong("not exact", 2.0**-23, exact=True),
    )
    field = enter(rows, task)
    assert list(field.contestants) == ["rounded"]
    assert field.left_out["off"].startswith("wrong: off by")
    assert field.left_out["nan"].startswith("wrong")
    assert field.left_out["not exact"].startswith("wrong: not bit for bit")


def test_nobody_passes_with_the_result_of_the_one_before() -> None:
    def prepare(_: None, task: RotationTask) -> Prepared:
        out = task.cleared_out()
        return Prepared(lambda: out, usual.as_it_is)

    task = RotationTask(TINY, torch.float32, "half")
    idle = Peer("idle", "writes nothing", nothing, prepare)
    field = enter((own.INTO_OUT, idle), task)
    assert own.INTO_OUT.name in field.contestants
    assert field.left_out["idle"].startswith("wrong")


def test_who_is_not_installed_or_fails_does_not_stop_the_others() -> None:
    def missing() -> None:
        raise ImportError("No module named 'elsewhere'")

    def failing(*_: object) -> Prepared:
        raise RuntimeError("no such kernel\nand a second line")

    task = RotationTask(TINY, torch.float32, "half")
    absent = Peer("absent", "", missing, failing)
    broken = Peer("broken", "", nothing, failing)
    field = enter((absent, broken, usual.EAGER), task)
    assert list(field.contestants) == ["eager"]
    assert field.left_out == {
        "absent": "not installed: No module named 'elsewhere'",
        "broken": "failed with RuntimeError: no such kernel",
    }


def result_of(name: str, medians: dict[str, float], **more: object) -> CaseResult:
    timings = {row: timing((value,), (value,)) for row, value in medians.items()}
    baselines = dict.fromkeys(timings, next(iter(timings)))
    return CaseResult(name, f"title of {name}", timings, baselines, **more)


def prefill_result(**changed: float) -> CaseResult:
    medians = {
        "copy": 8.0,
        "mul_ in place": 4.0,
        "ropewalk in place": 3.0,
        "ropewalk into out": 9.0,
        "ropewalk fresh": 16.0,
        "eager": 120.0,
        "torch.compile": 48.0,
        "ONNX Runtime": 12.0,
    }
    return result_of("prefill-4096-32+8x128-float32-half", {**medians, **changed})


def judged(*results: CaseResult) -> dict[str, claims.Claim]:
    return {c.text: c for c in claims.judge(results)}


def test_claims_compute_what_they_say() -> None:
    found = judged(prefill_result())
    what = "4,096 tokens, float32, half"
    assert {text: (c.value, c.met) for text, c in found.items() if c.value is not None} == {
        f"{what}: in place / mul_": (0.75, True),
        f"{what}: eager / in place": (40.0, True),
        f"{what}: ONNX Runtime / in place": (4.0, True),
        f"{what}: into out / copy": (1.125, True),
        f"{what}: torch.compile / fresh": (3.0, True),
    }


def test_claims_are_missed_beyond_their_bounds() -> None:
    found = judged(prefill_result(**{"ropewalk in place": 4.25, "ropewalk into out": 9.25}))
    what = "4,096 tokens, float32, half"
    for text in ("in place / mul_", "eager / in place", "ONNX Runtime / in place"):
        assert found[f"{what}: {text}"].verdict == "missed", text
    assert found[f"{what}: into out / copy"].met is False
    assert found[f"{what}: into out / copy"].demanded == "≤ 1.15 ×"


def test_a_bound_itself_is_met() -> None:
    on_it = prefill_result(**{"ropewalk in place": 4.0, "eager": 120.0, "ONNX Runtime": 16.0})
    what = "4,096 tokens, float32, half"
    found = judged(on_it)
    for text in ("in place / mul_", "eager / in place", "ONNX Runtime / in place"):
        claim = found[f"{what}: {text}"]
        assert (claim.value, claim.met) == (claim.bound, True)


def test_claims_without_numbers_are_not_judged() -> None:
    found = claims.judge([])
    assert all(c.met is None and c.found == "not run" and c.verdict == "" for c in found)
    # 4 prefills of 4, ONNX Runtime in float32; 4 decodes of 2; 2 gradients; flatness; tables.
    assert len(found) == 4 * 4 + 2 + 4 * 2 + 2 + 1 + 1


def test_claims_in_microseconds_and_percent() -> None:
    decode = result_of("decode-1-bfloat16-adjacent", {"ropewalk in place": 2.5e-6, "eager": 2e-5})
    lengths = flat.lengths_up_to(262144)
    assert lengths == [1024, 4096, 16384, 65536, 262144]
    # The shortest lengths may be fast: the claim begins at 16,384.
    per_token = dict(zip(lengths, (1.0, 1.0, 10.0, 11.0, 10.5), strict=True))
    rows = {flat.row_name(flat.ROPEWALK, n): n * t for n, t in per_token.items()}
    line = result_of("per-token", rows, tokens=dict(zip(rows, lengths, strict=True)))
    found = judged(decode, line)
    micro = found["one token, bfloat16, adjacent: q and k in place"]
    # 2.5e-6 · 1e6: one rounding each.
    assert abs(micro.value - 2.5) <= 2.5 * 2.0**-52
    assert (micro.met, micro.demanded) == (True, "≤ 3 µs")
    assert found["one token, bfloat16, adjacent: eager / in place"].met is True
    (spread,) = (c for text, c in found.items() if text.startswith("time per token"))
    assert abs(spread.value - 10.0) <= 100 * 2.0**-50
    assert spread.met is True


def test_every_claim_has_a_case_and_its_rows() -> None:
    names = {case.name for case in cases.all_cases()}
    rows = ["copy", "mul_ in place", "eager", "torch.compile", "ONNX Runtime", "outer, cos, sin"]
    medians = dict.fromkeys([*rows, *(row.name for row in own.ROWS)], 1.0)
    lengths = flat.lengths_up_to(262144)
    tokens = {flat.row_name(flat.ROPEWALK, n): n for n in lengths}
    results = [result_of(name, {**medians, **tokens}, tokens=tokens) for name in names]
    assert all(claim.value is not None for claim in claims.judge(results))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.04e-6, "3.04 µs"),
        (1.0, "1.00 s"),
        (0.99949, "999 ms"),
        (0.99951, "1.00 s"),
        (12.34e-3, "12.3 ms"),
        (123.4, "123 s"),
        (5e-10, "0.50 ns"),
    ],
)
def test_times_have_three_digits(value: float, text: str) -> None:
    assert report.seconds(value) == text


def full_results() -> list[CaseResult]:
    lengths = [1024, 4096]
    tokens = {flat.row_name(kind, n): n for n in lengths for kind in (flat.ROPEWALK, flat.MULTIPLY)}
    line = result_of("per-token", {row: n * 1e-8 for row, n in tokens.items()}, tokens=tokens)
    left_out = {"a library": "failed with RuntimeError: " + "words " * 30}
    first = prefill_result()
    return [
        CaseResult(
            first.name,
            first.title,
            {**first.timings, "a contestant whose name goes on and on " * 3: timing((1234.5,))},
            first.baselines,
            moved_bytes=83886080,
            left_out=left_out,
            notes=("A note.",),
        ),
        line,
        CaseResult("empty", "nothing ran", {}, {}, left_out=left_out),
    ]


def test_terminal_tables_are_at_most_100_columns_wide() -> None:
    results = full_results()
    texts = [report.terminal(r) for r in results]
    texts.append(report.terminal_claims(claims.judge(results)))
    assert max(len(line) for text in texts for line in text.splitlines()) <= 100
    assert "mul_ in place" in texts[0]
    assert "A note." in texts[0]
    # Fastest first.
    assert texts[0].index("ropewalk in place") < texts[0].index("mul_ in place")
    assert "5 met, 0 missed, 25 not run." in texts[-1]


def test_the_json_holds_every_sample() -> None:
    results = full_results()
    machine = this_machine(peers.PEERS)
    found = json.loads(
        json.dumps(
            report.as_json(machine, results, claims.judge(results), quick=True, peak_gib=1.0)
        )
    )
    assert found["schema_version"] == 1
    assert found["machine"]["threads"] == torch.get_num_threads()
    row = found["cases"][0]["rows"][2]
    assert row["name"] == "ropewalk in place"
    assert row["rounds"] == [3.0, 3.0]
    assert row["samples"] == 2
    assert row["to_baseline"]["median"] == 0.375
    assert found["claims"][0]["met"] is True
    assert found["cases"][2]["left_out"]


def test_the_page_names_machine_claims_and_cases() -> None:
    results, machine = full_results(), this_machine(peers.PEERS)
    judgements = claims.judge(results)
    page = report.page(
        machine,
        results,
        judgements,
        [("eager", "the usual code")],
        quick=True,
        peak_gib=2.5,
        picture="report.png",
    )
    for part in (
        "](report.png)",
        machine.date,
        f"torch {torch.__version__}",
        "A quick run",
        "peak memory 2.5 GiB",
        "| 4,096 tokens, float32, half: in place / mul_ | 0.75 × | ≤ 1 × | met |",
        "## title of per-token",
        "| eager | the usual code |",
    ):
        assert part in page, part
    # Every row of a table has its heads' number of cells.
    rows = [line for line in page.splitlines() if line.startswith("|")]
    counts = {line.count("|") for line in rows}
    assert counts <= {3, 5, 7, 8}


def test_the_plot_has_labelled_axes() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    assert report.draw(figure, full_results())
    assert len(figure.axes) == 2
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    assert not report.draw(Figure(), [])


def test_progress_counts_down_in_plain_lines() -> None:
    stream = io.StringIO()
    progress = Progress({"one": 30.0, "two": 10.0}, stream)
    progress.start("one")
    # Nothing was seen yet that would change the guess of 40 s.
    assert "0 %" in stream.getvalue()
    assert "0:40 left · one" in stream.getvalue()
    progress.finish("one")
    progress.start("two")
    assert "75 %" in stream.getvalue()
    assert progress.left("two", 1.0) == 0.0


def test_per_token_on_a_short_text() -> None:
    found = flat.run_per_token("per-token", "title", Shape(1, 4096, 2, 1, 16), 0.05, float)
    assert not found.left_out
    rows = [flat.row_name(k, n) for n in (1024, 4096) for k in (flat.ROPEWALK, flat.MULTIPLY)]
    assert list(found.timings) == rows
    assert found.tokens[rows[-1]] == 4096


def tiny_runner(tiny_model: Path, spoil: float = 0.0) -> models.Runner:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    # The switch itself is what is tested here; accelerate has tests of its own.
    switched: list[bool] = []
    weight = model.lm_head.weight
    before = weight.detach().clone()

    def accelerate(_: object) -> None:
        switched.append(True)
        weight.data[0] += spoil

    def restore(_: object) -> None:
        switched.append(False)
        weight.data.copy_(before)

    runner = models.Runner(model, accelerate, restore, prefill=12, decode=4)
    runner.switched = switched
    ids = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(0))
    everything = model.generate(ids, max_new_tokens=5, do_sample=False)
    runner.generated = everything[0, 12:].tolist()
    return runner


def test_the_model_is_switched_and_decodes_what_generate_does(tiny_model: Path) -> None:
    runner = tiny_runner(tiny_model)
    found = models.time_model(runner, "model", "title", 0.05, float)
    assert list(found.timings) == [
        "prefill, as it is",
        "prefill, accelerated",
        "decode, as it is",
        "decode, accelerated",
    ]
    assert {True, False} <= set(runner.switched)
    # It is switched only where it has to be.
    assert all(a != b for a, b in zip(runner.switched, runner.switched[1:], strict=False))
    assert "4 of 4 decoded tokens are the same" in found.notes[1]
    assert found.notes[0] == "float32, 12 tokens of text, 4 decoded."
    # Twice, because decoding is to leave the cache as it was.
    for _ in range(2):
        assert runner.decode() == runner.generated[1:]
        assert runner._cache.get_seq_length() == 12


def test_a_model_whose_answers_change_is_not_timed(tiny_model: Path) -> None:
    found = models.time_model(tiny_runner(tiny_model, spoil=1.0), "model", "title", 0.05, float)
    assert not found.timings
    assert found.left_out["accelerated"].startswith("wrong: logits differ")


def test_the_command_writes_json_page_and_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = cases.Case("tiny", "a tiny table", cases._tables(64, 4), budget=0.01, expected=1.0)
    monkeypatch.setattr(cases, "all_cases", lambda: (short,))
    out = tmp_path / "made" / "here"
    done = CliRunner().invoke(cpu.main, ["--out", str(out), "--only", "tin"])
    assert done.exit_code == 0, done.output
    assert "a tiny table" in done.stdout
    assert "met, " in done.stdout
    assert "left · tiny" in done.stderr
    found = json.loads((out / "results.json").read_text())
    assert [case["name"] for case in found["cases"]] == ["tiny"]
    assert "## a tiny table" in (out / "report.md").read_text()
    # Neither a prefill nor a time per token was run, so there is nothing to draw.
    assert sorted(path.name for path in out.iterdir()) == ["report.md", "results.json"]


def test_bad_options_are_one_line_and_exit_2(tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(cpu.main, ["--only", "no-such-case"])
    assert done.exit_code == 2
    assert done.stderr.startswith("--only: got 'no-such-case', expected a part of a case's name")
    assert len(done.stderr.splitlines()) == 1
    (tmp_path / "file").write_text("")
    done = runner.invoke(cpu.main, ["--out", str(tmp_path / "file"), "--only", "tables"])
    assert done.exit_code == 2
    assert done.stderr.startswith("--out: got ")


def test_the_cases_are_listed() -> None:
    done = CliRunner().invoke(cpu.main, ["--list"])
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert len(names) == len(set(names)) == len(cases.all_cases())
    assert names == [case.name for case in cases.all_cases()]
    quick = cases.chosen((), quick=True)
    assert 0 < len(quick) < len(names)
    assert {case.name for case in quick} < set(names)


def test_the_command_starts_again_without_openblas_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []
    monkeypatch.setattr(cpu.os, "execve", lambda *arguments: started.append(arguments))
    for name in cpu._UNWANTED:
        monkeypatch.delenv(name, raising=False)
    cpu.restart_without_settings()
    assert not started
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    cpu.restart_without_settings()
    ((program, arguments, environment),) = started
    assert program == sys.executable
    assert arguments == sys.orig_argv
    assert "OPENBLAS_CORETYPE" not in environment
    assert environment["PATH"]
