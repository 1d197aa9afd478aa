"""Does attention decay with distance? Weights, scores and planes of a trained model by distance.

Four things are told apart, for a claim about one says nothing about the others: the weight after
the softmax; the mean score and the mean of its magnitude; what each plane of a rope adds to the
score, and how large it is before it is turned; and RoFormer's bound on the score's magnitude. A
control pairs the same queries and keys at random and turns them as if they lay at each distance:
what is left there is what the rotation alone does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..encodings import Rotary
from ..encodings.modules import PositionModule
from ..extend.texts import TextSet
from .decay_sums import Bins, PlaneSums, Scores, WeightSums, rounded
from .model import Decoder

Tell = Callable[[float], None]


def measure_decay(model: Decoder, texts: TextSet, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Measure a model of the lab; each document is one pass, in float32.

    Args:
        model: trained.
        texts: documents of the length that the model was trained on.
        tell: called with the share that is done.

    Returns:
        JSON values. Lists run over layers, heads and bins of distance; ``rotary`` is None for
        encodings that do not turn planes. See `ropewalk.lab.decay_sums` for which pairs count.

    Raises:
        InputError: documents shorter than 32 tokens.
    """
    shape = model.shape
    bins = Bins.of(len(texts.documents[0].tokens))
    weights = WeightSums(bins, shape.layers, shape.heads)
    planes = None
    if isinstance(model.encoding, Rotary):
        planes = PlaneSums(model.encoding.rope, bins, shape.layers, shape.heads)
    scale = shape.head_dim**-0.5
    positions = torch.arange(bins.length)
    with torch.no_grad():
        for done, document in enumerate(texts.documents):
            tokens = torch.tensor([document.tokens])
            x = model.positions[0].embed(model.embedding[tokens], positions)
            for index, block in enumerate(model.blocks):
                module = model.positions[index if model.encoding.per_layer else 0]
                q, k, _ = block.heads(x)
                weights.add(index, scores_of(module, q, k, scale))
                if planes is not None:
                    planes.add(index, q[0], k[0], scale)
                x = block(x, module, positions, None)
            tell((done + 1) / len(texts.documents))
    return described(texts, weights, planes, encoding=model.encoding.to_dict())


def scores_of(module: PositionModule, q: Tensor, k: Tensor, scale: float) -> Scores:
    """Return a function from a range of queries to their scores with positions, unmasked.

    Args:
        module: the encoding.
        q: (1, heads, time, head_dim), before any position was applied.
        k: the same shape.
        scale: factor on products of queries and keys.
    """
    length = k.shape[-2]
    at = torch.arange(length, device=q.device)
    keys, queries = module.keys(k, at, length), module.queries(q, at, length)

    def scores(start: int, end: int) -> Tensor:
        rows, columns = at[start:end], at[:end]
        chosen = module.choice(rows, columns)
        pairs = zip(queries, keys, strict=True)
        each = [a[..., start:end, :] @ b[..., :end, :].transpose(-1, -2) for a, b in pairs]
        found = each[0] * scale
        if chosen is not None:
            for variant, other in enumerate(each):
                found = torch.where(chosen == variant, other * scale, found)
        bias = module.bias(q[..., start:end, :], rows, columns, scale, length)
        return (found if bias is None else found + bias)[0]

    return scores


def described(
    texts: TextSet, weights: WeightSums, planes: PlaneSums | None, **about: Any
) -> dict[str, Any]:
    """Return what was summed, and of what, as JSON values."""
    bins = weights.bins
    return {
        **about,
        "length": bins.length,
        "first_query": bins.first_query,
        "documents": [document.name for document in texts.documents],
        "origin": texts.origin,
        "digest": texts.digest,
        **weights.to_dict(),
        "rotary": None if planes is None else planes.to_dict(),
    }


def condensed(found: dict[str, Any]) -> dict[str, Any]:
    """Return a result in the same form with fewer numbers, for models of many layers.

    Scores are kept of each layer and head; all else is averaged over them (the largest share of
    the bound: its largest), with one entry in place of each list of layers and of heads.
    """

    def mean(values: Any, heads: bool = True) -> Any:
        axes = (0, 1) if heads else (0,)
        return rounded(np.mean(values, axis=axes, keepdims=True))

    rotary = found["rotary"]
    if rotary is not None:
        share = rotary["share_of_bound"]
        rotary = {
            "wavelengths": rotary["wavelengths"],
            **{key: mean(rotary[key], False) for key in ("turned", "unturned", "amplitude")},
            "heads": {
                span: {key: mean(values) for key, values in both.items()}
                for span, both in rotary["heads"].items()
            },
            "bound": mean(rotary["bound"]),
            "share_of_bound": {
                "mean": mean(share["mean"]),
                "largest": rounded(np.max(share["largest"], axis=(0, 1), keepdims=True)),
            },
            "shuffled": {key: mean(values) for key, values in rotary["shuffled"].items()},
        }
    averaged = {key: mean(found[key]) for key in ("weight", "score_magnitude")}
    return {**found, **averaged, "rotary": rotary}
