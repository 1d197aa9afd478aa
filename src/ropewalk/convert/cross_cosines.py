"""How the lanes of queries and keys lie to each other in a model's weights.

For a head, row a of the query weights and row b of the key weights are two vectors in the same
space, the model's hidden state. Their cosines, for all pairs of rotated lanes, are what the
pairing can be seen in.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .model_weights import ModelWeights, QueryKeyTensor
from .row_orders import HeadRows
from .stored_tensors import FloatArray, StoredTensor, TensorFile, open_tensors

_MOST_LAYERS, _MOST_KEY_HEADS, _MOST_QUERIES = 64, 8, 4
_MOST_IN_ALL = 128
"""Evenly chosen, so that a large model takes seconds and not minutes."""
_LATENT_INPUT = {
    "q_b_proj": ("q_a_proj.weight", "q_a_layernorm.weight"),
    "attn_q_b": ("attn_q_a.weight", "attn_q_a_norm.weight"),
}
"""Queries that are projected twice: the first projection, and the norm between the two."""


@dataclass(frozen=True)
class HeadCosines:
    """The cosines of one key head with the query heads that use it.

    Attributes:
        layer: its layer.
        head: the key head.
        cosines: shape (query heads, lanes, lanes): query lane a with key lane b, of the
            rotated lanes.
        query_norms: lengths of the query rows, shape (query heads, lanes).
        key_norms: lengths of the key rows, shape (lanes,).
    """

    layer: int
    head: int
    cosines: FloatArray
    query_norms: FloatArray
    key_norms: FloatArray


@dataclass(frozen=True)
class _Head:
    file: TensorFile
    found: QueryKeyTensor
    rows: HeadRows


def head_cosines(weights: ModelWeights) -> list[HeadCosines]:
    """Read query and key weights of some layers and compare their lanes.

    At most 64 layers are read, 8 key heads of each, 128 in all, and 4 query heads of each.

    Raises:
        InputError: no such weights, weights packed across rows, or a number that is not finite.
    """
    with ExitStack() as stack:
        files = [
            stack.enter_context(open_tensors(weights.folder / name, weights.header))
            for name in weights.files
        ]
        everything = {t.name: (file, t) for file in files for t in file.tensors.values()}
        layers: dict[int, dict[str, list[_Head]]] = {}
        for file in files:
            for found in weights.query_key_tensors(file.tensors.values(), file.path):
                if found.place.kind == "matrix" and found.place.field == "weight":
                    heads = layers.setdefault(found.place.layer, {"query": [], "key": []})
                    for rows in found.heads:
                        heads[rows.role].append(_Head(file, found, rows))
        whole = sorted(n for n, heads in layers.items() if heads["query"] and heads["key"])
        if not whole:
            raise InputError(
                str(weights.folder),
                found="no query and key weights under the names of the family",
                expected=f"the tensors of {weights.plan.model_type}",
                fix="check that config and weights belong together",
            )
        chosen = _some(whole, _MOST_LAYERS)
        most = min(_MOST_KEY_HEADS, max(1, _MOST_IN_ALL // len(chosen)))
        return [
            cosines
            for layer in chosen
            for cosines in _of_layer(layer, layers[layer], everything, most)
        ]


def _of_layer(
    layer: int,
    heads: dict[str, list[_Head]],
    everything: dict[str, tuple[TensorFile, StoredTensor]],
    most: int,
) -> list[HeadCosines]:
    queries, keys = heads["query"], heads["key"]
    if len(queries) % len(keys):
        name = queries[0].found.tensor.name
        raise InputError(
            f"{queries[0].file.path}: {name}",
            found=f"{len(queries)} query heads and {len(keys)} key heads",
            expected="a number of key heads that divides the query heads",
            fix="check that config and weights belong together",
        )
    group = len(queries) // len(keys)
    out = []
    for head in _some(range(len(keys)), most):
        key = _rows(keys[head], everything)
        key_norms, key = _unit(key)
        chosen = _some(range(head * group, (head + 1) * group), _MOST_QUERIES)
        pairs = [_unit(_rows(queries[i], everything)) for i in chosen]
        if any(rows.shape != key.shape for _, rows in pairs):
            raise InputError(
                f"{keys[head].file.path}: {keys[head].found.tensor.name}",
                found=f"key rows of {key.shape[1]} columns",
                expected=f"{pairs[0][1].shape[1]}, as the queries have",
                fix="check that config and weights belong together",
            )
        cosines = np.stack([rows @ key.T for _, rows in pairs])
        norms = np.stack([norms for norms, _ in pairs])
        out.append(HeadCosines(layer, head, cosines, norms, key_norms))
    return out


def _rows(head: _Head, everything: dict[str, tuple[TensorFile, StoredTensor]]) -> FloatArray:
    """Return the weights of a head's rotated lanes, seen from the hidden state."""
    lanes = head.rows.lanes
    first = head.rows.start + lanes.offset
    rows = head.file.numbers(head.found.tensor, slice(first, first + lanes.rotated))
    name = head.found.tensor.name
    for module, inputs in _LATENT_INPUT.items():
        stem, found, _ = name.rpartition(f"{module}.")
        if not found:
            continue
        # The norm between the two projections divides by one number and multiplies the lanes.
        for part in reversed(inputs):
            if stem + part not in everything:
                raise InputError(
                    f"{head.file.path}: {stem + part}",
                    found="no such tensor",
                    expected=f"the input of {name}",
                    fix="fetch the model again",
                )
            file, tensor = everything[stem + part]
            numbers = file.numbers(tensor, slice(None))
            rows = rows * numbers.reshape(-1) if "norm" in part else rows @ numbers
    return rows


def _unit(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    norms = np.linalg.norm(rows, axis=1)
    # A dead lane has no direction; it then agrees with no other.
    return norms, np.divide(rows, norms[:, None], out=np.zeros_like(rows), where=norms[:, None] > 0)


def _some(items: list[int] | range, most: int) -> list[int]:
    if len(items) <= most:
        return list(items)
    chosen: npt.NDArray[np.intp] = np.linspace(0, len(items) - 1, most).round().astype(np.intp)
    return [items[i] for i in chosen]
