"""Loading a causal language model and its tokenizer through transformers, from local files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError, MissingExtraError
from ..models import ModelPositions
from ..models.pairing_note import NOTE
from ..models.read import read

Dtype = Literal["auto", "float32", "bfloat16"]


@dataclass
class LoadedModel:
    """A model ready to be measured.

    Attributes:
        model: the transformers model, in evaluation mode on the CPU.
        tokenizer: its tokenizer.
        positions: what its file says its positions are.
        dtype: ``float32`` or ``bfloat16``, the dtype of the weights.
    """

    model: Any
    tokenizer: Any
    positions: ModelPositions
    dtype: str


def builtin_model() -> Path:
    """Return the folder of the byte model that the package carries."""
    return Path(__file__).parent.parent / "data" / "byte_model"


def choose_dtype(wanted: Dtype) -> str:
    """Resolve ``auto``: bfloat16 where the processor multiplies it natively, else float32.

    Raises:
        InputError: a dtype that measuring does not offer.
    """
    import torch

    if wanted not in ("auto", "float32", "bfloat16"):
        raise InputError(
            "--dtype",
            found=repr(wanted),
            expected="auto, float32 or bfloat16",
            fix="use auto",
        )
    if wanted != "auto":
        return wanted
    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    native = any(getattr(torch.cpu, probe, lambda: False)() for probe in probes)
    return "bfloat16" if native else "float32"


def load(
    path: str | Path, *, dtype: Dtype = "auto", positions: ModelPositions | None = None
) -> LoadedModel:
    """Load a model folder or a GGUF file with its tokenizer; nothing is downloaded.

    Args:
        path: the folder or file.
        dtype: of the weights.
        positions: its position plan, where it was read already.

    Raises:
        InputError: the path holds no model that transformers loads as a causal language
            model, or no tokenizer.
        MissingExtraError: torch, transformers or accelerate is not installed.
    """
    positions = positions or read(path)
    paired = positions.sources.get("pairing")
    if paired is not None and paired.source.startswith(NOTE):
        raise InputError(
            str(path),
            found=f"weights that {NOTE} says are for {paired.value} lanes",
            expected="weights for the lanes that transformers' code rotates: it reads no such file",
            fix="convert them back with ropewalk convert MODEL --pairing",
        )
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError(
            error.name or "transformers", extra="transformers", needed_for="measuring a model"
        ) from None
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    chosen = choose_dtype(dtype)
    file = Path(positions.path)
    gguf = {"gguf_file": file.name} if positions.format == "gguf" else {}
    folder = file.parent if file.is_file() else file
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    local = {"local_files_only": True, **gguf}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, chosen), **local
        )
    except (OSError, ValueError, ImportError, KeyError) as error:
        reason = str(error).strip().splitlines()
        raise InputError(
            str(path),
            found=f"a model that transformers does not load ({reason[0] if reason else error!r})",
            expected="a causal language model with a tokenizer",
            fix="pass a folder with config.json, safetensors and tokenizer, or a GGUF file",
        ) from None
    model.eval()
    return LoadedModel(model, tokenizer, positions, chosen)
