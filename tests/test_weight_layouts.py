"""Every family's layout of query and key weights, seen in the logits of converted models."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tiny_models  # noqa: E402

from ropewalk import InputError  # noqa: E402
from ropewalk.convert.layouts import LAYOUTS, WITHOUT, layout_of  # noqa: E402
from ropewalk.convert.weights import convert_pairing  # noqa: E402
from ropewalk.models import FAMILIES, read_config  # noqa: E402
from ropewalk.models.read import read  # noqa: E402
from ropewalk.rotation import rotate  # noqa: E402
from ropewalk.torch.recognition import AXIS, recognise  # noqa: E402
from ropewalk.torch.rotary_tables import CUT, LAY  # noqa: E402

# `ropewalk.torch.accelerate` is the function; its module is found where modules are.
accelerate = sys.modules["ropewalk.torch.accelerate"]
PAGE = Path(__file__).parents[1] / "docs" / "pairing.md"

NOT_RUN: dict[str, str] = {
    **dict.fromkeys(
        [name for name, family in FAMILIES.items() if family.remote and name in LAYOUTS],
        "its code travels with its checkpoints and is not here",
    ),
    **dict.fromkeys(
        ("exaone", "internlm3"), "transformers has their config and no file with their code"
    ),
    "roformer": "its rotation is a method: a test of its own runs it",
}
"""Families with a layout that the run below leaves out."""

RUN = [name for name in LAYOUTS if name not in NOT_RUN]


def _parameters() -> list[Any]:
    """Every family; the first of each layout in the fast run, the others in the long one."""
    seen: list[Any] = []
    out = []
    for name in RUN:
        fast = not any(layout is LAYOUTS[name] for layout in seen)
        seen.append(LAYOUTS[name])
        out.append(pytest.param(name, id=name, marks=[] if fast else [pytest.mark.slow]))
    return out


def _laid(turns: Any, cos: Any, sin: Any) -> str:
    """Name the layout of tables among those that a function takes."""
    for name in ("tiled", "repeated"):
        if name in turns and (
            len(turns) == 1
            or all(
                torch.equal(a, b)
                for a, b in zip(LAY[name](*CUT[name](cos, sin)), (cos, sin), strict=True)
            )
        ):
            return name
    return "complex" if "complex" in turns else "single"


def _other_way(original: Any, found: Any, own: str, turned: list[str]) -> Any:
    """A function that rotates as ``original``, but lanes of the other pairing.

    What rotates by the other pairing already (an indexer of its own) stays.
    """
    a = found.arguments
    to: Any = "half" if own == "adjacent" else "adjacent"

    def rotates(*args: Any, **options: Any) -> Any:
        cos, sin = args[a.cos], args[a.sin]
        layout = _laid(found.turns, cos, sin)
        turn = found.turns[layout]
        if ("adjacent" if turn.gathers else turn.pairing) != own:
            return original(*args, **options)
        xs = [x for x in args[: a.turned] if x is not None]
        first = xs[0]
        cut = [t.to(torch.promote_types(first.dtype, torch.float32)) for t in CUT[layout](cos, sin)]
        order = found.orders[options.get(AXIS, found.axis), first.dim(), cos.dim()]
        if cut[0].dim() == 3 and cut[0].shape[0] == 1:
            cut = [t[0] for t in cut]
        left = first.shape[-1] - 2 * cut[0].shape[-1]
        offset = left if found.place == "tail" else 0
        turned.append(layout)
        out = []
        for x in xs:
            y = rotate(
                x if x.dim() == 4 else x[None],
                *cut,
                pairing=to,
                order=order,
                rotary_offset=offset,
                inverse=turn.inverse,
            )
            out.append(y if x.dim() == 4 else y[0])
        if a.turned == 1:
            return out[0]
        return tuple(out) if len(out) == 2 else (out[0], None)

    return rotates


@contextmanager
def _rotating(model: Any, own: str) -> Iterator[list[str]]:
    """Let the family's code rotate the lanes of the other pairing."""
    turned: list[str] = []
    replaced = []
    for (namespace, name), _ in accelerate._functions(model):
        found = recognise(namespace[name])
        if not isinstance(found, str):
            replaced.append((namespace, name, namespace[name]))
            namespace[name] = _other_way(namespace[name], found, own, turned)
    try:
        yield turned
    finally:
        for namespace, name, original in replaced:
            namespace[name] = original


def _tolerance(logits: Any) -> float:
    """The other order of the lanes is another order of sums.

    Models compute in float64 here, but their norms and softmax in float32: a unit in its last
    place, a hundredfold for what the layers make of it.
    """
    return float(100 * 2.0**-24 * logits.abs().max())


