"""The tables of cos and sin that a model's rotary module makes: how they are laid out.

A module is recognised by what it returns for a few positions, not by its name.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

LAY: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "tiled": lambda cos, sin: (torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)),
    "repeated": lambda cos, sin: (cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)),
    "single": lambda cos, sin: (cos, sin),
    "complex": lambda cos, sin: (torch.complex(cos, sin),),
}
"""From one value per plane to a layout: all of them twice, each twice, once, or cos + i sin."""

CUT: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "tiled": lambda cos, sin: (
        cos[..., : cos.shape[-1] // 2],
        sin[..., : sin.shape[-1] // 2],
    ),
    "repeated": lambda cos, sin: (cos[..., ::2], sin[..., ::2]),
    "single": lambda cos, sin: (cos, sin),
    "complex": lambda both, _: (both.real, both.imag),
}
"""Back from a layout to one value per plane."""


@dataclass(frozen=True)
class Tables:
    """What a rotary module returns: the layout, and which of its two tensors is the cosine."""

    layout: str
    cos: int
    sin: int


_TIMES = 5


def _positions(device: Any) -> list[Any]:
    """Return position ids of the shapes in use; each axis counts at its own pace from 0."""
    steps = torch.arange(_TIMES, device=device)
    return [
        steps[None],
        *(torch.stack([steps * (i + 1) for i in range(n)])[:, None] for n in (3, 4)),
        torch.stack([steps, 2 * steps], dim=-1),
    ]


def rotary_call(module: Any) -> bool:
    """Tell whether a module could be a rotary one: a leaf with tables, called with positions."""
    if (
        next(module.children(), None) is not None
        or next(module.parameters(), None) is not None
        or next(module.buffers(), None) is None
    ):
        return False
    try:
        names = list(inspect.signature(type(module).forward).parameters)
    except (TypeError, ValueError):
        return False
    return len(names) >= 3 and names[2].startswith("position")


def tables_of(module: Any) -> Tables | str:
    """Find out what tables a rotary module makes, or why that is not known.

    A copy of the module is asked, so that one which adapts to the text keeps its state.
    """
    device = next(module.buffers()).device
    if device.type == "meta":
        return "it is on the meta device"
    try:
        config = getattr(module, "config", None)
        trial = copy.deepcopy(module, {id(config): config})
    except Exception as error:  # whatever a stranger's attributes raise when copied
        return f"it cannot be copied ({type(error).__name__})"
    kinds = module.rope_type if isinstance(getattr(module, "rope_type", None), dict) else (None,)
    found = {_tables(trial, kind, device) for kind in kinds}
    if len(found) > 1:
        return "its tables are laid out differently from layer type to layer type"
    return found.pop() or "what it returns are no tables of cos and sin that ropewalk knows"


def _tables(module: Any, kind: str | None, device: Any) -> Tables | None:
    x = torch.zeros(1, _TIMES, 1, device=device, dtype=torch.float32)
    for positions in _positions(device):
        arguments = (x, positions) if kind is None else (x, positions, kind)
        try:
            with torch.no_grad():
                out = module(*arguments)
        except Exception:  # the next shape of positions may be the right one
            continue
        found = _read(out, 0 if positions.shape[-1] == 2 else 1)
        if found is not None:
            return found
    return None


def _read(out: Any, time: int) -> Tables | None:
    """Name the layout of what a module returned for positions that begin with 0."""
    if isinstance(out, torch.Tensor) and out.is_complex():
        start = out.select(time, 0) if out.dim() > time + 1 else None
        good = start is not None and bool((start.imag == 0).all() and (start.real > 0).all())
        return Tables("complex", 0, 0) if good else None
    if not (isinstance(out, tuple) and len(out) == 2 and out[0].shape == out[1].shape):
        return None
    if out[0].dim() != time + 2 or not all(t.is_floating_point() for t in out):
        return None
    # At position 0 the sine is 0 and the cosine is not.
    still = [bool((t.select(time, 0) == 0).all()) for t in out]
    if sum(still) != 1 or bool((out[still.index(False)].select(time, 0) <= 0).any()):
        return None
    cos, sin = still.index(False), still.index(True)
    fits = [
        name
        for name in ("tiled", "repeated")
        if out[0].shape[-1] % 2 == 0
        and all(
            torch.equal(t, laid)
            for t, laid in zip(
                (out[cos], out[sin]),
                LAY[name](*CUT[name](out[cos], out[sin])),
                strict=True,
            )
        )
    ]
    if len(fits) > 1:
        return None
    return Tables(fits[0] if fits else "single", cos, sin)
