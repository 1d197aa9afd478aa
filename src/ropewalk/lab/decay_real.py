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
from ..extend import attention
from ..extend.loading import LoadedModel
from ..extend.override import RopeSlot
from ..extend.remapping import long_range_layers, pairing_in_memory, turning
from ..extend.texts import TextSet
from .decay import Tell, described, scores_of
from .decay_sums import Bins, PlaneSums, WeightSums

_NAME = "ropewalk_watched"

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
    measured = long_range_layers(loaded)
    layers = sorted(measured)
    slot = RopeSlot(model, plan)
    config = model.config.get_text_config()
    length = len(texts.documents[0].tokens)
    bins = Bins.of(length)
    heads = int(config.num_attention_heads)
    before = model.config._attn_implementation
    with torch.inference_mode():
        pairing = pairing_in_memory(loaded, slot, measured, lambda tokens: _hidden(loaded, tokens))
        rope = dataclasses.replace(target, pairing=pairing)
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
                with _watching(model, watch), turning(slot, Rotary(rope=rope), measured, length):
                    _hidden(loaded, torch.tensor([document.tokens]))
        finally:
            model.set_attn_implementation(before)
    return described(texts, weights, planes, encoding=Rotary(rope=rope).to_dict(), layers=layers)


def _hidden(loaded: LoadedModel, tokens: Tensor) -> Tensor:
    body = loaded.model.get_decoder()
    out: Tensor = body(input_ids=tokens, use_cache=False).last_hidden_state
    return out


@contextmanager
def _watching(model: Any, watcher: Watcher) -> Iterator[None]:
    model.set_attn_implementation(attention.register(_NAME, _watched_attention))
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
    _WATCHERS[-1](int(module.layer_idx), query, attention.ungrouped(key, query), scale)
    return attention.causal_attention(module, query, key, value, attention_mask, **options)
