"""What the rotation refuses, with the whole message."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from ropewalk import InputError, rotate

X = np.zeros((2, 5, 3, 8), np.float32)
TABLE = np.zeros((5, 4), np.float32)
NO_FLOAT = (
    "expected float16, bfloat16, float32 or float64; fix: rotate queries and keys, not token ids"
)
PAIRING = (
    "expected 'half' or 'adjacent'; "
    "fix: half is NeoX or rotate_half, adjacent is GPT-J or interleaved"
)
ORDER = "expected 'time_heads', 'heads_time' or 'time'; fix: name the order of the axes of x"
PLANES = "fix: cos holds one value per plane, half the rotated lanes; do not double it"
TOKENS = "fix: pass cos and sin of these tokens, or name the order of the axes with order="
LEADING = "fix: pass cos of shape (time, planes) or (batch, time, planes)"


def zeros(*shape):
    return np.zeros(shape, np.float32)


REFUSED = {
    "a list": (
        ([[0.0]], TABLE),
        {},
        (
            "x: got list, expected a NumPy array, a PyTorch tensor or a "
            "JAX array; fix: convert it, e.g. with numpy.asarray"
        ),
    ),
    "numpy ids": ((X.astype(int), TABLE), {}, f"x: got dtype int64, {NO_FLOAT}"),
    "torch ids": (
        (torch.zeros(5, 3, 8, dtype=torch.int32), TABLE),
        {},
        f"x: got dtype int32, {NO_FLOAT}",
    ),
    "jax ids": ((jnp.zeros((5, 3, 8), jnp.int32), TABLE), {}, f"x: got dtype int32, {NO_FLOAT}"),
    "complex": ((X.astype(complex), TABLE), {}, f"x: got dtype complex128, {NO_FLOAT}"),
    "torch complex": (
        (torch.zeros(5, 3, 8, dtype=torch.complex64), TABLE),
        {},
        f"x: got dtype complex64, {NO_FLOAT}",
    ),
    "float8": (
        (X.astype(ml_dtypes.float8_e5m2), TABLE),
        {},
        f"x: got dtype float8_e5m2, {NO_FLOAT}",
    ),
    "torch float8": (
        (torch.zeros(5, 3, 8, dtype=torch.float8_e5m2), TABLE),
        {},
        f"x: got dtype float8_e5m2, {NO_FLOAT}",
    ),
    "pairing": ((X, TABLE), {"pairing": "neox"}, f"pairing: got 'neox', {PAIRING}"),
    "order": ((X, TABLE), {"order": "bthd"}, f"order: got 'bthd', {ORDER}"),
    "sin of other positions": (
        (X, TABLE, TABLE[:4]),
        {},
        (
            "sin: got shape (4, 4) (cos: (5, 4)), expected the shape of cos; "
            "fix: pass cos and sin of the same positions"
        ),
    ),
    "no axes": (
        (X, np.float32(1)),
        {},
        (
            "sin: got shape () (cos: ()), expected the shape of cos; "
            "fix: pass cos and sin of the same positions"
        ),
    ),
    "doubled cos": (
        (X, zeros(5, 8)),
        {},
        f"cos: got 8 planes from lane 0 on (x: (2, 5, 3, 8)), expected at most 4 planes; {PLANES}",
    ),
    "no room after the offset": (
        (X, TABLE),
        {"rotary_offset": 2},
        f"cos: got 4 planes from lane 2 on (x: (2, 5, 3, 8)), expected at most 3 planes; {PLANES}",
    ),
    "negative offset": (
        (X, TABLE),
        {"rotary_offset": -1},
        (
            "rotary_offset: got -1, expected the index of a lane, 0 or above; "
            "fix: give the first rotated lane"
        ),
    ),
    "fractional offset": (
        (X, TABLE),
        {"rotary_offset": 1.0},
        (
            "rotary_offset: got 1.0, expected the index of a lane, 0 or above; "
            "fix: give the first rotated lane"
        ),
    ),
    "too few axes": (
        (X[0, 0], TABLE),
        {},
        (
            "x: got shape (3, 8), expected at least 3 axes for order 'time_heads'; "
            "fix: name the order of the axes with order="
        ),
    ),
    "no axes at all": (
        (np.array(1.0), TABLE),
        {"order": "time"},
        (
            "x: got shape (), expected at least 2 axes for order 'time'; "
            "fix: name the order of the axes with order="
        ),
    ),
    "no heads": (
        (X[0, 0], zeros(3, 4)),
        {"order": "heads_time"},
        (
            "x: got shape (3, 8), expected at least 3 axes for order 'heads_time'; "
            "fix: name the order of the axes with order="
        ),
    ),
    "another batch, heads first": (
        (X, zeros(3, 3, 4)),
        {"order": "heads_time"},
        f"cos: got leading axes (3,), expected axes that broadcast against (2,) of x; {LEADING}",
    ),
    "wrong time axis": (
        (X, TABLE),
        {"order": "heads_time"},
        (
            "cos: got 5 positions (x: (2, 5, 3, 8), order 'heads_time'), expected 3 positions, the "
            f"time axis of x; {TOKENS}"
        ),
    ),
    "too long a table": (
        (X, zeros(9, 4)),
        {},
        (
            "cos: got 9 positions (x: (2, 5, 3, 8), order 'time_heads'), expected 5 positions, the "
            f"time axis of x; {TOKENS}"
        ),
    ),
    "another batch": (
        (X, zeros(3, 5, 4)),
        {},
        f"cos: got leading axes (3,), expected axes that broadcast against (2,) of x; {LEADING}",
    ),
    "a batch x has not": (
        (X[0], zeros(2, 5, 4)),
        {},
        f"cos: got leading axes (2,), expected axes that broadcast against () of x; {LEADING}",
    ),
    "heads in the table": (
        (X, zeros(2, 3, 5, 4)),
        {},
        f"cos: got leading axes (2, 3), expected axes that broadcast against (2,) of x; {LEADING}",
    ),
}


@pytest.mark.parametrize(("arrays", "options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals(arrays, options, message):
    x, cos, *sin = arrays
    with pytest.raises(InputError) as caught:
        rotate(x, cos, *(sin or [cos]), **options)
    assert str(caught.value) == message


def test_extended_precision_is_refused_and_not_rounded_away():
    if np.dtype(np.longdouble).itemsize == 8:
        assert rotate(X.astype(np.longdouble), TABLE, TABLE).dtype == np.float64
        return
    with pytest.raises(InputError, match=r"x: got dtype (longdouble|float128|float96)"):
        rotate(X.astype(np.longdouble), TABLE, TABLE)
