"""A model as the rules see it: the raw keys, and what the reader made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..models.engine_apply import config_fragment, merge_overrides
from ..models.engine_settings import EngineSettings, read_settings
from ..models.families import FAMILIES, WRAPPERS
from ..models.family import Family
from ..models.flags import parse_object, split_flags
from ..models.flat_file import flatten
from ..models.formats import recognise
from ..models.fragment import Fragment
from ..models.gguf_header import GGUFHeader
from ..models.gguf_text import listed_metadata
from ..models.hf_parts import main_part
from ..models.load import load
from ..models.plan import ModelPositions
from ..models.read import TEXT, read_loaded, read_text
from ..models.spellings import BLOCK_KEYS, BLOCKS, NESTED_TEXT, SPELLINGS
from ..scaling.base import is_number

Values = Mapping[str, Any]


@dataclass
class Subject:
    """One model, file or text under check.

    Attributes:
        path: as it was named; ``command line`` for a text.
        kind: ``values``, ``text`` or ``gguf``.
        values: the parsed file; for GGUF and listings the metadata; for flags their values
            under names with underscores; else empty.
        text: the text, where it is one.
        settings: those of an engine's command line, from the text or from beside the model.
        plan: what the reader made of it, or None.
        fragment: the same where it describes no whole model.
        refusal: why the reader refused it.
        tensors: the names of a GGUF file's tensors; None where they are unknown.
        place: the file on the disk, or None.
        weights: whether weights are looked at; None for small files only.
        header: the open header of a GGUF file; every rule and reader shares it.
    """

    path: str
    kind: str
    values: Values = field(default_factory=dict)
    text: str = ""
    settings: EngineSettings | None = None
    plan: ModelPositions | None = None
    fragment: Fragment | None = None
    refusal: InputError | None = None
    tensors: frozenset[str] | None = None
    place: Path | None = None
    weights: bool | None = None
    header: GGUFHeader | None = None

    def close(self) -> None:
        """Close the file; the header's values stay."""
        if self.header is not None:
            self.header.__exit__(None, None, None)

    @cached_property
    def is_config(self) -> bool:
        """Whether this is a config of transformers, or keys of one."""
        if self.kind != "values":
            return False
        plan = self.plan or self.fragment
        return plan is None or plan.format in ("hf", "mlx")

    @cached_property
    def is_gguf(self) -> bool:
        """Whether this is a GGUF file or a listing of its metadata."""
        return self.kind == "gguf"

    @cached_property
    def _part(self) -> tuple[str, Values]:
        if not self.is_config:
            return "", self.values
        path, part = main_part(self.values)
        return (f"{path}." if path else ""), part

    @property
    def prefix(self) -> str:
        """The path of the language model within a config, with its dot; empty at the top."""
        return self._part[0]

    @property
    def part(self) -> Values:
        """The part of a config that describes the language model."""
        return self._part[1]

    @cached_property
    def flat(self) -> Values:
        """All values by dotted key, hyphens as underscores, numbers of flags as numbers."""
        try:
            found = flatten(self.values, self.path)
        except InputError:
            return {}
        return {key: _as_number(value) for key, value in found.items()}

    @cached_property
    def family(self) -> Family | None:
        """The row of the family table, for a config."""
        name = self.part.get("model_type") or self.values.get("model_type")
        return FAMILIES.get(WRAPPERS.get(str(name), str(name))) if self.is_config else None

    def get(self, concept: str) -> tuple[str, Any] | None:
        """Return key and value of a concept of a config, or None where it is not given."""
        own = () if self.family is None else self.family.spellings.get(concept, ())
        for key in (*own, *SPELLINGS.get(concept, ())):
            if self.part.get(key) is not None:
                return key, self.part[key]
        return None

    def number(self, *keys: str) -> tuple[str, float] | None:
        """Return the first of these dotted keys that holds a number."""
        for key in keys:
            value = self.flat.get(key)
            if is_number(value):
                return key, float(value)  # type: ignore[arg-type]
        return None

    def whole(self, concept: str) -> int | None:
        """Return a whole number of a config, or None where there is none."""
        found = self.get(concept)
        value = None if found is None else found[1]
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @cached_property
    def overrides(self) -> Values:
        """Keys of a config that an engine's command line replaces."""
        found = None if self.settings is None else self.settings.overrides
        return found or {}

    def blocks(self) -> list[tuple[str, Values]]:
        """Return every rope block with its path: of the model, per layer type, of overrides."""
        out = list(_blocks_in(self.part, self.prefix)) if self.is_config else []
        out += _blocks_in(self.overrides, "override: ")
        for name in NESTED_TEXT:
            inner = self.overrides.get(name)
            if isinstance(inner, Mapping):
                out += _blocks_in(inner, f"override: {name}.")
        if self.is_config and any(key in self.values for key in ("rope_type", "type")):
            out.append(("", self.values))
        return out

    @property
    def stated(self) -> int | None:
        """The length that the file states, as read or else by its raw key."""
        if self.plan is not None:
            return self.plan.stated_length
        return self.whole("stated_length") if self.is_config else None

    def notes(self) -> tuple[str, ...]:
        """Return the notes of the reader."""
        found = self.plan or self.fragment
        return () if found is None else found.notes


