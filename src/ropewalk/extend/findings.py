"""What a measurement says, in sentences that follow from its numbers."""

from __future__ import annotations

import math

from .results import Measurement, TextCell

_SCALING_METHODS_OFF = ("crop", "none")


def findings(measurement: Measurement) -> list[str]:
    """Return the sentences for the terminal and the report, most important first."""
    m = measurement
    longer = [n for n in m.lengths if n > m.original_length]
    out = []
    if "crop" in m.methods() and longer:
        out += [s for s in (_against_crop(m, longer), _retrieval_beyond(m)) if s]
    if m.protocol == "prefix":
        tails = _hidden_tails(m, longer)
        if tails:
            out.append(tails)
    few = len(m.documents) < 5
    if m.protocol == "fixed" and few:
        out.append(
            f"Only {m.documents_counted}: too few for an interval over documents, "
            "so none is given. Differences smaller than those between documents mean nothing."
        )
    return out


def _rescaled(m: Measurement, length: int) -> list[TextCell]:
    return [c for c in m.cells if c.length == length and c.method not in _SCALING_METHODS_OFF]


def _against_crop(m: Measurement, longer: list[int]) -> str | None:
    """Compare the best rescaling at each length with cropping, on the same tokens."""
    lost: list[str] = []
    won: list[str] = []
    clear = True
    for length in longer:
        rescaled, crop = _rescaled(m, length), m.cell("crop", length)
        if not rescaled or crop is None:
            continue
        best = min(rescaled, key=lambda c: c.tail_perplexity)
        better = best.tail_perplexity < crop.tail_perplexity
        text = f"{length:,} ({best.method} {_ppl(best)} against {_ppl(crop)})"
        (won if better else lost).append(text)
        interval = best.above_crop_interval
        clear &= interval is None or interval.high < 0 or interval.low > 0
    parts = []
    if lost:
        parts.append(
            f"Cropping to the last {m.original_length:,} tokens predicts the same targets better "
            f"than every rescaling without fine-tuning, at {'; '.join(lost)}: for next-token loss "
            "alone, crop there."
        )
    if won:
        caveat = "" if clear else " (not every difference is outside its interval)"
        parts.append(f"Rescaling beats cropping at {'; '.join(won)}{caveat}.")
    if lost:
        parts.append(
            "Stretching is for what cropping cannot do: retrieving what lies beyond the window, "
            "and as the start of fine-tuning."
        )
    return " ".join(parts) or None


def _ppl(cell: TextCell) -> str:
    return f"perplexity {cell.tail_perplexity:.4g}"


def _retrieval_beyond(m: Measurement) -> str | None:
    """Say at each length which method finds most of the keys that cropping has dropped."""
    best: dict[int, tuple[int, int, str]] = {}
    for cell in m.retrieval:
        if cell.method in _SCALING_METHODS_OFF:
            continue
        beyond = [s for s in cell.by_distance if s.nearest > m.original_length]
        trials, hits = sum(s.trials for s in beyond), sum(s.hits for s in beyond)
        if trials and hits > best.get(cell.length, (-1, 0, ""))[0]:
            best[cell.length] = (hits, trials, cell.method)
    if not best:
        return None
    found = [
        f"{method} finds {hits} of {trials} ({100 * hits / trials:.0f} %) at {length:,} tokens"
        for length, (hits, trials, method) in sorted(best.items())
        if hits
    ]
    if not found:
        return (
            "No rescaling found a key farther back than the original length; without "
            "fine-tuning this model's context does not become usable that way."
        )
    nowhere = [f"{length:,}" for length, (hits, _, _) in sorted(best.items()) if not hits]
    rest = f"; no method finds any at {' and '.join(nowhere)}" if nowhere else ""
    return (
        f"Keys farther back than {m.original_length:,} tokens, which cropping has dropped: "
        f"{'; '.join(found)}{rest}."
    )


def _hidden_tails(m: Measurement, longer: list[int]) -> str | None:
    """Name methods whose mean hides a bad end."""
    hidden = [
        f"{c.method} at {c.length:,} ({c.perplexity:.4g}, its end {c.tail_perplexity:.4g})"
        for c in m.cells
        if c.length in longer
        and c.method != "crop"
        and math.log(c.tail_perplexity) - math.log(c.perplexity) > 0.2
    ]
    if not hidden:
        return None
    return (
        "The mean over all tokens hides a bad end, because most tokens lie within the original "
        f"length: {'; '.join(hidden)}. The fixed-target protocol has no such blind spot."
    )
