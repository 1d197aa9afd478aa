"""Reader of GGUF files: header only, and the tiny tensors that hold rope divisors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..rope import Rope
from ..scaling.yarn import temperature
from .gguf_families import ARCHITECTURES, NOT_DESCRIBED, RUNTIME, WITHOUT_ROPE, Architecture
from .gguf_header import GGUFHeader, Header
from .gguf_layers import linear_layers, local_layers, rope_flags
from .gguf_scaling import GGUFScaling
from .gguf_values import GGUFValues
from .plan import LayerPositions, ModelPositions, QueryTemperature, Sourced
from .spellings import hint

_MOST_LAYERS = 2048


def read_gguf(
    path: Path, overrides: Mapping[str, Any] | None = None, header: Header | None = None
) -> ModelPositions:
    """Read the position plan of a GGUF file; weights stay on the disk.

    Args:
        path: the file.
        overrides: metadata keys to read as if the file had these values.
        header: the file's header where it is open already; left open and as it is.

    Raises:
        InputError: a damaged file, an unknown architecture, or values that fit no rope.
    """
    if header is not None:
        return read_header(_Replaced(header, overrides or {}))
    try:
        with GGUFHeader(path) as opened:
            return read_header(_Replaced(opened, overrides or {}))
    except OSError as error:
        raise InputError(
            str(path),
            found=error.strerror or str(error),
            expected="a file that can be read",
            fix="check the path and its permissions",
        ) from None


class _Replaced:
    """A header with some values replaced."""

    def __init__(self, header: Header, overrides: Mapping[str, Any]) -> None:
        self.path, self.floats = header.path, header.floats
        self.values = {**header.values, **overrides}


def read_header(header: Header) -> ModelPositions:
    """Read the position plan from the metadata of a file.

    Raises:
        InputError: an unknown architecture, or values that fit no rope.
    """
    name = header.values.get("general.architecture")
    architecture = find_architecture(str(header.path), name)
    values = GGUFValues(header, str(name))
    _refuse_undescribed(values, architecture)
    if architecture.axes:
        values.note(
            "multi-axis positions (M-RoPE): this is the rope on text, where all axes are equal; "
            "image and video positions are not described"
        )
    layers = values.require("block_count")
    if layers == architecture.alibi_layers:
        raise InputError(
            values.where("block_count"),
            found=f"{layers} layers: the {name} model of that size has ALiBi",
            expected="a model with rotary embeddings",
            fix="there is no rope in it to inspect",
        )
    if layers > _MOST_LAYERS:
        raise InputError(
            values.where("block_count"),
            found=str(layers),
            expected=f"at most {_MOST_LAYERS}",
            fix="convert the model again",
        )
    values.sources["layers"] = Sourced(layers, values.origin("block_count"))
    heads = values.require("attention.head_count")
    values.sources["heads"] = Sourced(heads, values.origin("attention.head_count"))
    stated = values.count("context_length")
    values.sources["stated_length"] = Sourced(
        stated, "unknown" if stated is None else values.origin("context_length")
    )
    if stated is None:
        values.note("context_length is missing: the length the model can take is unknown")
    values.sources["pairing"] = Sourced(
        architecture.pairing, f"rule of {RUNTIME} for architecture {name}"
    )
    built = _Ropes(values, architecture, stated)
    plan = ModelPositions(
        path=str(header.path),
        format="gguf",
        model_type=str(name),
        layers=tuple(_layers(values, architecture, built, layers)),
        original_length=None,
        stated_length=stated,
        heads=heads,
        kv_heads=_kv_heads(values, heads),
        value_dim=_value_dim(values, built),
        sources=values.sources,
        notes=tuple(values.notes),
    )
    rope = plan.rope
    original = None if rope is None else rope.original_length
    values.sources.setdefault(
        "original_length",
        Sourced(original, "unknown" if original is None else "derived: context_length"),
    )
    return dataclasses.replace(plan, original_length=original)


def find_architecture(label: str, name: object) -> Architecture:
    """Return the row of an architecture, or refuse it by name."""
    where = f"{label}: general.architecture"
    if not isinstance(name, str):
        raise InputError(
            where,
            found="nothing" if name is None else repr(name),
            expected="the name of an architecture, e.g. 'llama'",
            fix="convert the model again",
        )
    if name in WITHOUT_ROPE:
        raise InputError(
            where,
            found=f"{name!r}, which has {WITHOUT_ROPE[name]}",
            expected="a model with rotary embeddings",
            fix="there is no rope in it to inspect",
        )
    if name in NOT_DESCRIBED:
        raise InputError(
            where,
            found=f"{name!r}, which has {NOT_DESCRIBED[name]}",
            expected="an architecture whose layers are described here",
            fix="read the model's config.json instead",
        )
    if name not in ARCHITECTURES:
        near = hint(name, list(ARCHITECTURES))
        raise InputError(
            where,
            found=f"{name!r}, an architecture that is not in the table",
            expected="a known architecture" + (f", e.g. {near!r}" if near else ""),
            fix="read the model's config.json instead",
        )
    return ARCHITECTURES[name]


def _refuse_undescribed(values: GGUFValues, architecture: Architecture) -> None:
    """Refuse a key with which the architecture's code does something else."""
    if architecture.unless is None:
        return
    key, meaning = architecture.unless
    if values.get(key):
        raise InputError(
            values.where(key),
            found=f"{values.get(key)!r}: {meaning}",
            expected="a file without it",
            fix="read the model's config.json instead",
        )


