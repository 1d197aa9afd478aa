"""Settings that describe no whole model, on one terminal screen."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..models.fragment import Fragment


def fragment_view(fragment: Fragment) -> Group:
    """Return what the settings say: values with their keys, the scaling, notes."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in ("value", "", "came from"):
        table.add_column(head, overflow="fold")
    for name, item in fragment.values.items():
        shown = f"{item.value:.9g}" if isinstance(item.value, float) else str(item.value)
        table.add_row(Text(name), Text(shown), Text(item.source))
    scaling = "not to be told without the model" if fragment.scaling is None else (
        repr(fragment.scaling)
    )  # fmt: skip
    parts: list[RenderableType] = [
        Text(fragment.path, style="bold", overflow="fold"),
        Text(f"{fragment.format} settings without {fragment.missing}"),
        Text(f"scaling: {scaling}"),
        Text(),
        table,
    ]
    if fragment.notes:
        parts += [Text(), Text("notes", style="bold")]
        parts += [Text(f"- {note}") for note in fragment.notes]
    return Group(*parts)
