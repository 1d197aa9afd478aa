"""The extension methods that are measured and recommended, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import InputError
from ..rope import Rope
from ..scaling import NTK, DynamicNTK, Linear, NTKByParts, NTKCritical, Plain, Scaling, YaRN

Build = Callable[[float, int], Scaling]


@dataclass(frozen=True)
class Method:
    """One way to use a model past its original length.

    Attributes:
        name: as on the command line and in results.
        summary: one line for tables and reports.
        build: from (factor, original length) to the scaling; None for cropping, which
            leaves the rope as it is and drops the oldest tokens.
        static: whether it changes texts within the original length too.
    """

    name: str
    summary: str
    build: Build | None
    static: bool = True

    def rope(self, base: Rope, factor: float, original_length: int) -> Rope:
        """Return ``base`` stretched by ``factor``; at factor 1 every method is plain RoPE."""
        if self.build is None or factor <= 1:
            return base.with_scaling(Plain(original_length=original_length))
        return base.with_scaling(self.build(factor, original_length))


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "crop",
            "drop the oldest tokens, keep the last original length; the baseline to beat",
            None,
            static=False,
        ),
        Method(
            "none",
            "no change: positions past the original length are extrapolated",
            lambda _, original: Plain(original_length=original),
            static=False,
        ),
        Method(
            "linear",
            "position interpolation: every frequency divided by the factor",
            lambda factor, original: Linear(factor=factor, original_length=original),
        ),
        Method(
            "ntk",
            "NTK-aware: base times factor^(d/(d-2))",
            lambda factor, original: NTK(factor=factor, original_length=original),
        ),
        Method(
            "ntk-critical",
            "critical-dimension rule: base to the power ln(L'/2π)/ln(L/2π)",
            lambda factor, original: NTKCritical(factor=factor, original_length=original),
        ),
        Method(
            "dynamic",
            "dynamic NTK as in transformers: the base grows with the text",
            lambda factor, original: DynamicNTK(factor=factor, original_length=original),
            static=False,
        ),
        Method(
            "by-parts",
            "NTK-by-parts: fast planes kept, slow ones interpolated, ramp in turns",
            lambda factor, original: NTKByParts(factor=factor, original_length=original),
        ),
        Method(
            "yarn",
            "YaRN as shipped: ramp in the plane's index, cos and sin times 0.1 ln(factor) + 1",
            lambda factor, original: YaRN(factor=factor, original_length=original),
        ),
        Method(
            "yarn-rotations",
            "YaRN as in the paper: ramp in turns, the same amplitude",
            lambda factor, original: YaRN(
                factor=factor, original_length=original, ramp="rotations"
            ),
        ),
    )
}
"""Every method by name, baselines first."""


def methods_named(names: list[str]) -> list[Method]:
    """Return the methods of the given names, in the table's order, each once.

    Raises:
        InputError: an unknown name.
    """
    for name in names:
        if name not in METHODS:
            raise InputError(
                "--methods",
                found=repr(name),
                expected="names among " + ", ".join(METHODS),
                fix="correct the name",
            )
    return [method for name, method in METHODS.items() if name in names]
