"""Resonance RoPE: every wavelength a whole number of tokens, on top of another scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import InputError
from .base import Scaling
from .field import Array, Field
from .plain import Plain


@dataclass(frozen=True, kw_only=True, repr=False)
class Resonance(Scaling):
    """Frequency ``f`` of another scaling becomes ``2 pi / round(2 pi / f)``.

    A plane with a wavelength of w tokens, w whole, shows no angle at any position that it did
    not show at the positions below w: where w is at most the trained length (below the
    critical dimension), a longer text brings nothing new. With frequencies kept as 64-bit
    fractions of a turn, position m is off from position ``m mod w`` by exactly
    ``(m // w) * r / 2^64`` turns with ``r = w * round(2^64 / w) - 2^64``, so by at most
    ``m / 2^65``; by nothing where w is a power of 2.

    Halves round to the even number and nothing rounds below 1. A plane that stands still
    keeps standing. In single precision a wavelength next to a half may round the other way.

    Attributes:
        inner: the scaling whose wavelengths are rounded.

    Source: Wang et al. 2024, arXiv 2403.00071, section 4; sheryc/resonance_rope. Its variant
    for linear scaling rounds first and divides positions then, so wavelengths are no whole
    numbers there; here what is underneath comes first, always.
    """

    kind: ClassVar[str] = "resonance"
    inner: Scaling = Plain()  # noqa: RUF009 (a frozen value)

    def __post_init__(self) -> None:
        """Take the original length of what is underneath."""
        if isinstance(self.inner, dict):
            from . import scaling_from_dict

            object.__setattr__(self, "inner", scaling_from_dict(self.inner))
        if not isinstance(self.inner, Scaling):
            raise InputError(
                "resonance: inner",
                found=repr(self.inner),
                expected="a scaling",
                fix="leave it out for plain RoPE",
            )
        if self.original_length is None:
            object.__setattr__(self, "original_length", self.inner.original_length)
        super().__post_init__()

    @property
    def length_dependent(self) -> bool:  # type: ignore[override]
        """Whether what is underneath depends on the length."""
        return self.inner.length_dependent

    def check_rope(self, theta: float, rotary_dim: int) -> None:
        """Refuse what the scaling underneath refuses."""
        self.inner.check_rope(theta, rotary_dim)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        below = self.inner.frequencies(field, theta, rotary_dim, length)
        still = below == 0
        whole = field.round(2 * field.pi / field.where(still, below + 1, below))
        whole = field.where(whole < 1, whole * 0 + 1, whole)
        return field.where(still, below, 2 * field.pi / whole)

    def amplitude(self, length: int | None = None) -> float:
        """That of what is underneath."""
        return self.inner.amplitude(length)

    def effective_length(self, length: int | None) -> int | None:
        """That of what is underneath."""
        return self.inner.effective_length(length)

    @property
    def stretch(self) -> float:
        """That of what is underneath."""
        return self.inner.stretch

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, what is underneath within them."""
        out: dict[str, Any] = {"kind": self.kind, "inner": self.inner.to_dict()}
        if self.original_length != self.inner.original_length:
            out["original_length"] = self.original_length
        return out
