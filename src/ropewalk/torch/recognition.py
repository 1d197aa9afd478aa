"""Recognising functions that rotate, by what they do.

Nothing is concluded from a name alone. A function whose parameters are called cos and sin is
called with random tables, and what it returns is compared with `ropewalk.rotate` for every way
to rotate that is known here; exactly one must fit. The tables are not of unit length, so that
neither a lost sine nor a swapped pair can hide.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal

import torch

from ..rotation.reference import rotate
from .rotary_tables import LAY


@dataclass(frozen=True)
class Arguments:
    """Where a function takes what.

    Attributes:
        turned: how many tensors it rotates: the first ones.
        cos, sin: the places of the tables; the same place where one complex tensor holds both.
    """

    turned: int
    cos: int
    sin: int

    @property
    def count(self) -> int:
        return max(self.cos, self.sin) + 1


# Parameter names from the first table on → where everything is. q and k may be called anything.
_ARGUMENTS: dict[tuple[str, ...], Arguments] = {
    ("*", "*", "cos", "sin"): Arguments(2, 2, 3),
    ("*", "*", "freqs_cis"): Arguments(2, 2, 2),
    ("*", "cos", "sin"): Arguments(1, 1, 2),
    ("*", "sin", "cos"): Arguments(1, 2, 1),
}
_TABLE_NAMES = frozenset(name for names in _ARGUMENTS for name in names if name != "*")
AXIS = "unsqueeze_dim"
"""The parameter that says which axis of q and k the tables lack."""


@dataclass(frozen=True)
class Frame:
    """The axes of q, k and of the tables in a call."""

    order: Literal["time_heads", "heads_time"]
    x: str
    table: str


_FRAMES = (
    Frame("heads_time", "bht", "bt"),
    Frame("time_heads", "bth", "bt"),
    # Towers that read one image after the other, without a batch axis.
    Frame("time_heads", "th", "t"),
    Frame("heads_time", "bht", "t"),
)
_SIZES = {"b": 2, "t": 5}
_HEADS = (3, 4)
_PLANES = 4


@dataclass(frozen=True)
class Turn:
    """One way to rotate.

    Attributes:
        pairing: as in `ropewalk.rotate`.
        inverse: whether it turns by the negative angles.
        gathers: whether it first moves the even lanes to the front and the odd lanes behind
            them, and leaves them there (DeepSeek-V3).
    """

    pairing: Literal["half", "adjacent"]
    inverse: bool
    gathers: bool

    def __str__(self) -> str:
        read = "adjacent lanes, written as halves" if self.gathers else f"{self.pairing} pairing"
        return f"{read}, turned backwards" if self.inverse else read


_TURNS = (
    *(Turn(p, inverse, False) for p in ("half", "adjacent") for inverse in (False, True)),
    *(Turn("half", inverse, True) for inverse in (False, True)),
)
# Where 2 * planes lanes lie in 12; the other 4 pass.
_PLACES: dict[str, int] = {"lead": 0, "tail": 4}


def gathered(x: Any) -> Any:
    """Return a copy with the even lanes in front and the odd lanes behind them."""
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).reshape(x.shape)


@dataclass(frozen=True)
class Recognised:
    """What a function does.

    Attributes:
        arguments: where it takes what.
        turns: layout of the tables → the way it rotates with them.
        orders: (``unsqueeze_dim`` or None, axes of x, axes of the tables) → order of the axes.
        place: the lanes it rotates where the tables are narrower than a head; None where it
            cannot.
        axis: the default of ``unsqueeze_dim``; None where there is no such parameter.
        keeps_dtype: whether tables of a wider dtype leave the dtype of x as it is.
    """

    arguments: Arguments
    turns: dict[str, Turn]
    orders: dict[tuple[int | None, int, int], str]
    place: Literal["lead", "tail"] | None
    axis: int | None
    keeps_dtype: bool


def arguments_of(function: Any) -> tuple[Arguments, dict[str, Any]] | None:
    """Return where a function takes q, k and tables, and its further parameters' defaults.

    None for what is no function of such arguments.
    """
    if not isinstance(function, FunctionType):
        # A function that a library has made into a callable module keeps the function there.
        function = vars(type(function)).get("__wrapped__")
        if not isinstance(function, FunctionType):
            return None
    code = function.__code__
    if not hasattr(function, "__wrapped__") and not _TABLE_NAMES & set(code.co_varnames):
        return None
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters]
    for wanted, arguments in _ARGUMENTS.items():
        rest = parameters[len(wanted) :]
        if (
            len(names) >= len(wanted)
            and all(
                a == b or (a == "*" and b not in _TABLE_NAMES)
                for a, b in zip(wanted, names, strict=False)
            )
            and all(p.default is not p.empty or p.kind == p.VAR_KEYWORD for p in rest)
        ):
            return arguments, {p.name: p.default for p in rest}
    return None


def takes_tables(function: Any) -> bool:
    """Tell whether a callable has parameters named as tables, in whatever places."""
    if not isinstance(function, FunctionType):
        function = vars(type(function)).get("__wrapped__")
    if not isinstance(function, FunctionType):
        return False
    names = set(inspect.signature(function).parameters)
    return {"cos", "sin"} <= names or any(name.startswith("freqs_ci") for name in names)


def recognise(function: Any) -> Recognised | str:
    """Find out how a function rotates, or why that is not known.

    Args:
        function: called with small random tensors on the CPU, without gradients.

    Returns:
        What it does, or the reason it is left alone, in words.
    """
    found = arguments_of(function)
    if found is None:
        return "takes other arguments than q, k, cos and sin"
    arguments, further = found
    probe = _Probe(function, arguments)
    axes: tuple[int | None, ...] = (1, 2) if AXIS in further else (None,)
    turns: dict[str, set[Turn]] = {}
    orders: dict[tuple[int | None, int, int], set[str]] = {}
    layouts = ("complex",) if arguments.cos == arguments.sin else ("tiled", "repeated", "single")
    with torch.no_grad():
        for layout, axis, frame in itertools.product(layouts, axes, _FRAMES):
            fitting = probe.fitting(layout, axis, frame)
            if fitting:
                turns.setdefault(layout, set()).update(fitting)
                key = (axis, len(frame.x) + 1, len(frame.table) + 1)
                orders.setdefault(key, set()).add(frame.order)
        if not turns:
            return "what it returns is no rotation that ropewalk knows"
        found_each = [len(t) for t in turns.values()] + [len(o) for o in orders.values()]
        if max(found_each) > 1:
            return "several ways to rotate fit what it returns"
        order = {key: names.pop() for key, names in orders.items()}
        turn = {layout: found.pop() for layout, found in turns.items()}
        wide, narrow = probe.dtypes(next(iter(turn)), order)
        if not narrow:
            return "it returns another dtype than it is given"
        place = probe.place(turn, order)
    return Recognised(arguments, turn, order, place, further.get(AXIS), wide)


class _Probe:
    """Calls of one function with random tensors."""

    def __init__(self, function: Any, arguments: Arguments) -> None:
        self._function, self._arguments = function, arguments
        # A generator of its own: the caller's random numbers stay what they were.
        generator = torch.Generator("cpu").manual_seed(0)

        def draw(shape: tuple[int, ...]) -> Any:
            return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

        self._draw = draw

    def _inputs(self, frame: Frame, width: int) -> tuple[list[Any], Any, Any]:
        xs = []
        for heads in _HEADS[: self._arguments.turned]:
            sizes = {**_SIZES, "h": heads}
            xs.append(self._draw((*(sizes[axis] for axis in frame.x), width)))
        shape = (*(_SIZES[axis] for axis in frame.table), _PLANES)
        return xs, self._draw(shape), self._draw(shape)

    def _call(self, xs: list[Any], tables: tuple[Any, ...], axis: int | None) -> list[Any] | None:
        """Return its results, or None where it fails or returns something else."""
        a = self._arguments
        places: dict[int, Any] = {i: x.clone() for i, x in enumerate(xs)}
        places[a.cos], places[a.sin] = tables[0], tables[-1]
        options = {} if axis is None else {AXIS: axis}
        try:
            out = self._function(*(places[i] for i in range(a.count)), **options)
        except Exception:  # anything may go wrong in a stranger's code that is fed wrong shapes
            return None
        results = list(out) if isinstance(out, tuple) else [out]
        fits = len(results) == len(xs) and all(
            isinstance(y, torch.Tensor) and y.shape == x.shape
            for x, y in zip(xs, results, strict=True)
        )
        return results if fits else None

    def fitting(self, layout: str, axis: int | None, frame: Frame) -> list[Turn]:
        """Return the ways to rotate that give what the function returns."""
        xs, cos, sin = self._inputs(frame, 2 * _PLANES)
        results = self._call(xs, LAY[layout](cos, sin), axis)
        if results is None:
            return []
        return [t for t in _TURNS if self._agrees(results, xs, cos, sin, t, frame.order, 0)]

    def place(self, turns: dict[str, Turn], orders: dict[Any, str]) -> Any:
        """Return which lanes are rotated where the tables are narrower than a head."""
        found = set()
        for layout, turn in turns.items():
            for frame, axis in self._known(orders):
                xs, cos, sin = self._inputs(frame, 2 * _PLANES + 4)
                results = self._call(xs, LAY[layout](cos, sin), axis)
                if results is None or turn.gathers:
                    return None
                fits = [
                    name
                    for name, offset in _PLACES.items()
                    if self._agrees(results, xs, cos, sin, turn, frame.order, offset)
                ]
                found.add(fits[0] if len(fits) == 1 else None)
        return found.pop() if len(found) == 1 else None

    def dtypes(self, layout: str, orders: dict[Any, str]) -> tuple[bool, bool]:
        """Tell whether bfloat16 stays bfloat16, with float32 and with bfloat16 tables."""
        frame, axis = next(self._known(orders))
        xs, cos, sin = self._inputs(frame, 2 * _PLANES)
        half = [x.to(torch.bfloat16) for x in xs]
        wide = LAY[layout](cos, sin)
        narrow = wide if layout == "complex" else tuple(t.to(torch.bfloat16) for t in wide)

        def kept(tables: tuple[Any, ...]) -> bool:
            out = self._call(half, tables, axis)
            return out is not None and all(y.dtype == torch.bfloat16 for y in out)

        return kept(wide), kept(narrow)

    def _known(self, orders: dict[Any, str]) -> Iterator[tuple[Frame, int | None]]:
        for frame in _FRAMES:
            for axis, x_axes, table_axes in orders:
                key = (axis, len(frame.x) + 1, len(frame.table) + 1)
                if key == (axis, x_axes, table_axes) and orders[key] == frame.order:
                    yield frame, axis

    @staticmethod
    def _agrees(
        results: list[Any], xs: list[Any], cos: Any, sin: Any, turn: Turn, order: Any, offset: int
    ) -> bool:
        for x, y in zip(xs, results, strict=True):
            ours = rotate(
                gathered(x) if turn.gathers else x,
                cos,
                sin,
                pairing=turn.pairing,
                order=order,
                rotary_offset=offset,
                inverse=turn.inverse,
            )
            # Two products and a sum, on either side: at most 3 roundings each, of values up to
            # twice the largest lane times the largest table entry.
            largest = x.abs().max() * torch.maximum(cos.abs().max(), sin.abs().max())
            if y.dtype != x.dtype or not (y - ours).abs().max() <= 6 * 2.0**-24 * 2 * largest:
                return False
        return True
