"""Rules that several engines have in common, word for word."""

from __future__ import annotations

from collections.abc import Callable

from . import formulas
from .reading import Keys, Reading, Rule


def plain(keys: Keys) -> Reading:
    """The ladder alone."""
    return Reading(formulas.ladder(keys.theta, keys.dim))


def linear(keys: Keys) -> Reading:
    """All frequencies divided by the factor, which must be there."""
    return Reading(formulas.ladder(keys.theta, keys.dim) / keys.need("factor"))


def strict_llama3(keys: Keys) -> Reading:
    """Llama 3 with all four values required."""
    return Reading(
        formulas.llama3(
            formulas.ladder(keys.theta, keys.dim),
            keys.need("factor"),
            keys.need("low_freq_factor"),
            keys.need("high_freq_factor"),
            keys.need_original(),
        )
    )


def lenient_llama3(factor: float, original: float | None) -> Callable[[Keys], Reading]:
    """Return Llama 3 with defaults 1 and 4, and those given; None: the original must be there."""

    def compute(keys: Keys) -> Reading:
        length = keys.original if keys.original is not None else original
        return Reading(
            formulas.llama3(
                formulas.ladder(keys.theta, keys.dim),
                keys.given("factor", factor),
                keys.given("low_freq_factor", 1.0),
                keys.given("high_freq_factor", 4.0),
                keys.need_original() if length is None else length,
            )
        )

    return compute


def ignored(text: str) -> Rule:
    """Return the rule of an engine that falls back to plain rope without an error."""

    def compute(keys: Keys) -> Reading:
        return Reading(plain(keys).inv_freq, notes=(f"{keys.kind} is ignored: {text}",))

    return Rule(compute, f"ignored: {text}")


def mscale_ratio(keys: Keys, factor: float) -> float | None:
    """Return ``g(mscale) / g(mscale_all_dim)`` where both are there and not 0, else None."""
    mscale, all_dim = keys.get("mscale"), keys.get("mscale_all_dim")
    if not mscale or not all_dim:
        return None
    return formulas.magnitude(factor, mscale) / formulas.magnitude(factor, all_dim)


def truncates(keys: Keys) -> bool:
    """Return ``truncate`` as Python would take it; true where it is missing."""
    return bool(keys.block.get("truncate", True))


PLAIN = Rule(plain, "theta^(-2i/d)")
LINEAR = Rule(linear, "divided by factor (required)")
