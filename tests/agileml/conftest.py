"""What tests that start processes share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agileml.engines.jobs import processes


@pytest.fixture
def left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Afterwards there is no process, no file and no descriptor that was not there before."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        descriptors = open_files()
        yield Path(folder)
        assert processes(folder) == []
        assert list(Path(folder).iterdir()) == []
        assert open_files() == descriptors


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
