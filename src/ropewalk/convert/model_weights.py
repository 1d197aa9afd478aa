"""A model's weight files, and where queries and keys lie in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError
from ..models import ModelPositions, json_text
from ..models.fragment import Fragment
from ..models.gguf import read_gguf
from ..models.gguf_header import GGUFHeader
from ..models.load import load
from ..models.pairing_note import NOTE, noted_pairing
from ..models.read import read_loaded
from ..models.spellings import NESTED_TEXT
from ..rope import Pairing, Rope
from .layouts import INDEXED, ROWS, STAY, Names, Place
from .row_orders import HeadRows, Lanes, Sizes, heads_in
from .stored_tensors import StoredTensor

_ADAPTER = "adapter_config.json"
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_LARGEST_JSON = 64 * 2**20
_LONGEST_NAME = 255


@dataclass(frozen=True)
class QueryKeyTensor:
    """One stored tensor that holds lanes of queries or keys.

    Attributes:
        tensor: where it lies.
        place: what it is.
        rope: the rope of its layer.
        rows: its rows; those of a vector are its elements.
        heads: the query and key heads in them.
    """

    tensor: StoredTensor
    place: Place
    rope: Rope
    rows: int
    heads: list[HeadRows]


@dataclass(frozen=True)
class ModelWeights:
    """The weight files of a model.

    Attributes:
        folder: where they lie.
        files: their names in the folder.
        kind: ``folder`` of safetensors, ``adapter`` (LoRA) or one ``gguf`` file.
        plan: the positions of the model (of the base model, for an adapter).
        rope: the rope of its long-range layers.
        stored: the pairing that the weights are said to have.
        header: that of a GGUF file, where it is open already.
        index: lanes of an indexer's heads, or None.
    """

    folder: Path
    files: tuple[str, ...]
    kind: Literal["folder", "adapter", "gguf"]
    plan: ModelPositions
    rope: Rope
    stored: Pairing
    header: GGUFHeader | None = None
    index: Lanes | None = None

    def query_key_tensors(
        self, tensors: Iterable[StoredTensor], path: Path
    ) -> Iterator[QueryKeyTensor]:
        """Yield the tensors of one file whose rows are lanes of rotated queries or keys.

        Args:
            tensors: those of the file.
            path: of the file, for errors.

        Raises:
            InputError: rows that do not fit the config, or weights packed across rows.
        """
        names = Names(self.plan)
        for tensor in tensors:
            place = names.place(tensor.name)
            if place is None or place.field in STAY:
                continue
            rope = self._rope_of(place.layer)
            if rope is None:
                continue
            elements = math.prod(tensor.shape)
            where = f"{path}: {tensor.name}"
            if place.kind == "vector":
                rows = elements
            elif elements == 1 and place.field not in ("weight", "bias"):
                continue  # one scale for the whole tensor
            elif place.field not in ROWS or not tensor.shape:
                raise InputError(
                    where,
                    found=f"a quantised or adapted part {place.field!r}",
                    expected="weights whose rows stand for themselves: "
                    + ", ".join(sorted(name for name in ROWS if "." not in name)),
                    fix="use the model before it was quantised",
                )
            else:
                rows = elements if place.field.startswith("lora_mag") else tensor.rows
            heads = heads_in(place.form, rows, self._sizes(rope), where)
            yield QueryKeyTensor(tensor, place, rope, rows, heads)

    def _rope_of(self, layer: int) -> Rope | None:
        # Layers past the last are extra prediction heads (MTP), built like the others.
        layers = self.plan.layers
        return layers[layer].rope if layer < len(layers) else self.rope

    def _sizes(self, rope: Rope) -> Sizes:
        lanes = Lanes(rope.head_dim, rope.rotary_offset, rope.rotary_dim)
        plan = self.plan
        value = plan.value_dim or rope.head_dim
        return Sizes(lanes, plan.heads, plan.kv_heads, value, self.index)


def find_weights(
    model: Path, base: Path | None = None, header: GGUFHeader | None = None
) -> ModelWeights:
    """Find a model's weight files and read its positions.

    Args:
        model: a folder of safetensors, a LoRA adapter's folder, or a GGUF file.
        base: the model that an adapter belongs to, where the adapter does not name a folder.
        header: that of the GGUF file, where it is open already.

    Raises:
        InputError: no such weights, a model without rope, or pickled weights.
    """
    try:
        return _find(model, base, header)
    except OSError as error:
        raise InputError(
            str(model),
            found=error.strerror or str(error),
            expected="a folder that can be read",
            fix="check the path and its permissions",
        ) from None


def _find(model: Path, base: Path | None, header: GGUFHeader | None) -> ModelWeights:
    adapter = model.is_dir() and (model / _ADAPTER).is_file()
    if header is None:
        plan = _by_code(_base_of(model, base) if adapter else model)
    else:
        plan = read_gguf(header.path, header=header)
    rope = plan.rope
    if rope is None:
        raise InputError(
            plan.path,
            found="no rotary embedding",
            expected="a model with RoPE",
            fix="nothing is paired here",
        )
    path = Path(plan.path)
    if plan.format == "gguf" and not adapter:
        if _SPLIT.search(path.name):
            raise InputError(
                str(path),
                found="a part of a split GGUF file",
                expected="one file",
                fix="join it with llama-gguf-split --merge",
            )
        stored = noted_pairing(path) or rope.pairing
        return ModelWeights(path.parent, (path.name,), "gguf", plan, rope, stored, header)
    folder = model if model.is_dir() else model.parent
    files = _safetensors(folder, "adapter_model" if adapter else "model")
    stored = noted_pairing(folder / files[0]) or rope.pairing
    index = _indexer(Path(plan.path), plan.model_type, rope)
    kind: Literal["adapter", "folder"] = "adapter" if adapter else "folder"
    return ModelWeights(folder, files, kind, plan, rope, stored, index=index)


def _by_code(path: Path) -> ModelPositions:
    """Read a plan with the pairing that the family's code has, whatever a note says."""
    found = read_loaded(load(path))
    if isinstance(found, Fragment):
        raise found.refusal()
    return found


