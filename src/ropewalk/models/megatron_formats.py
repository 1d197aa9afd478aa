"""Megatron's arguments and what grew from them: NeMo, MindSpeed, FlagScale, GPT-NeoX.

Flags are read under the names that ``argparse`` stores them by. Defaults are those of
Megatron-core (2026-08) and of GPT-NeoX.
"""

from __future__ import annotations

import ast
from typing import Any

from ..errors import InputError
from ..scaling import Linear, Llama3, LongRoPE, Plain, Scaling, YaRN
from ..scaling.yarn import temperature
from .flat_axes import IN_SECTIONS
from .flat_file import FlatFile
from .flat_format import Around, FlatFormat, Scaled
from .flat_layers import FlatLayers
from .plan import Sourced

_MOST_ENTRIES = 10_000


def _encoding(file: FlatFile) -> bool:
    """Tell whether positions are rotary, or refuse another encoding by name."""
    _check_factors(file)
    kind = file.given("encoding")
    if file.flag("old_switch") or file.flag("rotary_switch"):
        return True
    if kind is None:
        inert = [c for c in ("theta", "partial") if file.given(c) is not None]
        beside = f" beside {file.keys_of(inert[0])[0]}" if inert else ""
        raise InputError(
            f"{file.label}: {file.keys_of('encoding')[0]}",
            found=f"nothing{beside}, and {file.family.defaults_of}'s default is learned "
            "absolute positions",
            expected="rope or yarn, if the model has rotary embeddings",
            fix=f"add --{file.keys_of('encoding')[0].replace('_', '-')}",
        )
    file.sources["encoding"] = kind
    if kind.value == "none":
        file.note("no layer has a position encoding: the file says none")
        return False
    if kind.value in ("rope", "yarn", "mrope", "rotary"):
        return True
    raise InputError(
        f"{file.label}: {kind.source.split(': ', 1)[-1]}",
        found=f"{kind.value!r} positions",
        expected="rope, yarn, mrope or none",
        fix="there is no rope in it that is known here",
    )


def _check_factors(file: FlatFile) -> None:
    """Refuse two factors that differ, as in scripts put together from others."""
    rival, factor = file.number("v4_factor"), file.number("llama3_factor")
    if rival is not None and factor is not None and rival.value != factor.value:
        raise file.contradiction(
            "rope_factor", rival.value, factor.source.split(": ", 1)[-1], factor.value
        )


def _original(file: FlatFile, default: int | None) -> int:
    found = file.count("scaling_original")
    if found is None:
        if default is None:
            raise InputError(
                f"{file.label}: {file.keys_of('scaling_original')[0]}",
                found="nothing",
                expected="the trained length, which this scaling needs",
                fix="add it",
            )
        found = Sourced(default, file.default_origin)
        file.note(f"no original length in the file; assumed {default} ({found.source})")
    file.sources["original_length"] = found
    return int(found.value)


def _yarn(file: FlatFile, factor: float, original: int, around: Around, origin: str) -> Scaled:
    mscale, all_dim = file.number_or("mscale", 1.0), file.number_or("mscale_all_dim", 0.0)
    # Megatron divides the two temperatures; 0 for the second means a divisor of 1.
    exact = temperature(factor, mscale) / temperature(factor, all_dim)
    common: dict[str, Any] = {
        "factor": factor,
        "original_length": original,
        "beta_fast": file.number_or("beta_fast", 32.0),
        "beta_slow": file.number_or("beta_slow", 1.0),
        "truncate": None if file.flag("rounded", default=True) else False,
    }
    if all_dim and mscale:
        made = YaRN(**common, mscale=mscale, mscale_all_dim=all_dim)
    elif mscale == 1:
        made = YaRN(**common)
    else:
        made = YaRN(**common, attention_factor=exact)
    slope = temperature(factor, all_dim)
    softmax = slope * slope if around.latent and all_dim else 1.0
    return Scaled(made, softmax, origin=origin)


def _scaling(file: FlatFile, around: Around) -> Scaled:
    named = file.given("scaling_type")
    if named is not None:
        return _named_scaling(file, str(named.value), around, named.source)
    kind = file.given("encoding")
    rope_type = file.given("rope_type")
    latent_yarn = around.latent and (rope_type is None or rope_type.value == "yarn")
    if (kind is not None and kind.value == "yarn") or latent_yarn:
        factor = file.number("yarn_factor")
        if factor is None:
            if not latent_yarn:
                raise InputError(
                    f"{file.label}: {file.keys_of('yarn_factor')[0]}",
                    found="nothing",
                    expected="the factor of yarn",
                    fix="add --rotary-scaling-factor",
                )
            factor = Sourced(40.0, file.default_origin)
            file.note(
                f"latent attention without a rope type: YaRN with factor 40 is the default of "
                f"{file.family.defaults_of}"
            )
        file.sources["factor"] = factor
        return _yarn(file, float(factor.value), _original(file, 4096), around, factor.source)
    return _plain_or_llama3(file, around)


