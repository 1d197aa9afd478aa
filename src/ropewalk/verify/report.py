"""All checks in one call."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InputError
from ..rope import Precision
from . import attention, decay, forms, relative, rotations, sinusoidal
from .arithmetic import Arithmetic
from .check import Check
from .decay import DecayCurve


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found.

    Attributes:
        precision: the arithmetic of tables and rotation.
        epsilon: the spacing of numbers at 1.0 in it, ε of the tolerance formulas.
        checks: one per identity, grouped, in a fixed order.
        decay: the distance bound and the score of a pair that does not follow it.
    """

    precision: Precision
    epsilon: float
    checks: tuple[Check, ...]
    decay: DecayCurve

    @property
    def held(self) -> int:
        """How many checks hold."""
        return sum(check.passed for check in self.checks)

    @property
    def passed(self) -> bool:
        """Whether all checks hold."""
        return self.held == len(self.checks)


def verify(precision: Precision = "exact") -> VerifyReport:
    """Compute the identities of rotary and sinusoidal encodings and judge each.

    What is judged is the library's own `rotate`, `cos_sin` and `sinusoidal`, against forms
    written out independently. Deterministic: the random vectors are seeded.

    Args:
        precision: ``exact`` (tables and rotation in float64), or ``float32`` (the common
            single precision arithmetic). The tolerances follow from it.

    Raises:
        InputError: an unknown precision.
    """
    if precision not in ("exact", "float32"):
        raise InputError(
            "precision",
            found=repr(precision),
            expected="'exact' or 'float32'",
            fix="use 'exact'",
        )
    arithmetic = Arithmetic(precision)
    curve = decay.decay_curve(decay.table_distances(), arithmetic=arithmetic)
    checks = (
        *rotations.checks(arithmetic),
        *relative.checks(arithmetic),
        *forms.checks(arithmetic),
        *sinusoidal.checks(),
        *attention.checks(arithmetic),
        *decay.checks(arithmetic, curve),
    )
    return VerifyReport(precision, arithmetic.epsilon, checks, curve)
