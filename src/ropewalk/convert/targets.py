"""The one table of targets: what each can say, who writes it, and how it is read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import InputError
from ..models.flat_format import read_flat
from ..models.formats import recognise
from ..models.fragment import Fragment
from ..models.gguf_text import listed_metadata, read_listing
from ..models.hf import read_config
from ..models.mlx import read_mlx
from ..models.plan import ModelPositions
from .document import Options, Written
from .features import FEATURES
from .to_engines import (
    read_llama_cpp,
    read_overrides,
    write_llama_cpp,
    write_sglang,
    write_vllm,
)
from .to_gguf import write_gguf_keys
from .to_hf import family_features, write_hf, write_hf4, write_mlx
from .to_megatron import write_megatron
from .to_params import write_gpt_oss, write_meta, write_mistral

ReadBack = Callable[[Written, ModelPositions, Options], ModelPositions]

_SINGLE = 2.0**-20
"""What float32 loses of a base and a factor, and of what is computed from them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """One format that plans are written in.

    Attributes:
        name: as it stands after ``--to``.
        what: in words.
        says: names of the `FEATURES` that it can say.
        write: its writer.
        read_back: its reader.
        tolerance: relative loss of its numbers.
        own: what it can say of this plan's family alone, beside ``says``.
    """

    name: str
    what: str
    says: frozenset[str]
    write: Callable[[ModelPositions, Options], Written]
    read_back: ReadBack
    tolerance: float = 0.0
    own: Callable[[ModelPositions, Options], frozenset[str]] = lambda *_: frozenset()


def _whole(found: ModelPositions | Fragment) -> ModelPositions:
    if isinstance(found, Fragment):
        raise found.refusal()
    return found


def _from_config(written: Written, plan: ModelPositions, _options: Options) -> ModelPositions:
    return read_config(written.values, plan.path)


def _from_mlx(written: Written, plan: ModelPositions, _options: Options) -> ModelPositions:
    return read_mlx(written.values, plan.path)


def _from_flat(written: Written, plan: ModelPositions, _options: Options) -> ModelPositions:
    found = recognise(written.values, plan.path)
    if found is None:
        raise InputError(
            plan.path, found="keys of no format", expected="a format", fix="report this as a bug"
        )
    return _whole(read_flat(found[1], plan.path, found[0]))


def _from_listing(written: Written, plan: ModelPositions, _options: Options) -> ModelPositions:
    values = listed_metadata(written.text)
    if values is None:
        raise InputError(
            plan.path, found="no listing", expected="a listing", fix="report this as a bug"
        )
    return _whole(read_listing(values, plan.path))


def _features(*names: str) -> frozenset[str]:
    unknown = set(names) - set(FEATURES)
    assert not unknown, unknown
    return frozenset(names)


