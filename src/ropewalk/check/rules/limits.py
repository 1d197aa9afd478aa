"""Limits that depend on the program: dual chunks, sessions, draft models."""

from __future__ import annotations

from collections.abc import Iterator

from ..rule import Example, Rule, Seen
from ..subject import Subject, number_in
from .samples import LLAMA_128K
from .stated import stated_key


def _dual_chunk(subject: Subject) -> Iterator[Seen]:
    block = subject.part.get("dual_chunk_attention_config")
    if not isinstance(block, dict):
        return
    original = number_in(block, "original_max_position_embeddings")
    stated = subject.whole("stated_length")
    if original is not None and stated is not None and stated > original:
        yield Seen(
            f"{subject.prefix}max_position_embeddings",
            f"{stated}, with dual chunk attention over {original:.0f}",
            f"{original:.0f} in programs without dual chunk attention",
            "use an engine that has it, or limit the length",
        )


def _session(subject: Subject) -> Iterator[Seen]:
    session, most = subject.number("session_len"), subject.number("max_position_embeddings")
    scaled = subject.number("rope_scaling_factor")
    if session and most and session[1] > most[1] and not (scaled and scaled[1]):
        yield Seen(
            session[0],
            f"{session[1]:.0f}, past max_position_embeddings {most[1]:.0f} without a scaling",
            "a session within the trained length",
            "correct the one that is wrong",
        )


def _draft(subject: Subject) -> Iterator[Seen]:
    classes = subject.part.get("architectures")
    names = " ".join(map(str, classes)) if isinstance(classes, list) else ""
    stated = subject.stated
    is_draft = any(word in names for word in ("Eagle", "DFlash", "Medusa", "MTPDraft"))
    if is_draft and stated is not None and stated <= 4096:
        yield Seen(
            stated_key(subject),
            f"{stated} in a draft model ({names})",
            "the length of the model it drafts for: past its own length a draft is slower than "
            "none; and the target's rope, unless it was trained with its own",
            "compare it with the target: ropewalk inspect on both",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW110",
        title="length is reached with dual chunk attention only",
        severity="note",
        explanation="Dual chunk attention maps positions into chunks of the trained length. "
        "Without it the same file claims a length that plain rope was not trained for.",
        bad=Example({**LLAMA_128K, "max_position_embeddings": 1010000,
                     "dual_chunk_attention_config": {"chunk_size": 262144, "local_size": 8192,
                                                     "original_max_position_embeddings": 262144}}),
        good=Example({**LLAMA_128K, "max_position_embeddings": 262144}),
        source="the released configs of Qwen2.5-7B-Instruct-1M",
        look=_dual_chunk,
    ),
    Rule(
        code="RW111",
        title="session is longer than the model",
        severity="warning",
        explanation="The engine is told to take longer texts than the stated length, and no "
        "scaling is on.",
        bad=Example({"head_num": 32, "kv_head_num": 32, "num_layer": 2, "size_per_head": 128,
                     "rotary_embedding": 128, "rope_theta": 10000.0, "session_len": 4104,
                     "max_position_embeddings": 2048}),
        good=Example({"head_num": 32, "kv_head_num": 32, "num_layer": 2, "size_per_head": 128,
                      "rotary_embedding": 128, "rope_theta": 10000.0, "session_len": 4096,
                      "max_position_embeddings": 4096}),
        source="InternLM/lmdeploy: turbomind config",
        look=_session,
    ),
    Rule(
        code="RW112",
        title="draft model is shorter than what it drafts for",
        severity="note",
        explanation="A draft head that meets positions past its own training proposes tokens that "
        "are all rejected: decoding is then slower than without it.",
        bad=Example({**LLAMA_128K, "architectures": ["LlamaForCausalLMEagle3"],
                     "max_position_embeddings": 2048}),
        good=Example({**LLAMA_128K, "architectures": ["LlamaForCausalLMEagle3"]}),
        source="sgl-project/sglang#6783",
        look=_draft,
    ),
)  # fmt: skip
