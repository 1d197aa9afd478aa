"""What the GPU kernel's entry points refuse, with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from triton_at_hand import (
    DEVICE,
    ON_GPU,
    kernel,
    random,
    table,
)

from ropewalk.errors import InputError


def refused(**changed: Any) -> Any:
    given = {
        "q": random(2, 3, 2, 6),
        "k": random(2, 3, 1, 6),
        "cos": torch.ones(3, 3, device=DEVICE),
        "sin": torch.ones(3, 3, device=DEVICE),
    } | changed
    return kernel.rotate_qk(**given)


LONG = torch.ones(9, 3, device=DEVICE)
IDS = torch.zeros(3, dtype=torch.int64, device=DEVICE)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no tensor": ({"q": np.ones((2, 3, 2, 6))}, "q: got ndarray"),
    "integers": ({"q": torch.ones(2, 3, 2, 6, dtype=torch.int64)}, "q: got dtype torch.int64"),
    "axes": ({"q": random(6, 6)}, "q: got shape"),
    "more axes": ({"q": random(1, 2, 3, 2, 6)}, "q: got shape"),
    "order": ({"order": "time_first"}, "order: got 'time_first'"),
    "pairing": ({"pairing": "neox"}, "pairing: got 'neox'"),
    "other tokens": ({"k": random(2, 4, 1, 6)}, "k: got shape"),
    "other dtype": ({"k": random(2, 3, 1, 6).half()}, "k: got torch.float16"),
    "other lanes": ({"k": random(2, 3, 1, 8)}, "k: got 8 lanes, expected 6"),
    "doubled cos": (
        {"cos": torch.ones(3, 6, device=DEVICE), "sin": torch.ones(3, 6, device=DEVICE)},
        "cos: got 6 planes.*do not double it",
    ),
    "cos of integers": ({"cos": torch.ones(3, 3, dtype=torch.int32)}, "cos: got dtype"),
    "cos of other tokens": ({"cos": LONG, "sin": LONG}, "cos: got shape"),
    "sin of another shape": ({"sin": LONG}, "sin: got shape"),
    "offset": ({"rotary_offset": -1}, "rotary_offset: got -1"),
    "offset too large": ({"rotary_offset": 1}, "cos: got 3 planes from lane 1"),
    "a table per row": (
        {"cos": LONG[None], "sin": LONG[None], "positions": 1},
        "cos: got shape .* expected a table",
    ),
    "start past the end": ({"positions": 1}, "positions: got rows 1 to 3"),
    "start before": ({"cos": LONG, "sin": LONG, "positions": -1}, "positions: got rows -1 to 1"),
    "positions with fractions": ({"positions": LONG[:, 0]}, "positions: got dtype torch.float32"),
    "positions of other tokens": ({"positions": IDS[:2]}, "positions: got shape"),
    "axes without positions": ({"plane_axes": [0, 0, 0]}, "plane_axes: got plane_axes without"),
    "axes with one row": ({"plane_axes": [0, 0, 0], "positions": IDS}, "positions: got shape"),
    "an axis too many": (
        {"plane_axes": [0, 1, 2], "positions": IDS.expand(2, 3)},
        r"plane_axes: got \[0, 1, 2\], expected 3 integers, 0 to 1",
    ),
    "out of another shape": ({"out_q": random(2, 3, 3, 6)}, "out_q: got shape"),
    "out of another dtype": ({"out_k": random(2, 3, 1, 6).double()}, "out_k: got torch.float64"),
    "expanded out": ({"out_k": random(1, 3, 1, 6).expand(2, 3, 1, 6)}, "out_k: got strides"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    changed, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        refused(**changed)
    assert "\n" not in str(caught.value)


def test_memory_that_overlaps_is_refused() -> None:
    store = random(2, 4, 3, 6)
    q, k = store[:, :3, :2], store[:, :3, 2:]
    refused(q=q, k=k, out_q=q, out_k=k)  # side by side in one storage
    refused(q=q, k=k, out_q=q, out_k=store.new_empty(k.shape))
    for changed in (
        {"q": q, "out_q": store[:, 1:, :2]},  # a token further on
        {"q": q, "out_q": q[:, :, :1].expand(2, 3, 2, 6)},
        {"q": q, "k": q, "out_q": q, "out_k": q},  # would be turned twice
        {"q": q, "k": k, "out_k": store[:, :3, 1:2]},
        {"cos": store[0, :3, 0, :3], "sin": store[1, :3, 0, :3], "q": q, "out_q": q},
    ):
        with pytest.raises(InputError, match=r"shares memory|strides"):
            refused(**changed)


def test_refusals_of_the_fused_operations() -> None:
    q, k = random(1, 2, 2, 6), random(1, 2, 1, 6)
    turn = table(2, 3)
    weight, short = torch.ones(6, device=DEVICE), torch.ones(5, device=DEVICE)
    for weights, more, message in (
        ((weight, short), {}, "k_weight: got shape"),
        ((weight, weight), {"eps": -1.0}, "eps: got -1.0"),
        ((weight, weight), {"weight_offset": "1"}, "weight_offset: got '1'"),
    ):
        with pytest.raises(InputError, match=message):
            kernel.norm_rotate_qk(q, k, *turn, *weights, **more)
    cache, slots = random(5, 4, 1, 6), torch.tensor([[0, 1]], device=DEVICE)
    twin = cache.clone()
    for v, caches, given, message in (
        (random(1, 2, 2, 6), (cache, twin), slots, "v: got 2 heads"),
        (k, (cache[..., :5], twin), slots, "k_cache: got shape"),
        (k, (cache.double(), twin), slots, "k_cache: got torch.float64"),
        (k, (cache, twin[:4]), slots, "v_cache: got shape"),
        (k, (cache, cache), slots, "k_cache: got a tensor that shares"),
        (k, (cache, twin), slots.int(), "slots: got shape"),
        (k, (cache, twin), slots[:, :1], "slots: got shape"),
    ):
        with pytest.raises(InputError, match=message):
            kernel.rotate_into_cache(q, k, v, *turn, *caches, given)


@pytest.mark.skipif(ON_GPU, reason="there is a GPU")
def test_tensors_of_the_cpu_need_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.rotation.triton_launch.INTERPRETED", False)
    with pytest.raises(InputError, match="q: got device cpu, expected a GPU"):
        refused()
