"""The stated length: lowered for a compiler, or below the texts of training."""

from __future__ import annotations

from collections.abc import Iterator

from ...models.rows import encoders
from ..rule import Example, Rule, Seen
from ..subject import Subject, kind_of
from .samples import LLAMA_128K, NEOX_FLAGS

_SHORT, _WIDE = 1024, 1024
# A base that is raised so far was raised for longer texts.
_RAISED_BASE = 500000.0
# Models cut down for tests keep the usual base; a raised one is that of a real, if narrow, model.
_LESS_WIDE, _LONG_BASE = 512, 100000.0
# No rotary language model was released for so short a text; encoders were.
_ENCODERS = frozenset(encoders.ROWS)


def stated_key(subject: Subject) -> str:
    """Return the key that the stated length stands under."""
    source = None if subject.plan is None else subject.plan.sources.get("stated_length")
    if source is not None and ": " in source.source:
        return source.source.rsplit(": ", 1)[-1]
    found = subject.get("stated_length")
    return f"{subject.prefix}{found[0] if found else 'max_position_embeddings'}"


def _lowered(subject: Subject) -> Iterator[Seen]:
    hidden = subject.get("hidden_size")
    base = None if subject.plan is None or subject.plan.rope is None else subject.plan.rope.theta
    least = _LESS_WIDE if base is not None and base >= _LONG_BASE else _WIDE
    wide = hidden is not None and isinstance(hidden[1], int) and hidden[1] >= least
    stated = subject.whole("stated_length")
    key = stated_key(subject)
    told = str(subject.part.get("model_type"))
    if told == "chatglm":
        stated, key = subject.part.get("seq_length"), "seq_length"
    is_text = subject.plan is None or subject.plan.rope is not None
    rotary = any(subject.part.get(name) is not None for name in ("rope_theta", "rope_scaling"))
    if subject.plan is None and not rotary:
        return
    if not subject.is_config or not wide or not is_text or told in _ENCODERS:
        return
    for name, length in ((key, stated), ("seq_length", subject.part.get("seq_length"))):
        raised = base is not None and base >= _RAISED_BASE
        short = 2 * _SHORT if raised else _SHORT
        usual = subject.family is not None and length == subject.family.sizes.length
        usual = usual and not (raised and length == short)
        if type(length) is int and 0 < length <= short and not usual:
            rule = ""
            if subject.part.get("use_dynamic_ntk") or any(
                kind_of(block) in ("dynamic", "longrope", "su") for _, block in subject.blocks()
            ):
                rule = "; the scaling switches at this length, so every longer text changes too"
            yield Seen(
                name,
                f"{length}",
                f"the length that the model was trained for: no rotary language model of this "
                f"size{' and base' if raised else ''} was released with {short} or less{rule}",
                "restore the value of the released config; limit the length in the program",
            )
            if name == "seq_length":
                return


def _lowered_gguf(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if not subject.is_gguf or plan is None or plan.rope is None or plan.stated_length is None:
        return
    hidden = subject.number(f"{plan.model_type}.embedding_length")
    if hidden and hidden[1] >= _WIDE and plan.stated_length <= _SHORT:
        yield Seen(
            f"{plan.model_type}.context_length",
            f"{plan.stated_length}",
            "the length that the model was trained for: no rotary language model of this size was "
            f"released with {_SHORT} or less",
            "convert it again from the released config; limit the length in the program",
        )


def _texts_longer(subject: Subject) -> Iterator[Seen]:
    """Training settings whose texts are longer than the length that they state."""
    plan = subject.plan
    texts = subject.number("seq_length", "train.seq_len")
    most = subject.number("max_position_embeddings")
    if subject.is_config or plan is None or plan.rope is None or not texts or not most:
        return
    if texts[1] > most[1] and plan.format in ("megatron", "gpt-neox"):
        yield Seen(
            texts[0],
            f"{texts[1]:.0f}, with max_position_embeddings {most[1]:.0f}",
            f"at most {most[1]:.0f}: the program refuses to start, or reads past its table",
            "raise max_position_embeddings, or shorten the texts",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW101",
        title="stated length is too short for this model",
        severity="warning",
        explanation="Files made for compilers with fixed shapes carry a lowered length. Programs "
        "cut texts there, and scalings that switch at the length switch too early.",
        bad=Example({**LLAMA_128K, "max_position_embeddings": 512}),
        good=Example({**LLAMA_128K, "max_position_embeddings": 8192}),
        source="sophgo/LLM-TPU: configs of compiled models",
        look=lambda subject: (
            item for part in (_lowered, _lowered_gguf) for item in part(subject)
        ),
    ),
    Rule(
        code="RW116",
        title="texts of training are longer than the stated length",
        severity="error",
        explanation="max_position_embeddings is the number of positions that a program prepares. "
        "Megatron and GPT-NeoX demand that it is no smaller than seq_length.",
        bad=Example({**NEOX_FLAGS, "max_position_embeddings": 4096}),
        good=Example({**NEOX_FLAGS, "seq_length": 4096, "max_position_embeddings": 4096}),
        source="Megatron-LM, validate_args: max_position_embeddings >= seq_length",
        look=_texts_longer,
    ),
)  # fmt: skip
