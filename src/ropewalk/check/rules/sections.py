"""Positions of several axes: which plane turns by which of them."""

from __future__ import annotations

from collections.abc import Iterator

from ...models.family import Family
from ...rope import Rope
from ..rule import Example, Rule, Seen
from ..subject import Subject, kind_of
from .samples import LLAMA

_SECTIONS = ("mrope_section", "xdrope_section")


def _sections(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    rope = None if plan is None else plan.rope
    for path, block in subject.blocks():
        for key in _SECTIONS:
            sections = block.get(key)
            if sections is None:
                continue
            where = f"{path}.{key}" if path else key
            if not isinstance(sections, list) or not all(
                isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sections
            ):
                yield Seen(where, repr(sections)[:60], "whole numbers of planes, one per axis",
                           "take the list from the model's own config")  # fmt: skip
                continue
            # A block that is restated whole brings its own share: it is as its writer wants it.
            unknown = path.startswith("override") and block.get("rope_theta") is None
            yield from _sum(where, sections, rope, unknown)
            yield from _axes(where, sections, subject.family)
    yield from _flat_sections(subject, rope)


def _sum(where: str, sections: list[int], rope: Rope | None, override: bool) -> Iterator[Seen]:
    total = sum(sections)
    if rope is not None and total != rope.planes:
        yield Seen(
            where,
            f"{sections}, which add up to {total}",
            f"{rope.planes}, the planes of the rope (rotary_dim {rope.rotary_dim} / 2)",
            "take the list of the released config",
        )
    elif rope is None and override:
        yield Seen(
            where,
            f"{sections}, which add up to {total}",
            f"the planes of the model: {total} fit rotary_dim {2 * total} (64 planes: Qwen2-VL to "
            "Qwen3-VL [16, 24, 24] or [24, 20, 20]; 32 planes: Qwen3.5 and 3.6 [11, 11, 10])",
            "compare it with the model's own config: ropewalk check MODEL --overrides JSON",
            severity="warning",
        )


def _axes(where: str, sections: list[int], family: Family | None) -> Iterator[Seen]:
    usual = () if family is None or family.axes is None else family.axes.sections
    if usual and len(sections) != len(usual):
        yield Seen(
            where,
            f"{sections}, which is {len(sections)} axes",
            f"{len(usual)} axes, as in {list(usual)}",
            "take the list of the released config",
        )


def _flat_sections(subject: Subject, rope: Rope | None) -> Iterator[Seen]:
    if subject.is_config:
        return
    sections = subject.values.get("mrope_section")
    if isinstance(sections, list) and all(type(n) is int for n in sections):
        yield from _sum("mrope_section", sections, rope, False)


def _unread_sections(subject: Subject) -> Iterator[Seen]:
    family = subject.family
    if family is None or family.axes is not None or family.axial is not None:
        return
    for path, block in subject.blocks():
        named = "mrope" in (block.get("rope_type"), block.get("type"))
        keys = [key for key in _SECTIONS if block.get(key) is not None]
        if (named or keys) and not path.startswith("override"):
            yield Seen(
                f"{path}.{keys[0] if keys else 'type'}",
                f"multi-axis positions in {family.defaults_of}, which reads none",
                "positions of one axis, or a family with several (e.g. qwen2_5_vl)",
                "remove the keys if the model reads text only; else correct model_type",
            )


def _lost_sections(subject: Subject) -> Iterator[Seen]:
    family = subject.family
    rule = None if family is None else family.axes
    if rule is None or subject.plan is None or rule.layout == "rows_and_columns":
        return
    with_sections = [
        (path, block)
        for path, block in subject.blocks()
        if any(block.get(key) is not None for key in _SECTIONS)
    ]
    if with_sections:
        path, block = with_sections[0]
        if rule.layout == "interleaved" and not block.get("mrope_interleaved"):
            yield Seen(
                f"{path}.mrope_interleaved",
                "nothing",
                "true: transformers interleaves the axes of this family in any case, vLLM and "
                "SGLang only where the block says so",
                "add it to the block",
            )
        return
    at_top = [key for key in _SECTIONS if subject.part.get(key) is not None]
    scaled = [path for path, block in subject.blocks() if kind_of(block) not in (None, "default")]
    if not at_top and not scaled:
        return
    default = f"its default {list(rule.sections)}" if rule.sections else "one axis"
    yield Seen(
        f"{subject.prefix}{at_top[0]}" if at_top else f"{scaled[0]}.mrope_section",
        "sections outside the rope block" if at_top else "a scaling without the sections",
        f"mrope_section within the rope block: transformers takes {default} without it, vLLM and "
        "SGLang look for the key and turn images by one axis",
        "repeat the list of the released config in the block",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW204",
        title="sections do not add up to the planes",
        severity="error",
        explanation="mrope_section says how many planes each position axis turns; together they "
        "are all planes, rotary_dim / 2. A list of another model leaves planes without an axis.",
        bad=Example({**LLAMA, "model_type": "qwen2_vl",
                     "rope_scaling": {"type": "mrope", "mrope_section": [11, 11, 10]}}),
        good=Example({**LLAMA, "model_type": "qwen2_vl",
                      "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}),
        source="transformers 5.24: apply_multimodal_rotary_pos_emb splits by these sizes",
        look=_sections,
    ),
    Rule(
        code="RW207",
        title="multi-axis keys in a family of one axis",
        severity="warning",
        explanation="mrope in a text-only class is ignored, or refused by engines that look for "
        "it. If the target of a draft model has several axes, the draft's positions differ.",
        bad=Example({**LLAMA,
                     "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}),
        good=Example(LLAMA),
        source="sgl-project/SpecForge: a draft config for Qwen2.5-VL",
        look=_unread_sections,
    ),
    Rule(
        code="RW212",
        title="sections of the position axes are missing",
        severity="warning",
        explanation="The family has positions of several axes, and the file does not say which "
        "plane follows which. Usually a scaling was added and replaced the block that said it.",
        bad=Example({**LLAMA, "model_type": "qwen2_5_vl", "max_position_embeddings": 131072,
                     "rope_scaling": {"type": "yarn", "factor": 4.0,
                                      "original_max_position_embeddings": 32768}}),
        good=Example({**LLAMA, "model_type": "qwen2_5_vl", "max_position_embeddings": 131072,
                      "rope_scaling": {"type": "yarn", "factor": 4.0,
                                       "original_max_position_embeddings": 32768,
                                       "mrope_section": [16, 24, 24]}}),
        source="ls1intum/edutelligence#744; vllm-project/vllm PR 7905",
        look=_lost_sections,
    ),
)  # fmt: skip
