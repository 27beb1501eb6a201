"""The answering side of machine links: all connections to one agent, served by the agent's only thread."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from spotctl.agent.errors import AgentError, BrokenFrame, MachineEnding, WrongSecret
from spotctl.agent.wire import MOST_FRAME_BYTES, AgentHandshake, LinkFrameReader, Seal, refusal

MOST_CONNECTIONS = 64
HANDSHAKE_SECONDS = 5.0
"""A connection that has not proved within this time that it knows the secret is closed."""

_CHUNK_BYTES = 1 << 16

Handler = Callable[[int, dict[str, Any]], dict[str, Any]]
"""Answers a request of the connection with a number; an AgentError becomes a refusal."""


class _Connection:
    """One caller: bytes in, answers out. The server closes it once it is `done`."""

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

    def receive(self, data: bytes, handler: Handler) -> None:
        """Handles what has arrived; a broken frame or a wrong proof ends this connection and nothing else."""
        self._reader.feed(data)
        try:
            # One answer at a time: a caller that sends many requests and reads no answer costs one answer's memory.
            while not self.done and not self.outgoing and (body := self._reader.next()) is not None:
                self._handle(body, handler)
        except WrongSecret as error:
            self.outgoing, self.done = self.outgoing + refusal(str(error)), True
        except BrokenFrame as error:
            if not self.authenticated:
                self.outgoing += refusal(str(error))
            self.done = True

    def _handle(self, body: bytes, handler: Handler) -> None:
        if self._seals is None:
            assert self._handshake is not None
            last, sending, receiving = self._handshake.finish(body)
            self._seals, self._handshake = (sending, receiving), None
            self._reader.limit = MOST_FRAME_BYTES
            self.outgoing += last
            return
        sending, receiving = self._seals
        request = receiving.verify(body)
        try:
            answer = handler(self.number, request)
        except AgentError as error:
            answer = {"refused": str(error), "ending": isinstance(error, MachineEnding)}
        self.outgoing += sending.sign(answer)


class LinkServer:
    """Serves the callers of one agent. `closed` is called with the number of a connection that has ended."""

    def __init__(
        self, listener: socket.socket, machine: str, secret: bytes, handler: Handler, closed: Callable[[int], None]
    ) -> None:
        self._listener, self._machine, self._secret = listener, machine, secret
        self._handler, self._closed = handler, closed
        self._connections: dict[int, _Connection] = {}
        self._accepted = 0
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def watch(self, descriptor: int) -> None:
        """Also returns from `serve` when this descriptor can be read, and empties it."""
        self._selector.register(descriptor, selectors.EVENT_READ, data=descriptor)

    def serve(self, seconds: float) -> None:
        """Handles what arrives within this time, and returns as soon as something did."""
        waiting = [one.since + HANDSHAKE_SECONDS for one in self._connections.values() if not one.authenticated]
        until = min([seconds, *(moment - time.monotonic() for moment in waiting)])
        for key, events in self._selector.select(max(until, 0.0)):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, _Connection):
                self._serve(key.data, events)
            else:
                _drain(key.fd)
        now = time.monotonic()
        for one in list(self._connections.values()):
            if not one.authenticated and now - one.since > HANDSHAKE_SECONDS:
                self._close(one)

    def close(self) -> None:
        """Closes the listener and every connection."""
        for one in list(self._connections.values()):
            self._close(one)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if len(self._connections) >= MOST_CONNECTIONS and not self._make_room():
            sock.close()
            return
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._accepted += 1
        one = _Connection(self._accepted, sock, self._secret, self._machine)
        self._connections[one.number] = one
        self._selector.register(sock, selectors.EVENT_READ, data=one)
        self._write(one)

    def _make_room(self) -> bool:
        """Closes the oldest connection that has not authenticated, if there is one."""
        strangers = (one for one in self._connections.values() if not one.authenticated)
        oldest = min(strangers, key=lambda one: one.since, default=None)
        if oldest is not None:
            self._close(oldest)
        return oldest is not None

    def _serve(self, one: _Connection, events: int) -> None:
        if events & selectors.EVENT_READ:
            try:
                received = one.socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                received = b""
            if not received:
                self._close(one)
                return
            one.receive(received, self._handler)
        self._write(one)

    def _write(self, one: _Connection) -> None:
        try:
            while one.outgoing:
                one.outgoing = one.outgoing[one.socket.send(one.outgoing) :]
                if not one.outgoing:
                    one.receive(b"", self._handler)
        except BlockingIOError:
            # A caller that does not read its answers is not asked for more requests until it does.
            self._selector.modify(one.socket, selectors.EVENT_WRITE, data=one)
            return
        except OSError:
            one.done = True
        if one.done:
            self._close(one)
        else:
            self._selector.modify(one.socket, selectors.EVENT_READ, data=one)

    def _close(self, one: _Connection) -> None:
        if self._connections.pop(one.number, None) is not None:
            self._selector.unregister(one.socket)
            one.socket.close()
            self._closed(one.number)


def _drain(descriptor: int) -> None:
    try:
        os.read(descriptor, 4096)
    except BlockingIOError:
        return
