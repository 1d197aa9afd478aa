"""Converting weights between pairings: rows of queries and keys change places.

Scores do not change when the lanes of a query and a key are permuted alike, so a model stored
for the other pairing computes the same when it is run with the other pairing. Only bytes move:
nothing is computed, and converting back gives the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..models.families import FAMILIES
from ..rope import Pairing
from .model_weights import NOTE, ModelWeights, find_weights
from .row_orders import Order, row_order
from .stored_tensors import StoredTensor, TensorFile, open_tensors

Progress = Callable[[float, float, str], None]
_STATE = "ropewalk-conversion.json"
_AT_ONCE = 64 * 2**20
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".safetensors", ".h5", ".msgpack", ".onnx")


@dataclass(frozen=True)
class Conversion:
    """What was converted.

    Attributes:
        source: the model.
        written: the new folder.
        before: the pairing of its weights.
        after: the pairing of the written weights.
        files: the weight files written.
        tensors: how many tensors had rows moved.
        kept: how many files an earlier run had finished.
        notes: what a user should know, in whole sentences.
    """

    source: str
    written: str
    before: Pairing
    after: Pairing
    files: tuple[str, ...]
    tensors: int
    kept: int
    notes: tuple[str, ...]


def convert_pairing(
    model: Path,
    to: Pairing,
    folder: Path,
    *,
    lossy: bool = False,
    base: Path | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Write a copy of a model whose q and k weights are stored for another pairing.

    One shard is copied at a time, 64 MiB of it in memory. Finished shards survive a kill: the
    same call goes on from there. The folder appears when it is whole.

    Args:
        model: a folder of safetensors, a LoRA adapter's folder, or a GGUF file.
        to: the pairing to store.
        folder: the new folder.
        lossy: write also where the config cannot say the pairing; a file
            ``ropewalk-pairing.json`` then says it.
        base: the model that an adapter belongs to.
        progress: called with bytes done, bytes in all, and the file at work.

    Raises:
        InputError: the folder exists, the weights have this pairing already, the family's
            layout is not known, or its config cannot say the pairing.
    """
    if folder.exists():
        raise InputError(
            f"--write: {folder}",
            found="something that exists",
            expected="a new folder",
            fix="choose another name; nothing is overwritten",
        )
    weights = find_weights(model, base)
    if weights.stored == to:
        raise InputError(
            str(model),
            found=f"weights stored for {to} pairing already",
            expected="the other pairing",
            fix="use the model as it is; `ropewalk pairing` looks at the weights themselves",
        )
    config, note = _said(weights, to, lossy)
    orders: dict[str, dict[str, Order]] = {}
    names: set[str] = set()
    seen: set[tuple[int, str]] = set()
    for file in weights.files:
        orders[file], held = _orders(weights, file, to, seen)
        names |= held
    moved = sum(map(len, orders.values()))
    _check_values(weights, {name for found in orders.values() for name in found}, names)
    if not moved:
        raise InputError(
            str(weights.folder),
            found="no query or key weights under the names of the family",
            expected=f"the tensors of {weights.plan.model_type}",
            fix="check that config and weights belong together",
        )
    _check_whole(weights, seen)
    try:
        kept = _write(weights, orders, to, folder, config, note, progress)
    except OSError as error:
        raise InputError(
            f"--write: {folder}",
            found=error.strerror or str(error),
            expected="a folder that can be written",
            fix="make room or choose another place; the same command goes on from here",
        ) from None
    notes = [] if note is None else [note["note"]]
    if config is not None and "auto_map" in config:
        notes.append(
            "the config names code that travels with the checkpoint; it may not read the key that "
            "says the pairing: load without trust_remote_code"
        )
    if left := _left_out(weights):
        notes.append("other weight files were not converted and are left out: " + ", ".join(left))
    written = folder / weights.files[0] if weights.kind == "gguf" else folder
    return Conversion(
        str(model), str(written), weights.stored, to, weights.files, moved, kept, tuple(notes)
    )


