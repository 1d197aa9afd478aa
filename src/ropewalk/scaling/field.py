"""Number fields: one frequency formula, evaluated in several arithmetics.

Every scaling writes its formula once, against the small set of operations here. Run in
``Exact`` it gives the frequencies to 50 decimal digits, from which the float64 values and
the 64-bit turn fractions are rounded once. Run in ``NumpyFloat32`` or ``TorchFloat32`` the
very same sequence of operations gives what common code computes in single precision, bit
for bit.
"""

from __future__ import annotations

import decimal
import math
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any, Protocol

import numpy as np

# Arrays of a field: numpy arrays of Decimal or float32, or torch tensors. The formulas only
# use operators on them, which all three support.
Array = Any

_DIGITS = 50
_CONTEXT = decimal.Context(prec=_DIGITS, rounding=decimal.ROUND_HALF_EVEN)
# Digits to spare where thousands of roundings come one after another.
_GUARDED = decimal.Context(prec=_DIGITS + 20, rounding=decimal.ROUND_HALF_EVEN)
_ROUNDING = Decimal(10) ** (1 - _DIGITS)


def exact_arithmetic() -> AbstractContextManager[decimal.Context]:
    """Return a context manager in which operators on Decimals keep the digits of `Exact`.

    It starts from a context of its own: a caller's rounding or traps do not reach it.
    """
    return decimal.localcontext(_CONTEXT)


class Field(Protocol):
    """The operations that frequency formulas are written in.

    ``number`` turns a Python number into a scalar of the field; scalars that a formula
    computes before it meets an array (correction ranges, bases) stay Python floats in single
    precision fields, as common code does it, and are exact in ``Exact``. ``grown_length``
    turns the length of a text past the original length into a scalar: transformers keeps it
    as a tensor, so that all that follows from it is single precision there.
    """

    def number(self, value: float) -> Any: ...

    def grown_length(self, tokens: int) -> Any: ...

    @property
    def pi(self) -> Any: ...

    def log(self, value: Any) -> Any: ...

    def scalar_power(self, base: Any, exponent: Any) -> Any: ...

    def arange(self, stop: int, step: int = 1) -> Array: ...

    def vector(self, values: tuple[float, ...]) -> Array: ...

    def power(self, base: Any, exponent: Array) -> Array: ...

    def exp(self, value: Array) -> Array: ...

    def round(self, value: Array) -> Array: ...

    def where(self, condition: Array, yes: Array, no: Array) -> Array: ...

    def clip(self, value: Array, low: float, high: float) -> Array: ...


class Exact:
    """Decimal arithmetic with 50 digits: the value that rounding starts from.

    Operators on Decimals round to the thread's decimal context: evaluate a formula within
    `exact_arithmetic`.
    """

    digits = _DIGITS

    def number(self, value: float) -> Decimal:
        """Return the Decimal with exactly the value of the given int or float."""
        return Decimal(value)

    def grown_length(self, tokens: int) -> Decimal:
        """The length as it is."""
        return Decimal(tokens)

    @property
    def pi(self) -> Decimal:
        """Pi to more digits than the context keeps."""
        return Decimal("3.14159265358979323846264338327950288419716939937510582097494459")

    def log(self, value: Decimal) -> Decimal:
        """Natural logarithm of a scalar."""
        return _CONTEXT.ln(value)

    def scalar_power(self, base: Decimal, exponent: Decimal) -> Decimal:
        """``base`` to the ``exponent``, scalars."""
        return _CONTEXT.power(base, exponent)

    def arange(self, stop: int, step: int = 1) -> Array:
        """0, step, 2 step … below ``stop``."""
        return np.array([Decimal(i) for i in range(0, stop, step)], dtype=object)

    def vector(self, values: tuple[float, ...]) -> Array:
        """An array with the given values."""
        return np.array([Decimal(v) for v in values], dtype=object)

    def power(self, base: Decimal, exponent: Array) -> Array:
        """Scalar ``base`` to an array of exponents."""
        last = len(exponent) - 1
        step = _GUARDED.divide(exponent[-1], last) if last > 0 else Decimal(0)
        even = all(abs(e - k * step) <= _ROUNDING for k, e in enumerate(exponent))
        if last < 1 or not even:
            return np.array([_CONTEXT.power(base, e) for e in exponent], dtype=object)
        # A ladder: one power and a product per plane, which costs a thirtieth of a power.
        factor, value, out = _GUARDED.power(base, step), Decimal(1), []
        for _ in exponent:
            out.append(_CONTEXT.plus(value))
            value = _GUARDED.multiply(value, factor)
        return np.array(out, dtype=object)

    def exp(self, value: Array) -> Array:
        """Elementwise e to the power of it."""
        return np.array([_CONTEXT.exp(v) for v in value], dtype=object)

    def round(self, value: Array) -> Array:
        """Elementwise the nearest whole number, halves to the even one."""
        whole = [v.to_integral_value(decimal.ROUND_HALF_EVEN) for v in value]
        return np.array(whole, dtype=object)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        """Elementwise choice."""
        return np.where(condition.astype(bool), yes, no)

    def clip(self, value: Array, low: float, high: float) -> Array:
        """Elementwise limit to [low, high]."""
        return np.array([min(max(v, Decimal(low)), Decimal(high)) for v in value], dtype=object)


