"""Doing one unit of a study in a folder; a killed unit goes on where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ..encodings import Encoding, Rotary
from ..extend.journal import Journal
from ..extend.methods import method_named
from ..extend.options import Options
from ..extend.runner import Runner, environment
from ..extend.texts import TextSet, default_texts, tokenize
from ..whole_file import replacing, write_whole
from .decay import measure_decay
from .model import Decoder
from .scoring import ByteTokenizer, LabScorer, base_setting
from .study import MeasurePlan, ModelPlan
from .training import STATE, Trainer
from .units import Unit

DONE, CONFIG, RESULT, WEIGHTS = "done", "config.json", "result.json", "model.safetensors"
Tell = Callable[[float], None]
"""Called with the share of the unit that is done."""


def perform(unit: Unit, root: Path, tell: Tell = lambda _: None) -> None:
    """Do a unit whose needs are done, and leave its results in ``root / unit.key``."""
    folder = root / unit.key
    if (folder / DONE).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    _WORK[unit.kind](unit, root, folder, tell)
    write_whole(folder / CONFIG, json.dumps(unit.config, indent=1) + "\n")
    write_whole(folder / DONE, "")
    tell(1.0)


def results_of(unit: Unit, root: Path) -> Any:
    """Return what a finished unit found."""
    return json.loads((root / unit.key / RESULT).read_text())


def trained_model(unit: Unit, root: Path) -> Decoder:
    """Return the trained model of a training, or of a measurement's only need."""
    key = unit.key if unit.kind == "model" else unit.needs[0]
    model = Decoder(unit.shape, trained_encoding(unit.model), unit.seed)
    model.load_state_dict(load_file(root / key / WEIGHTS))
    return model


def trained_encoding(plan: ModelPlan) -> Encoding:
    """Return the encoding that a model is trained with: its own, or stretched."""
    if plan.method == "none":
        return plan.encoding
    base = base_setting(plan.encoding)
    original = plan.training.length if plan.training.skips is None else plan.training.skips
    setting = method_named(plan.method).setting(base, plan.factor, round(original / plan.factor))
    return setting if isinstance(setting, Encoding) else Rotary(rope=setting)


def _train(unit: Unit, root: Path, folder: Path, tell: Tell) -> None:
    plan = unit.model
    model = Decoder(unit.shape, trained_encoding(plan), unit.seed)
    if plan.start is not None:
        # A stretched encoding may have other parameters; what the blocks learned is kept.
        model.load_state_dict(load_file(root / unit.needs[0] / WEIGHTS))
    trainer = Trainer(model, plan.training, plan.data, unit.seed, folder)
    begun = time.process_time()
    for done in trainer.steps(time.monotonic):
        tell(done / plan.training.steps)
    with replacing(folder / WEIGHTS) as scratch:
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, scratch)
    result = {
        "log": trainer.log,
        "parameters": sum(p.numel() for p in model.parameters()),
        "position_parameters": sum(p.numel() for p in model.positions.parameters()),
        "precision": str(trainer.dtype),
        "processor_seconds_here": round(time.process_time() - begun, 1),
        "environment": environment(),
    }
    write_whole(folder / RESULT, json.dumps(result) + "\n")
    # The optimizer's state is of no more use, nor is what a kill cut short.
    for left in (folder / STATE, *folder.glob("*.partial-*")):
        left.unlink(missing_ok=True)


def texts_for(plan: MeasurePlan, length: int) -> TextSet:
    """Return the texts that a measurement scores."""
    return tokenize(
        *default_texts(plan.split),
        ByteTokenizer(),
        length=length,
        count=plan.documents,
        scored=plan.scored,
    )


def _measure(unit: Unit, root: Path, folder: Path, tell: Tell) -> None:
    plan = unit.plan
    assert isinstance(plan, MeasurePlan)
    model = trained_model(unit, root)
    encoding = model.encoding
    longest = encoding.longest
    found = []
    wanted = tuple(round(multiple * unit.length) for multiple in plan.multiples)
    texts = texts_for(plan, max(wanted))
    scorer = LabScorer(model)
    for index, protocol in enumerate(plan.protocols):
        options = Options(
            trials=plan.trials,
            probe=plan.probe,
            distances=plan.distances or None,
            protocol=protocol,  # type: ignore[arg-type]
            short=False,
        )
        with Journal(folder / f"journal-{protocol}.jsonl", unit.config) as journal:
            for lengths, methods in _possible(wanted, plan.methods, longest):

                def progress(done: float, total: float, _: str, index: int = index) -> None:
                    tell((index + done / total) / len(plan.protocols))

                runner = Runner(
                    scorer,
                    texts,
                    base_setting(encoding),
                    unit.length,
                    plan.scored,
                    [method_named(name) for name in methods],
                    options,
                    journal,
                    progress,
                )
                found.append(runner.run(unit.model.name, lengths).to_dict())
    write_whole(folder / RESULT, json.dumps(found) + "\n")


def _measure_decay(unit: Unit, root: Path, folder: Path, tell: Tell) -> None:
    plan = unit.plan
    assert isinstance(plan, MeasurePlan)
    found = measure_decay(trained_model(unit, root), texts_for(plan, unit.length), tell)
    write_whole(folder / RESULT, json.dumps(found) + "\n")


def _possible(
    lengths: tuple[int, ...], methods: tuple[str, ...], longest: int | None
) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Split lengths by what can be run: past its table a learned encoding can only be cropped."""
    if longest is None:
        return [(lengths, methods)]
    within = tuple(n for n in lengths if n <= longest)
    beyond = tuple(n for n in lengths if n > longest)
    out = [(within, methods)] if within else []
    if beyond and "crop" in methods:
        out.append((beyond, ("crop",)))
    return out


_WORK: dict[str, Callable[[Unit, Path, Path, Tell], None]] = {
    "model": _train,
    "loss": _measure,
    "decay": _measure_decay,
}


def set_threads(count: int) -> None:
    """Let this process compute with so many threads."""
    torch.set_num_threads(count)
