"""Measuring extension methods on a model: plan the passes, run them, gather the cells."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..cluster import check_address
from ..errors import InputError
from ..models.read import read
from .journal import Journal
from .loading import builtin_model, load
from .methods import methods_named
from .on_ray import spread_on_ray
from .options import Options
from .results import Measurement
from .runner import Progress, Runner
from .scoring import Scorer
from .texts import default_texts, read_texts, tokenize

DEFAULT_MULTIPLES = (1, 2, 4, 8, 16, 32)


def measure(
    model: str | Path | None = None,
    options: Options | None = None,
    *,
    journal_folder: Path | None = None,
    progress: Progress = lambda *_: None,
    on: str | None = None,
) -> Measurement:
    """Measure extension methods on a model.

    Args:
        model: a folder of transformers or a GGUF file; by default the package's byte model.
        options: what to measure.
        journal_folder: where finished passes are kept, so that a killed run resumes; by
            default under the user's cache folder.
        progress: told of the work done.
        on: address of a Ray cluster that the passes are spread over (see
            `ropewalk.cluster.check_address`); by default they run here.

    Raises:
        InputError: a model or a text that cannot be measured, or a journal of another run, or
            no cluster where ``on`` says.
        MissingExtraError: torch or transformers is not installed, or Ray where it is asked for.
    """
    options = options or Options()
    chosen = methods_named(list(options.methods))
    path = Path(model) if model is not None else builtin_model()
    # What can be refused is refused before minutes of loading weights.
    positions = read(path)
    base, original = positions.stretchable()
    lengths = _lengths(options, original)
    scored = max(1, original // 4)
    if on is not None:
        check_address(on)
    documents, origin = (
        (read_texts(options.texts), ", ".join(p.name for p in options.texts))
        if options.texts
        else default_texts()
    )
    loaded = load(path, dtype=options.dtype, positions=positions)
    texts = tokenize(
        documents,
        origin,
        loaded.tokenizer,
        length=max(lengths),
        count=1 if options.protocol == "prefix" else options.documents,
        scored=scored,
    )
    # A pass is known by its tokens and its rope: more lengths, methods, texts or trials can
    # be added to a run without repeating any.
    run = {"model": fingerprint(path), "dtype": loaded.dtype}
    folder = journal_folder or _cache_folder(run)
    scorer = Scorer(loaded)
    on_ray = nullcontext() if on is None else spread_on_ray(on, path, run["model"], run["dtype"])
    with Journal(folder / "journal.jsonl", run) as journal, on_ray as spread:
        runner = Runner(
            scorer, texts, base, original, scored, chosen, options, journal, progress, spread
        )
        # The name only: a path says nothing to whoever reads the results elsewhere.
        name = path.resolve().name if model is not None else "built-in byte model"
        measurement = runner.run(name, lengths)
        if spread is None:
            return measurement
        environment = {**measurement.environment, **spread.environment()}
        return dataclasses.replace(measurement, environment=environment)


def _lengths(options: Options, original: int) -> tuple[int, ...]:
    lengths = options.lengths or tuple(m * original for m in DEFAULT_MULTIPLES)
    for length in lengths:
        if length < original:
            raise InputError(
                "--lengths",
                found=str(length),
                expected=f"contexts of at least the original length, {original}",
                fix=f"use multiples of {original}",
            )
    return tuple(sorted(set(lengths)))


def fingerprint(path: Path) -> str:
    """Return a digest of the model's files: names, sizes, first and last 64 KiB of each."""
    files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(65536))
            stream.seek(max(0, size - 65536))
            digest.update(stream.read())
    return digest.hexdigest()


def _cache_folder(run: dict[str, Any]) -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(repr(sorted(run.items())).encode()).hexdigest()[:16]
    return root / "ropewalk" / "runs" / name
