"""Every rotary class of transformers, built and compared; the page that says so.

transformers computes from its own config classes; nothing is downloaded.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest
import torch
import transformers
from coverage_cases import Row, run
from coverage_page import PAGE, page
from rotary_classes import Built, built_classes, rotary_classes

from ropewalk.models import FAMILIES

CLASSES = built_classes()
_FOUND: dict[tuple[str, str], Row] = {}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Classes warn about odd default configs; that is not what is tested."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)
    torch.set_num_threads(threads)


def row_of(built: Built) -> Row:
    key = (built.name, built.config_name)
    if key not in _FOUND:
        _FOUND[key] = run(built)
    return _FOUND[key]


def test_there_are_as_many_classes_as_were_counted():
    """5.24.0 has 239 in 206 folders; another release has to be counted anew."""
    found = rotary_classes()
    assert transformers.__version__ == "5.24.0"
    assert len(found) == 206
    assert sum(len(names) for names in found.values()) == 239
    assert {built.name for built in CLASSES} == {n for names in found.values() for n in names}


@pytest.mark.parametrize("built", CLASSES, ids=lambda b: f"{b.folder}-{b.name}-{b.config_name}")
def test_class(built):
    row = row_of(built)
    assert not row.failed
    assert row.outcome == "reproduced"


def test_the_page_is_that_of_this_run():
    """The last test of the module: all rows are there by now, or are run here."""
    assert PAGE.read_text(encoding="utf-8") == page([row_of(built) for built in CLASSES])


def test_a_wrong_row_is_seen(monkeypatch):
    """The comparison can fail: another base, another pairing, another order of axes."""
    llama = next(b for b in CLASSES if b.name == "LlamaRotaryEmbedding")
    wrong = {**vars(FAMILIES["llama"]), "direction": -1}
    monkeypatch.setitem(FAMILIES, "llama", type(FAMILIES["llama"])(**wrong))
    assert run(llama).outcome == "failed"
    wrong = {**vars(FAMILIES["llama"]), "direction": 1, "pairing": "adjacent"}
    monkeypatch.setitem(FAMILIES, "llama", type(FAMILIES["llama"])(**wrong))
    assert "pairs" in run(llama).failed
    step = next(b for b in CLASSES if b.name == "Step3p7VisionRotaryEmbedding")
    height_first = {
        **vars(FAMILIES["step3p5_vision"]),
        "axial": FAMILIES["mlcd_vision_model"].axial,
    }
    monkeypatch.setitem(FAMILIES, "step3p5_vision", type(FAMILIES["llama"])(**height_first))
    assert "tables differ" in run(step).failed
