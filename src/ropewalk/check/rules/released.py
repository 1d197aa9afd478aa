"""Values that differ from those of released models of the same size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...scaling import Plain
from ..rule import Example, Rule, Seen
from ..subject import Subject, number_in


@dataclass(frozen=True)
class Released:
    """One released model: layers, hidden size, query heads, key heads, and its positions.

    ``length`` 0 is not compared; ``scaling`` is None where it has none; ``families`` are model
    types. ``rotary_dim`` and ``beta_fast`` are compared where given; ``every`` n-th has no rope.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    theta: float
    length: int
    scaling: str | None = None
    families: tuple[str, ...] = ()
    latent: bool = False
    rotary_dim: int | None = None
    beta_fast: float | None = None
    every: int | None = None


# From the released configs; sizes that many trainings share are left out unless all are here.
_LLAMA, _LLAMA4, _PHI = ("llama", "mllama"), ("llama4", "llama4_text"), ("phi3", "phi3_v")
_GPT_OSS, _KIMI = ("gpt_oss",), ("deepseek_v3", "kimi_k2")
RELEASED: tuple[Released, ...] = (
    Released("Llama 2 13B", 40, 5120, 40, 40, 1e4, 4096, families=_LLAMA),
    Released("Llama 13B", 40, 5120, 40, 40, 1e4, 2048, families=_LLAMA),
    Released("Code Llama 13B", 40, 5120, 40, 40, 1e6, 16384, families=_LLAMA),
    Released("Llama 2 70B", 80, 8192, 64, 8, 1e4, 4096, families=_LLAMA),
    Released("Code Llama 70B", 80, 8192, 64, 8, 1e6, 16384, families=_LLAMA),
    Released("Llama 3 70B", 80, 8192, 64, 8, 5e5, 8192, families=_LLAMA),
    Released("Llama 3.1 and 3.3 70B", 80, 8192, 64, 8, 5e5, 131072, "llama3", families=_LLAMA),
    Released("Qwen2.5 72B", 80, 8192, 64, 8, 1e6, 32768, families=("qwen2",)),
    Released("Qwen2.5 72B base", 80, 8192, 64, 8, 1e6, 131072, families=("qwen2",)),
    Released("Phi-3-mini-4k", 32, 3072, 32, 32, 1e4, 4096, families=_PHI),
    Released("Phi-3-mini-128k and Phi-3.5", 32, 3072, 32, 32, 1e4, 131072, "longrope", _PHI),
    Released("Phi-4-mini", 32, 3072, 24, 8, 1e4, 131072, "longrope", _PHI, rotary_dim=96),
    Released("Llama 4 Scout", 48, 5120, 40, 8, 5e5, 0, "llama3", _LLAMA4, every=4),
    Released("Llama 4 Maverick", 48, 5120, 40, 8, 5e5, 0, None, _LLAMA4, every=4),
    Released("gpt-oss-20b", 24, 2880, 64, 8, 150000.0, 131072, "yarn", _GPT_OSS),
    Released("gpt-oss-120b", 36, 2880, 64, 8, 150000.0, 131072, "yarn", _GPT_OSS),
    Released("Kimi K2", 61, 7168, 64, 64, 5e4, 131072, "yarn", _KIMI, latent=True, beta_fast=1.0),
)
_ORIGINAL = "original_max_position_embeddings"
_LLAMA3_LENGTH, _LLAMA3_BASE = 131072, 500000.0
# Their stated length is that of the training at hand.
_TRAINING = ("megatron", "gpt-neox", "nanotron", "training", "maxtext")
_PARAMS = ("meta", "executorch", "torchchat", "mistral")


def _same_size(subject: Subject) -> list[Released]:
    plan = subject.plan
    if plan is None or plan.rope is None:
        return []
    told = plan.model_type if subject.is_config else None
    hidden = plan.sources.get("hidden_size")
    number = hidden.value if hidden is not None else None
    if number is None:
        found = subject.number(
            "hidden_size", "dim", "embed_dim", "n_embd", "base_emb_dim", "text.embed_dim",
            "text_config.hidden_size",
        )  # fmt: skip
        number = None if found is None else int(found[1])
    latent = plan.rope.rotary_offset > 0
    kv_unknown = plan.sources.get("kv_heads") is None or (
        plan.sources["kv_heads"].source.startswith("derived") and not subject.is_config
    )
    return [
        item
        for item in RELEASED
        if (item.layers, item.hidden, item.heads) == (len(plan.layers), number, plan.heads)
        and (item.latent or item.kv_heads == plan.kv_heads or kv_unknown)
        and item.latent == latent
        and (told is None or told in item.families)
        and item.rotary_dim in (None, plan.rope.rotary_dim)
    ]


