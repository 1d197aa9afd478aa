"""Telling the pairing of a model by running it: the loss of a short text under both."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..extend.loading import LoadedModel, load
from ..extend.scoring import Scorer
from ..extend.texts import default_texts, read_texts, tokenize
from ..rope import Pairing
from .model_weights import ModelWeights, find_weights
from .row_orders import row_order
from .stored_tensors import StoredTensor

_LENGTH, _STRETCHES, _PIECE = 256, 4, 32
"""Tokens of each stretch of text, how many, and the tokens whose mean is one observation."""
LEAST_GAIN = 0.05
LEAST_SHARE = 0.8
"""Nats per token, and share of pieces, by which the better pairing must win."""


@dataclass(frozen=True)
class RunFinding:
    """The loss of a short text under both pairings.

    Attributes:
        found: the pairing with the lower loss, or None if the two are close.
        half: mean loss with half pairing, nats per token.
        adjacent: mean loss with adjacent pairing.
        pieces: pieces of text compared.
        won: share of the pieces in which the better pairing has the lower loss.
        text: what the text was.
        reason: why nothing was found; empty if something was.
    """

    found: Pairing | None
    half: float
    adjacent: float
    pieces: int
    won: float
    text: str
    reason: str


def run_pairing(model: Path, texts: Sequence[Path] = ()) -> RunFinding:
    """Run a model on a short text with its weights taken as of either pairing.

    Args:
        model: a folder of transformers or a GGUF file, with its tokenizer.
        texts: text files; by default some of Python's own sources.

    Raises:
        InputError: a model that cannot be run, or a text that is too short.
        MissingExtraError: torch or transformers is not installed.
    """
    weights = find_weights(model)
    loaded = load(model, dtype="float32", positions=weights.plan)
    scorer = Scorer(loaded)
    documents, origin = (read_texts(texts), "given") if texts else default_texts()
    chosen = tokenize(
        documents, origin, loaded.tokenizer, length=_LENGTH, count=_STRETCHES, scored=_LENGTH - 1
    )
    import torch

    tokens = torch.tensor([document.tokens for document in chosen.documents])
    meant = weights.rope.pairing
    other: Pairing = "adjacent" if meant == "half" else "half"
    losses = {meant: _losses(scorer, weights, tokens)}
    _reorder(loaded, weights)
    losses[other] = _losses(scorer, weights, tokens)
    return _judge(losses["half"], losses["adjacent"], chosen.origin)


def _losses(scorer: Scorer, weights: ModelWeights, tokens: Any) -> list[float]:
    """Return the mean loss of each piece of text."""
    scored = _LENGTH - _PIECE
    values, _ = scorer.log_likelihoods(tokens, weights.rope, scored, _LENGTH)
    means = -values.reshape(len(tokens), -1, _PIECE).double().mean(-1)
    return [float(value) for value in means.flatten()]


def _reorder(loaded: LoadedModel, weights: ModelWeights) -> None:
    """Permute the loaded weights, so that code of one pairing runs what is of the other.

    Where the loader itself permutes (GGUF of architecture llama), this undoes it.
    """
    import torch

    plan = weights.plan
    if weights.kind == "gguf":
        family = loaded.model.config.get_text_config().model_type
        plan = dataclasses.replace(plan, format="hf", model_type=family)
    here = dataclasses.replace(weights, kind="folder", plan=plan)
    parameters = dict(loaded.model.named_parameters())
    shapes = [
        StoredTensor(name, str(p.dtype), tuple(p.shape), 0, 0) for name, p in parameters.items()
    ]
    moved = 0
    with torch.no_grad():
        for found in here.query_key_tensors(shapes, Path(plan.path)):
            order = torch.from_numpy(row_order(found.heads, found.rows, weights.rope.pairing))
            parameter = parameters[found.tensor.name]
            parameter.copy_(parameter.reshape(found.rows, -1)[order].reshape(parameter.shape))
            moved += 1
    if not moved:
        raise InputError(
            plan.path,
            found=f"a running model of {plan.model_type} without known query and key weights",
            expected="the family's names",
            fix="leave out --run",
        )


def _judge(half: list[float], adjacent: list[float], text: str) -> RunFinding:
    means = {"half": math.fsum(half) / len(half), "adjacent": math.fsum(adjacent) / len(adjacent)}
    better: Pairing = "half" if means["half"] <= means["adjacent"] else "adjacent"
    gain = abs(means["half"] - means["adjacent"])
    best, rest = (half, adjacent) if better == "half" else (adjacent, half)
    won = sum(a < b for a, b in zip(best, rest, strict=True)) / len(best)
    reason = ""
    if not math.isfinite(gain):
        reason = "a loss is no finite number"
    elif gain < LEAST_GAIN or won < LEAST_SHARE:
        reason = (
            f"the losses are close: {gain:.3f} nats apart, the better one lower in {won:.0%} of "
            f"the pieces; {LEAST_GAIN} and {LEAST_SHARE:.0%} are asked"
        )
    return RunFinding(
        None if reason else better, means["half"], means["adjacent"], len(half), won, text, reason
    )
