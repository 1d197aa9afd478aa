"""``ropewalk::cos_sin``: exact tables as an operator that graphs can hold.

The rope travels as its JSON text, so that an exported graph says which rope it was made with.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .. import tables
from ..rope import Rope

_library = torch.library.Library("ropewalk", "FRAGMENT")
_library.define(
    "cos_sin(Tensor positions, str rope, SymInt? length, ScalarType dtype) -> (Tensor, Tensor)"
)


def cos_sin(
    rope: str, positions: Tensor, length: int | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return exact cos and sin at ``positions``; ``rope`` is what `Rope.to_json` wrote."""
    cos, sin = torch.ops.ropewalk.cos_sin(positions, rope, length, dtype)
    return cos, sin


@functools.lru_cache(maxsize=256)
def _rope(text: str) -> Rope:
    return Rope.from_json(text)


def _run(
    positions: Tensor, text: str, length: int | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    rope = _rope(text)
    integers = not positions.is_floating_point()
    # Only where it must: asking a GPU for the largest position stops its stream.
    if positions.device.type == "cpu" or not integers or positions.device.type == "mps":
        cos, sin = tables.cos_sin(rope, positions, length=length, dtype=dtype)
        return cos, sin
    if length is None and rope.scaling.length_dependent and positions.numel():
        length = int(positions.max()) + 1
    return _on_device(rope, positions, length, dtype)


def _on_device(
    rope: Rope, positions: Tensor, length: int | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Do what `tables` does in 64-bit integers, on the device of the positions.

    Signed multiplication wraps like unsigned, and the product read as signed is the fraction
    of a turn centred on 0.
    """
    fractions = torch.from_numpy(rope.turn_fractions(length).view("int64").copy())
    wrapped = positions.to(torch.int64)[..., None] * fractions.to(positions.device)
    angles = wrapped.to(torch.float64) * (rope.direction * 2 * torch.pi * 2.0**-64)
    factor = rope.attention_factor(length)
    return (angles.cos() * factor).to(dtype), (angles.sin() * factor).to(dtype)


_library.impl("cos_sin", _run, "CompositeExplicitAutograd")


@torch.library.register_fake("ropewalk::cos_sin", lib=_library)
def _fake(positions: Tensor, text: str, _: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    shape = (*positions.shape, _rope(text).planes)
    return (
        positions.new_empty(shape, dtype=dtype),
        positions.new_empty(shape, dtype=dtype),
    )


def _vmap(_: Any, in_dims: tuple[Any, ...], positions: Tensor, *rest: Any) -> tuple[Any, Any]:
    # Elementwise in the positions.
    out = torch.ops.ropewalk.cos_sin(positions.movedim(in_dims[0], 0), *rest)
    return out, (0, 0)


torch.library.register_vmap("ropewalk::cos_sin", _vmap, lib=_library)
