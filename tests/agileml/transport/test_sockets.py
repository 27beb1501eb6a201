"""Socket files, and a poll that another thread ends."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from agileml.transport import (
    BadAddress,
    UnixAddress,
)
from tests.agileml.transport.links import Meeting


def test_wake_ends_a_poll_from_another_thread(meeting: Meeting) -> None:
    a = meeting.add("a")
    threading.Timer(0.05, a.wake).start()
    assert a.poll(60) == []
    a.wake()
    assert a.poll(60) == []
    for _ in range(100_000):
        a.wake()
    assert a.poll(60) == []
    a.close()
    a.wake()


def test_a_poll_ends_at_its_timeout(meeting: Meeting) -> None:
    a = meeting.add("a")
    assert a.poll(0.05) == []
    assert a.poll(0) == []


def test_a_killed_listeners_socket_file_is_replaced_and_a_running_ones_is_not(
    meeting: Meeting,
) -> None:
    place = meeting.address("a")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(place.path)
    a = meeting.add("a")
    assert a.listen(place) == place
    assert Path(place.path).stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadAddress, match="cannot listen at unix:"):
        meeting.add("b").listen(place)
    Path(meeting.folder / "file").write_text("precious")
    with pytest.raises(BadAddress):
        a.listen(UnixAddress(str(meeting.folder / "file")))
    assert Path(meeting.folder / "file").read_text() == "precious"
    a.close()
    assert not Path(place.path).exists()
