"""Writes ``docs/encodings.md`` from the table of `ropewalk.encodings.properties`.

    python tests/encodings_page.py

`tests/test_encodings_properties.py` demands that the committed page equals the run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from encoding_measures import ROWS, made

from ropewalk.encodings import Sizes
from ropewalk.encodings.modules import attention, module_for
from ropewalk.encodings.properties import PROPERTIES, Properties

PAGE = Path(__file__).parents[1] / "docs" / "encodings.md"

STRETCHES = ("ReRoPE", "leaky ReRoPE", "Self-Extend", "dual chunk", "log-n (on RoPE)")
"""What changes a model that was trained with RoPE at inference alone, and is no scaling."""
_TRAINED, _PROMPT = 512, 4096

CHECKED: dict[str, tuple[str, ...]] = {
    "none (NoPE)": ("test_encodings_properties.py::test_nope_is_the_product",),
    "sinusoidal": ("test_sinusoidal.py::test_far_positions_against_long_arithmetic",),
    "learned": ("test_encodings_properties.py::test_learned_adds_rows_of_its_table",),
    "Transformer-XL": ("test_transformer_xl.py::test_gradients_are_those_of_the_four_terms",),
    "T5": (
        "test_encodings_biases.py::test_t5_attention_of_transformers_is_ours_with_scale_1",
        "test_encodings_biases.py::test_t5_buckets_are_those_of_transformers",
        "test_encodings_biases.py::test_t5_bias_is_that_of_transformers_with_20_cached_keys",
        "test_encodings_biases.py::test_t5_bias_is_that_of_x_transformers",
    ),
    "ALiBi": (
        "test_encodings_biases.py::test_alibi_is_that_of_bloom_and_mpt",
        "test_encodings_biases.py::test_alibi_is_that_of_x_transformers",
    ),
    "xPos": ("test_encodings_xpos.py::test_is_that_of_rotary_embedding_torch_and_x_transformers",),
    "KERPLE-log": ("test_encodings_biases.py::test_gradients_are_those_of_the_formula",),
    "FIRE": ("test_encodings_biases.py::test_gradients_are_those_of_the_formula",),
    "RoPE": (
        "test_engine_packages.py::test_package_turns_as_rotate_does",
        "test_matches_transformers.py::test_the_rotation_of_llama",
    ),
    "partial RoPE": ("test_matches_transformers.py::test_partial_rotary",),
    "p-RoPE": (
        "test_matches_transformers.py::test_proportional",
        "test_encodings_remapped.py::test_p_rope_turns_the_fastest_share_of_planes",
    ),
    "clipped RoPE": ("test_clipped.py::test_planes_that_make_a_full_turn_are_kept_and_no_other",),
    "Resonance RoPE": (
        "test_resonance.py::test_every_wavelength_is_the_nearest_whole_number",
        "test_resonance.py::test_single_precision_rounds_as_the_published_code",
    ),
    "dynamic NTK": ("test_matches_transformers.py::test_dynamic_at_every_length",),
    "ReRoPE": ("test_encodings_remapped.py::test_scores_are_those_of_the_loop",),
    "leaky ReRoPE": ("test_encodings_remapped.py::test_scores_are_those_of_the_loop",),
    "Self-Extend": ("test_encodings_remapped.py::test_scores_are_those_of_the_loop",),
    "dual chunk": ("test_encodings_remapped.py::test_scores_are_those_of_the_loop",),
    "log-n (on RoPE)": ("test_encodings_remapped.py::test_factors_are_those_of_qwen_to_the_token",),
}
"""The tests that compare each encoding with what does not come from this package."""

_HEAD = """# The position encodings

<!-- Written by `python tests/encodings_page.py`; a test demands that this page equals the run. -->

Each encoding is a frozen value with its formula in NumPy, float64: that is the specification.
`ropewalk.encodings.modules` has the same in PyTorch, for training and for decoding, and tests hold
the two together. An encoding acts in two places: it may add to the token embeddings (`added`), and
it forms the scores of attention (`scores`).

```python
import numpy as np
from ropewalk.encodings import ALiBi, Sizes, T5Buckets

q = k = np.ones((2, 5, 4))  # (heads, time, head_dim)
scores = ALiBi().scores(q, k, range(5), range(5))  # (heads, queries, keys), no mask
print(scores[0, 4].tolist())  # [1.75, 1.8125, 1.875, 1.9375, 2.0]
t5 = T5Buckets()
learned = t5.initial_parameters(Sizes(heads=2, head_dim=4, width=8), seed=0)
print(t5.scores(q[:, 4:], k, [4], range(5), parameters=learned).shape)  # (2, 1, 5)
```

