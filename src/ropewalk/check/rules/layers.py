"""Layers that differ: windows, bases of their own, layers without rope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...models.spellings import LAYER_KINDS, LOCAL_KINDS
from ...scaling import Plain
from ..rule import Example, Rule, Seen
from ..subject import Subject

_SMOL = {
    "model_type": "smollm3",
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "max_position_embeddings": 65536,
    "rope_theta": 5000000.0,
}
_GEMMA = {
    "model_type": "gemma3_text",
    "hidden_size": 1152,
    "head_dim": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "num_hidden_layers": 6,
    "max_position_embeddings": 32768,
    "sliding_window": 512,
    "rope_local_base_freq": 10000.0,
}
_OLMO = {
    "model_type": "olmo3",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 4,
    "sliding_window": 4096,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "rope_theta": 500000.0,
    "max_position_embeddings": 65536,
}
_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}


def _inverted(subject: Subject) -> Iterator[Seen]:
    listed = subject.part.get("no_rope_layers")
    if not isinstance(listed, list) or any(entry not in (0, 1) for entry in listed):
        return
    if subject.refusal is not None:
        return
    with_rope, without = listed.count(1), listed.count(0)
    where = f"{subject.prefix}no_rope_layers"
    if 0 < with_rope < without:
        yield Seen(
            where,
            f"{with_rope} ones and {without} zeros, which is {with_rope} layers with rope",
            f"1 for rope, 0 for none, whatever the name says: released models have rope in most "
            f"layers ({without} here, if inverted)",
            "swap ones and zeros, if the list was meant the other way round",
            severity="warning",
        )
    elif without:
        yield Seen(
            where,
            f"{with_rope} layers with rope, {without} without",
            "the same in every program: 1 means rope",
            "nothing; make sure that converters keep the list",
        )


def _stretched_windows(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is None:
        return
    for layer, indices in plan.groups():
        if layer.rope is None or layer.window is None or layer.kind == "chunked_attention":
            continue
        scaling = layer.rope.scaling
        original = scaling.original_length
        if isinstance(scaling, Plain) or original is None or scaling.stretch <= 1:
            continue
        others = any(item.window is None and item.rope is not None for item in plan.layers)
        if layer.window <= original and others:
            yield Seen(
                f"layers {layer.kind}",
                f"{scaling.kind} over a window of {layer.window}, in {len(indices)} layers",
                f"no scaling there: distances never exceed the window, and {original} were trained",
                "give each layer type its own block, unless the model was trained so",
            )


def _flat_block(subject: Subject) -> Iterator[Seen]:
    family, block = subject.family, subject.part.get("rope_parameters")
    if family is None or family.local is None or not isinstance(block, Mapping):
        return
    if any(key in LAYER_KINDS for key in block) or not block or family.local.theta is None:
        return
    plan = subject.plan
    if plan is not None and not any(layer.kind in LOCAL_KINDS for layer in plan.layers):
        return
    yield Seen(
        f"{subject.prefix}rope_parameters",
        "one block for all layers",
        "a block for each layer type: "
        '{"sliding_attention": {…}, "full_attention": {…}}; here it is read for full layers only',
        "nest it, with the sliding layers' own base",
    )


def _unused_block(subject: Subject) -> Iterator[Seen]:
    for note in subject.notes():
        if note.endswith("is not used: no such layer has a rope"):
            yield Seen(
                f"{subject.prefix}{note.split(' ')[0]}",
                "a block",
                "a layer of this type that rotates",
                "remove the block, or correct layer_types",
            )


def _swapped_bases(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is None:
        return
    local = {x.rope.theta for x in plan.layers if x.rope is not None and x.window is not None}
    wide = {x.rope.theta for x in plan.layers if x.rope is not None and x.window is None}
    if local and wide and min(local) > max(wide):
        yield Seen(
            f"{subject.prefix}rope_local_base_freq",
            f"base {min(local):.15g} in windowed layers, {max(wide):.15g} in the others",
            "the larger base where distances are longer",
            "swap the two",
        )
    family = subject.family
    rule = None if family is None else family.local
    told = subject.part.get(rule.keys[0]) if rule is not None and rule.keys else None
    alike = local == wide and len(local) == 1 and told is not None
    if rule is not None and rule.theta is not None and alike and local != {rule.theta}:
        yield Seen(
            f"{subject.prefix}{rule.keys[0]}",
            f"base {min(local):.15g}, that of the full layers",
            f"{rule.theta:.15g}, as released models of this family have in windowed layers",
            "restore it, unless the model was trained so",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW503",
        title="layers without rope",
        severity="note",
        explanation="In no_rope_layers a 1 means that the layer has rope; the name reads the "
        "other way round. Engines that take it literally rotate the wrong layers, and GGUF has no "
        "key for it.",
        bad=Example({**_SMOL, "no_rope_layers": [0, 0, 0, 1]}),
        good=Example({**_SMOL, "no_rope_layers": [1, 1, 1, 1]}),
        source="huggingface/transformers#43756; configuration_smollm3.py of 5.24",
        look=_inverted,
    ),
    Rule(
        code="RW504",
        title="windowed layers are stretched",
        severity="note",
        explanation="Distances in a windowed layer never exceed the window. Stretching it changes "
        "frequencies that were right and gains no reach.",
        bad=Example({**_OLMO, "rope_parameters": {
            "full_attention": {**_YARN, "rope_theta": 500000.0},
            "sliding_attention": {**_YARN, "rope_theta": 500000.0}}}),
        good=Example({**_OLMO, "rope_parameters": {
            "full_attention": {**_YARN, "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}}),
        source="allenai/OLMo-core PR 366",
        look=_stretched_windows,
    ),
    Rule(
        code="RW505",
        title="one rope block where layer types need their own",
        severity="warning",
        explanation="In this family sliding layers have a base of their own and are never "
        "stretched. A flat block does not say what they have.",
        bad=Example({**_GEMMA, "rope_parameters": {"rope_type": "linear", "factor": 8.0,
                                                   "rope_theta": 1000000.0}}),
        good=Example({**_GEMMA, "rope_theta": 1000000.0,
                      "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        source="huggingface/transformers PR 41922; Blaizzy/mlx-vlm PR 1709",
        look=_flat_block,
    ),
    Rule(
        code="RW506",
        title="rope block of a layer type that no layer has",
        severity="note",
        explanation="The block is read by nothing. Either the layer types or the block's name are "
        "wrong.",
        bad=Example({**_OLMO, "layer_types": ["full_attention"] * 4, "rope_parameters": {
            "full_attention": {**_YARN, "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}}),
        good=Example({**_OLMO, "rope_parameters": {
            "full_attention": {**_YARN, "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}}),
        source="transformers 5.24: nested rope_parameters",
        look=_unused_block,
    ),
    Rule(
        code="RW507",
        title="bases of windowed and full layers look swapped",
        severity="warning",
        explanation="Full layers see long distances and have the larger base in every released "
        "model with two.",
        bad=Example({**_GEMMA, "rope_theta": 10000.0, "rope_local_base_freq": 1000000.0}),
        good=Example({**_GEMMA, "rope_theta": 1000000.0}),
        source="released configs of Gemma 3 and ModernBERT",
        look=_swapped_bases,
    ),
)  # fmt: skip
