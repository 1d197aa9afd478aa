"""Scoring long texts with a causal language model, without tokens × vocabulary logits.

The body of the model runs once over the whole pass; the output head then sees only the
positions that are scored, a few hundred at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..encodings import Encoding, Rotary
from ..errors import InputError
from ..rope import Pairing, Precision, Rope
from . import attention
from .loading import LoadedModel
from .override import RopeSlot
from .remapping import long_range_layers, pairing_in_memory, turning, with_pairing

_LOGITS_AT_ONCE = 1 << 25
"""Largest number of logits held at a time (128 MiB in float32)."""


class Scorer:
    """A loaded model that scores tokens under any rope.

    Raises:
        InputError: a model whose attention or output head Ropewalk does not reproduce;
            found by comparing with the model's own logits on a short text.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.model_type = loaded.positions.model_type
        self.dtype = loaded.dtype
        self.tokenizer = loaded.tokenizer
        self.slot = RopeSlot(loaded.model, loaded.positions)
        # Found when the first encoding is asked for that is more than a rope.
        self._remapped: tuple[frozenset[int], Pairing] | None = None
        self._config = loaded.model.config.get_text_config()
        self._head = loaded.model.get_output_embeddings()
        self._check_against_model()

    def _hidden(self, tokens: Any) -> Any:
        body = self.loaded.model.get_decoder()
        return body(input_ids=tokens, use_cache=False).last_hidden_state

    def _logits(self, hidden: Any) -> Any:
        """Apply the head and what families do to logits after it."""
        logits = self._head(hidden).float()
        if (scale := getattr(self._config, "logit_scale", None)) is not None:
            logits = logits * scale
        if (divisor := getattr(self._config, "logits_scaling", None)) is not None:
            logits = logits / divisor
        if (cap := getattr(self._config, "final_logit_softcapping", None)) is not None:
            logits = cap * (logits / cap).tanh()
        return logits

    def _check_against_model(self) -> None:
        import torch

        model = self.loaded.model
        count = int(self._config.vocab_size)
        tokens = (torch.arange(48) * 7919 % count)[None]
        with torch.inference_mode():
            theirs = model(input_ids=tokens, use_cache=False).logits.float().log_softmax(-1)
            model.set_attn_implementation(attention.register())
            ours = self._logits(self._hidden(tokens)).log_softmax(-1)
        # Two orders of the same sums: rounding of the weights' dtype, a hundredfold for the
        # depth of the network and the scale of logits.
        unit = torch.finfo(getattr(torch, self.loaded.dtype)).eps
        scale = theirs.abs().max().item()
        if (ours - theirs).abs().mean().item() > 4 * unit * scale:
            raise InputError(
                self.loaded.positions.path,
                found="logits that differ from the model's own on a short text",
                expected="equal ones up to rounding",
                fix="this family cannot be measured by ropewalk yet",
            )

    def log_likelihoods(
        self,
        tokens: Any,
        setting: Rope | Encoding,
        scored: int,
        length: int,
        precision: Precision = "exact",
    ) -> Any:
        """Return the log probability of the last ``scored`` tokens given all before them.

        Args:
            tokens: int64 tensor (batch, time), rows of equal length without padding.
            setting: the rotary embedding of the long-range layers, or an encoding that is more
                than one, which attention then takes in its place.
            scored: how many tokens at the end of each row are scored, below ``time``.
            length: the length that length-dependent ropes are evaluated at.
            precision: ``float32`` forms angles as transformers does.

        Returns:
            Two tensors (batch, scored): log probabilities in nats, and whether the token
            was the model's first choice.
        """
        import torch

        with torch.inference_mode(), self._running(setting, length, precision):
            hidden = self._hidden(tokens)[:, -scored - 1 : -1]
            targets = tokens[:, -scored:]
            rows = max(1, _LOGITS_AT_ONCE // int(self._config.vocab_size) // tokens.shape[0])
            values, firsts = [], []
            for start in range(0, scored, rows):
                logits = self._logits(hidden[:, start : start + rows])
                wanted = targets[:, start : start + rows]
                picked = logits.gather(-1, wanted[..., None])[..., 0]
                values.append(picked - logits.logsumexp(-1))
                firsts.append(logits.argmax(-1) == wanted)
            return torch.cat(values, dim=1), torch.cat(firsts, dim=1)

    @contextmanager
    def _running(
        self, setting: Rope | Encoding, length: int, precision: Precision
    ) -> Iterator[None]:
        rope = setting.rope if isinstance(setting, Rotary) else setting
        if isinstance(rope, Rope):
            with self.slot.holding(rope, length, precision):
                yield
            return
        if self._remapped is None:
            layers = long_range_layers(self.loaded)
            pairing = pairing_in_memory(self.loaded, self.slot, layers, self._hidden)
            self._remapped = layers, pairing
        layers, pairing = self._remapped
        with turning(self.slot, with_pairing(rope, pairing), layers, length):
            yield

    def cost(self, length: int) -> float:
        """Return the rough cost of one pass, in multiply-adds, for showing the time left."""
        config = self._config
        heads = int(config.num_attention_heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        body = sum(p.numel() for p in self.loaded.model.get_decoder().parameters())
        # Scores are slower per operation than matrix products: exponentials, small heads.
        pairs = 3.0 * int(config.num_hidden_layers) * heads * width * length / 2
        return float(length * (body + 2 * pairs))
