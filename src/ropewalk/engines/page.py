"""The page docs/engines.md: the table of engines and rules, from the table itself."""

from __future__ import annotations

from .llama_cpp import BINDING
from .table import ENGINES

_HEAD = f"""# Engines and their rules

What `ropewalk compare` applies: how each engine reads a config and what it computes from it.
"run" means that a test runs the engine's own code wherever its package is installed, and
demands frequencies and amplitudes equal within float32; "read from source" means that nothing
was run. `make engines` installs the packages and runs these tests.

- `tests/test_engine_rules.py` takes code out of the installed sources and runs it on the same
  configs, with stand-ins for the layers around it (a base module, a logger, NumPy for
  `keras.ops`). vLLM and SGLang are found when their unpacked packages are on `PYTHONPATH`; the
  rules were run so.
- `tests/test_llama_cpp.py` runs llama.cpp whole, through {BINDING}, on models of
  one layer with random weights, and compares the logits with those of NumPy in float64: files as
  its converter writes them, and its flags.
- `tests/test_engine_packages.py` runs torchtune, rotary-embedding-torch and x-transformers,
  which read no config and are not compared here, on random heads beside `rotate`.

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
    lines = [_HEAD, "Read from source only, of the engines marked run:", ""]
    lines += [f"- {engine.name}: {engine.not_run}" for engine in ENGINES if engine.not_run]
    lines += ["", "| engine | version | source | evidence | reads | longest text |"]
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
