"""Memory of large results that is kept and used again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest
import torch
from kernel_grid import make, same_bits, tables

import ropewalk.torch as rt
from ropewalk.rotation import native, reference
from ropewalk.torch import memory

pytestmark = pytest.mark.skipif(
    native.attach_torch() is None or not sys.platform.startswith("linux"),
    reason="needs the compiled kernels on Linux",
)

SHAPE = (1, 4096, 8, 128)  # 16 MB in float32


@pytest.fixture(autouse=True)
def nothing_kept():
    gc.collect()
    memory.release_memory()
    yield
    memory.release_memory()


def test_a_dropped_result_serves_the_next():
    x = make(SHAPE, torch.float32)
    cos, sin = tables((4096, 64), torch.float32)
    wanted = reference.rotate(x, cos, sin)
    first = rt.rotate(x, cos, sin)
    place = first.data_ptr()
    assert same_bits(first, wanted)
    assert memory.kept_bytes() == 0
    view = first[:, 1:]
    del first
    assert memory.kept_bytes() == 0  # a view holds it
    second = rt.rotate(x, cos, sin)
    assert second.data_ptr() != place
    assert same_bits(view, wanted[:, 1:])
    del view
    assert memory.kept_bytes() >= x.nbytes
    third = rt.rotate(x, cos, sin, inverse=True)
    assert third.data_ptr() == place
    assert same_bits(second, wanted)
    assert same_bits(third, reference.rotate(x, cos, sin, inverse=True))
    del second, third
    memory.release_memory()
    assert memory.kept_bytes() == 0


def test_it_is_an_ordinary_tensor():
    x = make(SHAPE, torch.float32)
    cos, sin = tables((4096, 64), torch.float32)
    for form in (x, x.transpose(1, 2).contiguous().transpose(1, 2), x[..., ::2]):
        like, found = torch.empty_like(form), memory.empty_like(form)
        assert (found.shape, found.stride(), found.dtype) == (like.shape, like.stride(), like.dtype)
    turned = rt.rotate(x.requires_grad_(), cos, sin)
    turned.pow(2).sum().backward()  # the gradient's memory is recycled, too
    assert same_bits(x.grad, rt.rotate(2 * turned.detach(), cos, sin, inverse=True))
    again = turned.detach().clone()
    turned.detach().add_(1).requires_grad_()
    assert same_bits(turned.detach(), again + 1)


def test_dropped_on_another_thread():
    x = make(SHAPE, torch.float32)
    cos, sin = tables((4096, 64), torch.float32)
    wanted = reference.rotate(x, cos, sin)
    right = []

    def work() -> None:
        for _ in range(5):
            right.append(same_bits(rt.rotate(x, cos, sin), wanted))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert right == [True] * 15
    assert memory.kept_bytes() <= 3 * 1.25 * x.nbytes


def test_small_results_are_left_to_pytorch():
    small = torch.ones(1, 8, 2, 16)
    memory.empty_like(small)
    assert memory.kept_bytes() == 0


KEEP_NOTHING = """
import torch
from ropewalk.torch import memory
x = memory.empty_like(torch.ones(4096, 4096))
del x
print(memory.kept_bytes())
"""


def test_nothing_is_kept_where_that_is_asked():
    done = subprocess.run(
        [sys.executable, "-c", KEEP_NOTHING],
        capture_output=True,
        text=True,
        env={**os.environ, "ROPEWALK_KEEP_MB": "0"},
        check=True,
    )
    assert done.stdout.strip() == "0"
