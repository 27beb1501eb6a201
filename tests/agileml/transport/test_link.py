"""Frames that end early, stand still, or come slowly."""

from __future__ import annotations

import numpy as np
import pytest

from agileml.transport import (
    Connected,
    FrameLimits,
    Lost,
    Received,
)
from agileml.transport.addresses import TcpAddress, UnixAddress
from agileml.transport.framing import encode
from agileml.transport.link import TransportSettings
from tests.agileml.transport.links import Clock, Meeting
from tests.agileml.transport.test_hostile import ended, member


def test_a_truncated_frame_is_reported_differently_from_a_closed_link(watched: Meeting) -> None:
    pieces, _ = encode("k", b"", [np.ones(1000)], FrameLimits())
    whole = b"".join(pieces)
    with member(watched, "cut") as sock:
        sock.sendall(whole[:-1])
    with member(watched, "well") as sock:
        sock.sendall(whole)
    watched.until(lambda: len(watched.of("a", Lost)) == 2)
    reasons = {event.peer: event.reason for event in watched.of("a", Lost)}
    assert reasons == {
        "cut": "it ended the connection in the middle of a message",
        "well": "it went away",
    }


@pytest.mark.parametrize("length", [1, 18, 40, 4000])
def test_a_stalled_frame_ends_the_link(meeting: Meeting, length: int) -> None:
    """Half a frame, then a byte now and then, which is not enough to be kept, whatever was received
    before.
    """
    clock = Clock()
    a = meeting.add("a", clock=clock)
    a.listen(meeting.address("a"))
    meeting.add("b", clock=clock).connect("a", meeting.address("a"))
    meeting.first("a", Connected)
    pieces, _ = encode("k", b"", [np.ones(1000)], FrameLimits())
    data = b"".join(pieces)
    with member(meeting) as sock:
        sock.sendall(data * 10)
        meeting.until(lambda: len(meeting.of("a", Received)) == 10)
        clock.passed += 100
        meeting.turn()
        assert not meeting.of("a", Lost)
        sock.sendall(data[:length])
        for step in range(6):
            meeting.turn()
            assert not meeting.of("a", Lost)
            sock.sendall(data[length + step : length + step + 1])
            clock.passed += 5
        ended(meeting, sock)
    assert meeting.first("a", Lost) == Lost(
        "m", "it started a message and then sent too little for 30 s"
    )
    assert a.peers == {"b"}


def test_a_slow_large_frame_is_accepted_while_it_gains(meeting: Meeting) -> None:
    clock = Clock()
    a = meeting.add("a", clock=clock)
    a.listen(meeting.address("a"))
    pieces, _ = encode("k", b"", [np.ones(80_000)], FrameLimits())
    data = b"".join(pieces)
    with member(meeting) as sock:
        for start in range(0, len(data), 70_000):
            rest = data[start : start + 70_000]

            def through() -> bool:
                nonlocal rest
                try:
                    rest = rest[sock.send(rest) :]
                except BlockingIOError:
                    return False
                return not rest

            meeting.until(through)
            meeting.turn()
            clock.passed += 35
        assert meeting.first("a", Received).arrays[0].all()


def test_each_kind_of_address_has_its_own_buffers() -> None:
    settings = TransportSettings(unix_buffer_bytes=1, tcp_buffer_bytes=2)
    assert settings.buffer_bytes(UnixAddress("/tmp/link")) == 1
    assert settings.buffer_bytes(TcpAddress("127.0.0.1", 1)) == 2
