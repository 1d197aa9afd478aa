"""What a measurement found: dataclasses that tables, plots, reports and JSON are made from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from ..rope import Precision
from .protocols import ProtocolName
from .statistics import Interval

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class TextCell:
    """The loss of one method at one context length.

    Attributes:
        method: name of the method.
        factor: the stretch that the method was set to.
        length: tokens of context given, targets included.
        nats: mean over documents of each document's mean loss per scored token.
        perplexity: ``exp(nats)``.
        bits_per_byte: mean over documents of bits per UTF-8 byte of the scored text.
        tail_perplexity: of the last scored tokens only; differs from ``perplexity`` under
            the prefix protocol.
        per_document: each document's nats per scored token, in order.
        above_crop: mean over documents of nats minus those of cropping; None for cropping.
        above_crop_interval: its 95 % paired bootstrap interval; None below five documents.
    """

    method: str
    factor: float
    length: int
    nats: float
    perplexity: float
    bits_per_byte: float
    tail_perplexity: float
    per_document: tuple[float, ...]
    above_crop: float | None = None
    above_crop_interval: Interval | None = None


@dataclass(frozen=True)
class Share:
    """Retrieval hits among trials, with the Wilson interval, for distances in a range.

    ``nearest`` and ``farthest`` bound the distance in tokens from the planted key to the
    answer, both included.
    """

    nearest: int
    farthest: int
    hits: int
    trials: int
    interval: Interval


@dataclass(frozen=True)
class RetrievalCell:
    """Passkey retrieval of one method at one context length.

    Attributes:
        method: name of the method.
        factor: the stretch that the method was set to.
        length: tokens of context given, answer included.
        overall: all trials.
        by_distance: the same trials by distance, in steps of the original length, or at each
            distance that was asked for.
    """

    method: str
    factor: float
    length: int
    overall: Share
    by_distance: tuple[Share, ...]


@dataclass(frozen=True)
class Measurement:
    """A whole measurement, with the protocol and all that is needed to repeat it.

    Attributes:
        model: name of the model: its folder or file.
        model_type: its family.
        original_length: tokens.
        protocol: a name of `ropewalk.extend.protocols.PROTOCOLS`.
        lengths: context lengths, tokens.
        scored: tokens scored at the end of each document.
        documents: their names.
        text_origin: where the documents come from.
        text_digest: SHA-256 of their tokens.
        dtype: dtype of the weights.
        precision: of the angles.
        seed: of trials and bootstrap.
        cells: the loss at each length, each method set to length / original length.
        short_cells: the loss at the original length, methods set to each factor.
        retrieval: passkey cells.
        environment: versions, processor, threads, seconds of computing, peak memory.
    """

    model: str
    model_type: str
    original_length: int
    protocol: ProtocolName
    lengths: tuple[int, ...]
    scored: int
    documents: tuple[str, ...]
    text_origin: str
    text_digest: str
    dtype: str
    precision: Precision
    seed: int
    cells: tuple[TextCell, ...]
    short_cells: tuple[TextCell, ...]
    retrieval: tuple[RetrievalCell, ...]
    environment: dict[str, Any] = field(default_factory=dict)

    def cell(self, method: str, length: int) -> TextCell | None:
        """Return the cell of a method at a length, or None if it was not measured."""
        for cell in self.cells:
            if cell.method == method and cell.length == length:
                return cell
        return None

    @property
    def documents_counted(self) -> str:
        """How many documents, in words: ``1 document``, ``16 documents``."""
        count = len(self.documents)
        return "1 document" if count == 1 else f"{count} documents"

    @property
    def unscaled(self) -> TextCell | None:
        """The cell without any scaling at the original length, where it was measured."""
        return self.cell("none", self.original_length) or self.cell("crop", self.original_length)

    def trial_counts(self) -> str:
        """Passkey trials per cell at each length, in words."""
        counts = {cell.length: cell.overall.trials for cell in self.retrieval}
        return ", ".join(f"{counts[length]} at {length:,}" for length in sorted(counts))

    def methods(self) -> list[str]:
        """Return the methods measured, in the table's order, each once."""
        return list(dict.fromkeys(cell.method for cell in self.cells))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, with ``schema_version``."""
        return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Measurement:
        """Build the measurement that `to_dict` wrote."""

        def interval(value: Any) -> Interval | None:
            return None if value is None else Interval(**value)

        def text_cell(value: dict[str, Any]) -> TextCell:
            return TextCell(
                **{
                    **value,
                    "per_document": tuple(value["per_document"]),
                    "above_crop_interval": interval(value["above_crop_interval"]),
                }
            )

        def share(value: dict[str, Any]) -> Share:
            return Share(**{**value, "interval": Interval(**value["interval"])})

        def retrieval_cell(value: dict[str, Any]) -> RetrievalCell:
            return RetrievalCell(
                **{
                    **value,
                    "overall": share(value["overall"]),
                    "by_distance": tuple(share(s) for s in value["by_distance"]),
                }
            )

        values = {k: v for k, v in data.items() if k != "schema_version"}
        values["cells"] = tuple(text_cell(c) for c in data["cells"])
        values["short_cells"] = tuple(text_cell(c) for c in data["short_cells"])
        values["retrieval"] = tuple(retrieval_cell(c) for c in data["retrieval"])
        for name in ("lengths", "documents"):
            values[name] = tuple(values[name])
        return cls(**values)
