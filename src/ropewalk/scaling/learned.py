"""Learned frequencies: a trained factor for every plane, on top of another scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import InputError
from .base import Scaling, is_number
from .field import Array, Field
from .plain import Plain


@dataclass(frozen=True, kw_only=True, repr=False)
class Learned(Scaling):
    """Frequencies times ``exp(alpha)``, with an ``alpha`` for each plane (LeRoPE).

    ``alpha`` is a weight of the model, ``rotary_emb.alpha`` in Mistral Large 4; it is zero
    before training. A config holds no such values: they are read from the checkpoint.

    Attributes:
        alpha: one number per plane.
        under: the scaling whose frequencies are multiplied.

    Source: ``MistralLarge4TextRotaryEmbedding`` of transformers 5.24.0.
    """

    kind: ClassVar[str] = "learned"
    alpha: tuple[float, ...]
    under: Scaling = Plain()  # noqa: RUF009 (a frozen value)

    def __post_init__(self) -> None:
        """Take the original length of what is underneath; refuse what is no number."""
        if isinstance(self.under, dict):
            from . import scaling_from_dict

            object.__setattr__(self, "under", scaling_from_dict(self.under))
        if not isinstance(self.under, Scaling):
            raise InputError(
                "learned: under",
                found=repr(self.under),
                expected="a scaling",
                fix="leave it out for plain RoPE",
            )
        if self.original_length is None:
            object.__setattr__(self, "original_length", self.under.original_length)
        super().__post_init__()
        if not isinstance(self.alpha, tuple) or not all(is_number(a) for a in self.alpha):
            raise InputError(
                "learned: alpha",
                found=type(self.alpha).__name__,
                expected="a tuple of finite numbers, one per plane",
                fix="pass tuple(weight.tolist())",
            )

    @property
    def length_dependent(self) -> bool:  # type: ignore[override]
        """Whether what is underneath depends on the length."""
        return self.under.length_dependent

    def check_rope(self, theta: float, rotary_dim: int) -> None:
        """Refuse another number of values than planes."""
        if len(self.alpha) != rotary_dim // 2:
            raise InputError(
                "learned: alpha",
                found=f"{len(self.alpha)} values",
                expected=f"rotary_dim/2 = {rotary_dim // 2}",
                fix="pass the whole weight",
            )
        self.under.check_rope(theta, rotary_dim)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        below = self.under.frequencies(field, theta, rotary_dim, length)
        return below * field.exp(field.vector(self.alpha))

    def amplitude(self, length: int | None = None) -> float:
        """That of what is underneath."""
        return self.under.amplitude(length)

    def effective_length(self, length: int | None) -> int | None:
        """That of what is underneath."""
        return self.under.effective_length(length)

    @property
    def stretch(self) -> float:
        """That of what is underneath."""
        return self.under.stretch

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, what is underneath within them."""
        return {"kind": self.kind, "alpha": list(self.alpha), "under": self.under.to_dict()}
