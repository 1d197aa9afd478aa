"""What a text says about positions where it does not describe a whole model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..scaling import Scaling
from .plan import Sourced


@dataclass(frozen=True)
class Fragment:
    """Positional settings without the sizes that make them a model.

    An override, an engine's command line, or a file that leaves the sizes to its program.

    Attributes:
        path: the file, or ``command line`` for a text.
        format: the kind of text, e.g. ``llama.cpp`` or ``vllm``.
        missing: what keeps it from being a whole model, in words.
        values: what it says, by concept, each with its key.
        scaling: the scaling it asks for, where it can be told without the model; else None.
        notes: what a user should know, in whole sentences.
    """

    path: str
    format: str
    missing: str
    values: dict[str, Sourced]
    scaling: Scaling | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "path": self.path,
            "format": self.format,
            "missing": self.missing,
            "values": {name: dataclasses.asdict(item) for name, item in self.values.items()},
            "scaling": None if self.scaling is None else self.scaling.to_dict(),
            "notes": list(self.notes),
        }

    def refusal(self) -> InputError:
        """Return the error that a whole model was needed."""
        return InputError(
            self.path,
            found=f"{self.format} settings without {self.missing}",
            expected="the description of a whole model",
            fix="give the model's own file, and these settings with --engine-args or --overrides",
        )
