"""What one case of the benchmark found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .timing import Quartiles, Timing, quartiles, ratio

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Timings of one case.

    Attributes:
        name: of the case; ``--only`` and the claims find it by this.
        title: one line.
        timings: by contestant.
        baselines: the contestant that each one's ratio is to; without an entry, none.
        moved_bytes: bytes of the result; None where that means nothing.
        left_out: why a contestant is not there.
        errors: largest error as a share of what is allowed, of each one that was checked.
        tokens: tokens per call, for a time per token; without an entry, none is shown.
        notes: sentences for the reader.
    """

    name: str
    title: str
    timings: dict[str, Timing]
    baselines: dict[str, str]
    moved_bytes: int | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_baseline(self, name: str) -> Quartiles | None:
        """Return a contestant's time over its baseline's, or None where it has none."""
        base = self.baselines.get(name)
        if base is None or base not in self.timings:
            return None
        return ratio(self.timings[name], self.timings[base])

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON value, with the median of each round."""
        rows = []
        for name, timing in self.timings.items():
            q, base = timing.quartiles, self.to_baseline(name)
            row: dict[str, Any] = {
                "name": name,
                "seconds": {"low": q.low, "median": q.median, "high": q.high},
                "calls_per_sample": timing.batch,
                "samples": len(timing.samples),
                # Four digits: more is noise, and the file is read by people.
                "rounds": [
                    float(f"{quartiles(samples).median:.4g}")
                    for samples in timing.rounds
                    if samples
                ],
                "error_over_allowed": self.errors.get(name),
                "tokens": self.tokens.get(name),
                "baseline": self.baselines.get(name),
            }
            row["to_baseline"] = base and {
                "low": base.low,
                "median": base.median,
                "high": base.high,
            }
            rows.append(row)
        return {
            "name": self.name,
            "title": self.title,
            "moved_bytes": self.moved_bytes,
            "rows": rows,
            "left_out": self.left_out,
            "notes": list(self.notes),
        }
