"""Where engines make different things of one file."""

from __future__ import annotations

from collections.abc import Iterator

from ...scaling import LongRoPE
from ..rule import Example, Rule, Seen
from ..subject import Subject, number_in

_PHI = {
    "model_type": "phi3",
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
_PARAMS = {"dim": 2560, "n_layers": 2, "n_heads": 20, "n_kv_heads": 4, "max_seq_len": 8192}
_LLAMA3_BASE = 500000.0


def _list_rule(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan
    if plan is None or plan.rope is None or not isinstance(plan.rope.scaling, LongRoPE):
        return
    scaling = plan.rope.scaling
    if scaling.short_factor == scaling.long_factor:
        return
    yield Seen(
        "long_factor",
        f"two lists, switched at {scaling.original_length} tokens",
        f"transformers: short up to {scaling.original_length} tokens of text, long from "
        f"{(scaling.original_length or 0) + 1}; vLLM: by max_model_len, fixed per server; "
        "llama.cpp: by the allocated context",
        "allocate no more than the texts need; never mix both lists in one cache",
    )


def _rounding(subject: Subject) -> Iterator[Seen]:
    for path, block in subject.blocks():
        if block.get("truncate") is False:
            yield Seen(
                f"{path}.truncate" if path else "truncate",
                "false",
                "the same in every engine; llama.cpp 0c1e570 and mlx-lm 0.31 round the bounds of "
                "the ramp all the same, and so turn the planes between at other speeds",
                "see ropewalk compare MODEL",
            )


def _by_name(subject: Subject) -> Iterator[Seen]:
    plan = subject.plan or subject.fragment
    if plan is None or plan.format != "maxtext":
        return
    base = subject.number("rope_max_timescale")
    if subject.flat.get("rope_type") is None and base is not None and base[1] == _LLAMA3_BASE:
        yield Seen(
            "rope_type",
            "nothing, with base 500000",
            "llama3.1 for Llama 3.1 and later: without the key MaxText turns the scaling on only "
            "where the model's name begins with llama3.1, and 3.2 and 3.3 then go without",
            "write rope_type: llama3.1 (or default, for Llama 3)",
        )


def _unnamed_scaling(subject: Subject) -> Iterator[Seen]:
    values = subject.values
    if values.get("use_scaled_rope") is not True:
        return
    theta, factor = number_in(values, "rope_theta"), number_in(values, "rope_scaling_factor")
    if theta is not None and theta != _LLAMA3_BASE:
        yield Seen(
            "use_scaled_rope",
            f"true, with base {theta:g}" + (f" and factor {factor:g}" if factor else ""),
            "llama3 scaling is what these keys mean, and it goes with base 500000; a model with "
            "YaRN or linear scaling cannot be written in this format",
            "take the positions from the model's config.json",
        )
    elif factor is None:
        yield Seen(
            "rope_scaling_factor",
            "nothing; assumed 8",
            "8 for Llama 3.1 and 3.3, 32 for Llama 3.2: the file does not say",
            "add the key",
            severity="note",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        code="RW710",
        title="engines choose LongRoPE's list by different lengths",
        severity="note",
        explanation="One model has two sets of frequencies. Which one a text gets depends on the "
        "text, the server's limit or the allocated context, by engine. Keys of both in one cache "
        "are wrong.",
        bad=Example({**_PHI, "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4,
                                              "long_factor": [1.0, 2.0, 3.0, 4.0]}}),
        good=Example({**_PHI, "rope_scaling": {"type": "longrope", "short_factor": [2.0] * 4,
                                               "long_factor": [2.0] * 4}}),
        source="ggml-org/llama.cpp#24823; vllm-project/vllm PR 27431; unslothai/unsloth PR 10681",
        look=_list_rule,
    ),
    Rule(
        code="RW711",
        title="engines round the ramp of YaRN although the file says not to",
        severity="note",
        explanation="truncate false keeps the bounds of the ramp as fractions. Engines without "
        "the key round them outwards.",
        bad=Example({"model_type": "gpt_oss", "num_hidden_layers": 2, "rope_theta": 150000,
                     "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": False,
                                      "original_max_position_embeddings": 4096}}),
        good=Example({"model_type": "gpt_oss", "num_hidden_layers": 2, "rope_theta": 150000,
                      "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": True,
                                       "original_max_position_embeddings": 4096}}),
        source="huggingface/transformers PR 42189; llama.cpp 0c1e570, mlx-lm 0.31",
        look=_rounding,
    ),
    Rule(
        code="RW712",
        title="scaling hangs on the name of the model",
        severity="warning",
        explanation="MaxText turns llama3 scaling on by the model's name. The file alone does not "
        "say, and names that begin otherwise go without it in silence.",
        bad=Example({"base_emb_dim": 4096, "base_num_query_heads": 32,
                     "base_num_decoder_layers": 2, "head_dim": 128,
                     "rope_max_timescale": 500000}),
        good=Example({"base_emb_dim": 4096, "base_num_query_heads": 32,
                      "base_num_decoder_layers": 2, "head_dim": 128,
                      "rope_max_timescale": 500000, "rope_type": "llama3.1"}),
        source="AI-Hypercomputer/maxtext: layers/attentions.py",
        look=_by_name,
    ),
    Rule(
        code="RW713",
        title="params.json does not say which scaling",
        severity="warning",
        explanation="use_scaled_rope means llama3 scaling with constants of Meta's code. Files "
        "made for other models carry the key all the same.",
        bad=Example({**_PARAMS, "use_scaled_rope": True, "rope_scaling_factor": 20,
                     "rope_theta": 10000.0}),
        good=Example({**_PARAMS, "use_scaled_rope": True, "rope_scaling_factor": 8,
                      "rope_theta": 500000.0}),
        source="Meta's llama-models; a params.json of AFM-4.5B",
        look=_unnamed_scaling,
    ),
)  # fmt: skip
