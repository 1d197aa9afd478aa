"""What `accelerate` did with a model, as values and in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TakenOver:
    """A function in whose place Ropewalk rotates.

    Attributes:
        name: its module and name.
        how: the way it rotates, in words.
        layers: how many modules of the model refer to it. Those that skip the rotation
            (layers without positions) are among them.
    """

    name: str
    how: str
    layers: int


@dataclass(frozen=True)
class LeftAlone:
    """A function or a rotary module that was not touched.

    Attributes:
        name: module and name of the function, or the path of the module within the model.
        why: the reason, in words.
    """

    name: str
    why: str


@dataclass(frozen=True)
class Report:
    """What `accelerate` did with a model.

    Attributes:
        functions: what Ropewalk's rotation stands in for.
        rotary_modules: the paths of the modules whose tables it rotates with.
        left: what was not touched, and why.
        in_place: whether queries and keys are rotated where they lie.
    """

    functions: tuple[TakenOver, ...]
    rotary_modules: tuple[str, ...]
    left: tuple[LeftAlone, ...]
    in_place: bool

    def __str__(self) -> str:
        mode = " in place" if self.in_place else ""
        lines = [
            f"{f.name}: rotated by ropewalk{mode} ({f.how}), "
            f"{f.layers} layer{'' if f.layers == 1 else 's'}"
            for f in self.functions
        ]
        lines += [f"{name}: its tables are used" for name in self.rotary_modules]
        lines += [f"{item.name}: left alone: {item.why}" for item in self.left]
        return "\n".join(lines or ["no rotation was found in this model; nothing was changed"])