_ROTATED_LAST = ("hy_v4", "hy_v4_vl_text")
"""Indexers whose rotated lanes are the last of a head; elsewhere they are the first."""


def _indexer(config: Path, family: str, rope: Rope) -> Lanes | None:
    """Return the lanes of an indexer's heads; only the config says how many there are."""
    path = config / "config.json" if config.is_dir() else config
    if family not in INDEXED or not path.is_file():
        return None
    values = load_object(path)
    for nested in NESTED_TEXT:
        if isinstance(values.get(nested), dict):
            values = values[nested]
    size = values.get("index_head_dim")
    if not isinstance(size, int) or isinstance(size, bool) or not rope.rotary_dim <= size < 2**16:
        return None
    first = size - rope.rotary_dim if family in _ROTATED_LAST else 0
    return Lanes(size, first, rope.rotary_dim)


def _safetensors(folder: Path, stem: str) -> tuple[str, ...]:
    index = folder / f"{stem}.safetensors.index.json"
    if index.is_file():
        files = _shards(load_object(index).get("weight_map"))
        if not files:
            raise InputError(
                str(index),
                found="no weight_map of plain file names",
                expected="tensor names to files of this folder",
                fix="fetch the file again",
            )
        if lost := [name for name in files if not (folder / name).is_file()]:
            raise InputError(
                str(folder / lost[0]),
                found="no such file",
                expected=f"all {len(files)} shards of {index.name}",
                fix="fetch the missing shards",
            )
        return tuple(files)
    if (folder / f"{stem}.safetensors").is_file():
        return (f"{stem}.safetensors",)
    lone = sorted(p.name for p in folder.glob("*.safetensors") if p.is_file())
    if len(lone) == 1:
        return (lone[0],)
    pickled = sorted(p.name for ext in ("bin", "pt", "pth") for p in folder.glob(f"*.{ext}"))
    found = f"{len(lone)} safetensors files without an index" if lone else "no safetensors file"
    raise InputError(
        str(folder),
        found=found + (f", but {pickled[0]}" if pickled and not lone else ""),
        expected=f"{stem}.safetensors, or shards with {index.name}",
        fix="save the model as safetensors: pickled weights are not read"
        if pickled
        else "give a folder with the weights",
    )


def _shards(names: Any) -> list[str]:
    """Return the files of a weight map; none if one would lead out of the folder."""
    if not isinstance(names, dict):
        return []
    files = list(names.values())
    plain = all(
        isinstance(name, str)
        and Path(name).name == name
        and len(name.encode(errors="replace")) <= _LONGEST_NAME
        for name in files
    )
    return sorted(set(files)) if plain else []


def _base_of(adapter: Path, base: Path | None) -> Path:
    if base is not None:
        return base
    named = load_object(adapter / _ADAPTER).get("base_model_name_or_path")
    if isinstance(named, str) and Path(named).is_dir():
        return Path(named)
    raise InputError(
        f"{adapter / _ADAPTER}: base_model_name_or_path",
        found=repr(named),
        expected="a folder on this machine: the heads are in the base model's config",
        fix="name it with --base",
    )


def load_object(path: Path) -> dict[str, Any]:
    """Read a small JSON file that holds one object.

    Raises:
        InputError: not readable, not JSON, too large, or no object.
    """
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise ValueError("more than 64 MiB")
        found = json_text.parse(path.read_text(encoding="utf-8-sig"))
        if isinstance(found, dict):
            return found
        raise ValueError("no object")
    except (OSError, ValueError) as error:
        raise InputError(
            str(path),
            found=(str(error).splitlines() or ["nothing"])[0],
            expected="a JSON object",
            fix="fetch the file again",
        ) from None


__all__ = ["NOTE", "ModelWeights", "QueryKeyTensor", "find_weights", "load_object"]
