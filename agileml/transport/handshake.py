"""Two processes prove to each other that they belong to the same job before anything else is read from them.

    initiator -> acceptor   HELLO      its nonce, name, instance, version of the code
    acceptor  -> initiator  CHALLENGE  its nonce, name, instance, version; HMAC of the acceptor
    initiator -> acceptor   PROOF      HMAC of the initiator
    acceptor  -> initiator  WELCOME    from here on, frames
    either    -> other      REFUSED    the reason

Both HMACs (SHA-256, keyed by the job's secret) cover the sender's side, both nonces and both identities: a recording of
another handshake does not match the fresh nonce, and a reflected answer names the wrong side. The handshake does not
protect the following data from an attacker on the network: that takes TLS.
"""

import hmac
import re
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from agileml.errors import BadArgument, PeerRefused
from agileml.transport.errors import BadSecret

NONCE_BYTES = MAC_BYTES = 32
SHORTEST_SECRET = 16
_MESSAGE = struct.Struct("<4sBH")
_MAGIC = b"AgH1"
_MAX_BYTES = 1024
_NAME = re.compile(r"[A-Za-z0-9._:@/+-]{1,128}")


class Reason(IntEnum):
    """Why a side refuses. Only the number is sent, so that an unknown process cannot write text into our log."""

    SECRET = 1
    VERSION = 2
    NAME = 3
    CROSSING = 4
    """Both sides connect at once: the attempt of the smaller name wins."""
    MALFORMED = 5
    TAKEN = 6
    """Another process has joined the job under this name."""


