"""LongRoPE: one searched divisor per plane, one list for short texts and one for long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..errors import InputError
from .base import Scaling, check_factor, check_positive, is_number, require_original_length
from .field import Array, Field


@dataclass(frozen=True, kw_only=True, repr=False)
class LongRoPE(Scaling):
    """LongRoPE: frequency ``i`` divided by ``short_factor[i]`` or ``long_factor[i]``.

    Texts up to the original length use the short list, longer ones the long list: with an
    original length of 4096, 4096 tokens are short and 4097 long. One text must not mix the
    two; a cache filled with short keys is wrong once the text grows long.

    cos and sin are multiplied by ``attention_factor`` as given, by
    ``short_mscale`` / ``long_mscale`` where a model has them (Phi-MoE), or else by
    ``sqrt(1 + ln(factor) / ln(original_length))``, 1 for factors up to 1.

    Source: Ding et al. 2024, LongRoPE, arXiv 2402.13753; the amplitude from Phi-3's code.
    Valid for positive lists of rotary_dim/2 values each.
    """

    kind: ClassVar[str] = "longrope"
    length_dependent: ClassVar[bool] = True
    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    factor: float = 1.0
    attention_factor: float | None = None
    short_mscale: float | None = None
    long_mscale: float | None = None

    def __post_init__(self) -> None:
        """Refuse lists that are no positive numbers, and a missing original length."""
        super().__post_init__()
        require_original_length(self)
        if self.original_length == 1:
            # The amplitude divides by the logarithm of the length.
            raise InputError(
                "longrope: original_length",
                found="1",
                expected="a trained length of at least 2 tokens",
                fix="give the trained length, e.g. 4096",
            )
        check_factor("longrope: factor", self.factor)
        for name in ("short_factor", "long_factor"):
            values = getattr(self, name)
            if not isinstance(values, list | tuple):
                raise InputError(
                    f"longrope: {name}",
                    found=repr(values),
                    expected="a list with one positive number per plane",
                    fix="take the list from the model's own config",
                )
            values = tuple(values)
            object.__setattr__(self, name, values)
            for index, value in enumerate(values):
                if not is_number(value) or value <= 0:
                    raise InputError(
                        f"longrope: {name}[{index}]",
                        found=repr(value),
                        expected="a positive number",
                        fix="take the list from the model's own config",
                    )
        for name in ("attention_factor", "short_mscale", "long_mscale"):
            value = getattr(self, name)
            if value is not None:
                check_positive(f"longrope: {name}", value)

    def check_rope(self, theta: float, rotary_dim: int) -> None:
        """Refuse lists that do not have one value per plane."""
        for name in ("short_factor", "long_factor"):
            count = len(getattr(self, name))
            if count != rotary_dim // 2:
                raise InputError(
                    f"longrope: {name}",
                    found=f"{count} values",
                    expected=f"rotary_dim/2 = {rotary_dim // 2}",
                    fix="check partial_rotary_factor and the list's length",
                )

    def is_long(self, length: int | None) -> bool:
        """Tell whether a text of ``length`` tokens uses the long list; None counts as short."""
        return length is not None and length > require_original_length(self)

    def effective_length(self, length: int | None) -> int:
        """The original length for short texts, one more for long ones."""
        return require_original_length(self) + int(self.is_long(length))

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        divisors = field.vector(self.long_factor if self.is_long(length) else self.short_factor)
        exponents = field.arange(rotary_dim, 2) / rotary_dim
        return 1 / (divisors * field.power(field.number(theta), exponents))

    def amplitude(self, length: int | None = None) -> float:
        """The number that cos and sin are multiplied by."""
        by_list = self.long_mscale if self.is_long(length) else self.short_mscale
        if by_list is not None:
            return float(by_list)
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(require_original_length(self)))

    @property
    def stretch(self) -> float:
        """The factor."""
        return float(self.factor)
