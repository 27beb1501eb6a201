"""Opens and configures sockets."""

import contextlib
import errno
import os
import socket
from pathlib import Path

from agileml.transport.addresses import Address, TcpAddress, UnixAddress
from agileml.transport.errors import BadAddress

_BACKLOG = 1024
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
"""A silent connection is probed after 10 s. One whose peer acknowledges nothing for 30 s is closed.

Without this, a connection to a host that vanished would stay open for a quarter of an hour, and a router may forget
one that is silent for minutes.
"""


def listen(address: Address) -> tuple[socket.socket, Address]:
    """A listening socket, and the address with the port that the system chose."""
    family, where = _place(address)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if isinstance(address, UnixAddress):
            _remove_stale(address)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        if isinstance(address, UnixAddress):
            Path(address.path).chmod(0o600)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise BadAddress(f"cannot listen at {address}: {error.strerror or error}") from error
    if isinstance(address, TcpAddress):
        return sock, TcpAddress(address.host, sock.getsockname()[1])
    return sock, address


def dial(address: Address, buffer_bytes: int | None) -> socket.socket:
    """A connecting socket; it becomes writable when the attempt has succeeded or failed."""
    family, where = _place(address)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        tune(sock, buffer_bytes)
        code = sock.connect_ex(where)
        if code not in {0, errno.EINPROGRESS}:
            raise OSError(code, os.strerror(code))
    except OSError:
        sock.close()
        raise
    return sock


def tune(sock: socket.socket, buffer_bytes: int | None) -> None:
    """Makes a socket non-blocking, turns off the delay of small messages, and notices a peer whose host is gone."""
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            # Not every system has all of them.
            if (number := getattr(socket, name, None)) is not None:
                sock.setsockopt(socket.IPPROTO_TCP, int(number), value)
    if buffer_bytes is not None:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)


def remove(address: Address) -> None:
    """Removes the file of a listening Unix socket."""
    if isinstance(address, UnixAddress):
        with contextlib.suppress(OSError):
            Path(address.path).unlink()


def _place(address: Address) -> tuple[socket.AddressFamily, str | tuple[str | int | bytes, ...]]:
    if isinstance(address, UnixAddress):
        return socket.AF_UNIX, address.path
    return address.resolve()


def _remove_stale(address: UnixAddress) -> None:
    """Removes the socket file of a killed process, at which no process answers."""
    if not Path(address.path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(address.path) == errno.ECONNREFUSED:
            remove(address)
