"""The address at which a process listens: a Unix socket of this computer or a TCP port.

Written as `unix:/path`, `tcp:host:port`, `tcp:[::1]:port`.
"""

import os
import socket
from dataclasses import dataclass

from agileml.errors import BadAddress

LONGEST_UNIX_PATH = 107
"""The longest socket path in bytes: Linux has 108 for `sun_path`, with the terminating zero."""


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
                f"socket path {self.path!r} has {length} bytes, the limit is {LONGEST_UNIX_PATH}:"
                " use a folder with a shorter name"
            )

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP port; with port 0 the system chooses one when listening. A host name is resolved on
    use.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host or not 0 <= self.port <= 65535:
            raise BadAddress(
                f"TCP address {self.host!r}, port {self.port}: give a host and a port from 0 to "
                "65535"
            )

    def __str__(self) -> str:
        if ":" in self.host:
            return f"tcp:[{self.host}]:{self.port}"
        return f"tcp:{self.host}:{self.port}"

    def resolve(self) -> tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]:
        """The host's address family and socket address. Blocks while a host name is resolved."""
        try:
            results = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise BadAddress(f"cannot resolve host {self.host!r}: {error}") from error
        family, _, _, _, address = results[0]
        return family, address

    def local_host(self) -> str:
        """The address of this computer from which packets to the host leave. Nothing is sent."""
        family, address = self.resolve()
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(address)
            except OSError as error:
                raise BadAddress(f"no route to {self.host}: {error.strerror or error}") from error
            return str(probe.getsockname()[0])


Address = UnixAddress | TcpAddress


def parse_address(text: str) -> Address:
    """Parses `unix:/path` or `tcp:host:port`."""
    scheme, _, rest = text.partition(":")
    if scheme == "unix":
        return UnixAddress(rest)

    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not colon or not (port.isascii() and port.isdigit()):
        raise BadAddress(f"address {text!r}: expected unix:/path or tcp:host:port")

    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return TcpAddress(host, int(port))


def parse_host_port(text: str) -> TcpAddress:
    """Parses `HOST:PORT`; an IPv6 address is in brackets: `[::1]:7000`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (
        not colon
        or not host.strip("[]")
        or not (port.isascii() and port.isdigit())
        or not 0 < int(port) <= 65535
    ):
        raise BadAddress(
            f"{text!r} is not HOST:PORT, such as 10.0.0.1:7000 (ports from 1 to 65535)"
        )
    if ":" in host and not bracketed:
        raise BadAddress(f"{text!r}: write an IPv6 address in brackets, such as [{host}]:{port}")

    return TcpAddress(host[1:-1] if bracketed else host, int(port))
