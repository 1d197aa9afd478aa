"""Loading a file or folder: a GGUF path, or the values or the text of a small file."""

from __future__ import annotations

import configparser
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, MissingExtraError
from . import json_text, yaml_text
from .flags import LARGEST_TEXT

# A config of a few hundred layers with lists per plane is well below 1 MB.
_LARGEST_JSON = 4 * 2**20
# PyYAML is slow, and files of settings are short.
_LARGEST_YAML = 2**17
_SPLIT = re.compile(r"-(\d{5})-of-\d{5}\.gguf$")
FORMATS = (
    "a folder with config.json or params.json, such a file, a .gguf file, or a text of settings"
)
# A pipeline of diffusers holds its transformer in a folder of its own.
_CONFIGS = ("config.json", "params.json", "transformer/config.json")
_TEXT_SUFFIXES = ("", ".sh", ".bash", ".txt", ".log", ".modelfile")


@dataclass(frozen=True)
class Loaded:
    """A file that was opened.

    Attributes:
        path: where it lies.
        kind: ``gguf``, ``values`` or ``text``.
        content: the values or the text; of a GGUF file nothing, or its open `GGUFHeader`.
    """

    path: Path
    kind: str
    content: Any = None


def load(path: Path) -> Loaded:
    """Open a model's folder or file; of GGUF files nothing is read yet.

    Raises:
        InputError: not found, not readable, too large, or of no known kind.
    """
    try:
        place = _in_folder(path) if path.is_dir() else path
        # A pipe or a device would be waited for, or never end.
        if not place.is_file():
            raise InputError(
                str(path),
                found="no such file or folder" if not place.exists() else "no regular file",
                expected=FORMATS,
                fix="give a local path; nothing is downloaded",
            )
        with place.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise _unreadable(path, error) from None
    suffix = place.suffix.lower()
    if magic == b"GGUF" or suffix == ".gguf":
        return Loaded(place, "gguf")
    if suffix == ".json":
        return Loaded(place, "values", parse_json(_text(place, _LARGEST_JSON), str(place)))
    if suffix in (".yml", ".yaml"):
        return Loaded(place, "values", _yaml(_text(place, _LARGEST_YAML), str(place)))
    if suffix == ".ini":
        return Loaded(place, "values", _ini(_text(place, _LARGEST_YAML), str(place)))
    if suffix in _TEXT_SUFFIXES:
        return Loaded(place, "text", _text(place, LARGEST_TEXT))
    raise InputError(
        str(place),
        found=f"a {place.suffix} file that begins with {magic!r}",
        expected=FORMATS,
        fix="give the model's folder",
    )


def is_there(path: str | Path) -> bool:
    """Tell whether a file exists, of a text too that may be too long to be the name of one."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def _in_folder(folder: Path) -> Path:
    for name in _CONFIGS:
        if (folder / name).is_file():
            return folder / name
    names = sorted(p.name for p in folder.iterdir())
    models = [folder / name for name in names if name.lower().endswith(".gguf")]
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
    raise InputError(
        str(folder),
        found="a folder with " + (", ".join(names[:4]) + (" …" if names[4:] else "") or "nothing"),
        expected=FORMATS,
        fix="give the model's folder",
    )


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        str(path),
        found=error.strerror or str(error),
        expected="a file that can be read",
        fix="check the path and its permissions",
    )


def _text(path: Path, most: int) -> str:
    try:
        size = path.stat().st_size
        if size > most:
            raise InputError(
                str(path),
                found=f"{size} bytes",
                expected=f"a config of at most {most}",
                fix="give the model's config.json",
            )
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError as error:
        raise InputError(
            str(path),
            found=f"a byte that is not UTF-8 at {error.start}",
            expected="JSON text" if path.suffix.lower() == ".json" else "text",
            fix="give the model's config.json",
        ) from None


def parse_json(text: str, label: str) -> Any:
    """Return the values of a JSON text; a key twice with different values is refused.

    Raises:
        InputError: no JSON, or objects nested too deep.
    """
    try:
        return json_text.parse(text, lambda pairs: _object(pairs, label), json_text.MOST_VALUES)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{label}: line {error.lineno}",
            found=f"{error.msg}, column {error.colno}",
            expected="JSON",
            fix="correct the file",
        ) from None
    except InputError:
        raise
    except ValueError as error:
        # Too deep, or a whole number too large, also for Python to convert.
        raise InputError(
            label, found=str(error).split(";")[0], expected="JSON", fix="correct the file"
        ) from None


def _object(pairs: list[tuple[str, Any]], label: str) -> dict[str, Any]:
    """Refuse a key that stands twice with different values: the last would win in silence."""
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out and out[key] != value:
            raise InputError(
                f"{label}: {key}",
                found="the key twice, with different values",
                expected="each key once",
                fix="remove the wrong one",
            )
        out[key] = value
    return out


def _yaml(text: str, label: str) -> Any:
    """Parse YAML with PyYAML, which comes with transformers and is no dependency of the core."""
    try:
        values = yaml_text.parse(text, lambda pairs: _object(pairs, label))
    except ImportError:
        raise MissingExtraError("pyyaml", extra="transformers", needed_for=label) from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            label,
            found=str(error).splitlines()[0],
            expected="YAML",
            fix="correct the file",
        ) from None
    if not isinstance(values, dict):
        raise InputError(
            label,
            found=f"a {type(values).__name__}",
            expected="an object with settings",
            fix="give the settings of one model",
        )
    return values


def _ini(text: str, label: str) -> dict[str, Any]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise InputError(
            label,
            found=f"no INI file ({str(error).splitlines()[0]})",
            expected="sections of key = value",
            fix="correct the file",
        ) from None
    return {key: value for name in parser.sections() for key, value in parser[name].items()}
