"""Telling the pairing of a model's weights, with evidence, or abstaining."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..models.gguf_header import GGUFHeader
from ..models.pairing_note import noted_pairing
from ..rope import Pairing
from .cross_cosines import HeadCosines, head_cosines
from .model_weights import NOTE, find_weights
from .pairing_evidence import Contrast, contrasts, norm_contrasts

LARGEST_P = 1e-5
LEAST_RATIO = 1.5
LEAST_NEAREST = 1.4
LEAST_LEAD = 1.5
LEAST_ALIGNMENT = 1.5
"""What makes a finding clear: see docs/pairing.md for how far real models lie from these."""
_BOTH = "both stand out"
_DEVIATIONS = 3
"""How far beyond chance the energy of a single layer's pairs must lie."""


@dataclass(frozen=True)
class PairingFinding:
    """What the weights say about their pairing.

    Attributes:
        model: the path that was looked at.
        found: the arrangement of query and key lanes that stands out, or None if none clearly
            does. Besides ``half`` and ``adjacent``, a mis-permuted file shows as one of the
            mixed arrangements.
        expected: the pairing that the file's format and family mean, or the note beside it.
        expected_from: where that is said.
        contrasts: the evidence, per arrangement.
        norms: the plain comparison of row norms, for information.
        layers: the layers that were read.
        heads: how many key heads were read.
        planes: planes of each head.
        reason: why nothing was found, in one sentence; empty if something was.
        others: layers that clearly have another arrangement than most, by that arrangement.
    """

    model: str
    found: str | None
    expected: Pairing
    expected_from: str
    contrasts: tuple[Contrast, ...]
    norms: tuple[Contrast, ...]
    layers: tuple[int, ...]
    heads: int
    planes: int
    reason: str
    others: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    @property
    def agrees(self) -> bool | None:
        """Whether the weights are as expected; None if they do not clearly say."""
        return None if self.found is None else self.found == self.expected

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**dataclasses.asdict(self), "agrees": self.agrees}


def find_pairing(model: Path, header: GGUFHeader | None = None) -> PairingFinding:
    """Tell from the weights alone which lanes of queries and keys make a plane.

    Args:
        model: a folder of safetensors or a GGUF file.
        header: that of the GGUF file, where it is open already.

    Raises:
        InputError: no rope, no readable weights, or an adapter.
    """
    weights = find_weights(model, header=header)
    if weights.kind == "adapter":
        raise InputError(
            str(model),
            found="a LoRA adapter",
            expected="a whole model",
            fix="look at its base model: an adapter has the pairing of its base",
        )
    heads = head_cosines(weights)
    planes = weights.rope.planes
    same = [h for h in heads if h.cosines.shape[1:] == heads[0].cosines.shape[1:]]
    found = tuple(contrasts(same))
    noted = noted_pairing(weights.folder / weights.files[0]) is not None
    name, reason = judge(found, planes)
    others = {} if found[0].p == 1 else unlike_layers(same, found)
    if others and (name is not None or reason.endswith(_BOTH)):
        name, reason = None, _unlike(others, found)
    else:
        others = {}
    return PairingFinding(
        model=str(model),
        found=name,
        expected=weights.stored,
        expected_from=NOTE
        if noted
        else f"the {'architecture' if weights.kind == 'gguf' else 'family'} "
        f"{weights.plan.model_type}",
        contrasts=found,
        norms=tuple(norm_contrasts(same)),
        layers=tuple(sorted({head.layer for head in same})),
        heads=len(same),
        planes=planes,
        reason=reason,
        others=others,
    )


def weights_agree(model: Path, header: GGUFHeader | None = None) -> PairingFinding | None:
    """Return a finding that contradicts the file's format and family, or None.

    For checks of many models: None also where the weights do not clearly say, are not there, or
    are of a kind that is not read.
    """
    try:
        finding = find_pairing(model, header)
    except InputError:
        return None
    # One layer alone may look unlike the others by chance, where there are many.
    mixed = any(len(layers) > 1 for layers in finding.others.values())
    return finding if mixed or finding.agrees is False else None


def _likely(found: tuple[Contrast, ...]) -> list[Contrast]:
    # Where queries and keys lie in different orders, a lane of one is aligned with the lane of
    # the other that it is multiplied with, and no longer with that of its own index.
    return [c for c in found if c.alignment == 1 or c.alignment >= LEAST_ALIGNMENT]


def judge(found: tuple[Contrast, ...], planes: int) -> tuple[str | None, str]:
    """Return the arrangement that clearly stands out, or None and the reason why none does."""
    if planes < 2:
        return None, "with one plane both pairings are the same"
    likely = _likely(found)
    best = max(likely, key=lambda c: c.z)
    second = max((c for c in likely if c is not best), key=lambda c: c.ratio)
    if best.p > LARGEST_P:
        return None, (
            f"no arrangement stands out from shifted pairs: the best, {best.arrangement}, has "
            f"p = {best.p:.2g}, and {LARGEST_P:g} is asked"
        )
    if best.ratio < LEAST_RATIO or best.nearest < LEAST_NEAREST:
        return None, (
            f"{best.arrangement} stands out by a factor of {best.ratio:.2f} only "
            f"({best.nearest:.2f} against shifts of one): {LEAST_RATIO} and {LEAST_NEAREST} are "
            "asked"
        )
    # The arrangements share some planes, so that the right one lifts others a little.
    if second.ratio**LEAST_LEAD > best.ratio:
        return None, f"{best.arrangement} and {second.arrangement} {_BOTH}"
    return best.arrangement, ""


def unlike_layers(
    heads: Sequence[HeadCosines], found: tuple[Contrast, ...]
) -> dict[str, tuple[int, ...]]:
    """Return the layers in which clearly another arrangement stands out than in the whole.

    A file in which some layers were permuted still gives one answer over all of them.

    Args:
        heads: of all layers that were read.
        found: the contrasts over all of them.
    """
    whole = max(_likely(found), key=lambda c: c.z).arrangement
    out: dict[str, tuple[int, ...]] = {}
    for layer in sorted({head.layer for head in heads}):
        own = [head for head in heads if head.layer == layer]
        here = {c.arrangement: c for c in contrasts(own)}
        likely = _likely(tuple(here.values()))
        best = max(likely, key=lambda c: c.ratio)
        # The logarithm of the mean of n squares of normal numbers varies by the root of 2 / n.
        lanes = own[0].cosines.shape[1]
        chance = math.exp(_DEVIATIONS * math.sqrt(2 / (lanes // 2 * len(own))))
        rest = [c.ratio for c in likely if c is not best] + [here[whole].ratio]
        if (
            best.arrangement != whole
            and best.ratio >= max(LEAST_RATIO, chance)
            and best.nearest >= LEAST_NEAREST
            and best.ratio > max(rest) ** LEAST_LEAD
        ):
            out[best.arrangement] = (*out.get(best.arrangement, ()), layer)
    return out


def _unlike(others: dict[str, tuple[int, ...]], found: tuple[Contrast, ...]) -> str:
    parts = [
        f"{arrangement} in layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
        for arrangement, layers in others.items()
    ]
    most = max(_likely(found), key=lambda c: c.z).arrangement
    return f"not all layers are alike: {'; '.join(parts)}; {most} in most others"
