"""Two processes prove to each other that they belong to the same job, before anything else is read from them.

    initiator -> acceptor   HELLO      its nonce, name, role, version of the code
    acceptor  -> initiator  CHALLENGE  its nonce, name, role, version; HMAC of the acceptor
    initiator -> acceptor   PROOF      HMAC of the initiator
    acceptor  -> initiator  WELCOME    from here on, frames
    either    -> other      REFUSED    why not

Both HMACs (SHA-256, keyed by the job's secret) cover the side that speaks, both nonces and both identities: a recording
of another handshake does not fit the fresh nonce, and an answer thrown back at its author names the wrong side. Nothing
here protects what follows from someone who sits on the wire: that takes TLS.
"""

from __future__ import annotations

import hmac
import re
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from agileml.errors import BadArgument
from agileml.transport.errors import BadSecret, HandshakeFailed

NONCE_BYTES = MAC_BYTES = 32
SHORTEST_SECRET = 16
_MESSAGE = struct.Struct("<4sBH")
_MAGIC = b"AgH1"
_MOST_BYTES = 1024
_NAME = re.compile(r"[A-Za-z0-9._:@/+-]{1,128}")


class Reason(IntEnum):
    """Why a side refuses; the wire carries the number, so that a stranger cannot put words into our log."""

    SECRET = 1
    VERSION = 2
    NAME = 3
    CROSSING = 4
    """Both sides connect at once: the attempt of the smaller name is the one that counts."""
    MALFORMED = 5


