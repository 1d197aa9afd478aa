"""The sentences of a report follow from its numbers."""

import dataclasses
import math

from ropewalk.extend.findings import findings
from ropewalk.extend.results import Measurement, RetrievalCell, Share, TextCell
from ropewalk.extend.statistics import Interval, wilson


def cell(method: str, length: int, nats: float, interval: Interval | None = None) -> TextCell:
    return TextCell(
        method, length / 512, length, nats, math.exp(nats), nats, math.exp(nats), (nats,),
        None if method == "crop" else 0.0, interval,
    )  # fmt: skip


def measurement(*cells: TextCell, documents: int = 8) -> Measurement:
    return Measurement(
        model="m",
        model_type="llama",
        original_length=512,
        protocol="fixed",
        lengths=(512, 1024),
        scored=128,
        documents=tuple(f"d{i}" for i in range(documents)),
        text_origin="t",
        text_digest="0",
        dtype="float32",
        precision="exact",
        seed=0,
        cells=cells,
        short_cells=(),
        retrieval=(),
    )


def test_cropping_better_is_said_plainly_with_what_stretching_is_for() -> None:
    said = findings(measurement(cell("crop", 1024, 1.0), cell("yarn", 1024, 1.2)))
    assert said[0].startswith("Cropping to the last 512 tokens predicts the same targets better")
    assert "start of fine-tuning" in said[0]


def test_rescaling_better_is_said_with_its_doubt() -> None:
    doubtful = cell("yarn", 1024, 0.9, Interval(-0.2, 0.1))
    said = findings(measurement(cell("crop", 1024, 1.0), cell("ntk", 1024, 1.5), doubtful))
    assert said[0].startswith("Rescaling beats cropping at 1,024 (yarn")
    assert "not every difference is outside its interval" in said[0]
    clear = dataclasses.replace(doubtful, above_crop_interval=Interval(-0.2, -0.1))
    assert "not every" not in findings(measurement(cell("crop", 1024, 1.0), clear))[0]


def test_extrapolating_is_no_rescaling() -> None:
    said = findings(measurement(cell("crop", 1024, 1.0), cell("none", 1024, 0.5)))
    assert not any("Rescaling beats" in s for s in said)


def test_few_documents_are_named() -> None:
    said = findings(measurement(cell("crop", 1024, 1.0), documents=1))
    assert said[-1].startswith("Only 1 document: too few")


def share(nearest: int, farthest: int, hits: int) -> Share:
    return Share(nearest, farthest, hits, 10, wilson(hits, 10))


def test_keys_beyond_the_window() -> None:
    steps = (share(1, 512, 10), share(513, 1024, 4))
    found = RetrievalCell("yarn", 2.0, 1024, share(1, 1024, 7), steps)
    base = measurement(cell("crop", 1024, 1.0), cell("yarn", 1024, 1.2))
    said = findings(dataclasses.replace(base, retrieval=(found,)))
    assert any("yarn finds 4 of 10 (40 %) at 1,024 tokens" in s for s in said)
    none = dataclasses.replace(found, by_distance=(steps[0], share(513, 1024, 0)))
    said = findings(dataclasses.replace(base, retrieval=(none,)))
    assert any(s.startswith("No rescaling found a key") for s in said)


def test_a_mean_that_hides_its_tail_is_named() -> None:
    hidden = dataclasses.replace(cell("ntk", 1024, 3.0), tail_perplexity=math.exp(3.5))
    prefix = dataclasses.replace(
        measurement(cell("crop", 1024, 3.0), hidden, documents=1), protocol="prefix"
    )
    assert any("hides a bad end" in s and "ntk at 1,024" in s for s in findings(prefix))
