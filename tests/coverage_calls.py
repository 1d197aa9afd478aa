"""How each rotary class is called, and at which positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from coverage_run import MismatchError, Positions, axes_of
from rotary_classes import Built

_X = torch.zeros(1)
_LINE = torch.tensor([0, 1, 2, 9, 30, 311, 2047])

Call = Callable[[Any, Any, Positions, Any], tuple[tuple[Any, ...], torch.Tensor]]
"""From class instance, config, our positions and block name to (their tables, positions)."""


def grid(rows: int, columns: int, first: int = 0) -> torch.Tensor:
    """Row and column of each patch of an image, (2, rows * columns)."""
    at = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return torch.stack(at).flatten(1) + first


def on_a_line(rotary: Any, _: Any, positions: Positions, kind: Any) -> Any:
    """Token positions, one row for each axis."""
    at = _LINE if not axes_of(positions) else spread(axes_of(positions))
    return at_positions(rotary, at, kind), at


def spread(axes: int) -> torch.Tensor:
    """Different positions on each axis, (axes, 12)."""
    return torch.randint(0, 300, (axes, 12), generator=torch.Generator().manual_seed(axes))


def at_positions(rotary: Any, at: torch.Tensor, kind: Any) -> tuple[Any, ...]:
    """Call with (1, T) or (axes, 1, T) positions; return tables (T, width)."""
    ids = at[None] if at.dim() == 1 else at[:, None]
    out = rotary(_X, ids) if kind is None else rotary(_X, ids, kind)
    return tuple(t[0] for t in (out if isinstance(out, tuple) else (out,)))


def sine_first(rotary: Any, _: Any, __: Positions, kind: Any) -> Any:
    """GPT-J and CodeGen return the sine first."""
    sin, cos = at_positions(rotary, _LINE, kind)
    return (cos, sin), _LINE


def patches(rotary: Any, _: Any, positions: Positions, __: Any) -> Any:
    """Vision towers take (T, axes)."""
    at = spread(axes_of(positions))
    return tuple(t.reshape(at.shape[1], -1) for t in rotary(_X, at.T)), at


def batched_patches(rotary: Any, _: Any, positions: Positions, __: Any) -> Any:
    """Gemma 4's vision tower takes (batch, T, axes)."""
    at = spread(axes_of(positions))
    return tuple(t[0] for t in rotary(_X, at.T[None])), at


def angles(rotary: Any, *_: Any) -> Any:
    """CLVP returns the angles of as many positions as there are."""
    found = rotary(torch.zeros(1, 50, 1))[0]
    return (found.cos(), found.sin()), torch.arange(50)


def stacked(rotary: Any, *_: Any) -> Any:
    """The conformers return both tables in one tensor (2, T, 1, 1, width)."""
    both = rotary(torch.zeros(1, 50, 1))
    return (both[0][:, 0, 0], both[1][:, 0, 0]), torch.arange(50)


def centres(rotary: Any, config: Any, *_: Any) -> Any:
    """DINOv3 takes an image; positions are patch centres in [-1, 1]."""
    patch = config.patch_size
    rows, columns = 5, 7
    tables = rotary(torch.zeros(1, 3, rows * patch, columns * patch))
    sizes = torch.tensor([[rows], [columns]], dtype=torch.float32)
    # In the order of get_patches_center_coordinates: halves over the size, doubled, less 1.
    at = 2.0 * ((grid(rows, columns) + 0.5) / sizes) - 1.0
    return tuple(tables), at


def features(rotary: Any, config: Any, *_: Any) -> Any:
    """EfficientLoFTR takes a feature map, which it thins out first; counted from 1."""
    kernel, stride = config.q_aggregation_kernel_size, config.q_aggregation_stride
    rows, columns = 4, 6
    x = torch.zeros(1, 1, kernel + stride * (rows - 1), kernel + stride * (columns - 1))
    return tuple(t[0].flatten(0, 1) for t in rotary(x)), grid(rows, columns, first=1)


def image_and_class_token(rotary: Any, config: Any, *_: Any) -> Any:
    """Llama 4: column and row from 1; the class token stands last, at 0."""
    side = config.image_size // config.patch_size
    at = torch.cat([grid(side, side, first=1).flip(0), torch.zeros(2, 1, dtype=torch.int64)], 1)
    return (rotary(_X)[:, 0],), at


def atoms(rotary: Any, *_: Any) -> Any:
    """ESMFold2 takes coordinates and the number of the residue."""
    generator = torch.Generator().manual_seed(3)
    xyz = 8 * torch.randn(9, 3, generator=generator)
    residue = torch.arange(9) // 2
    cos, sin = rotary(xyz, residue, torch.float32)
    return (cos, sin), torch.cat([xyz.T, residue[None].float()])


def time_stamps(rotary: Any, config: Any, *_: Any) -> Any:
    """Music Flamingo: see `ropewalk.encodings.rotary_time`."""
    from ropewalk.encodings.rotary_time import positions

    frames = 40
    stamps = (5.0 + torch.arange(frames) * config.audio_frame_step * 4)[None]
    cos, sin = rotary(stamps, seq_len=frames)
    at = positions(
        stamps[0].double().numpy(),
        frame_seconds=config.audio_frame_step,
        longest=config.max_position_embeddings,
    )
    return (cos[0], sin[0]), torch.from_numpy(at)


_BY_CLASS: dict[str, Call] = {
    "GPTJRotaryEmbedding": sine_first,
    "CodeGenRotaryEmbedding": sine_first,
    "ClvpRotaryPositionalEmbedding": angles,
    "SeamlessM4TConformerRotaryPositionalEmbedding": stacked,
    "Wav2Vec2BertRotaryPositionalEmbedding": stacked,
    "Wav2Vec2ConformerRotaryPositionalEmbedding": stacked,
    "DINOv3ViTRopePositionEmbedding": centres,
    "Sapiens2RopePositionEmbedding": centres,
    "EomtDinov3RotaryEmbedding": centres,
    "EfficientLoFTRRotaryEmbedding": features,
    "Llama4VisionRotaryEmbedding": image_and_class_token,
    "EsmFold2RotaryEmbedding": atoms,
    "MusicFlamingoRotaryEmbedding": time_stamps,
    "Gemma4VisionRotaryEmbedding": batched_patches,
}


def call_of(built: Built) -> Call:
    """How a class is called."""
    if built.name in _BY_CLASS:
        return _BY_CLASS[built.name]
    return patches if hasattr(built.rotary, "compute_axial_rope_parameters") else on_a_line


def beyond(limit: int) -> torch.Tensor:
    """Positions of which the last is past a length."""
    if limit > 2**24 - 10:
        raise MismatchError(f"length {limit} is beyond whole numbers in float32")
    return torch.cat([_LINE[limit > _LINE], torch.tensor([limit + math.ceil(limit / 3)])])