def _plain_or_llama3(file: FlatFile, around: Around) -> Scaled:
    pressed = file.number("pressed")
    if file.flag("llama3_switch"):
        factor = file.number("llama3_factor")
        if factor is None:
            other = file.number("yarn_factor")
            factor = Sourced(8.0, file.default_origin)
            note = "no --rope-scaling-factor: 8 is the default"
            if other is not None:
                note += f"; {other.source.split(': ', 1)[-1]} is that of YaRN and not read here"
            file.note(note)
        file.sources["factor"] = factor
        file.sources["original_length"] = Sourced(8192, file.default_origin)
        made: Scaling = Llama3(
            factor=float(factor.value),
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_length=8192,
        )
        if pressed is not None and pressed.value != 1:
            raise InputError(
                f"{file.label}: {pressed.source.split(': ', 1)[-1]}",
                found=f"{pressed.value} together with llama3 scaling",
                expected="one of the two",
                fix="remove the wrong one",
            )
        return Scaled(made, origin=file.origin(file.keys_of("llama3_switch")[0]))
    if pressed is None or pressed.value == 1:
        return Scaled(Plain(original_length=around.stated))
    file.note(
        "linear interpolation: the file does not say whether its length is the one before or "
        "after stretching, so the original length is unknown"
    )
    return Scaled(Linear(factor=float(pressed.value)), origin=pressed.source)


def _named_scaling(file: FlatFile, kind: str, around: Around, origin: str) -> Scaled:
    """MindSpeed's ``--rope-scaling-type``."""
    factor = file.number("llama3_factor")
    if kind == "longrope":
        lists: dict[str, Any] = {
            name: _divisors(file, name) for name in ("short_factor", "long_factor")
        }
        made = LongRoPE(
            original_length=_original(file, None),
            short_mscale=_optional(file, "short_mscale"),
            long_mscale=_optional(file, "long_mscale"),
            **lists,
        )
        return Scaled(made, origin=origin)
    if kind not in ("yarn", "linear", "llama3"):
        raise InputError(
            f"{file.label}: {origin.split(': ', 1)[-1]}",
            found=f"scaling {kind!r}",
            expected="yarn, longrope, llama3 or linear",
            fix="this scaling is not known here",
        )
    if factor is None:
        raise InputError(
            f"{file.label}: {file.keys_of('llama3_factor')[0]}",
            found="nothing",
            expected=f"the factor of {kind}",
            fix="add it",
        )
    file.sources["factor"] = factor
    value = float(factor.value)
    if kind == "yarn":
        return _yarn(file, value, _original(file, None), around, origin)
    if kind == "linear":
        return Scaled(Linear(factor=value), origin=origin)
    low, high = file.number_or("low_freq", 1.0), file.number_or("high_freq", 4.0)
    llama3 = Llama3(
        factor=value,
        low_freq_factor=low,
        high_freq_factor=high,
        original_length=_original(file, 8192),
    )
    return Scaled(llama3, origin=origin)


def _optional(file: FlatFile, concept: str) -> float | None:
    found = file.number(concept)
    return None if found is None else float(found.value)


def _divisors(file: FlatFile, concept: str) -> tuple[float, ...]:
    found = file.given(concept)
    value: Any = None if found is None else found.value
    if isinstance(value, str):
        value = value.split(",")
    try:
        return tuple(float(entry) for entry in value)
    except (TypeError, ValueError):
        raise InputError(
            f"{file.label}: {file.keys_of(concept)[0]}",
            found=repr(value)[:60],
            expected="rotary_dim/2 numbers, separated by commas",
            fix="take the list from the model's own config",
        ) from None


def _window(file: FlatFile) -> int | None:
    """``--window-size 127,0``: tokens before and after, the query itself not counted."""
    found = file.given("window")
    if found is None:
        return None
    value: Any = found.value
    parts = value.strip("()[] ").split(",") if isinstance(value, str) else value
    try:
        before, after = (int(part) for part in parts)
    except (TypeError, ValueError):
        raise InputError(
            f"{file.label}: {found.source.split(': ', 1)[-1]}",
            found=repr(value),
            expected="two numbers such as 127,0",
            fix="give tokens before and after",
        ) from None
    if before < 0:
        return None
    if after > 0:
        file.note(f"the window also reaches {after} tokens forward")
    file.sources["window"] = Sourced(before + 1, found.source)
    return before + 1