def _mixture(subject: Subject) -> Iterator[Seen]:
    plan, models = subject.plan, _same_size(subject)
    if plan is None or plan.rope is None or not models:
        return
    theta, stated, scaling = plan.rope.theta, plan.stated_length, plan.rope.scaling.kind
    scaled = None if isinstance(plan.rope.scaling, Plain) else scaling
    same_base = [item for item in models if item.theta == theta]
    known = "; ".join(
        f"{item.name}: base {item.theta:g}, {f'{item.length} tokens, ' if item.length else ''}"
        f"{'no scaling' if item.scaling is None else item.scaling}"
        for item in models
    )
    short = stated is not None and all(stated < item.length for item in (same_base or models))
    if plan.format in _TRAINING:
        short = short and any(stated == item.length for item in models)
    if same_base:
        yield from _other_details(subject, same_base)
    lost = (
        stated is None
        and plan.format in _PARAMS
        and scaled is None
        and any(item.scaling is not None for item in same_base)
    )
    alike = scaled is not None or any(item.scaling == scaled for item in same_base)
    if same_base and alike and not short and not lost:
        return
    if not same_base:
        found = f"base {theta:.15g}"
    elif short:
        found = f"base {theta:.15g} with {stated} tokens"
    else:
        found = f"base {theta:.15g}, no scaling"
    yield Seen(
        "rope_theta" if not same_base else _length_key(subject) if short else "rope_scaling",
        f"{found}, in a model of {len(plan.layers)} layers and {plan.heads} heads",
        f"the positions of a released model of this size ({known}); assumed: it is one of them",
        "restore the released values, unless the model was trained with its own",
    )


def _other_details(subject: Subject, models: list[Released]) -> Iterator[Seen]:
    """Layers without rope, and where YaRN's ramp begins."""
    plan = subject.plan
    if plan is None or plan.rope is None:
        return
    every = {item.every for item in models}
    if None not in every and all(layer.rope is not None for layer in plan.layers):
        yield Seen(
            "layers without rope",
            f"none of {len(plan.layers)}",
            f"every {models[0].every}th, as {models[0].name} has; assumed: it is that model",
            "name the layers without rope (Megatron: --no-rope-freq)",
        )
    fast, found = models[0].beta_fast, getattr(plan.rope.scaling, "beta_fast", None)
    if fast is not None and found is not None and found != fast and len(models) == 1:
        yield Seen(
            "beta_fast",
            f"{found:g}",
            f"{fast:g}, as {models[0].name} has; assumed: it is that model",
            "write beta_fast down: the default of the program is another",
        )


def _other_window(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan or subject.fragment
    names = f"{subject.values.get('name', '')} {subject.part.get('model_type', '')}".lower()
    if plan is None or not any(word in names for word in ("mistral", "mathstral")):
        return
    base = subject.number("rope_theta", "rope_base")
    window = subject.number("sliding_window", "sliding_window_size")
    if base and window and (base[1], window[1]) == (1e6, 4096.0):
        yield Seen(
            window[0],
            "4096 with base 1000000",
            "no window with base 1000000 (Mistral 7B v0.2 and later), or base 10000 with a window "
            "of 4096 (v0.1); assumed: it is one of them",
            "take both from the config of the same version",
        )


def _length_key(subject: Subject) -> str:
    source = subject.plan.sources.get("stated_length") if subject.plan else None
    if source is None or ": " not in source.source:
        return "max_position_embeddings"
    return str(source.source).rsplit(": ", 1)[-1]


def _lost_scaling(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is None or plan.rope is None or not isinstance(plan.rope.scaling, Plain):
        return
    stated, theta = plan.stated_length, plan.rope.theta
    told = plan.model_type
    if subject.is_gguf:
        if subject.tensors is None or told != "llama":
            return
        if stated == _LLAMA3_LENGTH and theta == _LLAMA3_BASE:
            yield Seen(
                "rope_freqs.weight",
                "no such tensor, with base 500000 and context_length 131072",
                "the divisors of llama3 scaling, one per plane (Llama 3.1 and later); assumed: "
                "it is such a model",
                "convert it again with a converter that writes rope_freqs.weight",
            )
        return
    if told in ("llama", "mllama") and stated == _LLAMA3_LENGTH and theta == _LLAMA3_BASE:
        yield Seen(
            f"{subject.prefix}rope_scaling",
            "no scaling, with base 500000 and 131072 tokens",
            "llama3 scaling (Llama 3.1: factor 8 over 8192; 3.2: 32); assumed: it is such a model",
            "restore the block of the released config",
        )
    original = subject.part.get("original_max_position_embeddings")
    if subject.is_config and isinstance(original, int) and stated is not None and stated > original:
        yield Seen(
            f"{subject.prefix}rope_scaling",
            f"no scaling, with original length {original} and stated length {stated}",
            "a scaling that bridges the two, as in the released config",
            f"restore the block, or state {original}",
        )


def _length_lost(subject: Subject) -> Iterator[Seen]:
    """Formats without keys for a scaling that the model of this size has."""
    plan = subject.plan
    if plan is None or plan.format not in _PARAMS or plan.rope is None:
        return
    if plan.stated_length is None:
        yield Seen(
            "max_seq_len",
            "no length in the file",
            "the length that the model was trained for: programs fill in their own, often 2048",
            "give the length to the program",
        )


_NAMES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"llama-?3\.[123]", re.I), "llama3", "its own llama3 scaling, up to 131072"),
    (re.compile(r"gpt-oss", re.I), "yarn 32", "its own YaRN, factor 32 over 4096, base 150000"),
    (re.compile(r"deepseek-(v2|v3|r1)\b(?!.*(distill|qwen|llama))", re.I), "yarn 40",
     "its own YaRN, factor 40 over 4096, with mscale"),
    (re.compile(r"kimi-k2", re.I), "yarn", "its own YaRN, with mscale"),
    (re.compile(r"phi-?3(\.5)?-.*128k|phi-?3\.5|phi-?4-mini", re.I), "longrope",
     "its own LongRoPE lists"),
)  # fmt: skip


