"""Command lines of engines: flags that do the opposite, nothing, or too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...models.spellings import NESTED_TEXT
from ..rule import Example, Rule, Seen
from ..subject import Subject, kind_of, number_in
from .named import native_length

# Bases that models were trained with; another one on a command line is a stretch by itself.
_TRAINED_BASES = frozenset(
    {1e4, 5e4, 1e5, 1.5e5, 1.6e5, 2.5e5, 5e5, 1e6, 1000042.0, 2e6, 5e6, 8e6, 1e7, 1e8, 1e9, 1e11}
)
_LONG_LINEAR = 4


def _inverted(subject: Subject) -> Iterator[Seen]:
    settings = subject.settings
    for key, value in ({} if settings is None else settings.metadata).items():
        if key.endswith("rope.scaling.factor") and isinstance(value, int | float) and 0 < value < 1:
            yield Seen(
                "--override-kv",
                f"{key} {value:g}, which speeds positions up by {1 / value:g}",
                f"{1 / value:g}: this key holds the factor, not the frequency scale",
                f"write {key}=float:{1 / value:g}",
            )
    factor = None if settings is None else settings.value("factor")
    if settings is None or factor is None or factor >= 1:
        return
    source = settings.numbers["factor"].source
    flag = source.removesuffix(" (its inverse)")
    given = 1 / factor if source.endswith("(its inverse)") else factor
    meant = f"{1 / given:g}"
    yield Seen(
        flag,
        f"{given:g}, which speeds positions up by {1 / factor:g}",
        f"{meant}, if a context {1 / factor:g} times as long is meant: a frequency scale is "
        "1 / factor, a rope scale is the factor",
        f"write {meant}",
    )


def _no_scale(subject: Subject) -> Iterator[Seen]:
    settings = subject.settings
    if settings is None or settings.value("kind") != "yarn" or settings.overrides is not None:
        return
    factor = settings.value("factor")
    if factor not in (None, 1):
        return
    rope = None if subject.plan is None else subject.plan.rope
    if rope is not None and rope.scaling.stretch > 1:
        return
    context, original = settings.value("context"), settings.value("original")
    right = "--rope-scale FACTOR"
    if context and original and context > original:
        right = f"--rope-scale {context / original:g} for {context} tokens over {original}"
    yield Seen(
        "--rope-scaling yarn",
        "YaRN without a factor: unless the model's file has one, nothing is stretched and "
        "longer texts are plain extrapolation",
        right,
        "add --rope-scale",
    )


def _twice(subject: Subject) -> Iterator[Seen]:
    settings = subject.settings
    if settings is None:
        return
    factor, base = settings.value("factor"), settings.value("base")
    if factor in (None, 1) or base is None or float(base) in _TRAINED_BASES:
        return
    yield Seen(
        settings.numbers["base"].source,
        f"base {float(base):g} together with a scale of {factor:g}",
        "one of the two: a raised base (NTK) and interpolation multiply, and the stretch is then "
        "far more than either",
        "leave the base of the model, or the scale at 1",
    )


def _dropped(subject: Subject) -> Iterator[Seen]:
    if not subject.overrides or subject.fragment is None:
        return
    parts: list[tuple[str, Mapping[str, object]]] = [("", subject.overrides)]
    parts += [
        (f"{name}.", inner)
        for name in NESTED_TEXT
        if isinstance(inner := subject.overrides.get(name), Mapping)
    ]
    for prefix, part in parts:
        for name in ("rope_parameters", "rope_scaling"):
            block = part.get(name)
            if not isinstance(block, Mapping):
                continue
            gone = [
                key
                for key in ("rope_theta", "partial_rotary_factor", "mrope_section")
                if block.get(key) is None and part.get(key) is None
            ]
            if "rope_theta" not in gone:
                continue
            heavy = name == "rope_parameters" or prefix or "mrope_section" in block
            yield Seen(
                f"{prefix}{name}",
                f"a block without {', '.join(gone)}",
                "those of the model's own block repeated, where it has them: the override "
                "replaces the block whole, and a base that stood in it becomes 10000",
                "run ropewalk check MODEL --overrides JSON, which tells what would be lost",
                severity="warning" if heavy else "note",
            )


def _lost(subject: Subject) -> Iterator[Seen]:
    for note in subject.notes():
        if note.startswith("the override replaces") and "would be lost" in note:
            words = note.split(" whole: ", 1)[1]
            yield Seen(
                "override",
                words.split(" would be lost")[0] + " would be lost",
                "the values of the model's own block repeated in the override",
                "repeat them",
            )


def _beyond(subject: Subject) -> Iterator[Seen]:
    settings = subject.settings
    context = None if settings is None else settings.value("context")
    if settings is None or context is None:
        return
    flag = settings.numbers["context"].source
    plan = subject.plan
    if plan is not None:
        stated, rope = plan.stated_length, plan.rope
        reach: float = 0 if rope is None else rope.original_length or 0
        reach *= 1 if rope is None else rope.scaling.stretch
        longest = max(stated or 0, reach)
        if longest and context > longest:
            most = int(longest)  # Below the context, so finite.
            yield Seen(
                flag,
                str(context),
                f"at most {most}, or a scaling of at least {context / most:.4g}: positions "
                f"{most}..{context - 1} are not trained",
                "shorten the context, or see ropewalk extend",
            )
        return
    blocks = [block for path, block in subject.blocks() if path.startswith("override")]
    for block in blocks:
        factor, original = (
            number_in(block, "factor"),
            number_in(block, "original_max_position_embeddings"),
        )
        if kind_of(block) in ("yarn", "llama3", "linear") and factor and original:
            reach = factor * original
            if context > reach * 1.001:
                yield Seen(flag, str(context),
                           f"at most {reach:.0f} = {factor:g} x {original:.0f}, the block's reach",
                           f"factor {context / original:g}, or a shorter context")  # fmt: skip
    yield from _beyond_native(subject, flag, context, bool(blocks))
    raised = subject.overrides.get("max_position_embeddings")
    if raised is not None and not blocks:
        yield Seen(
            "max_position_embeddings",
            f"raised to {raised} without a scaling",
            "a rope block that stretches the model, or the length that it was trained for",
            "raising the limit alone changes no frequency: longer texts are plain extrapolation",
        )
    factor, original = settings.value("factor"), settings.value("original")
    if factor and factor > 1 and original and context > factor * original * 1.001:
        yield Seen(flag, str(context),
                   f"at most {factor * original:g} = {factor:g} x {original}",
                   f"--rope-scale {context / original:g}, or a shorter context")  # fmt: skip


def _beyond_native(subject: Subject, flag: str, context: int, stretched: bool) -> Iterator[Seen]:
    """A context past what the named model was trained on, with nothing that stretches it."""
    settings = subject.settings
    native = None if settings is None else native_length(settings.model)
    if settings is None or native is None or stretched or settings.value("kind") is not None:
        return
    if subject.overrides.get("max_position_embeddings") is not None:
        return
    # Some configs leave room for the answer beyond the trained length.
    if settings.value("factor") in (None, 1) and context > 1.25 * native:
        yield Seen(
            flag,
            f"{context} for {settings.model}",
            f"at most {native}, the length that it was trained on; told by the name",
            f"a scaling of at least {context / native:.4g}, or a shorter context",
        )


def _long_linear(subject: Subject) -> Iterator[Seen]:
    settings = subject.settings
    if settings is None or settings.overrides is not None or subject.plan is not None:
        return
    factor = settings.value("factor")
    linear = settings.value("kind") in (None, "linear")
    if factor is not None and factor > _LONG_LINEAR and linear:
        yield Seen(
            settings.numbers["factor"].source,
            f"linear interpolation by {factor:g}",
            f"a model that was trained with it; else a factor of at most about {_LONG_LINEAR}, or "
            "YaRN: assumed from perplexities of untrained models, which rise steeply past it",
            "measure it: ropewalk measure MODEL",
        )


def _removed_flag(subject: Subject) -> Iterator[Seen]:
    for note in subject.notes():
        if note.startswith("--rope-scaling was removed from vLLM"):
            yield Seen("--rope-scaling", "a flag that vLLM no longer has",
                       "--hf-overrides '{\"rope_parameters\": …}'",
                       "use --hf-overrides")  # fmt: skip
        if note.startswith("--yarn-attn-factor"):
            yield Seen("--yarn-attn-factor", note.split(" has no effect")[0],
                       "no such flag: llama.cpp overwrites it wherever YaRN is on",
                       "leave it out")  # fmt: skip


def _two_factors(subject: Subject) -> Iterator[Seen]:
    flat = subject.flat
    if subject.is_config or subject.is_gguf:
        return
    one, other = subject.number("rope_factor"), subject.number("rope_scaling_factor")
    if one and other and one[1] != other[1]:
        yield Seen("rope_factor", f"{one[1]:g}, with rope_scaling_factor {other[1]:g}",
                   "one factor", "remove what is not meant")  # fmt: skip
    scaled = flat.get("use_rope_scaling") in (True, "true", "True")
    wrong, right = subject.number("rotary_scaling_factor"), other
    if scaled and wrong and right is None:
        yield Seen(
            "rotary_scaling_factor",
            f"{wrong[1]:g} beside use_rope_scaling",
            "rope_scaling_factor: the other flag is that of YaRN in latent attention, so the "
            "default 8 is used whatever it says",
            f"write --rope-scaling-factor {wrong[1]:g}",
        )
    original, most = (
        subject.number("rope_scaling_original_max_position_embeddings"),
        subject.number("max_position_embeddings"),
    )
    factor = other or one
    if original and most and factor and factor[1] > 1 and subject.plan is None:
        reach = factor[1] * original[1]
        if reach > 4 * most[1]:
            yield Seen(
                original[0],
                f"{original[1]:.0f} with factor {factor[1]:g}, which reaches {reach:.0f}",
                f"the length before stretching: {most[1]:.0f} positions are stated",
                "correct the length or the factor",
            )


_SERVER = "llama-server -m model.gguf"

RULES: tuple[Rule, ...] = (
    Rule(
        code="RW701",
        title="scale is inverted",
        severity="error",
        explanation="A frequency scale is the inverse of the factor: 0.25 stretches by 4. A scale "
        "above 1 (or a factor below 1) makes positions run faster and the context shorter.",
        bad=Example(f"{_SERVER} -c 16384 --rope-freq-scale 4.0"),
        good=Example(f"{_SERVER} -c 16384 --rope-freq-scale 0.25"),
        source="ggml-org/llama.cpp#2402; llama.cpp 0c1e570",
        look=_inverted,
    ),
    Rule(
        code="RW702",
        title="YaRN without a factor does nothing",
        severity="warning",
        explanation="--rope-scaling yarn names the method only. Without --rope-scale the "
        "frequency scale stays 1.",
        bad=Example(f"{_SERVER} -c 131072 --rope-scaling yarn --yarn-orig-ctx 32768"),
        good=Example(
            f"{_SERVER} -c 131072 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768"
        ),
        source="llama.cpp 0c1e570; guides for Qwen2.5 and Qwen3",
        look=_no_scale,
    ),
    Rule(
        code="RW703",
        title="two extensions are multiplied",
        severity="warning",
        explanation="Raising the base (alpha, NTK) and interpolating both stretch the model. "
        "Together they stretch by the product, which costs quality at every length.",
        bad=Example(f"{_SERVER} -c 8192 --rope-freq-base 40890 --rope-scale 4"),
        good=Example(f"{_SERVER} -c 8192 --rope-scale 4"),
        source="turboderp/exllama#115 and PR 118",
        look=_twice,
    ),
    Rule(
        code="RW704",
        title="override drops keys of the model's block",
        severity="warning",
        explanation="Engines replace the block of the config whole. Base, share and sections that "
        "stood in it are gone unless the override repeats them.",
        bad=Example("vllm serve Qwen/Qwen3-Next-80B --max-model-len 1010000 --hf-overrides "
                    "'{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                    "\"original_max_position_embeddings\": 262144}}'"),
        good=Example("vllm serve Qwen/Qwen3-Next-80B --max-model-len 1010000 --hf-overrides "
                     "'{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                     "\"original_max_position_embeddings\": 262144, \"rope_theta\": 10000000, "
                     "\"partial_rotary_factor\": 0.25}}'"),
        source="ls1intum/edutelligence#744; vLLM 0.33 and SGLang 0.5.23",
        look=lambda subject: (item for part in (_dropped, _lost) for item in part(subject)),
    ),
    Rule(
        code="RW706",
        title="context is longer than the scaling reaches",
        severity="warning",
        explanation="Positions past the trained length, or past factor x original length, were "
        "not trained. Raising a limit does not change that.",
        bad=Example("vllm serve Qwen/Qwen3-8B --max-model-len 1010000 --hf-overrides "
                    "'{\"max_position_embeddings\": 1010000}'"),
        good=Example("vllm serve Qwen/Qwen3-8B --max-model-len 131072 --hf-overrides "
                     "'{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                     "\"original_max_position_embeddings\": 32768}}'"),
        source="mlc-ai/mlc-llm#3202",
        look=_beyond,
    ),
    Rule(
        code="RW707",
        title="long linear interpolation of an untrained model",
        severity="note",
        explanation="A heuristic: linear interpolation squeezes the fast planes too. Models that "
        "were not trained with it lose quality from factors of 2 to 4 on.",
        bad=Example("FROM model\nPARAMETER num_ctx 262144\nPARAMETER rope_frequency_scale 0.125"),
        good=Example("FROM model\nPARAMETER num_ctx 8192\nPARAMETER rope_frequency_scale 0.5"),
        source="Chen et al. 2023, arXiv 2306.15595; ggml-org/llama.cpp PR 2268",
        look=_long_linear,
    ),
    Rule(
        code="RW708",
        title="flag is gone or without effect",
        severity="note",
        explanation="The engine no longer has this flag, or overwrites what it says.",
        bad=Example("vllm serve Qwen/Qwen3-8B --rope-scaling '{\"rope_type\": \"yarn\", "
                    "\"factor\": 4.0, \"original_max_position_embeddings\": 32768}'"),
        good=Example("vllm serve Qwen/Qwen3-8B --hf-overrides '{\"rope_scaling\": "
                     "{\"rope_type\": \"yarn\", \"factor\": 4.0, "
                     "\"original_max_position_embeddings\": 32768}}'"),
        source="vLLM 0.33; llama.cpp 0c1e570; NVIDIA/TensorRT-LLM#1595",
        look=_removed_flag,
    ),
    Rule(
        code="RW709",
        title="factor under a flag that is not read, or two factors",
        severity="warning",
        explanation="Megatron has three factors: rope-scaling-factor (llama3), "
        "rotary-scaling-factor (YaRN) and, in forks, rope-factor. Two of them, or the wrong one, "
        "leave a default in place.",
        bad=Example("--num-layers 2 --hidden-size 4096 --num-attention-heads 32 "
                    "--max-position-embeddings 131072 --position-embedding-type rope "
                    "--rotary-base 500000 --use-rope-scaling --rotary-scaling-factor 8.0"),
        good=Example("--num-layers 2 --hidden-size 4096 --num-attention-heads 32 "
                     "--max-position-embeddings 131072 --position-embedding-type rope "
                     "--rotary-base 500000 --use-rope-scaling --rope-scaling-factor 8.0"),
        source="Megatron-core (2026-08); scripts of THUDM/slime",
        look=_two_factors,
    ),
)  # fmt: skip
