"""What llama.cpp does with a GGUF file where the file does not say, by architecture.

Pairings are those of ``llama_model_rope_type``, periods and defaults those of
``load_hparams`` of llama.cpp (2026). Architectures that are not here are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..rope import Pairing

RUNTIME = "llama.cpp"
"""The runtime whose defaults these are."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One architecture of GGUF files.

    Attributes:
        pairing: how lanes are paired in its files.
        period: the last of so many layers has no window, where the file gives a window; 0
            if the architecture's code reads no window.
        local_theta: base of windowed layers without ``rope.freq_base_swa``; None for that of
            the others.
        local_scaled: whether scaling applies to windowed layers.
        no_rope: ``full`` full layers of a model with a window have no rope, ``every_4th``
            layers 3, 7, 11 … have none.
        chunk: length of attention chunks, which stand in place of a window.
        latent: latent attention: rotated lanes come last in a head.
        betas: whether yarn_beta_fast and yarn_beta_slow are read.
        log_multiplier: what ``yarn_log_multiplier`` is divided by to give ``mscale_all_dim``;
            0 if it is not read.
        linear_period: all but the last of so many layers are linear attention.
        axes: positions have several axes, equal for text.
        query_temperature: default (beta, length, offset) on layers without rope.
    """

    pairing: Pairing
    period: int = 0
    local_theta: float | None = None
    local_scaled: bool = True
    no_rope: Literal["never", "full", "every_4th"] = "never"
    chunk: int = 0
    latent: bool = False
    betas: bool = False
    log_multiplier: float = 0.0
    linear_period: int = 0
    axes: bool = False
    query_temperature: tuple[float, int, int] | None = None


_ADJACENT = Architecture(pairing="adjacent")
_HALF = Architecture(pairing="half")

ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(
        (
            "llama", "llada", "deci", "internlm2", "minicpm", "xverse",
            "command-r", "olmo", "arctic", "deepseek", "chatglm", "granite", "granitemoe",
            "granitehybrid", "chameleon", "bailingmoe", "arcee", "ernie4_5", "ernie4_5-moe",
            "llama-embed", "glm4",
        ),
        _ADJACENT,
    ),
    **dict.fromkeys(
        (
            "falcon", "falcon-h1", "dbrx", "stablelm", "bitnet", "qwen", "qwen2", "dream",
            "qwen2moe", "qwen3", "qwen3moe", "llada-moe", "olmoe", "phi2", "phi3", "phimoe",
            "plamo", "gemma", "starcoder2", "openelm", "gptneox", "codeshell", "orion",
            "nemotron", "exaone", "bailingmoe2", "dots1", "hunyuan-moe", "hunyuan-dense",
            "jais2", "lfm2", "lfm2moe", "seed_oss", "grovemoe", "apertus", "minimax-m2",
            "pangu-embedded", "glm4moe",
        ),
        _HALF,
    ),
    "deepseek2": Architecture(pairing="adjacent", latent=True, log_multiplier=0.1),
    "minicpm3": Architecture(pairing="half", latent=True),
    "mistral3": Architecture(pairing="adjacent", betas=True, log_multiplier=1.0),
    "smollm3": Architecture(pairing="adjacent", no_rope="every_4th"),
    "llama4": Architecture(
        pairing="adjacent", period=4, no_rope="every_4th", chunk=8192,
        query_temperature=(0.1, 8192, 1),
    ),
    "cohere2": Architecture(pairing="adjacent", period=4, no_rope="full"),
    "exaone4": Architecture(pairing="half", period=4, no_rope="full"),
    "gemma2": Architecture(pairing="half", period=2),
    "gemma3": Architecture(pairing="half", period=6, local_theta=10000.0, local_scaled=False),
    "gemma-embedding": Architecture(
        pairing="half", period=6, local_theta=10000.0, local_scaled=False
    ),
    "gemma3n": Architecture(pairing="half", period=5, local_theta=10000.0, local_scaled=False),
    "gpt-oss": Architecture(pairing="half", period=2),
    "olmo2": Architecture(pairing="half", period=4, local_scaled=False),
    "qwen3next": Architecture(pairing="half", linear_period=4),
    **dict.fromkeys(
        ("qwen2vl", "qwen3vl", "qwen3vlmoe"), Architecture(pairing="half", axes=True)
    ),
}  # fmt: skip
"""Every architecture that can be read, by ``general.architecture``."""

WITHOUT_ROPE: dict[str, str] = {
    **dict.fromkeys(("bloom", "mpt", "refact", "jina-bert-v2", "jais"), "ALiBi"),
    **dict.fromkeys(("gpt2",), "learned absolute positions"),
    **dict.fromkeys(("t5", "t5encoder"), "relative position buckets"),
    **dict.fromkeys(
        ("mamba", "mamba2", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"),
        "no position encoding (recurrent)",
    ),
    **dict.fromkeys(("jamba", "nemotron_h"), "no position encoding"),
}
"""Architectures that are known to have no rope, and what they have."""
