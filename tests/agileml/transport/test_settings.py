"""Buffers of links, by the kind of their address."""

from __future__ import annotations

from agileml.transport.settings import TransportSettings
from agileml.transport.sockets import TcpAddress, UnixAddress


def test_each_kind_of_address_has_its_own_buffers() -> None:
    settings = TransportSettings(unix_buffer_bytes=1, tcp_buffer_bytes=2)
    assert settings.buffer_bytes(UnixAddress("/tmp/link")) == 1
    assert settings.buffer_bytes(TcpAddress("127.0.0.1", 1)) == 2
