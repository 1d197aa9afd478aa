"""From the rope block of a config to a `Scaling`, by the rules of transformers.

The rules were read from ``modeling_rope_utils.py`` of transformers 5.24.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..scaling import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    Plain,
    Proportional,
    Scaling,
    YaRN,
)
from ..scaling.base import is_number
from .config_file import ConfigFile
from .plan import Sourced
from .spellings import BLOCK_KEYS, KIND_ALIASES, hint
from .surroundings import Surroundings

_KEYS_OF_A_SCALING = ("factor", "short_factor", "long_factor", "low_freq_factor")
"""Keys that make no sense without a scaling: with them, a missing rope_type is an error."""


NTK_ALPHA = "ntk_alpha"
"""Hunyuan's ``dynamic`` with an ``alpha``, which is no dynamic scaling. No name in a file."""


@dataclass
class Block:
    """One rope block: flat, or one entry of a nested one.

    Attributes:
        values: its keys.
        path: where it stands, e.g. ``rope_parameters.full_attention``.
        config: the config it stands in.
        kind: the scaling, by transformers' name, aliases resolved.
    """

    values: Mapping[str, Any]
    path: str
    config: ConfigFile
    kind: str = "default"

    def __post_init__(self) -> None:
        """Check every key and resolve the kind."""
        for key in self.values:
            if key not in BLOCK_KEYS:
                near = hint(key, list(BLOCK_KEYS))
                raise InputError(
                    self.where(key),
                    found="an unknown key",
                    expected="a key of a rope block",
                    fix=f"did you mean {near!r}?" if near else "remove it or correct its name",
                )
            given = self.get(key)
            if BLOCK_KEYS[key].number and given is not None and not is_number(given):
                raise InputError(
                    self.where(key),
                    found=repr(given),
                    expected="a number",
                    fix="correct the value or leave the key out",
                )
        self.kind = self._kind()
        for key, value in self.values.items():
            known = BLOCK_KEYS[key]
            used = "*" in known.kinds or self.kind in known.kinds
            if value is not None and not used:
                why = known.remark or f"scaling {self.kind} has no such value"
                self.config.note(f"{self.path}.{key} is not used: {why}")

    def where(self, key: str) -> str:
        """Return how an error names a key."""
        return self.config.where(f"{self.path}.{key}")

    def get(self, key: str) -> Any:
        """Return a value, None where the key is missing or null."""
        return self.values.get(key)

    @property
    def assumed(self) -> bool:
        """Whether the file has no such block: its values are defaults of the family."""
        return bool(self.values) and self.config.values.get(self.path.split(".")[0]) is None

    def source(self, key: str) -> str:
        """Return how a source names a key."""
        if self.assumed:
            return self.config.default_origin
        return self.config.origin(f"{self.path}.{key}")

    def require(self, key: str) -> Any:
        """Return a value that the formula cannot do without."""
        value = self.get(key)
        if value is None:
            raise InputError(
                self.where(key),
                found="nothing",
                expected=f"a value, because scaling {self.kind} has no default for it",
                fix="take the value from the model's own config",
            )
        return value

    def _kind(self) -> str:
        new, old = self.get("rope_type"), self.get("type")
        names = [
            self._canonical(name, key)
            for key, name in (("rope_type", new), ("type", old))
            if name is not None
        ]
        if len(names) == 2 and names[0] != names[1]:
            raise self.config.contradiction(f"{self.path}.rope_type", new, "type", old)
        if not names:
            if any(key in self.values for key in _KEYS_OF_A_SCALING):
                raise InputError(
                    self.where("rope_type"),
                    found="nothing",
                    expected="the name of the scaling, one of " + ", ".join(_BUILDERS),
                    fix="add rope_type",
                )
            return "default"
        if self.config.family.only_default and names[0] != "default":
            raise InputError(
                self.where("rope_type"),
                found=f"scaling {names[0]!r}",
                expected=f"'default': {self.config.family.defaults_of} refuses every scaling",
                fix="remove the scaling, or name the right family with --assume-family",
            )
        if names[0] == "dynamic" and self.config.family.alpha and self.get("alpha"):
            names[0] = NTK_ALPHA
        if old is not None and new is None and old != "default":
            self.config.note(f"{self.path}.type is the old spelling of rope_type; read alike")
        return names[0]

    def _canonical(self, name: object, key: str) -> str:
        family = self.config.family
        kind = family.kinds.get(str(name), KIND_ALIASES.get(str(name), str(name)))
        if kind not in _BUILDERS:
            known = [*_BUILDERS, *KIND_ALIASES]
            near = hint(str(name), known)
            raise InputError(
                self.where(key),
                found=f"scaling {name!r}",
                expected="one of " + ", ".join(_BUILDERS),
                fix=f"did you mean {near!r}?" if near else "this scaling is not known here",
            )
        if kind != name:
            self.config.note(f"{self.path}: {name!r} means {kind!r} here")
        return kind


