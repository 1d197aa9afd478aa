"""`ropewalk.lab.decay` for a causal language model of transformers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..encodings import Rotary, Sizes
from ..encodings.modules import module_for
from ..errors import InputError
from ..extend import attention
from ..extend.loading import LoadedModel
from ..extend.override import RopeSlot
from ..extend.texts import TextSet
from ..rope import PAIRINGS, Rope
from .decay import Tell, described, scores_of
from .decay_sums import Bins, PlaneSums, WeightSums

_NAME = "ropewalk_watched"
_PROBED_TOKENS = 48

Watcher = Callable[[int, Tensor, Tensor, float], None]
"""Called with a layer's index, its queries, its keys (grouped ones repeated) and the scale."""
_WATCHERS: list[Watcher] = []


def measure_transformers_decay(
    loaded: LoadedModel, texts: TextSet, tell: Tell = lambda _: None
) -> dict[str, Any]:
    """Measure the layers of a loaded model that share its long-range rope.

    Args:
        loaded: from `ropewalk.extend.loading.load`.
        texts: documents in the model's tokens, all of one length; each is one pass.
        tell: called with the share that is done.

    Returns:
        As `ropewalk.lab.decay.measure_decay`, with ``layers``, the indices of those measured.

    Raises:
        InputError: a model whose rope Ropewalk does not recognise, whose layers all have a
            window, or whose attention is more than a softmax of scores.
    """
    model, plan = loaded.model, loaded.positions
    target, _ = plan.stretchable()
    layers = [x.index for x in plan.layers if x.rope == target and x.window is None]
    slot = RopeSlot(model, plan)
    config = model.config.get_text_config()
    if not layers or getattr(config, "attn_logit_softcapping", None) is not None:
        raise InputError(
            plan.path,
            found="soft-capped scores" if layers else "a window in every rotating layer",
            expected="layers with plain causal attention over the whole text",
            fix="this model's attention cannot be looked into by ropewalk yet",
        )
    length = len(texts.documents[0].tokens)
    bins = Bins.of(length)
    heads = int(config.num_attention_heads)
    before = model.config._attn_implementation
    with torch.inference_mode():
        rope = _rope_in_memory(loaded, slot, target, layers)
        module = module_for(Rotary(rope=rope), Sizes(heads, rope.head_dim, 1))
        weights = WeightSums(bins, len(layers), heads)
        planes = PlaneSums(rope, bins, len(layers), heads)
        count = len(texts.documents) * len(layers)

        def watch(index: int, q: Tensor, k: Tensor, scale: float) -> None:
            if index not in layers:
                return
            place = layers.index(index)
            weights.add(place, scores_of(module, q, k, scale))
            planes.add(place, q[0], k[0], scale)
            tell((planes.passes.sum().item()) / count)

        try:
            for document in texts.documents:
                with _watching(model, watch), _turning(slot, rope, layers, length):
                    _hidden(loaded, torch.tensor([document.tokens]))
        finally:
            model.set_attn_implementation(before)
    return described(texts, weights, planes, encoding=Rotary(rope=rope).to_dict(), layers=layers)


def _hidden(loaded: LoadedModel, tokens: Tensor) -> Tensor:
    body = loaded.model.get_decoder()
    out: Tensor = body(input_ids=tokens, use_cache=False).last_hidden_state
    return out


def _rope_in_memory(loaded: LoadedModel, slot: RopeSlot, target: Rope, layers: list[int]) -> Rope:
    """Return the rope with the pairing of the weights in memory.

    transformers permutes weights of some formats while it loads them (GGUF's Llama), so the
    file's pairing need not be that of the model: the one is taken that gives its own output.
    """
    tokens = (torch.arange(_PROBED_TOKENS) * 7919 % int(loaded.model.config.vocab_size))[None]
    before = loaded.model.config._attn_implementation
    theirs = _hidden(loaded, tokens)
    # Two orders of the same sums, as in `ropewalk.extend.scoring`.
    unit = torch.finfo(getattr(torch, loaded.dtype)).eps
    tolerance = 4 * unit * theirs.abs().max().item()
    try:
        loaded.model.set_attn_implementation(attention.register())
        for pairing in sorted(PAIRINGS, key=lambda name: name != target.pairing):
            rope = dataclasses.replace(target, pairing=pairing)
            with _turning(slot, rope, layers, _PROBED_TOKENS):
                ours = _hidden(loaded, tokens)
            if (ours - theirs).abs().mean().item() <= tolerance:
                return rope
    finally:
        loaded.model.set_attn_implementation(before)
    raise InputError(
        loaded.positions.path,
        found="outputs that differ from the model's own under either pairing",
        expected="equal ones up to rounding",
        fix="this model's attention cannot be looked into by ropewalk yet",
    )


@contextmanager
def _turning(slot: RopeSlot, rope: Rope, layers: list[int], length: int) -> Iterator[None]:
    """Hand queries and keys to attention as they are; attention turns them."""
    with slot.unturned(), attention.encoded(Rotary(rope=rope), frozenset(layers), length):
        yield


@contextmanager
def _watching(model: Any, watcher: Watcher) -> Iterator[None]:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(_NAME, _watched_attention)
    # Masks are formed in attention: none is wanted from transformers.
    AttentionMaskInterface.register(_NAME, lambda *_, **__: None)
    model.set_attn_implementation(_NAME)
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.pop()


def _watched_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Any, None]:
    scaling = options.get("scaling")
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    keys = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    _WATCHERS[-1](int(module.layer_idx), query, keys, scale)
    return attention.causal_attention(module, query, key, value, attention_mask, **options)
