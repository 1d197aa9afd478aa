"""The extension methods that are measured and recommended, in one table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from ..encodings import DualChunk, Encoding, LogN, ReRoPE, Rotary, SelfExtend
from ..errors import InputError
from ..rope import Rope
from ..scaling import (
    NTK,
    Clipped,
    DynamicNTK,
    Linear,
    Llama3,
    NTKByParts,
    NTKCritical,
    Plain,
    Scaling,
    YaRN,
)

Build = Callable[[float, int], Scaling]
Remap = Callable[[Rope, float, int], Encoding]


@dataclass(frozen=True)
class Method:
    """One way to use a model past its original length.

    Attributes:
        name: as on the command line and in results.
        summary: one line for tables and reports.
        build: from (factor, original length) to the scaling, where it is a rescaling of
            frequencies that a config can hold.
        static: whether it changes texts within the original length too.
        remap: from (rope, factor, original length) to an encoding, where it is none: it
            changes distances or queries, in the attention itself.
        usual: whether a measurement that names no methods takes it.
    """

    name: str
    summary: str
    build: Build | None
    static: bool = True
    remap: Remap | None = None
    usual: bool = True

    @property
    def crops(self) -> bool:
        """Whether it leaves the model as it is and drops the oldest tokens."""
        return self.build is None and self.remap is None

    def setting(
        self, base: Rope | Encoding, factor: float, original_length: int
    ) -> Rope | Encoding:
        """Return what the model runs with; at factor 1 every method changes nothing.

        Raises:
            InputError: a model that does not rotate, and a method that stretches a rotation.
        """
        if isinstance(base, Rope):
            if self.remap is None or factor <= 1:
                return self.rope(base, factor, original_length)
            return self.remap(base.with_scaling(Plain()), factor, original_length)
        if not self.crops and self.name != "none":
            raise InputError(
                "--methods",
                found=f"{self.name} on {base!r}",
                expected="a model with plain rotary embeddings",
                fix="only crop and none are possible here",
            )
        return base

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
        Method(
            "yarn-untruncated",
            "YaRN with the ramp's ends not rounded to whole planes, as gpt-oss sets it",
            lambda factor, original: YaRN(factor=factor, original_length=original, truncate=False),
            usual=False,
        ),
        Method(
            "llama3",
            "Llama 3's rule: by parts, its ramp from 1 to 4 turns over the original length",
            lambda factor, original: Llama3(
                factor=factor, original_length=original, low_freq_factor=1.0, high_freq_factor=4.0
            ),
            usual=False,
        ),
        Method(
            "clipped",
            "planes that make less than one turn within the original length stand still",
            None,
            remap=lambda rope, _, original: Rotary(
                rope=rope.with_scaling(Clipped(original_length=original))
            ),
            usual=False,
        ),
        Method(
            "log-n",
            "no change of frequencies; queries times max(1, log of position in base L)",
            None,
            static=False,
            remap=lambda rope, _, original: LogN(inner=Rotary(rope=rope), original_length=original),
            usual=False,
        ),
        Method(
            "rerope",
            "ReRoPE: distances beyond half the original length all count as that",
            None,
            static=False,
            remap=lambda rope, _, original: ReRoPE(rope=rope, window=original // 2),
            usual=False,
        ),
        Method(
            "self-extend",
            "Self-Extend: far distances in groups, those below a quarter of L exact",
            None,
            static=False,
            remap=lambda rope, factor, original: _self_extend(rope, factor, original),
            usual=False,
        ),
        Method(
            "dual-chunk",
            "dual chunk attention: positions within, beside and between chunks, all below L",
            None,
            static=False,
            remap=lambda rope, _, original: _dual_chunk(rope, original),
            usual=False,
        ),
        Method(
            "dual-chunk-log-n",
            "dual chunk attention, its queries times max(1, log of position in base L)",
            None,
            static=False,
            remap=lambda rope, _, original: LogN(
                inner=_dual_chunk(rope, original), original_length=original
            ),
            usual=False,
        ),
    )
}
"""Every method by name, baselines first."""

USUAL = tuple(name for name, method in METHODS.items() if method.usual)
"""What a measurement takes that names no methods: what engines run from a config."""


def _dual_chunk(rope: Rope, original: int) -> DualChunk:
    """Return dual chunk attention whose chunk and local window make up L."""
    return DualChunk(rope=rope, chunk=original * 3 // 4, local=original // 4)


def _self_extend(rope: Rope, factor: float, original: int) -> SelfExtend:
    """Return Self-Extend with the smallest group that keeps all distances below L."""
    window = original // 4
    group = 1
    while window + (math.ceil(original * factor) - window) / group > original * 7 / 8:
        group += 1
    return SelfExtend(rope=rope, group=group, window=window)


_AT = "@"


def method_named(name: str) -> Method:
    """Return the method of a name; ``yarn@0.2`` is yarn with the amplitude 1 + 0.2 ln(factor).

    Raises:
        InputError: an unknown name, or an amplitude where there is none.
    """
    base, at, number = name.partition(_AT)
    found = METHODS.get(base)
    if found is None:
        raise InputError(
            "--methods",
            found=repr(name),
            expected="names among " + ", ".join(METHODS),
            fix="correct the name",
        )
    if not at:
        return found
    try:
        slope = float(number)
    except ValueError:
        slope = -1.0
    build = found.build
    sample = None if build is None else build(2.0, 512)
    if build is None or not isinstance(sample, YaRN) or not 0 <= slope < math.inf:
        raise InputError(
            "--methods",
            found=repr(name),
            expected="a YaRN and a slope of at least 0, e.g. yarn@0.2",
            fix="correct the name",
        )

    def stretched(factor: float, original: int) -> Scaling:
        scaling = build(factor, original)
        amplitude = 1 + slope * math.log(factor)
        changed: Scaling = dataclasses.replace(scaling, attention_factor=amplitude)  # type: ignore[call-arg]
        return changed

    return Method(
        name, f"{found.summary.split(',')[0]}; amplitude 1 + {slope:g} ln(factor)", stretched
    )


def methods_named(names: list[str]) -> list[Method]:
    """Return the methods of the given names, in the table's order, each once.

    Raises:
        InputError: an unknown name.
    """
    order = list(METHODS)
    found = {name: method_named(name) for name in names}
    return sorted(found.values(), key=lambda m: order.index(m.name.partition(_AT)[0]))
