"""RoPE with other relative positions: ways to read long texts that leave the frequencies alone.

A rotary score depends on the distance between query and key. Distances beyond the trained
length were never seen, so these encodings map them to some that were: they clip them, count
them in groups, or cut the text into chunks. Nothing is trained. What each pair of positions
becomes is all that a method has to say (`Remapped.relative`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..rope import Rope
from ..scaling.base import check_factor, check_length
from .base import Encoding, FloatArray, Parameters, distances
from .rotary import turned


@dataclass(frozen=True, kw_only=True)
class Remapped(Encoding):
    """A rotary encoding whose relative positions are others than the distances.

    Attributes:
        rope: the rotary embedding, as it was trained.
    """

    rope: Rope

    @abstractmethod
    def relative(self, query_positions: Any, key_positions: Any) -> npt.NDArray[Any]:
        """Return the relative position of each pair, (queries, keys).

        Args:
            query_positions: whole numbers from 0 on, (queries,).
            key_positions: whole numbers from 0 on, (keys,).
        """

    def _scores(
        self,
        q: Any,
        k: Any,
        query_positions: Any,
        key_positions: Any,
        *,
        parameters: Parameters | None = None,
        length: int | None = None,
        scale: float | None = None,
    ) -> FloatArray:
        """Turn each query by the relative position of each pair; see `Encoding.scores`."""
        queries, keys = np.asarray(q, dtype=np.float64), np.asarray(k, dtype=np.float64)
        at, to = np.asarray(query_positions), np.asarray(key_positions)
        heads, count = keys.shape[:2]
        text = _text_length(at, to) if length is None else length
        factor = queries.shape[-1] ** -0.5 if scale is None else scale
        relative = self.relative(at, to)
        # Turned by nothing: the amplitude alone, which multiplies queries and keys.
        unturned = turned(self.rope, keys, np.zeros(count, dtype=np.int64), text)
        out = np.empty((heads, len(at), count))
        for row in range(len(at)):
            copies = np.repeat(queries[:, row : row + 1], count, axis=1)
            out[:, row] = (turned(self.rope, copies, relative[row], text) * unturned).sum(-1)
        return factor * out


def _text_length(query_positions: npt.NDArray[Any], key_positions: npt.NDArray[Any]) -> int:
    return int(max(query_positions.max(initial=0), key_positions.max(initial=0))) + 1


def _check_seen(where: str, largest: int, rope: Rope) -> None:
    """Refuse relative positions beyond those that the rope was trained or stretched for."""
    original = rope.original_length
    if original is not None and largest >= original * rope.scaling.stretch:
        raise InputError(
            where,
            found=f"relative positions up to {largest}",
            expected=f"all below {original * rope.scaling.stretch:g}, what the rope has seen",
            fix="use less, or state another original_length",
        )


@dataclass(frozen=True, kw_only=True)
class ReRoPE(Remapped):
    """ReRoPE: relative positions are clipped at a window; leaky ReRoPE slows them down there.

    For a distance ``d`` below the window the relative position is ``d``. From there on it is
    ``window``, or ``window + (d - window) / leak``, which is no whole number. The window is
    usually a quarter to a half of the trained length; often `LogN` goes with it.

    Attributes:
        window: tokens that keep their distance, at least 1.
        leak: how many times slower distances grow beyond the window, at least 1; None clips
            them. With 1 it is plain RoPE.

    Raises:
        InputError: a window or a leak outside its range, or a window beyond the length that
            the rope was trained on, where the rope states it.

    Source: Su 2023, https://kexue.fm/archives/9708; bojone/rerope (its ``scaling_factor`` is
    ``leak``). Its code takes the distance without its sign; here keys ahead of the query,
    which a causal mask hides, keep theirs.
    """

    kind: ClassVar[str] = "rerope"
    window: int
    leak: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no window and no leak."""
        check_length("rerope: window", self.window)
        if self.leak is not None:
            check_factor("rerope: leak", self.leak)
        _check_seen("rerope: window", self.window, self.rope)

    def relative(self, query_positions: Any, key_positions: Any) -> npt.NDArray[Any]:
        """See `Remapped.relative`; float64 where it leaks."""
        d = distances(query_positions, key_positions)
        slow = 0 if self.leak is None else (d - self.window) / self.leak
        return np.where(d < self.window, d, self.window + slow)


