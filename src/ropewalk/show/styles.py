"""One colour, marker and line per encoding and method, the same in every picture."""

from __future__ import annotations

# Colour-blind safe (Okabe and Ito); families share a colour, members differ in marker and line.
_STYLES: dict[str, tuple[str, str, str]] = {
    "crop": ("#000000", "", "--"),
    "none": ("#999999", "x", "-"),
    "direct": ("#999999", "x", "-"),
    "rope": ("#0072B2", "o", "-"),
    "learned": ("#D55E00", "s", "-"),
    "sinusoidal": ("#E69F00", "^", "-"),
    "t5": ("#009E73", "v", "-"),
    "alibi": ("#CC79A7", "D", "-"),
    "transformer-xl": ("#56B4E9", "P", "-"),
    "xpos": ("#0072B2", "*", "--"),
    "kerple": ("#CC79A7", "h", "--"),
    "fire": ("#009E73", "p", "--"),
    "partial": ("#0072B2", "<", ":"),
    "p-rope": ("#0072B2", ">", "-."),
    "clipped": ("#A08C00", "d", "--"),
    "linear": ("#56B4E9", "o", "-"),
    "ntk": ("#E69F00", "s", "-"),
    "ntk-critical": ("#D55E00", "D", "-"),
    "dynamic": ("#A08C00", "^", "-"),
    "by-parts": ("#CC79A7", "v", "-"),
    "yarn": ("#0072B2", "P", "-"),
    "yarn-rotations": ("#009E73", "*", "-"),
    "yarn-untruncated": ("#0072B2", "X", ":"),
    "llama3": ("#D55E00", "h", "--"),
    "rerope": ("#CC79A7", "o", "--"),
    "self-extend": ("#009E73", "s", "--"),
    "dual-chunk": ("#E69F00", "p", "--"),
    "dual-chunk-log-n": ("#E69F00", "<", ":"),
    "log-n": ("#999999", ">", ":"),
    "pose": ("#CC79A7", "D", "-."),
}
_OTHERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")


def style(name: str) -> tuple[str, str, str]:
    """Return the colour, marker and line style of a line of this name."""
    if name in _STYLES:
        return _STYLES[name]
    return _OTHERS[sum(name.encode()) % len(_OTHERS)], "o", "-"


def keywords(name: str) -> dict[str, str]:
    """Return the same as matplotlib's keywords."""
    color, marker, line = style(name)
    return {"color": color, "marker": marker, "linestyle": line}
