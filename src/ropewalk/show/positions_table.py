"""The position plan of a model on one terminal screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ..axes import MultiAxisRope
from ..models import LayerPositions, LogNTemperature, ModelPositions
from ..models.plan import Axes
from ..rope import Plane, Rope

_LONGEST_VALUE = 22


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as ranges: 0-2, 4, 6-7. Regular steps are written once: 3, 7, … 35."""
    found = sorted(numbers)
    runs: list[tuple[int, int]] = []
    for number in found:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    steps = {b - a for a, b in pairwise(found)}
    if len(found) > 3 and len(steps) == 1 and steps != {1}:
        return f"{found[0]}, {found[1]}, … {found[-1]}"
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    if len(parts) > 3:
        parts = [*parts[:2], "…", parts[-1]]
    return ", ".join(parts).replace("…,", "…")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10000 and math.isfinite(value) else f"{value:.5g}"


def _heads(plan: ModelPositions) -> str:
    if plan.kv_heads == plan.heads:
        return f"{plan.heads} heads"
    return f"{plan.heads} query heads, {plan.kv_heads} key and value heads"


def _scaling(rope: Rope) -> str:
    """Name the scaling with its numbers, without the long lists."""
    fields = rope.scaling.to_dict()
    shown = []
    for name, value in fields.items():
        if name in ("kind", "original_length"):
            continue
        if isinstance(value, list):
            shown.append(f"{name} {value[0]:g}…{value[-1]:g}")
        else:
            shown.append(f"{name} {value:g}" if not isinstance(value, str) else f"{name} {value}")
    return " ".join([rope.scaling.kind, ", ".join(shown)]).strip()


def _lanes(rope: Rope) -> str:
    if rope.rotary_dim == rope.head_dim:
        return str(rope.head_dim)
    text = f"{rope.rotary_dim} of {rope.head_dim}"
    return f"{text}, from {rope.rotary_offset}" if rope.rotary_offset else text


def _groups(plan: ModelPositions) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in ("layers", "kind", "theta", "lanes", "pairing", "scaling", "window"):
        table.add_column(head, overflow="fold", justify="right" if head == "window" else "left")
    for layer, indices in plan.groups():
        rope = layer.rope
        window = "-" if layer.window is None else f"{layer.window:,}"
        cells = ["no rope", "", "", ""]
        if rope is not None:
            cells = _cells(rope)
        elif layer.axes is not None:
            cells = _axes_cells(layer.axes)
        table.add_row(ranges(indices), layer.kind, *cells, window)
    return table


def _cells(rope: Rope) -> list[str]:
    return [
        f"{rope.theta:,.15g}",
        _lanes(rope),
        rope.pairing + (" (reversed)" if rope.direction < 0 else ""),
        _scaling(rope),
    ]


def _axes_cells(axes: Axes) -> list[str]:
    theta = ", ".join(f"{ladder.theta:,.15g}" for ladder in axes.ladders)
    lanes = 2 * len(axes.planes) if isinstance(axes, MultiAxisRope) else len(axes.lanes)
    shown = str(lanes) if lanes == axes.head_dim else f"{lanes} of {axes.head_dim}"
    return [theta, shown, axes.pairing, _layout(axes)]


def _layout(axes: Axes) -> str:
    """Say which axis turns which planes."""
    if isinstance(axes, MultiAxisRope):
        return axes.layout()
    return f"{', '.join(axes.axes)}, lane by lane: no rotation, {axes.reason}"


def _towers(plan: ModelPositions) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in ("beside the text", "family", "layers", "theta", "lanes", "pairing", "positions"):
        table.add_column(head, overflow="fold")
    for tower in plan.towers:
        found = tower.positions
        cells = _cells(found) if isinstance(found, Rope) else _axes_cells(found)
        count = "unknown" if tower.layers is None else str(tower.layers)
        table.add_row(tower.path or "(the config itself)", tower.model_type, count, *cells)
    return table