def scaling_of(block: Block, around: Surroundings) -> Scaling:
    """Build the scaling of a block.

    Raises:
        InputError: a missing or invalid value, with the key's path.
    """
    try:
        if block.kind == NTK_ALPHA:
            return _fixed_ntk(block)
        made = _BUILDERS[block.kind](block, around)
    except InputError as error:
        if error.where.startswith(block.config.label):
            raise
        raise error.within(block.config.where(block.path)) from None
    _note_ratio(block, made, around)
    return made


def _plain(block: Block, around: Surroundings) -> Scaling:
    stated = block.get("original_max_position_embeddings")
    if stated is not None and stated != around.plain_length:
        block.config.note(
            f"{block.path}.original_max_position_embeddings {stated} is not used: there is no "
            "scaling"
        )
    return Plain(original_length=around.plain_length)


def _linear(block: Block, around: Surroundings) -> Scaling:
    original = block.get("original_max_position_embeddings")
    if original is None:
        block.config.note(
            "linear scaling: the file does not say whether max_position_embeddings "
            f"{around.stated_length} is the length before or after stretching, so the original "
            "length is unknown"
        )
    return Linear(factor=block.require("factor"), original_length=original)


def _stated(block: Block, around: Surroundings) -> int:
    """Return the stated length of a model whose scaling needs one."""
    if around.stated_length is None:
        raise InputError(
            block.config.where("max_position_embeddings"),
            found="nothing",
            expected=f"a length, because scaling {block.kind} is measured against it",
            fix="add it",
        )
    return around.stated_length


def _dynamic(block: Block, around: Surroundings) -> Scaling:
    _stated(block, around)
    ignored = block.get("original_max_position_embeddings")
    if ignored is not None and ignored != around.stated_length:
        block.config.note(
            f"dynamic scaling grows past max_position_embeddings {around.stated_length}; "
            f"transformers ignores original_max_position_embeddings {ignored}"
        )
    return DynamicNTK(factor=block.require("factor"), original_length=around.stated_length)


def _fixed_ntk(block: Block) -> Scaling:
    """Hunyuan: ``dynamic`` with ``alpha`` is NTK-aware scaling by that factor at every length."""
    block.config.note(
        f"{block.path}: dynamic with alpha is a fixed base in this family's code, "
        "theta * alpha^(d/(d-2)); factor is not used"
    )
    return NTK(factor=block.require("alpha"), original_length=None)


def _original(block: Block, around: Surroundings) -> int:
    """Return the original length: attribute of the config, block, class default, stated length."""
    config = block.config
    top = config.count("trained_length")
    inside: Any = block.get("original_max_position_embeddings")
    inside = int(inside) if isinstance(inside, float) and inside.is_integer() else inside
    if top is not None:
        if inside is not None and inside != top.value:
            raise config.contradiction(
                f"{block.path}.original_max_position_embeddings",
                inside,
                "original_max_position_embeddings of the config",
                top.value,
            )
        config.sources["original_length"] = top
        return int(top.value)
    if inside is not None:
        config.sources["original_length"] = Sourced(
            inside, block.source("original_max_position_embeddings")
        )
        return inside  # type: ignore[no-any-return]  # checked by the scaling
    default = config.family.trained_length
    if default is not None:
        config.sources["original_length"] = Sourced(default, config.default_origin)
        origin = config.default_origin
        config.note(f"original_max_position_embeddings is missing; assumed {default} ({origin})")
        return default
    stated = _stated(block, around)
    config.sources["original_length"] = Sourced(
        stated, "derived: max_position_embeddings (rule of transformers)"
    )
    config.note(
        "original_max_position_embeddings is missing; taken to be max_position_embeddings "
        f"{stated}, as transformers does"
    )
    return stated


