"""The answering side of machine links: all connections to one agent, served by the agent's only
thread.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Any

from spotctl.agent.errors import AgentError, BrokenFrame, MachineEnding, WrongSecret
from spotctl.agent.link.wire import MAX_FRAME_BYTES, AgentHandshake, LinkFrameReader, Seal, refusal

MAX_CONNECTIONS = 64
HANDSHAKE_SECONDS = 5.0
"""A connection whose caller has not proved within this time that it knows the secret is closed."""

_CHUNK_BYTES = 1 << 16

RequestHandler = Callable[[int, dict[str, Any]], dict[str, Any]]
"""Answers a request of the connection with a number; an AgentError becomes a refusal."""


class _Connection:
    """One caller: bytes in, answers out. The server closes a connection that is `done`."""

    def __init__(self, number: int, sock: socket.socket, secret: bytes, machine: str) -> None:
        self.number, self.socket = number, sock
        self.since = time.monotonic()
        self.done = False
        self.outgoing = b""
        self._reader = LinkFrameReader()
        self._handshake: AgentHandshake | None = AgentHandshake(secret, machine)
        self.outgoing += self._handshake.hello
        self._seals: tuple[Seal, Seal] | None = None

    @property
    def authenticated(self) -> bool:
        """Whether the caller has proved that it knows the secret."""
        return self._seals is not None

    def receive(self, data: bytes, handler: RequestHandler) -> None:
        """Handles received bytes; a broken frame or a wrong proof ends this connection and nothing
        else.
        """
        self._reader.feed(data)
        try:
            # One answer at a time: a caller that sends many requests and reads no answer costs one
            # answer's memory.
            while not self.done and not self.outgoing and (body := self._reader.next()) is not None:
                if self._seals is None:
                    assert self._handshake is not None
                    last, sending, receiving = self._handshake.finish(body)
                    self._seals, self._handshake = (sending, receiving), None
                    self._reader.limit = MAX_FRAME_BYTES
                    self.outgoing += last
                    continue

                sending, receiving = self._seals
                request = receiving.verify(body)
                try:
                    answer = handler(self.number, request)
                except AgentError as error:
                    answer = {"refused": str(error), "ending": isinstance(error, MachineEnding)}
                self.outgoing += sending.sign(answer)
        except WrongSecret as error:
            self.outgoing, self.done = self.outgoing + refusal(str(error)), True
        except BrokenFrame as error:
            if not self.authenticated:
                self.outgoing += refusal(str(error))
            self.done = True


class LinkServer:
    """Serves the callers of one agent. `on_close` is called with the number of a connection that
    has ended.
    """

    def __init__(
        self,
        listener: socket.socket,
        machine: str,
        secret: bytes,
        handler: RequestHandler,
        on_close: Callable[[int], None],
    ) -> None:
        self._listener, self._machine, self._secret = listener, machine, secret
        self._handler, self._on_close = handler, on_close
        self._connections: dict[int, _Connection] = {}
        self._accepted = 0
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def watch(self, descriptor: int) -> None:
        """Also returns from `serve` when this descriptor can be read, and empties it."""
        self._selector.register(descriptor, selectors.EVENT_READ, data=descriptor)

    def serve(self, seconds: float) -> None:
        """Handles the requests that arrive within this time, and returns as soon as any arrived."""
        strangers = self._strangers()
        until = min(
            [
                seconds,
                *(stranger.since + HANDSHAKE_SECONDS - time.monotonic() for stranger in strangers),
            ]
        )

        for key, events in self._selector.select(max(until, 0.0)):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, _Connection):
                self._serve(key.data, events)
            else:
                with suppress(BlockingIOError):
                    os.read(key.fd, 4096)

        now = time.monotonic()
        for stranger in self._strangers():
            if now - stranger.since > HANDSHAKE_SECONDS:
                self._close(stranger)

    def close(self) -> None:
        """Closes the listener and every connection."""
        for connection in list(self._connections.values()):
            self._close(connection)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return

        if len(self._connections) >= MAX_CONNECTIONS:
            # The oldest connection that has not authenticated makes room.
            oldest = min(self._strangers(), key=attrgetter("since"), default=None)
            if oldest is None:
                sock.close()
                return
            self._close(oldest)

        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        self._accepted += 1
        connection = _Connection(self._accepted, sock, self._secret, self._machine)
        self._connections[connection.number] = connection
        self._selector.register(sock, selectors.EVENT_READ, data=connection)
        self._write(connection)

    def _strangers(self) -> list[_Connection]:
        """The connections that have not authenticated."""
        return [
            connection for connection in self._connections.values() if not connection.authenticated
        ]

    def _serve(self, connection: _Connection, events: int) -> None:
        if events & selectors.EVENT_READ:
            try:
                received = connection.socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                received = b""
            if not received:
                self._close(connection)
                return
            connection.receive(received, self._handler)
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        try:
            while connection.outgoing:
                sent = connection.socket.send(connection.outgoing)
                connection.outgoing = connection.outgoing[sent:]
                if not connection.outgoing:
                    connection.receive(b"", self._handler)
        except BlockingIOError:
            # No more requests are read from a caller that does not read its answers.
            self._selector.modify(connection.socket, selectors.EVENT_WRITE, data=connection)
            return
        except OSError:
            connection.done = True
        if connection.done:
            self._close(connection)
        else:
            self._selector.modify(connection.socket, selectors.EVENT_READ, data=connection)

    def _close(self, connection: _Connection) -> None:
        if self._connections.pop(connection.number, None) is not None:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self._on_close(connection.number)
