"""Mistakes that the reader refuses a file for, and that have a known right answer.

The reader says what was found, what is expected and the fix; these rules give each kind of
refusal a code. A refusal of no kind here makes the file unusable, which is no finding: a family
or a scaling that is not known may be perfectly sound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ...errors import InputError
from ...scaling.base import is_number
from ..rule import Example, Rule, Seen
from ..subject import Subject, kind_of
from .samples import LLAMA

_NO_ROPE = "there is no rope in it"
_INERT = "if the model has rotary embeddings"


def key_of(error: InputError, path: str) -> str:
    """Return the key that a refusal is about, without the path of its file."""
    return error.where.removeprefix(f"{path}: ").removeprefix(path) or "file"


def _kind(pattern: str, part: str) -> Callable[[InputError], bool]:
    expression = re.compile(pattern)
    return lambda error: bool(expression.search(getattr(error, part)))


_NAMED = re.compile(r"scaling '([^']+)'")


def _other_case(error: InputError) -> bool:
    """Tell a known name that is written in another way, such as YaRN."""
    match = _NAMED.search(error.found)
    if match is None:
        return False
    known = {re.sub(r"[^a-z0-9]", "", word) for word in re.split(r"[, ]+", error.expected)}
    return re.sub(r"[^a-z0-9]", "", match[1].lower()) in known


# In this order: the first that fits is the kind of a refusal.
_KINDS: dict[str, Callable[[InputError], bool]] = {
    "none": lambda e: e.fix.startswith(_NO_ROPE) or "a model with rotary embeddings" in e.expected,
    "inert": _kind(_INERT, "expected"),
    "alibi or rope": _kind("which has it and rope", "expected"),
    "placeholder": _kind("placeholder", "found"),
    "case": _other_case,
    "unknown": _kind("is not known here|not described here", "fix"),
    "family": _kind("family that is not in the table|architecture that is not", "found"),
    "spelling": _kind("did you mean", "fix"),
    "unknown key": _kind("^an unknown key", "found"),
    "unknown name": _kind("^correct the name$", "fix"),
    "twice": _kind("same value under both|each key once|the flag once", "expected"),
    "two values": _kind("^one of the two|the settings of one program", "expected"),
    "not taken": _kind("turns all lanes|refuses every scaling", "expected"),
    "bounds": _kind("beta_slow below beta_fast|low_freq_factor no greater", "expected"),
    "lists": _kind("one per layer|indices of the|a list of layer indices", "expected"),
    "divisors": _kind("rotary_dim/2", "expected"),
    "lanes": _kind("even", "expected"),
    "share": _kind("a share|lanes within head_dim|planes of a head", "expected"),
    "heads": _kind("number of heads|divides the query heads", "expected"),
    "blocks": _kind("within the blocks only|a block, because", "expected"),
    "missing": _kind(
        "has no default for it|is measured against it|needs one|which (this scaling|yarn) needs|"
        "the factor of|the divisors of|the length the model was trained|the name of the scaling",
        "expected",
    ),
    "no other": _kind("has no other$", "fix"),
    "value": _kind(
        "number|an object|a JSON object|whole|a share|true or false|at most \\d|a length|a list|"
        "a string",
        "expected",
    ),
}


def kind_of_refusal(error: InputError | None) -> str | None:
    """Return the kind of a refusal, or None where it has no known right answer."""
    if error is None:
        return None
    for name, fits in _KINDS.items():
        if fits(error):
            return name
    return None


def _of_kind(*kinds: str) -> Callable[[Subject], Iterator[Seen]]:
    def look(subject: Subject) -> Iterator[Seen]:
        error = subject.refusal
        if error is not None and kind_of_refusal(error) in kinds:
            fix = error.fix
            if _other_case(error):
                fix = "write the name in lower case, as programs compare it letter by letter"
            yield Seen(key_of(error, subject.path), error.found, error.expected, fix, refusal=True)

    return look


def _no_rope(subject: Subject) -> Iterator[Seen]:
    """A model without a rope: what it has instead is all there is to say."""
    for seen in _of_kind("none", "alibi or rope")(subject):
        has = seen.found.partition(", which has ")[2]
        if not has:
            yield seen
            continue
        yield Seen(seen.where, seen.found, f"nothing to check: {has}", "nothing", refusal=True)


_NUMBERS = ("rope_theta", "max_position_embeddings", "partial_rotary_factor")
_FLAT_NUMBERS = ("rope_theta", "rope_base", "max_seq_len", "dim", "n_heads", "n_layers")
_LISTS = ("layer_types", "no_rope_layers")


def _wrong_value(subject: Subject) -> Iterator[Seen]:
    yield from _of_kind("value", "no other", "not taken")(subject)
    for key in _NUMBERS:
        value = subject.overrides.get(key)
        if value is not None and not is_number(value):
            yield Seen(f"override: {key}", repr(value), "a number", "correct the override")
    for key in _LISTS if subject.is_config else ():
        value = subject.part.get(key)
        if value is not None and not isinstance(value, list):
            yield Seen(
                f"{subject.prefix}{key}",
                repr(value)[:60],
                "a list, one entry per layer",
                "take the list from the model's own config",
            )
    # A program reads a text in JSON as a text; on a command line everything is one.
    in_json = subject.place is not None and subject.place.suffix == ".json"
    for key in _FLAT_NUMBERS if in_json and not subject.is_config else ():
        value = subject.values.get(key)
        if isinstance(value, str):
            yield Seen(key, repr(value)[:60], "a number, without quotes", "remove the quotes")


_NEEDED = {"yarn": ("factor",), "linear": ("factor",), "dynamic": ("factor",),
           "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
           "longrope": ("long_factor", "short_factor")}  # fmt: skip


def _missing(subject: Subject) -> Iterator[Seen]:
    yield from _of_kind("missing")(subject)
    for note in subject.notes():
        if note.split(" ")[0].endswith(".factor") and "is missing; derived" in note:
            yield Seen(
                f"{subject.prefix}{note.split(' ')[0]}",
                "nothing",
                f"{note.partition('; derived ')[2]}: transformers derives it, other programs "
                "refuse the block or do not stretch",
                "write the factor down",
                severity="warning",
            )
    for path, block in subject.blocks():
        if not path.startswith("override") or subject.refusal is not None:
            continue  # The reader looks at the others, and has said what is wrong.
        kind = kind_of(block) or ""
        for key in _NEEDED.get(kind, ()):
            if block.get(key) is None:
                yield Seen(
                    f"{path}.{key}",
                    "nothing",
                    f"{key}, which {kind} scaling needs",
                    "add it to the override",
                )


def _with(**changed: object) -> Example:
    return Example({**LLAMA, **changed})


_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
_LONG = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 1024,
    "long_factor": [2.0] * 4,
    "short_factor": [1.0] * 4,
}

RULES: tuple[Rule, ...] = (
    Rule(
        code="RW001",
        title="no rotary embedding in this model",
        severity="note",
        explanation="The model has positions of another kind, or none: ALiBi, learned tables, "
        "relative buckets, recurrence. There is no rope to check, and rope keys that may stand in "
        "the file mean nothing.",
        bad=Example({"model_type": "bloom", "n_embed": 2048, "n_layer": 2}),
        good=_with(),
        source="transformers 5.24: the families' model code",
        look=_no_rope,
    ),
    Rule(
        code="RW003",
        title="rotary settings without the switch that turns them on",
        severity="warning",
        explanation="A base or a rotary share is given, but the program turns rope on by another "
        "setting, whose default is learned absolute positions. The rotary settings are inert.",
        bad=Example(
            "--num-layers 2 --hidden-size 2880 --num-attention-heads 64 --kv-channels 64 "
            "--seq-length 4096 --max-position-embeddings 4096 --rotary-base 150000"
        ),
        good=Example(
            "--num-layers 2 --hidden-size 2880 --num-attention-heads 64 --kv-channels 64 "
            "--seq-length 4096 --max-position-embeddings 4096 --rotary-base 150000 "
            "--position-embedding-type rope"
        ),
        source="Megatron-core (2026-08) and GPT-NeoX: defaults of their arguments",
        look=_of_kind("inert"),
    ),
    Rule(
        code="RW401",
        title="misspelt key, name or layer type",
        severity="error",
        explanation="Programs ignore a key that they do not know, in silence: the model then "
        "runs with a default in its place.",
        bad=_with(rope_scaling={"rope_type": "yarn", "fctor": 4.0}),
        good=_with(rope_scaling=_YARN),
        source="huggingface/transformers PR 42189; vllm-project/vllm --hf-overrides",
        look=_of_kind("spelling", "case", "unknown key", "unknown name"),
    ),
    Rule(
        code="RW402",
        title="two keys of one meaning contradict each other",
        severity="error",
        explanation="Two spellings or two levels of a file give different values. Which one wins "
        "differs between programs and versions.",
        bad=_with(rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
        good=_with(rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
        source="lablup/mlxcel PR 1385 and 1386; transformers 5.24 modeling_rope_utils.py",
        look=_of_kind("twice", "two values"),
    ),
    Rule(
        code="RW403",
        title="scaling without a value that its formula needs",
        severity="error",
        explanation="The formula has no default for this value. Programs fail on it, or fill in "
        "something of their own.",
        bad=_with(rope_scaling={"rope_type": "linear"}),
        good=_with(rope_scaling={"rope_type": "linear", "factor": 4.0}),
        source="transformers 5.24 modeling_rope_utils.py",
        look=_missing,
    ),
    Rule(
        code="RW404",
        title="value of the wrong type or outside the valid range",
        severity="error",
        explanation="A text where a number belongs, a number that is not finite or not positive, "
        "a factor below 1, a scaling that the class refuses: no rope can be made of it.",
        bad=_with(rope_scaling={"rope_type": "linear", "factor": "4.0x"}),
        good=_with(rope_scaling={"rope_type": "linear", "factor": 4.0}),
        source="the formulas of the scalings",
        look=_wrong_value,
    ),
    Rule(
        code="RW405",
        title="bounds of the scaling are swapped",
        severity="error",
        explanation="YaRN keeps planes that turn more than beta_fast times over the original "
        "length and interpolates those below beta_slow; llama3 scaling has low_freq_factor below "
        "high_freq_factor. Swapped, slow planes are kept and fast ones stretched.",
        bad=_with(rope_scaling={**_YARN, "beta_fast": 1, "beta_slow": 32}),
        good=_with(rope_scaling={**_YARN, "beta_fast": 32, "beta_slow": 1}),
        source="YaRN, arXiv 2309.00071; Meta's llama-models, apply_scaling",
        look=_of_kind("bounds"),
    ),
    Rule(
        code="RW406",
        title="unfilled placeholder",
        severity="warning",
        explanation="A template variable stands where a value belongs.",
        bad=Example("rope_scaling:\n  type: ${ROPE_TYPE}\n  factor: ${ROPE_FACTOR}"),
        good=_with(rope_scaling={"type": "linear", "factor": 2.0}),
        source="templates of training scripts",
        look=_of_kind("placeholder"),
    ),
    Rule(
        code="RW201",
        title="number of rotated lanes is odd or impossible",
        severity="error",
        explanation="Lanes turn in pairs. An odd share of a head leaves a lane over: tables and "
        "lanes then have different widths. A share above 1 or lanes beyond the head do not exist.",
        bad=Example({**LLAMA, "model_type": "gpt_neox", "hidden_size": 32,
                     "num_attention_heads": 8, "rotary_pct": 0.75, "rope_theta": None,
                     "rotary_emb_base": 10000}),
        good=Example({**LLAMA, "model_type": "gpt_neox", "hidden_size": 32,
                      "num_attention_heads": 8, "rotary_pct": 0.5, "rope_theta": None,
                      "rotary_emb_base": 10000}),
        source="huggingface/transformers#35233; lucidrains/rotary-embedding-torch#45",
        look=_of_kind("lanes", "share"),
    ),
    Rule(
        code="RW203",
        title="heads do not divide what they must",
        severity="warning",
        explanation="Without an explicit head_dim the size of a head is hidden size / heads, "
        "which must be whole; and key-value heads must divide the query heads.",
        bad=_with(num_attention_heads=30),
        good=_with(num_attention_heads=32),
        source="transformers 5.24: head_dim = hidden_size // num_attention_heads",
        look=_of_kind("heads"),
    ),
    Rule(
        code="RW205",
        title="list of divisors has the wrong length",
        severity="error",
        explanation="LongRoPE and llama3 tensors hold one divisor per plane: rotary_dim / 2, "
        "where rotary_dim already counts the partial rotary factor.",
        bad=Example({**LLAMA, "hidden_size": 64, "num_attention_heads": 4,
                     "rope_scaling": _LONG}),
        good=Example({**LLAMA, "hidden_size": 32, "num_attention_heads": 4,
                      "rope_scaling": _LONG}),
        source="apache/tvm PR 18102 and 18520; LongRoPE, arXiv 2402.13753",
        look=_of_kind("divisors"),
    ),
    Rule(
        code="RW501",
        title="per-layer list does not fit the number of layers",
        severity="error",
        explanation="Lists such as layer_types and no_rope_layers have one entry for each layer.",
        bad=Example({**LLAMA, "model_type": "qwen3", "layer_types": ["full_attention"] * 3}),
        good=Example({**LLAMA, "model_type": "qwen3", "layer_types": ["full_attention"] * 2}),
        source="transformers 5.24: layer_type_validation",
        look=_of_kind("lists"),
    ),
    Rule(
        code="RW502",
        title="rope block does not follow the layer types",
        severity="error",
        explanation="A model with several layer types has one block for each type that rotates, "
        "and nothing beside these blocks.",
        bad=Example({**LLAMA, "model_type": "gemma3_text", "rope_theta": None,
                     "rope_parameters": {"sliding_attention": {"rope_type": "default"},
                                         "rope_theta": 1000000.0}}),
        good=Example({**LLAMA, "model_type": "gemma3_text", "rope_theta": None,
                      "rope_parameters": {
                          "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                          "full_attention": {"rope_type": "default", "rope_theta": 1e6}}}),
        source="huggingface/transformers PR 41922",
        look=_of_kind("blocks"),
    ),
)  # fmt: skip