def _blocks_in(values: Values, prefix: str) -> Iterator[tuple[str, Values]]:
    for name in BLOCKS:
        block = values.get(name)
        if not isinstance(block, Mapping):
            continue
        inner = [(key, value) for key, value in block.items() if isinstance(value, Mapping)]
        if inner and not any(key in block for key in ("rope_type", "type", "factor")):
            for key, value in inner:
                yield f"{prefix}{name}.{key}", value
        else:
            yield f"{prefix}{name}", block


def _as_number(value: Any) -> Any:
    """Return the number that a flag's text is, or the value as it stands."""
    if not isinstance(value, str) or len(value) > 40:
        return value
    try:
        return float(value)
    except ValueError:
        return value


def kind_of(block: Values) -> str | None:
    """Return the scaling that a block names, or None."""
    for key in ("rope_type", "type"):
        name = block.get(key)
        if isinstance(name, str):
            return {"su": "longrope", "deepseek_yarn": "yarn"}.get(name, name)
    return None


def number_in(block: Values, key: str) -> float | None:
    """Return the number under a key of a block, or None."""
    value = block.get(key)
    return float(value) if is_number(value) else None  # type: ignore[arg-type]


def open_file(
    path: Path,
    *,
    assume_family: str | None = None,
    engine_args: str | None = None,
    overrides: str | None = None,
    weights: bool | None = None,
) -> Subject:
    """Open a folder or file and read it; a refusal is kept, not raised.

    Raises:
        InputError: nothing to check: not found, not readable, or no file of a known kind.
    """
    loaded = load(path)
    label = str(loaded.path)
    made = Subject(label, loaded.kind, place=loaded.path, weights=weights)
    if loaded.kind == "text":
        made.text = loaded.content
        _split(made)
    elif loaded.kind == "values":
        made.values = loaded.content if isinstance(loaded.content, Mapping) else {}
    else:
        _open_gguf(made)
        loaded = dataclasses.replace(loaded, content=made.header)
    if engine_args is not None:
        made.settings = read_settings(engine_args, "--engine-args")
    _merge(made, overrides)
    _read(
        made,
        lambda: read_loaded(
            loaded, assume_family=assume_family, engine_args=engine_args, overrides=overrides
        ),
    )
    _read_nameless(made)
    return made


def _merge(made: Subject, overrides: str | None) -> None:
    """Let the raw keys be those that an engine would see; what it refuses shows in reading."""
    settings = made.settings
    try:
        given = None if overrides is None else parse_object(overrides, "--overrides")
        if given is None and settings is not None:
            given = settings.overrides
        if given is not None and made.kind == "values":
            made.values, _ = merge_overrides(made.values, given, "--overrides")
    except InputError:
        return
    if settings is not None:
        made.settings = dataclasses.replace(settings, overrides=None)


def open_text(text: str, *, assume_family: str | None = None) -> Subject:
    """Read a command line, a Modelfile or a listing; a refusal is kept, not raised."""
    made = Subject(TEXT, "text", text=text)
    _split(made)
    _read(made, lambda: read_text(text, assume_family=assume_family))
    return made


def _read(made: Subject, reader: Any) -> None:
    try:
        found = reader()
    except InputError as error:
        made.refusal = error
        return
    if isinstance(found, Fragment):
        made.fragment = found
    else:
        made.plan = found


def _read_nameless(made: Subject) -> None:
    """Read the rope keys of a config that names no model, or a rope block alone."""
    values = made.values
    named = values.get("model_type") is not None or values.get("architectures") is not None
    if made.kind != "values" or made.refusal is None or named:
        return
    if recognise(values, made.path) is not None:
        return  # A file of another program, refused by its own reader.
    if any(values.get(key) is not None for key in ("rope_type", "type")) and any(
        key in values for key in BLOCK_KEYS if key not in ("rope_type", "type")
    ):
        values = {BLOCKS[0]: values}
    elif not any(values.get(key) is not None for key in (*SPELLINGS["partial"], *BLOCKS)):
        return
    made.refusal = None
    _read(made, lambda: config_fragment(values, made.path))


def _split(made: Subject) -> None:
    listed = listed_metadata(made.text)
    if listed is not None:
        made.kind, made.values = "gguf", listed
        return
    try:
        made.settings = read_settings(made.text, made.path)
    except InputError:
        made.settings = None
    try:
        made.values = split_flags(made.text, made.path).values
    except InputError:
        made.values = {}


def _open_gguf(made: Subject) -> None:
    assert made.place is not None
    try:
        made.header = GGUFHeader(made.place)
    except (InputError, OSError):
        return  # Reading it says what is wrong.
    made.values = dict(made.header.values)
    made.tensors = frozenset(made.header.tensors)
