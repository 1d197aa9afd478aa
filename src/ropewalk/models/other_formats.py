"""Formats of single programs: MaxText, nanotron, OLMo, TurboMind, Keras, contrastors."""

from __future__ import annotations

from ..errors import InputError
from ..scaling import Linear, Llama3, Plain, YaRN
from ..scaling.yarn import temperature
from .flat_axes import EVERY_THIRD
from .flat_file import FlatFile
from .flat_format import Around, FlatFormat, Scaled
from .flat_layers import FlatLayers
from .plan import QueryTemperature, Sourced


def _maxtext_scaling(file: FlatFile, around: Around) -> Scaled:
    kind = file.given("kind")
    tempered = None
    if file.flag("tempered") and file.count("without_rope_every", zero=True) is not None:
        tempered = QueryTemperature(0.1, 8192, offset=1)
    if kind is None or kind.value == "default":
        pressed = file.number("pressed")
        if pressed is not None and pressed.value != 1:
            return Scaled(Linear(factor=float(pressed.value)), origin=pressed.source)
        if kind is None:
            file.note(
                "no rope_type: MaxText turns llama3 scaling on by the name of the model "
                "(llama3.1…), which the file cannot tell"
            )
        return Scaled(Plain(original_length=around.stated))
    if kind.value == "llama3.1":
        if not file.flag("use_scale", default=True):
            file.note("rope_use_scale is false: rope_type llama3.1 names the layout only")
            return Scaled(Plain(original_length=around.stated), 1.0, tempered, tempered is not None)
        file.note("factor 8 and length 8192 are constants of MaxText's code for llama3.1")
        llama3 = Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192)
        file.sources["original_length"] = Sourced(8192, file.default_origin)
        return Scaled(llama3, 1.0, tempered, tempered is not None, kind.source)
    if kind.value == "yarn":
        return _maxtext_yarn(file, around, kind)
    raise InputError(
        f"{file.label}: {kind.source.split(': ', 1)[-1]}",
        found=f"scaling {kind.value!r}",
        expected="default, llama3.1 or yarn",
        fix="this scaling is not known here",
    )


def _maxtext_yarn(file: FlatFile, around: Around, kind: Sourced) -> Scaled:
    factor = file.number_or("factor", 40.0)
    original = int(file.number_or("scaling_original", 4096))
    file.sources["original_length"] = file.sources["scaling_original"]
    slope = file.number_or("mscale", 1.0)
    amplified = file.flag("amplified", default=False)
    yarn = YaRN(
        factor=factor,
        original_length=original,
        beta_fast=file.number_or("beta_fast", 32.0),
        beta_slow=file.number_or("beta_slow", 1.0),
        attention_factor=None if amplified else 1.0,
        mscale_all_dim=slope if around.latent else None,
        truncate=None if file.flag("rounded", default=True) else False,
    )
    softmax = temperature(factor, slope) ** 2 if around.latent else 1.0
    return Scaled(yarn, softmax, origin=kind.source)


def _maxtext_refuse(file: FlatFile) -> None:
    if file.count("local_window", zero=True) is not None:
        file.note("sliding_window_size is given, but not which layers have it: that is in the code")
    lowest = file.values.get("rope_min_timescale")
    if lowest not in (None, 1):
        raise InputError(
            file.where("rope_min_timescale"),
            found=repr(lowest),
            expected="1, because the frequencies of another start are not described here",
            fix="this rope is not known here",
        )


MAXTEXT = FlatFormat(
    name="maxtext",
    latent_pairing="adjacent",
    program="MaxText",
    spellings={
        "layers": ("base_num_decoder_layers",),
        "hidden": ("base_emb_dim",),
        "heads": ("base_num_query_heads",),
        "kv_heads": ("base_num_kv_heads",),
        "head_dim": ("head_dim",),
        "theta": ("rope_max_timescale",),
        "local_theta": ("local_rope_max_timescale",),
        "stated_length": ("max_position_embeddings",),
        "partial": ("partial_rotary_factor",),
        "rope_lanes": ("qk_rope_head_dim",),
        "plain_lanes": ("qk_nope_head_dim",),
        "value_dim": ("v_head_dim",),
        "kind": ("rope_type",),
        "use_scale": ("rope_use_scale",),
        "pressed": ("rope_linear_scaling_factor",),
        "factor": ("rope_factor",),
        "scaling_original": ("original_max_position_embeddings",),
        "beta_fast": ("beta_fast",),
        "beta_slow": ("beta_slow",),
        "mscale": ("mscale",),
        "amplified": ("rope_attention_scaling",),
        "rounded": ("rope_truncate",),
        "interleaved": ("rope_interleave",),
        "without_rope_every": ("nope_layer_interval",),
        "tempered": ("temperature_tuning",),
        "window": ("chunk_attn_window_size",),
        "local_window": ("sliding_window_size",),
        "axes_switch": ("use_mrope",),
        "sections": ("mrope_section",),
    },
    scaling=_maxtext_scaling,
    refuse=_maxtext_refuse,
    axes=EVERY_THIRD,
    layers=FlatLayers(window_kind="chunked_attention", windowed_with_rope=True),
    latent=True,
)


