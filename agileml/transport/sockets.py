"""Sockets that never block: opening them, plain and TLS streams over them, and the loop that waits
for them.
"""

import contextlib
import errno
import os
import selectors
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agileml.errors import BadAddress
from agileml.transport.addresses import Address, TcpAddress, UnixAddress
from agileml.transport.certificates import NAME

_BACKLOG = 1024
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
"""A silent connection is probed after 10 s. One whose peer acknowledges nothing for 30 s is closed.

Without this, a connection to a host that vanished would stay open for a quarter of an hour, and a
router may forget one that is silent for minutes.
"""


def listen(address: Address) -> tuple[socket.socket, Address]:
    """A listening socket, and the address with the port that the system chose."""
    family, where = _place(address)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if isinstance(address, TcpAddress):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        elif Path(address.path).is_socket():
            # If no process answers, the file is that of a killed process.
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.setblocking(False)
                if probe.connect_ex(address.path) == errno.ECONNREFUSED:
                    remove(address)
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
    """Makes a socket non-blocking, turns off the delay of small messages, and notices a peer whose
    host is gone.
    """
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            # Not every system has all of them.
            number = getattr(socket, name, None)
            if number is not None:
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


_TLS_RECORD = 16 << 10
_TLS_MOST = 1 << 20


class _SocketStream:
    """A stream over a socket."""

    _socket: socket.socket
    _would_wait: tuple[type[OSError], ...]
    """Raised by the socket where there is nothing to read now."""

    def fileno(self) -> int:
        """The descriptor, for the selector."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def receive_into(self, memory: memoryview) -> int | None:
        """Number of bytes received; 0 at the end of the stream."""
        try:
            return self._socket.recv_into(memory)
        except self._would_wait:
            return None


class PlainStream(_SocketStream):
    """A Unix or TCP socket."""

    holds_data = False
    wants_write = True
    proven_name = None
    """No name is proven: only processes of the socket's owner may open it."""
    short_read_is_last = True
    """A short read means that no more data is available."""
    _would_wait = (BlockingIOError,)

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def establish(self) -> bool:
        """Completes connecting; raises OSError if it failed."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return True

    def secured(self, context: ssl.SSLContext, server_hostname: str | None) -> "TlsStream":
        """Puts the connection under TLS. A client gives the name that the server has to prove."""
        return TlsStream(self._socket, context, server_hostname)

    def send(self, pieces: Sequence[memoryview]) -> int | None:
        """Number of bytes sent."""
        try:
            return self._socket.sendmsg(pieces)
        except BlockingIOError:
            return None


class TlsStream(_SocketStream):
    """A TCP socket under TLS."""

    _socket: ssl.SSLSocket
    _would_wait = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
    short_read_is_last = False

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, server_hostname: str | None
    ) -> None:
        self.wants_write = True
        self._connecting = server_hostname is not None
        self._socket = context.wrap_socket(
            sock,
            server_side=not self._connecting,
            do_handshake_on_connect=False,
            server_hostname=server_hostname,
            suppress_ragged_eofs=True,
        )

    @property
    def holds_data(self) -> bool:
        """Whether decrypted bytes are buffered."""
        return self._socket.pending() > 0

    @property
    def proven_name(self) -> str:
        """The name in the peer's certificate; empty if none is there, as in that of the job's
        authority.
        """
        shown: Mapping[str, Any] = self._socket.getpeercert() or {}
        uris = (text for kind, text in shown.get("subjectAltName", ()) if kind == "URI")
        return next((uri.removeprefix(NAME) for uri in uris if uri.startswith(NAME)), "")

    def establish(self) -> bool:
        """Continues the TLS handshake; True once it is complete."""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.wants_write = False
            return False
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return False
        return True

    def send(self, pieces: Sequence[memoryview]) -> int | None:
        """Number of bytes sent. After None, OpenSSL expects the same bytes again, possibly followed
        by more.
        """
        # A large piece without copying, or small ones joined to fill a record.
        data: memoryview | bytes = pieces[0][:_TLS_MOST]
        if len(pieces) > 1 and len(pieces[0]) < _TLS_RECORD:
            length = 0
            count = 0
            while count < len(pieces) and length < _TLS_RECORD:
                length += len(pieces[count])
                count += 1
            data = b"".join([*pieces[: count - 1], pieces[count - 1][:_TLS_RECORD]])

        try:
            return self._socket.send(data)
        except self._would_wait:
            return None


Stream = PlainStream | TlsStream


READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
OnReady = Callable[[int], None]
"""Called with READ, WRITE or both."""


class Loop:
    """Calls back for ready descriptors. Only `wake` may be called from another thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._waker, self._alarm = socket.socketpair()
        for sock in (self._waker, self._alarm):
            sock.setblocking(False)
        self.woken = False
        self.watch(self._alarm.fileno(), READ, self._on_alarm)

    def watch(self, descriptor: int, mask: int, ready: OnReady) -> None:
        """Starts watching a descriptor."""
        self._selector.register(descriptor, mask, ready)

    def change(self, descriptor: int, mask: int) -> None:
        """Changes what a descriptor is watched for."""
        key = self._selector.get_key(descriptor)
        if key.events != mask:
            self._selector.modify(descriptor, mask, key.data)

    def forget(self, descriptor: int) -> None:
        """Stops watching a descriptor. Call it before closing the descriptor."""
        self._selector.unregister(descriptor)

    def turn(self, wait: float) -> None:
        """Waits up to `wait` seconds for ready descriptors, and calls back."""
        for key, mask in self._selector.select(wait):
            key.data(mask)

    def wake(self) -> None:
        """Interrupts the wait; may be called from any thread at any time."""
        # A full buffer wakes the loop as well, and a closed loop needs no waking.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Closes the loop's own descriptors."""
        self._selector.close()
        self._alarm.close()
        self._waker.close()

    def _on_alarm(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._alarm.recv(4096):
                pass
        self.woken = True
