"""The wire format of a machine link: authenticated JSON frames on a stream socket, and the
handshake before them.

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
from typing import Any

from spotctl.agent.errors import BrokenFrame, WrongSecret

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
