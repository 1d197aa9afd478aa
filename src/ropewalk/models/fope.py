"""FoPE: what a config says about it, so that a refusal can.

Frequencies that the model's window holds no whole turn of are dropped; the cosines and sines of
the others are mixed by matrices that are trained. The frequencies follow from the config, the
matrices do not.

Source: Hua et al. 2024, Fourier Position Embedding, arXiv 2412.17739; ``FourierRotaryEmbedding``
of vLLM 0.33, read from source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..rope import Rope
from .spellings import BLOCKS

SWITCH = "use_fope"
_COUNT = "num_inv_freq"


def without_switch(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config as if its rope were plain."""
    out = {key: value for key, value in values.items() if key not in _KEYS}
    for name in BLOCKS:
        block = values.get(name)
        if isinstance(block, Mapping):
            out[name] = {key: value for key, value in block.items() if key not in _KEYS}
    return out


_KEYS = (SWITCH, _COUNT, "fope_sep_head", "fope_init_factor")


def kept_frequencies(rope: Rope, values: Mapping[str, Any], stated: int | None) -> str:
    """Say how many of the rope's frequencies are kept; an empty text where that is unknown.

    Args:
        rope: the rope that the config defines.
        values: the config.
        stated: the length that the model can take, whose whole turns are counted.
    """
    blocks = [values, *(values.get(name) for name in BLOCKS)]
    given = [block.get(_COUNT) for block in blocks if isinstance(block, Mapping)]
    counts = [count for count in given if type(count) is int and count >= 0]
    if counts:
        kept = min(counts[0], rope.planes)
    elif stated is not None:
        kept = int((rope.inv_freq() > 2 * math.pi / stated).sum())
    else:
        return ""
    return f"{kept} of the {rope.planes} frequencies of the rope (theta {rope.theta:g}) are kept"
