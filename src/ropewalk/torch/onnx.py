"""Export to ONNX: Ropewalk's operators as standard nodes.

A rotation becomes the standard RotaryEmbedding node of opset 23 (`onnx_rotation`). Exact tables
become a product of 64-bit integers that wraps, as ONNX Runtime's does: they stay right at every
position, with any length at run time, and no table is stored.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError, MissingExtraError
from ..rope import Rope
from . import cos_sin_operator, operators

try:
    from onnxscript import evaluator, ir

    from .onnx_rotation import OPSET, Options, constant, op, rotate
except ImportError as error:
    raise MissingExtraError("onnxscript", extra="onnx", needed_for="ONNX export") from error

# The modules that register what is translated here.
_REGISTERED = (operators, cos_sin_operator)

_INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")


def export(
    model: Any,
    args: tuple[Any, ...],
    path: str | os.PathLike[str] | None = None,
    *,
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    overwrite: bool = False,
    **options: Any,
) -> Any:
    """Export a model to ONNX, with Ropewalk's operators as standard nodes.

    Args:
        model: a `torch.nn.Module` or a `torch.export.ExportedProgram`.
        args: example inputs.
        path: where to write the model. Weights beyond 2 GB, or all of them with
            ``external_data=True``, go to a file of the same name with ``.data`` behind it.
            By default nothing is written. Files appear whole or not at all.
        kwargs: example keyword inputs.
        dynamic_shapes: the axes whose size is known at run time, as for `torch.export.export`.
        overwrite: whether an existing file may be replaced.
        **options: further options of `torch.onnx.export`. ``opset_version`` is 23 by default
            and at least that; ``custom_translation_table`` is added to `translations`.

    Returns:
        The `torch.onnx.ONNXProgram`. A runtime may fuse a product into a sum, so results equal
        Ropewalk's to ``4 * 2^-24 * |(a, b)| * |(cos, sin)|`` in float32, and to one place of
        the dtype more in half precision; float64 is the same.

    Example:
        >>> time = torch.export.Dim("time")
        >>> export(model, (tokens,), "model.onnx", dynamic_shapes=({1: time},))

    Raises:
        InputError: a file that exists, an option that does not fit, or something of Ropewalk in
            the model that ONNX can't express.
    """
    target = None if path is None else Path(path)
    if target is not None:
        _check_target(target, overwrite, with_data=bool(options.get("external_data")))
    settings = _settings(options)
    saving = {
        "include_initializers": settings.pop("export_params", True),
        "keep_initializers_as_inputs": settings.pop("keep_initializers_as_inputs", False),
        "external_data": settings.pop("external_data", None),
    }
    try:
        program = torch.onnx.export(
            model, args, kwargs=kwargs, dynamic_shapes=dynamic_shapes, **settings
        )
    except Exception as error:
        refused = _refusal(error)
        if refused is None:
            raise
        raise refused from None
    if target is not None:
        _write(program, target, overwrite, saving)
    return program


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the ``custom_translation_table`` of Ropewalk's operators.

    For `torch.onnx.export` with ``dynamo=True`` and an ``opset_version`` of at least 23. The
    operators in place are not among them: PyTorch's exporter can't pass them on.
    """
    ours = torch.ops.ropewalk
    return {
        ours.rotate.default: _rotate,
        ours.rotate_qk.default: _rotate_qk,
        ours.cos_sin.default: _cos_sin,
    }


# ---- operators ---------------------------------------------------------------------------


def _rotate(
    x: Any,
    cos: Any,
    sin: Any,
    pairing: str,
    order: str,
    rotary_offset: int,
    inverse: bool,
    positions: Any = None,
    plane_axes: Any = None,
) -> Any:
    _check_opset()
    options = Options(pairing, order, rotary_offset, inverse, positions, plane_axes)
    return rotate((x,), cos, sin, options)[0]


def _rotate_qk(
    q: Any,
    k: Any,
    cos: Any,
    sin: Any,
    pairing: str,
    order: str,
    rotary_offset: int,
    inverse: bool,
    positions: Any = None,
    plane_axes: Any = None,
) -> Any:
    _check_opset()
    options = Options(pairing, order, rotary_offset, inverse, positions, plane_axes)
    return rotate((q, k), cos, sin, options)


