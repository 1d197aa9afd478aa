"""A measurement as terminal tables of at most 100 columns."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..extend.findings import findings
from ..extend.protocols import PROTOCOLS
from ..extend.results import Measurement, TextCell

_TOO_LARGE = 999.5


def short_number(value: float) -> str:
    """Format a perplexity for a narrow column: three or four significant digits."""
    if value >= _TOO_LARGE:
        return f"{value:.1e}" if value >= 99_999 else f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def multiple(length: int, original: int) -> str:
    """Name a length as a multiple of the original, e.g. ``4×``."""
    return f"{length / original:.3g}×"


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)


def _titled(title: str, table: Table, *notes: str) -> Group:
    """A table under its title; a title inside the table would wrap at the table's width."""
    return Group(Text(title, style="bold"), table, *(Text(note, style="dim") for note in notes))


def _heads(table: Table, measurement: Measurement, lengths: list[int]) -> None:
    table.add_column("method", no_wrap=True)
    for length in lengths:
        head = f"{multiple(length, measurement.original_length)}\n{length:,}"
        table.add_column(head, justify="right", no_wrap=True)


def loss_table(measurement: Measurement, *, bits: bool) -> Group:
    """Return methods × lengths of bits per byte or of perplexity."""
    lengths = list(measurement.lengths)
    unit = "bits per byte" if bits else "perplexity per token"
    title = PROTOCOLS[measurement.protocol].title.format(scored=measurement.scored)
    what = f"{unit}, {title}"
    table = _table()
    _heads(table, measurement, lengths)
    best = {n: min(_value(c, bits) for c in measurement.cells if c.length == n) for n in lengths}
    for method in measurement.methods():
        row: list[RenderableType] = [method]
        for length in lengths:
            cell = measurement.cell(method, length)
            if cell is None:
                row.append("")
                continue
            value = _value(cell, bits)
            text = f"{value:.3f}" if bits else short_number(value)
            if measurement.protocol == "prefix":
                tail = short_number(cell.tail_perplexity)
                text = f"({tail})" if method == "crop" else f"{text} ({tail})"
            row.append(Text(text, style="bold" if value <= best[length] * 1.0005 else ""))
        table.add_row(*row)
    return _titled(f"{what}; lower is better", table)


def _value(cell: TextCell, bits: bool) -> float:
    return cell.bits_per_byte if bits else cell.perplexity


def difference_table(measurement: Measurement) -> Group | None:
    """Return methods × lengths of the loss above cropping, with paired intervals."""
    lengths = [n for n in measurement.lengths if n > measurement.original_length]
    table = _table()
    _heads(table, measurement, lengths)
    for method in measurement.methods():
        if method == "crop":
            continue
        row = [method]
        for length in lengths:
            cell = measurement.cell(method, length)
            if cell is None or cell.above_crop is None:
                row.append("")
                continue
            text = f"{cell.above_crop:+.2f}"
            if cell.above_crop_interval is not None:
                low, high = cell.above_crop_interval.low, cell.above_crop_interval.high
                text += f"\n[{low:.2f}, {high:.2f}]"
            row.append(text)
        table.add_row(*row)
    if not table.row_count or not lengths:
        return None
    return _titled(
        "loss above cropping, nats per token [95 % interval over documents]; "
        "below 0 beats cropping",
        table,
    )


def short_table(measurement: Measurement) -> Group | None:
    """Return what each factor costs on texts of the original length."""
    if not measurement.short_cells:
        return None
    factors = sorted({cell.factor for cell in measurement.short_cells})
    original = measurement.original_length
    table = _table()
    table.add_column("method", no_wrap=True)
    for factor in factors:
        table.add_column(f"factor {factor:.3g}", justify="right", no_wrap=True)
    unscaled = measurement.unscaled
    if unscaled is None:
        return None
    for method in measurement.methods():
        if method in ("crop", "none"):
            continue
        row = [method]
        for factor in factors:
            found = [c for c in measurement.short_cells if (c.method, c.factor) == (method, factor)]
            row.append(f"{found[0].nats - unscaled.nats:+.3f}" if found else "")
        table.add_row(*row)
    return _titled(
        f"cost on short text: loss at {original:,} tokens above no scaling, nats per token", table
    )


def retrieval_table(measurement: Measurement) -> Group | None:
    """Return passkey retrieval by method and length, with Wilson intervals."""
    if not measurement.retrieval:
        return None
    lengths = sorted({cell.length for cell in measurement.retrieval})
    table = _table()
    _heads(table, measurement, lengths)
    by_place = {(cell.method, cell.length): cell for cell in measurement.retrieval}
    for method in measurement.methods():
        row = [method]
        for length in lengths:
            cell = by_place.get((method, length))
            if cell is None:
                row.append("")
                continue
            share = cell.overall
            row.append(
                f"{100 * share.hits / share.trials:.0f}\n"
                f"[{100 * share.interval.low:.0f}, {100 * share.interval.high:.0f}]"
            )
        table.add_row(*row)
    return _titled(
        "passkey retrieval, % of trials [95 % Wilson interval], keys at all depths",
        table,
        f"trials per cell: {measurement.trial_counts()}",
    )


def distance_table(measurement: Measurement) -> Group | None:
    """Return passkey retrieval by distance at the longest length."""
    longest = max((cell.length for cell in measurement.retrieval), default=0)
    cells = [cell for cell in measurement.retrieval if cell.length == longest]
    if not cells or longest <= measurement.original_length:
        return None
    original = measurement.original_length
    # Beyond eight steps of the original length, neighbours are pooled into equal ranges, so
    # that the table stays on the screen.
    steps = -(-longest // original)
    width = -(-steps // 8)
    ends = range(width, steps + width, width)
    table = _table()
    table.add_column("method", no_wrap=True)
    for end in ends:
        table.add_column(f"≤ {end}×", justify="right", no_wrap=True)
    for cell in cells:
        row = [cell.method]
        for end in ends:
            inside = [s for s in cell.by_distance if end - width < s.farthest // original <= end]
            row.append(f"{sum(s.hits for s in inside)}/{sum(s.trials for s in inside)}")
        table.add_row(*row)
    return _titled(
        f"passkey retrieval at {longest:,} tokens by distance to the key, hits / trials", table
    )


def measurement_view(measurement: Measurement) -> Group:
    """Return all tables of a measurement, the loss first, and what follows from them."""
    m = measurement
    parts: list[RenderableType] = [
        Text(
            f"{m.model} ({m.model_type}), original length {m.original_length:,}, {m.dtype}; "
            f"{m.documents_counted} of {m.text_origin}"
        ),
        Text(),
        loss_table(m, bits=m.protocol != "prefix"),
    ]
    if m.protocol != "prefix":
        tables = [
            difference_table(m) if "crop" in m.methods() else None,
            short_table(m),
            retrieval_table(m),
            distance_table(m),
        ]
        for table in tables:
            if table is not None:
                parts += [Text(), table]
    parts.append(Text())
    parts += [Text(f"• {sentence}") for sentence in findings(m)]
    return Group(*parts)