class _PythonScalars:
    """What the single precision fields share: scalars are Python numbers, as in common code."""

    def number(self, value: float) -> float:
        """Scalars stay Python numbers."""
        return value

    @property
    def pi(self) -> float:
        """Pi as a Python float."""
        return math.pi

    def log(self, value: float) -> float:
        """Natural logarithm of a scalar."""
        return math.log(value)


class NumpyFloat32(_PythonScalars):
    """Single precision as NumPy computes it."""

    def grown_length(self, tokens: int) -> int:
        """The length as it is."""
        return tokens

    def scalar_power(self, base: float, exponent: float) -> float:
        """``base`` to the ``exponent``, scalars."""
        return float(base**exponent)

    def arange(self, stop: int, step: int = 1) -> Array:
        """0, step, 2 step … below ``stop``."""
        return np.arange(0, stop, step).astype(np.float32)

    def vector(self, values: tuple[float, ...]) -> Array:
        """An array with the given values, rounded to float32."""
        return np.array(values, dtype=np.float32)

    def power(self, base: float, exponent: Array) -> Array:
        """Scalar ``base`` to an array of exponents."""
        return np.float32(base) ** exponent

    def exp(self, value: Array) -> Array:
        """Elementwise e to the power of it."""
        return np.exp(value)

    def round(self, value: Array) -> Array:
        """Elementwise the nearest whole number, halves to the even one."""
        return np.round(value)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        """Elementwise choice."""
        return np.where(condition, yes, no)

    def clip(self, value: Array, low: float, high: float) -> Array:
        """Elementwise limit to [low, high]."""
        return np.clip(value, np.float32(low), np.float32(high))


class TorchFloat32(_PythonScalars):
    """Single precision as PyTorch computes it on the CPU: the arithmetic of transformers."""

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def grown_length(self, tokens: int) -> Any:
        """The length as a tensor, as ``max(position_ids) + 1`` is one in transformers."""
        return self._torch.tensor(float(tokens), dtype=self._torch.float32, device="cpu")

    def scalar_power(self, base: Any, exponent: float) -> Any:
        """``base`` to the ``exponent``, scalars; a tensor stays one."""
        return base**exponent

    def arange(self, stop: int, step: int = 1) -> Array:
        """0, step, 2 step … below ``stop``."""
        # dtype and device are explicit: a default dtype of bfloat16 or a meta-device
        # context around the caller must not reach the positions of the ladder.
        torch = self._torch
        return torch.arange(0, stop, step, dtype=torch.int64, device="cpu").to(torch.float32)

    def vector(self, values: tuple[float, ...]) -> Array:
        """An array with the given values, rounded to float32."""
        return self._torch.tensor(values, dtype=self._torch.float32, device="cpu")

    def power(self, base: float, exponent: Array) -> Array:
        """Scalar ``base`` to an array of exponents."""
        return base**exponent

    def exp(self, value: Array) -> Array:
        """Elementwise e to the power of it."""
        return self._torch.exp(value)

    def round(self, value: Array) -> Array:
        """Elementwise the nearest whole number, halves to the even one."""
        return self._torch.round(value)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        """Elementwise choice."""
        return self._torch.where(condition, yes, no)

    def clip(self, value: Array, low: float, high: float) -> Array:
        """Elementwise limit to [low, high]."""
        return self._torch.clamp(value, low, high)


def ladder(field: Field, theta: Any, rotary_dim: int) -> Array:
    """Return the unscaled frequencies ``theta^(-2i/rotary_dim)``, fastest first.

    Shape (rotary_dim/2,), radians per token. RoFormer, arXiv 2104.09864, section 3.2.2.
    """
    return 1 / field.power(theta, field.arange(rotary_dim, 2) / rotary_dim)
