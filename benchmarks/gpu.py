"""Check and time the GPU kernel, unattended, within a few minutes.

    python -m benchmarks.gpu [--seconds 440] [--out DIR]
    python -m benchmarks.gpu --interpret

First every option is compared with float64, then cases are timed beside the usual code and other
libraries, the most wanted first; those that the time does not suffice for are dropped, with a
line. ``--interpret`` checks on the CPU, in Triton's interpreter, and goes through small cases
once without reporting times: a rehearsal. With ``--out`` the folder gets gpu.json and gpu.md.

Exit codes: 0 all checks passed, 1 some did not, 2 no GPU or unusable options.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):
    # Run as a file, Python looks for modules in this folder, where ours would hide others.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

if TYPE_CHECKING:
    from benchmarks.gpu_cases import Case
    from benchmarks.timing import Quartiles

SCHEMA_VERSION = 1
_SAMPLES, _SAMPLE_SECONDS = 25, 2e-3
_GRAPH_CALLS = 50
# What a case may take: compiling the usual code, and the samples of some six contestants.
_CASE_SECONDS = 35.0
_HEADS = ("", "median", "quartiles", "GB/s", "of a copy", "× eager")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description="Check the GPU kernel against float64 and time it.",
    )
    parser.add_argument("--interpret", action="store_true", help="a rehearsal on the CPU")
    parser.add_argument("--seconds", type=float, default=440.0, help="time for everything")
    parser.add_argument("--out", type=Path, help="folder for gpu.json and gpu.md")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    import torch

    if not options.interpret and not torch.cuda.is_available():
        sys.stderr.write(
            "benchmarks.gpu: no GPU that PyTorch can use; fix: run it on a machine with one, or "
            "rehearse it here with --interpret\n"
        )
        return 2
    return run(options.interpret, begun + options.seconds, options.out)


def run(interpret: bool, deadline: float, folder: Path | None) -> int:
    """Check, time, print and write."""
    device = "cpu" if interpret else "cuda"
    report: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "rehearsal": interpret,
        "machine": machine(device),
        "checks": [],
        "cases": [],
        "dropped": [],
    }
    say(*report["machine"].values(), "")
    check(device, report)
    save(folder, report)
    time_all(device, deadline, folder, report)
    save(folder, report)
    failed = [c["label"] for c in report["checks"] if not c["passed"]]
    say(f"{len(report['checks']) - len(failed)} of {len(report['checks'])} checks passed.")
    return 1 if failed else 0


def machine(device: str) -> dict[str, str]:
    """Return what the numbers are to be read beside."""
    import torch
    import triton

    name = "Triton's interpreter on the CPU"
    if device == "cuda":
        found = torch.cuda.get_device_properties(0)
        name = f"{found.name}, {found.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "device": name,
        "versions": (
            f"torch {torch.__version__}, triton {triton.__version__}, "
            f"Python {platform.python_version()}"
        ),
    }


def check(device: str, report: dict[str, Any]) -> None:
    """Run the comparisons with float64; print those that fail, and a count."""
    from benchmarks.gpu_checks import all_checks

    for found in all_checks(device, small=device == "cpu"):
        report["checks"].append(
            {
                "label": found.label,
                "worst": found.worst,
                "exact": found.exact,
                "passed": found.passed,
            }
        )
        if not found.passed:
            bits = " (bits differ from the reference)" if found.exact is False else ""
            say(f"WRONG {found.label}: {found.worst:.2f} of the allowed error{bits}")
    passed = [c for c in report["checks"] if c["passed"]]
    worst = max((c["worst"] for c in passed), default=0.0)
    say(
        f"{len(passed)} of {len(report['checks'])} options are right, within {worst:.2f} of the "
        "allowed error;",
        f"{sum(c['exact'] is True for c in passed)} bit for bit.",
        "",
    )


def say(*text: str) -> None:
    """Print lines of at most 100 columns, at once."""
    sys.stdout.write("".join(f"{line[:100]}\n" for line in text))
    sys.stdout.flush()


def time_all(device: str, deadline: float, folder: Path | None, report: dict[str, Any]) -> None:
    """Time the cases until the time is used up."""
    from benchmarks.gpu_cases import all_cases

    for case in all_cases(small=device == "cpu"):
        if time.monotonic() + _CASE_SECONDS > deadline:
            report["dropped"].append(case.name)
            say(f"Dropped, out of time: {case.name}")
            continue
        done = time_case(case, device)
        report["cases"].append(done)
        say(*lines(done, show_times=device == "cuda"))
        save(folder, report)


def time_case(case: Case, device: str) -> dict[str, Any]:
    """Check and time all contestants of one case."""
    import torch

    from benchmarks.gpu_cases import caller, contestants, sets_of
    from benchmarks.gpu_cases import check as check_contestant

    torch.compiler.reset()
    sets = sets_of(case, device)
    calls: dict[str, Callable[[], object]] = {}
    left_out: dict[str, str] = {}
    for name, contestant in contestants(case, compile_usual=device == "cuda"):
        if isinstance(contestant, str):
            left_out[name] = contestant
            continue
        try:
            worst = check_contestant(case, contestant, device)
            if not worst <= 1:
                left_out[name] = f"wrong: {worst:.3g} of the allowed error"
                continue
            call = caller(contestant, sets)
            call()
            calls[name] = call
            if case.time == 1 and case.kind == "forward" and device == "cuda":
                calls[f"{name}, graph"] = graph(call)
        except Exception as error:  # as of any contestant: it is left out, the others go on
            first = (str(error).splitlines() or [""])[0]
            left_out[name] = f"failed with {type(error).__name__}: {first}"
    timings = measure(calls, EventClock() if device == "cuda" else HostClock())
    eager, copied = (timings.get(name) for name in ("eager", "copy"))
    rows = []
    for name, found in sorted(timings.items(), key=lambda item: item[1].median):
        suffix = ", graph" if name.endswith(", graph") else ""
        base, whole = timings.get(f"eager{suffix}", eager), timings.get(f"copy{suffix}", copied)
        rows.append(
            {
                "name": name,
                "seconds": [found.low, found.median, found.high],
                "bytes_per_second": case.moved / found.median,
                "share_of_copy": whole.median / found.median if whole else None,
                "over_eager": found.median / base.median if base else None,
            }
        )
    return {
        "name": case.name,
        "moved_bytes": case.moved,
        "sets": len(sets),
        "rows": rows,
        "left_out": left_out,
    }


class EventClock:
    """Times a row of calls with CUDA events."""

    samples, shortest = _SAMPLES, _SAMPLE_SECONDS

    def __call__(self, call: Callable[[], object], count: int) -> float:
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / count


class HostClock:
    """Times a row of calls on the CPU, once: for rehearsals."""

    samples, shortest = 1, 0.0

    def __call__(self, call: Callable[[], object], count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count


def measure(calls: dict[str, Callable[[], object]], clock: Any) -> dict[str, Quartiles]:
    """Time contestants in turns, in an order drawn anew for each round."""
    from benchmarks.timing import quartiles

    counts = {}
    for name, call in calls.items():
        once = min(clock(call, 1) for _ in range(2)) if clock.shortest else 1.0
        counts[name] = max(1, min(1000, int(clock.shortest / max(once, 1e-7))))
    found: dict[str, list[float]] = {name: [] for name in calls}
    order, draw = list(calls), random.Random(0)
    for _ in range(clock.samples):
        draw.shuffle(order)
        for name in order:
            per = _GRAPH_CALLS if name.endswith(", graph") else 1
            found[name].append(clock(calls[name], counts[name]) / per)
    return {name: quartiles(samples) for name, samples in found.items()}


def graph(call: Callable[[], object]) -> Callable[[], object]:
    """Capture many calls in a CUDA graph: what they take without the host."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(_GRAPH_CALLS):
            call()
    return captured.replay


