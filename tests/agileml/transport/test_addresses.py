"""Addresses and their texts."""

from __future__ import annotations

import pytest

from agileml.transport import BadAddress, TcpAddress, UnixAddress, parse_address


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
