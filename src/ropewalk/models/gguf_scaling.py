"""The scaling of a GGUF file, by the rules of llama.cpp."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..rope import Rope
from ..scaling import Linear, Llama3, LongRoPE, Plain, Proportional, Scaling, YaRN
from .gguf_families import RUNTIME, Architecture
from .gguf_values import GGUFValues
from .plan import Sourced
from .spellings import hint

_TYPES = ("none", "linear", "yarn", "longrope")
# Loaders that take LongRoPE's divisors wherever they are, whatever rope.scaling.type says.
_DIVISORS_UNASKED = frozenset({"phi3", "phimoe", "minicpm3"})
# Divisors are single precision, and so was the arithmetic that made them: the wavelength
# carries a few 1e-7, which the ramp between the bands enlarges by at most its slope.
_DIVISOR_TOLERANCE = 1e-5
# Lanes that do not turn are written as a divisor too large to matter.
_STILL = 1e20
_LLAMA3_ORIGINALS = (8192, 4096, 16384, 32768)


class GGUFScaling:
    """Builds the scalings of a file.

    Args:
        values: its metadata.
        architecture: the row of the table.
        stated: ``context_length``, or None.
    """

    def __init__(self, values: GGUFValues, architecture: Architecture, stated: int | None) -> None:
        self.values, self.architecture, self.stated = values, architecture, stated

    def of(self, *, local: bool, rotary_dim: int, theta: float) -> Scaling:
        """Return the scaling of windowed layers or of the others.

        Raises:
            InputError: an unknown type, or values and tensors that contradict each other.
        """
        if local and not self.architecture.local_scaled:
            return Plain(original_length=self.stated)
        divisors = self.values.header.floats("rope_freqs.weight")
        kind, factor = self._kind()
        if kind == "none" and self._divisors_unasked():
            kind = "longrope"
        try:
            scaling = self._build(kind, factor)
            if divisors is not None:
                scaling = self._with_divisors(scaling, divisors, rotary_dim, theta)
        except InputError as error:
            if error.where.startswith(self.values.label):
                raise
            raise error.within(self.values.label) from None
        if "scaling" not in self.values.sources:
            origin = self.values.origin("rope.scaling.type")
            if divisors is not None:
                origin = f"{self.values.name}: tensor rope_freqs.weight"
            elif kind == "none" and self.values.get("rope.scaling.type") is None:
                origin = "no scaling in the file: not stretched"
            self.values.sources["scaling"] = Sourced(repr(scaling), origin)
        return scaling

    def _kind(self) -> tuple[str, float | None]:
        """Return scaling type and factor; a factor of 0 counts as missing."""
        values = self.values
        kind = values.get("rope.scaling.type")
        factor = values.number("rope.scaling.factor") or values.number("rope.scale_linear")
        if kind is None:
            if factor is None or factor == 1:
                return "none", None
            values.note(
                f"rope.scaling.type is missing beside a factor; {RUNTIME} takes it as linear"
            )
            return "linear", factor
        if kind not in _TYPES:
            near = hint(str(kind), _TYPES)
            raise InputError(
                values.where("rope.scaling.type"),
                found=repr(kind),
                expected="one of " + ", ".join(_TYPES),
                fix=f"did you mean {near!r}?" if near else "correct the name",
            )
        if kind == "none" and factor not in (None, 1):
            values.note(f"rope.scaling.factor {factor:g} is not used: rope.scaling.type is none")
        return str(kind), factor

    def _divisors_unasked(self) -> bool:
        values = self.values
        if values.prefix not in _DIVISORS_UNASKED:
            return False
        if values.header.floats("rope_factors_long.weight") is None:
            return False
        values.note(f"rope.scaling.type is not longrope: {RUNTIME} takes the divisors all the same")
        return True

    def _build(self, kind: str, factor: float | None) -> Scaling:
        if kind in ("none", "linear"):
            self._refuse_amplitude(kind)
        if kind == "none":
            return Plain(original_length=self._stated_original() or self.stated)
        if kind == "longrope":
            return self._longrope(factor)
        if factor is None:
            raise InputError(
                self.values.where("rope.scaling.factor"),
                found="nothing",
                expected=f"the factor of scaling {kind}",
                fix="convert the model again",
            )
        if kind == "yarn":
            return self._yarn(factor)
        original = self._stated_original()
        if original is None:
            self.values.note(
                "linear scaling: the file does not say whether context_length is the length "
                "before or after stretching, so the original length is unknown"
            )
        return Linear(factor=factor, original_length=original)

    def _refuse_amplitude(self, kind: str) -> None:
        multiplier = self.values.number("rope.scaling.attn_factor")
        if multiplier not in (None, 1):
            raise InputError(
                self.values.where("rope.scaling.attn_factor"),
                found=f"{multiplier:g} with scaling {kind}",
                expected="no factor on cos and sin, or type yarn or longrope",
                fix=f"remove the key: {RUNTIME} multiplies cos and sin by it",
            )

    def _stated_original(self) -> int | None:
        key = "rope.scaling.original_context_length"
        found = self.values.count(key) if self.values.get(key) else None
        if found is not None:
            self.values.sources["original_length"] = Sourced(found, self.values.origin(key))
        return found

    def _original(self) -> int:
        found = self._stated_original()
        if found is not None:
            return found
        if self.stated is None:
            raise InputError(
                self.values.where("rope.scaling.original_context_length"),
                found="nothing",
                expected="the trained length, which this scaling needs",
                fix="convert the model again",
            )
        self.values.note(
            f"rope.scaling.original_context_length is missing; taken to be context_length "
            f"{self.stated}, as {RUNTIME} does"
        )
        return self.stated

    def _yarn(self, factor: float) -> Scaling:
        values, rule = self.values, self.architecture
        betas = {"beta_fast": rule.beta_fast, "beta_slow": 1.0}
        for name, default in betas.items():
            found = values.number(f"rope.scaling.yarn_{name}")
            if found is None or found == default:
                continue
            if rule.betas:
                betas[name] = found
            else:
                values.note(
                    f"rope.scaling.yarn_{name} {found:g} is not used: {RUNTIME} runs this "
                    f"architecture with {default:g}"
                )
        for name in ("yarn_attn_factor", "yarn_ext_factor"):
            found = values.number(f"rope.scaling.{name}")
            if found is not None and found != 1:
                values.note(f"rope.scaling.{name} {found:g} is not used by {RUNTIME} with YaRN")
        slope = values.number("rope.scaling.yarn_log_multiplier") or 0.0
        if slope and not rule.log_multiplier:
            values.note(
                f"rope.scaling.yarn_log_multiplier {slope:g} is not used for this architecture"
            )
            slope = 0.0
        mscale: float | None = None
        if slope:
            slope = float(f"{slope / rule.log_multiplier:.7g}")
            # With latent attention the file keeps one number, because both are equal there.
            mscale = slope if rule.latent else 1.0
            values.sources["mscale_all_dim"] = Sourced(
                slope, values.origin("rope.scaling.yarn_log_multiplier")
            )
        scaling = YaRN(
            factor=factor,
            original_length=self._original(),
            beta_fast=betas["beta_fast"],
            beta_slow=betas["beta_slow"],
            mscale=mscale,
            mscale_all_dim=slope or None,
        )
        multiplier = values.number("rope.scaling.attn_factor")
        if multiplier is None or multiplier == 1:
            return scaling
        values.note(
            f"rope.scaling.attn_factor {multiplier:g} multiplies YaRN's own attention factor "
            f"{scaling.amplitude():g}"
        )
        return dataclasses.replace(scaling, attention_factor=multiplier * scaling.amplitude())

    def _longrope(self, factor: float | None) -> Scaling:
        values = self.values
        if factor not in (None, 1):
            raise InputError(
                values.where("rope.scaling.factor"),
                found=f"{factor:g} with type longrope",
                expected="no factor, because the divisors hold it",
                fix="remove the key",
            )
        lists: dict[str, Any] = {}
        for field, tensor in (
            ("short_factor", "rope_factors_short.weight"),
            ("long_factor", "rope_factors_long.weight"),
        ):
            found = values.header.floats(tensor)
            if found is None:
                raise InputError(
                    f"{values.label}: {tensor}",
                    found="no such tensor",
                    expected="the divisors of scaling longrope",
                    fix="convert the model again",
                )
            lists[field] = tuple(found.tolist())
        amplitude = values.number("rope.scaling.attn_factor")
        if amplitude is None:
            values.note(
                f"rope.scaling.attn_factor is missing; {RUNTIME} multiplies cos and sin by 1"
            )
            amplitude = 1.0
        values.note(
            f"{RUNTIME} chooses the short or the long divisors once, by the context it was "
            "started with, not by the text"
        )
        return LongRoPE(original_length=self._original(), attention_factor=amplitude, **lists)

    def _with_divisors(
        self, scaling: Scaling, divisors: npt.NDArray[np.float64], rotary_dim: int, theta: float
    ) -> Scaling:
        """Return the scaling that the divisors of ``rope_freqs.weight`` amount to."""
        where = f"{self.values.label}: rope_freqs.weight"
        if not isinstance(scaling, Plain):
            raise InputError(
                where,
                found=f"divisors together with rope.scaling.type {scaling.kind}",
                expected="one of the two",
                fix="convert the model again",
            )
        if len(divisors) != rotary_dim // 2:
            raise InputError(
                where,
                found=f"{len(divisors)} values",
                expected=f"rotary_dim/2 = {rotary_dim // 2}",
                fix="convert the model again",
            )
        if not np.isfinite(divisors).all() or (divisors <= 0).any():
            raise InputError(
                where,
                found="values that are not positive numbers",
                expected="divisors",
                fix="convert the model again",
            )
        original = scaling.original_length
        recognised = self._recognise(divisors, rotary_dim, theta, original)
        if recognised is not None:
            return recognised
        if original is None:
            raise InputError(
                self.values.where("context_length"),
                found="nothing",
                expected="a length beside the divisors of rope_freqs.weight",
                fix="convert the model again",
            )
        self.values.note(
            "the divisors of rope_freqs.weight are those of no known scaling; they are kept as "
            "they stand, for texts of every length"
        )
        values = tuple(divisors.tolist())
        return LongRoPE(
            short_factor=values,
            long_factor=values,
            original_length=original,
            attention_factor=1.0,
        )

    def _recognise(
        self,
        divisors: npt.NDArray[np.float64],
        rotary_dim: int,
        theta: float,
        original: int | None,
    ) -> Scaling | None:
        if (divisors == 1).all():
            return Plain(original_length=original)
        turning = int((divisors < _STILL).sum())
        if 0 < turning < len(divisors) and (divisors[:turning] == 1).all():
            self.values.note("rope_freqs.weight stops the slow planes: proportional rope")
            return Proportional(share=turning / len(divisors), original_length=original)
        factor = float(f"{divisors[-1]:.6g}")
        if factor < 1:
            return None
        plain = Rope(head_dim=rotary_dim, theta=theta).inv_freq()
        for length in _LLAMA3_ORIGINALS:
            made = Llama3(
                factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_length=length
            )
            expected = plain / Rope(head_dim=rotary_dim, theta=theta, scaling=made).inv_freq()
            if np.abs(divisors / expected - 1).max() <= _DIVISOR_TOLERANCE:
                self.values.note(
                    "the divisors of rope_freqs.weight equal those of llama3 scaling with "
                    f"factor {factor:g} and original length {length}"
                )
                self.values.sources["original_length"] = Sourced(
                    length, f"derived: {self.values.name}: tensor rope_freqs.weight"
                )
                return made
        return None