# Learned frequencies stand among the weights, in no file of settings; the next two only Qwen-1's
# own code has (`Target.own`); the last two no format has.
_EVERYTHING = frozenset(FEATURES) - {
    "learned frequencies", "dynamic scaling in steps", "log-n attention",
    "whole wavelengths", "clipped planes",
}  # fmt: skip
_PAIRINGS = ("half pairing", "adjacent pairing")
_YARN = ("yarn scaling", "yarn with rounding", "yarn betas", "yarn without amplitude")
_LLAMA3 = ("llama3 scaling", "llama3 bounds", "llama3 lower bound", "llama3 original length")
_LINEAR = ("linear scaling", "fractional factor", "original length of linear scaling")
_KINDS = (
    *_LINEAR, *_YARN, *_LLAMA3, "yarn without rounding", "yarn amplitude of its own",
    "yarn with the ramp in turns", "dynamic scaling", "longrope scaling",
)  # fmt: skip
_REST_OF_CONFIG = (
    *_PAIRINGS, "partial rotary", "latent attention", "reversed direction", "layers without rope",
    "layers without attention", "windows", "windows on some layers", "chunked attention",
    "query temperature", "query temperature without rope", "softmax multiplier", "stated length",
    "value heads of another size", "several position axes", "towers beside the language model",
)  # fmt: skip

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            name="hf", what="config.json of transformers 5", says=_EVERYTHING,
            write=write_hf, read_back=_from_config, own=family_features,
        ),
        Target(
            name="hf4", what="config.json of transformers 4 (rope_theta, rope_scaling)",
            says=_features(*_KINDS, *_REST_OF_CONFIG, "different ropes by layer"),
            write=write_hf4, read_back=_from_config, own=family_features,
        ),
        Target(
            name="mlx", what="config.json of mlx-lm",
            # Its YaRN rounds always and reads no attention_factor; its LongRoPE has one list.
            says=_features(
                *_LINEAR, "yarn scaling", "yarn with rounding", "yarn betas", *_LLAMA3,
                "dynamic scaling", *_REST_OF_CONFIG, "different ropes by layer",
            ),
            write=write_mlx, read_back=_from_mlx,
        ),
        Target(
            name="gguf-kv", what="metadata of a GGUF file",
            says=_features(
                *_LINEAR, *_YARN, "yarn amplitude of its own", *_PAIRINGS, "partial rotary",
                "latent attention", "different ropes by layer", "layers without rope",
                "layers without attention", "windows", "windows on some layers",
                "chunked attention", "query temperature", "query temperature without rope",
                "softmax multiplier", "value heads of another size", "stated length",
            ),
            write=write_gguf_keys, read_back=_from_listing, tolerance=_SINGLE,
        ),
        Target(
            name="meta", what="params.json of Meta",
            says=_features(
                "llama3 scaling", "llama3 bounds", "adjacent pairing", "layers without rope",
                "windows", "windows on some layers", "chunked attention",
                "query temperature without rope",
            ),
            write=write_meta, read_back=_from_flat,
        ),
        Target(
            name="mistral", what="params.json of Mistral",
            says=_features(
                *_YARN, "adjacent pairing", "latent attention", "windows", "query temperature",
                "stated length",
            ),
            write=write_mistral, read_back=_from_flat,
        ),
        Target(
            name="gpt-oss", what="original config of gpt-oss",
            says=_features(
                "yarn scaling", "yarn without rounding", "yarn betas", "half pairing", "windows",
                "windows on some layers", "stated length",
            ),
            write=write_gpt_oss, read_back=_from_flat,
        ),
        Target(
            name="megatron", what="arguments of Megatron",
            says=_features(
                "linear scaling", "llama3 scaling", "yarn scaling", "yarn with rounding",
                "yarn betas", "yarn without rounding", *_PAIRINGS, "partial rotary",
                "latent attention", "softmax multiplier", "layers without rope", "windows",
                "windows on some layers", "stated length",
            ),
            write=write_megatron, read_back=_from_flat,
        ),
        Target(
            name="vllm", what="flags of vLLM, beside the model",
            says=_features(
                *_LINEAR, *_YARN, *_LLAMA3, "yarn without rounding", "yarn amplitude of its own",
                "proportional scaling", "different ropes by layer", *_REST_OF_CONFIG,
            ),
            write=write_vllm, read_back=read_overrides,
        ),
        Target(
            name="sglang", what="flags of SGLang, beside the model",
            # Its generic YaRN reads attn_factor, not attention_factor.
            says=_features(
                *_LINEAR, "yarn scaling", "yarn with rounding", "yarn without rounding",
                "yarn betas", *_LLAMA3, "longrope scaling", *_REST_OF_CONFIG,
            ),
            write=write_sglang, read_back=read_overrides,
        ),
        Target(
            name="llama.cpp", what="flags of llama.cpp, beside the model",
            says=_features(
                *_LINEAR, "yarn scaling", "yarn with rounding", "yarn betas", *_REST_OF_CONFIG,
            ) - {"softmax multiplier"},
            write=write_llama_cpp, read_back=read_llama_cpp, tolerance=2.0**-28,
        ),
    )
}  # fmt: skip
"""Every target, by its name."""