def _said(
    weights: ModelWeights, to: Pairing, lossy: bool
) -> tuple[str | None, dict[str, Any] | None]:
    """Return the new text of config.json, if it changes, and the note beside it, if needed."""
    own = weights.rope.pairing
    family = FAMILIES.get(weights.plan.model_type)
    # Code that travels with a checkpoint may not read the key that transformers' class reads.
    if weights.kind == "folder" and family and family.pairing_switch and not family.remote:
        switch = family.pairing_switch
        text = (weights.folder / "config.json").read_bytes().decode("utf-8")
        return _with_switch(text, switch, to == "adjacent"), None
    if to == own:
        return None, None
    subject = {"gguf": "architecture", "adapter": "base model's family"}.get(weights.kind, "family")
    what = f"the code of the {subject} {weights.plan.model_type!r} pairs {own} lanes"
    if not lossy:
        raise InputError(
            "--pairing",
            found=f"{to}, which no key of the config can say: {what}",
            expected=own,
            fix="add --lossy to write it all the same, for code that rotates "
            f"{to} lanes; {NOTE} will say so",
        )
    files = {"files": list(weights.files)} if weights.kind == "gguf" else {}
    return None, {
        "pairing": to,
        **files,
        "note": f"query and key weights are stored for {to} pairing, but {what}: run them with "
        "code that rotates so, or convert them back",
    }


def _with_switch(text: str, key: str, value: bool) -> str:
    """Set a boolean key in the text of a config, leaving every other byte as it is."""
    word = "true" if value else "false"
    pattern = re.compile(rf'("{re.escape(key)}"\s*:\s*)(?:true|false|null)')
    added = f'{{\n  "{key}": false,'
    if value and text.startswith(added):
        return "{" + text[len(added) :]
    if pattern.search(text):
        return pattern.sub(rf"\g<1>{word}", text)
    return text.replace("{", f'{{\n  "{key}": {word},', 1)


def _orders(
    weights: ModelWeights, name: str, to: Pairing, seen: set[tuple[int, str]]
) -> tuple[dict[str, Order], set[str]]:
    """Return the row orders of a file's tensors, and the names of all its tensors.

    ``seen`` gains the layers and roles of the matrices.
    """
    with open_tensors(weights.folder / name) as file:
        orders = {}
        for found in weights.query_key_tensors(file.tensors.values(), file.path):
            if found.place.kind == "matrix":
                file.raw(found.tensor)  # refuses rows that are no whole bytes
                seen |= {(found.place.layer, head.role) for head in found.heads}
            orders[found.tensor.name] = row_order(found.heads, found.rows, to)
        return orders, set(file.tensors)


def _check_values(weights: ModelWeights, moved: set[str], names: set[str]) -> None:
    """Refuse keys that are the values too: their order is also that of the output's columns."""
    if weights.kind == "adapter":
        return
    for name in sorted(moved):
        for key, value in (("k_proj.weight", "v_proj.weight"), ("attn_k.weight", "attn_v.weight")):
            if name.endswith(key) and name.removesuffix(key) + value not in names:
                raise InputError(
                    f"{weights.folder}: {name}",
                    found=f"keys without {value}: they are the values too",
                    expected="values of their own",
                    fix="this family's pairing cannot be changed by moving rows alone",
                )


def _check_whole(weights: ModelWeights, seen: set[tuple[int, str]]) -> None:
    """Refuse weights of which only a part has the names of the family.

    Layers that share the keys of others have none of their own, but queries all have.
    """
    if weights.kind == "adapter":
        return
    rotating = {layer.index for layer in weights.plan.layers if layer.rope is not None}
    # Some models run through their layers several times: those have fewer than the plan.
    last = max((layer for layer, _ in seen), default=0)
    lost = sorted(i for i in rotating if i <= last and (i, "query") not in seen)
    if lost or not any(role == "key" for _, role in seen):
        raise InputError(
            str(weights.folder),
            found=f"no queries of layer {lost[0]} under the names of the family"
            if lost
            else "queries and no keys under the names of the family",
            expected=f"queries and keys of the {len(rotating)} layers with rope",
            fix="check that config and weights belong together; half a conversion is none",
        )


