"""One rotary embedding, fully described."""

from __future__ import annotations

import dataclasses
import decimal
import functools
import json
import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .scaling import Plain, Scaling, scaling_from_dict
from .scaling.base import check_text, is_number
from .scaling.field import Array, Exact, Field, exact_arithmetic

Pairing = Literal["half", "adjacent"]
Precision = Literal["exact", "float32"]
FloatArray = npt.NDArray[np.float64]

PAIRINGS: tuple[Pairing, ...] = ("half", "adjacent")
MOST_LANES = 2**12
"""Lanes of a head; models have at most some hundreds. Bounds the work that a file can ask for."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Rope:
    """A one-axis rotary embedding as a value: hashable, comparable, printable.

    Example:
        >>> Rope(head_dim=128, theta=1e6, scaling=YaRN(factor=4, original_length=32768))
        Rope(head_dim=128, theta=1000000, scaling=YaRN(original_length=32768, factor=4))

    Attributes:
        head_dim: size of one attention head, lanes.
        rotary_dim: how many lanes are rotated, even; by default all.
        theta: base of the frequencies.
        pairing: ``half`` turns lane i with lane i + rotary_dim/2 (GPT-NeoX, Llama files of
            transformers); ``adjacent`` turns lane 2i with 2i+1 (GPT-J, Meta's files, GGUF's
            llama files).
        scaling: how it is stretched past the original length.
        rotary_offset: index of the first rotated lane; 0 but for tails and slices.
        direction: +1 turns by +angle; -1 by -angle (nanochat). Scores are equal, stored keys
            are not.

    Raises:
        InputError: a value outside its range, or a scaling that does not fit the rope.
    """

    head_dim: int
    rotary_dim: int = cast("int", None)
    theta: float = 10000.0
    pairing: Pairing = "half"
    scaling: Scaling = dataclasses.field(default_factory=Plain)
    rotary_offset: int = 0
    direction: Literal[1, -1] = 1

    def __post_init__(self) -> None:
        """Fill in rotary_dim and refuse what is no rope."""
        if not _is_whole(self.head_dim) or self.head_dim < 2:
            raise InputError(
                "head_dim",
                found=repr(self.head_dim),
                expected="a number of lanes, at least 2",
                fix="give the size of one attention head, e.g. 128",
            )
        if self.head_dim > MOST_LANES:
            raise InputError(
                "head_dim",
                found=str(self.head_dim)[:40],
                expected=f"at most {MOST_LANES} lanes",
                fix="give the size of one attention head, e.g. 128",
            )
        if self.rotary_dim is None:
            object.__setattr__(self, "rotary_dim", self.head_dim)
        if not _is_whole(self.rotary_dim) or self.rotary_dim < 2 or self.rotary_dim % 2:
            raise InputError(
                "rotary_dim",
                found=f"{self.rotary_dim!r} (head_dim {self.head_dim})",
                expected="an even number of lanes, at least 2",
                fix="check head_dim and partial_rotary_factor",
            )
        if not _is_whole(self.rotary_offset) or self.rotary_offset < 0:
            raise InputError(
                "rotary_offset",
                found=repr(self.rotary_offset),
                expected="the index of a lane, 0 or above",
                fix="give the first rotated lane",
            )
        if self.rotary_offset + self.rotary_dim > self.head_dim:
            raise InputError(
                "rotary_dim",
                found=f"lanes {self.rotary_offset}..{self.rotary_offset + self.rotary_dim - 1}",
                expected=f"lanes within head_dim {self.head_dim}",
                fix="lower rotary_dim or rotary_offset",
            )
        if not is_number(self.theta) or self.theta <= 0:
            raise InputError(
                "theta",
                found=repr(self.theta),
                expected="a positive number",
                fix="give the base, e.g. 10000",
            )
        if self.pairing not in PAIRINGS:
            raise InputError(
                "pairing",
                found=repr(self.pairing),
                expected="'half' or 'adjacent'",
                fix="half is NeoX or rotate_half, adjacent is GPT-J or interleaved",
            )
        if not _is_whole(self.direction) or self.direction not in (1, -1):
            raise InputError(
                "direction", found=repr(self.direction), expected="1 or -1", fix="use 1"
            )
        if not isinstance(self.scaling, Scaling):
            raise InputError(
                "scaling",
                found=repr(self.scaling),
                expected="a scaling of ropewalk.scaling",
                fix="use e.g. Linear(factor=4)",
            )
        self.scaling.check_rope(self.theta, self.rotary_dim)

    @property
    def planes(self) -> int:
        """Number of planes: rotary_dim / 2."""
        return self.rotary_dim // 2

    @property
    def original_length(self) -> int | None:
        """The length the model was trained on, where known."""
        return self.scaling.original_length

    def lanes(self, plane: int) -> tuple[int, int]:
        """Return the two lanes of the head that make one plane."""
        start = self.rotary_offset
        if self.pairing == "half":
            return start + plane, start + plane + self.planes
        return start + 2 * plane, start + 2 * plane + 1

    def inv_freq(self, length: int | None = None) -> FloatArray:
        """Return each plane's angular frequency, correctly rounded to float64.

        Args:
            length: tokens of the text at hand; matters to dynamic NTK and LongRoPE only,
                where None means a text within the original length.

        Returns:
            Shape (planes,), radians per token, index 0 the fastest. Read-only.
        """
        return _inv_freq(self, self.scaling.effective_length(check_text(length)))

    def turn_fractions(self, length: int | None = None) -> npt.NDArray[np.uint64]:
        """Return each plane's frequency as a 64-bit fraction of a turn per token.

        Shape (planes,). Multiplying by an integer position in unsigned 64-bit arithmetic
        drops whole turns by itself. Off from the true frequency by at most 2^-65 turns.
        """
        return _turn_fractions(self, self.scaling.effective_length(check_text(length)))

    def attention_factor(self, length: int | None = None) -> float:
        """Return the number that cos and sin are multiplied by."""
        return self.scaling.amplitude(check_text(length))

    def frequencies_in(self, field: Field, length: int | None = None) -> Array:
        """Return the frequencies computed in the arithmetic of ``field``; see `scaling.field`."""
        return self.scaling.frequencies(field, self.theta, self.rotary_dim, check_text(length))

    def cos_sin(
        self,
        positions: Any,
        *,
        length: int | None = None,
        precision: Precision = "exact",
        dtype: Any = None,
    ) -> tuple[Any, Any]:
        """Return cos and sin at the given positions; see `ropewalk.tables.cos_sin`."""
        from .tables import cos_sin

        return cos_sin(self, positions, length=length, precision=precision, dtype=dtype)

    def with_scaling(self, scaling: Scaling) -> Rope:
        """Return the same rope, stretched another way."""
        return dataclasses.replace(self, scaling=scaling)

    def describe(self, length: int | None = None) -> tuple[Plane, ...]:
        """Name each plane's lanes, wavelength, turns over the original length, and band."""
        original = self.original_length
        plain = self.with_scaling(Plain()).inv_freq()
        out = []
        for index, (scaled, unscaled) in enumerate(
            zip(self.inv_freq(length).tolist(), plain.tolist(), strict=True)
        ):
            out.append(
                Plane(
                    index=index,
                    lanes=self.lanes(index),
                    inv_freq=scaled,
                    wavelength=2 * math.pi / scaled if scaled else math.inf,
                    turns=None if original is None else original * unscaled / (2 * math.pi),
                    kept=scaled / unscaled,
                    band=_band(scaled / unscaled, self.scaling.stretch),
                )
            )
        return tuple(out)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "head_dim": self.head_dim,
            "rotary_dim": self.rotary_dim,
            "theta": self.theta,
            "pairing": self.pairing,
            "rotary_offset": self.rotary_offset,
            "direction": self.direction,
            "scaling": self.scaling.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Rope:
        """Build the rope that `to_dict` wrote; unknown fields are refused."""
        if not isinstance(data, dict):
            raise InputError(
                "rope",
                found=repr(data),
                expected="an object with the fields of a rope",
                fix="pass what to_dict or to_json wrote",
            )
        known = {f.name for f in dataclasses.fields(cls)}
        for name in data:
            if name not in known:
                raise InputError(
                    f"rope: {name}",
                    found="an unknown field",
                    expected="one of " + ", ".join(sorted(known)),
                    fix="remove it or correct its name",
                )
        values = dict(data)
        if "head_dim" not in values:
            raise InputError(
                "rope: head_dim", found="nothing", expected="a number", fix="add the field"
            )
        if "scaling" in values:
            values["scaling"] = scaling_from_dict(values["scaling"])
        return cls(**values)

    def to_json(self) -> str:
        """Return the rope as one line of JSON; `from_json` gives an equal rope."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Rope:
        """Build the rope that `to_json` wrote."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InputError(
                "rope",
                found=f"text that is no JSON ({error})",
                expected="one JSON object",
                fix="pass what to_json wrote",
            ) from error
        return cls.from_dict(data)

    def __repr__(self) -> str:
        """Show the fields that differ from their defaults."""
        parts = [f"head_dim={self.head_dim}"]
        if self.rotary_dim != self.head_dim:
            parts.append(f"rotary_dim={self.rotary_dim}")
        short = f"{self.theta:.15g}"
        parts.append(f"theta={short if float(short) == self.theta else repr(self.theta)}")
        for name, default in (("pairing", "half"), ("rotary_offset", 0), ("direction", 1)):
            value = getattr(self, name)
            if value != default:
                parts.append(f"{name}={value!r}")
        if self.scaling != Plain():
            parts.append(f"scaling={self.scaling!r}")
        return f"Rope({', '.join(parts)})"


