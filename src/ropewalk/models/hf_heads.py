"""Sizes and counts of attention heads of a config of transformers."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InputError
from .config_file import ConfigFile
from .family import Latent
from .plan import Sourced


@dataclass(frozen=True)
class Head:
    """The lanes of a query or key head: size, first lane that turns, and how many may turn."""

    size: int
    offset: int
    lanes: int


@dataclass(frozen=True)
class Heads:
    """Counts of heads, the lanes of a query or key head, and those of a value head."""

    heads: int
    kv_heads: int
    head: Head
    value_dim: int


def read_heads(config: ConfigFile) -> Heads:
    """Read sizes and counts of heads; what is missing comes from the family's defaults.

    Raises:
        InputError: counts that do not fit each other.
    """
    sizes = config.family.sizes
    missing = []
    for concept, default in (("hidden_size", sizes.hidden), ("heads", sizes.heads)):
        found = config.count(concept)
        if found is None:
            missing.append(f"{concept} {default}")
            found = Sourced(default, config.default_origin)
        config.sources[concept] = found
    heads: int = config.sources["heads"].value
    kv_heads = config.count("kv_heads")
    if kv_heads is None:
        if sizes.kv_heads is None:
            kv_heads = Sourced(heads, "derived: one per query head")
        else:
            kv_heads = Sourced(sizes.kv_heads, config.default_origin)
            missing.append(f"kv heads {sizes.kv_heads}")
    rule = config.family.one_kv_head
    if rule and config.switch(rule[0], default=True) and not config.switch(rule[1]):
        kv_heads = Sourced(1, f"rule of {config.family.defaults_of}: {rule[0]}")
    if heads % kv_heads.value:
        raise InputError(
            f"{config.label}: {kv_heads.source.split(': ', 1)[-1]}",
            found=f"{kv_heads.value} key and value heads for {heads} query heads",
            expected="a number that divides the query heads",
            fix="correct one of the two",
        )
    config.sources["kv_heads"] = kv_heads
    if missing:
        config.note(
            f"sizes missing in the file, assumed {', '.join(missing)} ({config.default_origin})"
        )
    head = (
        _latent_head(config, config.family.latent) if config.family.latent else _plain_head(config)
    )
    return Heads(heads, kv_heads.value, head, _value_dim(config, head))


def _plain_head(config: ConfigFile) -> Head:
    given = config.count("head_dim")
    default = config.family.sizes.head_dim
    hidden, heads = config.sources["hidden_size"].value, config.sources["heads"].value
    if given is not None:
        if given.value * heads != hidden:
            config.note(
                f"head_dim {given.value} is explicit and wins over hidden_size / heads = "
                f"{hidden / heads:g}"
            )
    elif default is not None:
        given = Sourced(default, config.default_origin)
        config.note(f"head_dim is missing; assumed {default} ({config.default_origin})")
    elif hidden % heads:
        raise InputError(
            config.where("hidden_size"),
            found=f"{hidden}, which {heads} heads do not divide",
            expected="a multiple of the number of heads, or an explicit head_dim",
            fix="correct it, or add head_dim",
        )
    else:
        given = Sourced(hidden // heads, f"derived: hidden_size {hidden} / {heads} heads")
    config.sources["head_dim"] = given
    return Head(given.value, 0, given.value)


def _latent_head(config: ConfigFile, latent: Latent) -> Head:
    rotated = config.count_or("rope_lanes", latent.rotated)
    plain = config.count_or("plain_lanes", latent.plain)
    size = rotated.value + plain.value
    config.sources["head_dim"] = Sourced(
        size, f"derived: qk_nope_head_dim {plain.value} + qk_rope_head_dim {rotated.value}"
    )
    config.sources["rotary_dim"] = rotated
    return Head(size, plain.value, rotated.value)


def _value_dim(config: ConfigFile, head: Head) -> int:
    latent = config.family.latent
    found = Sourced(head.size, "derived: head_dim")
    if latent is not None:
        hidden, heads = config.sources["hidden_size"].value, config.sources["heads"].value
        default = (
            Sourced(hidden // heads, "derived: hidden_size / heads")
            if latent.value is None
            else Sourced(latent.value, config.default_origin)
        )
        found = config.count("value_dim") or default
    config.sources["value_dim"] = found
    return int(found.value)
