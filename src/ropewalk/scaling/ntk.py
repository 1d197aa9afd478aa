"""NTK-aware scaling: a larger base, fixed or growing with the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import InputError
from .base import Scaling, check_factor, check_positive, require_original_length
from .field import Array, Field, ladder


def stretched_base(field: Field, theta: float, rotary_dim: int, stretch: Any) -> Any:
    """Return ``theta * stretch^(d/(d-2))``: the slowest plane slows down by ``stretch`` exactly.

    Source: bloc97 2023, "NTK-Aware Scaled RoPE"; derivation in Peng et al. 2023, YaRN,
    arXiv 2309.00071, section 3.1. ``stretch`` is a scalar of the field.
    """
    exponent = field.number(rotary_dim) / (rotary_dim - 2)
    return field.number(theta) * field.scalar_power(stretch, exponent)


def ntk_base(theta: float, factor: float, rotary_dim: int) -> float:
    """Return the base that `NTK` with this factor computes with.

    exllama and text-generation-webui call the factor "alpha". It applies to the model's own
    theta: an alpha that was chosen for 10000 doubles up once a loader reads 1000000.

    Args:
        theta: base of the model.
        factor: the stretch, at least 1.
        rotary_dim: number of rotated lanes, at least 4.

    Raises:
        InputError: a value outside its range.
    """
    check_positive("theta", theta)
    check_factor("factor", factor)
    check_two_planes("ntk", rotary_dim)
    return float(theta * factor ** (rotary_dim / (rotary_dim - 2)))


def ntk_factor(theta: float, base: float, rotary_dim: int) -> float:
    """Return the factor ("alpha") with which `ntk_base` gives ``base``.

    The inverse, ``(base / theta)^((d-2)/d)``, for tools that take an alpha only.

    Raises:
        InputError: a value outside its range, or a base below theta.
    """
    check_positive("theta", theta)
    check_positive("base", base)
    check_two_planes("ntk", rotary_dim)
    if base < theta:
        raise InputError(
            "base",
            found=f"{base:g}, with theta {theta:g}",
            expected="a base no smaller than theta",
            fix="a smaller base turns faster: it shortens the context",
        )
    return float((base / theta) ** ((rotary_dim - 2) / rotary_dim))


def check_two_planes(kind: str, rotary_dim: int) -> None:
    """Refuse a rope of a single plane, for which the exponent d/(d-2) is undefined."""
    if rotary_dim < 4:
        raise InputError(
            f"{kind}: rotary_dim",
            found=str(rotary_dim),
            expected="at least 4, because the exponent is d/(d-2)",
            fix="use linear for a rope of one plane",
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class NTK(Scaling):
    """NTK-aware scaling with a fixed factor.

    The fastest plane keeps its frequency, the slowest is divided by ``factor``, those
    between follow from the new base. Not to be confused with `NTKCritical`, which is also
    called NTK. Valid for ``factor >= 1`` and ``rotary_dim >= 4``.
    """

    kind: ClassVar[str] = "ntk"
    factor: float

    def __post_init__(self) -> None:
        """Refuse a factor below 1."""
        super().__post_init__()
        check_factor("ntk: factor", self.factor)

    def check_rope(self, theta: float, rotary_dim: int) -> None:
        """Refuse a rope of one plane."""
        check_two_planes(self.kind, rotary_dim)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        base = stretched_base(field, theta, rotary_dim, field.number(self.factor))
        return ladder(field, base, rotary_dim)

    @property
    def stretch(self) -> float:
        """The factor."""
        return float(self.factor)


@dataclass(frozen=True, kw_only=True, repr=False)
class DynamicNTK(Scaling):
    """Dynamic NTK: the base grows with the text, so texts within the original length are untouched.

    With ``L`` the original length and ``l`` the length at hand, for ``l > L``:
    ``theta * (factor * l / L - (factor - 1))^(d/(d-2))``; for ``l <= L`` plain RoPE, exactly.
    ``factor=1`` gives the paper's ``s = max(1, l/L)``.

    Keys cached at one length do not fit queries at another: a cache must hold keys before
    rotation, or the length must be fixed for the whole text.

    Source: emozilla 2023, "Dynamically Scaled RoPE"; the form with ``factor`` as in
    transformers' ``_compute_dynamic_ntk_parameters``. Valid for ``factor >= 1``.
    """

    kind: ClassVar[str] = "dynamic"
    length_dependent: ClassVar[bool] = True
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a factor below 1 or a missing original length."""
        super().__post_init__()
        check_factor("dynamic: factor", self.factor)
        require_original_length(self)

    def check_rope(self, theta: float, rotary_dim: int) -> None:
        """Refuse a rope of one plane."""
        check_two_planes(self.kind, rotary_dim)

    def effective_length(self, length: int | None) -> int:
        """The length, but never below the original one."""
        original = require_original_length(self)
        return original if length is None else max(length, original)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        original = require_original_length(self)
        tokens = self.effective_length(length)
        if tokens == original:
            return ladder(field, field.number(theta), rotary_dim)
        factor = field.number(self.factor)
        grown = (factor * field.grown_length(tokens) / original) - (factor - 1)
        return ladder(field, stretched_base(field, theta, rotary_dim, grown), rotary_dim)