Band = Literal["kept", "blended", "interpolated", "still"]


@dataclass(frozen=True)
class Plane:
    """One plane of a rope, in words and numbers.

    Attributes:
        index: 0 is the fastest.
        lanes: the two lanes of the head that it turns.
        inv_freq: radians per token, after scaling.
        wavelength: tokens per turn, after scaling; infinite for a plane that stands still.
        turns: turns over the original length, before scaling; None where that is unknown.
        kept: frequency after scaling / before.
        band: ``kept`` (unchanged), ``interpolated`` (divided by the full stretch),
            ``blended`` (between, or beyond), ``still`` (frequency zero).
    """

    index: int
    lanes: tuple[int, int]
    inv_freq: float
    wavelength: float
    turns: float | None
    kept: float
    band: Band


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _band(kept: float, stretch: float) -> Band:
    rounding = 1e-12
    if kept == 0:
        return "still"
    if abs(kept - 1) <= rounding:
        return "kept"
    if abs(kept * stretch - 1) <= rounding:
        return "interpolated"
    return "blended"


def _exact(rope: Rope, length: int | None) -> Array:
    with exact_arithmetic():
        return rope.frequencies_in(Exact(), length)


@functools.lru_cache(maxsize=1024)
def _inv_freq(rope: Rope, length: int | None) -> FloatArray:
    out = np.array([float(f) for f in _exact(rope, length)], dtype=np.float64)
    out.setflags(write=False)
    return out


@functools.lru_cache(maxsize=1024)
def _turn_fractions(rope: Rope, length: int | None) -> npt.NDArray[np.uint64]:
    with exact_arithmetic():
        turn = 2 * Exact().pi
        fractions = [
            int((f / turn * 2**64).to_integral_value(decimal.ROUND_HALF_EVEN)) % 2**64
            for f in _exact(rope, length)
        ]
    out = np.array(fractions, dtype=np.uint64)
    out.setflags(write=False)
    return out
