"""Released models by their sizes: layers, hidden size, heads, and the positions they came with.

From the released configs. Sizes that many trainings share are left out, or hold every released
model of that size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Released:
    """One released model.

    Attributes:
        name: of the model or of several that are alike.
        layers: number of layers.
        hidden: hidden size.
        heads: query heads.
        kv_heads: key heads.
        theta: the base.
        length: the stated length; 0 is not compared.
        scaling: None where it has none.
        families: model types.
        latent: whether it has latent attention.
        rotary_dim: rotated lanes; None is not compared.
        beta_fast: where YaRN's ramp begins; None is not compared.
        every: every n-th layer has no rope.
        factor: of the scaling; None is not compared.
        softmax: whether the softmax is multiplied, as ``mscale_all_dim`` says.
        loose: the sizes were trained further by others: a larger base and a shorter length say
            nothing, a smaller base does.
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
    factor: float | None = None
    softmax: bool = False
    loose: bool = False


def _loose(name: str, *sizes: Any, **rest: Any) -> Released:
    return dataclasses.replace(Released(name, *sizes, **rest), loose=True)


_LLAMA, _LLAMA4, _PHI = ("llama", "mllama"), ("llama4", "llama4_text"), ("phi3", "phi3_v")
_GPT_OSS, _KIMI = ("gpt_oss",), ("deepseek_v3", "kimi_k2")
_QWEN2, _QWEN3, _QWEN3_MOE = ("qwen2",), ("qwen3",), ("qwen3_moe",)
_QWEN2_VL = ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")
_QWEN3_VL = ("qwen3_vl", "qwen3_vl_text")
_GEMMA3, _GLM = ("gemma3", "gemma3_text"), ("glm", "glm4")

