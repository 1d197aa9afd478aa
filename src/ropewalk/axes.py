"""Ropes with several position axes: which axis turns which plane, and how fast.

A token of an image or a video has several positions: time, height, width. A multi-axis rope
gives every plane one of them, and a frequency, which is a rung of a ladder: the frequencies of a
one-axis `Rope`. M-RoPE hands the rungs of one ladder out to the axes; axial vision ropes give
each axis a ladder of its own.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .rope import PAIRINGS, FloatArray, Pairing, Precision, Rope
from .tables import cos_sin as table_of

Unit = Literal["index", "turn"]


@dataclass(frozen=True)
class Turn:
    """Where one plane's angle comes from.

    Attributes:
        axis: index of the position axis.
        rung: index of the frequency in the ladder; None for a plane that stands still.
        ladder: index of the ladder.
    """

    axis: int
    rung: int | None
    ladder: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class MultiAxisRope:
    """A rotary embedding of several position axes, as a value.

    Attributes:
        head_dim: size of one attention head, lanes.
        ladders: ropes whose frequencies are the rungs; only frequencies, scaling and attention
            factor of them count.
        planes: for each plane, its axis and its rung.
        axes: names of the position axes, e.g. ``("time", "height", "width")``.
        pairing: as in `Rope`, over the lanes of one block.
        rotary_offset: index of the first rotated lane.
        direction: as in `Rope`.
        blocks: the rotated lanes are this many equal blocks, each paired within itself.
        unit: ``index`` where positions count patches or tokens; ``turn`` where they are
            coordinates that are multiplied with 2π first (DINOv3).

    Raises:
        InputError: planes, axes or ladders that do not fit each other.
    """

    head_dim: int
    ladders: tuple[Rope, ...]
    planes: tuple[Turn, ...]
    axes: tuple[str, ...]
    pairing: Pairing = "half"
    rotary_offset: int = 0
    direction: Literal[1, -1] = 1
    blocks: int = 1
    unit: Unit = "index"

    def __post_init__(self) -> None:
        """Refuse what is no rope."""
        if self.pairing not in PAIRINGS:
            raise InputError(
                "pairing",
                found=repr(self.pairing),
                expected="'half' or 'adjacent'",
                fix="half is rotate_half, adjacent is GPT-J's",
            )
        if not self.planes or not self.ladders or not self.axes:
            raise InputError(
                "planes",
                found="an empty tuple of planes, ladders or axes",
                expected="at least one of each",
                fix="use sectioned, interleaved or axial of ropewalk.axis_layouts",
            )
        if self.rotary_offset + 2 * len(self.planes) > self.head_dim:
            raise InputError(
                "planes",
                found=f"{len(self.planes)} planes from lane {self.rotary_offset} on",
                expected=f"lanes within head_dim {self.head_dim}",
                fix="give two lanes for each plane",
            )
        if len(self.planes) % self.blocks:
            raise InputError(
                "blocks",
                found=f"{self.blocks} blocks for {len(self.planes)} planes",
                expected="blocks of equal size",
                fix="give a number that divides the planes",
            )
        for index, turn in enumerate(self.planes):
            in_ladder = 0 <= turn.ladder < len(self.ladders)
            in_rungs = turn.rung is None or (
                in_ladder and 0 <= turn.rung < self.ladders[turn.ladder].planes
            )
            if not (in_ladder and in_rungs and 0 <= turn.axis < len(self.axes)):
                raise InputError(
                    f"planes[{index}]",
                    found=repr(turn),
                    expected="an axis, a ladder and a rung that exist",
                    fix="check the sections against the number of planes",
                )

    @property
    def rotary_dim(self) -> int:
        """How many lanes are rotated."""
        return 2 * len(self.planes)

    @property
    def plane_axes(self) -> npt.NDArray[np.int32]:
        """The axis of each plane, (planes,), as `ropewalk.rotate` takes it."""
        return np.array([turn.axis for turn in self.planes], dtype=np.int32)

    def lanes(self, plane: int) -> tuple[int, int]:
        """Return the two lanes of the head that make one plane."""
        size = len(self.planes) // self.blocks
        start = self.rotary_offset + 2 * size * (plane // size)
        within = plane % size
        if self.pairing == "half":
            return start + within, start + within + size
        return start + 2 * within, start + 2 * within + 1

    def inv_freq(self, length: int | None = None) -> FloatArray:
        """Return each plane's angular frequency, correctly rounded to float64.

        Shape (planes,), radians per position of the plane's axis (for ``unit="turn"`` per 1/2π
        of its coordinate). The order is that of the planes, not of speed.
        """
        rungs = [ladder.inv_freq(length) for ladder in self.ladders]
        return np.array(
            [0.0 if t.rung is None else rungs[t.ladder][t.rung] for t in self.planes],
            dtype=np.float64,
        )

    def attention_factor(self, length: int | None = None) -> float:
        """Return the number that cos and sin are multiplied by."""
        return self.ladders[0].attention_factor(length)

    def cos_sin(
        self,
        positions: Any,
        *,
        length: int | None = None,
        precision: Precision = "exact",
        dtype: Any = None,
    ) -> tuple[Any, Any]:
        """Return cos and sin of every plane's angle.

        Args:
            positions: shape (axes, …), else as for `ropewalk.cos_sin`.
            length: as for `ropewalk.cos_sin`; by default the largest position plus one.
            precision: ``exact``, or ``float32`` for the arithmetic of transformers.
            dtype: dtype of the result.

        Returns:
            Two arrays of shape ``positions.shape[1:] + (planes,)``, in the library of the
            positions.

        Raises:
            InputError: positions without an axis in front for each axis of the rope.
        """
        positions = _stacked(positions)
        if len(positions.shape) < 1 or positions.shape[0] != len(self.axes):
            raise InputError(
                "positions",
                found=f"shape {tuple(positions.shape)}",
                expected=f"({len(self.axes)}, …), one row for each of {', '.join(self.axes)}",
                fix="stack the positions of the axes along a first axis",
            )
        if self.unit == "turn":
            positions = _in_turns(positions, precision)
        tables = [
            table_of(ladder, positions, length=length, precision=precision, dtype=dtype)
            for ladder in self.ladders
        ]
        cos = self._pick([t[0] for t in tables], still=1.0)
        sin = self._pick([t[1] for t in tables], still=0.0)
        return cos, sin if self.direction > 0 else -sin

    def table(self, rows: int, *, precision: Precision = "exact") -> tuple[Any, Any]:
        """Return tables (rows, planes) for ``ropewalk.rotate(positions=…, plane_axes=…)``.

        Row r holds every plane at position r of its own axis.
        """
        at = np.broadcast_to(np.arange(rows), (len(self.axes), rows))
        return self.cos_sin(at, precision=precision)

    def rotate(self, x: Any, cos: Any, sin: Any, **options: Any) -> Any:
        """Rotate queries or keys: `ropewalk.rotate`, block by block."""
        from .rotation import rotate

        size = len(self.planes) // self.blocks
        for block in range(self.blocks):
            planes = slice(block * size, (block + 1) * size)
            x = rotate(
                x,
                cos[..., planes],
                sin[..., planes],
                pairing=self.pairing,
                rotary_offset=self.rotary_offset + 2 * size * block,
                **options,
            )
        return x

    def on_text(self) -> Rope | None:
        """Return the one-axis rope that this is where all positions are equal.

        None where the planes are not the rungs of one ladder, each once and in order.
        """
        rungs = tuple((turn.ladder, turn.rung) for turn in self.planes)
        ladder = self.ladders[0]
        if rungs != tuple((0, i) for i in range(ladder.planes)) or self.blocks != 1:
            return None
        return dataclasses.replace(
            ladder,
            head_dim=self.head_dim,
            pairing=self.pairing,
            rotary_offset=self.rotary_offset,
            direction=self.direction,
        )

    def _pick(self, tables: list[Any], still: float) -> Any:
        """From (axes, …, rungs) per ladder to (…, planes)."""
        widths = [ladder.planes for ladder in self.ladders]
        starts = [sum(widths[:i]) * len(self.axes) for i in range(len(widths))]
        columns = len(self.axes) * sum(widths)
        index = [
            columns if t.rung is None else starts[t.ladder] + t.axis * widths[t.ladder] + t.rung
            for t in self.planes
        ]
        torch = _torch_of(tables[0])
        if torch is not None:
            flat = [t.movedim(0, -2).flatten(-2) for t in tables]
            if columns in index:
                flat.append(torch.full_like(flat[0][..., :1], still))
            return torch.cat(flat, dim=-1)[..., index]
        moved = [np.moveaxis(t, 0, -2) for t in map(_as_numpy, tables)]
        arrays = [t.reshape(*t.shape[:-2], -1) for t in moved]
        if columns in index:
            arrays.append(np.full_like(arrays[0][..., :1], still))
        picked = np.concatenate(arrays, axis=-1)[..., index]
        return _back(picked, tables[0])

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "head_dim": self.head_dim,
            "axes": list(self.axes),
            "ladders": [ladder.to_dict() for ladder in self.ladders],
            "plane_axes": [turn.axis for turn in self.planes],
            "plane_rungs": [turn.rung for turn in self.planes],
            "plane_ladders": [turn.ladder for turn in self.planes],
            "pairing": self.pairing,
            "rotary_offset": self.rotary_offset,
            "direction": self.direction,
            "blocks": self.blocks,
            "unit": self.unit,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MultiAxisRope:
        """Build the rope that `to_dict` wrote."""
        values = dict(data)
        try:
            turns = zip(
                values.pop("plane_axes"),
                values.pop("plane_rungs"),
                values.pop("plane_ladders"),
                strict=True,
            )
            return cls(
                ladders=tuple(Rope.from_dict(ladder) for ladder in values.pop("ladders")),
                planes=tuple(Turn(axis, rung, ladder) for axis, rung, ladder in turns),
                axes=tuple(values.pop("axes")),
                **values,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                "multi-axis rope",
                found=f"{type(error).__name__}: {error}",
                expected="an object with the fields of a multi-axis rope",
                fix="pass what to_dict wrote",
            ) from None

    def layout(self) -> str:
        """Say in a few words which axis turns which planes, e.g. ``time 24, height 20``."""
        counts = [
            f"{name} {sum(t.axis == i and t.rung is not None for t in self.planes)}"
            for i, name in enumerate(self.axes)
        ]
        order = [turn.axis for turn in self.planes]
        runs = 1 + sum(a != b for a, b in pairwise(order))
        how = "in sections" if runs <= len(self.axes) else "interleaved"
        return f"{', '.join(counts)} planes, {how}"

    def __repr__(self) -> str:
        """Show head size, axes and the first ladder."""
        return f"MultiAxisRope(head_dim={self.head_dim}, {self.layout()}, {self.ladders[0]!r})"


def _torch_of(table: Any) -> Any:
    import sys

    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(table, torch.Tensor) else None


def _as_numpy(table: Any) -> npt.NDArray[Any]:
    return np.asarray(table)


def _back(picked: npt.NDArray[Any], like: Any) -> Any:
    """Return an array in the library of ``like``."""
    if isinstance(like, np.ndarray):
        return picked
    import sys

    return sys.modules["jax"].numpy.asarray(picked)


def _stacked(positions: Any) -> Any:
    return positions if hasattr(positions, "shape") else np.asarray(positions)


def _in_turns(positions: Any, precision: Precision) -> Any:
    """Return coordinates times 2π: in double precision unless single is to be repeated."""
    torch = _torch_of(positions)
    if torch is not None:
        width = torch.float32 if precision == "float32" else torch.float64
        return 2 * math.pi * positions.to(width)
    wide = np.float32 if precision == "float32" else np.float64
    numbers: Any = np.asarray(positions).astype(wide)
    return 2 * math.pi * numbers
