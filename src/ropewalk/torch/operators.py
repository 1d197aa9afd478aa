"""The registered operators: what `torch.compile`, `torch.export` and autograd see.

``ropewalk::rotate`` and ``ropewalk::rotate_qk`` return fresh tensors, ``ropewalk::rotate_``
and ``ropewalk::rotate_qk_`` write in place. The gradient of a rotation is the inverse rotation
of the gradient. Tables that require a gradient, and forward-mode differentiation, take the
readable path, of which PyTorch differentiates every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, MissingExtraError
from ..rotation import native, reference
from ..rotation.rows import pick_rows
from .arguments import Call
from .memory import empty_like

_library = torch.library.Library("ropewalk", "DEF")
_OPTIONS = (
    "str pairing, str order, int rotary_offset, bool inverse, Tensor? positions, int[]? plane_axes"
)
_library.define(f"rotate(Tensor x, Tensor cos, Tensor sin, {_OPTIONS}) -> Tensor")
_library.define(
    f"rotate_qk(Tensor q, Tensor k, Tensor cos, Tensor sin, {_OPTIONS}) -> (Tensor, Tensor)"
)
_library.define(f"rotate_(Tensor(a!) x, Tensor cos, Tensor sin, {_OPTIONS}) -> ()")
_library.define(f"rotate_qk_(Tensor(a!) q, Tensor(b!) k, Tensor cos, Tensor sin, {_OPTIONS}) -> ()")


def rotate(call: Call) -> tuple[Tensor, ...]:
    """Return fresh rotated tensors; differentiable."""
    if call.cos.requires_grad or call.sin.requires_grad or _forward_mode():
        return tuple(_readable(call, x) for x in call.xs)
    options = _options(call)
    if _functorch():
        return tuple(_Rotation.apply(x, call.cos, call.sin, *options) for x in call.xs)
    if len(call.xs) == 2:
        both: tuple[Tensor, Tensor] = torch.ops.ropewalk.rotate_qk(
            *call.xs, call.cos, call.sin, *options
        )
        return both
    return (torch.ops.ropewalk.rotate(*call.xs, call.cos, call.sin, *options),)


def write(call: Call, outs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Write rotated tensors into ``outs``, which may be the inputs themselves."""
    recorded = torch.is_grad_enabled() and any(
        t.requires_grad for t in (*call.xs, *outs, call.cos, call.sin)
    )
    in_place = all(out is x for out, x in zip(outs, call.xs, strict=True))
    if in_place and not recorded and not _forward_mode():
        operator = (
            torch.ops.ropewalk.rotate_qk_ if len(call.xs) == 2 else torch.ops.ropewalk.rotate_
        )
        operator(*call.xs, call.cos, call.sin, *_options(call))
        return outs
    # Autograd records a copy into a tensor, and refuses it where it must.
    for out, turned in zip(outs, rotate(call), strict=True):
        out.copy_(turned)
    return outs


def _options(call: Call) -> tuple[Any, ...]:
    return (
        call.pairing,
        call.order,
        call.rotary_offset,
        call.inverse,
        call.positions,
        call.plane_axes,
    )