def _cos_sin(positions: Any, rope: str, length: Any, dtype: Any) -> Any:
    """Write out what `tables` does: whole turns are dropped by 64-bit products that wrap.

    The angle is the one of `tables` to the last bit, as the arithmetic is the same. What may
    differ is the runtime's float64 Cos and Sin: by ``8 * 2^-53 * attention factor`` (ONNX
    Runtime 1.32: 3 units of 2^-53 over a million angles), and through them the last place of
    a float32 that lay half way between two. Positions beyond 2^53, which `tables` refuses,
    are not looked for.
    """
    _check_opset()
    turned = Rope.from_json(rope)
    fixed = _fixed_length(turned, length)
    kind = positions.dtype.name
    if kind not in (*_INTEGERS, "FLOAT", "DOUBLE"):
        raise InputError(
            "positions",
            found=f"dtype {kind.lower()}",
            expected="integers, float32 or float64",
            fix="keep position ids as integers: half precision merges neighbouring positions",
        )
    wide, last = ir.DataType.DOUBLE, constant(np.array([-1]))
    fractions = constant(turned.turn_fractions(fixed).view(np.int64).copy())
    radians = turned.direction * 2 * np.pi
    if kind in _INTEGERS:
        whole = op.Cast(positions, to=int(ir.DataType.INT64))
        wrapped = op.Mul(op.Unsqueeze(whole, last), fractions)
        # Read as signed, the product is the fraction of a turn centred on 0.
        angles = op.Mul(op.Cast(wrapped, to=int(wide)), constant(np.float64(radians * 2.0**-64)))
    else:
        given = op.Cast(positions, to=int(wide))
        below = op.Floor(given)
        whole = op.Cast(below, to=int(ir.DataType.INT64))
        wrapped = op.Mul(op.Unsqueeze(whole, last), fractions)
        turns = op.Mul(op.Cast(wrapped, to=int(wide)), constant(np.float64(2.0**-64)))
        step = constant(turned.inv_freq(fixed) / (2 * np.pi))
        part = op.Mul(op.Unsqueeze(op.Sub(given, below), last), step)
        angles = op.Mul(op.Add(turns, part), constant(np.float64(radians)))
    factor = turned.attention_factor(fixed)
    out = []
    for value in (op.Cos(angles), op.Sin(angles)):
        scaled = value if factor == 1.0 else op.Mul(value, constant(np.float64(factor)))
        if dtype not in (ir.DataType.FLOAT, wide):
            # PyTorch too rounds float64 to half precision by way of float32.
            scaled = op.Cast(scaled, to=int(ir.DataType.FLOAT))
        out.append(op.Cast(scaled, to=int(dtype)))
    return tuple(out)


def _fixed_length(rope: Rope, length: Any) -> int | None:
    if not rope.scaling.length_dependent:
        return None
    if isinstance(length, int):
        return length
    raise InputError(
        "length",
        found="none, or one that is known at run time only",
        expected=f"a fixed length: the frequencies of {rope.scaling.kind} depend on it",
        fix="pass length=… to the module, or leave the axis of time out of dynamic_shapes",
    )


def _check_opset() -> None:
    opset = getattr(evaluator.default(), "opset", None)
    if opset is not None and opset.version < OPSET:
        raise _old_opset(opset.version)


# ---- options and errors ------------------------------------------------------------------


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `torch.onnx.export`, or refuse those that do not fit."""
    for name, instead in (("f", "path"), ("dynamic_axes", "dynamic_shapes")):
        if name in options:
            raise InputError(
                name, found="this option", expected=instead, fix=f"pass {instead}= instead"
            )
    if not options.get("dynamo", True):
        raise InputError(
            "dynamo",
            found="False",
            expected="True: the older exporter does not know Ropewalk's operators",
            fix="leave it out",
        )
    opset = options.get("opset_version")
    if opset is not None and opset < OPSET:
        raise _old_opset(opset)
    # Silent unless asked: it prints its steps by default.
    settings: dict[str, Any] = {"verbose": False, **options, "dynamo": True}
    settings["opset_version"] = OPSET if opset is None else opset
    given = options.get("custom_translation_table") or {}
    settings["custom_translation_table"] = {**translations(), **given}
    return settings


def _old_opset(version: int) -> InputError:
    return InputError(
        "opset_version",
        found=str(version),
        expected=f"{OPSET} or above, which have RotaryEmbedding",
        fix=f"pass opset_version={OPSET}",
    )


def _refusal(error: BaseException | None) -> InputError | None:
    """Find the sentence for the caller inside the exporter's chain of errors."""
    while error is not None:
        if isinstance(error, InputError):
            return error
        for name in ("rotate_qk_", "rotate_"):
            if f"ropewalk.{name}.default" in str(error):
                return InputError(
                    name,
                    found="a rotation in place",
                    expected="one that returns fresh tensors, which is all that ONNX has",
                    fix=f"call {name[:-1]}, or the module without in_place=True",
                )
        error = error.__cause__ or error.__context__
    return None


# ---- files -------------------------------------------------------------------------------


def _data_file(target: Path) -> Path:
    return target.with_name(target.name + ".data")


def _check_target(target: Path, overwrite: bool, *, with_data: bool) -> None:
    if not target.parent.is_dir():
        raise InputError(
            "path",
            found=f"{target}, in a folder that does not exist",
            expected="a file in an existing folder",
            fix=f"make {target.parent} first",
        )
    for file in (target, _data_file(target)) if with_data else (target,):
        if file.is_dir():
            raise InputError(
                "path", found=f"{file}, a folder", expected="a file", fix="name a file in it"
            )
        if file.exists() and not overwrite:
            raise InputError(
                "path",
                found=f"{file}, which exists",
                expected="a name that is free",
                fix="pass overwrite=True, or another path",
            )


def _write(program: Any, target: Path, overwrite: bool, saving: dict[str, Any]) -> None:
    """Write the model in a folder beside its place and move it there, its data first."""
    scratch = Path(tempfile.mkdtemp(prefix=f".partial-{target.name}-", dir=target.parent))
    try:
        # Under its own name: the model names the file of its data.
        program.save(scratch / target.name, **saving)
        data = scratch / _data_file(target).name
        _check_target(target, overwrite, with_data=data.exists())
        if data.exists():
            data.replace(_data_file(target))
        (scratch / target.name).replace(target)
    finally:
        shutil.rmtree(scratch)


__all__ = ["export", "translations"]
