"""Qwen-1's dynamic NTK: the base grows in steps, each time the text doubles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import Scaling, require_original_length
from .field import Array, Field, ladder
from .ntk import check_two_planes, stretched_base


@dataclass(frozen=True, kw_only=True, repr=False)
class SteppedNTK(Scaling):
    """NTK-aware scaling by 1, 3, 7, 15 … as the text reaches once, twice, four times the length.

    With ``L`` the original length and ``l`` the length at hand, the base is
    ``theta * a^(d/(d-2))`` with ``a = max(2^ceil(log2(l/L) + 1) - 1, 1)``: plain RoPE, exactly,
    for ``l <= L``; 3 up to ``2 L``; 7 up to ``4 L``. Not to be confused with `DynamicNTK`,
    whose base grows with every token.

    Qwen's code chooses ``a`` by the length of the prompt and keeps it while it generates: keys
    cached at one step do not fit queries at another.

    Source: ``get_ntk_alpha`` and ``RotaryEmbedding`` of Qwen-1's ``modeling_qwen.py``
    (``use_dynamic_ntk``). There the logarithm is one of float64; here the step is found in
    whole numbers.
    """

    kind: ClassVar[str] = "stepped-ntk"
    length_dependent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a missing original length."""
        super().__post_init__()
        require_original_length(self)

    def check_rope(self, theta: float, rotary_dim: int) -> None:
        """Refuse a rope of one plane."""
        check_two_planes(self.kind, rotary_dim)

    def alpha(self, length: int | None = None) -> int:
        """Return the stretch at a text of ``length`` tokens: 1, 3, 7, 15, and so on."""
        return (2 << self._doublings(length)) - 1

    def _doublings(self, length: int | None) -> int:
        """Return how often the original length must double to hold the text."""
        original = require_original_length(self)
        if length is None or length <= original:
            return 0
        return (-(-length // original) - 1).bit_length()

    def effective_length(self, length: int | None) -> int:
        """The longest text that has the same frequencies."""
        return require_original_length(self) << self._doublings(length)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        alpha = self.alpha(length)
        if alpha == 1:
            return ladder(field, field.number(theta), rotary_dim)
        base = stretched_base(field, theta, rotary_dim, field.number(alpha))
        return ladder(field, base, rotary_dim)
