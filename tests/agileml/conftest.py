"""Fixtures of tests that start processes."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agileml.engines.jobs import processes


@pytest.fixture
def left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The test leaves no process, file or descriptor behind."""
    # PyTorch makes this folder where temporary files are, once in a process, when its compiler is
    # first imported.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor")
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        # Descriptors of earlier tests would be closed at any moment.
        gc.collect()
        descriptors = open_files()
        yield Path(folder)
        assert processes(folder) == []
        assert list(Path(folder).iterdir()) == []
        gc.collect()
        # Fewer than before: something of an earlier test was closed meanwhile.
        assert open_files() <= descriptors


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
