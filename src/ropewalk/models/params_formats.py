"""The ``params.json`` formats: Meta's and those made of it, Mistral's, DeepSeek's, gpt-oss's.

Meta's words are those of llama-models (``ModelArgs``), Mistral's those that vLLM 0.33 reads
(``_remap_mistral_yarn_args``), DeepSeek's those of the ``inference`` folder of DeepSeek-V3.
"""

from __future__ import annotations

from ..errors import InputError
from ..scaling import Linear, Llama3, Plain, YaRN
from ..scaling.yarn import temperature
from .flat_file import FlatFile
from .flat_format import Around, FlatFormat, Scaled
from .flat_layers import FlatLayers
from .plan import QueryTemperature, Sourced

_SIZES: dict[str, tuple[str, ...]] = {
    "layers": ("n_layers", "num_layers"),
    "hidden": ("dim", "embed_dim"),
    "heads": ("n_heads", "num_heads"),
    "kv_heads": ("n_kv_heads", "n_local_heads", "num_kv_heads"),
    "head_dim": ("head_dim",),
}
# Constants of Meta's apply_scaling: the length is not in its files.
_META_ORIGINAL, _META_FACTOR = 8192, 8.0


def _meta_scaling(file: FlatFile, around: Around) -> Scaled:
    block = file.given("scaling_block")
    if block is not None and not isinstance(block.value, dict):
        raise InputError(
            f"{file.label}: {block.source.split(': ', 1)[-1]}",
            found=repr(block.value),
            expected="an object with factor and bounds",
            fix="correct the value",
        )
    implied = str(file.values.get("model_type", "")).replace(".", "_") in ("llama3_1", "llama3_3")
    tempered = _llama4_temperature(file)
    if not (block is not None or file.flag("scaled") or implied):
        scaling = Plain(original_length=around.stated)
        return Scaled(scaling, query_temperature=tempered, temperature_without_rope=True)
    if implied and block is None:
        file.note("llama3 scaling is implied by model_type, not said by a key")
    factor = file.number_or("factor", _META_FACTOR)
    if file.number("factor") is None:
        file.note(
            f"no factor in the file; assumed {_META_FACTOR:g}, the constant of Meta's code "
            "(Llama 3.2's released config of transformers says 32)"
        )
    low, high = file.number_or("low_freq", 1.0), file.number_or("high_freq", 4.0)
    original = file.count("scaling_original") or Sourced(_META_ORIGINAL, file.default_origin)
    file.sources["original_length"] = original
    made = Llama3(
        factor=factor, low_freq_factor=low, high_freq_factor=high, original_length=original.value
    )
    if file.values.get("model_type") == "arcee":
        file.note(
            "use_scaled_rope means llama3 scaling here, but the arcee models of transformers "
            "have YaRN: the file cannot tell which was trained"
        )
    keys = file.keys_of("scaled") if block is None else file.keys_of("scaling_block")
    return Scaled(made, 1.0, tempered, True, file.origin(keys[0]))


def _llama4_temperature(file: FlatFile) -> QueryTemperature | None:
    if file.count("without_rope_every", zero=True) is None or not file.flag("tempered"):
        return None
    beta, floor = file.number_or("temper_beta", 0.1), file.number_or("temper_floor", 8192)
    return QueryTemperature(float(beta), int(floor), offset=1)


def _note_base(file: FlatFile) -> float:
    if file.flag("scaled"):
        return 500000.0
    return 10000.0


_META: dict[str, tuple[str, ...]] = {
    **_SIZES,
    "theta": ("rope_theta", "rope_base"),
    "stated_length": ("max_seq_len", "block_size", "max_position_embeddings"),
    "scaled": ("use_scaled_rope",),
    "scaling_block": ("rope_scaling",),
    "factor": ("rope_scaling_factor", "rope_scaling.factor"),
    "low_freq": ("rope_scaling.low_freq_factor",),
    "high_freq": ("rope_high_freq_factor", "rope_scaling.high_freq_factor"),
    "scaling_original": ("rope_scaling.original_max_position_embeddings",),
    "without_rope_every": ("nope_layer_interval", "no_rope_layer_interval"),
    "window": ("attention_chunk_size",),
    "tempered": ("attn_temperature_tuning",),
    "temper_beta": ("attn_scale",),
    "temper_floor": ("floor_scale",),
}
META = FlatFormat(
    name="meta",
    program="Meta's llama-models",
    spellings=_META,
    pairing="adjacent",
    theta_rule=_note_base,
    scaling=_meta_scaling,
    layers=FlatLayers(window_kind="chunked_attention", windowed_with_rope=True),
)

