"""The standard library as text: splits by file, nothing trained on is measured."""

from pathlib import Path

import pytest

from ropewalk import InputError
from ropewalk.extend.corpus import split_of, standard_library
from ropewalk.extend.texts import default_texts


def test_splits_do_not_overlap_and_cover_the_library() -> None:
    names = {s: {d.name for d in standard_library(s)} for s in ("train", "held_out")}
    assert names["train"]
    assert names["held_out"]
    assert not names["train"] & names["held_out"]


def test_test_folders_are_never_trained_on() -> None:
    assert split_of("test/test_dict.py") == "test"
    assert split_of("unittest/test/test_case.py") == "test"
    # A module named test is no folder of tests.
    assert split_of("test.py") != "test"


def test_the_split_of_a_file_depends_on_its_path_only() -> None:
    # SHA-256 of the path; these must never change, or the built-in model was trained on them.
    assert [split_of(n) for n in ("ast.py", "abc.py")] == ["held_out", "train"]
    held_out = sorted(d.name for d in standard_library("held_out"))
    assert all(split_of(name) == "held_out" for name in held_out)


def test_unknown_split_and_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train, held_out or test"):
        standard_library("dev")
    with pytest.raises(InputError, match="no Python source"):
        standard_library("train", root=tmp_path)


def test_default_texts_were_not_trained_on() -> None:
    documents, origin = default_texts()
    assert origin
    assert all(split_of(d.name) != "train" for d in documents)
