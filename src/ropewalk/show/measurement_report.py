"""A measurement as a Markdown page that states its protocol."""

from __future__ import annotations

from collections.abc import Callable

from ..extend.findings import findings
from ..extend.methods import method_named
from ..extend.protocols import PROTOCOLS
from ..extend.results import Measurement, Share, TextCell
from .measurement_table import multiple, short_number


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def report(measurement: Measurement, plots: tuple[str, ...] = ()) -> str:
    """Return the page; ``plots`` are file names of pictures beside it."""
    m = measurement
    lines = [f"# Context extension of {m.model}", ""]
    lines += [f"![loss and retrieval by context length]({name})" for name in plots]
    lines += [""] + [f"- {sentence}" for sentence in findings(m)] + [""]
    lines += _loss(m) + _short(m) + _retrieval(m) + _protocol(m) + _documents(m)
    return "\n".join(lines) + "\n"


def _heads(m: Measurement, lengths: list[int]) -> list[str]:
    return ["method", *(f"{multiple(n, m.original_length)} ({n:,})" for n in lengths)]


def _loss(m: Measurement) -> list[str]:
    lengths = list(m.lengths)

    def rows(show: Callable[[TextCell], str]) -> list[list[str]]:
        out = []
        for method in m.methods():
            cells = [m.cell(method, n) for n in lengths]
            out.append([method, *("" if c is None else show(c) for c in cells)])
        return out

    def perplexity(c: TextCell) -> str:
        tail = short_number(c.tail_perplexity)
        if m.protocol != "prefix":
            return tail
        return f"({tail})" if c.method == "crop" else f"{short_number(c.perplexity)} ({tail})"

    def above(c: TextCell) -> str:
        if c.above_crop is None:
            return ""
        i = c.above_crop_interval
        return f"{c.above_crop:+.3f}" + (f" [{i.low:+.3f}, {i.high:+.3f}]" if i else "")

    out = []
    if m.protocol != "prefix":
        out += ["## Bits per byte", "", *_table(_heads(m, lengths), rows(_bits)), ""]
    note = "" if m.protocol != "prefix" else f" (in brackets: of the last {m.scored:,} tokens)"
    out += [f"## Perplexity per token{note}", "", *_table(_heads(m, lengths), rows(perplexity)), ""]
    if m.protocol != "prefix" and "crop" in m.methods():
        out += [
            "## Loss above cropping",
            "",
            (
                "Nats per token, mean of paired differences; in brackets the 95 % bootstrap "
                "interval over documents, given from five documents on. Below zero beats cropping."
            ),
            "",
            *_table(_heads(m, lengths), rows(above)),
            "",
        ]
    return out


def _bits(c: TextCell) -> str:
    return f"{c.bits_per_byte:.3f}"


def _short(m: Measurement) -> list[str]:
    unscaled = m.unscaled
    if not m.short_cells or unscaled is None:
        return []
    factors = sorted({c.factor for c in m.short_cells})
    rows = []
    for method in m.methods():
        cells = {c.factor: c for c in m.short_cells if c.method == method}
        rows.append([method, *(f"{cells[f].nats - unscaled.nats:+.4f}" for f in factors)])
    return [
        "## Cost on short text",
        "",
        (
            f"Loss at {m.original_length:,} tokens with the method set to each factor, above the "
            "loss without scaling, nats per token."
        ),
        "",
        *_table(["method", *(f"factor {f:.3g}" for f in factors)], rows),
        "",
    ]


def _percent(share: Share) -> str:
    low, high = 100 * share.interval.low, 100 * share.interval.high
    return f"{100 * share.hits / share.trials:.0f} % [{low:.0f}, {high:.0f}]"


def _retrieval(m: Measurement) -> list[str]:
    if not m.retrieval:
        return []
    lengths = sorted({c.length for c in m.retrieval})
    by_place = {(c.method, c.length): c for c in m.retrieval}
    rows = [
        [method, *(_percent(by_place[method, n].overall) for n in lengths)]
        for method in m.methods()
    ]
    out = [
        "## Passkey retrieval",
        "",
        (
            "Share of trials whose five digits are all the model's first choice; in brackets the "
            f"95 % Wilson interval. Keys lie at all depths. Trials per cell: {m.trial_counts()}."
        ),
        "",
        *_table(_heads(m, lengths), rows),
        "",
        "By distance from the key to the answer:",
        "",
    ]
    for length in lengths:
        cells = [by_place[method, length] for method in m.methods()]
        steps = [s.farthest for s in cells[0].by_distance]
        heads = [f"at {length:,}", *(f"≤ {multiple(s, m.original_length)}" for s in steps)]
        rows = [[c.method, *(f"{s.hits}/{s.trials}" for s in c.by_distance)] for c in cells]
        out += [*_table(heads, rows), ""]
    return out


def _protocol(m: Measurement) -> list[str]:
    e = m.environment
    angles = (
        "exact" if m.precision == "exact" else "from float32 angles, as transformers forms them"
    )
    scoring = PROTOCOLS[m.protocol].rule.format(scored=m.scored, original=m.original_length)
    return [
        "## Protocol",
        "",
        f"- {scoring}",
        (
            "- Each method is set to factor = length / original length. No fine-tuning. Loss is "
            "the mean of per-document means; intervals draw documents, 10,000 times."
        ),
        (
            "- Tokens without any special token (no BOS); positions from 0; the whole context in "
            "one pass, so that a length-dependent rope sees one length and no cached key is stale."
        ),
        (
            f"- cos and sin {angles}, then rounded to the model's dtype; attention amplitude on "
            "cos and sin; scores and softmax by PyTorch's fused attention."
        ),
        f"- Text: {m.text_origin}; SHA-256 of the tokens `{m.text_digest[:16]}…`; seed {m.seed}.",
        (
            f"- Weights in {m.dtype}; ropewalk {e['ropewalk']}, Python {e['python']}, torch "
            f"{e['torch']}, transformers {e['transformers']}, {e['processor']}, {e['threads']} "
            f"threads; {e['seconds']:,.0f} s of passes, peak memory {e['peak_mib']:,} MiB."
        ),
        "",
        "Methods:",
        "",
        *(f"- `{name}`: {method_named(name).summary}" for name in m.methods()),
        "",
    ]


def _documents(m: Measurement) -> list[str]:
    return ["Documents: " + ", ".join(f"`{name}`" for name in m.documents) + "."]