def _nanotron_scaling(file: FlatFile, around: Around) -> Scaled:
    block = file.values.get("rope_scaling")
    if not isinstance(block, dict):
        return Scaled(Plain(original_length=around.stated))
    kind = block.get("rope_type", block.get("type"))
    if kind != "llama3":
        raise InputError(
            file.where("rope_scaling.rope_type"),
            found=repr(kind),
            expected="llama3, the scaling that is known in this format",
            fix="read the model's config.json instead",
        )
    values = {}
    for name in ("factor", "low_freq", "high_freq", "scaling_original"):
        found = file.number(name)
        if found is None:
            raise InputError(
                file.where(file.keys_of(name)[0]),
                found="nothing",
                expected="a value, because llama3 scaling has no default for it",
                fix="add it",
            )
        values[name] = found.value
    file.sources["original_length"] = file.number("scaling_original") or Sourced(None, "unknown")
    made = Llama3(
        factor=float(values["factor"]),
        low_freq_factor=float(values["low_freq"]),
        high_freq_factor=float(values["high_freq"]),
        original_length=values["scaling_original"],
    )
    return Scaled(made, origin=file.origin("rope_scaling"))


NANOTRON = FlatFormat(
    name="nanotron",
    program="nanotron",
    spellings={
        "layers": ("num_hidden_layers",),
        "hidden": ("hidden_size",),
        "heads": ("num_attention_heads",),
        "kv_heads": ("num_key_value_heads",),
        "theta": ("rope_theta",),
        "stated_length": ("max_position_embeddings",),
        "interleaved": ("rope_interleaved",),
        "without_rope_every": ("no_rope_layer",),
        "window": ("sliding_window_size",),
        "block": ("rope_scaling",),
        "factor": ("rope_scaling.factor",),
        "low_freq": ("rope_scaling.low_freq_factor",),
        "high_freq": ("rope_scaling.high_freq_factor",),
        "scaling_original": ("rope_scaling.original_max_position_embeddings",),
    },
    scaling=_nanotron_scaling,
)


def _olmo_encoding(file: FlatFile) -> bool:
    if file.flag("rope"):
        return True
    kind = "ALiBi" if file.flag("alibi") else "learned absolute positions"
    inert = "" if file.given("theta") is None else "; rope_theta is inert"
    raise InputError(
        file.where("rope"),
        found=f"rope {file.values.get('rope')!r}, which means {kind}{inert}",
        expected="a model with rotary embeddings",
        fix="there is no rope in it to inspect",
    )


OLMO = FlatFormat(
    name="olmo",
    program="OLMo's own code",
    spellings={
        "layers": ("n_layers",),
        "hidden": ("d_model",),
        "heads": ("n_heads",),
        "kv_heads": ("n_kv_heads",),
        "theta": ("rope_theta",),
        "stated_length": ("max_sequence_length",),
        "rope": ("rope",),
        "alibi": ("alibi",),
    },
    encoding=_olmo_encoding,
    ignored=("rope_full_precision", "alibi_bias_max"),
)


def _turbomind_refuse(file: FlatFile) -> None:
    factor = file.number("dynamic")
    if factor is not None and factor.value != 0:
        raise InputError(
            file.where("rope_scaling_factor"),
            found=repr(factor.value),
            expected="0, because TurboMind's dynamic rule is not described here",
            fix="read the model's config.json instead",
        )


TURBOMIND = FlatFormat(
    name="turbomind",
    program="LMDeploy's TurboMind",
    spellings={
        "layers": ("num_layer",),
        "heads": ("head_num",),
        "kv_heads": ("kv_head_num",),
        "head_dim": ("size_per_head",),
        "rotary_dim": ("rotary_embedding",),
        "dynamic": ("rope_scaling_factor",),
        "theta": ("rope_theta",),
        "stated_length": ("max_position_embeddings",),
    },
    refuse=_turbomind_refuse,
    ignored=("use_logn_attn",),
)


def _keras_encoding(file: FlatFile) -> bool:
    kind = file.given("encoding")
    if kind is not None and kind.value != "rotary":
        raise InputError(
            file.where("position_embedding_type"),
            found=f"{kind.value!r} positions",
            expected="rotary",
            fix="there is no rope in it to inspect",
        )
    return True


def _note_table(file: FlatFile) -> None:
    if file.values.get("max_sequence_length") is not None:
        file.note("max_sequence_length bounds the tokenizer here; a rope has no such limit")


KERAS = FlatFormat(
    name="keras",
    program="keras-hub",
    spellings={
        "layers": ("num_layers",),
        "hidden": ("hidden_dim",),
        "heads": ("num_heads", "num_query_heads"),
        "kv_heads": ("num_key_value_heads",),
        "head_dim": ("head_dim",),
        "theta": ("max_wavelength", "rope_max_wavelength"),
        "stated_length": ("max_sequence_length",),
        "encoding": ("position_embedding_type",),
        "model": ("name",),
    },
    encoding=_keras_encoding,
    refuse=_note_table,
)

CONTRASTORS = FlatFormat(
    name="contrastors",
    program="contrastors",
    spellings={
        "layers": ("n_layer",),
        "hidden": ("n_embd",),
        "heads": ("n_head",),
        "theta": ("rotary_emb_base",),
        "partial": ("rotary_emb_fraction",),
        "stated_length": ("seq_len",),
        "interleaved": ("rotary_emb_interleaved",),
        "model": ("model_name",),
    },
)
