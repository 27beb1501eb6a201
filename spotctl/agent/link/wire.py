"""A machine link: authenticated JSON frames on a stream socket, the handshake before them, and the
caller's end.

A frame is a 4-byte big-endian length and that many bytes. The handshake is three frames of plain
JSON:

    agent  -> caller   {"spotctl": 1, "machine": ID, "challenge": A}
    caller -> agent    {"challenge": C, "proof": HMAC(secret, "caller", A, C)}
    agent  -> caller   {"proof": HMAC(secret, "agent", A, C)}   or   {"refused": REASON}, then the agent closes

A and C are random and used once, so a recorded handshake is worthless. Afterwards, each direction
has a key of its own (HMAC of the secret and both challenges), and a frame is the HMAC-SHA256 of its
number and body, followed by the body. A frame that was changed, repeated, dropped or sent in the
other direction does not verify. The body is a JSON object whose text can be written. What else it
holds is for the reader to check: a stranger may have taken over the other side. The format
authenticates but does not encrypt: secrets never travel in frames, and on a cloud the link runs
inside ssh.
"""

import hashlib
import hmac
import json
import secrets
import socket
import ssl
import time
from pathlib import Path
from typing import Any

from spotctl.agent.errors import (
    BrokenFrame,
    LinkLost,
    LinkTimeout,
    MachineEnding,
    RequestRefused,
    WrongSecret,
)

VERSION = 1
MAX_FRAME_BYTES = 1 << 20
MAX_HANDSHAKE_BYTES = 1024
SECRET_BYTES = 32

_LENGTH_BYTES, _MAC_BYTES = 4, 32


def frame(body: bytes) -> bytes:
    """A frame with this body. BrokenFrame: the body is longer than `MAX_FRAME_BYTES`."""
    if len(body) > MAX_FRAME_BYTES:
        raise BrokenFrame(f"a frame of {len(body)} bytes is longer than {MAX_FRAME_BYTES}")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class LinkFrameReader:
    """Splits received bytes into frame bodies. The limit is checked before a body is buffered."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.limit = MAX_HANDSHAKE_BYTES

    def feed(self, received: bytes) -> None:
        self._buffer += received

    def next(self) -> bytes | None:
        """The next whole body; None until it has arrived. BrokenFrame: its announced length is
        above the limit.
        """
        if len(self._buffer) < _LENGTH_BYTES:
            return None

        length = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
        if length > self.limit:
            raise BrokenFrame(
                f"a frame of {length} bytes is announced; at most {self.limit} are accepted"
            )

        end = _LENGTH_BYTES + length
        if len(self._buffer) < end:
            return None

        body = bytes(self._buffer[_LENGTH_BYTES:end])
        del self._buffer[:end]
        return body


class Seal:
    """Signs or verifies the frames of one direction, in order."""

    def __init__(self, key: bytes) -> None:
        self._key, self._number = key, 0

    def sign(self, message: dict[str, Any]) -> bytes:
        """The frame of a message."""
        body = json.dumps(message, allow_nan=False).encode()
        return frame(self._mac(body) + body)

    def verify(self, sealed: bytes) -> dict[str, Any]:
        """The message of a received frame. BrokenFrame: the frame is not the next one that the
        other side signed.
        """
        mac, body = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body)):
            raise BrokenFrame("a frame does not carry the signature of its sender")
        return parsed(body)

    def _mac(self, body: bytes) -> bytes:
        number, self._number = self._number, self._number + 1
        return hmac.digest(self._key, number.to_bytes(8, "big") + body, hashlib.sha256)


class CallerHandshake:
    """The caller's side of the handshake with one machine."""

    def __init__(self, secret: bytes, machine: str) -> None:
        self._secret, self._machine = secret, machine
        self._own = secrets.token_hex(SECRET_BYTES)
        self._theirs = ""

    def answer(self, hello: bytes) -> bytes:
        """The answer to the agent's first frame. BrokenFrame: the other side is not this machine's
        agent.
        """
        values = parsed(hello)
        if values.get("spotctl") != VERSION:
            raise BrokenFrame(
                f"the other side does not speak version {VERSION} of the link protocol"
            )
        if values.get("machine") != self._machine:
            raise BrokenFrame(f"{values.get('machine')} answers in place of {self._machine}")

        self._theirs = str(values.get("challenge"))
        proof = _proof(self._secret, "caller", self._theirs, self._own)
        return frame(json.dumps({"challenge": self._own, "proof": proof}).encode())

    def finish(self, verdict: bytes) -> tuple[Seal, Seal]:
        """The seals for sending and for receiving. WrongSecret: either side does not know the
        other's secret.
        """
        values = parsed(verdict)
        if "refused" in values:
            raise WrongSecret(f"{self._machine} refused the connection: {values['refused']}")
        proof = _proof(self._secret, "agent", self._theirs, self._own)
        if not hmac.compare_digest(proof.encode(), str(values.get("proof")).encode()):
            raise WrongSecret(f"{self._machine} does not know the secret of its link")
        caller, agent = _seals(self._secret, self._theirs, self._own)
        return caller, agent


