"""Reader of ``config.json`` of a vision transformer of timm: told by ``architecture``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..axes import MultiAxisRope
from ..axis_layouts import HEIGHT_WIDTH, axial, interleaved
from ..errors import InputError
from ..rope import MOST_LANES, Pairing, Rope
from .keyed_file import MOST_LAYERS, KeyedFile
from .plan import LayerPositions, ModelPositions, Sourced
from .rows.timm import VITS, Vit
from .spellings import hint

_MARKS = ("pretrained_cfg", "model_args", "num_features")
_ARGUMENTS = "model_args."


def is_timm(values: Mapping[str, Any]) -> bool:
    """Tell whether a config is one of timm, or the wrapper of transformers around one."""
    wrapped = values.get("model_type") == "timm_wrapper"
    bare = "model_type" not in values and any(mark in values for mark in _MARKS)
    return isinstance(values.get("architecture"), str) and (wrapped or bare)


def read_timm(values: Mapping[str, Any], label: str) -> ModelPositions:
    """Read a config of a model of timm.

    Args:
        values: the parsed file.
        label: how errors and `ModelPositions.path` name it.

    Returns:
        The positions of every layer, of two axes; the notes say what they are.

    Raises:
        InputError: an architecture that is not in the table or whose rope is learned, or values
            that fit none.
    """
    full = str(values.get("architecture"))
    name = full.split(".", 1)[0]
    row = VITS.get(name)
    if row is None:
        near = hint(name, list(VITS))
        raise InputError(
            f"{label}: architecture",
            found=f"{full[:60]!r}, which is not in the table of timm's models with a rope",
            expected="a known architecture" + (f", e.g. {near}" if near else ""),
            fix="if its code equals a known one, put that name in a copy of the config",
        )
    file = _arguments(values, label, name, row)
    depth = file.count("depth", row.depth, most=MOST_LAYERS)
    wide, heads = file.count("embed_dim", row.width), file.count("num_heads", row.heads)
    size = wide // heads
    if size * heads != wide or size % 4 or not 4 <= size <= MOST_LANES:
        raise file.refusal(
            "num_heads",
            found=f"{wide} lanes for {heads} heads",
            expected=f"heads of a multiple of 4 lanes, at most {MOST_LANES}",
            fix="take both from the model's own config",
        )
    file.sources["layers"] = Sourced(depth, file.origin("depth"))
    file.sources["heads"] = Sourced(heads, file.origin("num_heads"))
    file.sources["head_dim"] = Sourced(size, "derived: embed_dim / num_heads")
    axes = _axes(file, size)
    file.sources["pairing"] = Sourced(axes.pairing, file.origin("rope_rotate_half"))
    file.note("patches are turned; class and register tokens are not")
    return ModelPositions(
        path=label,
        format="timm",
        model_type=full,
        layers=tuple(
            LayerPositions(index, "full_attention", None, axes=axes) for index in range(depth)
        ),
        original_length=None,
        stated_length=None,
        heads=heads,
        kv_heads=None,
        value_dim=size,
        sources=file.sources,
        notes=tuple(file.notes),
    )


def _arguments(values: Mapping[str, Any], label: str, name: str, row: Vit) -> KeyedFile:
    """Return the arguments of the model's class: those of the config over the builder's."""
    given = values.get("model_args")
    if given is not None and not isinstance(given, Mapping):
        raise InputError(
            f"{label}: model_args",
            found=f"a {type(given).__name__}",
            expected="an object with arguments of the model",
            fix="take it from the model's own config",
        )
    return _TimmFile(label, dict(given or {}), f"timm's {name}", _ARGUMENTS, built=row.rest)


class _TimmFile(KeyedFile):
    """Arguments of a model, over those that its builder fills in."""

    def __init__(self, *given: Any, built: Mapping[str, Any]) -> None:
        super().__init__(*given)
        self.built = built

    def get(self, key: str, default: Any = None) -> Any:
        """Return an argument: of the config, of the builder, or the default of the class."""
        found = super().get(key)
        return self.built.get(key, default) if found is None else found


def _axes(file: KeyedFile, size: int) -> MultiAxisRope:
    kind = file.get("rope_type", "cat")
    file.sources["rope_type"] = Sourced(kind, file.origin("rope_type"))
    if not file.switch("use_rot_pos_emb", default=True) or kind in ("", "none"):
        raise file.refusal(
            "rope_type" if kind in ("", "none") else "use_rot_pos_emb",
            found="no rope: positions are learned and absolute",
            expected="a model with rotary embeddings",
            fix="there is no rope in it to inspect",
        )
    if kind == "mixed":
        raise file.refusal(
            "rope_type",
            found="'mixed': every plane of every head and layer has a learned direction "
            "(rope.freqs of the weights)",
            expected="a rope that the config determines",
            fix="the frequencies are in the weights alone",
        )
    build = _KINDS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise file.refusal(
            "rope_type",
            found=repr(kind)[:40],
            expected="cat, axial, dinov3, mrope or mixed",
            fix="correct the name",
        )
    try:
        return build(file, size)
    except InputError as error:
        if error.where.startswith(file.label):
            raise
        raise error.within(f"{file.label}: model_args") from None


def _pairing(file: KeyedFile) -> Pairing:
    return "half" if file.switch("rope_rotate_half", default=False) else "adjacent"


def _ladder(file: KeyedFile, size: int) -> Rope:
    theta = file.positive("rope_temperature", 10000.0)
    file.sources["theta"] = Sourced(theta, file.origin("rope_temperature"))
    return Rope(head_dim=size, theta=theta)


def _order(file: KeyedFile) -> tuple[str, ...]:
    """Return the axes: with ``xy`` columns come first."""
    order = file.get("rope_grid_indexing", "ij")
    if order not in ("ij", "xy"):
        raise file.refusal(
            "rope_grid_indexing",
            found=repr(order)[:40],
            expected="ij or xy",
            fix="correct the value",
        )
    return HEIGHT_WIDTH if order == "ij" else HEIGHT_WIDTH[::-1]


def _on_a_grid(file: KeyedFile, size: int) -> MultiAxisRope:
    """``RotaryEmbeddingCat``: positions count patches, on the grid of the first training."""
    offset = file.number("rope_grid_offset", 0.0)
    shown = "index" if offset == 0 else f"(index + {offset:g})"
    reference = next(
        (key for key in ("ref_feat_shape", "rope_ref_feat_shape") if file.get(key) is not None),
        None,
    )
    if reference is not None:
        rows, columns = _pair(file, reference)
        shown += f" x {rows} / rows for height, x {columns} / columns for width"
        if file.get("img_size") is not None and file.get("patch_size") is not None:
            high, wide = _pair(file, "img_size")
            patch = _pair(file, "patch_size")
            shown += f"; {high // patch[0]} rows and {wide // patch[1]} columns by default"
        file.sources["reference grid"] = Sourced([rows, columns], file.origin(reference))
    file.sources["positions"] = Sourced(shown, file.origin("rope_grid_offset"))
    file.note(f"the position of a patch is its {shown}")
    return axial(_ladder(file, size // 2), head_dim=size, axes=_order(file), pairing=_pairing(file))


def _pair(file: KeyedFile, key: str) -> tuple[int, int]:
    found = file.get(key)
    pair = [found, found] if type(found) is int else found
    whole = isinstance(pair, list | tuple) and len(pair) == 2
    if not whole or any(type(n) is not int or not 1 <= n <= 2**20 for n in pair):
        raise file.refusal(
            key,
            found=repr(found)[:40],
            expected="one whole number above 0, or two for height and width",
            fix="correct the value",
        )
    return pair[0], pair[1]


def _coordinates(file: KeyedFile, size: int) -> MultiAxisRope:
    """``RotaryEmbeddingDinoV3``: centres of patches, from -1 to 1, times 2π."""
    offset = file.number("rope_grid_offset", 0.0)
    shown = f"2 (index + {0.5 + offset:g}) / count - 1"
    file.sources["positions"] = Sourced(shown, file.origin("rope_grid_offset"))
    file.note(f"the position of a patch is its coordinate {shown}, for rows and columns alike")
    return axial(
        _ladder(file, size // 2),
        head_dim=size,
        axes=_order(file),
        pairing=_pairing(file),
        unit="turn",
    )


def _every_third(file: KeyedFile, size: int) -> MultiAxisRope:
    """``RotaryEmbeddingMRope``: time stands at 0 in a picture; always paired half by half."""
    sections = file.numbers("rope_mrope_section", (8, 12, 12))
    file.sources["mrope_section"] = Sourced(list(sections), file.origin("rope_mrope_section"))
    return interleaved(_ladder(file, size), sections)


def _own_halves(file: KeyedFile, size: int) -> MultiAxisRope:
    """Gemma 4: columns, then rows, each in a block of lanes that is paired within itself."""
    theta = file.positive("rope_theta", 100.0)
    file.sources["theta"] = Sourced(theta, file.origin("rope_theta"))
    ladder = Rope(head_dim=size // 2, theta=theta)
    return axial(ladder, head_dim=size, axes=HEIGHT_WIDTH[::-1], blocks=2)


_KINDS: dict[str, Callable[[KeyedFile, int], MultiAxisRope]] = {
    "cat": _on_a_grid,
    "base": _on_a_grid,
    "axial": _on_a_grid,
    "dinov3": _coordinates,
    "mrope": _every_third,
    "blocks": _own_halves,
}