# fmt: off
RELEASED: tuple[Released, ...] = (
    Released("Llama 2 13B", 40, 5120, 40, 40, 1e4, 4096, families=_LLAMA),
    Released("Llama 13B", 40, 5120, 40, 40, 1e4, 2048, families=_LLAMA),
    Released("Code Llama 13B", 40, 5120, 40, 40, 1e6, 16384, families=_LLAMA),
    Released("Llama 2 70B", 80, 8192, 64, 8, 1e4, 4096, families=_LLAMA),
    Released("Code Llama 70B", 80, 8192, 64, 8, 1e6, 16384, families=_LLAMA),
    Released("Llama 3 70B", 80, 8192, 64, 8, 5e5, 8192, families=_LLAMA),
    Released("Llama 3.1 and 3.3 70B", 80, 8192, 64, 8, 5e5, 131072, "llama3", families=_LLAMA),
    Released("Qwen2.5 72B", 80, 8192, 64, 8, 1e6, 32768, families=_QWEN2),
    Released("Qwen2.5 72B base", 80, 8192, 64, 8, 1e6, 131072, families=_QWEN2),
    Released("Phi-3-mini-4k", 32, 3072, 32, 32, 1e4, 4096, families=_PHI),
    Released("Phi-3-mini-128k and Phi-3.5", 32, 3072, 32, 32, 1e4, 131072, "longrope", _PHI),
    Released("Phi-4-mini", 32, 3072, 24, 8, 1e4, 131072, "longrope", _PHI, rotary_dim=96),
    Released("Llama 4 Scout", 48, 5120, 40, 8, 5e5, 0, "llama3", _LLAMA4, every=4),
    Released("Llama 4 Maverick", 48, 5120, 40, 8, 5e5, 0, None, _LLAMA4, every=4),
    Released("gpt-oss-20b", 24, 2880, 64, 8, 150000.0, 131072, "yarn", _GPT_OSS),
    Released("gpt-oss-120b", 36, 2880, 64, 8, 150000.0, 131072, "yarn", _GPT_OSS),
    Released("Kimi K2", 61, 7168, 64, 64, 5e4, 131072, "yarn", _KIMI, latent=True, beta_fast=1.0),
    _loose("Llama 3 8B", 32, 4096, 32, 8, 5e5, 8192, families=("llama",)),
    _loose("Llama 3.1 8B", 32, 4096, 32, 8, 5e5, 131072, "llama3", ("llama",), factor=8.0),
    _loose("Llama 3.2 1B", 16, 2048, 32, 8, 5e5, 131072, "llama3", ("llama",), factor=32.0),
    _loose("Llama 3.2 3B", 28, 3072, 24, 8, 5e5, 131072, "llama3", ("llama",), factor=32.0),
    _loose("Llama 3.1 405B", 126, 16384, 128, 8, 5e5, 131072, "llama3", ("llama",), factor=8.0),
    _loose("Code Llama 34B", 48, 8192, 64, 8, 1e6, 16384, families=("llama",)),
    _loose("Yi 6B", 32, 4096, 32, 4, 5e6, 4096, families=("llama",)),
    _loose("Yi 34B", 60, 7168, 56, 8, 5e6, 4096, families=("llama",)),
    _loose("Mistral Nemo and Small", 40, 5120, 32, 8, 1e6, 0, None, ("mistral",), rotary_dim=128),
    _loose("Mistral 7B v0.1", 32, 4096, 32, 8, 1e4, 32768, None, ("mistral",)),
    _loose("Mistral 7B v0.3", 32, 4096, 32, 8, 1e6, 32768, None, ("mistral",)),
    _loose("Ministral 8B", 36, 4096, 32, 8, 1e8, 32768, None, ("mistral",), rotary_dim=128),
    _loose("Ministral 3 3B", 26, 3072, 32, 8, 1e6, 262144, "yarn", ("ministral3",), factor=16.0),
    _loose("Ministral 3 8B", 34, 4096, 32, 8, 1e6, 262144, "yarn", ("ministral3",), factor=16.0),
    _loose("Mixtral 8x7B", 32, 4096, 32, 8, 1e6, 32768, None, ("mixtral",)),
    _loose("Mixtral 8x22B", 56, 6144, 48, 8, 1e6, 65536, None, ("mixtral",)),
    _loose("Qwen2 and Qwen2.5 0.5B", 24, 896, 14, 2, 1e6, 32768, None, _QWEN2),
    _loose("Qwen2 and Qwen2.5 1.5B", 28, 1536, 12, 2, 1e6, 32768, None, (*_QWEN2, *_QWEN2_VL)),
    _loose("Qwen2.5-Math 1.5B", 28, 1536, 12, 2, 1e4, 4096, None, _QWEN2),
    _loose("Qwen2.5 3B", 36, 2048, 16, 2, 1e6, 32768, None, (*_QWEN2, *_QWEN2_VL)),
    _loose("Qwen2 and Qwen2.5 7B", 28, 3584, 28, 4, 1e6, 32768, None, (*_QWEN2, *_QWEN2_VL)),
    _loose("Qwen2.5-Math 7B", 28, 3584, 28, 4, 1e4, 4096, None, _QWEN2),
    _loose("Qwen2.5 14B", 48, 5120, 40, 8, 1e6, 32768, None, _QWEN2),
    _loose("Qwen2.5 32B", 64, 5120, 40, 8, 1e6, 32768, None, (*_QWEN2, *_QWEN2_VL)),
    _loose("Qwen3 0.6B", 28, 1024, 16, 8, 1e6, 40960, None, _QWEN3, rotary_dim=128),
    _loose("Qwen3 1.7B", 28, 2048, 16, 8, 1e6, 40960, None, (*_QWEN3, *_QWEN3_VL), rotary_dim=128),
    _loose("Qwen3 4B", 36, 2560, 32, 8, 1e6, 40960, None, (*_QWEN3, *_QWEN3_VL), rotary_dim=128),
    _loose("Qwen3 8B", 36, 4096, 32, 8, 1e6, 40960, None, (*_QWEN3, *_QWEN3_VL), rotary_dim=128),
    _loose("Qwen3 14B", 40, 5120, 40, 8, 1e6, 40960, None, _QWEN3, rotary_dim=128),
    _loose("Qwen3 32B", 64, 5120, 64, 8, 1e6, 40960, None, (*_QWEN3, *_QWEN3_VL), rotary_dim=128),
    _loose("Qwen3 30B-A3B", 48, 2048, 32, 4, 1e6, 40960, None, _QWEN3_MOE, rotary_dim=128),
    _loose("Qwen3 235B-A22B", 94, 4096, 64, 4, 1e6, 40960, None, _QWEN3_MOE, rotary_dim=128),
    _loose("Qwen3-Coder 480B", 62, 6144, 96, 8, 1e7, 262144, None, _QWEN3_MOE, rotary_dim=128),
    _loose("Qwen3-Next 80B", 48, 2048, 16, 2, 1e7, 262144, None, ("qwen3_next",), rotary_dim=64),
    _loose("GLM-4 9B", 40, 4096, 32, 2, 1e4, 0, None, _GLM, rotary_dim=64),
    _loose("GLM-4.5-Air", 46, 4096, 96, 8, 1e6, 131072, None, ("glm4_moe",), rotary_dim=64),
    _loose("GLM-4.5", 92, 5120, 96, 8, 1e6, 131072, None, ("glm4_moe",), rotary_dim=64),
    _loose("MiniMax M2", 62, 3072, 48, 8, 5e6, 196608, None, ("minimax_m2",), rotary_dim=64),
    _loose("Phi-3-medium-4k", 40, 5120, 40, 10, 1e4, 4096, None, _PHI),
    _loose("Phi-3-medium-128k", 40, 5120, 40, 10, 1e4, 131072, "longrope", _PHI),
    _loose("Phi-4", 40, 5120, 40, 10, 250000.0, 16384, None, _PHI),
    _loose("Phi-4-reasoning", 40, 5120, 40, 10, 5e5, 32768, None, _PHI),
    _loose("Gemma 3 1B", 26, 1152, 4, 1, 1e6, 32768, None, _GEMMA3),
    _loose("Gemma 3 4B", 34, 2560, 8, 4, 1e6, 131072, "linear", _GEMMA3, factor=8.0),
    _loose("Gemma 3 12B", 48, 3840, 16, 8, 1e6, 131072, "linear", _GEMMA3, factor=8.0),
    _loose("Gemma 3 27B", 62, 5376, 32, 16, 1e6, 131072, "linear", _GEMMA3, factor=8.0),
    _loose("Command R", 40, 8192, 64, 64, 8e6, 131072, None, ("cohere",)),
    _loose("InternLM2 and 2.5 7B", 32, 4096, 32, 8, 1e6, 32768, None, ("internlm2",)),
    _loose("Seed-OSS 36B", 64, 5120, 80, 8, 1e7, 524288, None, ("seed_oss",)),
    _loose("DeepSeek-V2-Lite", 27, 2048, 16, 16, 1e4, 163840, "yarn", ("deepseek_v2",),
           latent=True, factor=40.0, softmax=True),
    _loose("DeepSeek-V2", 60, 5120, 128, 128, 1e4, 163840, "yarn", ("deepseek_v2",),
           latent=True, factor=40.0, softmax=True),
    _loose("DeepSeek-V3 and R1", 61, 7168, 128, 128, 1e4, 163840, "yarn",
           ("deepseek_v3", "deepseek_v32"), latent=True, factor=40.0, softmax=True),
)
# fmt: on
"""Every model whose positions are compared with."""
