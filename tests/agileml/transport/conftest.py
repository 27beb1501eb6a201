"""What the tests of links share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agileml.transport.framing import FrameLimits
from agileml.transport.link import Lost, Received, TransportSettings
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


@pytest.fixture
def watched(meeting: Meeting) -> Iterator[Meeting]:
    """A pair that keeps talking; whatever happens to "a" must not concern its link to "b"."""
    meeting.pair(
        TransportSettings(
            limits=FrameLimits(header_bytes=2000, body_bytes=1 << 20), max_handshakes=4, max_links=6
        )
    )
    yield meeting
    a, b = meeting.endpoints["a"], meeting.endpoints["b"]
    a.send("b", "still")
    b.send("a", "there")
    meeting.until(lambda: bool(meeting.of("a", Received)) and bool(meeting.of("b", Received)))
    assert not meeting.of("b", Lost)
