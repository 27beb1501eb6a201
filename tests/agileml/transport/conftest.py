"""What the tests of links share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agileml.transport.links import Meeting


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: a socket's path has at most 107 bytes, and pytest's folders may
    be longer.
    """
    with tempfile.TemporaryDirectory(prefix="link") as name:
        yield Path(name)


@pytest.fixture
def meeting(folder: Path) -> Iterator[Meeting]:
    """Endpoints that are closed in the end."""
    meeting = Meeting(folder)
    yield meeting
    meeting.close()
