"""Ropewalk's own rows."""

from __future__ import annotations

from typing import Any

import torch

import ropewalk
from ropewalk.rope import Precision

from .peer import Peer, importing
from .task import Prepared, RotationTask, TableTask
from .usual import as_it_is, with_gradient


def _in_place(rw: Any, task: RotationTask) -> Prepared:
    q, k = task.q.clone(), task.k.clone()
    cos, sin, pairing, rotate = task.cos, task.sin, task.pairing, rw.rotate_qk_
    return Prepared(lambda: rotate(q, k, cos, sin, pairing=pairing), as_it_is)


def _by_positions(rw: Any, task: RotationTask) -> Prepared:
    q, k = task.q.clone(), task.k.clone()
    cos, sin, pairing, rotate = task.table_cos, task.table_sin, task.pairing, rw.rotate_qk_
    rows = task.positions
    return Prepared(
        lambda: rotate(q, k, cos, sin, pairing=pairing, positions=rows),
        as_it_is,
    )


def _into_out(rw: Any, task: RotationTask) -> Prepared:
    q, k, out = task.q, task.k, task.cleared_out()
    cos, sin, pairing, rotate = task.cos, task.sin, task.pairing, rw.rotate_qk
    return Prepared(lambda: rotate(q, k, cos, sin, pairing=pairing, out=out), as_it_is)


def _fresh(rw: Any, task: RotationTask) -> Prepared:
    q, k = task.q, task.k
    cos, sin, pairing, rotate = task.cos, task.sin, task.pairing, rw.rotate_qk
    return Prepared(lambda: rotate(q, k, cos, sin, pairing=pairing), as_it_is)


def _gradient(rw: Any, task: RotationTask) -> Prepared:
    cos, sin, pairing = task.cos, task.sin, task.pairing
    call = with_gradient(lambda q, k: rw.rotate_qk(q, k, cos, sin, pairing=pairing), task)
    return Prepared(call, as_it_is)


def _tables(precision: Precision) -> Any:
    def prepare(_: Any, task: TableTask) -> Prepared:
        rope, rows = task.rope, task.rows
        return Prepared(
            lambda: ropewalk.cos_sin(rope, torch.arange(rows), precision=precision), as_it_is
        )

    return prepare


_LOAD = importing("ropewalk.torch")

IN_PLACE = Peer("ropewalk in place", "rotate_qk_", _LOAD, _in_place, exact=True)
BY_POSITIONS = Peer(
    "ropewalk by positions",
    "rotate_qk_, rows of a table by position",
    _LOAD,
    _by_positions,
    exact=True,
)
INTO_OUT = Peer("ropewalk into out", "rotate_qk(…, out=…)", _LOAD, _into_out, exact=True)
FRESH = Peer("ropewalk fresh", "rotate_qk, new tensors", _LOAD, _fresh, exact=True)
GRADIENT = Peer("ropewalk", "rotate_qk and its gradient", _LOAD, _gradient, exact=True)
EXACT_TABLES = Peer(
    "ropewalk exact", "cos_sin, precision='exact'", importing("ropewalk"), _tables("exact")
)
FLOAT32_TABLES = Peer(
    "ropewalk float32",
    "cos_sin, precision='float32'",
    importing("ropewalk"),
    _tables("float32"),
    own_angles=True,
)

ROWS = (IN_PLACE, BY_POSITIONS, INTO_OUT, FRESH, GRADIENT, EXACT_TABLES, FLOAT32_TABLES)
"""All of Ropewalk's rows."""
