"""Reading lengths from the command line: tokens, or multiples of the original length."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..extend.loading import builtin_model
from ..models.read import read

_SUFFIXES = {"k": 1024}


def parse_lengths(text: str | None, model: Path | None) -> tuple[int, ...] | None:
    """Turn ``1x,2x`` or ``8192,16k`` into tokens; None stays None.

    Raises:
        InputError: a part that is no length, or multiples of an unknown original length.
    """
    if text is None:
        return None
    original: int | None = None
    out = []
    for part in text.split(","):
        word = part.strip().lower().replace("×", "x")
        try:
            if word.endswith("x"):
                if original is None:
                    original = read(model or builtin_model()).original_length
                if original is None:
                    raise InputError(
                        "--lengths",
                        found=part,
                        expected="tokens, because the model's original length is unknown",
                        fix="give lengths in tokens",
                    )
                out.append(round(float(word[:-1]) * original))
            elif word[-1:] in _SUFFIXES:
                out.append(round(float(word[:-1]) * _SUFFIXES[word[-1]]))
            else:
                out.append(int(word))
        except ValueError:
            raise InputError(
                "--lengths",
                found=repr(part),
                expected="tokens such as 8192 or 16k, or multiples such as 2x",
                fix="correct the length",
            ) from None
    return tuple(out)
