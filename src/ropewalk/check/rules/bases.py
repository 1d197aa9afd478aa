"""The base: below the published bound, missing, or too large for an integer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...rope import Rope
from ...scaling import Plain
from ..rule import Example, Rule, Seen
from ..subject import Subject
from .samples import LLAMA_128K, NEOX_FLAGS

# Where the sum of cosines is looked at: every distance up to the first, then every eighth.
_EVERY, _FARTHEST, _STRIDE = 16384, 131072, 8
# No released head has more; the number bounds the work that a file can ask for.
_MOST_PLANES = 512


def first_violation(rope: Rope, length: int) -> int | None:
    """Return the first distance at which the sum of cosines over the planes is negative.

    Looked at are all distances up to 16384, then every eighth, up to 131072 or the length.
    """
    inv_freq = rope.inv_freq()
    ends = min(length, _FARTHEST)
    dense = np.arange(1, min(ends, _EVERY))
    sparse = np.arange(_EVERY, ends, _STRIDE)
    distances = np.concatenate([dense, sparse])
    for start in range(0, len(distances), 4096):
        part = distances[start : start + 4096]
        sums = np.cos(np.multiply.outer(part, inv_freq)).sum(axis=1)
        below = np.flatnonzero(sums < 0)
        if len(below):
            return int(part[below[0]])
    return None


def _base_bound(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is None or plan.rope is None or plan.stated_length is None:
        return
    rope = plan.rope
    whole = rope.rotary_dim == rope.head_dim
    if not isinstance(rope.scaling, Plain) or not whole or not 8 <= rope.planes <= _MOST_PLANES:
        return
    if any(layer.rope is None for layer in plan.layers):
        return
    windows = [layer.window for layer in plan.layers if layer.rope == rope]
    reach = plan.stated_length
    if windows and all(window is not None for window in windows):
        reach = min(reach, *(window for window in windows if window is not None))
    found = first_violation(rope, reach)
    if found is not None:
        yield Seen(
            _theta_key(subject),
            f"base {rope.theta:.15g} for {reach} tokens: at distance {found} the sum of cos over "
            f"the {rope.planes} planes falls below 0",
            "a larger base, if the model is to tell a similar key from a random one at that "
            "distance; assumed: q and k of independent, equally distributed lanes. Released "
            "models break this bound (Llama 2: 10000 at 4096)",
            "nothing, unless retrieval over long distances fails; then retrain with a larger base",
        )


def _theta_key(subject: Subject) -> str:
    sources = subject.plan.sources if subject.plan else {}
    found = sources.get("theta") or sources.get("theta (full_attention)")
    if found is None or ": " not in found.source:
        return "rope_theta"
    return found.source.rsplit(": ", 1)[-1]


def _beyond_training(subject: Subject) -> Iterator[Seen]:
    texts = subject.number("seq_length", "seq_len", "train.seq_len")
    plan = subject.plan
    if texts is None or subject.is_config or plan is None or plan.rope is None:
        return
    stated = plan.stated_length
    trained = int(texts[1])
    if stated is None or stated < 8 * trained or not isinstance(plan.rope.scaling, Plain):
        return
    found = first_violation(plan.rope, stated)
    if found is not None and found < trained:
        yield Seen(
            "max_position_embeddings",
            f"{stated}, with texts of {trained} tokens and base {plan.rope.theta:.15g}",
            f"about {trained}: positions past it are not trained, and the base is small for them",
            "state the trained length, or train longer texts with a larger base",
        )


def _theta_missing(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is None or plan.rope is None:
        return
    for name, item in plan.sources.items():
        if not name.startswith("theta") or not item.source.startswith("default of"):
            continue
        local = "sliding" in name
        if subject.is_gguf and local:
            continue  # No converter writes it; the default is that of the architecture.
        if subject.is_gguf:
            key = "rope.freq_base"
        else:
            key = f"{subject.prefix}rope_theta" + (" (sliding layers)" if local else "")
        yield Seen(
            key,
            f"nothing; assumed {item.value:.15g} ({item.source})",
            "the base that the model was trained with: a checkpoint of another base gives "
            "gibberish on long prompts",
            f"write it down, even if it is {item.value:.15g}",
            severity="warning" if subject.is_gguf else None,
        )


def _too_small(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is not None and plan.rope is not None and plan.rope.theta <= 1:
        yield Seen(
            _theta_key(subject),
            f"{plan.rope.theta:.15g}",
            "a base above 1, usually 10000 or more: with less, later planes turn no slower than "
            "the first",
            "take the base of the model's own config",
        )


def _int32(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is not None and plan.rope is not None and plan.rope.theta > 2**31 - 1:
        yield Seen(
            _theta_key(subject),
            f"{plan.rope.theta:.15g}",
            "a base kept as a floating point number: it overflows a 32-bit integer",
            "nothing in the file; check programs that store it as an integer",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW107",
        title="base is below the published bound for the length",
        severity="note",
        explanation="A heuristic. Under the assumption of independent, equally distributed lanes, "
        "the score of a similar key exceeds that of a random one at distance m only while the "
        "sum of cos(m inv_freq) over the planes is positive. The finding says where it first is "
        "not. Trained models break the bound and work.",
        bad=Example({**LLAMA_128K, "rope_theta": 10000.0}),
        good=Example({**LLAMA_128K, "max_position_embeddings": 8192}),
        source="Men et al. 2024, Base of RoPE Bounds Context Length, arXiv 2405.14591",
        look=_base_bound,
    ),
    Rule(
        code="RW108",
        title="stated length is far beyond the texts of training",
        severity="warning",
        explanation="The file trains on texts an eighth as long as it states, or shorter, without "
        "a scaling and with a base that is small for the stated length.",
        bad=Example({**NEOX_FLAGS, "max_position_embeddings": 131072}),
        good=Example(NEOX_FLAGS),
        source="EleutherAI/gpt-neox: configs/mistral/7B.yml",
        look=_beyond_training,
    ),
    Rule(
        code="RW109",
        title="base is not in the file",
        severity="note",
        explanation="The default of the program is taken, for most families 10000. If the model "
        "was trained with another base, short prompts look fine and long ones are gibberish.",
        bad=Example({key: value for key, value in LLAMA_128K.items() if key != "rope_theta"}),
        good=Example(LLAMA_128K),
        source="meta-pytorch/gpt-fast#179; ggml-org/llama.cpp PR 2768 and 2773",
        look=_theta_missing,
    ),
    Rule(
        code="RW115",
        title="base is not above 1",
        severity="error",
        explanation="Frequencies are base^(-2i/d). With a base of 1 all planes turn alike, with "
        "less the order is reversed and angles grow with the index.",
        bad=Example({**LLAMA_128K, "rope_theta": 0.5}),
        good=Example({**LLAMA_128K, "rope_theta": 1000000.0}),
        source="Su et al. 2021, RoFormer, arXiv 2104.09864",
        look=_too_small,
    ),
    Rule(
        code="RW602",
        title="base overflows a 32-bit integer",
        severity="note",
        explanation="Falcon-H1 has base 1e11 by intent. A program that stores the base as a "
        "32-bit integer gets another number.",
        bad=Example({**LLAMA_128K, "rope_theta": 1e11}),
        good=Example({**LLAMA_128K, "rope_theta": 1e9}),
        source="the released configs of Falcon-H1",
        look=_int32,
    ),
)  # fmt: skip
