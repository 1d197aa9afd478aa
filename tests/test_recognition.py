"""What is taken for a rotation, and what is not: each near miss that is seen in the wild."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropewalk.torch.recognition import Recognised, Turn, recognise  # noqa: E402
from ropewalk.torch.rotary_tables import (  # noqa: E402
    CUT,
    LAY,
    Tables,
    rotary_call,
    tables_of,
)

HALF, ADJACENT = Turn("half", False, False), Turn("adjacent", False, False)


def halves(x: Any) -> Any:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


def neighbours(x: Any) -> Any:
    return torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)


def pair(partner: Callable[[Any], Any], sign: float = 1.0) -> Callable[..., Any]:
    def apply(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        cos, sin = cos.unsqueeze(unsqueeze_dim), sign * sin.unsqueeze(unsqueeze_dim)
        return q * cos + partner(q) * sin, k * cos + partner(k) * sin

    return apply


def one(x: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
    return x * cos.unsqueeze(unsqueeze_dim) + halves(x) * sin.unsqueeze(unsqueeze_dim)


def sine_first(tensor: Any, sin: Any, cos: Any) -> Any:
    sin, cos = (t[:, :, None].repeat_interleave(2, -1) for t in (sin, cos))
    return tensor * cos + neighbours(tensor) * sin


def leading(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    width = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]

    def turn(x: Any) -> Any:
        a, rest = x[..., :width], x[..., width:]
        return torch.cat([a * cos + halves(a) * sin, rest], dim=-1)

    return turn(q), turn(k)


def trailing(x: Any, cos: Any, sin: Any) -> Any:
    width = 2 * cos.shape[-1]
    cos, sin = (t[:, None].repeat_interleave(2, -1) for t in (cos, sin))
    rest, a = x[..., :-width], x[..., -width:]
    return torch.cat([rest, a * cos + neighbours(a) * sin], dim=-1)


def gathering(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    half = cos.shape[-1] // 2
    cos, sin = cos[:, None, :, :half], sin[:, None, :, :half]

    def turn(x: Any) -> Any:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    return turn(q), turn(k)


def product(xq: Any, xk: Any, freqs_cis: Any) -> Any:
    def turn(x: Any) -> Any:
        turned = torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * freqs_cis[:, :, None]
        return torch.view_as_real(turned).flatten(-2).type_as(x)

    return turn(xq), turn(xk)


def keeping(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    turned = pair(halves)(q.float(), k.float(), cos.float(), sin.float())
    return tuple(t.to(q.dtype) for t in turned)


KNOWN: dict[str, tuple[Any, dict[str, Turn], str | None, bool]] = {
    "half": (pair(halves), {"tiled": HALF}, None, False),
    "adjacent": (pair(neighbours), {"repeated": ADJACENT}, None, False),
    "one tensor": (one, {"tiled": HALF}, None, False),
    "sine first": (sine_first, {"single": ADJACENT}, None, False),
    "leading lanes": (leading, {"tiled": HALF}, "lead", False),
    "trailing lanes": (trailing, {"single": ADJACENT}, "tail", False),
    "gathering": (gathering, {"tiled": Turn("half", False, True)}, None, False),
    "backwards": (pair(halves, -1.0), {"tiled": Turn("half", True, False)}, None, False),
    "complex": (product, {"complex": ADJACENT}, None, True),
    "dtype kept": (keeping, {"tiled": HALF}, None, True),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known(name: str):
    function, turns, place, keeps = KNOWN[name]
    found = recognise(function)
    assert isinstance(found, Recognised), found
    assert (found.turns, found.place, found.keeps_dtype) == (turns, place, keeps)


def test_axis_of_the_heads():
    found = recognise(pair(halves))
    assert isinstance(found, Recognised)
    assert found.axis == 1
    assert found.orders[1, 4, 3] == "heads_time"
    assert found.orders[2, 4, 3] == "time_heads"
    found = recognise(sine_first)
    assert isinstance(found, Recognised)
    assert found.orders == {(None, 4, 3): "time_heads"}


def swapped(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    return pair(halves)(q, k, sin, cos)


def mixed(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    return pair(halves)(q, k, cos, sin)[0], pair(halves, -1.0)(q, k, cos, sin)[1]


def scaled(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    a, b = pair(halves)(q, k, cos, sin)
    return a * (1 + 2.0**-12), b


def unturned_keys(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    return pair(halves)(q, k, cos, sin)[0], k


def no_sine(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    return pair(halves)(q, k, cos, 0 * sin)


def halves_over_neighbours(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    # V-JEPA 2: tables for halves, pairs of neighbours; its planes turn by two angles each.
    half = cos.shape[-1] // 2
    cos, sin = (torch.cat([t[..., :half]] * 2, -1) for t in (cos, sin))
    return pair(neighbours)(q, k, cos, sin)


def widening(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    return pair(halves)(q.float(), k.float(), cos.float(), sin.float())


def with_values(q: Any, k: Any, v: Any, cos: Any, sin: Any) -> Any:
    return *pair(halves)(q, k, cos, sin), v


def with_ids(q: Any, k: Any, cos: Any, sin: Any, position_ids: Any) -> Any:
    return pair(halves)(q, k, cos[position_ids], sin[position_ids])


def failing(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    raise RuntimeError(f"never {q} {k} {cos} {sin}")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (swapped, "no rotation"),
        (mixed, "no rotation"),
        (scaled, "no rotation"),
        (unturned_keys, "no rotation"),
        (no_sine, "no rotation"),
        (halves_over_neighbours, "no rotation"),
        (failing, "no rotation"),
        (widening, "another dtype"),
        (with_values, "other arguments"),
        (with_ids, "other arguments"),
        (torch.sin, "other arguments"),
    ],
)
def test_near_misses_are_left_alone(function: Any, why: str):
    found = recognise(function)
    assert isinstance(found, str)
    assert why in found


def test_the_callers_random_numbers_stay():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    recognise(pair(halves))
    assert torch.equal(torch.rand(3), expected)


# ---- rotary modules ----------------------------------------------------------------------


class Rotary(torch.nn.Module):
    """A rotary module that lays out its tables as asked."""

    def __init__(self, layout: str, *, scale: float = 1.0, sine_first: bool = False):
        super().__init__()
        self.layout, self.scale, self.sine_first = layout, scale, sine_first
        self.register_buffer("inv_freq", 100.0 ** -torch.arange(0, 1, 0.25), persistent=False)
        self.calls = 0

    def forward(self, x: Any, position_ids: Any) -> Any:
        self.calls += 1
        angles = position_ids[..., None].float() * self.inv_freq
        tables = LAY[self.layout](angles.cos() * self.scale, angles.sin() * self.scale)
        return tables[::-1] if self.sine_first else tables if len(tables) > 1 else tables[0]


@pytest.mark.parametrize("layout", LAY)
def test_layouts(layout: str):
    module = Rotary(layout, scale=1.25)
    assert rotary_call(module)
    found = tables_of(module)
    assert found == Tables(layout, 0, 0 if layout == "complex" else 1)
    assert module.calls == 0  # a copy was asked
    cos, sin = torch.rand(2, 3, 4), torch.rand(2, 3, 4)
    laid = LAY[layout](cos, sin)
    for a, b in zip(CUT[layout](laid[0], laid[-1]), (cos, sin), strict=True):
        assert torch.equal(a, b)


def test_the_sine_may_come_first():
    assert tables_of(Rotary("single", sine_first=True)) == Tables("single", 1, 0)


class Negative(Rotary):
    def forward(self, x: Any, position_ids: Any) -> Any:
        cos, sin = super().forward(x, position_ids)
        return -cos, sin


class Shifted(Rotary):
    def forward(self, x: Any, position_ids: Any) -> Any:
        return super().forward(x, position_ids + 1)


class Broken(Rotary):
    def forward(self, x: Any, position_ids: Any) -> Any:
        raise RuntimeError("never")


@pytest.mark.parametrize("kind", [Negative, Shifted, Broken])
def test_other_tables_are_left_alone(kind: type[Rotary]):
    assert "no tables" in str(tables_of(kind("tiled")))


class ByType(Rotary):
    def __init__(self, layouts: dict[str, str]):
        super().__init__("tiled")
        self.rope_type = layouts

    def forward(self, x: Any, position_ids: Any, layer_type: str) -> Any:
        self.layout = self.rope_type[layer_type]
        return super().forward(x, position_ids)


def test_layer_types():
    assert tables_of(ByType({"a": "tiled", "b": "tiled"})) == Tables("tiled", 0, 1)
    found = tables_of(ByType({"a": "tiled", "b": "repeated"}))
    assert isinstance(found, str)
    assert "layer type" in found


def test_other_modules_are_not_called():
    assert not rotary_call(torch.nn.BatchNorm1d(4))
    assert not rotary_call(torch.nn.BatchNorm1d(4, affine=False))
    assert not rotary_call(torch.nn.GELU())
    assert not rotary_call(torch.nn.Sequential(Rotary("tiled")))