def _functorch() -> bool:
    """Whether a transform of torch.func is at work."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is not None
    )


def _forward_mode() -> bool:
    """Whether a forward-mode derivative (jvp) is being formed."""
    if torch.compiler.is_compiling():
        return False
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    stack = torch._C._functorch.get_interpreter_stack()
    return any(level.key() == torch._C._functorch.TransformType.Jvp for level in stack or ())


def readable_rows(call: Call) -> tuple[Tensor, Tensor]:
    """Return cos and sin per token."""
    if call.positions is None:
        return call.cos, call.sin
    cos, sin = pick_rows(call.cos, call.sin, call.positions, call.plane_axes)
    return cos, sin


def _readable(call: Call, x: Tensor) -> Tensor:
    cos, sin = readable_rows(call)
    turned: Tensor = reference.rotate(
        x,
        cos,
        sin,
        pairing=call.pairing,
        order=call.order,
        rotary_offset=call.rotary_offset,
        inverse=call.inverse,
    )
    return turned


# ---- what runs ---------------------------------------------------------------------------


def _run(xs: tuple[Tensor, ...], outs: tuple[Tensor, ...], call: Call) -> None:
    """Write the rotation of ``xs`` into ``outs``: kernel where there is one, else readable."""
    if xs[0].device.type == "cuda" and _triton_runs(xs, outs, call):
        return
    if xs[0].device.type == "cpu" and _kernel_runs(xs, outs, call):
        return
    for x, out in zip(xs, outs, strict=True):
        out.copy_(_readable(call, x))


def _kernel_runs(xs: tuple[Tensor, ...], outs: tuple[Tensor, ...], call: Call) -> bool:
    module = native.kernels()
    if module is None:
        return False
    view = native.tensor_viewer()
    two = len(xs) == 2
    axes = None if call.plane_axes is None else torch.tensor(call.plane_axes, dtype=torch.int32)
    with torch.no_grad():
        outcome = module.rotate(
            view(xs[0]),
            view(xs[1]) if two else None,
            view(outs[0]),
            view(outs[1]) if two else None,
            view(call.cos),
            view(call.sin),
            call.pairing,
            call.order,
            call.rotary_offset,
            call.inverse,
            None if call.positions is None else view(call.positions),
            None if axes is None else view(axes),
            torch.get_num_threads(),
        )
    return bool(outcome == native.Outcome.DONE)


def _triton_runs(xs: tuple[Tensor, ...], outs: tuple[Tensor, ...], call: Call) -> bool:
    try:
        from ..rotation import triton_kernel
    except MissingExtraError:
        return False
    return triton_kernel.launch(xs, outs, call)


def _call(xs: tuple[Tensor, ...], cos: Tensor, sin: Tensor, options: tuple[Any, ...]) -> Call:
    return Call(xs, cos, sin, *options)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, *options: Any) -> Tensor:
    out = empty_like(x)
    _run((x,), (out,), _call((x,), cos, sin, options))
    return out


def _rotate_qk(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *options: Any
) -> tuple[Tensor, Tensor]:
    out = empty_like(q), empty_like(k)
    _run((q, k), out, _call((q, k), cos, sin, options))
    return out


def _rotate_in_place(x: Tensor, cos: Tensor, sin: Tensor, *options: Any) -> None:
    _refuse_repeats(x)
    _run((x,), (x,), _call((x,), cos, sin, options))


def _rotate_qk_in_place(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *options: Any) -> None:
    for x in (q, k):
        _refuse_repeats(x)
    if q.numel() and q.data_ptr() == k.data_ptr():
        raise InputError(
            "k",
            found="the memory of q",
            expected="another tensor",
            fix="a tensor given twice would be turned twice; pass it once, to rotate_",
        )
    _run((q, k), (q, k), _call((q, k), cos, sin, options))


def _refuse_repeats(x: Tensor) -> None:
    if any(size > 1 and step == 0 for size, step in zip(x.shape, x.stride(), strict=True)):
        raise InputError(
            "x",
            found=f"an expanded tensor, strides {x.stride()}",
            expected="a tensor whose elements lie apart",
            fix="call .contiguous(), or rotate out of place",
        )


_KEY = "CompositeExplicitAutograd"
_library.impl("rotate", _rotate, _KEY)
_library.impl("rotate_qk", _rotate_qk, _KEY)
_library.impl("rotate_", _rotate_in_place, _KEY)
_library.impl("rotate_qk_", _rotate_qk_in_place, _KEY)


# ---- what is traced ----------------------------------------------------------------------


@torch.library.register_fake("ropewalk::rotate", lib=_library)
def _rotate_fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


@torch.library.register_fake("ropewalk::rotate_qk", lib=_library)
def _rotate_qk_fake(q: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k)


for _name in ("rotate_", "rotate_qk_"):
    torch.library.register_fake(f"ropewalk::{_name}", lambda *_: None, lib=_library)


# ---- gradients ---------------------------------------------------------------------------


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001
    *_, cos, sin, pairing, order, offset, inverse, positions, axes = inputs
    ctx.save_for_backward(cos, sin, positions)
    ctx.options = pairing, order, offset, inverse, axes


def _backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    cos, sin, positions = ctx.saved_tensors
    pairing, order, offset, inverse, axes = ctx.options
    options = pairing, order, offset, not inverse, positions, axes
    present = [g for g in gradients if g is not None]
    if len(present) == 2:
        turned = list(torch.ops.ropewalk.rotate_qk(*present, cos, sin, *options))
    else:
        turned = [torch.ops.ropewalk.rotate(g, cos, sin, *options) for g in present]
    found = iter(turned)
    back = [None if g is None else next(found) for g in gradients]
    return (*back, *(None,) * 8)


for _name in ("rotate", "rotate_qk"):
    torch.library.register_autograd(
        f"ropewalk::{_name}", _backward, setup_context=_remember, lib=_library
    )


class _Rotation(torch.autograd.Function):
    """The operator for torch.func, which does not look into registered gradients."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, *options: Any) -> Tensor:
        turned: Tensor = torch.ops.ropewalk.rotate(x, cos, sin, *options)
        return turned

    setup_context = staticmethod(_remember)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        cos, sin, positions = ctx.saved_tensors
        pairing, order, offset, inverse, axes = ctx.options
        back = _Rotation.apply(
            gradient, cos, sin, pairing, order, offset, not inverse, positions, axes
        )
        return (back, *(None,) * 8)


