"""Strangers and peers that misbehave lose their own connection, with a reason, and no other."""

from __future__ import annotations

import gc
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from agileml.transport import (
    Connected,
    Lost,
    Received,
    Rejected,
    TcpAddress,
    TransportSettings,
    UnixAddress,
)
from agileml.transport.certificates import job_mark
from agileml.transport.handshake import Handshake, Identity
from tests.agileml.transport.links import SECRET, Meeting


def stranger(meeting: Meeting) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(meeting.address("a").path)
    sock.setblocking(False)
    return sock


def member(meeting: Meeting, name: str = "m") -> socket.socket:
    """A socket that has passed the handshake and may now do what it likes."""
    sock = stranger(meeting)
    handshake = Handshake(Identity(name, "node", "1"), job_mark(SECRET), expected="a")
    sock.sendall(handshake.opening())

    def passed() -> bool:
        try:
            while not handshake.done:
                sock.sendall(
                    handshake.receive(sock.recv(handshake.wanted) if handshake.wanted else b"")
                )
        except BlockingIOError:
            return False
        return True

    meeting.until(passed)
    meeting.until(lambda: Connected(name, "node") in meeting.events["a"])
    return sock


def ended(meeting: Meeting, sock: socket.socket) -> None:
    """Waits until the other side has closed."""

    def over() -> bool:
        try:
            while sock.recv(4096):
                pass
        except BlockingIOError:
            return False
        except ConnectionError:
            pass
        return True

    meeting.until(over)


def test_messages_of_a_new_link_follow_the_last_ones_of_the_earlier_link(meeting: Meeting) -> None:
    """The proof of the new connection is there before the last message on the old one."""
    a, b = meeting.pair()
    with stranger(meeting) as sock:
        handshake = Handshake(Identity("b", "node", "1"), job_mark(SECRET), expected="a")
        sock.sendall(handshake.opening())
        challenge = b""

        def challenged() -> bool:
            nonlocal challenge
            try:
                challenge += sock.recv(4096)
            except BlockingIOError:
                return False
            return True

        meeting.until(challenged)
        handshake.receive(challenge[: handshake.wanted])
        sock.sendall(handshake.receive(challenge[-handshake.wanted :]))
        b.send("a", "last words")
        assert b.flush(5)
        meeting.events["a"] += a.poll(5)
        meeting.until(lambda: len(meeting.of("a", Connected)) == 2)
    assert [type(event) for event in meeting.events["a"][:4]] == [
        Connected,
        Received,
        Lost,
        Connected,
    ]


def said(meeting: Meeting) -> list[str]:
    return [event.reason for event in meeting.of("a", Rejected)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 100,
        os.urandom(5000),
        struct.pack("<4sBH", b"AgH1", 1, 1025),
    ],
)
def test_unknown_processes_that_send_garbage_are_disconnected(
    watched: Meeting, garbage: bytes
) -> None:
    with stranger(watched) as sock:
        sock.sendall(garbage)
        ended(watched, sock)
    assert len(said(watched)) == 1
    assert watched.of("a", Rejected)[0].peer is None


def test_another_secret_is_refused_with_one_event_on_each_side(watched: Meeting) -> None:
    x = watched.add("x", secret=b"not what the others have")
    x.connect("a", watched.address("a"))
    watched.first("x", Rejected)
    watched.first("a", Rejected)
    refused = "the peer refused: the two processes have different job secrets"
    assert watched.events["x"] == [
        Rejected("a", str(watched.address("a")), refused, permanent=True)
    ]
    assert said(watched) == ["the process named 'x' does not hold this job's secret"]


def test_another_version_is_refused_and_both_are_named(watched: Meeting) -> None:
    x = watched.add("x", version="2")
    x.connect("a", watched.address("a"))
    assert "'a' runs version '1' of the code, we run '2'" in watched.first("x", Rejected).reason
    assert "'2', here '1'" in watched.first("a", Rejected).reason


def test_a_peer_with_an_unexpected_name_is_refused(watched: Meeting) -> None:
    x = watched.add("x")
    x.connect("c", watched.address("a"))
    assert watched.first("x", Rejected).reason == "'a' answered where 'c' was expected"
    assert watched.first("x", Rejected).peer == "c"


def test_a_connection_that_closes_silently_is_not_reported(watched: Meeting) -> None:
    for _ in range(5):
        stranger(watched).close()
        watched.turn()
    assert said(watched) == []


FRAMES: list[tuple[bytes, str]] = [
    (b"nonsense" * 10, "it sent data that is not a frame"),
    (
        struct.pack("<4sIQ", b"AgM2", 0xFFFFFFFF, 0),
        "it sent a header of 4,294,967,295 bytes, the limit is 2,000",
    ),
    (
        struct.pack("<4sIQ", b"AgM2", 5, 1 << 63),
        "it sent arrays of 9,223,372,036,854,775,808 bytes, the limit is",
    ),
    (
        struct.pack("<4sIQ", b"AgM2", 5, 0) + b"[1,2]",
        "it sent a header that does not consist of kind, content and arrays",
    ),
]


@pytest.mark.parametrize(("data", "reason"), FRAMES)
def test_peers_that_send_invalid_frames_are_dropped(
    watched: Meeting, data: bytes, reason: str
) -> None:
    with member(watched) as sock:
        sock.sendall(data)
        ended(watched, sock)
    lost = watched.first("a", Lost)
    assert lost.peer == "m"
    assert lost.reason.startswith(reason)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("link", ["unix", "tcp"])
@pytest.mark.parametrize("proven", [True, False])
def test_thousands_of_connections_leave_no_descriptor_behind(
    meeting: Meeting, link: str, proven: bool
) -> None:
    a = meeting.add("a", TransportSettings(pooled_bytes=0))
    place = a.listen(meeting.address("a") if link == "unix" else TcpAddress("127.0.0.1", 0))
    meeting.turn()
    # What earlier tests left to the garbage collector must not go while this one counts.
    gc.collect()
    before = descriptors()
    if proven:
        b = meeting.add("b")
        for number in range(500):
            b.connect("a", place)
            meeting.until(lambda: "b" in a.peers and "a" in b.peers, wait=0)
            (b if number % 2 else a).drop("a" if number % 2 else "b", "enough")
            meeting.until(lambda: not a.peers and not b.peers, wait=0)
        b.close()
        del meeting.endpoints["b"]
    else:
        connect = _connecting(place)
        for number in range(1500):
            with connect() as sock:
                sock.sendall([b"", b"nonsense", b"AgH1\1\0\0"][number % 3])
                a.poll(0)
    for _ in range(20):
        meeting.turn()
    assert descriptors() == before


def _connecting(place: object) -> Callable[[], socket.socket]:
    if isinstance(place, UnixAddress):
        path = place.path

        def connect() -> socket.socket:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(path)
            return sock

        return connect
    assert isinstance(place, TcpAddress)
    host, port = place.host, place.port
    return lambda: socket.create_connection((host, port))
