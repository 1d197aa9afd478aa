"""Exported models in ONNX Runtime and in ONNX's own reference, against Ropewalk."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import mp_oracle
import numpy as np
import onnx
import onnxruntime
import onnxscript
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from onnxscript import evaluator, ir

from ropewalk import DynamicNTK, LongRoPE, Rope, YaRN, cos_sin
from ropewalk.errors import InputError
from ropewalk.torch import RotaryEmbedding, rotate, rotate_
from ropewalk.torch.onnx import export, translations

# PyTorch's exporter, about itself.
pytestmark = [
    pytest.mark.filterwarnings(
        r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"
    ),
    pytest.mark.filterwarnings("ignore:# The axis name. . will not be used:UserWarning"),
]

UNIT = 2.0**-24
"""Half the distance of neighbouring float32 around 1."""

ROWS = 40
FACTOR = 1.25


def session(model: Any) -> onnxruntime.InferenceSession:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), quiet, providers=["CPUExecutionProvider"]
    )


def run(runner: onnxruntime.InferenceSession, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    feed = {g.name: x.numpy() for g, x in zip(runner.get_inputs(), inputs, strict=True)}
    return [torch.from_numpy(y) for y in runner.run(None, feed)]


def checked(program: Any) -> Any:
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert [(o.domain, o.version) for o in program.model_proto.opset_import] == [("", 23)]
    return program.model_proto


def nodes(model: Any, kind: str) -> list[Any]:
    return [n for n in model.graph.node if (n.op_type, n.domain) == (kind, "")]


def attributes(node: Any) -> dict[str, int]:
    """What a RotaryEmbedding says: interleaved, num_heads, rotary_embedding_dim."""
    return {a.name: a.i for a in node.attribute if a.i}


# ---- one model of many rotations ---------------------------------------------------------

H, D = 3, 12
SHAPES = {
    # Of the leading axes, "B" and "T" are known at run time.
    "time_heads": ("B", "T", H, D),
    "heads_time": ("B", H, "T", D),
    "time": ("B", "T", D),
    "bare time_heads": ("T", H, D),
    "bare heads_time": (H, "T", D),
    "bare time": ("T", D),
    "deep time_heads": (2, "B", "T", H, D),
    "deep heads_time": ("B", 2, H, "T", D),
    "deep time": ("B", H, "T", D),
    "one time_heads": (1, "T", H, D),
}


class Case:
    """One rotation: its inputs at any batch and length, and its options."""

    def __init__(
        self,
        shape: str,
        rows: tuple[Any, ...],
        *,
        dtype: torch.dtype = torch.float32,
        values: torch.dtype | None = None,
        planes: int = D // 2,
        ids: tuple[Any, ...] | None = None,
        axes: list[int] | None = None,
        **options: Any,
    ) -> None:
        self.order = shape.split()[-1]
        self.shape, self.rows, self.ids = SHAPES[shape], rows, ids
        self.dtype, self.planes, self.axes = dtype, planes, axes
        # What the numbers of x are representable in.
        self.values = dtype if values is None else values
        self.options = {"order": self.order, "plane_axes": axes, **options}

    def names(self) -> list[tuple[Any, ...]]:
        """What this case takes; equal names are one input of the model."""
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        rows = (*self.rows, self.planes)
        out = [("x", self.shape, self.values), ("cos", rows, wide), ("sin", rows, wide)]
        return out if self.ids is None else [*out, ("ids", self.ids, self)]

    def turn(self, x: torch.Tensor, cos: Any, sin: Any, ids: Any = None) -> torch.Tensor:
        """Rotate; half precision is float32 outside, so that NumPy can carry it."""
        half = self.dtype.itemsize == 2
        given = x.to(self.dtype) if half else x
        turned = rotate(given, cos, sin, positions=ids, **self.options)
        return turned.float() if half else turned

    def tolerance(self, x: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
        """How far a runtime may be off that fuses one product into the sum.

        Products are rounded once or not at all: |a cos| + |b sin| units; a second rounding of
        either side's sum: one each. By Cauchy that is at most 4 units of radius times factor.
        Then both are rounded to the input's dtype.
        """
        if self.dtype == torch.float64:
            return torch.zeros_like(want)
        limits = torch.finfo(self.dtype)
        radius = x.double().abs().amax(-1, keepdim=True) * 2**0.5 * FACTOR
        bound = 4 * UNIT * radius
        if self.dtype != torch.float32:
            bound = bound + limits.eps * want.abs() + limits.smallest_normal * limits.eps
        return bound


CASES = {
    # Every order, pairing and number of leading axes.
    "half": Case("time_heads", ("T",)),
    "adjacent": Case("time_heads", ("B", "T"), pairing="adjacent"),
    "heads first": Case("heads_time", ("B", "T")),
    "heads first, adjacent": Case("heads_time", ("T",), pairing="adjacent", values=torch.float16),
    "no heads": Case("time", ("T",)),
    "no heads, partial": Case("time", ("B", "T"), planes=4, pairing="adjacent"),
    "bare": Case("bare time_heads", ("T",)),
    "bare, heads first": Case("bare heads_time", ("T",), planes=2),
    "bare, no heads": Case("bare time", ("T",), pairing="adjacent"),
    "deep": Case("deep time_heads", ("B", "T")),
    "deep, all rows": Case("deep time_heads", (2, 1, "T")),
    "deep, heads first": Case("deep heads_time", ("T",), planes=5),
    "deep, no heads": Case("deep time", ("T",)),
    "deep, no heads, rows each": Case("deep time", (H, "T")),
    "batch of one": Case("one time_heads", ("T",)),
    # Rows that broadcast.
    "one row": Case("time_heads", ()),
    "one row, as time": Case("heads_time", (1,)),
    "one row each": Case("time_heads", ("B", 1), inverse=True),
    # Parts of the head.
    "partial": Case("time_heads", ("T",), planes=3, values=torch.bfloat16),
    "partial, adjacent": Case("time_heads", ("T",), planes=1, pairing="adjacent"),
    "offset": Case("time_heads", ("T",), planes=3, rotary_offset=4),
    "offset, tail": Case("heads_time", ("T",), planes=4, rotary_offset=4, pairing="adjacent"),
    "offset, deep": Case("deep time_heads", ("T",), planes=2, rotary_offset=1),
    "offset, no heads": Case("time", ("T",), planes=2, rotary_offset=5, inverse=True),
    "nothing": Case("time_heads", ("T",), planes=0),
    "inverse": Case("time_heads", ("T",), inverse=True),
    # Rows by position.
    "positions": Case("time_heads", (ROWS,), ids=("T",)),
    "positions each": Case("heads_time", (ROWS,), ids=("B", "T"), pairing="adjacent"),
    "positions, bare": Case("bare time_heads", (ROWS,), ids=("T",), inverse=True),
    "positions, deep": Case("deep time_heads", (ROWS,), ids=("B", "T"), planes=2),
    "positions, shared": Case("heads_time", (ROWS,), ids=(1, "T")),
    "axes": Case("time_heads", (ROWS,), ids=(3, "T"), axes=[0, 1, 2, 2, 1, 0]),
    "axes each": Case("heads_time", (ROWS,), ids=(2, "B", "T"), planes=3, axes=[1, 0, 1]),
    # Dtypes.
    "bfloat16": Case("time_heads", ("T",), dtype=torch.bfloat16, planes=3),
    "float16": Case("heads_time", ("T",), dtype=torch.float16, pairing="adjacent"),
    "bfloat16, offset": Case("time_heads", ("T",), dtype=torch.bfloat16, planes=2, rotary_offset=3),
    "float64": Case("time_heads", ("T",), dtype=torch.float64),
    "float64, adjacent": Case(
        "heads_time", ("B", "T"), dtype=torch.float64, pairing="adjacent", planes=2, rotary_offset=3
    ),
    "float64, bare": Case("bare time_heads", (), dtype=torch.float64, inverse=True),
    "float64, positions": Case("time_heads", (ROWS,), ids=("B", "T"), dtype=torch.float64),
    "float64, no heads": Case("time", (ROWS,), ids=("T",), dtype=torch.float64, planes=4),
    "float64, axes": Case(
        "heads_time", (ROWS,), ids=(2, "T"), axes=[1, 0, 1, 0, 0, 1], dtype=torch.float64
    ),
}


NAMES = list(dict.fromkeys(name for case in CASES.values() for name in case.names()))


class Many(torch.nn.Module):
    def forward(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        at_hand = dict(zip(NAMES, tensors, strict=True))
        return [case.turn(*(at_hand[name] for name in case.names())) for case in CASES.values()]


def inputs_at(batch: int, time: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(batch + time)
    angles: dict[Any, torch.Tensor] = {}
    out = []
    for kind, axes, dtype in NAMES:
        shape = [{"B": batch, "T": time}.get(a, a) for a in axes]
        if kind == "ids":
            out.append(torch.randint(0, ROWS, shape, generator=made))
            continue
        drawn = torch.randn(shape, generator=made, dtype=torch.float64)
        if kind == "x":
            out.append(
                drawn.to(dtype).to(torch.float64 if dtype == torch.float64 else torch.float32)
            )
            continue
        angle = angles.setdefault((axes, dtype), 9 * drawn)
        out.append((FACTOR * (angle.cos() if kind == "cos" else angle.sin())).to(dtype))
    return out


def dynamic_axes() -> list[dict[int, Any]]:
    sizes = {"B": torch.export.Dim("B"), "T": torch.export.Dim("T")}
    return [{i: sizes[a] for i, a in enumerate(axes) if a in sizes} for _, axes, _ in NAMES]


@pytest.fixture(scope="module")
def many() -> Any:
    return checked(export(Many().eval(), (inputs_at(2, 5),), dynamic_shapes=(dynamic_axes(),)))


@pytest.mark.parametrize(("batch", "time"), [(2, 5), (1, 1), (3, 40), (2, 0), (1, 7)])
def test_equals_ropewalk(many: Any, batch: int, time: int) -> None:
    inputs = inputs_at(batch, time)
    check_all(inputs, run(session(many), inputs))


def test_equals_ropewalk_in_the_reference_of_onnx(many: Any) -> None:
    inputs = inputs_at(2, 6)
    feed = {g.name: x.numpy() for g, x in zip(many.graph.input, inputs, strict=True)}
    check_all(inputs, [torch.from_numpy(y) for y in ReferenceEvaluator(many).run(None, feed)])


def check_all(inputs: list[torch.Tensor], got: list[torch.Tensor]) -> None:
    at_hand = dict(zip(NAMES, inputs, strict=True))
    for (name, case), out in zip(CASES.items(), got, strict=True):
        given = [at_hand[n] for n in case.names()]
        want = case.turn(*given)
        assert (out.shape, out.dtype) == (want.shape, want.dtype), name
        off = (out.double() - want.double()).abs()
        assert bool((off <= case.tolerance(given[0], want)).all()), (name, off.max())
        start = case.options.get("rotary_offset", 0)
        end = start + 2 * case.planes
        for lanes in (slice(0, start), slice(end, None)):
            assert torch.equal(out[..., lanes], given[0][..., lanes]), name


def test_half_precision_is_rounded_once(many: Any) -> None:
    got = dict(zip(CASES, run(session(many), inputs_at(2, 33)), strict=True))
    for half, single in (("bfloat16", "partial"), ("float16", "heads first, adjacent")):
        assert torch.equal(got[half], got[single].to(CASES[half].dtype).float())


def test_one_node_for_each_rotation(many: Any) -> None:
    expected = []
    for case in CASES.values():
        if case.dtype == torch.float64 or not case.planes:
            continue
        left = D - case.options.get("rotary_offset", 0)
        said = {"interleaved": 1} if case.options.get("pairing") == "adjacent" else {}
        if 2 * case.planes < left:
            said["rotary_embedding_dim"] = 2 * case.planes
        if case.order == "time_heads":
            said["num_heads"] = H
        # "time" with one row for all leading axes: the last of them stands for heads.
        elif case.order == "time" and (len(case.shape) < 4 or len(case.rows) > 1):
            said["num_heads"] = 1
        expected.append(said)
    found = nodes(many, "RotaryEmbedding")
    assert [attributes(n) for n in found] == expected
    # No order needs its axes moved; the axes of planes are put last.
    by_axis = sum(case.axes is not None for case in CASES.values())
    assert len(nodes(many, "Transpose")) == by_axis


@pytest.mark.parametrize("name", ["positions", "axes", "float64, positions", "float64, axes"])
@pytest.mark.parametrize("position", [ROWS, -1])
def test_a_position_without_a_row_stops_the_runtime(many: Any, name: str, position: int) -> None:
    inputs = inputs_at(2, 5)
    inputs[NAMES.index(CASES[name].names()[-1])][..., -1] = position
    with pytest.raises(Exception, match=r"(?i)out of"):
        run(session(many), inputs)


# ---- tables ------------------------------------------------------------------------------

ROPES = {
    "plain": (Rope(head_dim=32, theta=1e6), None),
    "yarn": (Rope(head_dim=16, scaling=YaRN(factor=8, original_length=64), direction=-1), None),
    "dynamic": (Rope(head_dim=16, scaling=DynamicNTK(factor=2, original_length=64)), 300),
    "long": (
        Rope(
            head_dim=8,
            scaling=LongRoPE(
                short_factor=(1, 1, 1, 1), long_factor=(1, 2, 3, 4), factor=4, original_length=64
            ),
        ),
        65,
    ),
}
WHOLE = [0, 1, -1, 257, 65_537, 2**24 + 1, 2**31 - 1, -(2**31)]
BETWEEN = [0.5, -0.25, 1000.125, 2.0**31 - 0.5, -77.0, 3.0]

# Which of the inputs is computed in which dtype.
COMPUTED = [
    (0, torch.float32),
    (0, torch.float64),
    (1, torch.float32),
    (2, torch.float64),
    (3, torch.float32),
]


class Tables(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.made = torch.nn.ModuleList(RotaryEmbedding(rope) for rope, _ in ROPES.values())

    def forward(self, *kinds: torch.Tensor) -> list[torch.Tensor]:
        out: list[torch.Tensor] = []
        for rotary, (_, length) in zip(self.made, ROPES.values(), strict=True):
            for kind, dtype in COMPUTED:
                out += rotary.cos_sin(kinds[kind], length=length, dtype=dtype)
        out += [t.float() for t in self.made[1].cos_sin(kinds[0], dtype=torch.bfloat16)]
        return out


@pytest.fixture(scope="module")
def tables() -> Any:
    dtypes = (torch.int64, torch.int32, torch.float64, torch.float32)
    examples = tuple(torch.arange(6).reshape(3, 2).to(t) for t in dtypes)
    sizes = {0: torch.export.Dim("A"), 1: torch.export.Dim("C")}
    shapes = {"kinds": tuple(sizes for _ in dtypes)}
    return checked(export(Tables().eval(), examples, dynamic_shapes=shapes))


def positions_of(whole: Any, between: Any) -> list[torch.Tensor]:
    return [
        torch.tensor(whole),
        torch.tensor(whole, dtype=torch.int32),
        torch.tensor(between, dtype=torch.float64),
        torch.tensor(between, dtype=torch.float32),
    ]


def test_tables_equal_the_exact_ones(tables: Any) -> None:
    """The angle is the same to the last bit; Cos and Sin of float64 may be off by some units."""
    few = [[-3, 4_000_000]]
    for kinds in (
        [t.reshape(1, -1) for t in positions_of(WHOLE, [*BETWEEN, 9.0, 1e6 + 0.5])],
        positions_of(few, few),
        positions_of([[2**30 + 1]] * 5, [[0.1]] * 5),
    ):
        got = iter(run(session(tables), kinds))
        for rope, length in ROPES.values():
            factor = rope.attention_factor(length)
            for kind, wide in COMPUTED:
                dtype = np.float32 if wide == torch.float32 else np.float64
                numbers = kinds[kind].numpy()
                for want in cos_sin(rope, numbers, length=length, dtype=dtype):
                    out = next(got).numpy()
                    assert (out.shape, out.dtype) == (want.shape, want.dtype)
                    bound = 8 * 2.0**-53 * factor
                    if dtype == np.float32:
                        # The place between two float32 may fall on either side.
                        bound = bound + np.spacing(np.abs(want)).astype(np.float64)
                    assert np.all(np.abs(out.astype(np.float64) - want) <= bound)
        for want in RotaryEmbedding(ROPES["yarn"][0]).cos_sin(kinds[0], dtype=torch.bfloat16):
            off = (next(got) - want.float()).abs()
            assert bool((off <= torch.finfo(torch.bfloat16).eps * want.float().abs()).all())
        assert next(got, None) is None


@pytest.mark.parametrize("name", ROPES)
def test_tables_are_right_by_mpmath(tables: Any, name: str) -> None:
    rope, length = ROPES[name]
    kinds = [t.reshape(1, -1) for t in positions_of(WHOLE, [*BETWEEN, 9.0, 10.0])]
    start = list(ROPES).index(name) * 2 * len(COMPUTED)
    cos, sin = run(session(tables), kinds)[start : start + 2]
    for i, position in enumerate(WHOLE):
        for plane, turn in enumerate(mp_oracle.frequencies(rope, length)):
            angle = mp_oracle.mp.mpf(position) * turn * rope.direction
            factor = mp_oracle.mp.mpf(rope.attention_factor(length))
            # Half a place of float32, the fraction's 65th bit, and float64's Cos and Sin.
            bound = factor * (UNIT + 2 * mp_oracle.mp.pi * abs(position) * 2.0**-65 + 2.0**-50)
            assert abs(float(cos[0, i, plane]) - factor * mp_oracle.mp.cos(angle)) <= bound
            assert abs(float(sin[0, i, plane]) - factor * mp_oracle.mp.sin(angle)) <= bound


# ---- the module --------------------------------------------------------------------------


class Turning(torch.nn.Module):
    """Ways to call the module, of a rope that begins at lane 2."""

    def __init__(self) -> None:
        super().__init__()
        rope = Rope(
            head_dim=16,
            rotary_dim=12,
            rotary_offset=2,
            pairing="adjacent",
            scaling=YaRN(factor=8, original_length=64),
        )
        self.rotary = RotaryEmbedding(rope)
        self.long = RotaryEmbedding(ROPES["dynamic"][0])

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor
    ) -> list[torch.Tensor]:
        moved = q.transpose(1, 2), k.transpose(1, 2)
        pairs = [
            self.rotary(q, k),
            self.rotary(q, k, offset=1000, inverse=True),
            self.rotary(*moved, order="heads_time", positions=positions),
            self.rotary(q, k, positions=positions[0]),
            self.long(q, k, length=300),
        ]
        return [x for pair in pairs for x in pair]


def turning_inputs(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    made = torch.Generator().manual_seed(time)
    return (
        torch.randn(batch, time, 4, 16, generator=made),
        torch.randn(batch, time, 2, 16, generator=made),
        torch.randint(0, 2**31, (batch, time), generator=made),
    )


def test_module() -> None:
    model = Turning().eval()
    axes = {0: torch.export.Dim("B"), 1: torch.export.Dim("T")}
    exported = checked(export(model, turning_inputs(2, 5), dynamic_shapes=(axes, axes, axes)))
    assert len(nodes(exported, "RotaryEmbedding")) == 10
    # Keys take the rows that were spread for the queries; rows per text need no spreading.
    assert len(nodes(exported, "Expand")) == 2 * 4
    runner = session(exported)
    factor = model.rotary.rope.attention_factor()
    for batch, time in ((2, 5), (1, 1), (1, 300), (5, 64)):
        given = turning_inputs(batch, time)
        for out, want in zip(run(runner, list(given)), model(*given), strict=True):
            radius = want.abs().amax(-1, keepdim=True) * 2**0.5
            # 4 units for the runtime's fused sums, and one place (2 units) of each of two
            # tables, at right angles.
            assert bool(((out - want).abs() <= (4 + 2 * 2**0.5) * UNIT * radius * factor).all())


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(32, (4 + 2 + 2) * 8)
        self.rotary = RotaryEmbedding(Rope(head_dim=8, rotary_dim=4))
        self.out = torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).unflatten(-1, (8, 8)).split((4, 2, 2), dim=-2)
        q, k = self.rotary(q, k)
        k, v = (t.repeat_interleave(2, dim=-2) for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


def test_attention(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Attention().eval()
    axes = {0: torch.export.Dim("B"), 1: torch.export.Dim("T")}
    path = tmp_path / "attention.onnx"
    export(model, (torch.randn(2, 5, 32),), path, dynamic_shapes=(axes,), external_data=True)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["attention.onnx", "attention.onnx.data"]
    onnx.checker.check_model(path, full_check=True)
    assert len(nodes(onnx.load(path), "RotaryEmbedding")) == 2
    runner = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch, time in ((2, 5), (1, 1), (3, 70)):
        x = torch.randn(batch, time, 32)
        with torch.no_grad():
            single = model(x)
            model.double()
            want = model(x.double())
            model.float()
        (got,) = run(runner, [x])
        # As right as PyTorch's own float32, within its last places.
        usual = (single.double() - want).abs().max() + UNIT * want.abs().max()
        assert (got.double() - want).abs().max() <= 8 * usual


class Plainly(torch.nn.Module):
    def forward(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return rotate(q, cos, sin)


def plain_inputs() -> tuple[torch.Tensor, ...]:
    cos, sin = cos_sin(Rope(head_dim=8), torch.arange(3))
    return torch.ones(1, 3, 2, 8), cos, sin


def test_translations_alone() -> None:
    exported = torch.onnx.export(
        Plainly().eval(),
        plain_inputs(),
        dynamo=True,
        opset_version=23,
        custom_translation_table=translations(),
        verbose=False,
    )
    model = checked(exported)
    # One row of tables for one text: nothing to repeat.
    assert not nodes(model, "Expand")
    (got,) = run(session(model), list(plain_inputs()))
    assert bool(((got - rotate(*plain_inputs())).abs() <= 4 * UNIT * 2**0.5).all())


class Lengths(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rotary = RotaryEmbedding(ROPES["dynamic"][0])

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return self.rotary(q, q)[0]


def test_an_exported_program_of_one_length() -> None:
    """Dynamic NTK at the length that the program was made for."""
    q = torch.ones(1, 100, 2, 16)
    model = checked(export(torch.export.export(Lengths().eval(), (q,)), ()))
    (got,) = run(session(model), [q])
    assert bool(((got - Lengths()(q)).abs() <= (4 + 2 * 2**0.5) * UNIT * 2**0.5).all())


# ---- files -------------------------------------------------------------------------------


class Stub:
    """Stands for an exported program."""

    fails = False

    def save(self, path: Path, **options: Any) -> None:
        path.write_text("model")
        if options["external_data"]:
            path.with_name(path.name + ".data").write_text("data")
        if self.fails:
            raise OSError("no space left")


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    made = Stub()
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: made)
    return made


def test_a_file_is_not_replaced_unasked(stub: Stub, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_text("mine")
    with pytest.raises(InputError, match=r"m.onnx, which exists.*overwrite=True"):
        export(Plainly(), (), path)
    assert path.read_text() == "mine"
    assert export(Plainly(), (), path, overwrite=True) is stub
    assert path.read_text() == "model"
    # The name that the weights need may be taken too.
    other = tmp_path / "n.onnx"
    data = tmp_path / "n.onnx.data"
    data.write_text("mine")
    with pytest.raises(InputError, match=r"n.onnx.data, which exists"):
        export(Plainly(), (), other, external_data=True)
    assert data.read_text() == "mine"
    assert not other.exists()
    export(Plainly(), (), other, external_data=True, overwrite=True)
    assert (other.read_text(), data.read_text()) == ("model", "data")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["m.onnx", "n.onnx", "n.onnx.data"]


def test_a_write_that_fails_leaves_what_was_there(stub: Stub, tmp_path: Path) -> None:
    stub.fails = True
    path = tmp_path / "m.onnx"
    path.write_text("mine")
    with pytest.raises(OSError, match="no space left"):
        export(Plainly(), (), path, overwrite=True)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


# ---- refusals ----------------------------------------------------------------------------


def test_refuses_options_that_do_not_fit(tmp_path: Path) -> None:
    for options, sentence in (
        ({"f": "m.onnx"}, r"f: .*path="),
        ({"dynamic_axes": {}}, r"dynamic_axes: .*dynamic_shapes="),
        ({"dynamo": False}, r"dynamo: got False"),
        ({"opset_version": 18}, r"opset_version: got 18, expected 23 or above"),
        ({"path": tmp_path / "none" / "m.onnx"}, r"path: .*folder that does not exist"),
        ({"path": tmp_path}, r"path: .*a folder, expected a file"),
    ):
        with pytest.raises(InputError, match=sentence):
            export(Plainly(), plain_inputs(), **options)


class InPlace(torch.nn.Module):
    def forward(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return rotate_(q * 2, cos, sin)


@pytest.mark.parametrize(
    ("model", "inputs", "axes", "sentence"),
    [
        (InPlace(), plain_inputs(), None, r"rotate_: got a rotation in place.*call rotate,"),
        (Lengths(), (torch.ones(1, 3, 2, 16),), {1}, r"length: .*dynamic depend on it"),
        (Plainly(), plain_inputs(), {2}, r"x: got a number of heads that is known at run time"),
    ],
    ids=["in place", "length", "heads"],
)
def test_refuses_what_onnx_cannot_say(model: Any, inputs: Any, axes: Any, sentence: str) -> None:
    dynamic = None
    if axes is not None:
        dynamic = [dict.fromkeys(axes, torch.export.Dim.DYNAMIC)] + [None] * (len(inputs) - 1)
        dynamic = tuple(dynamic)
    with pytest.raises(InputError, match=sentence) as caught:
        export(model.eval(), inputs, dynamic_shapes=dynamic)
    assert "\n" not in str(caught.value)


def test_translations_refuse_an_old_opset() -> None:
    class Recorder:
        opset = onnxscript.values.Opset("", 20)

    for translation in translations().values():
        needed = [
            p for p in inspect.signature(translation).parameters.values() if p.default is p.empty
        ]
        with (
            evaluator.default_as(Recorder()),
            pytest.raises(InputError, match=r"opset_version: got 20, expected 23 or above"),
        ):
            translation(*needed)


def test_translations_refuse_what_the_operators_do() -> None:
    rotated, _, tables = translations().values()
    half = ir.val("p", dtype=ir.DataType.FLOAT16, shape=[3])
    with pytest.raises(InputError, match=r"positions: got dtype float16, .*merges neighbouring"):
        tables(half, Rope(head_dim=8).to_json(), None, ir.DataType.FLOAT)
    ids = ir.val("x", dtype=ir.DataType.INT64, shape=[1, 3, 2, 8])
    with pytest.raises(InputError, match=r"x: got dtype int64, expected float16"):
        rotated(ids, half, half, "half", "time_heads", 0, False)
    x = ir.val("x", dtype=ir.DataType.FLOAT, shape=[1, 3, 2, 8])
    open_ended = ir.val("cos", dtype=ir.DataType.FLOAT, shape=[3, "planes"])
    with pytest.raises(InputError, match=r"cos: got a last axis that is known at run time only"):
        rotated(x, open_ended, open_ended, "half", "time_heads", 0, False)
    rows = ir.val("cos", dtype=ir.DataType.FLOAT, shape=[3, 4])
    with pytest.raises(InputError, match=r"at most 3 planes"):
        rotated(x, rows, rows, "half", "time_heads", 2, False)
    with pytest.raises(InputError, match=r"positions of these tokens|3 positions"):
        rotated(x, ir.val("cos", dtype=x.dtype, shape=[5, 4]), rows, "half", "time_heads", 0, False)