def _lengths(plan: ModelPositions) -> str:
    original = "unknown" if plan.original_length is None else f"{plan.original_length:,}"
    stated = "unknown" if plan.stated_length is None else f"{plan.stated_length:,}"
    text = f"trained on {original}; the file states {stated}"
    if plan.original_length and plan.stated_length and plan.stated_length != plan.original_length:
        text += f" (× {plan.stated_length / plan.original_length:.4g})"
    return text


def _bands(planes: Sequence[Plane]) -> str:
    parts = []
    for band, group in groupby(planes, key=lambda plane: plane.band):
        indices = [plane.index for plane in group]
        parts.append(f"{indices[0]}-{indices[-1]} {band} ({len(indices)})")
    return "; ".join(parts)


def _clocks(planes: Sequence[Plane]) -> str:
    turning = [plane for plane in planes if math.isfinite(plane.wavelength)]
    if not turning:
        return "no plane turns within the range of numbers"
    slow = turning[-1]
    text = (
        f"plane {turning[0].index} turns every {_number(turning[0].wavelength)} tokens, "
        f"plane {slow.index} every {_number(slow.wavelength)}"
    )
    if slow.turns is not None:
        whole = sum(1 for plane in turning if plane.turns is not None and plane.turns >= 1)
        text += (
            f"; unstretched over the trained length it makes {slow.turns:.3g} turns, and "
            f"{whole} of {len(planes)} planes make at least one"
        )
    return text


def _length_of(plan: ModelPositions, rope: Rope) -> int | None:
    """The length at which a rope that depends on it is shown."""
    return plan.stated_length if rope.scaling.length_dependent else None


def distinct_ropes(plan: ModelPositions) -> list[tuple[Rope, list[int]]]:
    """Return every distinct rope with the layers that have it, that of `plan.rope` first."""
    found: dict[Rope, list[int]] = {}
    if plan.rope is not None:
        found[plan.rope] = []
    for layer in plan.layers:
        if layer.rope is not None:
            found.setdefault(layer.rope, []).append(layer.index)
    return list(found.items())


def _facts(plan: ModelPositions) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    table.add_row("lengths", _lengths(plan))
    ropes = distinct_ropes(plan)
    for rope, indices in ropes:
        length = _length_of(plan, rope)
        planes = rope.describe(length)
        which = f"layers {ranges(indices)}: " if len(ropes) > 1 else ""
        at = f", at {length:,} tokens" if length is not None else ""
        table.add_row("planes", f"{which}{_bands(planes)}{at}")
        table.add_row("clocks", f"{which}{_clocks(planes)}")
        table.add_row("attention factor", f"{which}{_amplitude(plan, rope)} on cos and sin")
    for axes in dict.fromkeys(layer.axes for layer in plan.layers):
        if axes is not None:
            table.add_row("position axes", _layout(axes))
    multipliers = {layer.softmax_multiplier for layer in plan.layers}
    if multipliers != {1.0}:
        shown = ", ".join(f"{value:.6g}" for value in sorted(multipliers))
        table.add_row("softmax multiplier", f"{shown} on the softmax scale")
    for layer in _tempered(plan):
        tempered = layer.query_temperature
        assert tempered is not None
        if isinstance(tempered, LogNTemperature):
            length = tempered.original_length
            table.add_row(
                "query temperature", f"max(1, ln(position + 1) / ln({length})) on all queries"
            )
            continue
        position = f"(position + {tempered.offset})" if tempered.offset else "position"
        table.add_row(
            "query temperature",
            f"1 + {tempered.beta:g} ln(1 + floor({position} / {tempered.original_length})) on "
            f"queries of {'layers without rope' if layer.rope is None else 'every layer'}",
        )
    return table


def _amplitude(plan: ModelPositions, rope: Rope) -> str:
    short, long = rope.attention_factor(), rope.attention_factor(plan.stated_length)
    if short == long:
        return f"{short:.6g}"
    return f"{short:.6g} for texts within the trained length, {long:.6g} beyond,"


