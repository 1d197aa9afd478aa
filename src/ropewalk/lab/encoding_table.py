"""An encoding as a study file writes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..encodings import ENCODINGS, Encoding
from ..errors import InputError
from ..rope import Rope
from ..scaling import scaling_from_dict
from .model import Shape

_ROPE_FIELDS = tuple(f.name for f in dataclasses.fields(Rope) if f.name != "head_dim")


def check_known(given: Iterable[str], known: Collection[str], where: str) -> None:
    """Refuse a key of a table that no field has."""
    for key in given:
        if key not in known:
            raise InputError(
                f"{where}: {key}",
                found="an unknown key",
                expected=", ".join(sorted(known)),
                fix="correct or remove it",
            )


def encoding_of(table: Any, shape: Shape, where: str) -> Encoding:
    """Build an encoding from a table such as ``{ kind = "rotary", theta = 500.0 }``.

    What belongs to a `Rope` (theta, rotary_dim, scaling …) stands beside the encoding's own
    keys; its head_dim is the model's.
    """
    kinds = ", ".join(ENCODINGS)
    if not isinstance(table, dict) or str(table.get("kind")) not in ENCODINGS:
        raise InputError(
            where, found=repr(table), expected=f"a table whose kind is one of {kinds}", fix="add it"
        )
    cls = ENCODINGS[str(table["kind"])]
    fields = {f.name for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in table.items() if k != "kind"
    }
    if "inner" in fields:
        values["inner"] = encoding_of(values.get("inner"), shape, f"{where}: inner")
    if "rope" in fields:
        parts: dict[str, Any] = {
            k: values.pop(k) for k in list(values) if k in _ROPE_FIELDS and k not in fields
        }
        values["rope"] = built(lambda: _rope(shape, parts), where)
    check_known(values, fields, where)
    made: Encoding = built(lambda: cls(**values), where)
    return made


def _rope(shape: Shape, parts: dict[str, Any]) -> Rope:
    if "scaling" in parts:
        parts["scaling"] = scaling_from_dict(parts["scaling"])
    return Rope(head_dim=shape.head_dim, **parts)


def built(make: Callable[[], Any], where: str) -> Any:
    """Build a value; whatever it refuses is an error of the file."""
    try:
        return make()
    except InputError as error:
        raise error.within(where) from None
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise InputError(
            where,
            found=str(error),
            expected="the fields of the encoding, each of its type",
            fix="correct them",
        ) from None
