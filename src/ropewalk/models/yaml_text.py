"""YAML of unknown origin: the part of it that JSON has too, bounded, each key once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .json_text import MOST_DEPTH, check_values

_TAG = "tag:yaml.org,2002:"
_OTHER_KINDS = ("timestamp", "binary", "set", "omap", "pairs")
# Without the compiled scanner, time grows with the square of the depth.
_MOST_BRACKETS = 4 * MOST_DEPTH


def parse(text: str, pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> Any:
    """Return the values of a YAML text as JSON would have them; dates stay texts.

    Args:
        text: the text.
        pairs: makes an object from its keys and values.

    Raises:
        ImportError: PyYAML is not installed; it comes with transformers.
        ValueError: no YAML, aliases, values nested too deep, or of kinds that JSON has not.
    """
    import yaml  # type: ignore[import-untyped,unused-ignore]

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc,unused-ignore]
        yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML reads it from the class)
            first: [pair for pair in listed if pair[0] != f"{_TAG}timestamp"]
            for first, listed in base.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
            found = []
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise ValueError("a key that is no text")
                # The key as it is written: 1, on and null are names here.
                found.append((str(key.value), self.construct_object(value, deep=True)))
            return pairs(found)

    for kind in _OTHER_KINDS:
        Loader.add_constructor(f"{_TAG}{kind}", Loader.construct_undefined)
    try:
        _check_brackets(text)
        _check_tokens(yaml, text, base)
        found = yaml.load(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML ({str(error).splitlines()[0]})") from None
    except RecursionError:
        raise ValueError("no YAML that is read (values nested too deep)") from None
    check_values(found)
    return found


def _check_brackets(text: str) -> None:
    depth = 0
    for sign in text:
        if sign in "[{":
            depth += 1
            if depth > _MOST_BRACKETS:
                raise ValueError("no YAML that is read (values nested too deep)")
        elif sign in "]}":
            depth = max(depth - 1, 0)


def _check_tokens(yaml: Any, text: str, loader: Any) -> None:
    """Refuse what would unfold without end, or nest deeper than the parser's stack."""
    opening = (
        yaml.BlockSequenceStartToken,
        yaml.BlockMappingStartToken,
        yaml.FlowSequenceStartToken,
        yaml.FlowMappingStartToken,
    )
    closing = (yaml.BlockEndToken, yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)
    depth = 0
    for token in yaml.scan(text, Loader=loader):
        if isinstance(token, yaml.AliasToken):
            raise ValueError("aliases (*name); write the values out")
        if isinstance(token, opening):
            depth += 1
            if depth > MOST_DEPTH:
                raise ValueError(f"values nested more than {MOST_DEPTH} levels deep")
        elif isinstance(token, closing):
            depth -= 1