def _tempered(plan: ModelPositions) -> list[LayerPositions]:
    found = [layer for layer in plan.layers if layer.query_temperature is not None]
    return found[:1]


def _sources(plan: ModelPositions) -> Table:
    name = plan.path.replace("\\", "/").rsplit("/", 1)[-1]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in ("value", "", f"came from (keys of {name})"):
        table.add_column(head, overflow="fold", no_wrap=not head.startswith("came"))
    for key, item in plan.sources.items():
        # The file's name before every key would fill the screen.
        table.add_row(key, _shown(item.value), item.source.replace(f"{name}: ", ""))
    return table


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:,.15g}" if value.is_integer() else f"{value:.7g}"
    text = f"{value:,}" if isinstance(value, int) and value >= 10000 else str(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return text.split("(", 1)[0] if "(" in text else text[:_LONGEST_VALUE] + "…"


def positions_view(plan: ModelPositions) -> Group:
    """Return the plan: header, layer groups, lengths and planes, sources, notes."""
    rope = sum(layer.encoding != "none" for layer in plan.layers)
    count = len(plan.layers)
    layers = f"{rope} rope / {count - rope} none"
    parts: list[RenderableType] = [
        Text(plan.path, style="bold", overflow="fold"),
        Text(f"{plan.model_type} ({plan.format}), {count} layers: {layers}; {_heads(plan)}"),
        Text(),
        _groups(plan),
        *((Text(), _towers(plan)) if plan.towers else ()),
        Text(),
        _facts(plan),
        Text(),
        _sources(plan),
    ]
    if plan.notes:
        parts += [Text(), Text("notes", style="bold")]
        parts += [_bullet(note) for note in plan.notes]
    return Group(*parts)


def _bullet(text: str) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row("-", Text(text))
    return row


def planes_view(plan: ModelPositions) -> Group:
    """Return one table per distinct rope with every plane."""
    parts: list[RenderableType] = []
    for rope, indices in distinct_ropes(plan):
        length = _length_of(plan, rope)
        at = "" if length is None else f", at {length:,} tokens"
        parts += [Text(), Text(f"planes of layers {ranges(indices)}{at}", style="bold")]
        parts.append(_PlaneRows([_plane_cells(plane) for plane in rope.describe(length)]))
    return Group(*parts)


_PLANE_HEADS = ("plane", "lanes", "radians per token", "tokens per turn", "turns", "kept", "band")


def _plane_cells(plane: Plane) -> tuple[str, ...]:
    return (
        str(plane.index),
        f"{plane.lanes[0]}, {plane.lanes[1]}",
        f"{plane.inv_freq:.9g}",
        _number(plane.wavelength),
        "-" if plane.turns is None else f"{plane.turns:.4g}",
        f"{plane.kept:.6g}",
        plane.band,
    )


class _PlaneRows:
    """A table of planes: lines made here, because a `Table` takes a millisecond for each row.

    A terminal too narrow for it gets the `Table`, which folds its cells.
    """

    def __init__(self, rows: list[tuple[str, ...]]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table: one segment for the head, one for the rule, one for all rows."""
        widths = [max(map(len, column)) for column in zip(_PLANE_HEADS, *self.rows, strict=True)]
        if sum(widths) + 3 * (len(widths) - 1) > options.max_width:
            yield self._folded()
            return
        *right, band = widths
        line = "   ".join([*(f"{{:>{width}}}" for width in right), f"{{:<{band}}}"])
        yield Segment(line.format(*_PLANE_HEADS), console.get_style("table.header"))
        yield Segment("\n" + "─" * (sum(widths) + 3 * len(right)) + "\n")
        yield Segment("".join(line.format(*row) + "\n" for row in self.rows))

    def _folded(self) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for head in _PLANE_HEADS:
            table.add_column(head, justify="left" if head == "band" else "right")
        for row in self.rows:
            table.add_row(*row)
        return table
