"""A rotation as ONNX nodes: the standard RotaryEmbedding where it can say it.

RotaryEmbedding (opset 23) takes heads of (batch, heads, time, head_dim), or of (batch, time,
heads * head_dim) with the number of heads as an attribute. The first is order ``heads_time``,
the second a reshape of ``time_heads``, so no order needs a transpose. Its X, cos and sin share
one type, float32 at most: half precision is cast to float32 and back, which is where Ropewalk
rotates and rounds too; float64 is written out in Mul, Sub and Add.

Source: ONNX operators, RotaryEmbedding, since version 23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxscript
from onnxscript import ir

from ..errors import InputError
from ..rotation import reference

OPSET = 23
"""The first opset with RotaryEmbedding."""

Sizes = list[int | str | None]
"""Sizes of axes: a number, the name of one that is known at run time, or None."""

_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)

op = onnxscript.values.Opset("", OPSET)


@dataclass(frozen=True)
class Traced:
    """A value of the graph and its sizes; values between nodes don't know theirs."""

    value: Any
    sizes: Sizes

    @classmethod
    def of(cls, value: Any) -> Traced:
        """Read the sizes off a value that the exporter has described."""
        return cls(value, [d if isinstance(d, int) else d.value for d in value.shape])


@dataclass(frozen=True)
class Options:
    """The options of one rotation, as the operators take them."""

    pairing: str
    order: str
    rotary_offset: int
    inverse: bool
    positions: Any
    plane_axes: list[int] | None


def constant(array: Any) -> Any:
    """Return a constant of the array's own type, which no promotion touches."""
    return op.Constant(value=ir.tensor(np.asarray(array)))


def rotate(xs: tuple[Any, ...], cos: Any, sin: Any, options: Options) -> tuple[Any, ...]:
    """Return the rotated values of ``xs``, which share cos and sin.

    A position without a row of the tables stops ONNX Runtime with an error, as it does here.

    Raises:
        InputError: what the node can't express, or shapes that do not fit.
    """
    kind = xs[0].dtype
    if kind not in _FLOATS:
        raise InputError(
            "x",
            found=f"dtype {kind.name.lower()}",
            expected="float16, bfloat16, float32 or float64",
            fix="rotate queries and keys, not token ids",
        )
    wide = kind if kind == ir.DataType.DOUBLE else ir.DataType.FLOAT
    tables = [Traced(_cast(t, wide), Traced.of(t).sizes) for t in (cos, sin)]
    if options.inverse:
        tables[1] = Traced(op.Neg(tables[1].value), tables[1].sizes)
    positions = None
    if options.positions is not None:
        given = Traced.of(options.positions)
        positions = Traced(_cast(given.value, ir.DataType.INT64), given.sizes)
        if options.plane_axes is not None:
            tables, positions = _rows_by_axis(tables, positions, options.plane_axes), None
        elif wide == ir.DataType.DOUBLE:
            tables, positions = _rows(tables, positions), None
    shared: dict[Any, list[Any]] = {}
    out = []
    for value in xs:
        x = Traced.of(value)
        planes = _check(x, tables, positions, options)
        if planes == 0:
            # To the node, 0 rotated lanes mean all of them.
            out.append(op.Identity(value))
            continue
        wider = Traced(_cast(value, wide, kind), x.sizes)
        if wide == ir.DataType.DOUBLE:
            turned = _written_out(wider, tables, planes, options)
        else:
            turned = _by_node(wider, tables, positions, planes, options, shared)
        out.append(_cast(turned, kind, wide))
    return tuple(out)


# ---- what fits ---------------------------------------------------------------------------


def _check(x: Traced, tables: list[Traced], positions: Traced | None, options: Options) -> int:
    """Refuse what does not fit, as far as sizes are known; return the number of planes."""
    rows = tables[0].sizes if positions is None else [*positions.sizes, tables[0].sizes[-1]]
    planes = rows[-1] if rows else 0
    lanes = x.sizes[-1]
    for where, what, size in (("cos", "planes", planes), ("x", "lanes", lanes)):
        if not isinstance(size, int):
            raise InputError(
                where,
                found=f"a last axis that is known at run time only ({what})",
                expected="a fixed size, which ONNX keeps as an attribute of the node",
                fix=f"leave the last axis of {where} out of dynamic_shapes",
            )
    assert isinstance(planes, int)
    inner = 2 if options.order == "time" else 3
    # Against the time axis and the leading axes of x, from the last.
    time = len(x.sizes) + reference.time_axis(options.order)
    against = [*x.sizes[: len(x.sizes) - inner], *x.sizes[time : time + 1]][::-1]
    shown = list(rows)
    for i, size in enumerate(rows[-2::-1]):
        met = against[i] if i < len(against) else 1
        if not (isinstance(size, int) and isinstance(met, int)):
            # Left to the runtime, which compares them.
            shown[-2 - i] = 1
    reference.check(
        _Shape(tuple(1 if not isinstance(s, int) else s for s in x.sizes)),
        _Shape(tuple(shown)),
        _Shape(tuple(shown)),
        options.pairing,
        options.order,
        options.rotary_offset,
    )
    return planes


