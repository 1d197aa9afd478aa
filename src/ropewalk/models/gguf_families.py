"""What llama.cpp does with a GGUF file where the file does not say, by architecture.

Pairings are those of ``llama_model_rope_type``, periods and defaults those of
``load_hparams`` of llama.cpp (2026). Architectures that are not here are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..rope import Pairing

RUNTIME = "llama.cpp"
"""The runtime whose defaults these are."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One architecture of GGUF files.

    Attributes:
        pairing: how lanes are paired in its files.
        period: the last of so many layers has no window, where the file gives a window; 0
            if the architecture's code reads no window; ``LISTED`` if the file must list the
            layers.
        first: whether it is the first of so many layers that has no window.
        symmetric: the window counts both sides, as encoders have it.
        local_theta: base of windowed layers without ``rope.freq_base_swa``; None for that of
            the others.
        local_scaled: whether scaling applies to windowed layers.
        no_rope: ``full`` full layers of a model with a window have no rope, ``every_4th``
            layers 3, 7, 11 … have none.
        dense_rope: ``leading_dense_block_count`` layers have rope all the same.
        rope_switch: boolean key without which (default true) no layer has rope.
        rope_pattern: whether ``attention.rope_pattern`` (1 means rope) is read.
        chunk: length of attention chunks, which stand in place of a window.
        latent: latent attention: rotated lanes come last in a head.
        betas: whether yarn_beta_fast and yarn_beta_slow are read.
        beta_fast: default of yarn_beta_fast.
        halved_full: full layers turn half of rope.dimension_count.
        alibi_layers: a model of so many layers has ALiBi in place of rope.
        log_multiplier: what ``yarn_log_multiplier`` is divided by to give ``mscale_all_dim``;
            0 if it is not read.
        linear_period: all but the last of so many layers are linear attention.
        axes: positions have several axes, equal for text.
        query_temperature: default (beta, length, offset) on layers without rope.
        unless: a key with which its code does what is not described here, and what that is.
    """

    pairing: Pairing
    period: int = 0
    first: bool = False
    symmetric: bool = False
    local_theta: float | None = None
    local_scaled: bool = True
    no_rope: Literal["never", "full", "every_4th"] = "never"
    dense_rope: bool = False
    rope_switch: str | None = None
    rope_pattern: bool = False
    chunk: int = 0
    latent: bool = False
    betas: bool = False
    beta_fast: float = 32.0
    halved_full: bool = False
    alibi_layers: int = 0
    log_multiplier: float = 0.0
    linear_period: int = 0
    axes: bool = False
    query_temperature: tuple[float, int, int] | None = None
    unless: tuple[str, str] | None = None


LISTED = -1
"""A period that says: ``attention.sliding_window_pattern`` must list the layers."""

_ADJACENT = Architecture(pairing="adjacent")
_HALF = Architecture(pairing="half")
_AXES = Architecture(pairing="half", axes=True)
_LATENT = Architecture(pairing="adjacent", latent=True, log_multiplier=0.1)
_LINEAR_4 = Architecture(pairing="half", linear_period=4, axes=True)
# Bases and scales of windowed layers that the architecture's code does not set.
_UNSET_LOCAL: dict[str, Any] = {"local_theta": 10000.0, "local_scaled": False}
_GEMMA = Architecture(pairing="half", period=6, **_UNSET_LOCAL)
_GRANITE = Architecture(pairing="adjacent", rope_switch="rope.scaling.finetuned")
_LOCAL_ROPE = Architecture(pairing="half", period=4, no_rope="full")

ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(
        (
            "llama", "llada", "deci", "internlm2", "minicpm", "xverse", "command-r", "olmo",
            "arctic", "deepseek", "chatglm", "chameleon", "bailingmoe", "arcee", "ernie4_5",
            "ernie4_5-moe", "llama-embed", "glm4", "neo-bert", "maincoder", "nanbeige",
            "pockettts", "eagle3",
        ),
        _ADJACENT,
    ),
    **dict.fromkeys(("granite", "granitemoe", "granitehybrid", "graniteswitch"), _GRANITE),
    **dict.fromkeys(
        (
            "falcon", "falcon-h1", "dbrx", "stablelm", "bitnet", "qwen", "qwen2", "dream",
            "qwen2moe", "qwen3", "qwen3moe", "llada-moe", "olmoe", "phi2", "phi3", "phimoe",
            "plamo", "plamo2", "gemma", "starcoder2", "openelm", "gptneox", "codeshell", "orion",
            "nemotron", "exaone", "bailingmoe2", "dots1", "hunyuan-moe", "hunyuan-dense",
            "hy_v3", "jais2", "lfm2", "lfm2moe", "seed_oss", "grovemoe", "apertus", "minimax-m2",
            "minimax-m3", "cogvlm", "rnd1", "pangu-embedded", "glm4moe", "jina-bert-v3",
            "nomic-bert", "nomic-bert-moe", "eurobert", "talkie", "hrm_text",
        ),
        _HALF,
    ),
    **dict.fromkeys(("deepseek2", "deepseek32", "mistral4", "glm-dsa"), _LATENT),
    "plm": Architecture(pairing="adjacent", latent=True),
    # Its linear layers are those without key-value heads.
    "bailingmoe3": Architecture(pairing="adjacent", latent=True),
    "dots3note": Architecture(pairing="adjacent", latent=True, period=LISTED),
    # llama_model_rope_type says adjacent; its graph turns halves all the same, and unscaled.
    "deepseek2-ocr": Architecture(
        pairing="half",
        unless=(
            "attention.sliding_window",
            "a window that all reference tokens stay in (R-SWA), which is not described here",
        ),
    ),
    "dflash": Architecture(
        pairing="half", period=LISTED,
        unless=(
            "hyper_connection.count",
            "a draft of DeepSeek-V4, whose lanes are adjacent, which is not described here",
        ),
    ),
    "hy_v4": Architecture(pairing="adjacent", latent=True),
    "minicpm3": Architecture(pairing="half", latent=True),
    "mistral3": Architecture(pairing="adjacent", betas=True, log_multiplier=1.0),
    "grok": Architecture(pairing="half", betas=True, beta_fast=8.0),
    "baichuan": Architecture(pairing="adjacent", alibi_layers=40),
    "smollm3": Architecture(pairing="adjacent", no_rope="every_4th"),
    "llama4": Architecture(
        pairing="adjacent", period=4, no_rope="every_4th", chunk=8192,
        query_temperature=(0.1, 8192, 1),
    ),
    "cohere2": Architecture(pairing="adjacent", period=4, no_rope="full"),
    "cohere2moe": Architecture(
        pairing="adjacent", period=4, first=True, no_rope="full", dense_rope=True
    ),
    **dict.fromkeys(("exaone4", "exaone-moe"), _LOCAL_ROPE),
    "maple": Architecture(pairing="half", period=LISTED, no_rope="full"),
    "muse-glimmer": Architecture(pairing="adjacent", period=4, no_rope="full"),
    "smallthinker": Architecture(pairing="half", period=4, first=True, no_rope="full"),
    "afmoe": Architecture(pairing="half", period=4, no_rope="every_4th"),
    "granite_swa": Architecture(
        pairing="adjacent", period=LISTED, rope_pattern=True, **_UNSET_LOCAL
    ),
    "gemma2": Architecture(pairing="half", period=2),
    **dict.fromkeys(("gemma3", "gemma-embedding"), _GEMMA),
    "gemma3n": Architecture(pairing="half", period=5, **_UNSET_LOCAL),
    **dict.fromkeys(
        ("gemma4", "gemma4-assistant", "mimo2"),
        Architecture(pairing="half", period=LISTED, **_UNSET_LOCAL),
    ),
    "step35": Architecture(pairing="half", period=LISTED, halved_full=True, **_UNSET_LOCAL),
    "modern-bert": Architecture(
        pairing="half", period=3, first=True, symmetric=True, **_UNSET_LOCAL
    ),
    "gpt-oss": Architecture(pairing="half", period=2),
    "olmo2": Architecture(pairing="half", period=4, local_scaled=False),
    "mellum": Architecture(pairing="half", period=4, local_scaled=False),
    "laguna": Architecture(pairing="half", period=4, first=True, local_scaled=False),
    "plamo3": Architecture(pairing="half", period=8, **_UNSET_LOCAL),
    "spark2_5": Architecture(pairing="half", period=LISTED),
    "minimax-01": Architecture(pairing="half", linear_period=8),
    "qwen3next": Architecture(pairing="half", linear_period=4),
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen4exp"), _LINEAR_4),
    **dict.fromkeys(
        ("qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen3tts", "paddleocr", "hunyuan_vl"), _AXES
    ),
}  # fmt: skip
"""Every architecture that can be read, by ``general.architecture``."""

NOT_DESCRIBED: dict[str, str] = {
    "deepseek4": "two ropes, told apart by attention.compress_ratios: the trailing lanes turn by "
    "rope.freq_base, unstretched, or by attention.compress_rope_freq_base",
}
"""Architectures with a rope that this reader does not describe, and what they have."""

WITHOUT_ROPE: dict[str, str] = {
    **dict.fromkeys(("bloom", "mpt", "refact", "jina-bert-v2", "jais"), "ALiBi"),
    **dict.fromkeys(("gpt2", "bert", "starcoder"), "learned absolute positions"),
    **dict.fromkeys(("t5", "t5encoder"), "relative position buckets"),
    **dict.fromkeys(
        ("mamba", "mamba2", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"),
        "no position encoding (recurrent)",
    ),
    **dict.fromkeys(
        ("jamba", "nemotron_h", "nemotron_h_moe", "kimi-linear", "kimi-k3", "glm5-next"),
        "no position encoding",
    ),
    **dict.fromkeys(
        ("gptj", "clip", "wavtokenizer-dec"), "no rope that llama.cpp applies in its graph"
    ),
}
"""Architectures that are known to have no rope, and what they have."""
