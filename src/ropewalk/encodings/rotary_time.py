"""Rotary time embedding: angles that are products of a time stamp and a place in a window.

Music Flamingo rotates audio frames before they enter the language model. Half of the planes
turn with the number of the window that a frame is in, half with the place of the frame within
it; both angles are multiplied with -2π times the frame's time stamp. So the angle is no position
times a frequency, but it is one once the product is taken as the position.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError

FRAMES_PER_STEP = 4
"""Encoder steps that make one frame."""


def positions(time_stamps: Any, *, frame_seconds: float, longest: float) -> npt.NDArray[np.float64]:
    """Return the positions of the frames of one window on the axes (window, time).

    Args:
        time_stamps: seconds of each frame, (frames,).
        frame_seconds: ``audio_frame_step`` of the config, seconds of an encoder step.
        longest: ``max_position_embeddings`` of the config.

    Returns:
        Shape (2, frames), for `MultiAxisRope.cos_sin`.

    Raises:
        InputError: time stamps that are no line of numbers.

    Source: ``MusicFlamingoRotaryEmbedding`` of transformers 5.24.0.
    """
    stamps = np.asarray(time_stamps, dtype=np.float64)
    if stamps.ndim != 1 or stamps.size == 0 or not np.isfinite(stamps).all():
        raise InputError(
            "time_stamps",
            found=f"shape {stamps.shape}",
            expected="finite seconds of each frame, (frames,)",
            fix="pass the time stamps of one window",
        )
    frames = len(stamps)
    window = np.round(stamps[0] / (frame_seconds * FRAMES_PER_STEP * frames)) / longest
    place = np.arange(frames) / longest * 2 * np.pi
    turn = -2 * np.pi * stamps
    return np.stack([window * turn, place * turn])