def _kv_heads(values: GGUFValues, heads: int) -> int:
    key = "attention.head_count_kv"
    found = values.get(key)
    if isinstance(found, list) and not any(found):
        found = None
    count = None if found is None else values.count(key)
    values.sources["kv_heads"] = (
        Sourced(heads, "derived: one per query head")
        if count is None
        else Sourced(count, values.origin(key))
    )
    return heads if count is None else count


def _value_dim(values: GGUFValues, built: _Ropes) -> int:
    for key in ("attention.value_length_mla", "attention.value_length"):
        found = values.count(key)
        if found is not None:
            values.sources["value_dim"] = Sourced(found, values.origin(key))
            return found
    values.sources["value_dim"] = Sourced(built.head_dim, "derived: head_dim")
    return built.head_dim


@dataclass(frozen=True)
class _Plan:
    rope: Rope
    softmax_multiplier: float


class _Ropes:
    """The ropes of a file: one for layers without a window, one for windowed layers."""

    def __init__(self, values: GGUFValues, architecture: Architecture, stated: int | None) -> None:
        self.values, self.architecture = values, architecture
        self.window = self._window()
        self.head_dim = self._head_dim()
        self.scaling = GGUFScaling(values, architecture, stated)
        self._made: dict[bool, _Plan] = {}

    def of(self, *, local: bool) -> _Plan:
        """Return the rope of windowed layers, or of the others."""
        if local not in self._made:
            self._made[local] = self._make(local)
        return self._made[local]

    def _window(self) -> int | None:
        key = "attention.sliding_window"
        found = self.values.get(key)
        if self.architecture.chunk:
            if found == 0:
                return None
            self.values.sources["window"] = Sourced(
                self.architecture.chunk, f"rule of {RUNTIME}: chunked attention"
            )
            self.values.note(
                "chunked attention: a query sees its own chunk only; the window shown is the "
                "size of a chunk"
            )
            return self.architecture.chunk
        if found in (None, 0):
            return None
        window = self.values.require(key)
        if self.architecture.symmetric:
            self.values.note(
                f"the window of {window} tokens is {window // 2} to each side; shown are the "
                f"{window // 2 + 1} tokens back, the query itself included"
            )
            window = window // 2 + 1
        if not self.architecture.period:
            self.values.note(
                f"{self.values.prefix}.{key} {window} is in the file, but {RUNTIME} applies no "
                "window to this architecture"
            )
            return None
        self.values.sources["window"] = Sourced(window, self.values.origin(key))
        return window

    def _head_dim(self) -> int:
        values = self.values
        for key in ("attention.key_length_mla", "attention.key_length"):
            if key.endswith("_mla") and not self.architecture.latent:
                continue
            found = values.count(key)
            if found is not None:
                values.sources["head_dim"] = Sourced(found, values.origin(key))
                return found
        heads, hidden = values.require("attention.head_count"), values.require("embedding_length")
        if hidden % heads:
            raise InputError(
                values.where("embedding_length"),
                found=f"{hidden}, which {heads} heads do not divide",
                expected="a multiple of the number of heads, or attention.key_length",
                fix="convert the model again",
            )
        values.sources["head_dim"] = Sourced(
            hidden // heads, f"derived: embedding_length {hidden} / {heads} heads"
        )
        return hidden // heads

    def _make(self, local: bool) -> _Plan:
        values, architecture = self.values, self.architecture
        head_dim = self.head_dim
        rotary_dim = values.count("rope.dimension_count")
        origin = values.origin("rope.dimension_count")
        if local:
            latent = values.count("attention.key_length_mla_swa") if architecture.latent else None
            head_dim = latent or values.count("attention.key_length_swa") or head_dim
            rotary_dim = values.count("rope.dimension_count_swa") or rotary_dim
        if rotary_dim is None:
            rotary_dim, origin = head_dim, "derived: head_dim (all lanes)"
        if architecture.halved_full and not local:
            rotary_dim //= 2
            origin += f" / 2 (rule of {RUNTIME}: full layers turn half)"
        values.sources["rotary_dim"] = Sourced(rotary_dim, origin)
        scaling = self.scaling.of(local=local, rotary_dim=rotary_dim, theta=self._theta(local))
        try:
            rope = Rope(
                head_dim=head_dim,
                rotary_dim=rotary_dim,
                theta=self._theta(local),
                pairing=architecture.pairing,
                scaling=scaling,
                rotary_offset=head_dim - rotary_dim if architecture.latent else 0,
            )
        except InputError as error:
            raise error.within(values.label) from None
        multiplier = 1.0
        if architecture.latent and (slope := getattr(scaling, "mscale_all_dim", None)):
            multiplier = temperature(scaling.stretch, slope) ** 2
            values.sources["softmax_multiplier"] = Sourced(
                multiplier, "derived: (0.1 * mscale_all_dim * ln(factor) + 1)^2"
            )
        return _Plan(rope, multiplier)

    def _theta(self, local: bool) -> float:
        values, name = self.values, "theta (sliding_attention)" if local else "theta"
        keys: tuple[str, ...] = ("rope.freq_base_swa",) if local else ()
        if not local or self.architecture.local_theta is None:
            keys += ("rope.freq_base",)
        for key in keys:
            found = values.number(key)
            if found is not None:
                if found <= 0:
                    raise InputError(
                        values.where(key),
                        found=f"{found:g}",
                        expected="a positive number",
                        fix="convert the model again",
                    )
                values.sources[name] = Sourced(found, values.origin(key))
                return found
        default = self.architecture.local_theta if local else None
        default = 10000.0 if default is None else default
        values.sources[name] = Sourced(default, f"default of {RUNTIME}")
        values.note(
            f"{'rope.freq_base_swa' if local else 'rope.freq_base'} is missing; assumed "
            f"{default:.15g} (default of {RUNTIME})"
        )
        return default


