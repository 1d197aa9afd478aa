"""Flags of fine-tuning scripts that change a base or a scaling: those of the YaRN repository.

``--scaling-type ntk --scaling-factor N --rope-theta B``: with ``ntk`` and factor 1 the base
alone changes.
"""

from __future__ import annotations

from ..errors import InputError
from ..scaling import Linear, Plain, Scaling
from .flags import Flags
from .fragment import Fragment
from .plan import Sourced

_KINDS = ("none", "linear", "ntk", "yarn", "dynamic-ntk", "partial-ntk", "dynamic-yarn", "rerope")


def read_training_flags(flags: Flags) -> Fragment | None:
    """Read the flags of a fine-tuning script, or return None where there are none.

    Raises:
        InputError: an unknown scaling, or a number that is none.
    """
    if "scaling-type" not in flags.values:
        return None
    kind = str(flags.values["scaling-type"])
    if kind not in _KINDS:
        raise InputError(
            f"{flags.label}: --scaling-type",
            found=repr(kind),
            expected="one of " + ", ".join(_KINDS),
            fix="correct the name",
        )
    values = {"scaling": Sourced(kind, "--scaling-type")}
    for concept, name in (("factor", "scaling-factor"), ("theta", "rope-theta")):
        text = flags.values.get(name)
        if text is None:
            continue
        try:
            values[concept] = Sourced(float(text), f"--{name}")
        except (TypeError, ValueError):
            raise InputError(
                f"{flags.label}: --{name}",
                found=repr(text),
                expected="a number",
                fix="correct the value",
            ) from None
    factor = values["factor"].value if "factor" in values else 1.0
    scaling: Scaling | None = None
    notes = []
    if kind == "none" or factor == 1:
        scaling = Plain()
        if kind != "none":
            notes.append(f"factor 1: {kind} changes nothing more than the base")
    elif kind == "linear":
        scaling = Linear(factor=factor)
    return Fragment(
        flags.label, "training", "the model that is trained", values, scaling, tuple(notes)
    )
