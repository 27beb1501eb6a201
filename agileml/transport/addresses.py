"""Where a process listens: a path of this machine or a TCP port.

As text: `unix:/path`, `tcp:host:port`, `tcp:[::1]:port`.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from agileml.transport.errors import BadAddress

LONGEST_UNIX_PATH = 107
"""Bytes of a socket's path that fit into `sun_path` of Linux (108 with the terminating zero)."""


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket in the file system."""

    path: str

    def __post_init__(self) -> None:
        length = len(os.fsencode(self.path))
        if not length or "\0" in self.path:
            raise BadAddress(f"socket path {self.path!r}: give the path of a file")
        if length > LONGEST_UNIX_PATH:
            raise BadAddress(
                f"socket path {self.path!r} has {length} bytes, the system takes {LONGEST_UNIX_PATH}:"
                " use a folder with a shorter name"
            )

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP port; port 0 lets the system choose when listening. A host name is looked up when it is used."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host or not 0 <= self.port <= 65535:
            raise BadAddress(f"TCP address {self.host!r}, port {self.port}: give a host and a port of 0-65535")

    def __str__(self) -> str:
        return f"tcp:[{self.host}]:{self.port}" if ":" in self.host else f"tcp:{self.host}:{self.port}"

    def resolve(self) -> tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]:
        """Family and socket address of the host; blocks for as long as the look-up of a name takes."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise BadAddress(f"host {self.host!r} cannot be looked up: {error}") from error
        family, _, _, _, where = found[0]
        return family, where


Address = UnixAddress | TcpAddress


def parse_address(text: str) -> Address:
    """An address from its text."""
    scheme, _, rest = text.partition(":")
    if scheme == "unix":
        return UnixAddress(rest)
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not colon or not (port.isascii() and port.isdigit()):
        raise BadAddress(f"address {text!r}: expected unix:/path or tcp:host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return TcpAddress(host, int(port))
