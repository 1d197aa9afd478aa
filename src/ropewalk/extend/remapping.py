"""Running a loaded model with an encoding that is more than a rotation of queries and keys.

The model's rotary module then turns nothing, and attention takes the encoding. What is turned
there must be paired as the weights in memory are, which need not be how the file has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..encodings import Encoding, Rotary
from ..errors import InputError
from ..rope import PAIRINGS, Pairing
from . import attention
from .loading import LoadedModel
from .override import RopeSlot

_PROBED_TOKENS = 48


def long_range_layers(loaded: LoadedModel) -> frozenset[int]:
    """Return the layers that rotate by the model's long-range rope and see the whole text.

    Raises:
        InputError: all of them have a window, or the model caps its scores.
    """
    positions = loaded.positions
    target, _ = positions.stretchable()
    layers = frozenset(x.index for x in positions.layers if x.rope == target and x.window is None)
    config = loaded.model.config.get_text_config()
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    if not layers or capped:
        raise InputError(
            positions.path,
            found="soft-capped scores" if capped else "a window in every rotating layer",
            expected="layers with plain causal attention over the whole text",
            fix="measure the methods that rescale frequencies; they leave attention as it is",
        )
    return layers


@contextmanager
def turning(
    slot: RopeSlot, encoding: Encoding, layers: frozenset[int], length: int
) -> Iterator[None]:
    """Hand queries and keys to attention as they are; there they get the encoding."""
    with slot.unturned(), attention.encoded(encoding, layers, length):
        yield


def pairing_in_memory(
    loaded: LoadedModel, slot: RopeSlot, layers: frozenset[int], hidden: Callable[[Any], Any]
) -> Pairing:
    """Return the pairing of the weights in memory.

    transformers permutes weights of some formats while it loads them (GGUF's Llama): the
    pairing is taken that gives the model's own output.

    Args:
        loaded: the model.
        slot: its rotary module.
        layers: those that take an encoding.
        hidden: from tokens (1, time) to the body's output.

    Raises:
        InputError: neither does.
    """
    import torch

    target, _ = loaded.positions.stretchable()
    tokens = (torch.arange(_PROBED_TOKENS) * 7919 % int(_vocabulary(loaded)))[None]
    before = loaded.model.config._attn_implementation
    with torch.inference_mode():
        theirs = hidden(tokens)
        # Two orders of the same sums: rounding of the dtype, fourfold.
        unit = torch.finfo(getattr(torch, loaded.dtype)).eps
        tolerance = 4 * unit * theirs.abs().max().item()
        try:
            loaded.model.set_attn_implementation(attention.register())
            for pairing in sorted(PAIRINGS, key=lambda name: name != target.pairing):
                encoding = Rotary(rope=dataclasses.replace(target, pairing=pairing))
                with turning(slot, encoding, layers, _PROBED_TOKENS):
                    ours = hidden(tokens)
                if (ours - theirs).abs().mean().item() <= tolerance:
                    return pairing
        finally:
            loaded.model.set_attn_implementation(before)
    raise InputError(
        loaded.positions.path,
        found="outputs that differ from the model's own under either pairing",
        expected="equal ones up to rounding",
        fix="measure the methods that rescale frequencies; they leave attention as it is",
    )


def _vocabulary(loaded: LoadedModel) -> int:
    return int(loaded.model.config.get_text_config().vocab_size)


def with_pairing(encoding: Encoding, pairing: Pairing) -> Encoding:
    """Return the encoding with every rope in it paired so."""
    changes: dict[str, Any] = {}
    rope, inner = getattr(encoding, "rope", None), getattr(encoding, "inner", None)
    if rope is not None:
        changes["rope"] = dataclasses.replace(rope, pairing=pairing)
    if isinstance(inner, Encoding):
        changes["inner"] = with_pairing(inner, pairing)
    return dataclasses.replace(encoding, **changes)
