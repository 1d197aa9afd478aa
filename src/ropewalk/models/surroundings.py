"""What a rope block leaves to the rest of the config."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Surroundings:
    """What a scaling needs from outside its block.

    Attributes:
        stated_length: the length the file says the model can take.
        plain_length: the trained length of a model without scaling.
        share: share of the lanes that turn, for proportional rope.
    """

    stated_length: int | None
    plain_length: int | None
    share: float
