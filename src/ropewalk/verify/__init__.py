"""The identities of position encodings, computed with this package's code and judged."""

from .check import Check
from .decay import DecayCurve, decay_curve
from .report import VerifyReport, verify

__all__ = ["Check", "DecayCurve", "VerifyReport", "decay_curve", "verify"]
