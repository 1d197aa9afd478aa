"""An extension's verdict on one terminal screen."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..extend.engines import Setting
from ..extend.plan import Extension
from .measurement_table import measurement_view

_LONGEST_SHOWN = 600


def size(count: int | None) -> str:
    """Format bytes with binary units."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def _effects(extension: Extension) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in ("method", "kept", "blended", "interpolated", "slowest plane", "amplitude"):
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)
    table.add_column("short text", no_wrap=True)
    for effect in extension.effects:
        chosen = effect.method == extension.method
        table.add_row(
            ("→ " if chosen else "  ") + effect.method,
            str(effect.kept),
            str(effect.blended),
            str(effect.interpolated),
            f"÷ {effect.slowest_by:.3g}",
            f"{effect.amplitude:.4f}",
            effect.short_text,
            style="bold" if chosen else "",
        )
    return table


def _engine(setting: Setting) -> RenderableType:
    head = Text(f"{setting.engine} ", style="bold")
    head.append(f"({setting.version})", style="dim")
    if setting.refusal:
        return Group(head, Text(f"  cannot: {setting.refusal}"))
    text = setting.text
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + " … (whole with --json)"
    parts: list[RenderableType] = [head, Text("  " + text)]
    if setting.note:
        parts.append(Text(f"  note: {setting.note}"))
    return Group(*parts)


def extension_view(extension: Extension) -> Group:
    """Return the verdict: what is, what each method would do, the choice, the settings."""
    e = extension
    stated = f", file states {e.stated_length:,}" if e.stated_length else ""
    parts: list[RenderableType] = [
        Text(f"{e.model} ({e.model_type})", style="bold"),
        Text(f"now      {e.now!r}"),
        Text(f"lengths  trained on {e.original_length:,}{stated}; wanted {e.target:,}"),
        Text(f"factor   {e.factor:.4g}"),
        Text(
            f"cache    {size(e.kv_bytes)} of keys and values per sequence at {e.target:,} tokens "
            f"in 16 bit ({size(e.kv_bytes_now)} at {e.original_length:,})"
        ),
    ]
    if e.effects:
        planes = e.now.planes
        parts += [
            Text(),
            Text(f"what each method does to the {planes} planes", style="bold"),
            _effects(e),
        ]
    if e.measurement is not None:
        parts += [Text(), measurement_view(e.measurement)]
    parts += [Text(), Text(f"verdict  {e.method or 'no change'}", style="bold")]
    parts += [Text(f"• {reason}") for reason in e.reasons]
    parts += [Text(f"! {warning}") for warning in e.warnings]
    for setting in e.engines:
        parts += [Text(), _engine(setting)]
    return Group(*parts)