class _Step(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSED = 5


_EXPLANATIONS = {
    Reason.SECRET: "the two processes have different job secrets",
    Reason.VERSION: "it runs another version of the code",
    Reason.TAKEN: "another process has joined the job under this name; a node that joins again needs a new name",
    Reason.NAME: "one of the two does not have the expected name",
    Reason.CROSSING: "it is connecting in the other direction",
    Reason.MALFORMED: "it does not support this handshake",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """A process's name in the job, which process of this name it is, and the version of its code.

    The version must be the same for all. A restarted process has another `instance`.
    """

    name: str
    instance: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("instance", self.instance or "-"), ("version", self.version or "-")):
            if not _NAME.fullmatch(text):
                raise BadArgument(f"{what} {text[:40]!r}: use 1 to 128 letters, digits and ._:@/+-")

    def packed(self) -> bytes:
        """The three strings, each preceded by its length."""
        texts = [text.encode() for text in (self.name, self.instance, self.version)]
        return b"".join(bytes([len(text)]) + text for text in texts)


class Names(Protocol):
    """Which processes own the names of a job. The first one that proves itself gets a name."""

    def taken(self, peer: Identity) -> bool:
        """Whether this name belongs to another process."""
        ...

    def give(self, peer: Identity) -> None:
        """The process has proven that it belongs to the job, and its name is not taken."""
        ...


def new_instance() -> str:
    """Tells a process from others of its name."""
    return secrets.token_hex(8)


class Failure(PeerRefused):
    """A failed handshake: its `reason`, and `refusal`, the bytes that inform the other side."""

    def __init__(self, text: str, reason: Reason, *, inform: bool = True) -> None:
        super().__init__(text)
        self.reason = reason
        self.refusal = _message(_Step.REFUSED, bytes([reason])) if inform else b""


def check_secret(secret: bytes) -> None:
    """Raises BadSecret for a secret that could be guessed from a recorded handshake."""
    if len(secret) < SHORTEST_SECRET:
        raise BadSecret(f"the job's secret has {len(secret)} bytes: use at least {SHORTEST_SECRET} random bytes")


class Handshake:
    """One side of a handshake: pass it `wanted` bytes at a time and send its answers. Raises Failure."""

    def __init__(
        self,
        me: Identity,
        secret: bytes,
        *,
        expected: str | None = None,
        refusal: Callable[[Identity], Reason | None] = lambda _: None,
    ) -> None:
        """An initiator knows the `expected` name of its peer; an acceptor may have a reason to refuse a process."""
        self._me, self._secret, self._expected, self._refusal = me, secret, expected, refusal
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._transcript = b""
        self._step: _Step | None = None
        self.peer: Identity | None = None
        """The identity that the peer claims; proven once `done`."""
        self.done = False
        self.wanted = _MESSAGE.size

    def opening(self) -> bytes:
        """The initiator's HELLO; empty for an acceptor."""
        return b"" if self._expected is None else _message(_Step.HELLO, self._nonce + self._me.packed())

    def receive(self, data: bytes) -> bytes:
        """The answer to exactly `wanted` bytes; empty if there is none."""
        if self._step is None:
            self._step, self.wanted = self._announced(data)
            if self.wanted:
                return b""
            data = b""
        step, self._step, self.wanted = self._step, None, _MESSAGE.size
        if step is _Step.REFUSED:
            raise self._refused(data)
        answers = {_Step.HELLO: self._challenge, _Step.CHALLENGE: self._prove, _Step.PROOF: self._welcome}
        return answers[step](data) if step in answers else self._welcomed()

    def _announced(self, data: bytes) -> tuple[_Step, int]:
        magic, code, length = _MESSAGE.unpack(data)
        if magic != _MAGIC or length > _MAX_BYTES:
            raise Failure("received data that is not a handshake", Reason.MALFORMED)
        awaited = {_Step.HELLO} if self.peer is None else {_Step.PROOF}
        if self._expected is not None:
            awaited = {_Step.CHALLENGE} if self.peer is None else {_Step.WELCOME}
        if code not in awaited | {_Step.REFUSED}:
            raise Failure("the handshake's messages are out of order", Reason.MALFORMED)
        return _Step(code), length

    def _refused(self, data: bytes) -> Failure:
        if len(data) != 1 or data[0] not in set(Reason):
            return Failure("the peer refused without a valid reason", Reason.MALFORMED, inform=False)
        reason = Reason(data[0])
        both = f": {self.peer.version!r}, here {self._me.version!r}" if reason is Reason.VERSION and self.peer else ""
        name = f" {self.peer.name!r}" if self.peer else ""
        return Failure(f"the peer{name} refused: {_EXPLANATIONS[reason]}{both}", reason, inform=False)

    def _challenge(self, data: bytes) -> bytes:
        nonce, self.peer, _ = _introduction(data, mac=False)
        if self.peer.name == self._me.name:
            raise Failure(f"the peer claims the name {self.peer.name!r}, which is ours", Reason.NAME)
        self._refuse()
        self._transcript = _transcript(nonce, self._nonce, self.peer, self._me)
        return _message(_Step.CHALLENGE, self._nonce + self._me.packed() + self._mac(b"acceptor"))

    def _prove(self, data: bytes) -> bytes:
        nonce, self.peer, mac = _introduction(data, mac=True)
        self._transcript = _transcript(self._nonce, nonce, self._me, self.peer)
        self._check(mac, b"acceptor")
        if self.peer.name != self._expected:
            raise Failure(f"{self.peer.name!r} answered where {self._expected!r} was expected", Reason.NAME)
        return _message(_Step.PROOF, self._mac(b"initiator"))

    def _welcome(self, data: bytes) -> bytes:
        self._check(data, b"initiator")
        self._refuse()
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
            raise Failure(f"the process named {self.peer.name!r} does not hold this job's secret", Reason.SECRET)
        if self.peer.version != self._me.version:
            raise Failure(
                f"{self.peer.name!r} runs version {self.peer.version!r} of the code, we run {self._me.version!r}:"
                " install the same version everywhere",
                Reason.VERSION,
            )

    def _refuse(self) -> None:
        assert self.peer is not None
        reason = self._refusal(self.peer)
        if reason is not None:
            raise Failure(f"{self.peer.name!r} is refused: {_EXPLANATIONS[reason]}", reason)


def _message(step: _Step, payload: bytes) -> bytes:
    return _MESSAGE.pack(_MAGIC, step, len(payload)) + payload


def _transcript(initiator_nonce: bytes, acceptor_nonce: bytes, initiator: Identity, acceptor: Identity) -> bytes:
    return initiator_nonce + acceptor_nonce + initiator.packed() + acceptor.packed()


def _introduction(data: bytes, *, mac: bool) -> tuple[bytes, Identity, bytes]:
    """Nonce, identity and, if `mac`, the HMAC."""
    nonce, rest = data[:NONCE_BYTES], data[NONCE_BYTES:]
    rest, proof = (rest[:-MAC_BYTES], rest[-MAC_BYTES:]) if mac else (rest, b"")
    try:
        texts = []
        for _ in range(3):
            length = rest[0]
            texts.append(rest[1 : 1 + length].decode("ascii"))
            rest = rest[1 + length :]
        identity = Identity(*texts)
        # Truncated or extended data would not be repacked to the same bytes.
        if rest or nonce + identity.packed() + proof != data:
            raise Failure("an introduction of the wrong length", Reason.MALFORMED)
    except (IndexError, UnicodeDecodeError, BadArgument) as error:
        raise Failure("received an invalid introduction", Reason.MALFORMED) from error
    return nonce, identity, proof
