"""The page docs/engines.md: the table of engines and rules, from the table itself."""

from __future__ import annotations

from .table import ENGINES

_HEAD = """# Engines and their rules

What `ropewalk compare` applies: how each engine reads a config and what it computes from it.
"run" means that `tests/test_engine_rules.py` runs the engine's own code on the same configs
wherever its package is installed, and demands frequencies and amplitudes equal within float32;
"read from source" means that nothing was run. Code is taken out of the installed sources, with
stand-ins for the layers around it (a base module, a logger, NumPy for `keras.ops`). vLLM and
SGLang are found when their unpacked packages are on `PYTHONPATH`; the rules were run so.

Engines that read the config classes of transformers get its defaults too: the family's base,
`original_max_position_embeddings` beside the block, else in it, else `max_position_embeddings`.

This page is written from the table in `src/ropewalk/engines`; to renew it:
`python -c "from ropewalk.engines.page import engines_page as p; print(p(), end='')"`.
"""
_KINDS = (
    "default", "linear", "dynamic", "ntk", "yarn", "gpt-oss yarn", "longrope", "llama3",
    "proportional",
)  # fmt: skip
# Kinds that one engine names its own way are shown under the common one only.
_HIDDEN = frozenset({"deepseek_yarn", "telechat3-yarn", "su", "mrope"})


def engines_page() -> str:
    """Return the page as Markdown."""
    known = {kind for engine in ENGINES for kind in engine.rules}
    assert known <= {*_KINDS, *_HIDDEN}, "a kind of scaling without a place on the page"
    lines = [_HEAD, "| engine | version | source | evidence | reads | longest text |"]
    lines.append("|---|---|---|---|---|---|")
    lines += [
        f"| {e.name} | {e.version} | `{e.source}` | {e.evidence} | {e.reads} | {e.length} |"
        for e in ENGINES
    ]
    for kind in _KINDS:
        lines += ["", f"## {kind}", "", "| engine | rule |", "|---|---|"]
        for engine in ENGINES:
            rule = engine.rules.get(kind)
            if rule is not None:
                text = rule.text
            elif kind in ("ntk", "gpt-oss yarn"):
                continue
            else:
                other = engine.otherwise
                text = other.format(kind=kind) if isinstance(other, str) else other.text
            lines.append(f"| {engine.name} | {text} |")
    return "\n".join(lines) + "\n"
