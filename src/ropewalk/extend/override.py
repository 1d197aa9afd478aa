"""Putting a rope into a loaded transformers model, and taking it out again.

Only models whose rotary module Ropewalk can reproduce are touched: before anything is
replaced, the module's own cos and sin are compared with those of the rope that the reader
found, and a module that disagrees is refused. A wrong pairing or a lost scaling key is so
found before a number is printed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import InputError
from ..models import ModelPositions
from ..rope import Precision, Rope
from ..tables import cos_sin

# How a module lays out one value per plane over the lanes.
_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "tiled": lambda t: _torch().cat([t, t], dim=-1),
    "repeated": lambda t: t.repeat_interleave(2, dim=-1),
    "single": lambda t: t,
}
_PROBED_POSITIONS = 64


class RopeSlot:
    """The rotary module of one loaded model, ready to take other ropes.

    Args:
        model: a transformers causal language model.
        positions: what the reader found in its file.

    Raises:
        InputError: no rotary module, more than one, or one that does not compute what the
            reader found.
    """

    def __init__(self, model: Any, positions: ModelPositions) -> None:
        self._module = _rotary_module(model, positions.path)
        # Modules with one table per layer type take the type's name as a third argument.
        self._ropes: dict[str | None, Rope] = {}
        self._stretched: set[str | None] = set()
        self._positions = positions
        self._original_forward = self._module.forward
        target, _ = positions.stretchable()
        by_type = isinstance(getattr(self._module, "rope_type", None), dict)
        for layer in positions.layers:
            if layer.rope is None:
                continue
            key = layer.kind if by_type else None
            # The direction is in how the model applies cos and sin, not in the module.
            rope = dataclasses.replace(layer.rope, direction=1)
            if self._ropes.setdefault(key, rope) != rope:
                raise InputError(
                    positions.path,
                    found="different ropes in layers that share one rotary module",
                    expected="one rope per rotary table",
                    fix="this family cannot be measured by ropewalk yet",
                )
            if layer.rope == target:
                self._stretched.add(key)
        self._layout = {key: self._find_layout(key, rope) for key, rope in self._ropes.items()}

    def _call(self, key: str | None, positions: Any) -> tuple[Any, Any]:
        torch = _torch()
        x = torch.zeros(1, dtype=torch.float32)
        arguments = (x, positions) if key is None else (x, positions, key)
        cos, sin = self._original_forward(*arguments)
        return cos[0], sin[0]

    def _find_layout(self, key: str | None, rope: Rope) -> str:
        torch = _torch()
        positions = torch.arange(_PROBED_POSITIONS)
        theirs = self._call(key, positions[None])
        ours = cos_sin(rope, positions)
        # The module forms its angles in float32: frequency off by a few units in the last
        # place (rounded power and division, 4 of them), times the position.
        tolerance = (4 * _PROBED_POSITIONS + 1) * 2.0**-24 * rope.attention_factor()
        for name, lay in _LAYOUTS.items():
            laid = [lay(t) for t in ours]
            if all(
                a.shape == b.shape and (a - b).abs().max().item() <= tolerance
                for a, b in zip(laid, theirs, strict=True)
            ):
                return name
        raise InputError(
            self._positions.path,
            found="a rotary module whose cos and sin are not those of the rope in the file",
            expected=f"cos and sin of {rope!r}",
            fix="this model cannot be measured by ropewalk yet; compare `ropewalk inspect`",
        )

    @contextmanager
    def holding(self, rope: Rope, length: int, precision: Precision = "exact") -> Iterator[None]:
        """Run the model with ``rope`` in its long-range layers, as for a text of ``length``.

        Layers with another rope (local layers) keep their own.
        """
        torch = _torch()

        def forward(x: Any, position_ids: Any, layer_type: str | None = None) -> tuple[Any, Any]:
            chosen = rope if layer_type in self._stretched else self._ropes[layer_type]
            lay = _LAYOUTS[self._layout[layer_type]]
            # Rows of a batch share their positions here: the tables are formed once.
            turned = dataclasses.replace(chosen, direction=1)
            cos, sin = cos_sin(turned, position_ids[:1], length=length, precision=precision)
            shape = (position_ids.shape[0], -1, -1)
            with torch.no_grad():
                return (
                    lay(cos).to(x.dtype).expand(shape),
                    lay(sin).to(x.dtype).expand(shape),
                )

        self._module.forward = forward
        try:
            yield
        finally:
            self._module.forward = self._original_forward

    @contextmanager
    def unturned(self) -> Iterator[None]:
        """Leave queries and keys of the long-range layers as they are, for attention to turn."""
        torch = _torch()
        before = self._original_forward

        def forward(x: Any, position_ids: Any, layer_type: str | None = None) -> tuple[Any, Any]:
            arguments = (x, position_ids) if layer_type is None else (x, position_ids, layer_type)
            cos, sin = before(*arguments)
            if layer_type in self._stretched:
                return torch.ones_like(cos), torch.zeros_like(sin)
            return cos, sin

        self._module.forward = forward
        try:
            yield
        finally:
            self._module.forward = before


def _torch() -> Any:
    import torch

    return torch


def _rotary_module(model: Any, path: str) -> Any:
    found = [
        module
        for module in model.modules()
        if type(module).__name__.endswith("RotaryEmbedding")
        and any(name.endswith("inv_freq") for name, _ in module.named_buffers(recurse=False))
    ]
    if len(found) != 1:
        raise InputError(
            path,
            found=f"{len(found)} rotary modules in {type(model).__name__}",
            expected="one, shared by all layers",
            fix="this family cannot be measured by ropewalk yet",
        )
    return found[0]