_NATIVE: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"qwen3-\d+(\.\d+)?b(?!.*(2507|instruct))", re.I), 32768),
    (re.compile(r"qwen2\.5-\d+(\.\d+)?b(?!.*1m)", re.I), 32768),
    (re.compile(r"qwen3-(next|coder)|qwen3\.[56]|qwen3-.*2507", re.I), 262144),
)


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
        native = next((n for pattern, n in _NATIVE if pattern.search(settings.model)), None)
        if original is not None and native is not None and original != native:
            yield Seen(
                where,
                f"{original:.0f} for {settings.model}",
                f"{native}, the length that it was trained on (its max_position_embeddings leaves "
                "room for the answer); told by the name",
                f"write {native}",
            )


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


_SIZE = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
}

RULES: tuple[Rule, ...] = (
    Rule(
        code="RW120",
        title="values of no released model of this size",
        severity="warning",
        explanation="Layers, hidden size and heads are those of released models, base, length or "
        "scaling are of none of them. The finding assumes that the model is one of those; a "
        "model of that size may have been trained otherwise.",
        bad=Example({**_SIZE, "max_position_embeddings": 4096, "rope_theta": 1000000.0}),
        good=Example({**_SIZE, "max_position_embeddings": 4096, "rope_theta": 10000.0}),
        source="released configs; EleutherAI/gpt-neox configs/llama2/70B.yml",
        look=_mixture,
    ),
    Rule(
        code="RW121",
        title="scaling that the lengths call for is missing",
        severity="warning",
        explanation="The lengths or the base are those of a stretched model, but no scaling is "
        "there. Texts past the original length then meet untrained frequencies.",
        bad=Example({**_SIZE, "num_hidden_layers": 2, "max_position_embeddings": 131072,
                     "rope_theta": 500000.0}),
        good=Example({**_SIZE, "num_hidden_layers": 2, "max_position_embeddings": 131072,
                      "rope_theta": 500000.0,
                      "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                                       "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                       "original_max_position_embeddings": 8192}}),
        source="ggml-org/llama.cpp PR 8676 (rope_freqs missing); lablup/mlxcel PR 1385",
        look=_lost_scaling,
    ),
    Rule(
        code="RW122",
        title="format does not carry the length",
        severity="note",
        explanation="A params.json without a length leaves it to the program, whose default may "
        "be far below or above what the model was trained for.",
        bad=Example({"dim": 4096, "n_layers": 2, "n_heads": 32, "multiple_of": 256,
                     "rope_theta": 10000.0}),
        good=Example({"dim": 4096, "n_layers": 2, "n_heads": 32, "multiple_of": 256,
                      "rope_theta": 10000.0, "max_seq_len": 4096}),
        source="Meta's params.json; torchchat's default of 2048",
        look=_length_lost,
    ),
    Rule(
        code="RW123",
        title="window of one version with the base of another",
        severity="note",
        explanation="Mistral 7B v0.1 has base 10000 and a window of 4096, later versions base "
        "1000000 and no window.",
        bad=Example({"model_type": "mistral", "num_hidden_layers": 2, "rope_theta": 1000000.0,
                     "sliding_window": 4096, "max_position_embeddings": 32768}),
        good=Example({"model_type": "mistral", "num_hidden_layers": 2, "rope_theta": 1000000.0,
                      "sliding_window": None, "max_position_embeddings": 32768}),
        source="released configs of Mistral 7B; Lightning-AI/litgpt config.py (Mathstral)",
        look=_other_window,
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
