"""Weights and tensors that contradict the file's own words."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import InputError
from ...models.pairing_note import NOTE, disagreement, noted_pairing
from ..rule import Example, Rule, Seen
from ..subject import Subject

_LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 6,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
# Larger ones take many seconds, and are looked at on request.
_LARGEST_UNASKED = 2**30
_LISTED = (
    "llama.block_count=2; llama.context_length=131072; llama.embedding_length=64; "
    "llama.attention.head_count=8; llama.rope.freq_base=500000.0"
)
_PHI = (
    "phi3.block_count=2; phi3.context_length=131072; phi3.embedding_length=64; "
    "phi3.attention.head_count=8; phi3.rope.freq_base=10000.0; phi3.rope.dimension_count=8; "
    "phi3.rope.scaling.original_context_length=4096"
)
_LONG = {
    "rope_factors_long.weight": ("F32", (1.0, 2.0, 3.0, 4.0)),
    "rope_factors_short.weight": ("F32", (1.0, 1.0, 1.0, 1.0)),
}


def _pairing(subject: Subject) -> Iterator[Seen]:
    if subject.weights is False or subject.place is None or subject.plan is None:
        return
    if subject.kind == "gguf":
        model, files = subject.place, [subject.place]
    elif subject.kind == "values":
        model = subject.place.parent
        files = list(model.glob("*.safetensors"))
    else:
        return
    size = sum(path.stat().st_size for path in files if path.is_file())
    if not size or (subject.weights is None and size > _LARGEST_UNASKED):
        return
    from ...convert.pairing import weights_agree

    found = weights_agree(model, subject.header)
    if found is None:
        return
    best = max(found.contrasts, key=lambda c: c.z)
    yield Seen(
        "weights of queries and keys",
        f"{found.found} lanes (p = {best.p:.1g}, {len(found.layers)} layers read)"
        if found.found
        else found.reason,
        f"{found.expected} lanes, as {found.expected_from} means",
        "permute the rows (ropewalk convert MODEL --pairing), or convert from the original again; "
        "see ropewalk pairing",
    )


def _noted(subject: Subject) -> Iterator[Seen]:
    if subject.place is None or subject.plan is None or subject.kind not in ("gguf", "values"):
        return
    try:
        said = disagreement(subject.plan, noted_pairing(subject.place))
    except InputError as error:
        yield Seen(NOTE, error.found, error.expected, error.fix)
        return
    if said is not None:
        yield Seen(
            NOTE,
            said,
            "weights for the lanes that the code rotates",
            "run ropewalk convert MODEL --pairing, or code of your own that rotates these lanes",
        )


def _multipliers(subject: Subject) -> Iterator[Seen]:
    if subject.header is None:
        return
    try:
        divisors = subject.header.floats("rope_freqs.weight")
    except InputError:
        return
    if divisors is not None and len(divisors) and divisors.max() <= 1 and divisors.min() < 1:
        yield Seen(
            "rope_freqs.weight",
            f"values from {divisors.max():g} down to {divisors.min():g}",
            "divisors, 1 and above: llama.cpp divides frequencies by them",
            "write 1 / value",
        )


def _missing_lists(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if not subject.is_gguf or subject.tensors is None or plan is None:
        return
    name = plan.model_type
    original = subject.values.get(f"{name}.rope.scaling.original_context_length")
    stated = plan.stated_length
    if name not in ("phi3", "phimoe", "minicpm3") or not isinstance(original, int):
        return
    lists = "rope_factors_long.weight" in subject.tensors
    if stated is not None and stated > original and not lists:
        yield Seen(
            "rope_factors_long.weight",
            f"no such tensor, with context_length {stated} over {original}",
            "the divisors of LongRoPE for long and for short texts",
            "convert it again with a converter that writes them",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW801",
        title="weights have another pairing of lanes than the file means",
        severity="error",
        explanation="Rows of queries and keys were permuted once too often, not at all, or with "
        "the wrong number of heads. The model writes some sensible words and then gibberish. Told "
        "from the weights alone; where they do not clearly say, nothing is reported.",
        bad=Example(_LLAMA, weights="rows of q_proj and k_proj ordered for adjacent lanes"),
        good=Example(_LLAMA, weights="rows of q_proj and k_proj ordered for halves"),
        source="karpathy/llama2.c PR 286; huggingface/transformers PR 31788",
        look=_pairing,
    ),
    Rule(
        code="RW802",
        title="divisors are written as multipliers",
        severity="error",
        explanation="rope_freqs.weight holds what each frequency is divided by: 1 for fast planes "
        "and the factor for slow ones.",
        bad=Example(_LISTED, {"rope_freqs.weight": ("F32", (1.0, 0.5, 0.25, 0.125))}),
        good=Example(_LISTED, {"rope_freqs.weight": ("F32", (1.0, 2.0, 4.0, 8.0))}),
        source="ggml-org/llama.cpp PR 8676; llama.cpp#8808",
        look=_multipliers,
    ),
    Rule(
        code="RW803",
        title="lists of divisors are missing",
        severity="warning",
        explanation="The lengths are those of a LongRoPE model, but the file has no divisors: the "
        "model then runs as plain rope.",
        bad=Example(_PHI, {"output_norm.weight": ("F32", (1.0, 1.0))}),
        good=Example(f"{_PHI}; phi3.rope.scaling.type=longrope", _LONG),
        source="ggml-org/llama.cpp: conversion of phi3",
        look=_missing_lists,
    ),
    Rule(
        code="RW804",
        title="weights are noted to be for lanes that no engine will rotate",
        severity="error",
        explanation="Where no key of a config can say the pairing, ropewalk convert writes it into "
        "a file beside the weights. Engines do not read that file: they rotate the lanes that "
        "the family's code rotates, and compute gibberish.",
        bad=Example(_LLAMA, beside={NOTE: '{"pairing": "adjacent"}'}),
        good=Example(_LLAMA, beside={NOTE: '{"pairing": "half"}'}),
        source="ropewalk convert --pairing: docs/pairing.md",
        look=_noted,
    ),
)
