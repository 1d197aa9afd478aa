"""The lab's models as the code of `ropewalk measure` sees them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..encodings import Encoding, Rotary
from ..rope import Precision, Rope
from ..scaling import Plain
from .model import Decoder
from .training import autocast, mixed_precision


class ByteTokenizer:
    """Bytes of UTF-8 text as token ids, with the two calls that measuring makes."""

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        """Return the ids."""
        return {"input_ids": list(text.encode())}

    def decode(self, ids: list[int]) -> str:
        """Return the text."""
        return bytes(ids).decode("utf-8", errors="replace")

    def byte_count(self, ids: list[int]) -> int:
        """Return the bytes of text that the ids stand for, also within a character."""
        return len(ids)


class LabScorer:
    """Scores tokens with a lab model under any encoding.

    Args:
        model: trained.
    """

    def __init__(self, model: Decoder) -> None:
        self.model = model.eval()
        self.model_type = "lab decoder"
        self.precision = mixed_precision()
        self.dtype = "float32" if self.precision is None else "bfloat16"
        self.tokenizer = ByteTokenizer()

    def log_likelihoods(
        self,
        tokens: Tensor,
        setting: Rope | Encoding,
        scored: int,
        length: int,
        precision: Precision = "exact",
    ) -> tuple[Tensor, Tensor]:
        """See `ropewalk.extend.scoring.Scorer.log_likelihoods`."""
        encoding = Rotary(rope=setting) if isinstance(setting, Rope) else setting
        before = self.model.encoding, self.model.positions
        if encoding != self.model.encoding:
            self.model.use(encoding)
        try:
            with torch.no_grad(), autocast(self.precision):
                hidden = self.model.hidden(tokens, length=length, last=scored + 1)
                logits = linear(hidden[:, :-1], self.model.head).float().log_softmax(-1)
        finally:
            self.model.encoding, self.model.positions = before
        targets = tokens[:, -scored:]
        picked = logits.gather(-1, targets[..., None])[..., 0]
        return picked, logits.argmax(-1) == targets

    def cost(self, length: int) -> float:
        """See `ropewalk.extend.scoring.Scorer.cost`."""
        shape = self.model.shape
        body = sum(p.numel() for p in self.model.blocks.parameters())
        return float(length * (body + 3.0 * shape.layers * shape.width * length))


def base_setting(encoding: Encoding) -> Rope | Encoding:
    """Return what extension methods start from: the rope of a plain rotary model."""
    if isinstance(encoding, Rotary) and isinstance(encoding.rope.scaling, Plain):
        return encoding.rope
    return encoding
