from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pricing_data.atomic_write import WriteFailed, atomic_write
from pricing_data.errors import BadInput


def write(path: Path, text: str, error: OSError | None = None) -> None:
    with atomic_write(path) as out:
        out.write_text(text)
        if error is not None:
            raise error


def test_the_new_file_replaces_the_old_one_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")
    with pytest.raises(
        WriteFailed, match="No space left on device; its previous content is intact"
    ):
        write(path, "half of", OSError(errno.ENOSPC, "full"))
    assert path.read_text() == "old"
    write(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot write .*No such file or directory"):
        write(tmp_path / "no" / "x", "new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match="Is a directory"):
        write(tmp_path / "folder", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
