"""The evidence for a pairing as a terminal table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..convert.pairing import PairingFinding
from ..convert.pairing_evidence import Contrast
from ..convert.pairing_run import RunFinding


def pairing_view(finding: PairingFinding, run: RunFinding | None) -> RenderableType:
    """Return one table of the evidence and the conclusion, at most 100 columns wide."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("lanes that make a plane", no_wrap=True)
    for heading in ("× shifted pairs", "× shifts of one", "z", "p", "heads first"):
        table.add_column(heading, justify="right", no_wrap=True)
    for contrast in finding.contrasts:
        table.add_row(
            *_row(contrast), style="bold" if contrast.arrangement == finding.found else ""
        )
    for contrast in finding.norms:
        table.add_row(*_row(contrast, "row norms: "), style="dim")
    if run is not None:
        for pairing, loss in (("half", run.half), ("adjacent", run.adjacent)):
            table.add_row(
                f"loss with {pairing}",
                f"{loss:.3f} nats",
                style="bold" if pairing == run.found else "",
            )
    read = (
        f"{len(finding.layers)} layers, {finding.heads} key heads of {finding.planes} planes; row "
        "norms are shown only: smooth ones fool them"
    )
    return Group(table, Text(read, style="dim"), Text(), *_conclusion(finding, run))


def _row(contrast: Contrast, before: str = "") -> tuple[str, ...]:
    return (
        before + contrast.arrangement,
        f"{contrast.ratio:.2f}",
        f"{contrast.nearest:.2f}",
        f"{contrast.z:.1f}",
        f"{contrast.p:.1g}",
        f"{contrast.first:.0%}",
    )


def _conclusion(finding: PairingFinding, run: RunFinding | None) -> list[Text]:
    said = f"{finding.expected}, says {finding.expected_from}"
    if finding.found is None:
        lines = [Text(f"not clear from the weights: {finding.reason}", style="yellow")]
    else:
        lines = [
            Text(f"the weights have: {finding.found} (expected: {said})"),
            Text("as expected", style="green")
            if finding.agrees
            else Text("NOT as expected: the file is mis-permuted", style="red"),
        ]
    if run is not None:
        if run.found is None:
            lines.append(Text(f"not clear from running it: {run.reason}", style="yellow"))
        else:
            lines.append(
                Text(
                    f"running it says: {run.found} (lower loss in {run.won:.0%} of {run.pieces} "
                    "pieces of text)"
                )
            )
            if finding.found is None:
                style = "green" if run.found == finding.expected else "red"
                lines.append(Text(f"expected: {said}", style=style))
    return lines