def _write(
    weights: ModelWeights,
    orders: dict[str, dict[str, Order]],
    to: Pairing,
    folder: Path,
    config: str | None,
    note: dict[str, Any] | None,
    progress: Progress | None,
) -> int:
    scratch = folder.with_name(f".partial-{folder.name}")
    state = _state(weights, to)
    if not _same_state(scratch / _STATE, state):
        shutil.rmtree(scratch, ignore_errors=True)  # of another conversion, or none
        scratch.mkdir(parents=True)
        (scratch / _STATE).write_text(json.dumps(state), encoding="utf-8")
    sizes = {name: (weights.folder / name).stat().st_size for name in weights.files}
    total, done, kept = sum(sizes.values()), 0, 0
    for name in weights.files:
        if (scratch / name).is_file():
            kept += 1
        else:
            if progress is not None:
                progress(done, total, name)
            _write_file(weights.folder / name, scratch / name, orders[name])
        done += sizes[name]
    if progress is not None:
        progress(total, total, folder.name)
    _write_rest(weights, scratch, config, note)
    (scratch / _STATE).unlink()
    scratch.rename(folder)
    return kept


def _state(weights: ModelWeights, to: Pairing) -> dict[str, Any]:
    files = {}
    for name in weights.files:
        found = (weights.folder / name).stat()
        files[name] = [found.st_size, found.st_mtime_ns]
    return {
        "source": str(weights.folder.resolve()),
        "before": weights.stored,
        "after": to,
        "files": files,
    }


def _same_state(path: Path, state: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(path.read_text(encoding="utf-8")) == state)
    except (OSError, ValueError):
        return False


def _write_file(source: Path, target: Path, orders: dict[str, Order]) -> None:
    """Copy a file byte for byte, but for the rows that change places."""
    unfinished = target.with_name(target.name + ".unfinished")
    with open_tensors(source) as file, unfinished.open("wb") as out:
        at = 0
        for tensor in file.tensors.values():
            order = orders.get(tensor.name)
            if order is not None:
                _copy(file, at, tensor.start, out)
                _copy_rows(file, tensor, order, out)
                at = tensor.start + tensor.size
        _copy(file, at, len(file.bytes), out)
        out.flush()
        os.fsync(out.fileno())
    # Only a whole file has its name, so that a later run can trust it.
    unfinished.replace(target)


def _copy(file: TensorFile, start: int, end: int, out: Any) -> None:
    for at in range(start, end, _AT_ONCE):
        out.write(file.bytes[at : min(at + _AT_ONCE, end)].data)


def _copy_rows(file: TensorFile, tensor: StoredTensor, order: Order, out: Any) -> None:
    flat = file.bytes[tensor.start : tensor.start + tensor.size]
    rows = flat.reshape(len(order), tensor.size // len(order))
    step = max(1, _AT_ONCE // max(rows.shape[1], 1))
    for at in range(0, len(order), step):
        out.write(np.ascontiguousarray(rows[order[at : at + step]]).data)


def _left_out(weights: ModelWeights) -> list[str]:
    """Return weight files of the folder that are not converted and so must not be copied."""
    if weights.kind == "gguf":
        return []
    return sorted(
        path.name
        for path in weights.folder.iterdir()
        if path.is_file() and path.suffix in _OTHER_WEIGHTS and path.name not in weights.files
    )


def _write_rest(
    weights: ModelWeights, scratch: Path, config: str | None, note: dict[str, Any] | None
) -> None:
    if weights.kind != "gguf":
        skipped = {*weights.files, *_left_out(weights), NOTE, _STATE}
        for path in sorted(weights.folder.iterdir()):
            if path.is_file() and path.name not in skipped:
                shutil.copy2(path, scratch / path.name)
    if config is not None:
        (scratch / "config.json").write_bytes(config.encode("utf-8"))
    if note is not None:
        (scratch / NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