def _yarn(block: Block, around: Surroundings) -> Scaling:
    original = _original(block, around)
    factor = block.get("factor")
    if factor is None and is_number(original):
        factor = _stated(block, around) / original
        block.config.note(
            f"{block.path}.factor is missing; derived {factor:g} = max_position_embeddings "
            f"{around.stated_length} / {original}"
        )
    mscale, all_dim = block.get("mscale"), block.get("mscale_all_dim")
    absolute = block.get("attention_factor")
    if absolute is not None and (mscale or all_dim):
        block.config.note(f"{block.path}.attention_factor {absolute:g} wins over mscale")
    elif bool(mscale) != bool(all_dim):
        lone = "mscale" if mscale else "mscale_all_dim"
        block.config.note(
            f"{block.path}.{lone} alone does not change the attention factor: transformers needs "
            "both mscale and mscale_all_dim nonzero"
        )
    truncate = block.get("truncate")
    if truncate is not None and "." in block.path:
        block.config.note(
            f"{block.path}.truncate is honoured here; transformers 5.24 ignores it within a "
            "layer type's block"
        )
    return YaRN(
        factor=factor,
        original_length=original,
        attention_factor=absolute,
        mscale=mscale,
        mscale_all_dim=all_dim,
        truncate=truncate,
        beta_fast=_beta(block, "beta_fast", 32.0),
        beta_slow=_beta(block, "beta_slow", 1.0),
    )


def _beta(block: Block, name: str, default: float) -> float:
    value = block.get(name)
    if value == 0:
        block.config.note(
            f"{block.path}.{name} 0 counts as missing, as in transformers: {default:g} is used"
        )
        return default
    return default if value is None else value


def _longrope(block: Block, around: Surroundings) -> Scaling:
    original = _original(block, around)
    factor = block.get("factor")
    if factor is None and is_number(original) and original > 0:
        factor = max(_stated(block, around) / original, 1.0)
    if block.get("short_mscale") is not None or block.get("long_mscale") is not None:
        block.config.note(
            "transformers 5.24 applies short_factor at every length in this family's code "
            "(its forward pass passes no length); here texts past the original length use "
            "long_factor, as the formula says"
        )
    return LongRoPE(
        factor=factor,
        original_length=original,
        attention_factor=block.get("attention_factor"),
        short_factor=_divisors(block, "short_factor"),
        long_factor=_divisors(block, "long_factor"),
        short_mscale=block.get("short_mscale"),
        long_mscale=block.get("long_mscale"),
    )


def _divisors(block: Block, name: str) -> tuple[float, ...]:
    values = block.require(name)
    if not isinstance(values, list | tuple):
        raise InputError(
            block.where(name),
            found=repr(values),
            expected="a list of rotary_dim/2 numbers",
            fix="take the list from the model's own config",
        )
    return tuple(values)


def _llama3(block: Block, around: Surroundings) -> Scaling:
    return Llama3(
        factor=block.require("factor"),
        low_freq_factor=block.require("low_freq_factor"),
        high_freq_factor=block.require("high_freq_factor"),
        original_length=_original(block, around),
    )


def _proportional(block: Block, around: Surroundings) -> Scaling:
    factor = block.get("factor")
    return Proportional(
        share=around.share,
        factor=1.0 if factor is None else factor,
        original_length=around.plain_length,
    )


_BUILDERS: dict[str, Callable[[Block, Surroundings], Scaling]] = {
    "default": _plain,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
"""Every scaling by transformers' name."""


def _note_ratio(block: Block, scaling: Scaling, around: Surroundings) -> None:
    """Say so where the factor and the ratio of the lengths disagree; the factor wins."""
    if not isinstance(scaling, YaRN | LongRoPE) or block.get("factor") is None:
        return
    original = scaling.original_length
    if original is None or around.stated_length is None:
        return
    ratio = around.stated_length / original
    if ratio not in (1, scaling.factor):
        block.config.note(
            f"factor {scaling.factor:g} and the ratio {around.stated_length} / {original} = "
            f"{ratio:g} disagree; the factor is used, as transformers does"
        )
