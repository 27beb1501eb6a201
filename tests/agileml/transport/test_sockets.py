"""Socket files, and a poll that another thread ends."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from agileml.transport import (
    BadAddress,
    TcpAddress,
    UnixAddress,
    parse_address,
)
from tests.agileml.transport.links import Meeting


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:/tmp/x.sock", UnixAddress("/tmp/x.sock")),
        ("unix:relative:with:colons", UnixAddress("relative:with:colons")),
        ("tcp:localhost:80", TcpAddress("localhost", 80)),
        ("tcp:127.0.0.1:0", TcpAddress("127.0.0.1", 0)),
        ("tcp:[::1]:8000", TcpAddress("::1", 8000)),
    ],
)
def test_addresses_are_parsed_and_printed(text: str, address: object) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "x", "unix:", "tcp:host", "tcp::80", "tcp:host:", "tcp:h:65536", "tcp:h:-1", "udp:h:1"],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_address(text)


def test_a_socket_path_that_is_too_long_is_refused() -> None:
    assert UnixAddress("/" + "x" * 106)
    with pytest.raises(
        BadAddress, match="has 108 bytes, the limit is 107: use a folder with a shorter name"
    ):
        UnixAddress("/" + "x" * 107)
    with pytest.raises(BadAddress, match="has 109 bytes"):
        UnixAddress("/" + "ü" * 54)


def test_an_unresolvable_host_is_named() -> None:
    with pytest.raises(BadAddress, match=r"cannot resolve host 'no\.\.host'"):
        TcpAddress("no..host", 1).resolve()


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
