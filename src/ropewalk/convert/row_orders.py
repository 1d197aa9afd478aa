"""Which rows of a stored tensor are lanes of queries and keys, and their order in a pairing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..rope import Pairing

Order = npt.NDArray[np.intp]
Role = Literal["query", "key", "other"]
Count = Literal["one", "all", "heads", "kv_heads", "group", "quarter"]


@dataclass(frozen=True)
class Lanes:
    """The lanes of one head: how many, the first that turns, and how many turn."""

    size: int
    offset: int
    rotated: int

    def order(self, to: Pairing) -> Order:
        """Return which old lane each new lane takes, from the other pairing to ``to``.

        From half to adjacent: new lanes 2i and 2i + 1 take old i and i + planes, counted from
        the first rotated lane; the others stay. This is the permutation of llama.cpp's and
        transformers' converters, here for the rotated lanes only.
        """
        order = np.arange(self.size)
        pairs = self.offset + np.arange(self.rotated).reshape(2, -1)
        if to == "adjacent":
            order[self.offset : self.offset + self.rotated] = pairs.T.reshape(-1)
        else:
            order[pairs.T.reshape(-1)] = pairs.reshape(-1)
        return order


@dataclass(frozen=True)
class Part:
    """A run of heads within the rows of a tensor.

    Attributes:
        role: whose lanes they are; ``other`` rows stay.
        count: how many heads: ``one``; ``all`` that fit; ``heads`` or ``kv_heads`` of the
            model; ``group`` query heads of one key head; ``quarter`` of the query heads.
        width: lanes of each: those of a ``head``; of a ``value`` head; of a head of the
            ``index``; the ``rope`` lanes alone; or ``rest``, what the other parts leave.
    """

    role: Role
    count: Count = "one"
    width: Literal["head", "value", "index", "rope", "rest"] = "head"


@dataclass(frozen=True)
class Form:
    """How queries and keys lie in the rows of one tensor: parts, one after the other.

    Attributes:
        parts: the run that is repeated.
        times: how often: ``one``, once per query head, per key head, or ``quarter``: four times.
    """

    parts: tuple[Part, ...]
    times: Literal["one", "heads", "kv_heads", "quarter"] = "one"


QUERY = Form((Part("query", "all"),))
KEY = Form((Part("key", "all"),))
GATED_QUERY = Form((Part("query"), Part("other")), times="heads")
"""Each query head followed by as many rows of a gate (Qwen 3 Next)."""
CONCATENATED = Form(
    (Part("query", "heads"), Part("key", "kv_heads"), Part("other", "kv_heads", "value"))
)
"""All queries, all keys, all values (Phi-3, ChatGLM, Qwen, GGUF)."""
GATE_FIRST = Form((Part("other", "heads"), *CONCATENATED.parts))
"""A gate as large as the queries, then as above (HRM)."""
PER_HEAD = Form((Part("query"), Part("key"), Part("other")), times="heads")
"""Query, key and value of one head after the other (GPT-NeoX, Persimmon)."""
PER_GROUP = Form((Part("query", "group"), Part("key"), Part("other")), times="kv_heads")
"""The queries of one key head, the key, the value (Falcon, InternLM2)."""
QUARTERS = Form(
    (Part("query", "quarter"), Part("other", "quarter"), Part("key", "quarter")), times="quarter"
)
"""Four times query, value, key of a quarter of the heads (CodeGen)."""
VALUE_GATED_QUERY = Form((Part("query"), Part("other", width="value")), times="heads")
"""Each query head followed by a gate for its values (A.X K2)."""
KEY_VALUE = Form((Part("key", "kv_heads"), Part("other", "kv_heads", "value")))
"""All keys, all values (JetMoe)."""
LATENT_KEY_NORM = Form((Part("key", "one", "rope"),))
"""The norm of the rotated key that all heads share (dots3)."""
INDEX_QUERY = Form((Part("query", "all", "index"),))
INDEX_KEY = Form((Part("key", "one", "index"),))
"""Queries and the one key of an indexer, which are never those of the attention."""
LATENT_KEY = Form((Part("other", "one", "rest"), Part("key", "one", "rope")))
"""The compressed latent, then the rotated key that all heads share (DeepSeek)."""


# Models have at most some hundreds.
_MOST_HEADS = 2**16


@dataclass(frozen=True)
class Sizes:
    """What a form needs to know of a layer; counts are None where the file does not say.

    ``index`` are the lanes of an indexer's heads, None where there is none.
    """

    lanes: Lanes
    heads: int | None
    kv_heads: int | None
    value: int
    index: Lanes | None = None


@dataclass(frozen=True)
class HeadRows:
    """One head within a tensor: whose it is, its first row, its lanes."""

    role: Role
    start: int
    lanes: Lanes


def _bounded(count: int, where: str) -> int:
    """Return a number of heads; a tensor without columns may claim any number of rows."""
    if count > _MOST_HEADS:
        raise InputError(
            where,
            found=f"{count} heads",
            expected=f"at most {_MOST_HEADS}",
            fix="check head counts against the weights",
        )
    return count


def heads_in(form: Form, rows: int, sizes: Sizes, where: str) -> list[HeadRows]:
    """Return the query and key heads in a tensor's rows.

    Args:
        form: how they lie.
        rows: of the tensor.
        sizes: of the layer.
        where: the tensor, for the error.

    Raises:
        InputError: rows that are not as many as the heads make.
    """
    found: list[HeadRows] = []
    at = 0
    for _ in range(_bounded(_times(form, sizes, where), where)):
        for part in form.parts:
            lanes = _lanes(part, rows, sizes, where)
            for _ in range(_bounded(_count(part, rows, lanes, sizes, where), where)):
                if part.role != "other":
                    found.append(HeadRows(part.role, at, lanes))
                at += lanes.size
    if at != rows:
        raise InputError(
            where,
            found=f"{rows} rows",
            expected=f"{at}, from the heads that the config gives",
            fix="check head counts and head_dim against the weights",
        )
    return found


def row_order(heads: list[HeadRows], rows: int, to: Pairing) -> Order:
    """Return which old row each new row takes."""
    order = np.arange(rows)
    for head in heads:
        order[head.start : head.start + head.lanes.size] = head.start + head.lanes.order(to)
    return order


def _number(count: Count, sizes: Sizes, where: str) -> int:
    if count == "one":
        return 1
    heads, kv_heads = sizes.heads, sizes.kv_heads
    if heads is None or kv_heads is None or heads % kv_heads:
        raise InputError(
            where,
            found=f"{heads} query and {kv_heads} key heads",
            expected="both counts, the second a divisor of the first",
            fix="correct the config: rows of a fused tensor are told apart by them",
        )
    if count == "quarter" and heads % 4:
        raise InputError(
            where,
            found=f"{heads} heads",
            expected="a multiple of 4, as the family's rows lie in four parts",
            fix="correct the config",
        )
    return {"heads": heads, "kv_heads": kv_heads, "group": heads // kv_heads}.get(count, heads // 4)


def _times(form: Form, sizes: Sizes, where: str) -> int:
    return 4 if form.times == "quarter" else _number(form.times, sizes, where)


def _count(part: Part, rows: int, lanes: Lanes, sizes: Sizes, where: str) -> int:
    if part.count == "all":
        return rows // lanes.size
    return _number(part.count, sizes, where)


def _lanes(part: Part, rows: int, sizes: Sizes, where: str) -> Lanes:
    if part.width == "index":
        if sizes.index is None:
            raise InputError(
                where,
                found="an indexer, and no index_head_dim",
                expected="index_head_dim in the config",
                fix="add it: its rows are told apart by it",
            )
        return sizes.index
    if part.width == "rope":
        return Lanes(sizes.lanes.rotated, 0, sizes.lanes.rotated)
    if part.width == "value":
        return Lanes(sizes.value, 0, 0)
    if part.width == "rest":
        return Lanes(max(rows - sizes.lanes.rotated, 0), 0, 0)
    return sizes.lanes
