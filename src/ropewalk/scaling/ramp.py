"""The ramp of NTK-by-parts: which planes are kept, which interpolated, and how between.

Both forms measure a plane by the turns it made over the original length: planes with at
least ``beta_fast`` turns are kept, planes with at most ``beta_slow`` are interpolated. They
differ between: the paper blends linearly in the number of turns, all shipped code blends
linearly in the plane's index between the (rounded) indices at which those turns fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..errors import InputError
from .base import Scaling, check_factor, check_positive, require_original_length
from .field import Array, Exact, Field, exact_arithmetic

Ramp = Literal["index", "rotations"]


def plane_index(
    field: Field, turns: float, theta: float, rotary_dim: int, original_length: int
) -> Any:
    """Return the fractional plane index at which a plane makes ``turns`` over the length.

    Source: YaRN's code, ``find_correction_dim``; the inverse of
    ``turns = L / (2π theta^(2i/d))``.
    """
    ratio = field.number(original_length) / (field.number(turns) * 2 * field.pi)
    return (rotary_dim * field.log(ratio)) / (2 * field.log(field.number(theta)))


def index_range(
    field: Field,
    beta_fast: float,
    beta_slow: float,
    theta: float,
    rotary_dim: int,
    original_length: int,
    *,
    truncate: bool,
) -> tuple[Any, Any]:
    """Return the first and last index of the blend, limited to [0, rotary_dim - 1].

    The upper limit is ``rotary_dim - 1``, not the last plane's index, as in YaRN's code and
    transformers.
    """
    low = plane_index(field, beta_fast, theta, rotary_dim, original_length)
    high = plane_index(field, beta_slow, theta, rotary_dim, original_length)
    if truncate:
        low, high = field.number(math.floor(low)), field.number(math.ceil(high))
    return max(low, field.number(0)), min(high, field.number(rotary_dim - 1))


def interpolated_share(
    field: Field,
    scaling: PartsScaling,
    theta: float,
    rotary_dim: int,
    kept: Array,
) -> Array:
    """Return each plane's share of interpolation: 0 kept, 1 interpolated."""
    original = require_original_length(scaling)
    if scaling.ramp == "rotations":
        turns = kept * field.number(original) / (2 * field.pi)
        slow, fast = field.number(scaling.beta_slow), field.number(scaling.beta_fast)
        return 1 - field.clip((turns - slow) / (fast - slow), 0, 1)
    low, high = index_range(
        field,
        scaling.beta_fast,
        scaling.beta_slow,
        theta,
        rotary_dim,
        original,
        truncate=scaling.truncates,
    )
    if low == high:
        high = high + field.number(0.001)  # a step at one index, as in YaRN's code
    index = field.arange(rotary_dim // 2)
    return field.clip((index - low) / (high - low), 0, 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class PartsScaling(Scaling):
    """Fields and frequencies shared by NTK-by-parts and YaRN.

    Attributes:
        factor: the stretch, at least 1.
        beta_fast: turns over the original length from which a plane is kept.
        beta_slow: turns up to which a plane is interpolated; below ``beta_fast``.
        ramp: ``index`` (shipped code) or ``rotations`` (paper).
        truncate: whether the index range is rounded outwards to whole indices; None means
            True for the index ramp. The rotation ramp has no range to round and refuses it.
    """

    kind: ClassVar[str] = "parts"
    factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    ramp: Ramp = "index"
    truncate: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what the blend cannot be formed from."""
        super().__post_init__()
        check_factor(f"{self.kind}: factor", self.factor)
        require_original_length(self)
        check_positive(f"{self.kind}: beta_fast", self.beta_fast)
        check_positive(f"{self.kind}: beta_slow", self.beta_slow)
        # Kimi K2 has 1 and 1: a step from kept to interpolated at one plane of the index ramp.
        step = self.beta_slow == self.beta_fast and self.ramp == "index"
        if self.beta_slow >= self.beta_fast and not step:
            raise InputError(
                f"{self.kind}: beta_slow",
                found=f"{self.beta_slow:g}, with beta_fast {self.beta_fast:g}",
                expected="beta_slow below beta_fast",
                fix="swap them; gpt-oss calls them ntk_alpha (slow) and ntk_beta (fast)",
            )
        if self.ramp not in ("index", "rotations"):
            raise InputError(
                f"{self.kind}: ramp",
                found=repr(self.ramp),
                expected="'index' or 'rotations'",
                fix="use 'index' to match shipped code, 'rotations' to match the paper",
            )
        if self.truncate is not None and not isinstance(self.truncate, bool):
            raise InputError(
                f"{self.kind}: truncate",
                found=repr(self.truncate),
                expected="true or false",
                fix="correct the value or leave the field out",
            )
        if self.ramp == "rotations" and self.truncate is not None:
            raise InputError(
                f"{self.kind}: truncate",
                found=f"{self.truncate} together with ramp 'rotations'",
                expected="no truncate, because this ramp has no index range",
                fix="leave truncate out or use ramp 'index'",
            )

    @property
    def truncates(self) -> bool:
        """Whether the index range is rounded."""
        return self.truncate is not False

    def check_rope(self, theta: float, rotary_dim: int) -> None:
        """Refuse a base that makes no ladder."""
        if theta <= 1:
            raise InputError(
                f"{self.kind}: theta",
                found=f"{theta:g}",
                expected="above 1, because the ramp divides by ln(theta)",
                fix="correct rope_theta",
            )

    def correction_range(self, theta: float, rotary_dim: int) -> tuple[float, float]:
        """Return the index range of the blend as the index ramp uses it.

        Example: rotary_dim 64, theta 10000, original length 4096 gives (10, 23).
        """
        with exact_arithmetic():
            low, high = index_range(
                Exact(),
                self.beta_fast,
                self.beta_slow,
                theta,
                rotary_dim,
                require_original_length(self),
                truncate=self.truncates,
            )
            return float(low), float(high)

    def frequencies(self, field: Field, theta: float, rotary_dim: int, length: int | None) -> Array:
        """See `Scaling.frequencies`."""
        # The order of operations is that of transformers, so that the float32 field is
        # equal to it bit for bit.
        wavelengths = field.power(field.number(theta), field.arange(rotary_dim, 2) / rotary_dim)
        kept = 1 / wavelengths
        interpolated = 1 / (field.number(self.factor) * wavelengths)
        keep = 1 - interpolated_share(field, self, theta, rotary_dim, kept)
        return interpolated * (1 - keep) + kept * keep

    @property
    def stretch(self) -> float:
        """The factor."""
        return float(self.factor)
