"""The sinusoidal encoding: a vector per position, added to the token's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..rope import Rope


def sinusoidal(positions: Any, dim: int, theta: float = 10000.0) -> npt.NDArray[np.float64]:
    """Return the sinusoidal encoding of the given positions.

    Lane 2i is ``sin(position * theta^(-2i/dim))``, lane 2i+1 the cosine of the same angle.
    The angles come from the exact tables of `ropewalk.tables`: the frequencies are those of
    a rope with ``dim`` lanes.

    Args:
        positions: position ids, not features: integers or floats of any shape, as a number,
            a list or a NumPy array.
        dim: size of the encoding, even.
        theta: base of the frequencies.

    Returns:
        Shape ``positions.shape + (dim,)``, float64.

    Raises:
        InputError: an odd ``dim``, a base that is not positive, positions that are no
            positions.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5.
    """
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 2 or dim % 2:
        raise InputError(
            "dim",
            found=repr(dim),
            expected="an even number of lanes, at least 2",
            fix="sines and cosines come in pairs; use the next even number",
        )
    if not isinstance(positions, int | float | list | tuple | range | np.ndarray | np.number):
        raise InputError(
            "positions",
            found=type(positions).__name__,
            expected="a number, a list or a NumPy array of positions",
            fix="pass e.g. numpy.arange(tokens)",
        )
    ids = _as_array(positions)
    if ids.dtype.kind == "f" and ids.ndim >= 3:
        # The usual mistake: the activations (batch, time, dim) instead of their positions.
        raise InputError(
            "positions",
            found=f"{ids.dtype} of shape {ids.shape}",
            expected="position ids, not features",
            fix="pass e.g. numpy.arange(tokens) and add the result to the features",
        )
    cos, sin = Rope(head_dim=dim, theta=theta).cos_sin(ids, dtype=np.float64)
    return np.stack([sin, cos], axis=-1).reshape(*ids.shape, dim)


def _as_array(positions: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(positions)
    except (ValueError, OverflowError) as error:  # ragged lists, integers beyond 64 bits
        raise InputError(
            "positions",
            found=f"a {type(positions).__name__} that is no array",
            expected="numbers in a list of equal rows",
            fix="make the rows equally long",
        ) from error
