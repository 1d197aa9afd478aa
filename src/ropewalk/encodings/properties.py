"""What each encoding costs and promises, as data; `tests/test_encodings_properties.py` computes it.

``docs/encodings.md`` shows this table. Words in it have one meaning each, stated at the types
below, and the tests work them out from `Encoding.added`, `Encoding.scores` and the modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Information = Literal["none", "absolute", "relative", "both"]
"""What positions tell attention. With the text's length held:

absolute: a vector of the position is added to the token's, and scores see no position beside it.
relative: scores change when the query alone moves on, and not when query and key move together.
both: scores change either way.
"""

Anew = Literal["nothing", "one entry", "row", "product", "keys"]
"""What one more token makes a decoder compute again, beside its own query, key and scores.

one entry: the bias row is the last one moved on by a key; only the farthest distance is new.
row: the whole bias row of the new query.
product: the product of the new query with the vector of every distance.
keys: all keys, because the rotation of earlier ones has changed.
"""

Past = Literal["error", "nothing", "new", "falls", "within", "to a length"]
"""What scores get to see past the trained length, of positions.

error: there is no such position. nothing: scores see none. new: angles or vectors that training
did not show. falls: a bias below every one of training, ever lower. within: only what training
showed, to half a token's step (a bias: to one), at any length. to a length: the same, up to one.
"""


@dataclass(frozen=True, kw_only=True)
class Properties:
    """One row of the table: one encoding.

    Formulas are Python expressions in heads, head_dim, width, rotary_dim, length (the trained
    one), buckets (of T5) and hidden (of FIRE). Operations are multiplications, additions and
    logarithms; the product of a query and a key alone is ``2 * head_dim``.

    Attributes:
        name: how the tables call it.
        made: the Python expression that makes it, in length, head_dim and
            ``rope = Rope(head_dim=head_dim)``.
        parameters: how many numbers are learned, in each layer or in the model.
        per_layer: whether each layer has its own.
        information: what positions tell attention.
        distance_only: whether a query and a key score the same at (i, j) and at (i + s, j + s),
            in texts that end with the query.
        unless: where ``distance_only`` is false, what else counts and from where on.
        keys_kept: whether a key stays as it was first computed while the text grows.
        key_copies: how many differently placed copies of a key a cache has to hold.
        keys_placed: whether kept keys carry their position, so that a window that counts from 0
            again makes them void.
        anew: what each further token makes compute again.
        past: what scores see past the trained length.
        past_note: the same, more closely.
        token_operations: per token, layer and head, on query and key.
        embedding_operations: per token, once in the model.
        pair_operations: per query, key and head, beyond the product of query and key.
        products: score products that a pair of query and key takes at most; a block of a prompt
            in which pairs differ takes them all.
    """

    name: str
    made: str
    parameters: str = "0"
    per_layer: bool = False
    information: Information
    distance_only: bool
    unless: str = ""
    keys_kept: bool = True
    key_copies: int = 1
    keys_placed: bool
    anew: Anew = "nothing"
    past: Past
    past_note: str
    token_operations: str = "0"
    embedding_operations: str = "0"
    pair_operations: str = "0"
    products: int = 1


_TURNED = "6 * rotary_dim"
"""Query and key: per lane two products and a sum."""
_TURNED_TWICE = "12 * rotary_dim"

PROPERTIES: tuple[Properties, ...] = (
    Properties(
        name="none (NoPE)",
        made="NoPE()",
        information="none",
        distance_only=True,
        keys_placed=False,
        past="nothing",
        past_note="only the number of keys grows",
    ),
    Properties(
        name="sinusoidal",
        made="Sinusoidal()",
        information="absolute",
        distance_only=False,
        unless="both positions are in the embeddings",
        keys_placed=True,
        past="new",
        past_note="lanes of a wavelength beyond the trained length take new values",
        embedding_operations="width",
    ),
    Properties(
        name="learned",
        made="Learned(length=length)",
        parameters="length * width",
        information="absolute",
        distance_only=False,
        unless="both positions are in the embeddings",
        keys_placed=True,
        past="error",
        past_note="there is no vector",
        embedding_operations="width",
    ),
    Properties(
        name="Transformer-XL",
        made="TransformerXL()",
        parameters="2 * heads * head_dim + width * heads * head_dim",
        per_layer=True,
        information="relative",
        distance_only=True,
        keys_placed=False,
        anew="product",
        past="new",
        past_note="vectors of distances never met, as sinusoidal",
        token_operations="3 * head_dim",
        pair_operations="2 * head_dim + 1",
        products=2,
    ),
    Properties(
        name="T5",
        made="T5Buckets()",
        parameters="buckets * heads",
        information="relative",
        distance_only=True,
        keys_placed=False,
        anew="one entry",
        past="within",
        past_note="flat: the last bucket, if training reached it",
        pair_operations="1",
    ),
    Properties(
        name="ALiBi",
        made="ALiBi()",
        information="relative",
        distance_only=True,
        keys_placed=False,
        anew="one entry",
        past="falls",
        past_note="by the head's slope per token",
        pair_operations="1",
    ),
    Properties(
        name="xPos",
        made="XPos(rope=rope)",
        information="relative",
        distance_only=True,
        keys_placed=True,
        past="new",
        past_note="the angles of RoPE, fainter with the distance",
        token_operations=_TURNED,
    ),
    Properties(
        name="KERPLE-log",
        made="Kerple()",
        parameters="2 * heads",
        per_layer=True,
        information="relative",
        distance_only=True,
        keys_placed=False,
        anew="one entry",
        past="falls",
        past_note="by r1·log 2 per doubling",
        pair_operations="1",
    ),
    Properties(
        name="FIRE",
        made="Fire(threshold=length)",
        parameters="2 + 2 * hidden + (hidden + 1) * heads",
        per_layer=True,
        information="both",
        distance_only=False,
        unless="past L, the query's position",
        keys_placed=False,
        anew="row",
        past="within",
        past_note="the network's input stays from 0 to 1",
        pair_operations="3 + 4 / heads",
    ),
    Properties(
        name="RoPE",
        made="Rotary(rope=rope)",
        information="relative",
        distance_only=True,
        keys_placed=True,
        past="new",
        past_note="planes that made no full turn in training",
        token_operations=_TURNED,
    ),
    Properties(
        name="partial RoPE",
        made="Rotary(rope=Rope(head_dim=head_dim, rotary_dim=head_dim // 2))",
        information="relative",
        distance_only=True,
        keys_placed=True,
        past="new",
        past_note="as RoPE, in the planes there are",
        token_operations=_TURNED,
    ),
    Properties(
        name="p-RoPE",
        made="Rotary(rope=Rope(head_dim=head_dim, scaling=Proportional(share=0.75)))",
        information="relative",
        distance_only=True,
        keys_placed=True,
        past="new",
        past_note="as RoPE; the slowest planes stand still",
        token_operations=_TURNED,
    ),
    Properties(
        name="clipped RoPE",
        made="Rotary(rope=Rope(head_dim=head_dim, scaling=Clipped(original_length=length)))",
        information="relative",
        distance_only=True,
        keys_placed=True,
        past="within",
        past_note="every plane that turns made a full turn in training",
        token_operations=_TURNED,
    ),
    Properties(
        name="Resonance RoPE",
        made="Rotary(rope=Rope(head_dim=head_dim, scaling=Resonance()))",
        information="relative",
        distance_only=True,
        keys_placed=True,
        past="new",
        past_note="full-turn planes repeat exactly; the slower ones as RoPE",
        token_operations=_TURNED,
    ),
    Properties(
        name="dynamic NTK",
        made="Rotary(rope=Rope(head_dim=head_dim, scaling=DynamicNTK(original_length=length)))",
        information="relative",
        distance_only=False,
        unless="past the trained length, the text's length sets the base",
        keys_kept=False,
        keys_placed=True,
        anew="keys",
        past="new",
        past_note="the slowest plane ends where training did; those between go on",
        token_operations=_TURNED,
    ),
    Properties(
        name="ReRoPE",
        made="ReRoPE(rope=rope, window=length // 2)",
        information="relative",
        distance_only=True,
        key_copies=2,
        keys_placed=True,
        past="within",
        past_note="relative positions end at the window",
        token_operations=_TURNED_TWICE,
        products=2,
    ),
    Properties(
        name="leaky ReRoPE",
        made="ReRoPE(rope=rope, window=length // 2, leak=16)",
        information="relative",
        distance_only=True,
        key_copies=2,
        keys_placed=True,
        past="to a length",
        past_note="window + leak·(length − 1 − window) + 1 tokens",
        token_operations=_TURNED_TWICE,
        products=2,
    ),
    Properties(
        name="Self-Extend",
        made="SelfExtend(rope=rope, group=8, window=length // 4)",
        information="both",
        distance_only=False,
        unless="from the window on, where groups begin",
        key_copies=2,
        keys_placed=True,
        past="to a length",
        past_note="group·(length − window) + window tokens",
        token_operations=_TURNED_TWICE,
        products=2,
    ),
    Properties(
        name="dual chunk",
        made="DualChunk(rope=rope, chunk=11 * length // 16, local=length // 16)",
        information="both",
        distance_only=False,
        unless="past the local window, where chunks begin",
        keys_placed=True,
        past="within",
        past_note="relative positions end at chunk + local − 1",
        token_operations=_TURNED_TWICE,
        products=3,
    ),
    Properties(
        name="log-n (on RoPE)",
        made="LogN(inner=Rotary(rope=rope), original_length=length)",
        information="both",
        distance_only=False,
        unless="past L, the query's position",
        keys_placed=True,
        past="new",
        past_note="as what it wraps, and queries grow by log_L(n)",
        token_operations="6 * rotary_dim + head_dim",
    ),
)
"""Every encoding, one row each."""