@dataclass(frozen=True)
class _Shape:
    """Stands for an array of which only the shape is looked at."""

    shape: tuple[Any, ...]


# ---- the node ----------------------------------------------------------------------------


def _by_node(
    x: Traced,
    tables: list[Traced],
    positions: Traced | None,
    planes: int,
    options: Options,
    shared: dict[Any, list[Any]],
) -> Any:
    order, rank = options.order, len(x.sizes)
    row_rank = len(tables[0].sizes) - 1 if positions is None else len(positions.sizes)
    if order == "time" and rank >= 4 and row_rank <= 1:
        # All leading axes share their rows: the last of them may as well be heads.
        order = "heads_time"
    heads = _heads(x, order)
    lead = rank - (2 if order == "time" else 3)
    time = rank + reference.time_axis(order)
    before, turning = None, x
    if options.rotary_offset:
        before = _lanes(x.value, 0, options.rotary_offset)
        left = _lanes(x.value, options.rotary_offset, x.sizes[-1])
        turning = Traced(left, [*x.sizes[:-1], _int(x.sizes[-1]) - options.rotary_offset])
    lanes = _int(turning.sizes[-1])
    batch = _batch(x, lead)
    length = _extent(x, time, time + 1)
    attributes: dict[str, Any] = {"interleaved": int(options.pairing == "adjacent")}
    if 2 * planes < lanes:
        attributes["rotary_embedding_dim"] = 2 * planes
    if order == "heads_time":
        shape = [*batch, *_extent(x, rank - 3, rank - 2), *length, lanes]
        flat = turning.value if lead == 1 else _reshape(turning.value, shape)
    else:
        attributes["num_heads"] = heads
        if lead == 1 and order == "time":
            flat = turning.value
        elif lead == 1:
            # 0 keeps an axis as it is, whatever its size at run time.
            flat = op.Reshape(turning.value, constant(np.array([0, 0, heads * lanes])))
        else:
            flat = _reshape(turning.value, [*batch, *length, heads * lanes])
    sizes = [*x.sizes[:lead], x.sizes[time]]
    # Keys take what was made for the queries.
    inputs = None if None in sizes else shared.get(tuple(sizes))
    if inputs is None:
        if positions is None:
            tail, tail_sizes = [*length, planes], [*sizes, planes]
            inputs = [_spread(t, x, lead, tail, tail_sizes) for t in tables]
        else:
            inputs = [*(t.value for t in tables), _spread(positions, x, lead, length, sizes)]
        shared[tuple(sizes)] = inputs
    turned = op.RotaryEmbedding(flat, *inputs, **attributes)
    if flat is not turning.value:
        turned = _restore(turned, turning, lead)
    return turned if before is None else op.Concat(before, turned, axis=-1)


def _heads(x: Traced, order: str) -> int:
    """Return the number of heads where the node must be told."""
    if order != "time_heads":
        return 1
    heads = x.sizes[-2]
    if not isinstance(heads, int):
        raise InputError(
            "x",
            found="a number of heads that is known at run time only",
            expected="a fixed number, which ONNX keeps as an attribute of the node",
            fix="leave the axis of heads out of dynamic_shapes",
        )
    return heads


def _restore(turned: Any, like: Traced, lead: int) -> Any:
    if lead == 1:
        heads, lanes = _int(like.sizes[-2]), _int(like.sizes[-1])
        return op.Reshape(turned, constant(np.array([0, 0, heads, lanes])))
    return _reshape(turned, _extent(like, 0, len(like.sizes)))


def _spread(rows: Traced, x: Traced, lead: int, tail: list[Any], sizes: Sizes) -> Any:
    """Return rows with all leading axes of x, and these as one: what the node asks for.

    Args:
        rows: per token, or one for several.
        x: the heads.
        lead: number of leading axes of ``x``.
        tail: sizes behind the leading axes, as parts of a shape.
        sizes: the sizes to arrive at, before the leading axes become one.
    """
    missing = len(sizes) - len(rows.sizes)
    same = rows.sizes == sizes[missing:] and None not in rows.sizes
    value = rows.value
    if not same or any(size != 1 for size in sizes[:missing]):
        value = op.Expand(value, _shape([*_extent(x, 0, lead), *tail]))
    elif missing and lead == 1:
        return op.Unsqueeze(value, constant(np.arange(missing)))
    return value if lead == 1 else _reshape(value, [*_batch(x, lead), *tail])


