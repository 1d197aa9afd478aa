"""What Ropewalk is to be held to, judged on this run's numbers.

A claim that fails is reported and is no error: the benchmark measures, the reader judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import flat, own, usual
from .cases import LARGE, prefill_name
from .peers import ONNX_NAME
from .result import CaseResult
from .timing import ratio

Relation = Literal["at most", "at least"]

_FLAT_FROM, _FLAT_TO = 16384, 262144


@dataclass(frozen=True, slots=True)
class Claim:
    """One demand and whether this run met it.

    Attributes:
        text: what is compared.
        value: as computed; None where the run lacks the numbers.
        relation: ``at most`` or ``at least``.
        bound: in the unit of the value.
        unit: ``×``, ``µs`` or ``%``.
    """

    text: str
    value: float | None
    relation: Relation
    bound: float
    unit: str = "×"

    @property
    def met(self) -> bool | None:
        """Whether the value is within the bound; None where there is no value."""
        if self.value is None:
            return None
        return self.value <= self.bound if self.relation == "at most" else self.value >= self.bound

    @property
    def demanded(self) -> str:
        """The bound in words, e.g. ``≤ 1.15 ×``."""
        return f"{'≤' if self.relation == 'at most' else '≥'} {self.bound:g} {self.unit}"

    @property
    def found(self) -> str:
        """The value in words, or ``not run``."""
        return "not run" if self.value is None else f"{self.value:.3g} {self.unit}"

    @property
    def verdict(self) -> str:
        """``met``, ``missed`` or nothing."""
        return {True: "met", False: "missed", None: ""}[self.met]

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "text": self.text,
            "value": self.value,
            "demanded": self.demanded,
            "met": self.met,
        }


def judge(results: Sequence[CaseResult]) -> list[Claim]:
    """Return every claim with this run's value."""
    by_name = {result.name: result for result in results}

    def over(case: str, above: str, below: str) -> float | None:
        return _over(by_name.get(case), above, below)

    out = []
    for dtype, times in (("float32", 30.0), ("bfloat16", 20.0)):
        for pairing in ("half", "adjacent"):
            case = prefill_name(4096, LARGE, dtype, pairing)
            what = f"4,096 tokens, {dtype}, {pairing}"
            out += [
                Claim(
                    f"{what}: in place / mul_",
                    over(case, own.IN_PLACE.name, usual.MULTIPLY.name),
                    "at most",
                    1.0,
                ),
                Claim(
                    f"{what}: eager / in place",
                    over(case, usual.EAGER.name, own.IN_PLACE.name),
                    "at least",
                    times,
                ),
            ]
            if dtype == "float32":  # ONNX Runtime's has no bfloat16 on CPU
                value = over(case, ONNX_NAME, own.IN_PLACE.name)
                out.append(Claim(f"{what}: ONNX Runtime / in place", value, "at least", 4.0))
            out += [
                Claim(
                    f"{what}: into out / copy",
                    over(case, own.INTO_OUT.name, usual.COPY.name),
                    "at most",
                    1.15,
                ),
                Claim(
                    f"{what}: torch.compile / fresh",
                    over(case, usual.COMPILED.name, own.FRESH.name),
                    "at least",
                    3.0,
                ),
            ]
    for dtype in ("float32", "bfloat16"):
        for pairing in ("half", "adjacent"):
            case = f"decode-1-{dtype}-{pairing}"
            what = f"one token, {dtype}, {pairing}"
            seconds = _seconds(by_name.get(case), own.IN_PLACE.name)
            microseconds = None if seconds is None else seconds * 1e6
            out += [
                Claim(f"{what}: q and k in place", microseconds, "at most", 3.0, "µs"),
                Claim(
                    f"{what}: eager / in place",
                    over(case, usual.EAGER.name, own.IN_PLACE.name),
                    "at least",
                    6.0,
                ),
            ]
    for dtype in ("float32", "bfloat16"):
        value = over(f"gradient-4096-{dtype}-half", usual.EAGER.name, own.GRADIENT.name)
        text = f"forward and backward, 4,096 tokens, {dtype}: eager / ropewalk"
        out.append(Claim(text, value, "at least", 10.0))
    out += [
        Claim(
            "time per token, 16,384 to 262,144: longest over shortest, less one",
            _spread(by_name.get("per-token")),
            "at most",
            15.0,
            "%",
        ),
        Claim(
            "tables, 131,072 × 64: exact / float32 outer product, cos, sin",
            over("tables-131072", own.EXACT_TABLES.name, usual.OUTER_PRODUCT.name),
            "at most",
            1.0,
        ),
    ]
    return out


def _over(result: CaseResult | None, above: str, below: str) -> float | None:
    timings: Mapping[str, Any] = {} if result is None else result.timings
    if above not in timings or below not in timings:
        return None
    return ratio(timings[above], timings[below]).median


def _seconds(result: CaseResult | None, row: str) -> float | None:
    if result is None or row not in result.timings:
        return None
    return result.timings[row].median


def _spread(result: CaseResult | None) -> float | None:
    """Return by how many percent the longest time per token exceeds the shortest."""
    if result is None:
        return None
    rows = [
        flat.row_name(flat.ROPEWALK, n) for n in flat.lengths_up_to(_FLAT_TO) if n >= _FLAT_FROM
    ]
    if not all(row in result.timings for row in rows):
        return None
    per_token = [result.timings[row].median / result.tokens[row] for row in rows]
    return 100 * (max(per_token) / min(per_token) - 1)
