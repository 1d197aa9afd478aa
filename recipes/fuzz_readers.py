"""Mutate sound files of every format and look for anything but Ropewalk's own errors.

    nice -n 10 python recipes/fuzz_readers.py --seconds 120 --seed 1

Every input goes through one command of the program, in this process. An input is *read*
(exit 0 or 1), *refused* (exit 2, one printable line) or an *escape*: another exception, a
control character in the output, a warning, a message of several lines, more than two seconds of
processor time, or a process killed by its limit of memory. The same seed gives the same
inputs in the same order. Escapes are printed with their format, number and arguments, and the
exit code is 1 if there are any; ``--only FORMAT:NUMBER`` runs one input again.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from hostile import ESCAPES, LLAMA, NASTY, SEEDS, gguf, gguf_tensor, nested, safetensors, weights_of

from ropewalk.cli.main import cli
from ropewalk.convert.targets import TARGETS
from ropewalk.errors import RopewalkError
from ropewalk.models.families import FAMILIES, WRAPPERS
from ropewalk.models.gguf_families import ARCHITECTURES

MOST_SECONDS = 2.0
MOST_MESSAGE = 3000
MOST_MEMORY = 4 * 2**30
_KEYS = sorted(
    {
        key
        for seeds in SEEDS.values()
        for seed in seeds
        if isinstance(seed, dict)
        for block in (seed, *(v for v in seed.values() if isinstance(v, dict)))
        for key in block
    }
)
YAML_VALUES = (
    "2001-01-01", "2001-12-14t21:59:43.10-05:00", "!!binary aGk=", "!!set {a, b}", "1:30:00", "~",
    "0x" + "F" * 5000, ".nan", "-.inf", "{1: 2, true: 3, null: 4}", "{[a]: b}", "&a [*a]",
    "!!python/object/apply:os.getcwd []", "!!omap [a: 1]", "!!float yes", "|\n  text", "0o17",
    "[" * 900, "- " * 3000, "{a: " * 80 + "1" + "}" * 80, "- 1", "%TAG ! x", "1e3",
    "'\\x1b'", '"\\e[31m"', "no",
)  # fmt: skip
_SCALAR_KINDS = ("u8", "i8", "u16", "u32", "i32", "f32", "bool", "u64", "i64", "f64", "str")


# Configs as they stand in public repositories, see tests/test_corpus.py.
_REAL = json.loads((Path(__file__).parents[1] / "tests/configs_seen.json").read_text())
_SEEDS = {**SEEDS, "real": [case["config"] for case in _REAL if isinstance(case["config"], dict)]}
_FAMILIES = sorted({*FAMILIES, *WRAPPERS})


@dataclass
class Tally:
    """What became of the inputs of one format."""

    tried: int = 0
    read: int = 0
    refused: int = 0
    escapes: list[str] = field(default_factory=list)
    slowest: float = 0.0


class _TooSlowError(BaseException):
    """Raised by the alarm, so that nothing that catches Exception keeps it."""


# Mutations of values


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from _places(item, (*path, key))


def _nasty(rng: random.Random, old: Any) -> Any:
    if rng.random() < 0.35 and isinstance(old, int | float) and not isinstance(old, bool):
        steps: list[Callable[[], Any]] = [
            lambda: -old, lambda: old + 1, lambda: old * 2, lambda: old / 2, lambda: float(old),
            lambda: str(old), lambda: [old], lambda: old * 10**9, lambda: old + 0.5,
            lambda: {"value": old}, lambda: old * rng.random(),
        ]  # fmt: skip
        try:
            return rng.choice(steps)()
        except OverflowError:
            return -old
    if rng.random() < 0.3 and isinstance(old, list):
        return rng.choice([old[:-1], old + old, old[::-1], [*old, None], old * 500, old[:1]])
    return json.loads(json.dumps(rng.choice(NASTY)))


def mutate_values(rng: random.Random, seed: Any) -> Any:
    """Return a copy with one to three changes: values, keys, order."""
    out = json.loads(json.dumps(seed))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(out))
        if not places:
            return out
        path = rng.choice(places)
        holder = out
        for key in path[:-1]:
            holder = holder[key]
        key, kind = path[-1], rng.random()
        if kind < 0.6:
            holder[key] = _nasty(rng, holder[key])
        elif kind < 0.72:
            del holder[key]
        elif kind < 0.82 and isinstance(holder, dict):
            name = rng.choice([*_KEYS, ESCAPES, "", str(key) + " ", str(key).upper()])
            holder[name] = holder.pop(key)
        elif isinstance(holder, dict):
            # A key of another family or format beside those that are there.
            old = holder.get(rng.choice(list(holder)))
            holder[rng.choice(_KEYS)] = _nasty(rng, old)
        else:
            holder.append(_nasty(rng, holder[key]))
    return out


def mutate_text(rng: random.Random, text: str) -> str:
    """Return a copy with words removed, doubled, swapped or replaced."""
    words = text.split(" ")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(words))
        kind = rng.random()
        if kind < 0.2:
            words.insert(at, rng.choice(words))
        elif kind < 0.35 and len(words) > 1:
            del words[at]
        elif kind < 0.5:
            other = rng.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        elif kind < 0.85:
            words[at] = str(rng.choice(NASTY))[:6000]
        else:
            words[at] = words[at][: rng.randint(0, len(words[at]))] + rng.choice("'\"\\={}[]-\0\n")
    return " ".join(words)


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return a copy with bytes flipped, cut, doubled, or numbers made extreme."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out)) if out else 0
        kind = rng.random()
        if kind < 0.4 and out:
            out[at] = rng.choice((0, 1, 0x1B, 0x7F, 0x80, 0xFF, out[at] ^ (1 << rng.randrange(8))))
        elif kind < 0.55:
            del out[at : at + rng.randint(1, 40)]
        elif kind < 0.65:
            del out[at:]
        elif kind < 0.8:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 16)))
        elif kind < 0.9:
            out[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**62, 2**63, 2**64 - 1)))
        else:
            out += out[at : at + 200]
    return bytes(out)


# Files


def _json_text(rng: random.Random, values: Any) -> bytes:
    text = json.dumps(values)
    kind = rng.random()
    if kind < 0.04:
        return mutate_bytes(rng, text.encode())
    if kind < 0.06:
        return text.encode("utf-16")
    if kind < 0.08:
        return b"\xef\xbb\xbf" + text.encode()
    if kind < 0.1 and text.startswith("{"):
        return (text[:-1] + ', "rope_theta": 1.5, "rope_theta": 2.5}').encode()
    if kind < 0.12:
        depth = rng.choice((50, 500, 5000, 100000))
        inner = nested(depth, rng.choice(("list", "dict")))
        return (text[:-1] + f', "rope_scaling": {inner}}}').encode()
    if kind < 0.13:
        return (text[:-1] + f', "rope_theta": {"9" * rng.choice((300, 4000, 100000))}}}').encode()
    return text.encode()


def _gguf_file(rng: random.Random, seed: list[tuple[str, str, Any]]) -> bytes:
    pairs = list(seed)
    for _ in range(rng.choice((0, 1, 1, 2))):
        at = rng.randrange(len(pairs))
        key, kind, value = pairs[at]
        choice = rng.random()
        if choice < 0.55:
            new_kind = rng.choice((kind, kind, *_SCALAR_KINDS, "[u32]", "[f32]", "[str]", "[bool]"))
            pairs[at] = (key, new_kind, _gguf_value(rng, new_kind))
        elif choice < 0.7:
            del pairs[at]
        elif choice < 0.8:
            pairs.insert(at, pairs[rng.randrange(len(pairs))])
        elif choice < 0.9:
            pairs[at] = (rng.choice([p[0] for p in seed] + [ESCAPES, "", key.upper()]), kind, value)
        else:
            pairs.append(("general.alignment", "u32", rng.choice((0, 1, 7, 2**31, 2**32 - 1))))
        if not pairs:
            break
    tensors = []
    for _ in range(rng.choice((0, 0, 1, 3))):
        name = rng.choice(("rope_freqs.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight",
                           "rope_factors_long.weight", "", ESCAPES))  # fmt: skip
        sizes = tuple(
            rng.choice((0, 1, 16, 32, 64, 2**31, 2**63)) for _ in range(rng.choice((0, 1, 1, 2, 4)))
        )
        offset = rng.choice((0, 0, 32, 2**40, 2**64 - 1))
        tensors.append(gguf_tensor(name, sizes, rng.choice((0, 0, 1, 2, 12, 999)), offset))
    counts = None
    if rng.random() < 0.08:
        counts = (rng.choice((0, 1, 2**20, 2**63)), rng.choice((0, 1, 2**20, 2**64 - 1)))
    version = rng.choice((3, 3, 3, 3, 3, 3, 3, 3, 2, 1, 0, 4, 2**32 - 1, 0x03000000))
    out = gguf(pairs, tensors, counts=counts, version=version, data=b"\0\0\x80\x3f" * 64)
    return mutate_bytes(rng, out) if rng.random() < 0.4 else out


def _as_architecture(seed: list[tuple[str, str, Any]], name: str) -> list[tuple[str, str, Any]]:
    """Return the pairs under another architecture's name."""
    old = seed[0][2]
    renamed = [(key.replace(f"{old}.", f"{name}.", 1), kind, value) for key, kind, value in seed]
    return [("general.architecture", "str", name), *renamed[1:]]