```python
import torch
from ropewalk import Rope
from ropewalk.encodings import Rotary, Sizes
from ropewalk.encodings.modules import attend, module_for

module = module_for(Rotary(rope=Rope(head_dim=64)), Sizes(heads=8, head_dim=64, width=512))
q, k, v = torch.randn(3, 1, 8, 100, 64)  # before any position
at = torch.arange(100)
print(tuple(attend(module, q, k, v, at, at).shape))  # (1, 8, 100, 64)
print(tuple(attend(module, q[:, :, -1:], k, v, at[-1:], at).shape))  # (1, 8, 1, 64)
```

`module.embed(x, positions)` is what goes before the first layer, `module.keys(k, positions)` what a
cache holds. Attention is causal.

## One by one

Below, q and k are a query at i and a key at j, d = i − j, and every product is divided by
√head_dim where nothing else is said. *Checked against* names what does not come from this package.
"""

_EACH: dict[str, str] = {
    "none (NoPE)": """`NoPE`: `q·k`. Order is seen through the causal mask alone.
Haviv et al. 2022 (2203.16634), Kazemnejad et al. 2023 (2305.19466).
Checked against the product written out.""",
    "sinusoidal": """`Sinusoidal`: adds `sin` and `cos` of `i·10000^(-2n/width)`, alternating.
Vaswani et al. 2017 (1706.03762). Watch `amplitude`: the original multiplies embeddings by √width
instead. Checked against mpmath in 50 digits.""",
    "learned": """`Learned`: adds row i of a table. Gehring et al. 2017 (1705.03122); GPT-2, BERT.
Watch the end: beyond the table there is nothing, and asking is an error. Checked against the rows
of the table.""",
    "Transformer-XL": """`TransformerXL`: `(q + u)·k + (q + v)·(W_r R[d])`, R sinusoidal in d.
Dai et al. 2019 (1901.02860). Watch the order of R's lanes: the authors' code has all sines first,
which reorders W_r. Checked against the four terms of the paper, written out pair by pair.""",
    "T5": """`T5Buckets`: `q·k + table[bucket(d), head]`, 32 buckets up to distance 128.
Raffel et al. 2019 (1910.10683). Watch the scale: T5's models do not divide by √head_dim; pass
`scale=1`. Checked against T5 in transformers, 20 cached keys included, and x-transformers.""",
    "ALiBi": """`ALiBi`: `q·k − slope[head]·d`. Press et al. 2021 (2108.12409).
Watch head counts that are no power of two: slopes come in two sequences, as in the authors' code.
Checked against BLOOM and MPT in transformers, and x-transformers.""",
    "xPos": """`XPos`: RoPE, plane n times `ζ_n^(d/512)`, `ζ_n = (2n/rotary_dim + 0.4)/1.4`.
Sun et al. 2022 (2212.10554). Watch keys ahead of the query: their scores grow without bound.
Checked against rotary-embedding-torch and x-transformers.""",
    "KERPLE-log": """`Kerple`: `q·k − r1·log(1 + r2·d)`, both learned per head.
Chi et al. 2022 (2205.09921). Watch that the logarithms of r1 and r2 are what is learned here, so
both stay positive. Checked against the formula, written out, with its gradients.""",
    "FIRE": """`Fire`: `q·k + f(ψ(d)/ψ(max(L, i)))`, `ψ(x) = log(|c·x| + 1)`, f a small network.
Li et al. 2023 (2310.04418). Watch the divisor: past L it is the query's own, so no bias can be laid
out by distance. Checked against the formula, written out, with its gradients.""",
    "RoPE": """`Rotary`: q and k turned, plane n by `i·θ^(-2n/rotary_dim)`.
Su et al. 2021 (2104.09864). Watch the pairing of lanes: [docs/pairing.md](pairing.md).
Checked against Llama in transformers, rotary-embedding-torch and x-transformers.""",
    "partial RoPE": """`Rope(rotary_dim=…)`: the first lanes turn, the rest pass.
GPT-J, GPT-NeoX, Phi. Watch the denominator: it is the number of turned lanes.
Checked against transformers.""",
    "p-RoPE": """`Proportional(share=…)`: the ladder of all lanes, its fastest share turns.
