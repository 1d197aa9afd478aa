"""The real ropes of timm: each kind's rotation of known lanes.

``python tests/timm_classes.py`` writes ``timm_rotations.json``, with which the tests compare
where timm is not installed. timm as a whole needs torchvision; its file of embeddings does not,
so that file is loaded alone.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers_classes import lanes

STORED = Path(__file__).with_name("timm_rotations.json")
GRID = (3, 4)

CONFIGS: dict[str, dict[str, Any]] = {
    "eva02_base_patch14_224": {},
    "eva02_base_patch14_448": {},
    "eva02_base_patch16_clip_224": {"img_size": [224, 320]},
    "vit_pe_core_large_patch14_336": {},
    "vit_pe_core_gigantic_patch14_448": {},
    "vit_base_patch16_rope_224": {},
    "vit_base_patch16_rope_reg1_gap_256": {"rope_rotate_half": True, "rope_temperature": 50.0},
    "vit_small_patch16_dinov3": {},
    "vit_base_patch16_sapiens2": {"rope_rotate_half": False, "rope_grid_offset": 0.25},
    "qwen3_vit_416m": {},
    "deepseek_vit_412m": {},
    "gemma4_vit_570m": {},
    "naflexvit_base_patch16_gap": {"rope_type": "mrope", "rope_mrope_section": [8, 12, 12]},
    "naflexvit_so400m_patch16_siglip": {"rope_type": "axial", "rope_ref_feat_shape": [6, 2]},
}
"""Architectures, and the ``model_args`` beside them."""


_SPEC = importlib.util.find_spec("timm")
FOLDER = None if _SPEC is None or _SPEC.origin is None else Path(_SPEC.origin).parent
"""Where timm lies, or None; it is not imported."""


def code(name: str) -> Any:
    """Import one file of timm without its package, which needs torchvision."""
    assert FOLDER is not None
    for package, inner in (("timm", FOLDER), ("timm.layers", FOLDER / "layers")):
        if package not in sys.modules:
            made = types.ModuleType(package)
            made.__path__ = [str(inner)]
            sys.modules[package] = made
    return importlib.import_module(f"timm.layers.{name}")


def forget() -> None:
    """Drop what `code` put into the modules."""
    for name in [name for name in sys.modules if name == "timm" or name.startswith("timm.")]:
        del sys.modules[name]


def positions(name: str) -> Any:
    """Return the positions of a grid of patches on the axes of the rope, (axes, tokens)."""
    rows, columns = (a.ravel() for a in np.meshgrid(*map(np.arange, GRID), indexing="ij"))
    if "dinov3" in name or "sapiens2" in name:
        shift = 0.75 if CONFIGS[name].get("rope_grid_offset") else 0.5
        return np.stack([2 * (rows + shift) / GRID[0] - 1, 2 * (columns + shift) / GRID[1] - 1])
    scale = {
        "eva02_base_patch14_224": (16, 16, 0, 1), "eva02_base_patch14_448": (16, 16, 0, 1),
        "eva02_base_patch16_clip_224": (16, 16, 0, 1),
        "vit_pe_core_large_patch14_336": (24, 24, 1, -1),
        "vit_pe_core_gigantic_patch14_448": (32, 32, 0, -1),
        "vit_base_patch16_rope_reg1_gap_256": (16, 16, 0, 1),
        "vit_base_patch16_rope_224": (*GRID, 0, -1),
        "gemma4_vit_570m": (*GRID, 0, -1), "naflexvit_so400m_patch16_siglip": (6, 2, 0, 1),
    }.get(name, (*GRID, 0, 1))  # fmt: skip
    high, wide, offset, order = scale
    pair = np.stack([(rows + offset) / GRID[0] * high, (columns + offset) / GRID[1] * wide])
    if CONFIGS[name].get("rope_type") == "mrope":
        return np.concatenate([np.zeros((1, len(rows))), pair])
    return pair[::order]


def real(name: str, size: int, arguments: dict[str, Any]) -> Any:
    """Return what timm's class makes of `lanes`, (tokens, size).

    Args:
        name: the architecture.
        size: lanes of a head.
        arguments: arguments of the model: those of its builder, and those of the config.
    """
    x = torch.from_numpy(lanes(GRID[0] * GRID[1], size))
    ropes = code("pos_embed_sincos")
    kind = arguments.get("rope_type", "cat")
    if name.startswith("gemma4"):
        # Gemma4RotaryEmbedding2D and apply_multidimensional_rope: two ropes of halves of a head.
        half = size // 2
        made = 1.0 / (100.0 ** (torch.arange(0, half, 2).float() / half))
        out = []
        for part, row in zip(x.chunk(2, -1), torch.from_numpy(positions(name).copy()), strict=True):
            angle = (row.float()[:, None] * made).repeat(1, 2)
            turned = ropes.rope_rotate_half(part)
            out.append(part * angle.cos() + turned * angle.sin())
        return torch.cat(out, -1).numpy()
    options: dict[str, Any] = {"temperature": arguments.get("rope_temperature", 10000.0)}
    half_split = bool(arguments.get("rope_rotate_half")) or kind == "mrope"
    if kind == "mrope":
        options["mrope_section"] = tuple(arguments["rope_mrope_section"])
    else:
        options["rotate_half"] = half_split
        options["grid_offset"] = arguments.get("rope_grid_offset", 0.0)
        options["grid_indexing"] = arguments.get("rope_grid_indexing", "ij")
    if kind in ("cat", "axial"):
        reference = arguments.get("ref_feat_shape") or arguments.get("rope_ref_feat_shape")
        options["in_pixels"] = False
        options["ref_feat_shape"] = [reference] * 2 if isinstance(reference, int) else reference
    made = ropes.create_rope_embed("cat" if kind == "axial" else kind, size, 1, **options)
    return ropes.apply_rot_embed_cat(x, made.get_embed(shape=list(GRID)), half=half_split).numpy()


def builders(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every architecture of a file of timm's models, and its literal arguments."""
    assert FOLDER is not None
    tree = ast.parse((FOLDER / "models" / f"{file}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        if not any("register_model" in ast.unparse(mark) for mark in node.decorator_list):
            continue
        arguments: dict[str, Any] = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign) and ast.unparse(inner.targets[0]) == "model_args":
                keywords = inner.value.keywords if isinstance(inner.value, ast.Call) else []
                for keyword in keywords:
                    if keyword.arg is not None and isinstance(
                        keyword.value, ast.Constant | ast.Tuple
                    ):
                        arguments[keyword.arg] = ast.literal_eval(keyword.value)
        yield node.name, arguments


def write() -> None:
    """Write what the real classes compute, and what the builders fill in."""
    from ropewalk.models.rows.timm import VITS
    from ropewalk.models.timm import read_timm

    out = {}
    for name, given in CONFIGS.items():
        plan = read_timm({"architecture": name, "model_args": given, "num_features": 1}, "c")
        size = plan.value_dim
        assert size is not None
        rotated = real(name, size, {**VITS[name].rest, **given})[-2:]
        out[name] = [[float(f"{v:.8g}") for v in row] for row in rotated.tolist()]
    lines = [f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in out.items()]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
