"""Reading positions from whatever describes them: a folder, a file, or a text."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from .diffusers import is_diffusers, read_diffusers
from .engine_apply import apply_numbers, config_fragment, fragment_of, merge_overrides
from .engine_settings import EngineSettings, read_settings
from .flags import parse_object, split_flags
from .flat_format import read_flat
from .formats import recognise
from .fragment import Fragment
from .hf import read_config
from .load import FORMATS, Loaded, is_there, load
from .mlx import is_mlx, read_mlx
from .pairing_note import with_note
from .plan import ModelPositions, Sourced
from .spellings import BLOCKS, NESTED_TEXT
from .timm import is_timm, read_timm
from .training_flags import read_training_flags

_MODEL_KEYS = ("model_type", "architectures", *NESTED_TEXT)
_ROPE_KEYS = (*BLOCKS, "rope_theta", "rotary_emb_base", "partial_rotary_factor")
_PLACEHOLDER = re.compile(r"\$\{\w+\}")
TEXT = "command line"
"""How errors and plans name a text that came from no file."""


def read(path: str | os.PathLike[str], *, assume_family: str | None = None) -> ModelPositions:
    """Read what a model's positions are, and where each value came from.

    Only headers are read of weight files. Nothing is downloaded.

    Args:
        path: a folder with ``config.json``, ``params.json`` or one ``.gguf`` file, or such a
            file: a config of transformers or mlx-lm, a GGUF file, or one of `models.formats`.
        assume_family: a known ``model_type`` to read a config of transformers as, where its
            own type is not known; the notes say so.

    Returns:
        The position plan of every layer.

    Raises:
        InputError: not found, not readable, an unknown family, or contradictory values.
    """
    return read_whole(path, assume_family=assume_family)


def read_whole(
    path: str | os.PathLike[str],
    *,
    assume_family: str | None = None,
    engine_args: str | None = None,
    overrides: str | Mapping[str, Any] | None = None,
) -> ModelPositions:
    """Read as `read_any` does, and refuse what describes no whole model.

    Raises:
        InputError: see `read_any`; or sizes are missing.
    """
    found = read_any(
        path, assume_family=assume_family, engine_args=engine_args, overrides=overrides
    )
    if isinstance(found, Fragment):
        raise found.refusal()
    return found


def read_any(
    path: str | os.PathLike[str],
    *,
    assume_family: str | None = None,
    engine_args: str | None = None,
    overrides: str | Mapping[str, Any] | None = None,
) -> ModelPositions | Fragment:
    """Read a model's positions, as an engine with these settings would run them.

    Args:
        path: see `read`; also a text file with a command line or a Modelfile.
        assume_family: see `read`.
        engine_args: the command line of an engine, or the part of it about positions.
        overrides: keys of the config to replace, as ``--hf-overrides`` does; JSON or an object.

    Returns:
        The position plan, or a `Fragment` where the file describes no whole model.

    Raises:
        InputError: see `read`; or settings that do not fit the model.
    """
    source = load(Path(path))
    found = read_loaded(
        source, assume_family=assume_family, engine_args=engine_args, overrides=overrides
    )
    return found if isinstance(found, Fragment) else with_note(found, source.path)


def read_loaded(
    source: Loaded,
    *,
    assume_family: str | None = None,
    engine_args: str | None = None,
    overrides: str | Mapping[str, Any] | None = None,
) -> ModelPositions | Fragment:
    """Read a file that is open already; see `read_any`. A note beside weights is not looked at."""
    return _read_source(source, settings_of(engine_args, overrides), assume_family)


def settings_of(
    engine_args: str | None, overrides: str | Mapping[str, Any] | None
) -> EngineSettings | None:
    """Return the settings beside a model, from a command line, from overrides, or from none.

    Raises:
        InputError: a text that is none, or overrides in both.
    """
    settings = None if engine_args is None else _settings(engine_args)
    if overrides is not None:
        replaced = parse_object(overrides, "--overrides")
        if settings is not None and settings.overrides is not None:
            raise InputError(
                "--overrides",
                found="overrides here and in --engine-args",
                expected="one of the two",
                fix="put all keys in one",
            )
        settings = settings or EngineSettings("overrides", "--overrides")
        settings.overrides = replaced
    return settings


def read_text(text: str, *, assume_family: str | None = None) -> ModelPositions | Fragment:
    """Read a command line, the text of a Modelfile or script, or listed GGUF metadata.

    A local model that the text names is read with it.

    Raises:
        InputError: a text that is none of these, or values that fit no rope.
    """
    return _read_text(text, TEXT, assume_family)


def _settings(text: str) -> EngineSettings:
    found = read_settings(text, "--engine-args")
    if found is None:
        raise InputError(
            "--engine-args",
            found=repr(text[:60]),
            expected="flags of vLLM, SGLang or llama.cpp about positions",
            fix="give e.g. '--rope-scaling yarn --rope-scale 4'",
        )
    return found


def _read_text(text: str, label: str, assume_family: str | None) -> ModelPositions | Fragment:
    from .gguf_text import listed_metadata, read_listing

    listed = listed_metadata(text)
    if listed is not None:
        return read_listing(listed, label)
    settings = read_settings(text, label)
    if settings is not None:
        if settings.model is not None and is_there(settings.model):
            return _read_source(load(Path(settings.model)), settings, assume_family)
        return fragment_of(settings)
    flags = split_flags(text, label)
    if flags.values:
        recognised = recognise(flags.values, label)
        if recognised is not None:
            return read_flat(recognised[1], label, recognised[0])
    trained = read_training_flags(flags)
    if trained is not None:
        return trained
    unfilled = _PLACEHOLDER.search(text)
    if unfilled is not None:
        raise InputError(
            label,
            found=f"the placeholder {unfilled[0]}",
            expected="its value",
            fix="fill the placeholder in",
        )
    raise InputError(
        label,
        found="a text that is no command line and no listing that is known",
        expected="flags of vLLM, SGLang, llama.cpp or Megatron, a Modelfile, or GGUF metadata",
        fix="give the model's folder or file",
    )


def _read_source(
    source: Loaded, settings: EngineSettings | None, assume_family: str | None
) -> ModelPositions | Fragment:
    label = str(source.path)
    if source.kind == "gguf":
        if assume_family is not None:
            raise InputError(
                "assume_family",
                found=f"{assume_family!r} with a GGUF file",
                expected="nothing, because a GGUF file names its architecture",
                fix="leave it out",
            )
        from .gguf import read_gguf

        if settings is not None and settings.overrides is not None:
            raise InputError(
                settings.label,
                found="overrides of a config with a GGUF file",
                expected="flags of llama.cpp",
                fix="give e.g. --engine-args '--rope-scaling yarn --rope-scale 4'",
            )
        return _applied(
            read_gguf(source.path, {} if settings is None else settings.metadata, source.content),
            settings,
        )
    if source.kind == "text":
        if settings is not None:
            raise InputError(
                label,
                found="a text of settings, with more settings beside it",
                expected="a model's file",
                fix="give the model itself, and one set of settings",
            )
        return _read_text(source.content, label, assume_family)
    values, notes = source.content, list[str]()
    if settings is not None and settings.overrides is not None:
        if not isinstance(values, Mapping):
            return read_config(values, label)
        values, notes = merge_overrides(values, settings.overrides, settings.label)
    return _applied(
        _with_override_sources(_read_values(values, label, assume_family), settings, notes),
        settings,
    )


def _read_values(values: Any, label: str, assume_family: str | None) -> ModelPositions | Fragment:
    if isinstance(values, Mapping):
        if assume_family is None and is_diffusers(values):
            return read_diffusers(values, label)
        if assume_family is None and is_timm(values):
            return read_timm(values, label)
        recognised = None if assume_family else recognise(values, label)
        if recognised is not None:
            return read_flat(recognised[1], label, recognised[0])
        if is_mlx(values):
            return read_mlx(values, label, assume_family)
        whole = assume_family or any(values.get(key) is not None for key in _MODEL_KEYS)
        if not whole and any(values.get(key) is not None for key in _ROPE_KEYS):
            return config_fragment(values, label)
    return read_config(values, label, assume_family=assume_family)


def _applied(
    found: ModelPositions | Fragment, settings: EngineSettings | None
) -> ModelPositions | Fragment:
    if settings is None:
        return found
    if isinstance(found, Fragment):
        raise found.refusal()
    if settings.overrides is None:
        return apply_numbers(found, settings)
    notes = dict.fromkeys([*found.notes, *settings.notes])
    context, stated = settings.value("context"), found.stated_length
    if context is not None and stated is not None and context > stated:
        notes[
            f"{settings.numbers['context'].source} {context} is beyond the stated length {stated}"
        ] = None
    return dataclasses.replace(found, notes=tuple(notes))


def _with_override_sources(
    found: ModelPositions | Fragment, settings: EngineSettings | None, notes: list[str]
) -> ModelPositions | Fragment:
    """Name the override, not the file, as the source of the keys that it replaced."""
    if settings is None or settings.overrides is None or isinstance(found, Fragment):
        return found
    name = found.path.replace("\\", "/").rsplit("/", 1)[-1]
    replaced = []
    for key, value in settings.overrides.items():
        inner = list(value) if key in NESTED_TEXT and isinstance(value, Mapping) else None
        replaced += [f"{key}.{part}" for part in inner] if inner is not None else [key]
    sources = {}
    for concept, item in found.sources.items():
        text = item.source
        if any(f"{name}: {key}" in text for key in replaced):
            text = text.replace(f"{name}: ", "override: ")
        sources[concept] = Sourced(item.value, text)
    return dataclasses.replace(found, sources=sources, notes=(*found.notes, *notes))


__all__ = ["FORMATS", "TEXT", "read", "read_any", "read_loaded", "read_text", "read_whole",
           "settings_of"]  # fmt: skip