# ---- vmap --------------------------------------------------------------------------------


def _batched(
    operator: Any, count: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Run an operator over one more axis, which becomes the first."""
    xs, (cos, sin) = arguments[:count], arguments[count : count + 2]
    options = list(arguments[count + 2 :])
    sizes = [a.shape[d] for a, d in zip(arguments, in_dims, strict=True) if d is not None]
    order = options[1]
    if in_dims[count + 6] is not None:
        # Each sample has rows of its own: pick them all, then they are tables per token.
        positions = options[4].movedim(in_dims[count + 6], 0)
        picked = [
            pick_rows(
                _sample(cos, in_dims[count], i), _sample(sin, in_dims[count + 1], i), p, options[5]
            )
            for i, p in enumerate(positions)
        ]
        cos, sin = (torch.stack(part) for part in zip(*picked, strict=True))
        table_dims: tuple[Any, Any] = (0, 0)
        options[4] = options[5] = None
    else:
        table_dims = in_dims[count], in_dims[count + 1]
        if options[4] is not None and any(d is not None for d in table_dims):
            picked = [
                pick_rows(
                    _sample(cos, table_dims[0], i),
                    _sample(sin, table_dims[1], i),
                    options[4],
                    options[5],
                )
                for i in range(sizes[0])
            ]
            cos, sin = (torch.stack(part) for part in zip(*picked, strict=True))
            table_dims = (0, 0)
            options[4] = options[5] = None
    moved = [
        x.movedim(d, 0) if d is not None else x.expand(sizes[0], *x.shape)
        for x, d in zip(xs, in_dims, strict=False)
    ]
    inner = 2 if order == "time" else 3
    leading = moved[0].ndim - inner  # with the new axis
    tables = [
        t if d is None else _under(t.movedim(d, 0), leading)
        for t, d in zip((cos, sin), table_dims, strict=True)
    ]
    out = operator(*moved, *tables, *options)
    return out, 0 if count == 1 else (0, 0)


def _sample(table: Tensor, dim: int | None, index: int) -> Tensor:
    return table if dim is None else table.select(dim, index)


def _under(table: Tensor, leading: int) -> Tensor:
    """Insert axes of 1 behind the first, so that it lines up with the first axis of x."""
    missing = leading + 2 - table.ndim
    return table.reshape(table.shape[0], *(1,) * max(missing, 0), *table.shape[1:])


def _vmap_rotate(_: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    return _batched(torch.ops.ropewalk.rotate, 1, in_dims, arguments)


def _vmap_rotate_qk(_: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    return _batched(torch.ops.ropewalk.rotate_qk, 2, in_dims, arguments)


torch.library.register_vmap("ropewalk::rotate", _vmap_rotate, lib=_library)
torch.library.register_vmap("ropewalk::rotate_qk", _vmap_rotate_qk, lib=_library)
