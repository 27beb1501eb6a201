"""Non-blocking streams: plain sockets with scatter and gather, and TLS.

Methods return None if they would block, and raise OSError if the connection is broken.
"""

import os
import socket
import ssl
from collections.abc import Sequence

_TLS_RECORD = 16 << 10
_TLS_MOST = 1 << 20


class PlainStream:
    """A Unix or TCP socket."""

    holds_data = False
    wants_write = True
    short_read_is_last = True
    """A short read means that no more data is available."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def fileno(self) -> int:
        """The descriptor, for the selector."""
        return self._socket.fileno()

    def establish(self) -> bool:
        """Completes connecting; raises OSError if it failed."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return True

    def secured(self, context: ssl.SSLContext, server_hostname: str | None) -> "TlsStream":
        """Puts the connection under TLS. A client gives the name that the server has to prove."""
        return TlsStream(self._socket, context, server_hostname)

    def receive_into(self, memory: memoryview) -> int | None:
        """Number of bytes received; 0 at the end of the stream."""
        try:
            return self._socket.recv_into(memory)
        except BlockingIOError:
            return None

    def send(self, pieces: Sequence[memoryview]) -> int | None:
        """Number of bytes sent."""
        try:
            return self._socket.sendmsg(pieces)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


class TlsStream:
    """A TCP socket under TLS."""

    short_read_is_last = False

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_hostname: str | None) -> None:
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

    def fileno(self) -> int:
        """The descriptor, for the selector."""
        return self._socket.fileno()

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

    def receive_into(self, memory: memoryview) -> int | None:
        """Number of bytes received; 0 at the end of the stream."""
        try:
            return self._socket.recv_into(memory)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def send(self, pieces: Sequence[memoryview]) -> int | None:
        """Number of bytes sent. After None, OpenSSL expects the same bytes again, possibly followed by more."""
        try:
            return self._socket.send(_record(pieces))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


Stream = PlainStream | TlsStream


def _record(pieces: Sequence[memoryview]) -> memoryview | bytes:
    """The next data to encrypt: a large piece without copying, or small ones joined to fill a record."""
    if len(pieces) == 1 or len(pieces[0]) >= _TLS_RECORD:
        return pieces[0][:_TLS_MOST]
    length, count = 0, 0
    while count < len(pieces) and length < _TLS_RECORD:
        length += len(pieces[count])
        count += 1
    return b"".join([*pieces[: count - 1], pieces[count - 1][:_TLS_RECORD]])
