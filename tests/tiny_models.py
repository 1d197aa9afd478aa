"""Small random models of every family of transformers whose text runs on the CPU in a moment."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from rotary_classes import Built, built_classes

VOCABULARY = 61
_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "rotary_dim": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    # Fewer than there are tokens, so that an indexer's choice matters.
    "index_topk": 4,
    "kv_lora_rank": 12,
    "q_lora_rank": 14,
    "ffn_hidden_size": 32,
}
"""Set where the family's default is a value."""
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_TWO_KINDS = ["linear_attention", "full_attention"]
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "layer_types": _TWO_KINDS}
_ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
}
_WIDE = {"hidden_size": 512}
_TOWER = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}

# What a family needs besides.
_FURTHER: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {
        "layer_group_size": 2,
        "num_expert_group": 1,
        "head_dim": 16,
        "num_experts": 8,
        "n_routed_experts": 8,
    },
    "bamba": {
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "attn_layer_indices": [1],
    },
    "granitemoehybrid": _MAMBA,
    "chameleon": {"vocabulary_map": {"<image>": 5}},
    "dbrx": {
        "attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 2,
    },
    "deepseek_ocr2_text": {
        **_ROUTED,
        "mlp_layer_types": ["dense", "sparse"],
        "num_key_value_heads": 4,
    },
    "deepseek_v2": {**_ROUTED, "topk_method": "greedy"},
    "diffusion_gemma_text": {
        "num_experts": 4,
        "top_k_experts": 2,
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "sliding_attention"],
        "per_layer_config": None,
    },
    "dory": {
        "n_input_layers": 1,
        "n_recurrent_layers": 1,
        "n_output_layers": 1,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    },
    "dots1": _ROUTED,
    "ernie4_5_vl_moe_text": {
        "moe_intermediate_size": [32, 32],
        "moe_num_experts": 4,
        "moe_num_shared_experts": 1,
        "moe_k": 2,
        "head_dim": 128,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": 1,
        "mlp_layer_types": ["dense", "sparse"],
    },
    "esm": {"vocab_size": VOCABULARY, "mask_token_id": 4, "token_dropout": False},
    "esmc": {"num_key_value_heads": 4, "head_dim": 16},
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention"],
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 4,
        "activation_sparsity_pattern": [0.0, 0.0],
    },
    "gemma4_text": {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8},
    "glm4v_text": _WIDE,
    "glm_image_text": _WIDE,
    "qwen2_vl_text": _WIDE,
    "qwen2_5_vl_text": _WIDE,
    "qwen2_5_omni_text": _WIDE,
    "qwen2_5_omni_talker": {"embedding_size": 64, "head_dim": 128},
    "pocket_tts": {"flow_head_config": {"condition_dim": 64}},
    "helium": {"head_dim": 16},
    "hrm_text": {"num_layers_per_stack": 2, "num_hidden_layers": 16},
    "kyutai_speech_to_text": {
        "pad_token_id": 3,
        "audio_pad_token_id": 5,
        "audio_bos_token_id": 6,
        "codebook_vocab_size": VOCABULARY,
        "num_codebooks": 4,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {
        "expert_ffn_hidden_size": 32,
        "zero_expert_num": 2,
        "moe_topk": 2,
    },
    "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "nemotron3_5_transcribe_asr_audio": {"num_key_value_heads": 4},
    "nemotron3_diarization_audio": {"num_key_value_heads": 4},
    "neomme": {"layer_types": ["sliding_attention", "full_attention"]},
    "phi4_multimodal": {
        "vision_config": {**_TOWER, "num_hidden_layers": 1, "image_size": 28, "crop_size": 28},
        "audio_config": {
            **_TOWER,
            "num_blocks": 1,
            "ext_pw_out_channel": 32,
            "nemo_conv_channels": 8,
        },
    },
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 32},
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "lru_width": 64,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "t5gemma2_text": {"dropout_rate": 0.0},
    "unlimited_ocr_text": {"num_key_value_heads": 4},
}
# Loops over layers make of a rounding what no bound of a few layers covers, if scales and gates
# are far from what they are at first: these are only varied.
_KEEPS_VECTORS = ("dory",)


@functools.cache
def families() -> dict[str, Built]:
    """Model type → its config and folder, for every rotary class of transformers."""
    out: dict[str, Built] = {}
    for built in built_classes():
        out.setdefault(str(built.values(built.config())["model_type"]), built)
    return out