Barbero et al. 2024 (2410.06205); Gemma 4. Watch the denominator: it is the whole head, unlike
partial RoPE. Checked against transformers and the paper's formula.""",
    "clipped RoPE": """`Clipped`: planes with less than one turn in the trained length stand still.
The core of FoPE (2412.17739) and HoPE (2410.21216). Watch what it costs: a model trained without it
loses those planes. Checked against mpmath.""",
    "Resonance RoPE": """`Resonance`: every wavelength rounded to whole tokens.
Wang et al. 2024 (2403.00071). Watch the slow planes: those longer than the training are as new as
ever. Checked against mpmath and the published code's float32 steps.""",
    "dynamic NTK": """`DynamicNTK`: the base grows with the text. emozilla 2023.
Watch the cache: kept keys were turned by another base, so it has to hold keys before rotation.
Checked against transformers at every length.""",
    "ReRoPE": """`ReRoPE(window=w)`: RoPE at relative position `min(d, w)`.
Su 2023 (kexue.fm/archives/9708). Watch the window: at most what training showed.
Checked against a loop over pairs, in 60 digits of frequency.""",
    "leaky ReRoPE": """`ReRoPE(window=w, leak=s)`: from w on, `w + (d − w)/s`.
The same source. Watch that relative positions are no whole numbers then, and end somewhere.
Checked against the loop.""",
    "Self-Extend": """`SelfExtend(group=g, window=w)`: from w on, `i//g − j//g + w − w//g`.
Jin et al. 2024 (2401.01325). Watch groups that do not divide the window: the authors' code rounds
in one place and not in another. Checked against the loop.""",
    "dual chunk": """`DualChunk(chunk=s, local=w)`: keys at `j mod s`; queries at r = `i mod s` for
their own chunk, at `min(r + s, s + w − 1)` for the one before, at `s + w − 1` for all earlier ones.
An et al. 2024 (2402.17463). Watch the names: common code says `chunk_size` for s + w. Checked
against the loop.""",
    "log-n (on RoPE)": """`LogN(inner=…)`: q times `max(1, log_L(i + 1))`, under any encoding.
Su 2021 (kexue.fm/archives/8823), Chiang and Cholak 2022 (2202.12172). Watch biases: they do not
grow with q. Checked against Qwen-1's list, to the token.""",
}


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, _one_by_one(), _tables(), _stretching()])


def _one_by_one() -> str:
    parts = []
    for row in PROPERTIES:
        tests = "\n".join(f"  `{name}`" for name in CHECKED[row.name])
        parts.append(f"**{row.name}.** {_EACH[row.name]}\nTests:\n{tests}\n")
    return "\n".join(parts)


def _tables() -> str:
    return "\n".join(
        [
            """## The table

Four parts, one row per encoding. Every cell is computed from the code, at small sizes, by
`tests/test_encodings_properties.py`. The rows are made with the settings that
`ropewalk.encodings.properties.PROPERTIES` states; *length* is the trained one.

### What is learned, and what positions tell

*absolute*: positions act through vectors added to tokens. *relative*: scores change when the query
alone moves on, and not when query and key move together. *both*: scores change either way.
*Distance only*: the same q and k score the same further on, in texts that end with the query.
""",
            _table(
                ("encoding", "extra parameters", "kind", "distance only"),
                lambda row: (_parameters(row), row.information, _distance_only(row)),
            ),
            """
dynamic NTK is relative at one length of the text, and *distance only* fails because a longer text
turns the same pair by other angles.

### What can be cached

*Kept*: a key stays, bit for bit, as it was first computed. *Copies*: how many differently placed
copies of each key a cache holds. *Placed*: kept keys carry their position; a window that counts
from 0 again makes them void, a window whose positions go on does not. *Anew*: what each further
token makes compute again beside its own query, key and scores.
""",
            _table(
                ("encoding", "keys kept", "copies", "placed", "anew for each token"),
                lambda row: (
                    _yes(row.keys_kept),
                    str(row.key_copies),
                    _yes(row.keys_placed),
                    _ANEW[row.anew],
                ),
            ),
            """
T5: keys know nothing of positions and stay. What cannot be kept is the bias row of the last query:
the next query is one further from every key. It is that row moved on by one key, plus the entry of
the farthest distance; no query enters it. FIRE is the same up to L; past L every query divides by
its own position and needs a whole row.

Transformer-XL: keys stay, and so does `W_r R`, one vector per distance. What cannot be kept is
`(q + v)·(W_r R)`: it has the query in it, so every token takes a second product with all distances.

Learned and sinusoidal: keys stay as long as positions go on. A learned table ends; a window that
moves on past its end has to count from 0 again, and then every key of every layer is computed anew.

### Past the trained length

*within*: scores see only what training showed, to half a token's step, at any length; a bias, to
one step. *to a length*: the same, up to a length. *falls*: a bias below every one of training, ever
lower. *new*: angles or vectors that training did not show. *nothing*: scores see no position. This
says what attention is asked, not how well a model answers; that is measured in
[studies/beyond.md](studies/beyond.md).
""",
            _table(
                ("encoding", "past the trained length", "more closely"),
                lambda row: (row.past, row.past_note),
            ),
            """
T5 and FIRE are within only where training reached the last bucket and L. The ways to stretch
(ReRoPE and below) are measured against a model that was trained with plain RoPE.

### What it costs

Operations are multiplications, additions and logarithms; `q·k` alone is 2·head_dim for each pair.
*Products*: how many score products a pair takes at most. In a block of queries that lies across a
border, pairs on both sides are needed; one query alone, in decoding, takes one product per key.
""",
            _table(
                ("encoding", "per token and head", "per query, key and head", "products"),
                lambda row: (_per_token(row), _formula(row.pair_operations), str(row.products)),
            ),
            """
FIRE: up to L its bias is laid out by distance, 1 per pair; past L the 4 that depend on the pair
alone are shared by the heads. Transformer-XL's second product also pays once per distance for
`W_r R`, 2·width·head_dim, if it is not kept. A plane that stands still (p-RoPE, clipped) is
multiplied by 1 and 0 like the others; lanes that partial RoPE leaves out cost nothing.
""",
        ]
    )


