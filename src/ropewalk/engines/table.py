"""The table of engines. Another engine is a module with one `Engine`, and a row here."""

from __future__ import annotations

from .exllamav3 import EXLLAMAV3
from .keras_hub import KERAS_HUB
from .litgpt import LITGPT
from .llama_cpp import LLAMA_CPP
from .mlx_lm import MLX_LM
from .onnxruntime_genai import ONNXRUNTIME_GENAI
from .reading import Engine
from .sglang import SGLANG
from .torchtitan import TORCHTITAN
from .transformers import TRANSFORMERS
from .vllm import VLLM

ENGINES: tuple[Engine, ...] = (
    TRANSFORMERS,
    VLLM,
    SGLANG,
    LLAMA_CPP,
    MLX_LM,
    ONNXRUNTIME_GENAI,
    TORCHTITAN,
    LITGPT,
    KERAS_HUB,
    EXLLAMAV3,
)
"""All engines; the first is what the others are compared with for configs of transformers."""
