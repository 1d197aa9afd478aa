"""Rotary packages that are no engines of their own, run on random heads beside `rotate`.

torchtune does not start without a GPU package, so its modules are taken out of the source.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import engine_code
import pytest

from ropewalk import NTK, Linear, Llama3, Rope, rotate

torch = pytest.importorskip("torch")

LANES, TIME, THETA = 64, 96, 10000.0
PLAIN = Rope(head_dim=LANES, theta=THETA, pairing="adjacent")
LLAMA3 = PLAIN.with_scaling(
    Llama3(factor=8, low_freq_factor=1, high_freq_factor=4, original_length=8192)
)
Rotation = Callable[[Any], Any]


def of_torchtune(file: str, name: str, **sizes: Any) -> Rotation:
    folder = engine_code.place("torchtune")
    assert folder is not None
    space = engine_code._space(torch=torch, nn=torch.nn)
    exec("from typing import *", space)
    engine_code.take(folder / file, {name: None}, space)
    module = space[name](LANES, max_seq_len=TIME, **sizes)
    return lambda x: module(x.transpose(1, 2)).transpose(1, 2)


def of_rotary_embedding_torch(**options: Any) -> Rotation:
    from rotary_embedding_torch import RotaryEmbedding

    module = RotaryEmbedding(dim=LANES, **options)
    return lambda x: module.rotate_queries_or_keys(x)


def of_x_transformers(**options: Any) -> Rotation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it compiles with torch.jit.script, which is deprecated
        from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    freqs, scale = RotaryEmbedding(LANES, **options).forward_from_seq_len(TIME)
    return lambda x: apply_rotary_pos_emb(x, freqs, scale)


CASES: dict[str, tuple[str, Rope, Callable[[], Rotation]]] = {
    "torchtune": (
        "torchtune", PLAIN,
        lambda: of_torchtune("modules/position_embeddings.py", "RotaryPositionalEmbeddings"),
    ),
    "torchtune, Llama 3.1": (
        "torchtune", LLAMA3,
        lambda: of_torchtune(
            "models/llama3_1/_position_embeddings.py", "Llama3ScaledRoPE", base=10000
        ),
    ),
    "rotary-embedding-torch": (
        "rotary_embedding_torch", PLAIN, of_rotary_embedding_torch,
    ),
    "rotary-embedding-torch, interpolated": (
        "rotary_embedding_torch", PLAIN.with_scaling(Linear(factor=4)),
        lambda: of_rotary_embedding_torch(interpolate_factor=4.0),
    ),
    "rotary-embedding-torch, NTK": (
        "rotary_embedding_torch", PLAIN.with_scaling(NTK(factor=4)),
        lambda: of_rotary_embedding_torch(theta_rescale_factor=4.0),
    ),
    "x-transformers": ("x_transformers", PLAIN, of_x_transformers),
    "x-transformers, interpolated": (
        "x_transformers", PLAIN.with_scaling(Linear(factor=4)),
        lambda: of_x_transformers(interpolation_factor=4.0),
    ),
    "x-transformers, NTK": (
        "x_transformers", PLAIN.with_scaling(NTK(factor=4)),
        lambda: of_x_transformers(base_rescale_factor=4.0),
    ),
}  # fmt: skip
AT_HAND = [name for name, (package, *_) in CASES.items() if engine_code.place(package) is not None]


@pytest.mark.parametrize("name", AT_HAND)
def test_package_turns_as_rotate_does(name: str) -> None:
    _, rope, build = CASES[name]
    x = torch.randn(2, 3, TIME, LANES, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        found = build()(x)
    cos, sin = rope.cos_sin(torch.arange(TIME))
    wanted = rotate(x, cos, sin, pairing="adjacent", order="heads_time")
    # Its angles are float32 products of float32 powers: off by ln(theta) and a few more units
    # of 2^-24 at position 1; the rotation itself adds two products, a sum and the tables.
    turned = (TIME - 1) * (2 * math.log(THETA) + 8) * 2.0**-24
    assert float((found - wanted).abs().max()) <= float(x.abs().max()) * 2 * (turned + 2.0**-22)
    other = PLAIN.with_scaling(Linear(factor=2)).cos_sin(torch.arange(TIME))
    apart = rotate(x, *other, pairing="adjacent", order="heads_time") - found
    assert float(apart.abs().max()) > 0.5
