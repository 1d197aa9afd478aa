"""Keys: misspelt, in the wrong place, or of no effect."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from ...models.families import FAMILIES
from ...models.spellings import BLOCK_KEYS, BLOCKS, NESTED_TEXT, SPELLINGS
from ..rule import Example, Rule, Seen
from ..subject import Subject, kind_of
from .samples import LLAMA_32K

_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}
# Keys that decide positions; a key of a config that looks like one of these is a slip.
_POSITIONAL = (
    *BLOCKS,
    "rope_theta",
    "rotary_emb_base",
    "rotary_pct",
    "partial_rotary_factor",
    "max_position_embeddings",
    "original_max_position_embeddings",
    "sliding_window",
    "layer_types",
    "rope_local_base_freq",
    "no_rope_layers",
    "qk_rope_head_dim",
)
_LIKENESS = 0.93
# Words of other programs, which transformers does not read: to the key that it reads.
_FOREIGN = {
    "rope_base": "rope_theta",
    "theta": "rope_theta",
    "freq_base": "rope_theta",
    "rope_freq_base": "rope_theta",
    "rotary_base": "rope_theta",
    "rope_max_timescale": "rope_theta",
    "max_wavelength": "rope_theta",
    "rope_scaling_factor": "rope_scaling",
    "rope_scale": "rope_scaling",
    "rope_config": "rope_scaling",
    "rotary_scaling": "rope_scaling",
    "rotary_scaling_factor": "rope_scaling",
    "rope_condense_ratio": "rope_scaling",
    "max_seq_len": "max_position_embeddings",
    "max_sequence_length": "max_position_embeddings",
    "context_length": "max_position_embeddings",
    "block_size": "max_position_embeddings",
    "rotary_percent": "partial_rotary_factor",
    "rotary_percentage": "partial_rotary_factor",
}
_CONCEPTS = {
    "rope_theta": "theta",
    "max_position_embeddings": "stated_length",
    "partial_rotary_factor": "partial",
}
# GPT-NeoX's words, which other classes of transformers do not read.
_NEOX, _NEOX_FAMILIES = ("rotary_emb_base", "rotary_pct"), ("gpt_neox", "qwen", "mpt")
_KNOWN = (
    frozenset(key for keys in SPELLINGS.values() for key in keys)
    | frozenset(
        key for family in FAMILIES.values() for keys in family.spellings.values() for key in keys
    )
    | frozenset(_POSITIONAL)
    | frozenset(NESTED_TEXT)
)
_OWN_KEYS = ("truncate", "mscale_all_dim", "llama_4_scaling_beta", "low_freq_factor")
_READ_AT_THE_TOP = frozenset({"factor", "beta_fast", "beta_slow", "attention_factor"})


def _unknown_keys(subject: Subject) -> Iterator[Seen]:
    if subject.family is None:
        return
    for key in subject.part:
        if key in _KNOWN or not isinstance(key, str):
            continue
        usual = key.strip().lower().replace("-", "_")
        near = [usual] if usual in _POSITIONAL else []
        near = near or difflib.get_close_matches(usual, _POSITIONAL, n=1, cutoff=_LIKENESS)
        if near and subject.part.get(near[0]) is None and subject.part[key] is not None:
            yield Seen(
                f"{subject.prefix}{key}",
                "a key that no program reads",
                near[0],
                f"did you mean {near[0]!r}?",
            )


def _foreign_keys(subject: Subject) -> Iterator[Seen]:
    family = subject.family
    if family is None:
        return
    own = {key for keys in family.spellings.values() for key in keys}
    for key, usual in _FOREIGN.items():
        concept = _CONCEPTS.get(usual)
        there = subject.part.get(usual) if concept is None else subject.get(concept)
        inside = any(block.get(usual) is not None for _, block in subject.blocks())
        if subject.part.get(key) is None or key in own or there is not None or inside:
            continue
        yield Seen(
            f"{subject.prefix}{key}",
            f"{subject.part[key]!r} under a word of another program"[:80],
            f"{usual}, which {family.defaults_of} reads",
            f"rename it to {usual}",
        )
    told = str(subject.part.get("model_type") or "")
    if told.startswith(_NEOX_FAMILIES) or family.remote:
        return
    for key in _NEOX:
        if subject.part.get(key) not in (None, 1, 1.0) and key not in own:
            usual = "rope_theta" if key == "rotary_emb_base" else "partial_rotary_factor"
            if subject.part.get(usual) is None:
                yield Seen(
                    f"{subject.prefix}{key}",
                    f"{subject.part[key]!r}: a word of GPT-NeoX",
                    f"{usual}, which {family.defaults_of} reads; with the other word it takes its "
                    "default",
                    f"rename it to {usual}",
                )


def _unread_in_block(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        kind = kind_of(block) or "default"
        kind = {"mrope": "default", "gptj": "default"}.get(kind, kind)
        known_kind = kind in {k for key in BLOCK_KEYS.values() for k in key.kinds}
        if kind != "default" and (path == "" or not known_kind):
            continue
        for key, value in block.items():
            known = BLOCK_KEYS.get(key)
            if known is None or value is None or known.stays or "*" in known.kinds:
                continue
            if kind in known.kinds or (kind == "dynamic" and _fixed_alpha(subject, block)):
                continue
            readers = " or ".join(known.kinds) or "no scaling"
            if key == "factor" and ((kind == "default" and kind_of(block) is None) or value == 1):
                continue
            shown = repr(value) if not isinstance(value, list) else f"a list of {len(value)}"
            yield Seen(
                f"{path}.{key}",
                f"{shown} with scaling {kind}",
                f"{readers}, which reads it",
                "remove it, or name the scaling that is meant",
            )


def _own_keys_lost(subject: Subject) -> Iterator[Seen]:
    """A block that names the family's scaling, but lacks numbers that the family's own has."""
    family = subject.family
    own = None if family is None else family.block
    if family is None or own is None or subject.plan is None:
        return
    for path, block in subject.blocks():
        if kind_of(block) != own.get("rope_type") or path.startswith("override"):
            continue
        for key in _OWN_KEYS:
            if own.get(key) is not None and block.get(key) is None:
                yield Seen(
                    f"{path}.{key}",
                    "nothing",
                    f"{str(own[key]).lower()}, as in the block that {family.defaults_of} has "
                    "where the file has none; a block in the file replaces it whole",
                    "add it",
                )


def _fixed_alpha(subject: Subject, block: Mapping[str, Any]) -> bool:
    """Hunyuan's released blocks list keys of YaRN beside the alpha that their code reads."""
    return subject.family is not None and subject.family.alpha and bool(block.get("alpha"))