class AgentHandshake:
    """The agent's side of the handshake with one caller."""

    def __init__(self, secret: bytes, machine: str) -> None:
        self._secret = secret
        self._own = secrets.token_hex(SECRET_BYTES)
        self.hello = frame(
            json.dumps({"spotctl": VERSION, "machine": machine, "challenge": self._own}).encode()
        )

    def finish(self, answer: bytes) -> tuple[bytes, Seal, Seal]:
        """The last frame, and the seals for sending and for receiving. WrongSecret: the proof is
        wrong.
        """
        values = parsed(answer)
        theirs = str(values.get("challenge"))
        proof = _proof(self._secret, "caller", self._own, theirs)
        if not hmac.compare_digest(proof.encode(), str(values.get("proof")).encode()):
            raise WrongSecret("wrong secret")

        caller, agent = _seals(self._secret, self._own, theirs)
        last = frame(
            json.dumps({"proof": _proof(self._secret, "agent", self._own, theirs)}).encode()
        )
        return last, agent, caller


def refusal(reason: str) -> bytes:
    """The frame with which an agent refuses a caller."""
    return frame(json.dumps({"refused": reason[:200]}).encode())


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. BrokenFrame: the body is no JSON object, or holds what cannot be
    kept or written.
    """
    try:
        # `int` refuses "NaN" and "Infinity".
        values = json.loads(body.decode(), parse_constant=int)
        if b"\\u" in body:
            # Half of a surrogate pair is no text.
            json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise BrokenFrame("a frame does not hold JSON") from None

    if not isinstance(values, dict):
        raise BrokenFrame("a frame does not hold a JSON object")
    return values


def _proof(secret: bytes, role: str, agents: str, callers: str) -> str:
    return hmac.new(secret, f"proof {role} {agents} {callers}".encode(), hashlib.sha256).hexdigest()


def _seals(secret: bytes, agents: str, callers: str) -> tuple[Seal, Seal]:
    """The seals of the caller's frames and of the agent's frames."""
    keys = (
        hmac.digest(secret, f"key {role} {agents} {callers}".encode(), "sha256")
        for role in ("caller", "agent")
    )
    caller, agent = keys
    return Seal(caller), Seal(agent)


_CHUNK_BYTES = 1 << 16
_LONGEST_REFUSAL = 300
_SLOWEST = 5
"""A whole answer may take as many times as long as each part of it: one that comes byte by byte
would never end."""

AgentAddress = Path | tuple[str, int] | tuple[str, int, ssl.SSLContext]
"""The address of an agent: a Unix socket, or a host and a port, perhaps over TLS, whose keys only
this machine and its launcher have."""


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
        host, port, *tls = address
        sock = socket.create_connection((host, port), seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for context in tls:
            sock = context.wrap_socket(sock)
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