def _gguf_value(rng: random.Random, kind: str) -> Any:
    if kind.startswith("["):
        return [_gguf_value(rng, kind[1:-1]) for _ in range(rng.choice((0, 1, 2, 4, 5, 300)))]
    if kind == "str":
        return rng.choice(("", "yarn", "none", "llama", ESCAPES, "x" * 3000, "1", "[/x]"))
    if kind == "bool":
        return rng.random() < 0.5
    if kind in ("f32", "f64"):
        return rng.choice((0.0, -1.0, 1e-30, 3e38, float("nan"), float("inf"), 1.5, -0.0))
    bits = int(kind[1:])
    low, high = (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice((low, high, 0, 1, 2, 3, 7, 64, high // 2, high - 1))


def _write_weights(rng: random.Random, folder: Path) -> Path:
    header, data = weights_of(LLAMA)
    config = mutate_values(rng, LLAMA) if rng.random() < 0.15 else LLAMA
    (folder / "config.json").write_text(json.dumps(config))
    out: bytes
    if rng.random() < 0.6:
        length = rng.choice((0, 1, 7, 2**31, 2**63, 2**64 - 1)) if rng.random() < 0.1 else None
        out = safetensors(mutate_values(rng, header), data, length=length)
    else:
        out = mutate_bytes(rng, safetensors(header, data))
    (folder / "model.safetensors").write_bytes(out)
    if rng.random() < 0.2:
        index = {"weight_map": dict.fromkeys(header, "model.safetensors")}
        text = json.dumps(mutate_values(rng, index))
        (folder / "model.safetensors.index.json").write_text(text)
    return folder


def _arguments(rng: random.Random, name: str, number: int, folder: Path) -> list[str]:
    """Write the input of this number and return the command that reads it."""
    if name == "safetensors":
        made = _write_weights(rng, folder)
        return [*rng.choice((["pairing"], ["pairing", "--json"], ["check"])), str(made)]
    seeds = _SEEDS.get(name) or SEEDS["hf"]
    seed = seeds[number % len(seeds)]
    if name == "families":
        # Every family reads other keys.
        seed = {**seed, "model_type": rng.choice(_FAMILIES)}
    if name == "gguf" and rng.random() < 0.3:
        seed = _as_architecture(seed, rng.choice(list(ARCHITECTURES)))
    if name == "text":
        text = mutate_text(rng, seed)
        if rng.random() < 0.3:
            place = folder / "command.txt"
            place.write_text(text, encoding="utf-8", errors="surrogatepass")
            return [rng.choice(("inspect", "check")), str(place)]
        if rng.random() < 0.4:
            (folder / "config.json").write_text(json.dumps(LLAMA))
            return [rng.choice(("inspect", "check")), str(folder), "--engine-args", text]
        return [rng.choice(("inspect", "check")), "--", text]
    if name == "gguf":
        place = folder / "model.gguf"
        place.write_bytes(_gguf_file(rng, seed))
    elif name == "overrides":
        (folder / "config.json").write_text(json.dumps(seed))
        override = json.dumps(mutate_values(rng, {k: seed[k] for k in list(seed)[-3:]}))
        return [rng.choice(("inspect", "check")), str(folder), "--overrides", override]
    elif name == "yaml":
        place = folder / "config.yaml"
        program = SEEDS["programs"][number % len(SEEDS["programs"])]
        # JSON is YAML, but for a few escapes: those are refused by the parser.
        text = _json_text(rng, mutate_values(rng, program))
        if rng.random() < 0.3:
            key, value = rng.choice(list(program)), rng.choice(YAML_VALUES)
            text = "".join(f"{k}: {json.dumps(v)}\n" for k, v in program.items()).encode()
            text += f"{rng.choice((key, 'x'))}: {value}\n".encode()
        place.write_bytes(text)
    else:
        place = folder / ("params.json" if name == "params" else "config.json")
        place.write_bytes(_json_text(rng, mutate_values(rng, seed)))
    target = rng.choice(tuple(TARGETS))
    command = rng.choice(
        (
            ["inspect"], ["inspect"], ["inspect", "--json"], ["inspect", "--planes"], ["check"],
            ["check", "--format", "github"], ["check", "--format", "sarif"], ["compare"],
            ["compare", "--json"], ["convert", "--to", target], ["extend", "--to", "4x"],
            ["convert", "--lossy", "--to", target], ["pairing"],
        )
    )  # fmt: skip
    return [*command, str(place)]


FORMATS = (
    "hf", "real", "families", "params", "programs", "yaml", "fragment", "overrides", "text",
    "gguf", "safetensors",
)  # fmt: skip


# Judging


def unprintable(text: str) -> str:
    """Return the first control or format character that is no line end or tab; else nothing."""
    for sign in text:
        if sign not in "\n\t" and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            return sign
    return ""


def judge(arguments: list[str]) -> tuple[str, str]:
    """Run a command and return read, refused or escape, and what was wrong."""
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(20)
    try:
        # A warning of numpy on stderr is nothing that a user can act on.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = CliRunner().invoke(cli, arguments)
    except _TooSlowError as error:
        return "escape", "no end: " + "".join(traceback.format_tb(error.__traceback__)[-3:])
    finally:
        signal.alarm(0)
    error = result.exception
    out = result.stdout + result.stderr
    if sign := unprintable(out):
        return "escape", f"{sign!r} in the output"
    if error is None or (isinstance(error, SystemExit) and error.code in (0, 1)):
        return "read", ""
    if isinstance(error, SystemExit) and error.code == 2:
        return "refused", ""
    if not isinstance(error, RopewalkError):
        lines = traceback.format_exception(error)
        return "escape", "".join(lines[-3:])
    message = str(error)
    if "\n" in message or unprintable(message):
        return "escape", f"a message of several lines or signs: {message[:200]!r}"
    if len(message) > MOST_MESSAGE:
        return "escape", f"a message of {len(message)} characters: {message[:200]!r}"
    return "refused", ""


def _alarm(*_: Any) -> None:
    raise _TooSlowError


def run_one(name: str, number: int, seed: int, folder: Path) -> tuple[str, str, float, list[str]]:
    """Make the input of this number and judge it; return outcome, reason, seconds, arguments."""
    rng = random.Random(f"{seed}/{name}/{number}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    arguments = _arguments(rng, name, number, folder)
    before = time.process_time()
    outcome, reason = judge(arguments)
    spent = time.process_time() - before
    if outcome != "escape" and spent > MOST_SECONDS:
        outcome, reason = "escape", f"{spent:.1f} s of processor time"
    return outcome, reason, spent, arguments


def run(seed: int, *, seconds: float | None = None, count: int | None = None) -> dict[str, Tally]:
    """Go through the formats in turn until the time or the count is used up."""
    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    end = None if seconds is None else time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "input"
        for number in itertools.count() if count is None else range(count):
            for name in FORMATS:
                if end is not None and time.monotonic() > end:
                    return dict(tallies)
                outcome, reason, spent, arguments = run_one(name, number, seed, folder)
                tally = tallies[name]
                tally.tried += 1
                tally.slowest = max(tally.slowest, spent)
                if outcome == "escape":
                    tally.escapes.append(f"{name}:{number} {arguments[:3]}\n{reason}")
                elif outcome == "read":
                    tally.read += 1
                else:
                    tally.refused += 1
    return dict(tallies)


def main() -> int:
    """Run for a while and print the table; exit 1 if anything escaped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="FORMAT:NUMBER", help="one input, whose files are kept")
    arguments = parser.parse_args()
    # A file that asks for more memory than this fails here, not the machine.
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    if arguments.only:
        name, _, number = arguments.only.partition(":")
        print(*run_one(name, int(number), arguments.seed, Path(tempfile.mkdtemp()) / "input"))
        return 0
    tallies = run(arguments.seed, seconds=arguments.seconds)
    print("| format | tried | refused | read | escapes | slowest |")
    print("|---|---|---|---|---|---|")
    for name, t in tallies.items():
        row = (name, t.tried, t.refused, t.read, len(t.escapes), f"{t.slowest:.2f} s")
        print("| " + " | ".join(map(str, row)) + " |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MiB, seed {arguments.seed}")
    seen: set[str] = set()
    for text in (text for t in tallies.values() for text in t.escapes):
        kind = text.split("\n", 1)[1]
        if kind not in seen:
            seen.add(kind)
            print(f"\nescape {text}", file=sys.stderr)
    return int(bool(seen))


if __name__ == "__main__":
    sys.exit(main())
