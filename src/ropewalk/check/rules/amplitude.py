"""Numbers that multiply cos and sin, or the softmax: three, and never merged."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...scaling.yarn import temperature
from ..rule import Example, Rule, Seen
from ..subject import Subject, kind_of, number_in
from .samples import LLAMA_32K

_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}
# llama.cpp keeps 0.1 * mscale_all_dim there; slopes of released models are at most 1.
_LARGEST_MULTIPLIER = 0.2


def _attn_factor(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        value = number_in(block, "attn_factor")
        if value is None:
            continue
        factor = number_in(block, "factor") or 1.0
        own = temperature(factor)
        cancels = math.isclose(value * own, 1.0, rel_tol=1e-4)
        yield Seen(
            f"{path}.attn_factor" if path else "attn_factor",
            f"{value:.7g}",
            f"attention_factor, which is another number: transformers ignores attn_factor and "
            f"multiplies cos and sin by {own:.6f}, vLLM by {own:.6f} x {value:.7g} = "
            f"{own * value:.6f}{' (that is 1)' if cancels else ''}",
            f'"attention_factor": {own * value:.6g} if vLLM\'s reading is meant; else remove it',
        )


def _both(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        given = number_in(block, "attention_factor")
        pair = [k for k in ("mscale", "mscale_all_dim") if number_in(block, k)]
        if given is not None and pair and kind_of(block) == "yarn":
            yield Seen(
                f"{path}.attention_factor",
                f"{given:g} beside {' and '.join(pair)}",
                "one of the two: transformers takes attention_factor, DeepSeek's code mscale",
                "remove what the model was not trained with",
            )


def _lone_mscale(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        one, both = number_in(block, "mscale"), number_in(block, "mscale_all_dim")
        factor = number_in(block, "factor")
        if kind_of(block) != "yarn" or not factor or bool(one) == bool(both):
            continue
        if number_in(block, "attention_factor") is not None:
            continue
        lone = "mscale" if one else "mscale_all_dim"
        yield Seen(
            f"{path}.{lone}",
            f"{one or both:g} alone",
            f"nothing else, if an amplitude of 0.1 ln({factor:g}) + 1 = {temperature(factor):.6g} "
            "is meant: transformers needs both numbers nonzero for their ratio",
            "nothing, if that is so",
        )


def _lost_softmax(subject: Subject) -> Iterator[Seen]:
    family, plan = subject.family, subject.plan
    if family is None or family.latent is not None or plan is None:
        return
    if family.block is not None and family.block.get("mscale_all_dim"):
        return  # Ministral 3 was trained so.
    for path, block in subject.blocks():
        slope, factor = number_in(block, "mscale_all_dim"), number_in(block, "factor")
        if kind_of(block) != "yarn" or not slope or not factor or path.startswith("override"):
            continue
        lost = temperature(factor, slope) ** 2
        yield Seen(
            f"{path}.mscale_all_dim",
            f"{slope:g} in {family.defaults_of}, which has no latent attention",
            f"no such key, or a class with latent attention: there the softmax is multiplied by "
            f"{lost:.6g}, here only the ratio on cos and sin is left",
            "use the plain amplitude, or train with what the class does",
        )


def _unlike_formula(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        given, factor = number_in(block, "attention_factor"), number_in(block, "factor")
        if given is None or factor is None or kind_of(block) != "yarn":
            continue
        if not math.isclose(given, temperature(factor), rel_tol=1e-3) and given != 1.0:
            yield Seen(
                f"{path}.attention_factor",
                f"{given:g}",
                f"0.1 ln({factor:g}) + 1 = {temperature(factor):.6g}, the paper's formula; 1 turns "
                "it off",
                "nothing, if the model was trained with it",
            )


def _multiplier(subject: Subject) -> Iterator[Seen]:
    for key, value in subject.values.items():
        named = subject.is_gguf and key.endswith("rope.scaling.yarn_log_multiplier")
        if named and isinstance(value, int | float) and abs(value) > _LARGEST_MULTIPLIER:
            yield Seen(
                key.split(".", 1)[1],
                f"{value:g}",
                f"0.1 x mscale_all_dim, e.g. {0.1 * value:g}: llama.cpp multiplies ln(factor) by "
                "it directly",
                "convert the model again",
            )


def _unused_temperature(subject: Subject) -> Iterator[Seen]:
    for note in subject.notes():
        if "llama_4_scaling_beta is not used" in note:
            yield Seen(
                "llama_4_scaling_beta",
                note.split(" is not used")[1].strip() or "set",
                "a family whose code multiplies queries by position (ministral3, mistral4)",
                "remove the key, or correct model_type",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW301",
        title="attn_factor is not attention_factor",
        severity="warning",
        explanation="transformers reads attention_factor, the amplitude itself, and ignores "
        "attn_factor; vLLM and SGLang multiply their own amplitude by attn_factor. From one file "
        "the engines then compute scores that differ by the square.",
        bad=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "attn_factor": 0.8278}}),
        good=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "attention_factor": 1.0}}),
        source="the config of DeepSeek-R1-0528-Qwen3-8B; vLLM 0.33 rotary embedding factory",
        look=_attn_factor,
    ),
    Rule(
        code="RW302",
        title="attention_factor together with mscale",
        severity="warning",
        explanation="Two ways to give the amplitude. Which one wins differs between programs.",
        bad=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "attention_factor": 1.0, "mscale": 1.0,
                                                "mscale_all_dim": 1.0}}),
        good=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "attention_factor": 1.0}}),
        source="transformers 5.24 modeling_rope_utils.py, _compute_yarn_parameters",
        look=_both,
    ),
    Rule(
        code="RW303",
        title="one of mscale and mscale_all_dim alone",
        severity="note",
        explanation="transformers forms the ratio of the two temperatures only where both are "
        "nonzero; a lone one leaves the default amplitude 0.1 ln(factor) + 1.",
        bad=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.0}}),
        good=Example({**LLAMA_32K, "rope_scaling": _YARN}),
        source="the config of Devstral 2; Avarok-Cybersecurity/atlas PR 342",
        look=_lone_mscale,
    ),
    Rule(
        code="RW304",
        title="softmax multiplier is lost in this class",
        severity="warning",
        explanation="mscale_all_dim divides the amplitude of cos and sin, because latent "
        "attention multiplies its softmax by the square instead. A class without latent "
        "attention keeps the division and has no multiplication.",
        bad=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "mscale": 0.707,
                                                "mscale_all_dim": 0.707}}),
        good=Example({**LLAMA_32K, "rope_scaling": _YARN}),
        source="NVIDIA/Megatron-LM#1429; sgl-project/SpecForge: a draft for DeepSeek-V2-Lite",
        look=_lost_softmax,
    ),
    Rule(
        code="RW305",
        title="amplitude is not the paper's",
        severity="note",
        explanation="The amplitude is given outright and differs from 0.1 ln(factor) + 1. It is a "
        "trained value; a copied one goes with another factor.",
        bad=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "attention_factor": 1.5}}),
        good=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "attention_factor": 1.0}}),
        source="YaRN, arXiv 2309.00071, equation 22",
        look=_unlike_formula,
    ),
    Rule(
        code="RW306",
        title="yarn_log_multiplier is ten times too large",
        severity="warning",
        explanation="GGUF files keep 0.1 x mscale_all_dim; mscale_all_dim itself there makes the "
        "softmax of long contexts far too sharp.",
        bad=Example("deepseek2.block_count=2; deepseek2.rope.scaling.type=yarn; "
                    "deepseek2.rope.scaling.factor=40.0; deepseek2.rope.dimension_count=64; "
                    "deepseek2.rope.scaling.original_context_length=4096; "
                    "deepseek2.rope.scaling.yarn_log_multiplier=0.707"),
        good=Example("deepseek2.block_count=2; deepseek2.rope.scaling.type=yarn; "
                     "deepseek2.rope.scaling.factor=40.0; deepseek2.rope.dimension_count=64; "
                     "deepseek2.rope.scaling.original_context_length=4096; "
                     "deepseek2.rope.scaling.yarn_log_multiplier=0.0707"),
        source="llama.cpp 0c1e570, conversion of deepseek2",
        look=_multiplier,
    ),
    Rule(
        code="RW307",
        title="query temperature is not used by this class",
        severity="warning",
        explanation="llama_4_scaling_beta multiplies queries by their position in some families "
        "only; elsewhere it is ignored.",
        bad=Example({**LLAMA_32K, "rope_parameters": {**_YARN, "llama_4_scaling_beta": 0.1}}),
        good=Example({**LLAMA_32K, "rope_parameters": _YARN}),
        source="transformers 5.24: modeling_ministral3.py",
        look=_unused_temperature,
    ),
)  # fmt: skip
