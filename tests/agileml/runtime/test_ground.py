"""Locks between processes, and files and folders that are replaced in one step."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agileml.runtime.ground import is_locked, locked, move, refilled, replaced, take_lock

_HOLDER = """
import sys
from pathlib import Path
from agileml.runtime.ground import locked

with locked(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _HOLDER, str(path)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield holder


def test_a_lock_keeps_others_out_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    assert not is_locked(path)
    with held_by_another_process(path) as holder:
        assert is_locked(path)
        with pytest.raises(BlockingIOError):
            take_lock(path, seconds=0.0)
        with pytest.raises(BlockingIOError), locked(path, shared=True, seconds=0.01):
            pass
        holder.kill()
    assert not is_locked(path)
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)


def test_shared_locks_keep_out_exclusive_ones_only(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, shared=True), locked(path, shared=True, seconds=0.0):
        assert not is_locked(path)
        with pytest.raises(BlockingIOError):
            take_lock(path, seconds=0.0)


def test_nothing_that_is_no_file_is_locked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not is_locked(tmp_path / "file" / "lock")


def fill(path: Path) -> None:
    path.write_text("half of")
    raise OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("lasting", [False, True])
def test_a_file_is_replaced_once_it_is_whole(tmp_path: Path, *, lasting: bool) -> None:
    path = tmp_path / "value.json"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), replaced(path, lasting=lasting) as new:
        fill(new)
    assert path.read_text() == "old"
    with replaced(path, lasting=lasting) as new:
        new.write_text("new")
        assert path.read_text() == "old"
        assert new.name.startswith(".")
        assert new.suffix != path.suffix
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_another_process_made_first_stays(tmp_path: Path) -> None:
    path = tmp_path / "id"

    def both(new: Path) -> None:
        new.write_text("second")
        path.write_text("first")

    with pytest.raises(FileExistsError), replaced(path, over=False) as new:
        both(new)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_refilled_once_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    left = tmp_path / ".kept"
    left.mkdir()
    (left / "of a killed process").touch()
    with refilled(folder) as new:
        (new / "first").touch()
        assert not folder.exists()
    with pytest.raises(OSError, match="full"), refilled(folder) as new:
        fill(new / "second")
    assert [path.name for path in folder.iterdir()] == ["first"]
    with refilled(folder) as new:
        (new / "third").touch()
    assert [path.name for path in folder.iterdir()] == ["third"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_moved_file_takes_the_name(tmp_path: Path) -> None:
    (tmp_path / "part").write_text("whole")
    assert move(tmp_path / "part", tmp_path / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