_ANEW = {
    "nothing": "nothing",
    "one entry": "bias row: one entry, the rest moves on",
    "row": "bias row, whole (past L)",
    "product": "(q + v)·(W_r R), all distances",
    "keys": "all keys, past the trained length",
}


def _stretching() -> str:
    rows = []
    for name in STRETCHES:
        row = ROWS[name]
        encoding = made(row, _TRAINED, 64)
        share = shares(encoding, _PROMPT)
        cells = [
            name,
            _SAID[name],
            _REACH.get(row.past, row.past_note.removesuffix(" tokens")),
            str(row.key_copies),
            f"{share:.3f}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(
        [
            f"""## Stretching at inference

Two kinds. *Other frequencies*: Linear, NTK, NTK by parts, YaRN, Llama 3 and LongRoPE are scalings
of a `Rope` and cost what RoPE costs; so do clipped and Resonance. Keys stay, but for dynamic NTK
and LongRoPE, whose frequencies change with the text's length. *Other relative positions*: the rows
below leave the frequencies alone and map far distances to trained ones. They pay in copies of keys
and in blocks where pairs differ.

*Products per pair*: in a prompt of {_PROMPT:,} tokens, read in blocks of 64 queries, for a model
trained at {_TRAINED} tokens, made as in the table above. Implementations that compute every variant
for every pair take as many as the table's *products*.

| method | distances | longest text, tokens | key copies | products per pair |
|---|---|---|---:|---:|""",
            *rows,
            """
log-n stretches nothing: it sharpens attention over many keys, and often goes with the others:
`LogN(inner=ReRoPE(…), original_length=…)`. How the methods fare on trained models is a matter for
measurements, not for this page.
""",
        ]
    )


_SAID = {
    "ReRoPE": "stays, up to the window",
    "leaky ReRoPE": "slower from the window on",
    "Self-Extend": "in groups from the window on",
    "dual chunk": "by places within chunks",
    "log-n (on RoPE)": "stays; queries grow",
}
_REACH = {"within": "any", "new": "as what it wraps"}


def shares(encoding: object, time: int) -> float:
    """Return how many products a pair takes on average in a prompt, in blocks of 64 queries."""
    module = module_for(encoding, Sizes(heads=1, head_dim=64, width=64))
    at, rows = torch.arange(time), attention._FEWEST_ROWS
    taken = pairs = 0
    for start in range(0, time, rows):
        end = min(start + rows, time)
        for span in attention._spans(module, at[start:end], at[:end]):
            width = (end - start) * (span.end - span.start)
            taken += width * (span.highest - span.lowest + 1)
            pairs += width
    return taken / pairs


def _table(head: tuple[str, ...], cells: object) -> str:
    assert callable(cells)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join((row.name, *cells(row))) + " |" for row in PROPERTIES]
    return "\n".join(lines)


def _parameters(row: Properties) -> str:
    return _formula(row.parameters) + (" in each layer" if row.per_layer else "")


def _distance_only(row: Properties) -> str:
    return "yes" if row.distance_only else f"no: {row.unless}"


def _per_token(row: Properties) -> str:
    if row.embedding_operations != "0":
        return f"{_formula(row.embedding_operations)}, once in the model"
    return _formula(row.token_operations)


def _formula(text: str) -> str:
    return text.replace(" * ", "·").replace(" / ", "/")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
