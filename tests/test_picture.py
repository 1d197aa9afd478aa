"""Pictures are written whole or not at all, and leave matplotlib as it was."""

from pathlib import Path

import pytest

from ropewalk.show.picture import drawing, save

matplotlib = pytest.importorskip("matplotlib")


class _Broken:
    """A figure whose saving fails half way."""

    def savefig(self, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")


def test_a_failed_save_keeps_the_old_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space"):
        save(_Broken(), path, dpi=50)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_settings_last_only_while_drawing(tmp_path: Path) -> None:
    before = matplotlib.rcParams["svg.hashsalt"]
    with drawing("a test") as figure_class:
        figure = figure_class(figsize=(1, 1))
        assert matplotlib.rcParams["svg.hashsalt"] == "ropewalk"
        save(figure, tmp_path / "a.SVG", dpi=50)
    assert matplotlib.rcParams["svg.hashsalt"] == before
    assert "<svg" in (tmp_path / "a.SVG").read_text()
