"""One row of the coverage page for every rotary class: built, compared, told in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from coverage_calls import at_positions, beyond, call_of, on_a_line
from coverage_rotation import rotation_of
from coverage_run import (
    MismatchError,
    axes_of,
    compare_tables,
    demand,
    encodings_of,
    ladders_of,
    table,
    with_block,
)
from rotary_classes import Built, built_classes

from ropewalk import InputError, Rope
from ropewalk.axes import MultiAxisRope
from ropewalk.encodings.lane_turns import LaneTurns
from ropewalk.models import FAMILIES

# Why a class's tables are not demanded to be equal bit for bit.
LOOSE: dict[str, tuple[str, str]] = {
    "MusicFlamingoRotaryEmbedding": (
        "repeated",
        "angles are products of three, in another order",
    ),
    "DeepseekV2RotaryEmbedding": ("complex", "torch.polar rounds cos and sin by itself"),
    "Llama4TextRotaryEmbedding": ("complex", "torch.polar rounds cos and sin by itself"),
}


_SHORT_ONLY = (
    "LongRoPE is compared within the original length only: past it the class keeps the short list, "
    "and the reader describes the formula, with a note"
)


@dataclass
class Row:
    """What the run found for one class with one config."""

    built: Built
    variant: str = ""
    tables: str = ""
    scalings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    not_accepted: dict[str, str] = field(default_factory=dict)
    rotation: str = ""
    remarks: list[str] = field(default_factory=list)
    failed: str = ""

    @property
    def outcome(self) -> str:
        """``reproduced`` only where tables and rotation were compared."""
        if self.failed:
            return "failed"
        return "reproduced" if self.tables and self.rotation else "refused"


def run(built: Built) -> Row:
    """Compare one class with one config."""
    row = Row(built)
    try:
        _compare(built, row)
    except (MismatchError, InputError) as error:
        row.failed = str(error)
    return row


def _compare(built: Built, row: Row) -> None:
    config = built.config()
    family = FAMILIES.get(str(built.values(config)["model_type"]))
    reordered = family is not None and (bool(family.pairing_switch) or family.reordered)
    if built.name.endswith("Attention"):
        _compare_attention(built, row, config)
        return
    encodings = encodings_of(built, config)
    rotary = built.rotary(config).eval()
    words, layouts = list[str](), set[str]()
    loose = LOOSE.get(built.name)
    for kind, positions in encodings.items():
        theirs, at = call_of(built)(rotary, config, positions, kind)
        layout = compare_tables(positions, theirs, at, loose=loose[0] if loose else None)
        layouts.add(layout)
        words.append(describe(positions))
        cos, sin = table(positions, at, "float32", None)
        row.rotation = rotation_of(built, positions, layout, (cos, sin), reordered)
    demand(len(layouts) == 1, f"layouts {layouts}")
    row.tables = "equal" if loose is None else "as far as float32 goes"
    if loose is not None:
        row.remarks.append(loose[1])
    row.variant = "; ".join(dict.fromkeys(words))
    if family is not None:
        row.remarks += family.remarks
    if family is not None and not family.only_default and call_of(built) is on_a_line:
        _compare_scalings(built, row)
    elif family is not None and family.only_default:
        _demand_refusal(built, config, row)


def _compare_attention(built: Built, row: Row, config: Any) -> None:
    """SAM's attention modules and V-JEPA 2's: no tables in them, or tables formed on the way."""
    positions = next(iter(encodings_of(built, config).values()))
    generator = torch.Generator().manual_seed(5)
    at = torch.randint(0, 14, (axes_of(positions), 10), generator=generator)
    row.variant = describe(positions)
    if isinstance(positions, LaneTurns):
        module = built.rotary(
            config,
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
        ).eval()
        x = torch.randn((1, 2, 10, positions.head_dim), generator=generator)
        with torch.no_grad():
            theirs = module.apply_rotary_embeddings(x, tuple(at[:, None, None].float()))
        mine = positions.apply(x, *positions.cos_sin(at, precision="float32"))
        worst = float((theirs - mine).abs().max())
        # Frequencies as powers of an array here and of a number there, angles up to 14.
        bound = 4 * float(x.abs().max()) * 14 * 2.0**-24 * (8 + 2 * math.log(1e4))
        demand(worst <= bound, f"lanes differ by {worst:g}, bound {bound:g}")
        norms = (mine.norm(dim=-1) / x.norm(dim=-1) - 1).abs().max()
        demand(float(norms) > 0.01, "it keeps norms like a rotation")
        row.tables, row.rotation = "through the module's method", "no rotation: tiled table"
        row.remarks.append(positions.reason)
        return
    cos, sin = table(positions, at, "float32", None)
    row.rotation = rotation_of(built, positions, "repeated", (cos, sin), False)
    row.tables = "made by the vision class of the folder"


def describe(positions: Any) -> str:
    """Name the variant in a few words."""
    if isinstance(positions, LaneTurns):
        return f"{len(positions.axes)} axes, lane by lane, no rotation"
    if isinstance(positions, MultiAxisRope):
        return f"{positions.layout()}, {positions.pairing}"
    rope: Rope = positions
    share = "" if rope.rotary_dim == rope.head_dim else f", {rope.rotary_dim} of {rope.head_dim}"
    place = f" from {rope.rotary_offset}" if rope.rotary_offset else ""
    scaled = "" if rope.scaling.kind == "plain" else f", {rope.scaling.kind}"
    turned = ", reversed" if rope.direction < 0 else ""
    return f"theta {rope.theta:g}{share}{place}, {rope.pairing}{scaled}{turned}"


# Every scaling that a class accepts.


def blocks(built: Built, length: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a rope block for every scaling of transformers."""
    original = {"original_max_position_embeddings": 4096}
    yield "linear", {"rope_type": "linear", "factor": 3.7}
    if length is not None:
        yield "dynamic", {"rope_type": "dynamic", "factor": 2.0}
    yield "yarn", {"rope_type": "yarn", "factor": 8.0, **original}
    yield (
        "yarn",
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "mscale": 1.0,
            "mscale_all_dim": 0.707,
            **original,
        },
    )
    yield (
        "llama3",
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            **original,
        },
    )
    longrope = {
        "rope_type": "longrope",
        "short_factor": [1 + 0.03 * i for i in range(256)],
        "long_factor": [1.08 + 1.37 * i for i in range(256)],
        **original,
    }
    yield "longrope", {**longrope, "factor": 32.0}
    if built.name == "PhimoeRotaryEmbedding":
        yield "longrope", {**longrope, "short_mscale": 1.2, "long_mscale": 1.3}
    if built.name.startswith("HunYuan"):
        yield "dynamic with alpha", {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}