def _same_folders(a: Path, b: Path) -> bool:
    names = sorted(p.name for p in a.iterdir())
    return names == sorted(p.name for p in b.iterdir()) and all(
        (a / name).read_bytes() == (b / name).read_bytes() for name in names
    )


@pytest.mark.parametrize("family", _parameters())
def test_converted_models_compute_the_same(family: str, tmp_path: Path) -> None:
    model = tiny_models.build(family)
    given = tiny_models.inputs_of(model)
    model.save_pretrained(tmp_path / "a")
    wanted = tiny_models.outputs(tiny_models.load(model, tmp_path / "a"), given)
    rope = read(tmp_path / "a").rope
    assert rope is not None
    own, to = rope.pairing, "half" if rope.pairing == "adjacent" else "adjacent"
    done = convert_pairing(tmp_path / "a", to, tmp_path / "b", lossy=True)  # type: ignore[arg-type]
    assert (done.before, done.after) == (own, to)
    converted = tiny_models.load(model, tmp_path / "b")
    tolerance = _tolerance(wanted)
    plain = (tiny_models.outputs(converted, given) - wanted).abs().max().item()
    if FAMILIES[family].pairing_switch is not None:
        assert plain <= tolerance
        # Without the key it is another model: the key is what makes it this one.
        setattr(converted.config, str(FAMILIES[family].pairing_switch), True)
        assert (tiny_models.outputs(converted, given) - wanted).abs().max() > 100 * tolerance
    else:
        assert plain > 100 * tolerance
        with _rotating(converted, own) as turned:
            found = tiny_models.outputs(converted, given)
        assert turned
        assert (found - wanted).abs().max().item() <= tolerance
    convert_pairing(tmp_path / "b", own, tmp_path / "c", lossy=True)
    assert _same_folders(tmp_path / "a", tmp_path / "c")


def test_roformer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.RoFormerConfig(
        vocab_size=61, hidden_size=64, embedding_size=64, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=32, max_position_embeddings=64,
        attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.RoFormerForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.3 if parameter.ndim == 1 else 0.0, 0.3)
    model.double().eval().save_pretrained(tmp_path / "a")
    given = tiny_models.inputs_of(model)
    wanted = tiny_models.outputs(model, given)
    convert_pairing(tmp_path / "a", "half", tmp_path / "b", lossy=True)
    converted = tiny_models.load(model, tmp_path / "b")
    tolerance = _tolerance(wanted)
    assert (tiny_models.outputs(converted, given) - wanted).abs().max() > 100 * tolerance

    def rotates(table: Any, *xs: Any) -> Any:
        sin, cos = (t[0, 0] for t in table.chunk(2, dim=-1))
        return tuple(rotate(x, cos, sin, pairing="half", order="heads_time") for x in xs)

    method = "apply_rotary_position_embeddings"
    attention = transformers.models.roformer.modeling_roformer.RoFormerSelfAttention
    monkeypatch.setattr(attention, method, staticmethod(rotates))
    assert (tiny_models.outputs(converted, given) - wanted).abs().max() <= tolerance
    convert_pairing(tmp_path / "b", "adjacent", tmp_path / "c", lossy=True)
    assert _same_folders(tmp_path / "a", tmp_path / "c")


def test_every_family_has_a_layout_or_a_reason() -> None:
    missing = [name for name in FAMILIES if name not in LAYOUTS and name not in WITHOUT]
    assert not missing, f"give each a row in LAYOUTS, or a reason in WITHOUT: {missing}"
    assert not set(LAYOUTS) & set(WITHOUT)
    assert not (set(LAYOUTS) | set(WITHOUT)) - set(FAMILIES)
    lost = [name for name in RUN if name not in tiny_models.families()]
    assert not lost, f"no class of transformers: name each in NOT_RUN: {lost}"


def test_the_reason_is_in_the_refusal() -> None:
    plan = read_config({"model_type": "zaya"}, "config.json")
    with pytest.raises(InputError, match="convolutions mix the lanes"):
        layout_of(plan)


def test_the_page_counts_them() -> None:
    text = PAGE.read_text(encoding="utf-8")
    counted = re.search(r"(\d+) families by their logits.*?(\d+) from their code.*?(\d+) have no",
                        text, re.DOTALL)  # fmt: skip
    assert counted is not None
    remote = [name for name in NOT_RUN if name != "roformer"]
    assert [int(n) for n in counted.groups()] == [len(RUN) + 1, len(remote), len(WITHOUT)]
