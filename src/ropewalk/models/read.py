"""Reading the position plan of a model from a file or folder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ..errors import InputError
from .hf import read_config
from .plan import ModelPositions

# A config of a few hundred layers with lists per plane is well below 1 MB.
_LARGEST_JSON = 64 * 2**20
_SPLIT = re.compile(r"-(\d{5})-of-\d{5}\.gguf$")
_FORMATS = "a folder with config.json, a config.json of transformers, or a .gguf file"


def read(path: str | os.PathLike[str], *, assume_family: str | None = None) -> ModelPositions:
    """Read what a model's positions are, and where each value came from.

    Only headers are read of weight files. Nothing is downloaded.

    Args:
        path: a folder with ``config.json`` or one ``.gguf`` file, a config of transformers,
            or a GGUF file.
        assume_family: a known ``model_type`` to read a config of transformers as, where its
            own type is not known; the notes say so.

    Returns:
        The position plan of every layer.

    Raises:
        InputError: not found, not readable, an unknown family, or contradictory values.
    """
    place = Path(path)
    if place.is_dir():
        place = _in_folder(place)
    if not place.is_file():
        raise InputError(
            str(path),
            found="no such file or folder",
            expected=_FORMATS,
            fix="give a local path; nothing is downloaded",
        )
    try:
        with place.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise _unreadable(place, error) from None
    if magic == b"GGUF" or place.suffix.lower() == ".gguf":
        if assume_family is not None:
            raise InputError(
                "assume_family",
                found=f"{assume_family!r} with a GGUF file",
                expected="nothing, because a GGUF file names its architecture",
                fix="leave it out",
            )
        from .gguf import read_gguf

        return read_gguf(place)
    if place.suffix.lower() == ".json":
        return read_config(_load(place), str(place), assume_family=assume_family)
    raise InputError(
        str(place),
        found=f"a {place.suffix or 'nameless'} file that begins with {magic!r}",
        expected=_FORMATS,
        fix="give the model's folder",
    )


def _in_folder(folder: Path) -> Path:
    config = folder / "config.json"
    if config.is_file():
        return config
    models = sorted(p for p in folder.iterdir() if p.suffix.lower() == ".gguf")
    first_parts = [p for p in models if (m := _SPLIT.search(p.name)) and m[1] == "00001"]
    if len(models) > 1 and len(first_parts) == 1 and all(_SPLIT.search(p.name) for p in models):
        return first_parts[0]
    if len(models) == 1:
        return models[0]
    if models:
        found = f"{len(models)} GGUF files: " + ", ".join(p.name for p in models[:3])
        raise InputError(
            str(folder), found=found, expected="one model", fix="name one of the files"
        )
    names = sorted(p.name for p in folder.iterdir())
    raise InputError(
        str(folder),
        found="a folder with " + (", ".join(names[:4]) + (" …" if names[4:] else "") or "nothing"),
        expected=_FORMATS,
        fix="give the model's folder",
    )


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        str(path),
        found=error.strerror or str(error),
        expected="a file that can be read",
        fix="check the path and its permissions",
    )


def _load(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if size > _LARGEST_JSON:
            raise InputError(
                str(path),
                found=f"{size} bytes",
                expected=f"a config of at most {_LARGEST_JSON}",
                fix="give the model's config.json",
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError as error:
        raise InputError(
            str(path),
            found=f"a byte that is not UTF-8 at {error.start}",
            expected="JSON text",
            fix="give the model's config.json",
        ) from None
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, path))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: line {error.lineno}",
            found=f"{error.msg}, column {error.colno}",
            expected="JSON",
            fix="correct the file",
        ) from None
    except RecursionError:
        raise InputError(
            str(path), found="objects nested too deep", expected="a config", fix="correct the file"
        ) from None


def _object(pairs: list[tuple[str, Any]], path: Path) -> dict[str, Any]:
    """Refuse a key that stands twice with different values: the last would win in silence."""
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out and out[key] != value:
            raise InputError(
                f"{path}: {key}",
                found="the key twice, with different values",
                expected="each key once",
                fix="remove the wrong one",
            )
        out[key] = value
    return out
