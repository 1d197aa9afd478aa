"""What it would take to run a model at a longer length: the verdict behind `ropewalk extend`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..models import ModelPositions
from ..rope import Rope
from ..scaling import Plain
from .engines import Setting, settings, settings_by_kind
from .kv_cache import kv_cache_bytes
from .methods import METHODS, Method, method_named
from .results import SCHEMA_VERSION, Measurement

AUTO = "auto"
_DEFAULT_METHOD = "yarn"


@dataclass(frozen=True)
class MethodEffect:
    """What one method does to the planes of the rope.

    Attributes:
        method: its name.
        kept: planes whose frequency stays.
        blended: planes slowed down, but not by the factor.
        interpolated: planes slowed down by the factor exactly.
        slowest_by: how many times slower the slowest turning plane becomes.
        amplitude: what cos and sin are multiplied by.
        short_text: ``unchanged`` or ``changed`` within the original length.
    """

    method: str
    kept: int
    blended: int
    interpolated: int
    slowest_by: float
    amplitude: float
    short_text: str


@dataclass(frozen=True)
class Extension:
    """The verdict.

    Attributes:
        model: path or name.
        model_type: family.
        now: the rope that the file describes.
        original_length: tokens trained on before any stretching.
        stated_length: tokens the file says the model can take.
        target: tokens wanted.
        factor: target / original length.
        needed: False where the model takes the target as it is.
        method: the chosen method; None where nothing is needed.
        reasons: why, in whole sentences.
        rope: the stretched rope of the long-range layers; None where nothing is needed.
        effects: every method at this factor.
        engines: what to tell each engine.
        kv_bytes_now: cache bytes at the original length, one sequence, 16 bit.
        kv_bytes: the same at the target.
        warnings: what may go wrong, in whole sentences.
        measurement: what was measured, with ``--measure``.
    """

    model: str
    model_type: str
    now: Rope
    original_length: int
    stated_length: int | None
    target: int
    factor: float
    needed: bool
    method: str | None
    reasons: tuple[str, ...]
    rope: Rope | None
    effects: tuple[MethodEffect, ...]
    engines: tuple[Setting, ...]
    kv_bytes_now: int | None
    kv_bytes: int | None
    warnings: tuple[str, ...]
    measurement: Measurement | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, with ``schema_version``."""
        plain = dataclasses.replace(self, measurement=None, now=None, rope=None)  # type: ignore[arg-type]
        out = dataclasses.asdict(plain)
        out["now"] = self.now.to_dict()
        out["rope"] = None if self.rope is None else self.rope.to_dict()
        out["measurement"] = None if self.measurement is None else self.measurement.to_dict()
        return {"schema_version": SCHEMA_VERSION, **out}


def effect_of(
    method: Method, base: Rope, factor: float, original: int, target: int
) -> MethodEffect:
    """Return what a method at ``factor`` does to the planes, for a text of ``target`` tokens."""
    rope = method.rope(base, factor, original)
    planes = rope.describe(target)
    bands = Counter(plane.band for plane in planes)
    slowest = [p for p in planes if p.band != "still"][-1]
    return MethodEffect(
        method=method.name,
        kept=bands["kept"],
        blended=bands["blended"],
        interpolated=bands["interpolated"],
        slowest_by=1 / slowest.kept,
        amplitude=rope.attention_factor(target),
        short_text="changed" if method.static else "unchanged",
    )


def plan_extension(
    positions: ModelPositions,
    name: str,
    target: int,
    method: str = AUTO,
    measurement: Measurement | None = None,
) -> Extension:
    """Decide how to run a model at ``target`` tokens.

    Args:
        positions: the model's position plan.
        name: how the model is called in the verdict.
        target: tokens wanted.
        method: a name of `METHODS` other than crop, or ``auto``.
        measurement: of this model at the target, which ``auto`` then follows.

    Raises:
        InputError: no rope or no original length; an unknown method; ``auto`` on a model that
            carries a scaling which Ropewalk would have to throw away.
    """
    now, original = positions.stretchable()
    if target < 1:
        raise InputError("--to", found=str(target), expected="a number of tokens", fix="e.g. 32768")
    if method != AUTO and (method not in METHODS or METHODS[method].build is None):
        raise InputError(
            "--method",
            found=repr(method),
            expected="auto or one of " + ", ".join(n for n, m in METHODS.items() if m.build),
            fix="correct the name",
        )
    stated = positions.stated_length
    plain = isinstance(now.scaling, Plain)
    usable = original if plain else max(original, stated or 0)
    factor = target / original
    needed = target > usable or method != AUTO
    chosen, reasons = _choose(positions.path, now, target, factor, usable, method, measurement)
    rope = METHODS[chosen].rope(now, factor, original) if chosen is not None else None
    return Extension(
        model=name,
        model_type=positions.model_type,
        now=now,
        original_length=original,
        stated_length=stated,
        target=target,
        factor=factor,
        needed=needed,
        method=chosen,
        reasons=reasons,
        rope=rope,
        effects=tuple(
            effect_of(m, now, factor, original, target) for m in METHODS.values() if m.build
        )
        if factor > 1
        else (),
        engines=_settings(positions, rope, target) if rope is not None else (),
        kv_bytes_now=kv_cache_bytes(positions, original),
        kv_bytes=kv_cache_bytes(positions, target),
        warnings=_warnings(positions, target, chosen, measurement),
        measurement=measurement,
    )