def _batch(x: Traced, lead: int) -> list[Any]:
    """Return the product of the leading axes, as an extent."""
    known = [s for s in x.sizes[:lead] if isinstance(s, int)]
    if len(known) == lead:
        return [int(np.prod(known, dtype=np.int64))]
    if lead == 1:
        return _extent(x, 0, 1)
    return [op.ReduceProd(op.Shape(x.value, start=0, end=lead), keepdims=1)]


# ---- rows of tables ----------------------------------------------------------------------


def _guarded(positions: Any) -> Any:
    """Return positions of which negative ones are errors: Gather counts them from the end."""
    beyond = constant(np.array(np.iinfo(np.int64).max))
    return op.Where(op.Less(positions, constant(np.array(0))), beyond, positions)


def _rows(tables: list[Traced], positions: Traced) -> list[Traced]:
    index = _guarded(positions.value)
    return [
        Traced(op.Gather(t.value, index, axis=0), [*positions.sizes, t.sizes[-1]]) for t in tables
    ]


def _rows_by_axis(tables: list[Traced], positions: Traced, axes: list[int]) -> list[Traced]:
    """Pick each plane's rows by its own axis of positions; see `rotation.rows.pick_rows`."""
    planes, rank = len(axes), len(positions.sizes)
    picked = op.Gather(positions.value, constant(np.array(axes, np.int64)), axis=0)
    last = op.Transpose(picked, perm=[*range(1, rank), 0])
    index = op.Reshape(_guarded(last), constant(np.array([-1, planes])))
    shape = _shape([*_extent(positions, 1, rank), planes])
    return [
        Traced(
            op.Reshape(op.GatherElements(t.value, index, axis=0), shape, allowzero=1),
            [*positions.sizes[1:], planes],
        )
        for t in tables
    ]


# ---- float64 -----------------------------------------------------------------------------


def _written_out(x: Traced, tables: list[Traced], planes: int, options: Options) -> Any:
    """Two products and one sum for each lane, in the order of `rotation.reference`."""
    cos, sin = (t.value for t in tables)
    if options.order != "time" and len(tables[0].sizes) >= 2:
        axis = constant(np.array([-2 if options.order == "time_heads" else -3]))
        cos, sin = op.Unsqueeze(cos, axis), op.Unsqueeze(sin, axis)
    start, lanes = options.rotary_offset, _int(x.sizes[-1])
    end = start + 2 * planes
    if options.pairing == "half":
        a, b = _lanes(x.value, start, start + planes), _lanes(x.value, start + planes, end)
    else:
        a, b = _lanes(x.value, start, end, 2), _lanes(x.value, start + 1, end, 2)
    first = op.Sub(op.Mul(a, cos), op.Mul(b, sin))
    second = op.Add(op.Mul(a, sin), op.Mul(b, cos))
    if options.pairing == "half":
        parts = [first, second]
    else:
        last = constant(np.array([-1]))
        paired = op.Concat(op.Unsqueeze(first, last), op.Unsqueeze(second, last), axis=-1)
        shape = [0] * (len(x.sizes) - 1) + [2 * planes]
        parts = [op.Reshape(paired, constant(np.array(shape)))]
    if start:
        parts.insert(0, _lanes(x.value, 0, start))
    if end < lanes:
        parts.append(_lanes(x.value, end, lanes))
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=-1)


# ---- shapes ------------------------------------------------------------------------------


def _extent(x: Traced, start: int, end: int) -> list[Any]:
    """Return the sizes of some axes: numbers where they are all known, else one value."""
    known = x.sizes[start:end]
    if all(isinstance(s, int) for s in known):
        return list(known)
    return [op.Shape(x.value, start=start, end=end)]


def _shape(parts: list[Any]) -> Any:
    """Return one shape of numbers and of values that hold sizes."""
    joined: list[Any] = []
    for part in parts:
        if not isinstance(part, int):
            joined.append(part)
        elif joined and isinstance(joined[-1], list):
            joined[-1].append(part)
        else:
            joined.append([part])
    values = [constant(np.array(j)) if isinstance(j, list) else j for j in joined]
    return values[0] if len(values) == 1 else op.Concat(*values, axis=0)


def _reshape(value: Any, parts: list[Any]) -> Any:
    # A size of 0 is meant, not "as before".
    return op.Reshape(value, _shape(parts), allowzero=1)


def _lanes(value: Any, start: int, end: Any, step: int = 1) -> Any:
    bounds = (constant(np.array([n])) for n in (start, end, -1, step))
    return op.Slice(value, *bounds)


def _cast(value: Any, to: ir.DataType, of: ir.DataType | None = None) -> Any:
    return value if (value.dtype if of is None else of) == to else op.Cast(value, to=int(to))


def _int(size: int | str | None) -> int:
    assert isinstance(size, int)
    return size