EXECUTORCH = FlatFormat(
    name="executorch",
    program="ExecuTorch's llama example",
    spellings={
        **_META,
        "half": ("use_hf_rope",),
        "partial": ("partial_rotary_factor",),
        "local_theta": ("local_rope_theta", "rope_local_base_freq"),
        "window": ("sliding_window",),
        "layer_types": ("layer_types",),
        "model": ("model_architecture",),
    },
    pairing="adjacent",
    scaling=_meta_scaling,
)


# torchtune's form holds the sizes under ``text``.
TORCHCHAT = FlatFormat(
    name="torchchat",
    program="torchchat",
    spellings={
        concept: (*keys, *(f"text.{key}" for key in keys)) for concept, keys in _META.items()
    },
    pairing="adjacent",
    scaling=_meta_scaling,
)


def _mistral_scaling(file: FlatFile, around: Around) -> Scaled:
    beta = file.number("tempered")
    length = file.count("temper_length")
    tempered = None
    if beta is not None and beta.value:
        if length is None:
            raise InputError(
                f"{file.label}: llama_4_scaling.original_max_position_embeddings",
                found="nothing",
                expected="a length beside llama_4_scaling.beta",
                fix="add it",
            )
        file.sources["query_temperature"] = beta
        tempered = QueryTemperature(float(beta.value), length.value)
    factor = file.number("factor")
    if factor is None:
        if file.given("yarn") is not None:
            raise InputError(
                f"{file.label}: yarn.factor",
                found="nothing",
                expected="the factor of yarn",
                fix="take the value from the model's own file",
            )
        return Scaled(Plain(original_length=around.stated), query_temperature=tempered)
    original = file.count("scaling_original")
    if original is None:
        raise InputError(
            f"{file.label}: yarn.original_max_position_embeddings",
            found="nothing",
            expected="the trained length, which yarn needs",
            fix="take the value from the model's own file",
        )
    file.sources["original_length"] = original
    applied = file.flag("amplified", default=True)
    if applied and around.latent:
        file.note(
            "with latent attention engines also multiply the softmax by the square of YaRN's "
            "temperature; the file does not say so, and it is not described here"
        )
    made = YaRN(
        factor=float(factor.value),
        original_length=original.value,
        beta_fast=file.number_or("beta_fast", 32.0),
        beta_slow=file.number_or("beta_slow", 1.0),
        attention_factor=None if applied else 1.0,
    )
    return Scaled(made, 1.0, tempered, origin=file.origin("yarn"))


def _mistral_window(file: FlatFile) -> int | None:
    found = file.given("window")
    if found is None:
        return None
    if isinstance(found.value, list):
        raise InputError(
            f"{file.label}: {found.source.split(': ', 1)[-1]}",
            found=repr(found.value),
            expected="one window for all layers",
            fix="read the model's config.json instead",
        )
    count = file.count("window", zero=True)
    if count is None or count.value == 0:
        return None
    file.sources["window"] = count
    return int(count.value)


MISTRAL = FlatFormat(
    name="mistral",
    program="mistral-inference",
    spellings={
        **_SIZES,
        "theta": ("rope_theta",),
        "stated_length": ("max_position_embeddings", "max_seq_len", "model_max_length"),
        "rope_lanes": ("qk_rope_head_dim",),
        "plain_lanes": ("qk_nope_head_dim",),
        "value_dim": ("v_head_dim",),
        "window": ("sliding_window", "_sliding_window"),
        "yarn": ("yarn",),
        "factor": ("yarn.factor",),
        "scaling_original": ("yarn.original_max_position_embeddings",),
        "beta_fast": ("yarn.beta",),
        "beta_slow": ("yarn.alpha",),
        "amplified": ("yarn.apply_scale",),
        "tempered": ("llama_4_scaling.beta",),
        "temper_length": ("llama_4_scaling.original_max_position_embeddings",),
    },
    pairing="adjacent",
    theta=1000000.0,
    scaling=_mistral_scaling,
    layers=FlatLayers(window=_mistral_window),
    ignored=("llama_4_scaling",),
    latent=True,
)


def _deepseek_scaling(file: FlatFile, _around: Around) -> Scaled:
    """YaRN wherever the length exceeds the original one; in files it is mostly a default."""
    stated = file.sources["stated_length"].value or 16384
    original = int(file.number_or("scaling_original", 4096))
    factor, slope = file.number_or("factor", 40.0), file.number_or("mscale", 1.0)
    file.sources["original_length"] = file.sources["scaling_original"]
    if stated <= original:
        return Scaled(Plain(original_length=original))
    if file.number("factor") is None:
        file.note(
            f"the file has no rope keys: YaRN with factor {factor:g} over {original} is the "
            f"default of {file.family.defaults_of} beyond {original} tokens"
        )
    made = YaRN(
        factor=factor,
        original_length=original,
        beta_fast=file.number_or("beta_fast", 32.0),
        beta_slow=file.number_or("beta_slow", 1.0),
        attention_factor=1.0,
        mscale_all_dim=slope,
    )
    return Scaled(made, temperature(factor, slope) ** 2, origin=file.sources["factor"].source)


