"""Writing an extended copy of a model beside the original."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ..convert.rope_block import changed_base, rope_parameters
from ..errors import InputError
from ..models import ModelPositions
from ..models.pairing_note import NOTE
from ..models.read import read
from ..models.spellings import BLOCK_KEYS, NESTED_TEXT
from ..rope import Rope
from .engines import legacy_block, stated_length
from .plan import Extension

_ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")


def write_extended(extension: Extension, positions: ModelPositions, folder: Path) -> Path:
    """Write a copy of the model with the extension's rope into a new folder.

    The copy is made under another name and renamed when it is whole; then it is read back and
    its rope compared with the one that was meant.

    Returns:
        The folder (transformers) or the file within it (GGUF).

    Raises:
        InputError: the folder exists; nothing to extend; or the format cannot say the method.
    """
    if extension.rope is None:
        raise InputError(
            "--write",
            found="an extension that changes nothing",
            expected="a target beyond what the model takes",
            fix="use the model as it is",
        )
    if folder.exists():
        raise InputError(
            f"--write: {folder}",
            found="something that exists",
            expected="a new folder",
            fix="choose another name; nothing is overwritten",
        )
    source = Path(positions.path)
    scratch = folder.with_name(f".partial-{folder.name}")
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed run of this command
    scratch.mkdir(parents=True)
    try:
        if positions.format == "gguf":
            _write_gguf(source, scratch / source.name, extension)
            if (source.parent / NOTE).is_file():  # what it says holds for the copy too
                shutil.copy2(source.parent / NOTE, scratch / NOTE)
            written = folder / source.name
        else:
            _write_folder(source if source.is_dir() else source.parent, scratch, extension)
            written = folder
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    _check_written(written, extension.rope)
    return written


def _write_folder(source: Path, target: Path, extension: Extension) -> None:
    rope = extension.rope
    assert rope is not None
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    owner = config
    for name in NESTED_TEXT:
        if isinstance(config.get(name), dict) and "hidden_size" in config[name]:
            owner = config[name]
    if any(isinstance(v, dict) for v in (owner.get("rope_parameters") or {}).values()):
        raise InputError(
            f"{source}: rope_parameters",
            found="one block per layer type",
            expected="one block for all layers",
            fix="edit the full_attention block by hand with the block shown above",
        )
    block = _block_in_style(owner, rope)
    for name in ("rope_parameters", "rope_scaling"):
        own = {k: v for k, v in (owner.get(name) or {}).items() if BLOCK_KEYS[k].stays}
        if own:
            # Without a scaling of its own (a changed base) the block is still needed for these.
            block[name] = {**own, **(block.get(name) or {"rope_type": "default"})}
    for key in _ROPE_KEYS:
        owner.pop(key, None)
    owner |= block
    owner["max_position_embeddings"] = stated_length(rope, extension.target)
    for file in sorted(source.iterdir()):
        # A journal or report of an earlier measurement is no part of the model.
        if file.is_file() and file.name != "config.json":
            shutil.copy2(file, target / file.name)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _block_in_style(owner: dict[str, Any], rope: Rope) -> dict[str, Any]:
    """Return the rope's keys in the generation that the config is written in."""
    if "rope_parameters" in owner:
        parameters = rope_parameters(rope)
        block = None if parameters is None else {"rope_parameters": parameters}
    else:
        block = legacy_block(rope)
    if block is None:
        raise InputError(
            "--write",
            found=f"the scaling {rope.scaling.kind}",
            expected="one that a transformers config can say",
            fix="choose another --method",
        )
    return block


def _write_gguf(source: Path, target: Path, extension: Extension) -> None:
    """Copy a GGUF file with the rope keys replaced; tensors are copied byte for byte."""
    from ..convert.gguf_patch import patched_copy

    rope = extension.rope
    assert rope is not None
    base, scaling = changed_base(rope), rope.scaling
    values: dict[str, Any] = {"context_length": extension.target}
    if base is not None:
        values["rope.freq_base"] = float(base)
    elif scaling.kind in ("linear", "yarn") and getattr(scaling, "ramp", "index") == "index":
        values["rope.scaling.type"] = scaling.kind
        values["rope.scaling.factor"] = scaling.stretch
        values["rope.scaling.original_context_length"] = extension.original_length
    else:
        raise InputError(
            "--write",
            found=f"the method {extension.method}",
            expected="none, linear, ntk, ntk-critical or yarn, which a GGUF file can say",
            fix="choose one of them",
        )
    patched_copy(source, target, values)


def _check_written(written: Path, meant: Rope) -> None:
    found = read(written).rope
    assert found is not None
    # GGUF keeps theta and factor in float32; a JSON config keeps them whole.
    tolerance = 2.0**-20 if written.suffix == ".gguf" else 2.0**-50
    apart = abs(found.inv_freq() / meant.inv_freq() - 1).max()
    amplitude = abs(found.attention_factor() / meant.attention_factor() - 1)
    if apart > tolerance or amplitude > tolerance:
        raise InputError(
            str(written),
            found=f"a rope off by {max(apart, amplitude):.2g} when read back: {found!r}",
            expected=repr(meant),
            fix="do not use this copy; report it as a bug of ropewalk",
        )
