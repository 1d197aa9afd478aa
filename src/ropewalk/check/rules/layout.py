"""Lanes: sizes of heads, which lanes turn, how they are paired, which axis turns which plane."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...models.families import FAMILIES
from ...models.family import Family
from ...rope import Rope
from ..rule import Example, Rule, Seen
from ..subject import Subject, kind_of
from .refusals import kind_of_refusal

_LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
_PARAMS = {
    "dim": 2048,
    "n_heads": 16,
    "n_kv_heads": 16,
    "n_layers": 2,
    "max_seq_len": 2048,
    "rope_theta": 10000.0,
}
_LARGEST_DERIVED, _LARGEST_GIVEN = 256, 1024
_SECTIONS = ("mrope_section", "xdrope_section")


def _derived_head(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    source = None if plan is None else plan.sources.get("head_dim")
    if plan is None or source is None:
        return
    if not source.source.startswith("derived: "):
        if isinstance(source.value, int) and source.value > _LARGEST_GIVEN:
            yield Seen(
                f"{subject.prefix}head_dim",
                f"{source.value}",
                f"at most {_LARGEST_GIVEN} lanes: this looks like the hidden size",
                "take head_dim of the model's own config",
            )
        return
    if "/" in source.source and isinstance(source.value, int) and source.value > _LARGEST_DERIVED:
        yield Seen(
            subject.prefix + (subject.get("heads") or ("num_attention_heads", None))[0],
            f"a head of {source.value} lanes ({source.source.removeprefix('derived: ')})",
            f"at most {_LARGEST_DERIVED} lanes where the size follows from hidden size and heads",
            "correct the number of heads or the hidden size, or give head_dim",
        )


def _uneven_heads(subject: Subject) -> Iterator[Seen]:
    heads, kv_heads = subject.whole("heads"), subject.whole("kv_heads")
    if heads and kv_heads and heads % kv_heads and subject.is_config:
        yield Seen(
            subject.prefix + (subject.get("kv_heads") or ("num_key_value_heads", None))[0],
            f"{kv_heads} key and value heads for {heads} query heads",
            "a number that divides the query heads",
            "correct one of the two",
        )


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


def _flat_sections(subject: Subject, rope: Rope | None) -> Iterator[Seen]:
    if subject.is_config:
        return
    sections = subject.values.get("mrope_section")
    if isinstance(sections, list) and all(type(n) is int for n in sections):
        yield from _sum("mrope_section", sections, rope, False)


def _odd_share(subject: Subject) -> Iterator[Seen]:
    """An odd share in a config that names no model, and so has no plan."""
    share, hidden, heads = (
        subject.get("partial"),
        subject.whole("hidden_size"),
        subject.whole("heads"),
    )
    if subject.fragment is None or share is None or not _is_share(share[1]):
        return
    head = subject.whole("head_dim") or (hidden // heads if hidden and heads else 0)
    lanes = int(head * share[1])
    if lanes % 2:
        yield Seen(
            share[0],
            f"{share[1]:g}: rotary_dim={lanes} is odd (head_dim {head} * {share[1]:g}); must be "
            "even",
            "a share that leaves an even number of lanes",
            f"use {2 * max(lanes // 2, 1)} lanes, or check head_dim",
        )


def _is_share(value: object) -> bool:
    return isinstance(value, float) and 0 < value <= 1


def _list_lengths(subject: Subject) -> Iterator[Seen]:
    """Lists of divisors against the raw sizes, for files that are refused for something else."""
    if subject.refusal is None or not subject.is_config:
        return
    if kind_of_refusal(subject.refusal) == "divisors":
        return
    head, heads = subject.whole("head_dim"), subject.whole("heads")
    lanes, hidden = subject.whole("rope_lanes"), subject.whole("hidden_size")
    if lanes is None and head is None and heads and hidden and hidden % heads == 0:
        head = hidden // heads
    if lanes is None and head is not None:
        share = subject.get("partial")
        lanes = int(head * share[1]) if share and _is_share(share[1]) else head
    if lanes is None:
        return
    for path, block in subject.blocks():
        for key in ("long_factor", "short_factor"):
            found = block.get(key)
            if isinstance(found, list) and len(found) != lanes // 2:
                yield Seen(f"{path}.{key}", f"{len(found)} values",
                           f"rotary_dim/2 = {lanes // 2}",
                           "check partial_rotary_factor and the list's length")  # fmt: skip


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


def _named_family(name: object) -> Family | None:
    if not isinstance(name, str):
        return None
    stem = re.sub(r"(ForCausalLM|Model|LMHeadModel)$", "", name).lower()
    for told, family in FAMILIES.items():
        if told.replace("_", "") == stem:
            return family
    return None


def _other_pairing(subject: Subject) -> Iterator[Seen]:
    plan, family = subject.plan, _named_family(subject.values.get("model_architecture"))
    if plan is None or plan.rope is None or family is None:
        return
    name = subject.values["model_architecture"]
    if family.pairing != plan.rope.pairing and subject.values.get("use_hf_rope") is not False:
        yield Seen(
            "use_hf_rope",
            f"{str(subject.values.get('use_hf_rope')).lower()}, which means {plan.rope.pairing} "
            f"pairs, for {name}",
            f"{family.pairing} pairs, as {family.defaults_of} has, unless the weights were "
            "permuted",
            "permute the weights (ropewalk convert --pairing), or change the switch",
        )
    share = subject.values.get("partial_rotary_factor")
    if share is None and family.partial not in (None, 1.0):
        yield Seen(
            "partial_rotary_factor",
            f"nothing, for {name}",
            f"{family.partial:g}, the default of {family.defaults_of}",
            "add it",
        )


def _lost_sections(subject: Subject) -> Iterator[Seen]:
    family = subject.family
    rule = None if family is None else family.axes
    if rule is None or subject.plan is None or rule.layout == "rows_and_columns":
        return
    if any(block.get(key) is not None for _, block in subject.blocks() for key in _SECTIONS):
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


def _fraction(subject: Subject) -> Iterator[Seen]:
    plan, share = subject.plan, subject.get("partial")
    source = None if plan is None else plan.sources.get("head_dim")
    if plan is None or plan.rope is None or share is None or source is None:
        return
    if not isinstance(share[1], float) or plan.rope.rotary_offset:
        return
    lanes = plan.rope.head_dim * share[1]
    if abs(lanes - round(lanes)) > 1e-6 and int(lanes) == plan.rope.rotary_dim:
        yield Seen(
            f"{subject.prefix}{share[0]}",
            f"{share[1]:g} of {plan.rope.head_dim} lanes, which is {lanes:g}",
            f"a share that gives whole lanes; programs cut it to {int(lanes)}, some round it",
            f"write {int(lanes) / plan.rope.head_dim:g} if {int(lanes)} lanes are meant",
        )


def _unread_share(subject: Subject) -> Iterator[Seen]:
    for note in subject.notes():
        match = re.match(r"(\S+) (\S+) is not used: (the code of .* turns all lanes)", note)
        if match is not None:
            yield Seen(
                f"{subject.prefix}{match[1]}",
                match[2],
                f"no such key: {match[3]}",
                "remove it, or name the right family",
            )
        match = re.match(r"(\S+) (\S+) is not used: with latent attention (.*)", note)
        if match is not None:
            yield Seen(
                f"{subject.prefix}{match[1]}",
                match[2],
                f"nothing for these layers: with latent attention {match[3]}",
                "nothing: make sure that no program applies it to the rotated slice again",
                severity="note",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW202",
        title="head is larger than any of its kind",
        severity="warning",
        explanation="Where head_dim is not given it is hidden size / heads. Files cut down for "
        "tests often keep the one and lower the other; every frequency then changes.",
        bad=Example({**_LLAMA, "model_type": "falcon", "hidden_size": 4544,
                     "num_attention_heads": 16}),
        good=Example({**_LLAMA, "model_type": "falcon", "hidden_size": 4544,
                      "num_attention_heads": 71}),
        source="intel/intel-extension-for-pytorch: tests/cpu/hf_configs/falcon",
        look=_derived_head,
    ),
    Rule(
        code="RW204",
        title="sections do not add up to the planes",
        severity="error",
        explanation="mrope_section says how many planes each position axis turns; together they "
        "are all planes, rotary_dim / 2. A list of another model leaves planes without an axis.",
        bad=Example({**_LLAMA, "model_type": "qwen2_vl",
                     "rope_scaling": {"type": "mrope", "mrope_section": [11, 11, 10]}}),
        good=Example({**_LLAMA, "model_type": "qwen2_vl",
                      "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}),
        source="transformers 5.24: apply_multimodal_rotary_pos_emb splits by these sizes",
        look=_sections,
    ),
    Rule(
        code="RW211",
        title="share of rotated lanes is no whole number of lanes",
        severity="warning",
        explanation="head_dim times the share is cut to a whole number, and programs do it in "
        "different ways. Both the lanes and, through rotary_dim, all frequencies hang on it.",
        bad=Example({**_LLAMA, "model_type": "stablelm", "partial_rotary_factor": 0.3}),
        good=Example({**_LLAMA, "model_type": "stablelm", "partial_rotary_factor": 0.25}),
        source="huggingface/transformers#35233",
        look=_fraction,
    ),
    Rule(
        code="RW212",
        title="sections of the position axes are missing",
        severity="warning",
        explanation="The family has positions of several axes, and the file does not say which "
        "plane follows which. Usually a scaling was added and replaced the block that said it.",
        bad=Example({**_LLAMA, "model_type": "qwen2_5_vl", "max_position_embeddings": 131072,
                     "rope_scaling": {"type": "yarn", "factor": 4.0,
                                      "original_max_position_embeddings": 32768}}),
        good=Example({**_LLAMA, "model_type": "qwen2_5_vl", "max_position_embeddings": 131072,
                      "rope_scaling": {"type": "yarn", "factor": 4.0,
                                       "original_max_position_embeddings": 32768,
                                       "mrope_section": [16, 24, 24]}}),
        source="ls1intum/edutelligence#744; vllm-project/vllm PR 7905",
        look=_lost_sections,
    ),
    Rule(
        code="RW210",
        title="list of divisors does not fit the sizes",
        severity="error",
        explanation="One divisor per plane: rotary_dim / 2. Told from the sizes in the file, where "
        "something else keeps it from being read.",
        bad=Example({**_LLAMA, "model_type": "phi3",
                     "rope_scaling": {"long_factor": [1.0, 2.0], "short_factor": [1.0, 1.0]}}),
        good=Example({**_LLAMA, "model_type": "phi3", "hidden_size": 64, "num_attention_heads": 8,
                      "rope_scaling": {"type": "longrope", "long_factor": [1.0] * 4,
                                       "short_factor": [1.0] * 4}}),
        source="apache/tvm PR 18102 and 18520",
        look=_list_lengths,
    ),
    Rule(
        code="RW213",
        title="number of rotated lanes is odd",
        severity="error",
        explanation="Lanes turn in pairs. Told from the sizes in a file that names no model.",
        bad=Example({"hidden_size": 32, "num_attention_heads": 8, "rotary_pct": 0.75}),
        good=Example({"hidden_size": 32, "num_attention_heads": 4, "rotary_pct": 0.5}),
        source="huggingface/transformers#35233",
        look=_odd_share,
    ),
    Rule(
        code="RW206",
        title="pairing or share differ from the named class",
        severity="warning",
        explanation="The file names a model class, and its other settings mean another pairing of "
        "lanes or another share of rotated lanes than that class has.",
        bad=Example({**_PARAMS, "model_architecture": "CodeGenModel", "use_hf_rope": True,
                     "partial_rotary_factor": 0.5}),
        good=Example({**_PARAMS, "model_architecture": "LlamaForCausalLM", "use_hf_rope": True}),
        source="pytorch/executorch: examples/models; vllm-project/vllm#747 and PR 941",
        look=_other_pairing,
    ),
    Rule(
        code="RW207",
        title="multi-axis keys in a family of one axis",
        severity="warning",
        explanation="mrope in a text-only class is ignored, or refused by engines that look for "
        "it. If the target of a draft model has several axes, the draft's positions differ.",
        bad=Example({**_LLAMA,
                     "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}),
        good=Example(_LLAMA),
        source="sgl-project/SpecForge: a draft config for Qwen2.5-VL",
        look=_unread_sections,
    ),
    Rule(
        code="RW208",
        title="share of rotated lanes is not used",
        severity="warning",
        explanation="The code of the family turns all lanes, whatever the share says; other "
        "programs may go by the key.",
        bad=Example({**_LLAMA, "model_type": "mistral", "partial_rotary_factor": 0.5}),
        good=Example({**_LLAMA, "model_type": "stablelm", "partial_rotary_factor": 0.5}),
        source="vllm-project/vllm PR 41185; transformers 5.24 model code",
        look=_unread_share,
    ),
    Rule(
        code="RW209",
        title="key-value heads do not divide the query heads",
        severity="error",
        explanation="Each key head serves the same number of query heads.",
        bad=Example({**_LLAMA, "num_key_value_heads": 5}),
        good=Example({**_LLAMA, "num_key_value_heads": 8}),
        source="grouped-query attention, arXiv 2305.13245",
        look=_uneven_heads,
    ),
)  # fmt: skip