def _settings(positions: ModelPositions, stretched: Rope, target: int) -> tuple[Setting, ...]:
    """Return the engines' settings: one block, or one per layer type where ropes differ."""
    now = positions.rope
    ropes = {
        layer.kind: stretched if layer.rope == now else layer.rope
        for layer in positions.layers
        if layer.rope is not None
    }
    if len(set(ropes.values())) == 1:
        return settings(stretched, target)
    return settings_by_kind(ropes, target)


def _choose(
    path: str,
    now: Rope,
    target: int,
    factor: float,
    usable: int,
    method: str,
    measurement: Measurement | None,
) -> tuple[str | None, tuple[str, ...]]:
    if method != AUTO:
        return method, ("You asked for this method.",)
    if target <= usable:
        kept = "" if isinstance(now.scaling, Plain) else f" Its {now.scaling.kind} scaling stays."
        return None, (
            (
                f"No change needed: the model takes {usable:,} tokens as it is, and {target:,} "
                f"were asked for.{kept}"
            ),
        )
    scaled_by = now.scaling.kind
    known = scaled_by in METHODS and METHODS[scaled_by].usual
    if not known and not isinstance(now.scaling, Plain):
        raise InputError(
            path,
            found=f"a trained {scaled_by} scaling to {usable:,} tokens",
            expected="a plain rope, or a scaling that can be taken further",
            fix="to throw it away knowingly, name a method, e.g. --method yarn",
        )
    if measurement is not None:
        return _from_measurement(measurement, target)
    if not isinstance(now.scaling, Plain):
        return scaled_by, (
            (
                f"The model already uses {scaled_by}; the same method with factor {factor:.4g} "
                "changes least. It was trained with another factor: measure it."
            ),
        )
    return _DEFAULT_METHOD, (
        (
            "YaRN keeps the fast planes, slows the slow ones, every engine below runs it, and it "
            "holds its loss to the end of the target length where NTK's rises (see docs/results). "
            "This is a rule of thumb: --measure decides on the model itself."
        ),
    )


def _from_measurement(m: Measurement, target: int) -> tuple[str, tuple[str, ...]]:
    """Follow the loss at the target, or retrieval where methods differ clearly in it."""
    rescaled = {
        c.method: c
        for c in m.cells
        if c.length == target and method_named(c.method).build is not None and c.method != "none"
    }
    if not rescaled:
        raise InputError(
            "--methods",
            found="no measured method that rescales",
            expected="at least one of " + ", ".join(n for n, x in METHODS.items() if x.build),
            fix="measure e.g. yarn and ntk",
        )
    best = min(rescaled.values(), key=lambda c: c.tail_perplexity)
    chosen = best.method
    reasons = [
        (
            f"Measured at {target:,} tokens on {m.documents_counted}: {best.method} has "
            f"the lowest perplexity of the rescalings, {best.tail_perplexity:.4g}."
        ),
    ]
    shares = {r.method: r.overall for r in m.retrieval if r.length == target}
    if shares:
        retriever = max(rescaled, key=lambda name: shares[name].hits)
        if shares[retriever].interval.low > shares[chosen].interval.high:
            chosen = retriever
            reasons.append(
                f"But {retriever} finds {shares[retriever].hits} of {shares[retriever].trials} "
                f"passkeys against {shares[best.method].hits}: beyond chance, and what a longer "
                "context is for. It is recommended instead."
            )
        else:
            share = shares[chosen]
            reasons.append(f"It finds {share.hits} of {share.trials} passkeys there.")
    crop = m.cell("crop", target)
    if crop is not None and crop.tail_perplexity < best.tail_perplexity:
        reasons.append(
            f"Plainly: cropping to the last {m.original_length:,} tokens predicts the same "
            f"targets better ({crop.tail_perplexity:.4g}). Without fine-tuning, stretch for "
            "retrieval or as the start of fine-tuning, not for loss."
        )
    return chosen, tuple(reasons)


def _warnings(
    positions: ModelPositions, target: int, chosen: str | None, measurement: Measurement | None
) -> tuple[str, ...]:
    out: list[str] = []
    original = positions.original_length or 0
    if chosen is None:
        return ()
    if chosen == "none":
        out.append(
            f"Positions {original:,} … {target - 1:,} were never trained; choose a method with "
            f"factor {target / original:.4g} or more."
        )
    elif METHODS[chosen].static:
        out.append(
            f"{chosen} is static: it changes outputs at every length, short texts too. Use the "
            "smallest factor that fits, or dynamic, which leaves texts up to "
            f"{original:,} tokens exactly as they are."
        )
    else:
        out.append(
            f"{chosen} changes every key when the text grows past {original:,} tokens: keys cached "
            "after rotation go stale, in most engines silently."
        )
    if "mrope_section" in positions.sources:
        out.append(
            "The model's rope block also has mrope keys; nested configs replace and do not merge: "
            "repeat them in the blocks above (--write keeps them)."
        )
    windows = sorted({la.window for la in positions.layers if la.window is not None and la.rope})
    if windows:
        out.append(
            f"Layers with a window (of {', '.join(f'{w:,}' for w in windows)} tokens) never see "
            "distances beyond it and keep their own rope."
        )
    if measurement is None and chosen != "none":
        out.append("Nothing was measured for this verdict; add --measure.")
    return tuple(out)
