"""Converting a position plan to another format: refused, or written with its losses named."""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import InputError
from ..models.load import load
from ..models.plan import ModelPositions
from .differences import differences, filled_in
from .document import Conversion, Options, Written
from .features import FEATURES
from .new_file import new_file
from .plan_changes import check_fields, normalised
from .targets import TARGETS, Target


def convert(
    plan: ModelPositions, to: str, *, lossy: bool = False, options: Options | None = None
) -> Conversion:
    """Write a plan in the words of a target and read it back.

    Args:
        plan: what a reader found.
        to: name of the target, one of `TARGETS`.
        lossy: leave out what the target cannot say, and name it, where it would be refused.
        options: see `Options`.

    Returns:
        The text, and what was lost.

    Raises:
        InputError: an unknown target, or something that the target cannot say.
    """
    target = _target(to)
    options = options or Options()
    check_fields(plan)
    meant = normalised(plan)
    says = target.says | target.own(meant, options)
    lost: list[str] = []
    for name, feature in FEATURES.items():
        shown = feature.has(meant) if name not in says else ""
        if not shown:
            continue
        text = name if shown == name else f"{name} ({shown})"
        if not lossy:
            raise _cannot(to, text)
        lost.append(text)
        meant = feature.without(meant)
    written, found = _round_trip(target, meant, options)
    apart = differences(meant, found, target.tolerance)
    if apart and not lossy:
        raise _cannot(to, "; ".join(apart))
    return Conversion(
        target=to,
        text=written.text,
        lost=(*lost, *apart),
        notes=(*written.notes, *filled_in(meant, found)),
        values=written.values,
    )


def _target(name: str) -> Target:
    if name not in TARGETS:
        raise InputError(
            "--to",
            found=repr(name),
            expected="one of " + ", ".join(TARGETS),
            fix="choose a target",
        )
    return TARGETS[name]


def _cannot(to: str, text: str) -> InputError:
    fix = "choose another target, or write it without that by --lossy"
    if "pairing" in text:
        fix = "permute the weights too (--pairing), and write the rest by --lossy"
    return InputError(f"--to {to}", found=text, expected=f"what {to} can say", fix=fix)


def _round_trip(
    target: Target, meant: ModelPositions, options: Options
) -> tuple[Written, ModelPositions]:
    written = target.write(meant, options)
    try:
        return written, target.read_back(written, meant, options)
    except InputError as error:
        raise InputError(
            f"--to {target.name}",
            found=f"a plan that would be read as {error.found} at {error.where.split(': ')[-1]}",
            expected=f"what {target.name} can say",
            fix="choose another target, or another --family",
        ) from error


def source_options(path: Path, family: str | None) -> Options:
    """Return the options for the model at a path: its config, if it is one of transformers."""
    found = load(path)
    values = found.content if found.kind == "values" and isinstance(found.content, dict) else None
    named = values is not None and any(
        key in values for key in ("model_type", "architectures", "text_config", "llm_config")
    )
    return Options(family=family, base=values if named else None)


def write_conversion(conversion: Conversion, source: Path, target: Path) -> None:
    """Write a conversion to a new file; for ``gguf-kv``, a patched copy of the GGUF file.

    The file is made under another name and linked when it is whole; nothing is overwritten.

    Raises:
        InputError: the file exists, or cannot be written; or no GGUF file to patch.
    """
    found = load(source)
    if conversion.target == "gguf-kv" and found.kind == "gguf":
        from .to_gguf import write_gguf_copy

        write_gguf_copy(found.path, target, dict(conversion.values))
        return
    if target.suffix.lower() == ".gguf":
        raise InputError(
            f"--write: {target}",
            found="a GGUF file from a model that is none",
            expected="a name for a text",
            fix="convert the weights with llama.cpp, then patch the file with ropewalk",
        )
    text = conversion.text
    if conversion.target == "megatron" and target.suffix.lower() == ".json":
        text = json.dumps(dict(conversion.values), indent=2)
    with new_file(target) as file:
        file.write(f"{text}\n".encode())
