"""What every way of stretching a rope has in common."""

from __future__ import annotations

import dataclasses
import math
import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, SupportsIndex

from ..errors import InputError
from .field import Array, Field

JsonValue = Any


@dataclass(frozen=True, kw_only=True)
class Scaling(ABC):
    """A way to stretch a rope past its original length.

    A frozen value: equal fields mean equal scalings, and the hash follows. Subclasses give
    the frequencies as a formula over a number field, so that the exact and the single
    precision values come from one text.

    Attributes:
        original_length: tokens the model was trained on before any stretching, or None
            where it is unknown and the formula does not need it.
    """

    kind: ClassVar[str]
    """The name in JSON and on the command line."""
    length_dependent: ClassVar[bool] = False
    """Whether the frequencies depend on the length of the text at hand."""

    original_length: int | None = None

    def __post_init__(self) -> None:
        """Refuse values outside the valid range; subclasses add their own checks."""
        if self.original_length is not None:
            check_length(f"{self.kind}: original_length", self.original_length)

    @abstractmethod
    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """Return the angular frequency of each plane in ``field``.

        Args:
            field: the arithmetic to compute in.
            theta: base of the frequencies.
            rotary_dim: number of rotated lanes; twice the number of planes.
            length: tokens of the text at hand; matters where ``length_dependent``.

        Returns:
            Shape (rotary_dim/2,), radians per token, index 0 the fastest.
        """

    def amplitude(self, length: int | None = None) -> float:
        """The number that cos and sin are multiplied by; 1.0 unless the scaling says else."""
        return 1.0

    def check_rope(self, theta: float, rotary_dim: int) -> None:  # noqa: B027 (most take any)
        """Refuse a rope that this scaling cannot stretch. Most take any."""

    def effective_length(self, length: int | None) -> int | None:
        """Return a number equal for all lengths that share frequencies; a cache key.

        None for scalings that do not depend on the length.
        """
        return None

    @property
    def stretch(self) -> float:
        """How many times longer than the original length this scaling aims at."""
        return 1.0

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the fields as JSON values; ``kind`` names the scaling."""
        out: dict[str, JsonValue] = {"kind": self.kind}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                out[item.name] = list(value) if isinstance(value, tuple) else value
        return out

    def __repr__(self) -> str:
        """Show the fields that differ from their defaults, long lists shortened."""
        parts = []
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value == item.default:
                continue
            if isinstance(value, tuple) and len(value) > 4:
                shown = ", ".join(f"{v:g}" for v in value[:2])
                parts.append(f"{item.name}=({shown}, … {value[-1]:g}; {len(value)} values)")
            elif isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
                parts.append(f"{item.name}={int(value)}")
            else:
                parts.append(f"{item.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


def is_number(value: object) -> bool:
    """Tell whether the value is a finite int or float, and no bool."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of float
        return False


def check_length(where: str, value: object) -> None:
    """Refuse anything but a positive whole number of tokens."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= 2**53:  # type: ignore[operator]
        raise InputError(
            where,
            found=repr(value)[:40],
            expected="a positive whole number of tokens",
            fix="give the trained length, e.g. 4096",
        )


def check_text(length: object) -> int | None:
    """Return the length of the text at hand, or refuse what is no number of tokens."""
    if length is None:
        return None
    whole = isinstance(length, SupportsIndex) and not isinstance(length, bool)
    if not whole or (tokens := operator.index(length)) < 0:  # type: ignore[arg-type]
        raise InputError(
            "length",
            found=repr(length),
            expected="a whole number of tokens, 0 or above",
            fix="give the number of tokens in the text, or None",
        )
    return tokens


def check_factor(where: str, value: object) -> None:
    """Refuse a stretch factor below 1 or not a number."""
    if not is_number(value) or value < 1:  # type: ignore[operator]
        raise InputError(
            where,
            found=repr(value),
            expected="a number of at least 1",
            fix="use target length / original length",
        )


def check_positive(where: str, value: object) -> None:
    """Refuse anything but a positive finite number."""
    if not is_number(value) or value <= 0:  # type: ignore[operator]
        raise InputError(
            where,
            found=repr(value),
            expected="a positive number",
            fix="correct the value or leave the field out",
        )


def require_original_length(scaling: Scaling) -> int:
    """Return the original length of a scaling whose formula needs it, or refuse."""
    if scaling.original_length is None:
        raise InputError(
            f"{scaling.kind}: original_length",
            found="nothing",
            expected="the length the model was trained on",
            fix="pass original_length=…",
        )
    return scaling.original_length