@dataclass(frozen=True, kw_only=True)
class SelfExtend(Remapped):
    """Self-Extend: neighbours keep their distance, what lies further back is counted in groups.

    Beyond the window the relative position of a query at m and a key at n is
    ``m // group - n // group + window - window // group``.

    Attributes:
        group: tokens that share a position beyond the window, at least 1. With 1 it is
            plain RoPE.
        window: tokens that keep their distance, at least 1.

    Raises:
        InputError: a group or a window that is no positive whole number, or a window beyond
            the length that the rope was trained on, where the rope states it.

    Source: Jin et al. 2024, arXiv 2401.01325, section 3; datamllab/LongLM. When reading a
    prompt, that code subtracts ``window / group`` without rounding, when decoding with
    rounding, as the paper does: the same where the group divides the window.
    """

    kind: ClassVar[str] = "self-extend"
    group: int
    window: int

    def __post_init__(self) -> None:
        """Refuse what is no group and no window."""
        for name in ("group", "window"):
            check_length(f"self-extend: {name}", getattr(self, name))
        _check_seen("self-extend: window", self.window, self.rope)

    @property
    def shift(self) -> int:
        """What is added to relative positions counted in groups."""
        return self.window - self.window // self.group

    def relative(self, query_positions: Any, key_positions: Any) -> npt.NDArray[Any]:
        """See `Remapped.relative`."""
        at, to = np.asarray(query_positions), np.asarray(key_positions)
        d = distances(at, to)
        grouped = distances(at // self.group, to // self.group) + self.shift
        return np.where(d < self.window, d, grouped)

    def reach(self, original_length: int) -> int:
        """Return the longest text, in tokens, with relative positions below the trained length.

        ``group * (original_length - shift)``; where the group divides the window, that is the
        paper's ``(original_length - window) * group + window``. With a window of at least the
        original length nothing is gained.
        """
        check_length("original_length", original_length)
        if self.window >= original_length:
            return original_length
        return self.group * (original_length - self.shift)


@dataclass(frozen=True, kw_only=True)
class DualChunk(Remapped):
    """Dual chunk attention: the text in chunks, within which positions start again at 0.

    A key at n turns by ``n mod chunk``, always. A query at m, with ``r = m mod chunk``, turns
    by ``r`` against keys of its own chunk, by ``min(r + chunk, chunk + local - 1)`` against
    the chunk before, and by ``chunk + local - 1`` against all earlier ones. Distances up to
    ``local`` come out exact, and no relative position exceeds ``chunk + local - 1``.

    Attributes:
        chunk: tokens of a chunk, the paper's s. Common code says ``chunk_size`` for
            ``chunk + local`` (ChunkLlama, vLLM, Qwen2.5-1M's config) and ``chunk_len`` for this.
        local: tokens that keep their distance across the border of two chunks, 1 to ``chunk``;
            the paper's w. ChunkLlama takes 1/16 of the trained length, and 3/4 of it for both
            together.

    Raises:
        InputError: sizes outside their range, or beyond the length that the rope was trained
            on, where the rope states it.

    Source: An et al. 2024, arXiv 2402.17463, section 3. The code of ChunkLlama and vLLM goes
    up to ``chunk + local``, one further.
    """

    kind: ClassVar[str] = "dual-chunk"
    chunk: int
    local: int

    def __post_init__(self) -> None:
        """Refuse what is no chunk and no local window."""
        for name in ("chunk", "local"):
            check_length(f"dual-chunk: {name}", getattr(self, name))
        if self.local > self.chunk:
            raise InputError(
                "dual-chunk: local",
                found=str(self.local),
                expected=f"at most the chunk, {self.chunk}",
                fix="neighbours further back than one chunk cannot be exact: use larger chunks",
            )
        _check_seen("dual-chunk: chunk + local", self.largest, self.rope)

    @property
    def largest(self) -> int:
        """The largest relative position."""
        return self.chunk + self.local - 1

    def relative(self, query_positions: Any, key_positions: Any) -> npt.NDArray[Any]:
        """See `Remapped.relative`."""
        at, to = np.asarray(query_positions), np.asarray(key_positions)
        chunks_back = distances(at // self.chunk, to // self.chunk)
        within = at % self.chunk
        intra = distances(within, to % self.chunk)
        successive = distances(np.minimum(within + self.chunk, self.largest), to % self.chunk)
        inter = distances(np.full_like(at, self.largest), to % self.chunk)
        return np.where(chunks_back < 1, intra, np.where(chunks_back == 1, successive, inter))