def _compare_scalings(built: Built, row: Row) -> None:
    plain = built.config()
    length = getattr(plain, "max_position_embeddings", None)
    encodings = encodings_of(built, plain)
    planes = {kind: ladders_of(found)[0].planes for kind, found in encodings.items()}
    kinds, first = list(encodings), next(iter(encodings.values()))
    for name, block in blocks(built, length):
        try:
            config = built.config(rope_parameters=with_block(plain, block, planes))
            for kind in kinds:
                at_positions(built.rotary(config).eval(), _ids(first), kind)
        except Exception as error:  # whatever its own checks, or its own faults, raise
            row.not_accepted.setdefault(name, type(error).__name__)
            continue
        _compare_scaling(built, config, name)
        if name == "longrope" and built.name == "PhimoeRotaryEmbedding":
            row.remarks.append(_SHORT_ONLY)
        if name not in row.scalings:
            row.scalings.append(name)


def _ids(positions: Any) -> torch.Tensor:
    axes = axes_of(positions)
    return torch.zeros(axes, 1, dtype=torch.int64) if axes else torch.zeros(1, dtype=torch.int64)


def _compare_scaling(built: Built, config: Any, name: str) -> None:
    for kind, positions in encodings_of(built, config).items():
        lengths: list[int | None] = [None]
        if name == "dynamic":
            lengths = [None, int(config.max_position_embeddings)]
        # Phi-MoE's class uses the short list at every length; the reader says so in a note.
        if name == "longrope" and built.name != "PhimoeRotaryEmbedding":
            lengths = [None, 4096]
        for limit in lengths:
            rotary = built.rotary(config).eval()
            if limit is None:
                theirs, at = on_a_line(rotary, config, positions, kind)
            else:
                at = beyond(limit)
                if axes_of(positions):
                    at = at.expand(axes_of(positions), -1)
                theirs = at_positions(rotary, at, kind)
            complex_ = "complex" if len(theirs) == 1 else None
            compare_tables(positions, theirs, at, loose=complex_)


def _demand_refusal(built: Built, config: Any, row: Row) -> None:
    """Every scaling is refused by name, by the class and by the reader."""
    values = built.values(config)
    if not isinstance(values.get("rope_parameters"), dict):
        return
    values["rope_parameters"] = {**values["rope_parameters"], "rope_type": "linear", "factor": 2.0}
    from ropewalk.models import read_config

    plan = None
    try:
        plan = read_config(values, "config.json")
    except InputError as error:
        row.refused.append(str(error))
    if plan is not None:
        # A rope beside the text: left out with a note that says why.
        demand(any("linear" in note for note in plan.notes), "a scaling is not refused")


def every_row() -> list[Row]:
    """Run every class with every config."""
    return [run(built) for built in built_classes()]
