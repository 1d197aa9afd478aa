"""Lanes: sizes of heads, which lanes turn, how they are paired, which axis turns which plane."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...models.families import FAMILIES
from ...models.family import Family
from ..rule import Example, Rule, Seen
from ..subject import Subject
from .refusals import kind_of_refusal
from .samples import LLAMA

_PARAMS = {
    "dim": 2048,
    "n_heads": 16,
    "n_kv_heads": 16,
    "n_layers": 2,
    "max_seq_len": 2048,
    "rope_theta": 10000.0,
}
_LARGEST_DERIVED, _LARGEST_GIVEN = 256, 1024


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
    plan = subject.plan
    if not subject.is_config and plan is not None:
        heads, kv_heads = plan.heads, plan.kv_heads
    if heads and kv_heads and heads % kv_heads:
        yield Seen(
            subject.prefix + (subject.get("kv_heads") or ("num_key_value_heads", None))[0],
            f"{kv_heads} key and value heads for {heads} query heads",
            "a number that divides the query heads",
            "correct one of the two",
        )


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


def _turned_pairing(subject: Subject) -> Iterator[Seen]:
    """A config of mlx-lm whose switch is not the pairing of its class."""
    plan, family = subject.plan, subject.family
    if plan is None or plan.rope is None or plan.format != "mlx" or family is None:
        return
    found = plan.sources.get("pairing")
    told = found is not None and found.source.endswith("rope_traditional")
    if told and not family.remote and plan.rope.pairing != family.pairing:
        yield Seen(
            f"{subject.prefix}rope_traditional",
            f"{plan.rope.pairing} pairs",
            f"{family.pairing} pairs, as {family.defaults_of} has, unless the weights were "
            "permuted",
            "permute the weights (ropewalk convert --pairing), or change the switch",
        )


def _fraction(subject: Subject) -> Iterator[Seen]:
    plan, share = subject.plan, subject.get("partial")
    if not subject.is_config:
        share = subject.number("rotary_percent", "rotary_pct", "partial_rotary_factor")
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
        bad=Example({**LLAMA, "model_type": "falcon", "hidden_size": 4544,
                     "num_attention_heads": 16}),
        good=Example({**LLAMA, "model_type": "falcon", "hidden_size": 4544,
                      "num_attention_heads": 71}),
        source="intel/intel-extension-for-pytorch: tests/cpu/hf_configs/falcon",
        look=_derived_head,
    ),
    Rule(
        code="RW211",
        title="share of rotated lanes is no whole number of lanes",
        severity="warning",
        explanation="head_dim times the share is cut to a whole number, and programs do it in "
        "different ways. Both the lanes and, through rotary_dim, all frequencies hang on it.",
        bad=Example({**LLAMA, "model_type": "stablelm", "partial_rotary_factor": 0.3}),
        good=Example({**LLAMA, "model_type": "stablelm", "partial_rotary_factor": 0.25}),
        source="huggingface/transformers#35233",
        look=_fraction,
    ),
    Rule(
        code="RW210",
        title="list of divisors does not fit the sizes",
        severity="error",
        explanation="One divisor per plane: rotary_dim / 2. Told from the sizes in the file, where "
        "something else keeps it from being read.",
        bad=Example({**LLAMA, "model_type": "phi3",
                     "rope_scaling": {"long_factor": [1.0, 2.0], "short_factor": [1.0, 1.0]}}),
        good=Example({**LLAMA, "model_type": "phi3", "hidden_size": 64, "num_attention_heads": 8,
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
        source="pytorch/executorch: examples/models; vllm-project/vllm#747 and PR 941; mlx-lm 0.31",
        look=lambda subject: (
            item for part in (_other_pairing, _turned_pairing) for item in part(subject)
        ),
    ),
    Rule(
        code="RW208",
        title="share of rotated lanes is not used",
        severity="warning",
        explanation="The code of the family turns all lanes, whatever the share says; other "
        "programs may go by the key.",
        bad=Example({**LLAMA, "model_type": "mistral", "partial_rotary_factor": 0.5}),
        good=Example({**LLAMA, "model_type": "stablelm", "partial_rotary_factor": 0.5}),
        source="vllm-project/vllm PR 41185; transformers 5.24 model code",
        look=_unread_share,
    ),
    Rule(
        code="RW209",
        title="key-value heads do not divide the query heads",
        severity="error",
        explanation="Each key head serves the same number of query heads.",
        bad=Example({**LLAMA, "num_key_value_heads": 5}),
        good=Example({**LLAMA, "num_key_value_heads": 8}),
        source="grouped-query attention, arXiv 2305.13245",
        look=_uneven_heads,
    ),
)  # fmt: skip
