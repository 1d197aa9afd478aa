"""Which model a file describes, and which positions it claims to have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...models.families import FAMILIES, WITHOUT_ROPE, WRAPPERS
from ..rule import Example, Rule, Seen
from ..subject import Subject
from .samples import LLAMA

_FALCON = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}
# hidden size and heads of the Falcons that rotate; falcon-rw has ALiBi.
_ROTATING_FALCONS = {(4544, 71): "Falcon-7B", (8192, 128): "Falcon-40B", (14848, 232): "180B"}
_NAMED_FALCON = re.compile(r"falcon-(7b|40b|180b)", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\$\{\w+\}|\{\{[^{}]*\}\}")
_COMMENTED = re.compile(
    r"#\s*[\"']?(rope_theta|rope_scaling|rope_base|rotary_emb_base|rotary_pct|"
    r"partial_rotary_factor|rope_parameters|pos_emb|position_embedding_type)[\"']?\s*[:=]\s*(\S+)"
)
_OTHER_ENCODINGS = ("absolute", "learned_absolute", "learned", "alibi", "sinusoidal")
_ENCODING_KEYS = ("position_embedding_type", "position_embed", "pos_emb")


def _classes_disagree(subject: Subject) -> Iterator[Seen]:
    classes, told = subject.part.get("architectures"), subject.part.get("model_type")
    if not subject.is_config or not isinstance(classes, list) or not isinstance(told, str):
        return
    if len(classes) != 1 or not isinstance(classes[0], str) or told not in FAMILIES:
        return
    match = re.match(r"(\w+?)For[A-Z]|(\w+?)LMHead", classes[0])
    if match is None:
        return
    name = (match[1] or match[2]).lower()
    named = [f for f in (*FAMILIES, *WRAPPERS) if f.replace("_", "") == name]
    same = {told, WRAPPERS.get(told, told), told.removesuffix("_text")}
    if named and not same & {named[0], WRAPPERS.get(named[0], named[0])}:
        yield Seen(
            f"{subject.prefix}model_type",
            f"{told!r}, with architectures {classes[0]!r}",
            f"one family; engines go by either, and {named[0]!r} may have other defaults",
            "make both name the class whose code runs the model",
        )


def _placeholders(subject: Subject) -> Iterator[Seen]:
    for key, value in subject.flat.items():
        if isinstance(value, str) and (match := _PLACEHOLDER.search(value)):
            yield Seen(key, f"the placeholder {match[0]}", "its value", "fill the placeholder in")


def _commented(subject: Subject) -> Iterator[Seen]:
    for match in _COMMENTED.finditer(subject.text):
        value = match[2].rstrip(",}")
        yield Seen(
            match[1],
            f"commented out, with value {value}",
            f"{value}, if the model was trained so; without the key a default is used "
            "(rope_theta: 10000)",
            "take the comment sign away",
            refusal=subject.refusal is not None,
        )


def _alibi_falcon(subject: Subject) -> Iterator[Seen]:
    tables: list[tuple[str, Mapping[str, object]]] = [("", subject.part)]
    tables += [
        (f"{key}.", inner)
        for key, inner in subject.values.items()
        if isinstance(inner, Mapping) and _NAMED_FALCON.search(key)
    ]
    falcon = any(
        "falcon" in str(subject.values.get(key, "")).lower()
        for key in ("model_type", "_name_or_path")
    )
    for prefix, table in tables:
        hidden = table.get("hidden_size")
        heads = table.get("num_attention_heads", table.get("n_head", table.get("num_heads")))
        whole = isinstance(hidden, int) and isinstance(heads, int)
        size = _ROTATING_FALCONS.get((hidden, heads)) if whole else None  # type: ignore[arg-type]
        if table.get("alibi") is True and (prefix or (falcon and size)):
            yield Seen(
                f"{subject.prefix}{prefix}alibi",
                "true",
                f"false: {size or prefix.rstrip('.')} has rotary embeddings; of the Falcon models "
                "only falcon-rw has ALiBi",
                "set alibi to false",
                refusal=True,
            )


def _inert_encoding(subject: Subject) -> Iterator[Seen]:
    if subject.plan is None and subject.family is None:
        return
    for key in _ENCODING_KEYS:
        value = subject.part.get(key)
        rotates = subject.plan is not None and subject.plan.rope is not None
        if subject.is_config and value in _OTHER_ENCODINGS and rotates:
            yield Seen(
                f"{subject.prefix}{key}",
                repr(value),
                "no such key: the code of this family always rotates",
                "remove the leftover key",
            )


def _other_leftovers(subject: Subject) -> Iterator[Seen]:
    values = {**subject.part}
    inner = subject.part.get("attn_config")
    if isinstance(inner, Mapping):
        values |= {"attn_config.alibi": inner.get("alibi")}
    if values.get("learned_pos_emb") and (values.get("alibi") or values.get("attn_config.alibi")):
        yield Seen(
            "learned_pos_emb",
            "true beside alibi true",
            "false: with ALiBi the class builds no learned table",
            "remove one of the two",
        )
    told = str(values.get("model_type"))
    if told in WITHOUT_ROPE:
        for key in ("rope_theta", "rotary_pct", "rope_scaling", "offset_alibi"):
            if values.get(key) is not None:
                yield Seen(
                    key,
                    repr(values[key])[:60],
                    f"no such key: {told} has {WITHOUT_ROPE[told]}",
                    "remove the leftover key",
                )


def _undeclared_alibi(subject: Subject) -> Iterator[Seen]:
    """A file of no known format that names another encoding by itself."""
    if subject.plan is not None or subject.fragment is not None or subject.family is not None:
        return
    if subject.values.get("model_type") is not None:
        return
    for key in _ENCODING_KEYS:
        value = subject.flat.get(key)
        if isinstance(value, str) and value in _OTHER_ENCODINGS:
            yield Seen(
                key,
                repr(value),
                "a model with rotary embeddings, for there to be something to check",
                "nothing, if that is what the model has",
                refusal=True,
            )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW002",
        title="model_type and architectures name different families",
        severity="note",
        explanation="Some engines choose the code by model_type, others by architectures. The "
        "defaults of the two, for keys that the file leaves out, may differ.",
        bad=Example({**LLAMA, "model_type": "phi3", "architectures": ["LlamaForCausalLM"]}),
        good=Example({**LLAMA, "architectures": ["LlamaForCausalLM"]}),
        source="draft models for speculative decoding (sgl-project/SpecForge)",
        look=_classes_disagree,
    ),
    Rule(
        code="RW004",
        title="value is an unfilled placeholder",
        severity="warning",
        explanation="A template variable stands where a value belongs. The rest could be read, "
        "but what the placeholder decides is unknown.",
        bad=Example("--num-layers ${N} --hidden-size 4096 --num-attention-heads 32 --seq-length "
                    "4096 --max-position-embeddings 4096 --position-embedding-type rope "
                    "--rotary-base 10000"),
        good=Example("--num-layers 2 --hidden-size 4096 --num-attention-heads 32 --seq-length "
                     "4096 --max-position-embeddings 4096 --position-embedding-type rope "
                     "--rotary-base 10000"),
        source="training scripts of Megatron recipes",
        look=_placeholders,
    ),
    Rule(
        code="RW005",
        title="positional key is commented out",
        severity="warning",
        explanation="A commented key does not count: the program's default takes its place, "
        "for a base usually 10000.",
        bad=Example('"Mistral-7B": {"dim": 4096, "n_heads": 32, # "rope_theta": 1000000.0, }'),
        good=Example(LLAMA),
        source="presets of ports of Mistral 7B",
        look=_commented,
    ),
    Rule(
        code="RW006",
        title="ALiBi declared for a model that rotates",
        severity="error",
        explanation="Falcon 7B, 40B and 180B have rotary embeddings; alibi true is right for "
        "falcon-rw only. With ALiBi in place of rope the weights give gibberish.",
        bad=Example({**_FALCON, "alibi": True}),
        good=Example({**_FALCON, "alibi": False}),
        source="the released configs of tiiuae/falcon-7b and falcon-40b",
        look=_alibi_falcon,
    ),
    Rule(
        code="RW007",
        title="leftover key of another position encoding",
        severity="note",
        explanation="The class decides which encoding a model has; a key of another one that "
        "was left in the file is not read and misleads.",
        bad=Example({"model_type": "modernbert", "hidden_size": 1024, "num_attention_heads": 16,
                     "num_hidden_layers": 2, "global_rope_theta": 160000.0,
                     "local_rope_theta": 10000.0, "max_position_embeddings": 8192,
                     "position_embedding_type": "absolute"}),
        good=Example({"model_type": "modernbert", "hidden_size": 1024, "num_attention_heads": 16,
                      "num_hidden_layers": 2, "global_rope_theta": 160000.0,
                      "local_rope_theta": 10000.0, "max_position_embeddings": 8192}),
        source="ModernBERT configs written by other tools; MPT and BLOOM configs",
        look=lambda subject: (
            item for part in (_inert_encoding, _other_leftovers) for item in part(subject)
        ),
    ),
    Rule(
        code="RW008",
        title="another position encoding is declared",
        severity="note",
        explanation="The file is of no format that is known here, but names its positions, and "
        "they are not rotary.",
        bad=Example({"position_embed": "alibi"}),
        good=Example({**LLAMA}),
        source="MosaicBERT",
        look=_undeclared_alibi,
    ),
)  # fmt: skip
