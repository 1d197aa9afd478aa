"""Lengths: stated, original and trained, and how they go with the factor."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...scaling import Linear, Llama3, LongRoPE, YaRN
from ..rule import Example, Rule, Seen
from ..subject import Subject, kind_of, number_in
from .samples import LLAMA_128K
from .stated import stated_key

_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# Released lists stretch the slowest plane by at most twice the ratio of their lengths.
_FARTHEST = 4
# Trained so: with llama3 scaling the product is no reach.
_LLAMA31 = (8.0, 8192, 131072)


def _original_is_stated(subject: Subject) -> Iterator[Seen]:
    stated = subject.stated
    for path, block in subject.blocks():
        original = number_in(block, "original_max_position_embeddings")
        factor = number_in(block, "factor")
        if kind_of(block) not in ("yarn", "llama3") or not factor or factor <= 1:
            continue
        if original is None or stated is None or path.startswith("override"):
            continue
        where = f"{path}.original_max_position_embeddings"
        if original == stated:
            yield from _equal_lengths(where, original, factor)
        elif original > stated:
            yield Seen(
                where,
                f"{original:.0f}, above the stated length {stated}, with factor {factor:g}",
                f"a length before stretching, or a stated length of {original * factor:.0f}",
                "restore the lengths of the released config",
            )
    plan = subject.plan
    if subject.is_config or plan is None or plan.rope is None:
        return
    scaling = plan.rope.scaling
    if isinstance(scaling, YaRN) and scaling.factor > 1 and scaling.original_length == stated:
        key = plan.sources["original_length"].source.rsplit(": ", 1)[-1]
        yield from _equal_lengths(key, float(scaling.original_length or 0), scaling.factor)


def _equal_lengths(where: str, original: float, factor: float) -> Iterator[Seen]:
    yield Seen(
        where,
        f"{original:.0f}, the stated length itself, with factor {factor:g}",
        "the length before stretching; or, if it is that, a stated length of "
        f"{original * factor:.0f}",
        "if the block was copied from another model, remove it: it stretches texts that the "
        "model takes as they are; else raise the stated length",
    )


def _product(subject: Subject) -> Iterator[Seen]:
    stated, plan = subject.stated, subject.plan
    if plan is None or plan.rope is None or stated is None:
        return
    scaling = plan.rope.scaling
    original = scaling.original_length
    if original is None or original == stated or scaling.stretch <= 1:
        return
    if not isinstance(scaling, YaRN | Linear | Llama3):
        return
    if isinstance(scaling, Llama3) and (scaling.factor, original, stated) == _LLAMA31:
        return
    reach = scaling.stretch * original
    where = plan.sources["scaling"].source.rsplit(": ", 1)[-1] if "scaling" in plan.sources else ""
    where = (where if subject.is_config else "") or stated_key(subject)
    found = f"factor {scaling.stretch:g} x original length {original} = {reach:.0f}"
    if reach < stated * 0.999:
        yield Seen(
            where,
            f"{found}, below the stated length {stated}",
            f"factor {stated / original:g}, or a stated length of {reach:.0f}",
            "make the three agree",
            severity="note" if isinstance(scaling, Llama3) else None,
        )
    elif reach > stated * 1.001 and not isinstance(scaling, Llama3):
        yield Seen(
            where,
            f"{found}, above the stated length {stated}",
            f"a stated length of {reach:.0f}, if the model may use all of it",
            "nothing, if the shorter limit is meant; engines differ in which they obey",
            severity="note",
        )


def _no_original(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        kind = kind_of(block)
        if kind not in ("yarn", "llama3", "longrope"):
            continue
        if block.get("original_max_position_embeddings") is not None:
            continue
        if path.startswith("override") and subject.refusal is not None:
            continue
        if path.startswith("override"):
            yield Seen(
                f"{path}.original_max_position_embeddings",
                "nothing",
                "the length before stretching: vLLM and SGLang refuse the block without it",
                "add it",
            )
            continue
        if subject.part.get("original_max_position_embeddings") is not None:
            continue
        if subject.family is not None and subject.family.trained_length is not None:
            continue
        stated = subject.stated
        yield Seen(
            f"{path}.original_max_position_embeddings",
            "nothing",
            f"the length before stretching: transformers takes max_position_embeddings {stated} "
            "for it, which is usually the length after",
            "add it",
        )
    if subject.is_gguf:
        for note in subject.notes():
            if note.startswith("rope.scaling.original_context_length is missing"):
                yield Seen("rope.scaling.original_context_length", "nothing",
                           "the length before stretching", "convert the model again")  # fmt: skip


def _ignored_original(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        original = number_in(block, "original_max_position_embeddings")
        if original is None or path.startswith("override"):
            continue
        kind = kind_of(block)
        if kind == "dynamic" and subject.stated not in (None, original):
            yield Seen(
                f"{path}.original_max_position_embeddings",
                f"{original:.0f} with dynamic scaling",
                f"no such key: transformers starts to stretch past max_position_embeddings "
                f"{subject.stated}",
                f"set max_position_embeddings to {original:.0f}, or remove the key",
            )
        if kind in (None, "default") and number_in(block, "factor") is None:
            yield Seen(
                f"{path}.original_max_position_embeddings",
                f"{original:.0f} without a scaling",
                "no such key, or a rope_type that uses it",
                "name the scaling, or remove the key",
                severity="note",
            )


def _length_inside(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        if path and block.get("max_position_embeddings") is not None:
            yield Seen(
                f"{path}.max_position_embeddings",
                str(block["max_position_embeddings"]),
                "this key at the level above: inside the rope block no program reads it",
                "move it out, or name it original_max_position_embeddings if that is meant",
            )


def _linear_length(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is None or plan.rope is None or plan.stated_length is None:
        return
    scaling = plan.rope.scaling
    if isinstance(scaling, Linear) and scaling.original_length is None and scaling.factor > 1:
        stated, factor = plan.stated_length, scaling.factor
        yield Seen(
            stated_key(subject),
            f"{stated} with linear factor {factor:g}, and no original length",
            f"either original {stated / factor:g} and {stated} after stretching, or original "
            f"{stated} and {stated * factor:g}; programs that multiply reach too far in the "
            "first case",
            "add original_max_position_embeddings to the block",
        )


def _longrope_ratio(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is None or plan.rope is None or not isinstance(plan.rope.scaling, LongRoPE):
        return
    scaling, stated = plan.rope.scaling, plan.stated_length
    original = scaling.original_length
    if stated is None or original is None or subject.is_gguf:
        return
    for path, block in subject.blocks():
        factor = number_in(block, "factor")
        if factor is not None and not math.isclose(factor, stated / original, rel_tol=1e-3):
            yield Seen(
                f"{path}.factor",
                f"{factor:g}, with {stated} / {original} = {stated / original:g}",
                "the ratio of the lengths: the amplitude is computed from the factor",
                "remove the key, or correct the lengths",
            )
    if sum(scaling.short_factor) > sum(scaling.long_factor):
        yield Seen(
            "short_factor",
            f"a list that sums to {sum(scaling.short_factor):g}, more than the long list's "
            f"{sum(scaling.long_factor):g}",
            "larger divisors in long_factor: long texts are stretched more",
            "swap the two lists",
        )
    if scaling.short_factor == scaling.long_factor:
        return
    most, ratio = max(scaling.long_factor), stated / original
    if most > _FARTHEST * ratio or (stated == original and most > 1):
        kept = stated == original
        yield Seen(
            stated_key(subject),
            f"{stated}{' both as the stated and the original length' if kept else ''}, which is "
            f"{ratio:g} times the original, with divisors up to {most:g}",
            "with lists for short and long texts that differ, an original length far below the "
            "stated one; the amplitude and where the long list begins follow from the two",
            "restore the lengths of the released config",
            # Mild lists may have been trained at the one length, where the long one is idle.
            severity=None if most > _FARTHEST * ratio else "note",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW102",
        title="original length is not below the stated length",
        severity="warning",
        explanation="YaRN and llama3 scaling measure bands from the length before stretching. "
        "Where that is the stated length and the factor is above 1, either the stated length was "
        "not raised or the block belongs to another model.",
        bad=Example({**LLAMA_128K, "max_position_embeddings": 8192, "rope_scaling": _LLAMA3}),
        good=Example({**LLAMA_128K, "max_position_embeddings": 65536, "rope_scaling": _LLAMA3}),
        source="THUDM/slime: GLM-5 script with DeepSeek's block; NVIDIA/Megatron-LM#1418",
        look=_original_is_stated,
    ),
    Rule(
        code="RW103",
        title="factor x original length is not the stated length",
        severity="warning",
        explanation="Past factor x original length positions are not trained, whatever the stated "
        "length says; below it, part of the reach is given away.",
        bad=Example({**LLAMA_128K, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                                "original_max_position_embeddings": 8192}}),
        good=Example({**LLAMA_128K, "rope_scaling": {"rope_type": "yarn", "factor": 16.0,
                                                 "original_max_position_embeddings": 8192}}),
        source="transformers 5.24 modeling_rope_utils.py, _validate_yarn_parameters",
        look=_product,
    ),
    Rule(
        code="RW104",
        title="original length is missing",
        severity="warning",
        explanation="The bands are measured from the length before stretching. Where it is "
        "missing, programs take the stated length, which is usually the one after.",
        bad=Example({**LLAMA_128K, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
        good=Example({**LLAMA_128K, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                                 "original_max_position_embeddings": 32768}}),
        source="transformers 5.24 modeling_rope_utils.py; NVIDIA/Megatron-LM#1418",
        look=_no_original,
    ),
    Rule(
        code="RW105",
        title="original length is not used by this scaling",
        severity="warning",
        explanation="Dynamic scaling grows past max_position_embeddings; an original length in "
        "its block is ignored.",
        bad=Example({**LLAMA_128K, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0,
                                                "original_max_position_embeddings": 8192}}),
        good=Example({**LLAMA_128K, "max_position_embeddings": 8192,
                      "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
        source="transformers 5.24 modeling_rope_utils.py, dynamic_frequency_update",
        look=_ignored_original,
    ),
    Rule(
        code="RW106",
        title="linear scaling does not say its original length",
        severity="note",
        explanation="max_position_embeddings is the length after stretching in some files and the "
        "length before it in others. Tools that stretch once more go wrong in one of the cases.",
        bad=Example({**LLAMA_128K, "max_position_embeddings": 16384,
                     "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        good=Example({**LLAMA_128K, "max_position_embeddings": 16384,
                      "rope_scaling": {"rope_type": "linear", "factor": 4.0,
                                       "original_max_position_embeddings": 4096}}),
        source="configs of Vicuna 16k and Chinese-Alpaca-2 16k",
        look=_linear_length,
    ),
    Rule(
        code="RW113",
        title="length inside the rope block",
        severity="note",
        explanation="max_position_embeddings within rope_scaling or rope_parameters is read by no "
        "program; the one outside counts. Ministral 3's released files have both.",
        bad=Example({**LLAMA_128K, "rope_scaling": {**_LLAMA3, "max_position_embeddings": 131072}}),
        good=Example({**LLAMA_128K, "rope_scaling": _LLAMA3}),
        source="transformers 5.24 modeling_rope_utils.py",
        look=_length_inside,
    ),
    Rule(
        code="RW114",
        title="LongRoPE's lengths do not go with its lists",
        severity="warning",
        explanation="The amplitude is sqrt(1 + ln(stated / original) / ln(original)), and texts "
        "past the original length use the long list. A wrong length changes both.",
        bad=Example({"model_type": "phi3", "hidden_size": 64, "num_attention_heads": 8,
                     "num_hidden_layers": 2, "max_position_embeddings": 4096,
                     "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
                     "rope_scaling": {"type": "longrope", "long_factor": [1.0, 4.0, 16.0, 64.0],
                                      "short_factor": [1.0] * 4}}),
        good=Example({"model_type": "phi3", "hidden_size": 64, "num_attention_heads": 8,
                      "num_hidden_layers": 2, "max_position_embeddings": 131072,
                      "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
                      "rope_scaling": {"type": "longrope", "long_factor": [1.0, 4.0, 16.0, 64.0],
                                       "short_factor": [1.0] * 4}}),
        source="the code of Phi-3; LongRoPE, arXiv 2402.13753",
        look=_longrope_ratio,
    ),
)  # fmt: skip