def cells(case: dict[str, Any], show_times: bool = True) -> list[list[str]]:
    """Return a case's rows as text."""
    from benchmarks.report import seconds

    out = []
    for row in case["rows"]:
        low, median, high = row["seconds"]
        share, over = row["share_of_copy"], row["over_eager"]
        numbers = [
            seconds(median),
            f"{seconds(low)} – {seconds(high)}",
            f"{row['bytes_per_second'] / 1e9:,.0f}",
            f"{100 * share:.0f} %" if share is not None else "",
            f"{over:.2f}" if over is not None else "",
        ]
        out.append([row["name"], *(numbers if show_times else ["ran", "", "", "", ""])])
    return out


def lines(case: dict[str, Any], show_times: bool = True) -> list[str]:
    """Return a case as text of at most 100 columns."""
    from benchmarks.report import table

    text = [case["name"], "", *table(_HEADS, cells(case, show_times)), ""]
    text += [f"Left out: {name} ({why})." for name, why in case["left_out"].items()]
    return [*text, ""]


def save(folder: Path | None, report: dict[str, Any]) -> None:
    """Write gpu.json and gpu.md, as far as the run got."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "gpu.md").write_text(page(report))


def page(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    text = ["# Rotary embeddings on a GPU, checked and timed", ""]
    if report["rehearsal"]:
        text += ["A rehearsal in Triton's interpreter: nothing here was timed on a GPU.", ""]
    text += [f"- {fact}" for fact in report["machine"].values()]
    failed = [c for c in report["checks"] if not c["passed"]]
    text += [
        "",
        f"{len(report['checks']) - len(failed)} of {len(report['checks'])} combinations of",
        (
            "options agree with float64 within their rounding; "
            f"{sum(c['exact'] is True for c in report['checks'])} were found equal to the"
        ),
        "reference bit for bit, where that is demanded.",
        "",
    ]
    text += [f"- wrong: {c['label']}" for c in failed]
    for case in report["cases"]:
        text += [f"## {case['name']}", ""]
        text += [f"| {' | '.join(_HEADS)} |", "| --- |" + " ---: |" * (len(_HEADS) - 1)]
        shown = cells(case, not report["rehearsal"])
        text += [f"| {' | '.join(row)} |" for row in shown]
        text += ["", *(f"- left out: {n} ({why})" for n, why in case["left_out"].items()), ""]
    text += [f"- dropped, out of time: {name}" for name in report["dropped"]]
    return "\n".join([*text, *_METHOD]) + "\n"


_METHOD = (
    "",
    "## How",
    "",
    "- GB/s counts each byte of q and k (and v) read once and written once, twice for a forward",
    '  and a backward pass; what a contestant really moves may be more. "Of a copy" is the time',
    "  of copying the same bytes with `torch.empty_like(x).copy_(x)` over the contestant's.",
    "- CUDA events, in rounds, in an order drawn anew for each; medians and quartiles. Each call",
    "  takes the next of several sets of tensors that together outgrow the second-level cache; for",
    '  one token there is one set. "Graph" rows replay 50 calls from a CUDA graph, without the',
    "  time the host needs to launch them.",
    "- Each contestant is checked before it is timed. The usual code rounds to the dtype at each",
    "  step, which is allowed for; Ropewalk's kernel is held to one rounding, above.",
)


if __name__ == "__main__":
    sys.exit(main())