class _Step(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSED = 5


_TOLD = {
    Reason.SECRET: "the job's secret here is another than there",
    Reason.VERSION: "another version of the code runs there",
    Reason.NAME: "one of the two has not the name that was expected",
    Reason.CROSSING: "it is connecting in the other direction",
    Reason.MALFORMED: "it does not understand this handshake",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is: its name in the job, its role, and the version of code it runs, which must be the same."""

    name: str
    role: str = "node"
    version: str = ""

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("role", self.role), ("version", self.version or "-")):
            if not _NAME.fullmatch(text):
                raise BadArgument(f"{what} {text[:40]!r}: 1 to 128 envelopes, digits and ._:@/+- are allowed")

    def packed(self) -> bytes:
        """Its texts, each behind its length."""
        texts = [text.encode() for text in (self.name, self.role, self.version)]
        return b"".join(bytes([len(text)]) + text for text in texts)


class Failure(HandshakeFailed):
    """A handshake that ended: `reason`, and `farewell`, the bytes that tell the other side."""

    def __init__(self, text: str, reason: Reason, *, tell: bool = True) -> None:
        super().__init__(text)
        self.reason = reason
        self.farewell = _message(_Step.REFUSED, bytes([reason])) if tell else b""


def check_secret(secret: bytes) -> None:
    """Refuses what could be guessed from a recorded handshake."""
    if len(secret) < SHORTEST_SECRET:
        raise BadSecret(f"the job's secret has {len(secret)} bytes: take {SHORTEST_SECRET} or more random ones")


class Handshake:
    """One side of one handshake: feed it `wanted` bytes at a time and send what it answers; Failure ends it."""

    def __init__(
        self,
        me: Identity,
        secret: bytes,
        *,
        expected: str | None = None,
        admit: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """The initiator knows the name `expected` at the other side; an acceptor may say no to one by `admit`."""
        self._me, self._secret, self._expected, self._admit = me, secret, expected, admit
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._transcript = b""
        self._step: _Step | None = None
        self.peer: Identity | None = None
        """Who the other side says to be; proven once `done`."""
        self.done = False
        self.wanted = _MESSAGE.size

    def opening(self) -> bytes:
        """What is sent first: the initiator's HELLO, nothing of an acceptor."""
        return b"" if self._expected is None else _message(_Step.HELLO, self._nonce + self._me.packed())

    def receive(self, data: bytes) -> bytes:
        """The answer to exactly `wanted` bytes."""
        if self._step is None:
            self._step, self.wanted = self._announced(data)
            if self.wanted:
                return b""
            data = b""
        step, self._step, self.wanted = self._step, None, _MESSAGE.size
        if step is _Step.REFUSED:
            raise self._told(data)
        answers = {_Step.HELLO: self._challenge, _Step.CHALLENGE: self._prove, _Step.PROOF: self._welcome}
        return answers[step](data) if step in answers else self._welcomed()

    def _announced(self, data: bytes) -> tuple[_Step, int]:
        magic, code, length = _MESSAGE.unpack(data)
        if magic != _MAGIC or length > _MOST_BYTES:
            raise Failure("what came is no handshake", Reason.MALFORMED)
        awaited = {_Step.HELLO} if self.peer is None else {_Step.PROOF}
        if self._expected is not None:
            awaited = {_Step.CHALLENGE} if self.peer is None else {_Step.WELCOME}
        if code not in awaited | {_Step.REFUSED}:
            raise Failure("the handshake's messages are out of order", Reason.MALFORMED)
        return _Step(code), length

    def _told(self, data: bytes) -> Failure:
        if len(data) != 1 or data[0] not in set(Reason):
            return Failure("the other side refuses without a reason", Reason.MALFORMED, tell=False)
        reason = Reason(data[0])
        both = f": {self.peer.version!r}, here {self._me.version!r}" if reason is Reason.VERSION and self.peer else ""
        who = f", who calls itself {self.peer.name!r}," if self.peer else ""
        return Failure(f"the other side{who} refuses: {_TOLD[reason]}{both}", reason, tell=False)

    def _challenge(self, data: bytes) -> bytes:
        nonce, self.peer, _ = _introduction(data, mac=False)
        if self.peer.name == self._me.name:
            raise Failure(f"the other side calls itself {self.peer.name!r}, which is the name here", Reason.NAME)
        self._refuse_crossing()
        self._transcript = _transcript(nonce, self._nonce, self.peer, self._me)
        return _message(_Step.CHALLENGE, self._nonce + self._me.packed() + self._mac(b"acceptor"))

    def _prove(self, data: bytes) -> bytes:
        nonce, self.peer, mac = _introduction(data, mac=True)
        self._transcript = _transcript(self._nonce, nonce, self._me, self.peer)
        self._check(mac, b"acceptor")
        if self.peer.name != self._expected:
            raise Failure(f"{self.peer.name!r} answers where {self._expected!r} was expected", Reason.NAME)
        return _message(_Step.PROOF, self._mac(b"initiator"))

    def _welcome(self, data: bytes) -> bytes:
        self._check(data, b"initiator")
        self._refuse_crossing()
        self.done = True
        return _message(_Step.WELCOME, b"")

    def _welcomed(self) -> bytes:
        self.done = True
        return b""

    def _mac(self, side: bytes) -> bytes:
        return hmac.digest(self._secret, b"agileml link, " + side + b"\0" + self._transcript, "sha256")

    def _check(self, mac: bytes, side: bytes) -> None:
        assert self.peer is not None
        if not hmac.compare_digest(mac, self._mac(side)):
            raise Failure(f"who calls itself {self.peer.name!r} does not hold this job's secret", Reason.SECRET)
        if self.peer.version != self._me.version:
            raise Failure(
                f"{self.peer.name!r} runs version {self.peer.version!r} of the code, here runs {self._me.version!r}:"
                " start both from the same job files",
                Reason.VERSION,
            )

    def _refuse_crossing(self) -> None:
        assert self.peer is not None
        if not self._admit(self.peer.name):
            raise Failure(f"{self.peer.name!r} connects while it is being connected to", Reason.CROSSING)


def _message(step: _Step, payload: bytes) -> bytes:
    return _MESSAGE.pack(_MAGIC, step, len(payload)) + payload


def _transcript(initiator_nonce: bytes, acceptor_nonce: bytes, initiator: Identity, acceptor: Identity) -> bytes:
    return initiator_nonce + acceptor_nonce + initiator.packed() + acceptor.packed()


def _introduction(data: bytes, *, mac: bool) -> tuple[bytes, Identity, bytes]:
    """Nonce, identity and, where asked for, HMAC."""
    nonce, rest = data[:NONCE_BYTES], data[NONCE_BYTES:]
    rest, proof = (rest[:-MAC_BYTES], rest[-MAC_BYTES:]) if mac else (rest, b"")
    try:
        texts = []
        for _ in range(3):
            length = rest[0]
            texts.append(rest[1 : 1 + length].decode("ascii"))
            rest = rest[1 + length :]
        identity = Identity(*texts)
        # What was cut short or goes on would not be said again in the same bytes.
        if rest or nonce + identity.packed() + proof != data:
            raise Failure("an introduction of the wrong length", Reason.MALFORMED)
    except (IndexError, UnicodeDecodeError, BadArgument) as error:
        raise Failure("what came is no introduction", Reason.MALFORMED) from error
    return nonce, identity, proof
