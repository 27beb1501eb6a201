"""Sockets that never wait: plain ones that scatter and gather, and TLS ones."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from typing import Protocol

_TLS_RECORD = 16 << 10
_TLS_MOST = 1 << 20


class Stream(Protocol):
    """What queues and readers need of a connection. What cannot be done now gives None; OSError tells that it broke."""

    def receive_into(self, memory: memoryview) -> int | None:
        """How many bytes came; 0 at the end of the stream."""

    def send(self, pieces: Sequence[memoryview]) -> int | None:
        """How many bytes went out."""


class PlainStream:
    """A Unix or TCP socket."""

    holds_data = False
    wants_write = True
    short_read_is_last = True
    """Less than was asked for means that no more is there."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def fileno(self) -> int:
        """For the selector."""
        return self._socket.fileno()

    def establish(self) -> bool:
        """Finds out how connecting ended."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return True

    def secured(self, context: ssl.SSLContext, server_hostname: str | None) -> TlsStream:
        """The same connection under TLS, for the client's side with the name that the server has to prove."""
        return TlsStream(self._socket, context, server_hostname)

    def receive_into(self, memory: memoryview) -> int | None:
        """How many bytes came; 0 at the end of the stream."""
        try:
            return self._socket.recv_into(memory)
        except BlockingIOError:
            return None

    def send(self, pieces: Sequence[memoryview]) -> int | None:
        """How many bytes went out."""
        try:
            return self._socket.sendmsg(pieces)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Gives the descriptor back."""
        self._socket.close()


class TlsStream:
    """A TCP socket under TLS, read and written record by record."""

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
        """Whether decrypted bytes wait."""
        return self._socket.pending() > 0

    def fileno(self) -> int:
        """For the selector."""
        return self._socket.fileno()

    def establish(self) -> bool:
        """Goes on with the TLS handshake."""
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
        """How many bytes came; 0 at the end of the stream."""
        try:
            return self._socket.recv_into(memory)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def send(self, pieces: Sequence[memoryview]) -> int | None:
        """How many bytes went out. After None, OpenSSL wants to see the same bytes again, with or without more."""
        try:
            return self._socket.send(_record(pieces))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def close(self) -> None:
        """Gives the descriptor back."""
        self._socket.close()


def _record(pieces: Sequence[memoryview]) -> memoryview | bytes:
    """What to encrypt next: a large piece as it lies there, or small ones put together to fill a record."""
    if len(pieces) == 1 or len(pieces[0]) >= _TLS_RECORD:
        return pieces[0][:_TLS_MOST]
    length, count = 0, 0
    while count < len(pieces) and length < _TLS_RECORD:
        length += len(pieces[count])
        count += 1
    return b"".join([*pieces[: count - 1], pieces[count - 1][:_TLS_RECORD]])
