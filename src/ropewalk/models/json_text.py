"""JSON of unknown origin: parsed, and its depth and its numbers bounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MOST_DEPTH = 64
"""Levels of a value. Configs have six; what walks through values recurses."""
# Beyond the range of float: such a number would break the arithmetic that it is used in.
_MOST_BITS = 1023
MOST_VALUES = 2**16
"""Values of a config: the labels of ImageNet-21k, both ways, are 44,000."""


def parse(
    text: str | bytes,
    pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None,
    most: int | None = None,
) -> Any:
    """Return the values of a JSON text.

    Args:
        text: the text; bytes are UTF-8.
        pairs: makes an object from its keys and values, see ``object_pairs_hook`` of `json`.
        most: values, at most; None for no bound but the size of the text.

    Raises:
        json.JSONDecodeError: no JSON.
        ValueError: anything else that is wrong, in a few words.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        found = json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("values nested too deep") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"a byte that is not UTF-8 at {error.start}") from None
    check_values(found, most)
    return found


def check_values(value: Any, most: int | None = None) -> None:
    """Refuse too many or too deep values, and whole numbers beyond the range of float.

    Raises:
        ValueError: which of these.
    """
    level, depth, count = [value], 0, 0
    while level:
        count += len(level)
        if most is not None and count > most:
            raise ValueError(f"more than {most} values")
        if depth > MOST_DEPTH:
            raise ValueError(f"values nested more than {MOST_DEPTH} levels deep")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, int) and item.bit_length() > _MOST_BITS:
                raise ValueError(f"a whole number of {item.bit_length()} bits")
        level, depth = inner, depth + 1
