"""Which layers of a foreign format have a window, and which have no rope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import InputError
from .flat_file import FlatFile
from .layers import LayerKind
from .plan import Sourced
from .spellings import LAYER_KINDS, WITHOUT_POSITIONS, hint

_MOST_LAYERS = 2048
ONE_LAYER = "the number of layers is not in the file: one layer is shown for all"
_WORDS = {"local": "sliding_attention", "global": "full_attention", "sliding": "sliding_attention"}


@dataclass(frozen=True)
class FlatLayers:
    """What layers do where the file does not list them.

    Attributes:
        full_every: the last of so many layers has no window; None: all have it.
        full_first: whether it is the first of so many.
        window_kind: kind of the windowed layers.
        window: gives the window where it is not a plain number.
        without_rope: gives for every layer whether it has rope, where the file has a rule.
        linear_every: all but the last of so many layers are linear attention.
        windowed_with_rope: only layers with rope are windowed.
    """

    full_every: int | None = None
    full_first: bool = False
    window_kind: str = "sliding_attention"
    window: Callable[[FlatFile], int | None] | None = None
    without_rope: Callable[[FlatFile, int], list[bool] | None] | None = None
    linear_every: Callable[[FlatFile], int | None] | None = None
    windowed_with_rope: bool = False


def flat_layers(file: FlatFile, rule: FlatLayers) -> list[LayerKind] | None:
    """Return the kind of every layer, or None where the file does not tell which are local.

    A file without a number of layers is read as one layer, and the notes say so.

    Raises:
        InputError: lists of the wrong length, unknown words.
    """
    given = file.length("layers")
    file.sources["layers"] = given or Sourced(None, "unknown")
    count = 1 if given is None else given.value
    if count > _MOST_LAYERS:
        raise InputError(
            f"{file.label}: {file.sources['layers'].source.split(': ', 1)[-1]}",
            found=str(count),
            expected=f"at most {_MOST_LAYERS}",
            fix="correct the value",
        )
    if given is None:
        file.note(ONE_LAYER)
    window = _window(file, rule)
    roped = _roped(file, rule, count)
    listed = file.given("layer_types")
    every = file.count("window_every", zero=True)
    if listed is not None:
        kinds = _listed(file, listed, None if given is None else count)
    else:
        period = rule.full_every if every is None else every.value
        tells = every is not None or rule.full_every is not None
        if file.given("local_theta") is not None and not (tells and window is not None):
            file.note("the file has a base for local layers, but not which layers are local")
            file.sources["theta (sliding_attention)"] = file.number("local_theta") or Sourced(
                None, "unknown"
            )
            return None
        kinds = _periodic(rule, count, period, window is not None, roped)
    linear = rule.linear_every(file) if rule.linear_every is not None else None
    out = []
    for index, kind in enumerate(kinds):
        if linear and (index + 1) % linear:
            kind = "linear_attention"
        local = kind in ("sliding_attention", "chunked_attention")
        out.append(
            LayerKind(
                kind,
                roped[index % len(roped)] and kind not in WITHOUT_POSITIONS,
                window if local else None,
            )
        )
    return out


def _window(file: FlatFile, rule: FlatLayers) -> int | None:
    if rule.window is not None:
        return rule.window(file)
    found = file.count("window", zero=True)
    if found is None or found.value == 0:
        return None
    file.sources["window"] = found
    return int(found.value)


def _periodic(
    rule: FlatLayers, count: int, period: int | None, windowed: bool, roped: list[bool]
) -> list[str]:
    if not windowed:
        return ["full_attention"] * count
    out = []
    for index in range(count):
        at = 0 if rule.full_first else (period or 1) - 1
        full = bool(period) and index % (period or 1) == at
        if rule.windowed_with_rope:
            full = not roped[index % len(roped)]
        out.append("full_attention" if full else rule.window_kind)
    return out


def _listed(file: FlatFile, listed: Sourced, count: int | None) -> list[str]:
    where = f"{file.label}: {listed.source.split(': ', 1)[-1]}"
    entries = listed.value
    if not isinstance(entries, list) or (count is not None and len(entries) != count):
        raise InputError(
            where,
            found=f"{len(entries)} entries" if isinstance(entries, list) else repr(entries),
            expected="a list" if count is None else f"{count}, one per layer",
            fix="give one entry per layer",
        )
    out = []
    for entry in entries:
        # litgpt's rope_indices: 1 is the local table, 0 the global one.
        word = {0: "full_attention", 1: "sliding_attention"}.get(entry) if (
            isinstance(entry, int)
        ) else _WORDS.get(str(entry), str(entry))  # fmt: skip
        if word not in LAYER_KINDS:
            near = hint(str(entry), [*LAYER_KINDS, *_WORDS])
            raise InputError(
                where,
                found=repr(entry),
                expected="layer types such as full_attention and sliding_attention",
                fix=f"did you mean {near!r}?" if near else "correct the name",
            )
        out.append(word)
    file.sources["layer types"] = Sourced("as listed", listed.source)
    return out


def _roped(file: FlatFile, rule: FlatLayers, count: int) -> list[bool]:
    if rule.without_rope is not None:
        made = rule.without_rope(file, count)
        if made is not None:
            return made
    every = file.count("without_rope_every", zero=True)
    if every is None or every.value == 0:
        return [True] * count
    file.sources["layers without rope"] = Sourced(
        sum((index + 1) % every.value == 0 for index in range(count)), every.source
    )
    return [(index + 1) % every.value != 0 for index in range(count)]