DEEPSEEK = FlatFormat(
    name="deepseek",
    program="DeepSeek's inference code",
    spellings={
        **_SIZES,
        "theta": ("rope_theta",),
        "stated_length": ("max_seq_len",),
        "rope_lanes": ("qk_rope_head_dim",),
        "plain_lanes": ("qk_nope_head_dim",),
        "value_dim": ("v_head_dim",),
        "scaling_original": ("original_seq_len",),
        "factor": ("rope_factor",),
        "mscale": ("mscale",),
        "beta_fast": ("beta_fast",),
        "beta_slow": ("beta_slow",),
    },
    pairing="adjacent",
    scaling=_deepseek_scaling,
    latent=True,
)


def _gpt_oss_scaling(file: FlatFile, _around: Around) -> Scaled:
    factor = file.number_or("factor", 32.0)
    original = int(file.number_or("scaling_original", 4096))
    file.sources["original_length"] = file.sources["scaling_original"]
    if not 1 <= factor * original <= 2**53:
        raise InputError(
            f"{file.label}: rope_scaling_factor",
            found=f"{factor:g}, times {original:g} tokens",
            expected="a length",
            fix="correct one of the two",
        )
    file.sources["stated_length"] = Sourced(
        int(factor * original), "derived: initial_context_length x rope_scaling_factor"
    )
    if factor == 1:
        return Scaled(Plain(original_length=original))
    made = YaRN(
        factor=factor,
        original_length=original,
        beta_fast=file.number_or("beta_fast", 32.0),
        beta_slow=file.number_or("beta_slow", 1.0),
        truncate=False,
    )
    return Scaled(made, origin=file.sources["factor"].source)


GPT_OSS = FlatFormat(
    name="gpt-oss",
    program="gpt-oss's torch code",
    spellings={
        "layers": ("num_hidden_layers",),
        "hidden": ("hidden_size",),
        "heads": ("num_attention_heads",),
        "kv_heads": ("num_key_value_heads",),
        "head_dim": ("head_dim",),
        "theta": ("rope_theta",),
        "window": ("sliding_window",),
        "factor": ("rope_scaling_factor",),
        "scaling_original": ("initial_context_length",),
        "beta_fast": ("rope_ntk_beta",),
        "beta_slow": ("rope_ntk_alpha",),
    },
    theta=150000.0,
    scaling=_gpt_oss_scaling,
    layers=FlatLayers(full_every=2),
)


def _litgpt_scaling(file: FlatFile, around: Around) -> Scaled:
    condensed = file.number("condensed")
    if condensed is not None and condensed.value != 1:
        return Scaled(
            Linear(factor=float(condensed.value)),
            origin=condensed.source,
        )
    factor = file.number("factor")
    if factor is None:
        return Scaled(Plain(original_length=around.stated))
    low, high = file.number("low_freq"), file.number("high_freq")
    original = file.count("scaling_original")
    origin = file.origin("rope_adjustments")
    if low is None and high is None:
        return Scaled(Linear(factor=float(factor.value)), origin=origin)
    if low is None or high is None or original is None:
        raise InputError(
            f"{file.label}: rope_adjustments",
            found="some of factor, low_freq_factor, high_freq_factor, original_max_seq_len",
            expected="factor alone (linear), or all four (llama3)",
            fix="take the values from the model's own file",
        )
    file.sources["original_length"] = original
    made = Llama3(
        factor=float(factor.value),
        low_freq_factor=float(low.value),
        high_freq_factor=float(high.value),
        original_length=original.value,
    )
    return Scaled(made, origin=origin)


LITGPT = FlatFormat(
    name="litgpt",
    program="litgpt",
    spellings={
        "layers": ("n_layer",),
        "hidden": ("n_embd",),
        "heads": ("n_head",),
        "kv_heads": ("n_query_groups",),
        "head_dim": ("head_size",),
        "theta": ("rope_base",),
        "local_theta": ("rope_local_base_freq",),
        "layer_types": ("rope_indices", "sliding_window_indices"),
        "partial": ("rotary_percentage",),
        "stated_length": ("block_size",),
        "window": ("sliding_window_size",),
        "condensed": ("rope_condense_ratio",),
        "factor": ("rope_adjustments.factor",),
        "low_freq": ("rope_adjustments.low_freq_factor",),
        "high_freq": ("rope_adjustments.high_freq_factor",),
        "scaling_original": ("rope_adjustments.original_max_seq_len",),
        "model": ("name",),
    },
    partial=0.25,
    scaling=_litgpt_scaling,
)