def _cut(values: dict[str, Any]) -> dict[str, Any]:
    """Make a default config small, with a layer of every kind."""
    out = dict(values)
    layers = values.get("num_hidden_layers")
    for key, small in _SMALL.items():
        if out.get(key) is not None:
            out[key] = small
    for key, token in _TOKENS.items():
        if key in out:
            out[key] = token
    if "kv_lora_rank" in out and out.get("num_key_value_heads"):
        out["num_key_value_heads"] = 4
    kinds = list(values.get("layer_types") or [])
    chosen = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    if len(chosen) < 2:
        chosen = [0, 1]
    per_layer = values.get("per_layer_config")
    if per_layer:
        count = max(2, min(map(int, per_layer)) + 1)
        chosen = list(range(count))
        out["per_layer_config"] = {k: v for k, v in per_layer.items() if int(k) < count}
    if layers is not None:
        out["num_hidden_layers"] = len(chosen)
        for key, value in values.items():
            if isinstance(value, list) and len(value) == layers:
                out[key] = [value[i] for i in chosen]
    return out


def _classes(built: Built) -> list[Any]:
    """Classes of the folder that take this config, those with a language head first."""
    from transformers import PreTrainedModel

    module = built.modeling
    found = [
        cls
        for name, cls in vars(module).items()
        if inspect.isclass(cls)
        and issubclass(cls, PreTrainedModel)
        and cls.__module__ == module.__name__
        and not name.endswith("PreTrainedModel")
        and getattr(cls, "config_class", None) is built.config_class
    ]
    order = ("ForCausalLM", "ForMaskedLM", "Model")

    def rank(cls: Any) -> int:
        return next((i for i, word in enumerate(order) if cls.__name__.endswith(word)), len(order))

    return sorted(found, key=rank)


def build(family: str) -> Any:
    """A random model of a family, in float64 where its code keeps that."""
    built = families()[family]
    values = {**_cut(built.config().to_dict()), **_FURTHER.get(family, {})}
    for key in ("architectures", "transformers_version", "model_type", "dtype", "_name_or_path"):
        values.pop(key, None)
    config = built.config_class(**values)
    settle(config)
    torch.manual_seed(0)
    model = _classes(built)[0](config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            values_ = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                parameter.copy_(values_ * parameter.shape[-1] ** -0.5)
            elif family in _KEEPS_VECTORS:
                parameter.mul_(1 + 0.3 * values_)
            else:  # norms and biases of their own, not all alike
                parameter.copy_(0.3 * values_ + 0.5)
    return model.double().eval()


def settle(config: Any) -> None:
    """Choose plain code of the parts that have several."""
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"


def load(model: Any, folder: Any) -> Any:
    """Load a model of the same class."""
    out = type(model).from_pretrained(folder, attn_implementation="eager").double().eval()
    settle(out.config)
    return out


_IDS = torch.arange(30).reshape(2, 15) * 7 % (VOCABULARY - 4) + 3


def _inputs(hidden: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).double()

    embeds = numbers(2, 15, hidden)
    yield {"input_ids": _IDS}
    yield {"inputs_embeds": embeds}
    yield {"hidden_states": embeds}
    for books in (4, 8, 32):
        yield {"input_ids": _IDS[..., None].expand(2, 15, books)}
    yield {"inputs_embeds": embeds, "attention_mask": torch.ones(2, 15, dtype=torch.long)}
    for bands in (80, 128, 64):
        sound = numbers(2, 64, bands)
        yield {"input_features": sound}
        yield {"input_features": sound.transpose(1, 2)}


def inputs_of(model: Any) -> dict[str, Any]:
    """The first of some inputs, of tokens, hidden states or sound, that the model takes."""
    names = set(inspect.signature(model.forward).parameters)
    refused = ["no forward arguments that are known here"]
    for given in _inputs(int(getattr(model.config, "hidden_size", 64))):
        if set(given) <= names:
            try:
                outputs(model, given)
            except Exception as error:  # whatever a model raises for another's input
                refused.append(f"{list(given)}: {error}")
                continue
            return given
    raise AssertionError("; ".join(refused))


def outputs(model: Any, given: dict[str, Any]) -> torch.Tensor:
    """Logits, or the last hidden states of a model without a head."""
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = model(**given)
    logits = getattr(out, "logits", None)
    found = logits if logits is not None else out if isinstance(out, torch.Tensor) else out[0]
    assert isinstance(found, torch.Tensor)
    assert bool(torch.isfinite(found).all())
    return found