def _at_the_top(subject: Subject) -> Iterator[Seen]:
    """A rope block beside the part that is the language model; block keys outside a block."""
    if not subject.is_config or subject.fragment is not None:
        return
    for note in subject.notes():
        if "at the top of the file is not used" in note:
            key = note.split(" ")[0]
            yield Seen(
                key,
                "a value at the top of the file",
                f"this key within {subject.prefix.rstrip('.')}, which is the language model",
                "move it there",
            )
    for key in sorted(_READ_AT_THE_TOP):
        value = subject.part.get(key)
        if isinstance(value, int | float) and subject.family is not None and key.startswith("beta"):
            yield Seen(
                f"{subject.prefix}{key}", f"{value:g} outside the rope block",
                "this key within rope_scaling or rope_parameters", "move it there",
            )  # fmt: skip


def _no_scaling(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        name = block.get("rope_type", block.get("type"))
        if name == "gptj":
            yield Seen(
                f"{path}.rope_type",
                "'gptj', which names the pairing of lanes",
                "default: there is no scaling of this name, and none is applied",
                "remove the block",
            )


def _switches(subject: Subject) -> Iterator[Seen]:
    part = subject.part
    if not subject.is_config:
        return
    window, layers = part.get("sliding_window"), part.get("layer_types")
    if part.get("use_sliding_window") is True and isinstance(layers, list):
        first, count = part.get("max_window_layers"), subject.whole("layers")
        sliding = "sliding_attention" in layers
        if isinstance(first, int) and count is not None and first >= count and sliding:
            yield Seen(
                f"{subject.prefix}max_window_layers",
                f"{first} of {count} layers, which leaves no layer sliding",
                "layer_types, which names sliding layers and wins in transformers",
                "remove max_window_layers, or set it to the first sliding layer",
            )
    for note in subject.notes():
        if note.startswith("layer_types names sliding layers, but no window"):
            yield Seen(f"{subject.prefix}sliding_window", repr(window),
                       "the window of the sliding layers",
                       "add it: without it these layers reach all tokens")  # fmt: skip
        if "is set, but layer_types has no sliding layer" in note:
            yield Seen(f"{subject.prefix}sliding_window", f"{window}",
                       "sliding layers in layer_types, or no window",
                       "remove the window, or correct layer_types")  # fmt: skip


def _window_without_effect(subject: Subject) -> Iterator[Seen]:
    for note in subject.notes():
        if "is no smaller than the stated length" in note:
            yield Seen("sliding_window", note.split(":")[0],
                       "a window below the stated length, to have an effect",
                       "nothing, if all tokens are to be seen")  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW407",
        title="key that looks like a positional one, but is not read",
        severity="warning",
        explanation="Programs take a default for the key that they look for, and say nothing "
        "about the one that is there.",
        bad=Example({**LLAMA_32K, "rope_scalling": _YARN}),
        good=Example({**LLAMA_32K, "rope_scaling": _YARN}),
        source="huggingface/transformers PR 42189; vllm-project/vllm --hf-overrides",
        look=lambda subject: (
            item for part in (_unknown_keys, _foreign_keys) for item in part(subject)
        ),
    ),
    Rule(
        code="RW408",
        title="key that this scaling does not read",
        severity="warning",
        explanation="The key belongs to the formula of another scaling. Either it is a leftover "
        "or the name of the scaling is wrong.",
        bad=Example({**LLAMA_32K, "rope_scaling": {**_YARN, "low_freq_factor": 1.0}}),
        good=Example({**LLAMA_32K, "rope_scaling": _YARN}),
        source="transformers 5.24 modeling_rope_utils.py: keys of each rope_type",
        look=_unread_in_block,
    ),
    Rule(
        code="RW409",
        title="positional key at the wrong level",
        severity="warning",
        explanation="In a file with several parts the language model has its own part; values "
        "at the top are not read for it.",
        bad=Example({"model_type": "llava", "rope_scaling": _YARN,
                     "text_config": {**LLAMA_32K, "rope_scaling": None}}),
        good=Example({"model_type": "llava", "text_config": {**LLAMA_32K, "rope_scaling": _YARN}}),
        source="ls1intum/edutelligence#744",
        look=_at_the_top,
    ),
    Rule(
        code="RW410",
        title="name of a pairing where a scaling belongs",
        severity="warning",
        explanation="Some ports keep the pairing of lanes in the rope block. Readers must neither "
        "refuse it nor scale by it.",
        bad=Example({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 2,
                     "n_positions": 2048, "rotary_dim": 64, "rope_scaling": {"rope_type": "gptj"}}),
        good=Example({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 2,
                      "n_positions": 2048, "rotary_dim": 64}),
        source="mlc-ai/mlc-llm: preset of GPT-J",
        look=_no_scaling,
    ),
    Rule(
        code="RW413",
        title="key of the family's own scaling is missing",
        severity="warning",
        explanation="Models of this family were trained with a scaling whose block has this key. "
        "A block in the file replaces the family's whole, and the formula's default is another.",
        bad=Example({"model_type": "gpt_oss", "num_hidden_layers": 2, "rope_theta": 150000.0,
                     "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
                                      "original_max_position_embeddings": 4096}}),
        good=Example({"model_type": "gpt_oss", "num_hidden_layers": 2, "rope_theta": 150000.0,
                      "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": False,
                                       "original_max_position_embeddings": 4096}}),
        source="transformers 5.24: configuration_gpt_oss.py and configuration_ministral3.py",
        look=_own_keys_lost,
    ),
    Rule(
        code="RW411",
        title="switches of the window contradict the layer types",
        severity="note",
        explanation="layer_types, max_window_layers and use_sliding_window say the same thing in "
        "three ways. Engines read one or the other.",
        bad=Example({**LLAMA_32K, "model_type": "qwen3", "use_sliding_window": True,
                     "sliding_window": 2048, "max_window_layers": 2,
                     "layer_types": ["sliding_attention", "full_attention"]}),
        good=Example({**LLAMA_32K, "model_type": "qwen3", "use_sliding_window": True,
                      "sliding_window": 2048, "max_window_layers": 1,
                      "layer_types": ["full_attention", "sliding_attention"]}),
        source="transformers 5.24: configuration_qwen3.py; a DFlash draft config",
        look=_switches,
    ),
    Rule(
        code="RW412",
        title="window has no effect",
        severity="note",
        explanation="The window is no smaller than the stated length.",
        bad=Example({**LLAMA_32K, "model_type": "mistral", "sliding_window": 32768}),
        good=Example({**LLAMA_32K, "model_type": "mistral", "sliding_window": 4096}),
        source="transformers 5.24: configuration_mistral.py",
        look=_window_without_effect,
    ),
)  # fmt: skip