def _without_rope(file: FlatFile, count: int) -> list[bool] | None:
    """``--no-rope-freq``: every Nth layer, or a pattern in which 1 means no rope."""
    found = file.given("no_rope")
    if found is None:
        return None
    where = f"{file.label}: {found.source.split(': ', 1)[-1]}"
    value = found.value
    if isinstance(value, str):
        value = _pattern(value, where)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        without = [(index + 1) % value == 0 for index in range(count)]
    elif isinstance(value, list) and len(value) == count and set(value) <= {0, 1}:
        without = [bool(entry) for entry in value]
    else:
        raise InputError(
            where,
            found=repr(value)[:60],
            expected=f"a number, or {count} entries of 0 and 1; 1 means no rope",
            fix="correct the pattern",
        )
    file.sources["layers without rope"] = Sourced(sum(without), f"{found.source} (1: no rope)")
    return [not entry for entry in without]


def _pattern(text: str, where: str) -> Any:
    """Return the list that an expression such as ``([0]*3+[1]*1)*12`` means."""
    refused = InputError(
        where,
        found=repr(text)[:60],
        expected="a number or a pattern such as ([0]*3+[1]*1)*12",
        fix="correct the pattern",
    )

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.List):
            return [value(entry) for entry in node.elts]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
                return left + right
            if isinstance(left, int):
                left, right = right, left
            if isinstance(node.op, ast.Mult) and isinstance(left, list) and type(right) is int:
                if len(left) * max(right, 0) > _MOST_ENTRIES:
                    raise refused
                return left * right
        raise refused

    if len(text) > 4 * _MOST_ENTRIES:
        raise refused
    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refused from None


def _linear_every(file: FlatFile) -> int | None:
    found = file.count("linear_every")
    return None if found is None else int(found.value)


MEGATRON = FlatFormat(
    name="megatron",
    latent_pairing="adjacent",
    program="Megatron",
    spellings={
        "layers": ("num_layers",),
        "hidden": ("hidden_size",),
        "heads": ("num_attention_heads",),
        "kv_heads": ("num_query_groups",),
        "head_dim": ("kv_channels",),
        "theta": ("rotary_base",),
        "partial": ("rotary_percent", "rotary_percentage", "partial_rotary_factor"),
        "stated_length": ("max_position_embeddings",),
        "text_length": ("seq_length",),
        "text_length_nemo": ("encoder_seq_length",),
        "interleaved": ("rotary_interleaved", "use_glm_rope"),
        "encoding": ("position_embedding_type",),
        "sections": ("mrope_section",),
        "old_switch": ("use_rotary_position_embeddings",),
        "rope_type": ("rope_type",),
        "window": ("window_size",),
        "window_every": ("window_attn_skip_freq",),
        "no_rope": ("no_rope_freq",),
        "linear_every": ("full_attention_interval",),
        "rope_lanes": ("qk_pos_emb_head_dim",),
        "plain_lanes": ("qk_head_dim",),
        "value_dim": ("v_head_dim",),
        "pressed": ("rotary_seq_len_interpolation_factor", "seq_len_interpolation_factor"),
        "llama3_switch": ("use_rope_scaling", "scale_positional_embedding"),
        "llama3_factor": ("rope_scaling_factor",),
        "low_freq": ("low_freq_factor",),
        "high_freq": ("high_freq_factor",),
        "yarn_factor": ("rotary_scaling_factor", "yarn_rotary_scaling_factor"),
        "v4_factor": ("rope_factor",),
        "scaling_type": ("rope_scaling_type",),
        "scaling_original": (
            "yarn_original_max_position_embeddings",
            "original_max_position_embeddings",
            "rope_scaling_original_max_position_embeddings",
        ),
        "beta_fast": ("yarn_beta_fast", "beta_fast"),
        "beta_slow": ("yarn_beta_slow", "beta_slow"),
        "mscale": ("mscale", "yarn_mscale", "rope_scaling_mscale"),
        "mscale_all_dim": ("mscale_all_dim", "yarn_mscale_all_dim", "rope_scaling_mscale_all_dim"),
        "rounded": (
            "yarn_correction_range_round_to_int",
            "correction_range_round_to_int",
        ),
        "short_factor": ("short_factor",),
        "long_factor": ("long_factor",),
        "short_mscale": ("short_mscale",),
        "long_mscale": ("long_mscale",),
    },
    encoding=_encoding,
    scaling=_scaling,
    layers=FlatLayers(window=_window, without_rope=_without_rope, linear_every=_linear_every),
    axes=IN_SECTIONS,
    ignored=("no_rope_fusion", "no_position_embedding", "longrope_freqs_type"),
    latent=True,
)

GPT_NEOX = FlatFormat(
    name="gpt-neox",
    program="GPT-NeoX",
    spellings={
        "layers": ("num_layers",),
        "hidden": ("hidden_size",),
        "heads": ("num_attention_heads",),
        "kv_heads": ("num_kv_heads",),
        "theta": ("rotary_emb_base",),
        "partial": ("rotary_pct",),
        "stated_length": ("max_position_embeddings",),
        "text_length": ("seq_length",),
        "encoding": ("pos_emb",),
        "window": ("sliding_window_width",),
    },
    encoding=_encoding,
    ignored=("rope_fusion",),
)
