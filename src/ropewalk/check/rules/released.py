"""Values that differ from those of released models of the same size."""

from __future__ import annotations

from collections.abc import Iterator

from ...scaling import Plain
from ..rule import Example, Rule, Seen
from ..subject import Subject
from .released_models import RELEASED, Released

# Fewer are a model cut down for a test.
_FEW_LAYERS = 4
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
    # Sizes that the file leaves to its class tell no model.
    given = not subject.is_config or None not in map(subject.whole, ("hidden_size", "layers"))
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
        and (given or not item.loose)
        and (item.loose or item.rotary_dim in (None, plan.rope.rotary_dim))
    ]


def _mixture(subject: Subject) -> Iterator[Seen]:
    plan, models = subject.plan, _same_size(subject)
    if plan is None or plan.rope is None or not models:
        return
    theta, stated = plan.rope.theta, plan.stated_length
    kind = None if isinstance(plan.rope.scaling, Plain) else plan.rope.scaling.kind
    loose = all(item.loose for item in models)
    if loose and subject.is_gguf:
        return  # Its tensors say more than its keys.
    same_base = [item for item in models if item.theta == theta]
    if loose and not same_base and theta > min(item.theta for item in models):
        # Trained further with a larger base: its lanes are still those.
        yield from _other_lanes(subject, models)
        return
    if loose and not same_base and not subject.is_config:
        return  # Other families have the same sizes.
    exact = [] if loose else same_base or models
    short = bool(exact) and stated is not None and all(stated < item.length for item in exact)
    if plan.format in _TRAINING:
        short = short and any(stated == item.length for item in models)
    if same_base:
        yield from _other_details(subject, same_base)
    if not same_base:
        where, found = "rope_theta", f"base {theta:.15g}"
    elif short:
        where, found = _length_key(subject), f"base {theta:.15g} with {stated} tokens"
    elif _other_scaling(subject, same_base, kind, stated):
        where, found = "rope_scaling", f"base {theta:.15g}, {kind or 'no scaling'}"
    else:
        return
    known = "; ".join(
        f"{item.name}: base {item.theta:g}, {f'{item.length} tokens, ' if item.length else ''}"
        f"{'no scaling' if item.scaling is None else item.scaling}"
        for item in models
    )
    yield Seen(
        where,
        f"{found}, in a model of {len(plan.layers)} layers and {plan.heads} heads",
        f"the positions of a released model of this size ({known}); assumed: it is one of them",
        "restore the released values, unless the model was trained with its own",
    )


def _other_scaling(
    subject: Subject, models: list[Released], kind: str | None, stated: int | None
) -> bool:
    """Tell whether a scaling that the released models were trained with is gone or another."""
    plan = subject.plan
    unsaid = stated is None and plan is not None and plan.format in _PARAMS
    # Llama 3's own files have no switch; those of 3.1 and later do.
    unsaid = unsaid and (models[0].theta != _LLAMA3_BASE or "use_scaled_rope" in subject.values)
    if kind is None and unsaid and any(item.scaling is not None for item in models):
        return True
    if kind == "llama3" and all(item.scaling != kind for item in models):
        return True  # Nobody stretches a model by it without training.
    if not all(item.loose for item in models):
        return kind is None and all(item.scaling is not None for item in models)
    # Others extend unscaled models; a length that only a scaled one has tells which it is.
    named = [item for item in models if item.length == stated] or models
    return all(item.scaling not in (None, kind) for item in named)


def _fewer_layers(subject: Subject) -> Iterator[Seen]:
    plan, hidden = subject.plan, subject.whole("hidden_size")
    if plan is None or not subject.is_config:
        return
    width = (hidden, plan.heads, plan.kv_heads)
    models = [
        item
        for item in RELEASED
        if (item.hidden, item.heads, item.kv_heads) == width and plan.model_type in item.families
    ]
    count = len(plan.layers)
    if models and _FEW_LAYERS < count < min(item.layers for item in models):
        yield Seen(
            f"{subject.prefix}num_hidden_layers",
            f"{count}",
            f"{models[0].layers}, as {models[0].name} of this width has; assumed: it is that model",
            "nothing, if layers were cut on purpose: positions are the same in each",
            severity="note",
        )


def _other_lanes(subject: Subject, models: list[Released]) -> Iterator[Seen]:
    plan, lanes = subject.plan, {item.rotary_dim for item in models}
    if plan is None or plan.rope is None or None in lanes or plan.rope.rotary_dim in lanes:
        return
    share = subject.get("partial") is not None or plan.rope.rotary_dim < plan.rope.head_dim
    yield Seen(
        f"{subject.prefix}{'partial_rotary_factor' if share else 'head_dim'}",
        f"{plan.rope.rotary_dim} rotated lanes of a head of {plan.rope.head_dim}",
        f"{models[0].rotary_dim}, as {models[0].name} has; assumed: it is that model",
        "restore head_dim and the rotated share of the released config",
    )


def _other_details(subject: Subject, models: list[Released]) -> Iterator[Seen]:
    """Layers without rope, and the numbers of the scaling."""
    plan = subject.plan
    if plan is None or plan.rope is None:
        return
    assumed = f"as {models[0].name} has; assumed: it is that model"
    yield from _other_lanes(subject, models)
    scaling = plan.rope.scaling
    factors = {item.factor for item in models if item.scaling == scaling.kind}
    if factors and None not in factors and scaling.stretch not in factors:
        yield Seen(
            "factor",
            f"{scaling.kind} with factor {scaling.stretch:g}",
            f"{models[-1].factor:g}, as {models[-1].name} has; assumed: it is that model",
            "restore the factor of the released config",
        )
    multiplied = any(layer.softmax_multiplier != 1 for layer in plan.layers)
    if all(item.softmax for item in models) and scaling.kind == "yarn" and not multiplied:
        yield Seen(
            "mscale_all_dim",
            "nothing, and so no multiplier of the softmax",
            f"the multiplier, {assumed}",
            "restore mscale and mscale_all_dim of the released config",
        )
    every = {item.every for item in models}
    if None not in every and all(layer.rope is not None for layer in plan.layers):
        yield Seen(
            "layers without rope",
            f"none of {len(plan.layers)}",
            f"every {models[0].every}th, {assumed}",
            "name the layers without rope (Megatron: --no-rope-freq)",
        )
    fast, found = models[0].beta_fast, getattr(plan.rope.scaling, "beta_fast", None)
    if fast is not None and found is not None and found != fast and len(models) == 1:
        yield Seen(
            "beta_fast",
            f"{found:g}",
            f"{fast:g}, {assumed}",
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
        look=lambda subject: (
            item for part in (_mixture, _fewer_layers) for item in part(subject)
        ),
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
)  # fmt: skip
