"""The journal: what is done stays done, a cut line is redone, another run is refused."""

from pathlib import Path

import pytest

from ropewalk import InputError
from ropewalk.extend.journal import Journal

RUN = {"model": "m", "dtype": "float32"}


def test_units_survive_reopening(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.jsonl"
    with Journal(path, RUN) as journal:
        journal.record("a", {"nats": 0.1 + 0.2})
    with Journal(path, RUN) as journal:
        assert journal.done == {"a": {"nats": 0.1 + 0.2}}
        journal.record("b", 2)
    with Journal(path, RUN) as journal:
        assert list(journal.done) == ["a", "b"]


def test_a_unit_is_on_disk_before_the_next_begins(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, RUN)
    journal.record("a", 1)
    assert b'"a"' in path.read_bytes()
    journal.close()


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_line_cut_by_a_kill_is_done_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, RUN) as journal:
        journal.record("a", 1)
        journal.record("b", "twenty characters and more")
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path, RUN) as journal:
        assert journal.done == {"a": 1}
        journal.record("b", 2)
    with Journal(path, RUN) as journal:
        assert journal.done == {"a": 1, "b": 2}


def test_a_first_line_cut_by_a_kill_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"run": {"mod')
    with Journal(path, RUN) as journal:
        journal.record("a", 1)
    with Journal(path, RUN) as journal:
        assert journal.done == {"a": 1}


def test_another_run_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, RUN) as journal:
        journal.record("a", 1)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"differing: dtype.*fix: choose another --out"):
        Journal(path, {**RUN, "dtype": "bfloat16"})
    assert path.read_bytes() == before


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("hello\n")
    with pytest.raises(InputError, match="line 1: got no JSON"):
        Journal(path, RUN)
    path.write_text("[1]\n")
    with pytest.raises(InputError, match="another run"):
        Journal(path, RUN)
