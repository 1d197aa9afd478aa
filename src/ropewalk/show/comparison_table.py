"""Engines side by side, and two models by meaning, on one terminal screen each."""

from __future__ import annotations

import textwrap

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..engines.compare import Compared, Comparison, GroupComparison
from ..engines.meaning import MeaningDiff, Point, turns
from .positions_table import ranges


def comparison_view(comparison: Comparison) -> Group:
    """Return one table for each kind of layer, and under it what each engine does."""
    parts: list[RenderableType] = [
        Text(comparison.path, style="bold", overflow="fold"),
        Text(f"{comparison.model_type} ({comparison.format})"),
    ]
    parts += [_bullet(note) for note in comparison.notes]
    said: set[str] = set()
    for group in comparison.groups:
        parts += [Text(), _heading(group), _table(group)]
        lines = []
        for item in group.engines:
            text = _what(item)
            if text not in said:
                said.add(text)
                lines.append(_bullet(text))
        parts += [Text(), *lines] if lines else []
    return Group(*parts)


def _heading(group: GroupComparison) -> Text:
    return Text(
        f"layers {ranges(group.indices)}, {group.kind}, a text of {group.length:,} tokens, "
        f"measured against {group.reference}",
        style="bold",
    )


def _table(group: GroupComparison) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in ("engine", "frequencies", "angle at the end", "amplitude", "softmax", "length"):
        table.add_column(head, justify="left" if head in ("engine", "frequencies") else "right")
    for item in group.engines:
        table.add_row(*_row(item, item.view.engine == group.reference))
    return table


def _row(item: Compared, reference: bool) -> list[str]:
    found, apart, reading = item.view, item.apart, item.view.reading
    if reading is None:
        return [found.engine, "stops", "", "", "", ""]
    limit = "unknown" if found.limit is None else f"{found.limit:,}"
    cells = [f"{reading.amplitude:.6g}", f"{reading.softmax:.6g}", limit]
    if reference:
        return [found.engine, f"{len(reading.inv_freq)} planes", "", *cells]
    if apart is None:
        return [found.engine, "not measured", "", *cells]
    if apart.planes is not None:
        return [found.engine, f"{apart.planes} planes turn", "", *cells]
    if apart.plane is None:
        return [found.engine, "same", "", *cells]
    return [
        found.engine,
        f"{apart.relative:.4%} apart, plane {apart.plane}",
        f"{turns(apart.angle)}, plane {apart.angle_plane}",
        *cells,
    ]


def _what(item: Compared) -> str:
    found = item.view
    head = f"{found.engine} {found.version} ({found.evidence})"
    if found.refusal:
        return f"{head}: {found.refusal}"
    return "; ".join([f"{head}: {found.rule}", *found.notes])


def _bullet(text: str) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row("-", Text(text))
    return row


def meaning_view(diff: MeaningDiff) -> Group:
    """Return what differs, what is only spelled differently, and what is only in one."""
    verdict = "same meaning" if diff.same else "different"
    parts: list[RenderableType] = [
        Text(f"A  {diff.a} ({diff.a_format})", style="bold", overflow="fold"),
        Text(f"B  {diff.b} ({diff.b_format})", style="bold", overflow="fold"),
        Text(verdict),
    ]
    for title, points in (
        ("differs", diff.differs),
        ("only spelled differently", diff.spelled),
    ):
        if points:
            parts += [Text(), Text(title, style="bold"), _points(points)]
    for title, only in (("only in A", diff.only_a), ("only in B", diff.only_b)):
        if only:
            parts += [Text(), Text(title, style="bold"), *(_bullet(text) for text in only)]
    return Group(*parts)


def _points(points: tuple[Point, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in ("", "A", "B", "effect"):
        table.add_column(head, overflow="fold")
    for point in points:
        where = f" (layers {ranges(point.layers)})" if point.layers else ""
        shown = (textwrap.shorten(text, 160, placeholder="…") for text in (point.a, point.b))
        table.add_row(point.what + where, *shown, point.effect)
    return table
