"""Temporary folders of processes, also of killed ones."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agileml.runtime.folders import own_folder

CODE = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from agileml.runtime.folders import own_folder
with own_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        command = [sys.executable, "-c", CODE, place]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            theirs = Path(process.stdout.readline().strip())
            with own_folder() as mine:
                assert mine != theirs
                assert theirs.is_dir(), "its process runs"
            assert not mine.exists()
            process.kill()
        assert theirs.is_dir()
        with own_folder() as mine:
            assert list(Path(place).iterdir()) == [mine]
