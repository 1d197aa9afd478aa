"""What the name of a model says: its own scaling, and the length that it was trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..rule import Example, Rule, Seen
from ..subject import Subject, number_in
from .samples import LLAMA

_ORIGINAL = "original_max_position_embeddings"
_NAMES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"llama-?3\.[123]", re.I), "llama3", "its own llama3 scaling, up to 131072"),
    (re.compile(r"gpt-oss", re.I), "yarn 32", "its own YaRN, factor 32 over 4096, base 150000"),
    (re.compile(r"deepseek-(v2|v3|r1)\b(?!.*(distill|qwen|llama))", re.I), "yarn 40",
     "its own YaRN, factor 40 over 4096, with mscale"),
    (re.compile(r"kimi-k2", re.I), "yarn", "its own YaRN, with mscale"),
    (re.compile(r"ministral-3", re.I), "yarn 16", "its own YaRN, factor 16 over 16384"),
    (re.compile(r"phi-?3(\.5)?-.*128k|phi-?3\.5|phi-?4-mini", re.I), "longrope",
     "its own LongRoPE lists"),
)  # fmt: skip


_NATIVE: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"qwen3-\d+(\.\d+)?b(?!.*(2507|instruct))", re.I), 32768),
    (re.compile(r"qwen2\.5-\d+(\.\d+)?b(?!.*1m)", re.I), 32768),
    (re.compile(r"qwen3-(next|coder)|qwen3\.[56]|qwen3-.*2507", re.I), 262144),
)


def native_length(model: str | None) -> int | None:
    """Return the length that a model was trained on, told by its name; None where unknown."""
    return next((n for pattern, n in _NATIVE if model and pattern.search(model)), None)


def _other_original(subject: Subject) -> Iterator[Seen]:
    settings = subject.settings
    if settings is None or settings.model is None:
        return
    given = [
        (f"{path}.original_max_position_embeddings", number_in(block, _ORIGINAL))
        for path, block in subject.blocks()
        if path.startswith("override")
    ]
    given.append(("--yarn-orig-ctx", settings.value("original")))
    for where, original in given:
        native = native_length(settings.model)
        if original is not None and native is not None and original != native:
            yield Seen(
                where,
                f"{original:.0f} for {settings.model}",
                f"{native}, the length that it was trained on (its max_position_embeddings leaves "
                "room for the answer); told by the name",
                f"write {native}",
            )


# 16k and 1M are lengths, 135M is a size.
_STATED = re.compile(r"(?<![a-z0-9.])(1m|8k|16k|32k|64k|80k|100k|128k|200k|256k|512k)(?![a-z0-9])")


def _name_says_more(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if not subject.is_config or plan is None or plan.rope is None or plan.stated_length is None:
        return
    given = [("_name_or_path", str(subject.part.get("_name_or_path") or "").rsplit("/", 1)[-1])]
    if subject.place is not None:
        given.append(("the folder's name", subject.place.absolute().parent.name))
    scaling = plan.rope.scaling
    reach: float = plan.stated_length
    if scaling.kind == "linear" and scaling.original_length is None:
        reach *= scaling.stretch
    for where, name in given:
        match = _STATED.search(name.lower())
        if match is None:
            continue
        length = 1_000_000 if match[1] == "1m" else 1000 * int(match[1][:-1])
        if reach < 0.9 * length:
            yield Seen(
                f"{subject.prefix}{where}" if where.startswith("_") else where,
                f"{name!r}, with a stated length of {plan.stated_length}, base "
                f"{plan.rope.theta:.15g} and {'no' if scaling.stretch == 1 else scaling.kind} "
                "scaling",
                f"values that reach about {length} tokens; told by the name",
                "restore length, base and scaling of the released config",
            )
            return


def _replaced(subject: Subject) -> Iterator[Seen]:
    settings = subject.settings
    if settings is None or settings.model is None or settings.overrides is None:
        return
    for path, block in subject.blocks():
        if not path.startswith("override"):
            continue
        kind = str(block.get("rope_type", block.get("type")))
        for pattern, own, words in _NAMES:
            if not pattern.search(settings.model):
                continue
            factor = own.split(" ")[1:]
            same = kind == own.split(" ")[0] and (
                not factor or str(block.get("factor", "")).removesuffix(".0") == factor[0]
            )
            if not same:
                yield Seen(
                    path,
                    f"{kind} for {settings.model}",
                    f"no override: the model brings {words}, which this replaces",
                    "remove the override; the trained scaling is lost with it",
                )


def _spoken(subject: Subject) -> Iterator[Seen]:
    for note in subject.notes():
        if note.startswith("the override replaces the model's own scaling"):
            yield Seen(
                "rope_scaling",
                note.removeprefix("the override replaces "),
                "the scaling that the model was trained with",
                "remove the override, unless the model is trained with it",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW125",
        title="name says a longer context than the values reach",
        severity="warning",
        explanation="A model that was extended carries the length in its name; without the base "
        "or the scaling of its training, texts of that length are gibberish. Told by the name in "
        "the config or of the folder.",
        bad=Example({**LLAMA, "_name_or_path": "someone/Llama-2-7b-longlora-100k-ft"}),
        good=Example({**LLAMA, "_name_or_path": "someone/Llama-2-7b-longlora-100k-ft",
                      "rope_scaling": {"type": "linear", "factor": 25.0}}),
        source="uploaded configs of LongLoRA and LWM models without their scaling or base",
        look=_name_says_more,
    ),
    Rule(
        code="RW124",
        title="original length is not the model's",
        severity="warning",
        explanation="YaRN's bands are measured from the length of training. The stated length of "
        "the config may be longer than that. Told by the name of the model in the command.",
        bad=Example("vllm serve Qwen/Qwen3-8B --max-model-len 131072 --hf-overrides "
                    "'{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                    "\"original_max_position_embeddings\": 40960}}'"),
        good=Example("vllm serve Qwen/Qwen3-8B --max-model-len 131072 --hf-overrides "
                     "'{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                     "\"original_max_position_embeddings\": 32768}}'"),
        source="the model cards of Qwen2.5 and Qwen3",
        look=_other_original,
    ),
    Rule(
        code="RW705",
        title="override replaces the model's own scaling",
        severity="warning",
        explanation="The model was trained with its own scaling. Another one in its place changes "
        "every frequency of texts that the model took as they were.",
        bad=Example("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 120000 "
                    "--hf-overrides '{\"rope_scaling\": {\"rope_type\": \"dynamic\", "
                    "\"factor\": 8.0}}'"),
        good=Example("vllm serve Qwen/Qwen3-8B --max-model-len 65536 --hf-overrides "
                     "'{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.0, "
                     "\"original_max_position_embeddings\": 32768}}'"),
        source="vllm-project/vllm#10537",
        look=lambda subject: (
            item for part in (_replaced, _spoken) for item in part(subject)
        ),
    ),
)  # fmt: skip
