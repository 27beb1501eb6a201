"""The calling side of a machine link: one connection to an agent, one request at a time."""

import socket
import time
from pathlib import Path
from typing import Any

from spotctl.agent.errors import BrokenFrame, LinkLost, LinkTimeout, MachineEnding, RequestRefused
from spotctl.agent.link.wire import MAX_FRAME_BYTES, CallerHandshake, LinkFrameReader

_CHUNK_BYTES = 1 << 16
_LONGEST_REFUSAL = 300
_SLOWEST = 5
"""A whole answer may take as many times as long as each part of it: one that comes byte by byte
would never end."""

AgentAddress = Path | tuple[str, int]
"""The address of an agent: a Unix socket, or a host and a port."""


class LinkClient:
    """A connection to the agent of `machine`, open from construction on. Every call waits `seconds`
    at most for a part of the answer to arrive, and five times as long for all of it.

    LinkLost: the agent did not answer; the request may or may not have been carried out.
    WrongSecret: see `wire`.
    """

    def __init__(self, address: AgentAddress, machine: str, secret: bytes, seconds: float) -> None:
        self._machine, self._seconds = machine, seconds
        self._reader = LinkFrameReader()
        try:
            self._socket = _connect(address, seconds)
        except OSError as error:
            where = address if isinstance(address, Path) else f"{address[0]}:{address[1]}"
            raise _lost(error, f"{machine}: no agent answers at {where}") from None

        try:
            handshake = CallerHandshake(secret, machine)
            self._send(handshake.answer(self._receive()))
            self._sending, self._receiving = handshake.finish(self._receive())
        except BrokenFrame as error:
            self.close()
            raise LinkLost(f"{machine}: {error}") from None
        except BaseException:
            self.close()
            raise

        self._reader.limit = MAX_FRAME_BYTES

    def call(self, operation: str, **arguments: object) -> dict[str, Any]:
        """The agent's answer.

        RequestRefused: the agent cannot or will not do this; the connection stays usable.
        MachineEnding: the machine takes no more work.
        """
        try:
            self._send(self._sending.sign({"do": operation, **arguments}))
            answer = self._receiving.verify(self._receive())
        except BrokenFrame as error:
            self.close()
            raise LinkLost(f"{self._machine}: {error}") from None

        if "refused" not in answer:
            return answer

        said = (
            answer["refused"][:_LONGEST_REFUSAL]
            if isinstance(answer["refused"], str)
            else "refused"
        )

        if answer.get("ending"):
            raise MachineEnding(said)
        raise RequestRefused(f"{self._machine}: {said}")

    def close(self) -> None:
        """Closes the connection; the payload goes on, and commands of `exec` end."""
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise _lost(error, f"{self._machine}: its agent does not answer") from None

    def _receive(self) -> bytes:
        until = time.monotonic() + _SLOWEST * self._seconds
        while (body := self._reader.next()) is None:
            try:
                if time.monotonic() > until:
                    raise TimeoutError("its answer is too slow")
                received = self._socket.recv(_CHUNK_BYTES)
            except OSError as error:
                self.close()
                raise _lost(error, f"{self._machine}: its agent does not answer") from None
            if not received:
                self.close()
                raise LinkLost(f"{self._machine}: its agent closed the connection")
            self._reader.feed(received)

        return body


def _connect(address: AgentAddress, seconds: float) -> socket.socket:
    if not isinstance(address, Path):
        sock = socket.create_connection(address, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(seconds)
        sock.connect(str(address))
    except BaseException:
        sock.close()
        raise

    return sock


def _lost(error: OSError, message: str) -> LinkLost:
    kind = LinkTimeout if isinstance(error, TimeoutError) else LinkLost
    return kind(f"{message} ({error.strerror or error})")