def _layers(
    values: GGUFValues, architecture: Architecture, built: _Ropes, count: int
) -> list[LayerPositions]:
    local = local_layers(values, architecture, built.window, count)
    linear = linear_layers(values, architecture, count)
    rotating = rope_flags(values, architecture, built.window, local, count)
    kv_heads = values.get("attention.head_count_kv")
    heads = values.get("attention.head_count")
    out = []
    for index in range(count):
        none = any(
            isinstance(listed, list) and index < len(listed) and listed[index] == 0
            for listed in (kv_heads, heads)
        )
        if none or linear[index]:
            kind = "linear_attention" if linear[index] else "no_attention"
            out.append(LayerPositions(index, kind, None))
            continue
        kind = "full_attention"
        if local[index]:
            kind = "chunked_attention" if architecture.chunk else "sliding_attention"
        window = built.window if local[index] else None
        if not rotating[index]:
            tempered = architecture.query_temperature
            query = None if tempered is None else QueryTemperature(*tempered)
            out.append(LayerPositions(index, kind, None, window, 1.0, query))
            continue
        plan = built.of(local=local[index] and not architecture.chunk)
        query = _temperature(values)
        out.append(LayerPositions(index, kind, plan.rope, window, plan.softmax_multiplier, query))
    without = sum(layer.rope is None for layer in out)
    if without:
        values.sources["layers without rope"] = Sourced(
            without, f"rule of {RUNTIME} for architecture {values.prefix}"
        )
    return out


def _temperature(values: GGUFValues) -> QueryTemperature | None:
    beta = values.number("attention.temperature_scale")
    if not beta:
        return None
    values.sources["query_temperature"] = Sourced(
        beta, values.origin("attention.temperature_scale")
    )
    length = values.count("attention.temperature_length")
    if length is None:
        # llama.cpp takes the original length for mistral3, whose files have no length here.
        length = values.count("rope.scaling.original_context_length")
    return QueryTemperature(beta, length or values.require("context_length"))
