"""Attention that takes any encoding: one function for training, scoring and decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .base import PositionModule
from .by_distance import DistanceBiasModule, attend_by_distance

TRAINING_BLOCK = 128
"""Queries at a time where gradients are wanted: what lies past the diagonal is not computed."""
_SCORES_AT_ONCE = 2**21
_FEWEST_ROWS = 64
"""Queries at a time elsewhere: few, so that scores stay in a cache, yet enough for products."""


def attend(
    positions: PositionModule,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
    *,
    length: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attend causally under any encoding.

    Queries are the last of the keys: query i sees the keys up to ``keys - queries + i``.

    Args:
        positions: the encoding.
        q: (batch, heads, queries, head_dim).
        k: (batch, heads, keys, head_dim), before any position was applied.
        v: (batch, heads, keys, value_dim).
        query_positions: (queries,) or (batch, queries).
        key_positions: (keys,) or (batch, keys).
        length: tokens of the whole text; by default the number of keys.
        scale: factor on products of queries and keys; by default 1/sqrt(head_dim).

    Returns:
        (batch, heads, queries, value_dim) in the dtype of ``v``.
    """
    text = k.shape[-2] if length is None else length
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    keys = positions.keys(k, key_positions, text)
    queries = positions.queries(q, query_positions, text)
    gradients = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    past = k.shape[-2] - q.shape[-2]
    if len(queries) == 1 and gradients and past == 0:
        bias = positions.bias(q, query_positions, key_positions, factor, text)
        out: Tensor = _BlockedAttention.apply(queries[0], keys[0], v, bias, factor)
        return out
    if isinstance(positions, DistanceBiasModule) and not gradients:
        mixed = attend_by_distance(
            positions, queries[0], keys[0], v, query_positions, key_positions, factor
        )
        if mixed is not None:
            return mixed
    rows = max(_FEWEST_ROWS, _SCORES_AT_ONCE // (q.shape[0] * q.shape[1] * k.shape[-2]))
    outs = []
    for start in range(0, q.shape[-2], rows):
        end = min(start + rows, q.shape[-2])
        seen = past + end
        at, to = query_positions[..., start:end], key_positions[..., :seen]
        bias = positions.bias(q[..., start:end, :], at, to, factor, text)
        if bias is None and past == 0 and start == 0:
            spans = _spans(positions, query_positions, key_positions)
            if len(spans) == 1 and spans[0].lowest == spans[0].highest:
                # One kernel of PyTorch does it all, without a matrix of scores.
                same = spans[0].lowest
                return scaled_dot_product_attention(
                    queries[same], keys[same], v, is_causal=q.shape[-2] > 1, scale=factor
                )
        scores = _scores(
            positions,
            [t[..., start:end, :] * factor for t in queries],
            [t[..., :seen, :] for t in keys],
            at,
            to,
        )
        if bias is not None:
            scores = scores.add_(bias)
        ahead = torch.ones(end - start, end - start, dtype=torch.bool, device=q.device).triu_(1)
        scores[..., past + start :].masked_fill_(ahead, float("-inf"))
        outs.append(scores.softmax(-1).to(v.dtype) @ v[..., :seen, :])
    return torch.cat(outs, dim=-2)


@dataclass(frozen=True)
class _Span:
    """Neighbouring keys, and the lowest and highest variant that a pair with one of them takes."""

    start: int
    end: int
    lowest: int
    highest: int


def _spans(positions: PositionModule, at: Tensor, to: Tensor) -> list[_Span]:
    """Cut the keys where the variants change; see `PositionModule.choice`.

    The choices of the first and the last query say those of the queries between.
    """
    count = to.shape[-1]
    chosen = positions.choice(torch.stack(at.aminmax(dim=-1), dim=-1), to)
    if chosen is None:
        return [_Span(0, count, 0, 0)]
    ends = chosen.reshape(-1, 2, count)
    variants = int(ends.max()) + 1
    codes = ends[:, 0].amin(0) * variants + ends[:, 1].amax(0)
    found, counts = codes.unique_consecutive(return_counts=True)
    spans, start = [], 0
    for code, width in zip(found.tolist(), counts.tolist(), strict=True):
        spans.append(_Span(start, start + width, *divmod(code, variants)))
        start += width
    return spans


def _scores(
    positions: PositionModule, queries: list[Tensor], keys: list[Tensor], at: Tensor, to: Tensor
) -> Tensor:
    """Return the products that each pair takes, in single precision at least.

    Most keys are far from all queries of a block, or near to all: there, one product is enough.
    """
    shape = (*queries[0].shape[:-1], to.shape[-1])
    # Products go to their place at once where autograd allows it: joining them takes as long.
    whole = None if torch.is_grad_enabled() else queries[0].new_empty(shape)
    parts = []
    for span in _spans(positions, at, to):
        here = slice(span.start, span.end)
        into = None if whole is None else whole[..., here]
        column = [t[..., here, :].transpose(-1, -2) for t in keys]
        part = torch.matmul(queries[span.lowest], column[span.lowest], out=into)
        if span.lowest < span.highest:
            chosen = positions.choice(at, to[..., here])
            for variant in range(span.lowest + 1, span.highest + 1):
                other = queries[variant] @ column[variant]
                part = torch.where(chosen == variant, other, part, out=into)
        parts.append(part)
    scores = torch.cat(parts, dim=-1) if whole is None else whole
    return scores if scores.dtype == torch.float64 else scores.float()


class _BlockedAttention(torch.autograd.Function):
    """Causal attention with its gradients, block of queries by block.

    On a CPU the backward pass of PyTorch's fused kernel takes several times as long as these
    plain products, and it takes no bias with a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float
    ) -> Tensor:
        """Return the attention's output; keeps the weights of each block."""
        batch, heads, time, _ = q.shape
        rows = batch * heads
        flat = [t.reshape(rows, time, t.shape[-1]) for t in (q * scale, k, v)]
        queries, keys, values = flat
        out = torch.empty(rows, time, v.shape[-1], dtype=v.dtype, device=v.device)
        mask = torch.full((time, time), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
        kept = []
        for start in range(0, time, TRAINING_BLOCK):
            end = min(start + TRAINING_BLOCK, time)
            base = mask[start:end, :end]
            if bias is not None:
                part = bias[..., start:end, :end].to(q.dtype) + base
                base = part.expand(batch, heads, -1, -1).reshape(rows, end - start, end)
            else:
                base = base.expand(rows, -1, -1)
            scores = torch.baddbmm(base, queries[:, start:end], keys[:, :end].transpose(1, 2))
            weights = scores.softmax(-1)
            kept.append(weights)
            out[:, start:end] = torch.bmm(weights, values[:, :end])
        ctx.save_for_backward(queries, keys, values, out, *kept)
        ctx.scale, ctx.shape = scale, q.shape
        ctx.bias = None if bias is None else (bias.shape, bias.dtype, bias.requires_grad)
        return out.view(batch, heads, time, v.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of q, k, v and the bias."""
        queries, keys, values, out, *kept = ctx.saved_tensors
        rows, time, _ = queries.shape
        batch, heads = ctx.shape[:2]
        of_out = gradients[0].reshape(rows, time, values.shape[-1])
        of_queries = torch.empty_like(queries)
        # Sums over blocks are kept in float32.
        of_keys = torch.zeros_like(keys, dtype=torch.float32)
        of_values = torch.zeros_like(values, dtype=torch.float32)
        of_bias = None
        if ctx.bias is not None and ctx.bias[2]:
            # One that is shared by a batch is a sum too; else each entry is written once.
            kind = torch.float32 if len(ctx.bias[0]) == 3 else queries.dtype
            of_bias = torch.zeros(ctx.bias[0], dtype=kind, device=queries.device)
        inner = (of_out.float() * out.float()).sum(-1, keepdim=True).to(queries.dtype)
        for index, weights in enumerate(kept):
            start = index * TRAINING_BLOCK
            end = min(start + TRAINING_BLOCK, time)
            part = of_out[:, start:end]
            of_values[:, :end] += torch.bmm(weights.transpose(1, 2), part)
            of_scores = torch.bmm(part, values[:, :end].transpose(1, 2))
            of_scores = of_scores.sub_(inner[:, start:end]).mul_(weights)
            of_queries[:, start:end] = torch.bmm(of_scores, keys[:, :end])
            of_keys[:, :end] += torch.bmm(of_scores.transpose(1, 2), queries[:, start:end])
            if of_bias is not None:
                shaped = of_scores.view(batch, heads, end - start, end)
                lead = of_bias.dim() - 2
                summed = shaped if lead == 2 else shaped.sum(0, dtype=torch.float32)
                of_bias[..., start:end, :end] = summed
        return (
            (of_queries * ctx.scale).view(ctx.shape),
            of_keys.to(keys.dtype).view(ctx.shape),
            of_values.to(values.dtype).view(batch, heads, time, -1),
            None if of_bias is None else of_bias.to(ctx.bias[1]),
            None,
        )
