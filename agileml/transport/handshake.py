"""The first words on a link: two processes say who they are before anything else is read from them.

    initiator -> acceptor   HELLO      key of an initiator, its name, instance and version of the code
    acceptor  -> initiator  ANSWER     key of an acceptor, its name, instance and version
    initiator -> acceptor   CONFIRM    the answer is that of the expected process
    acceptor  -> initiator  WELCOME    from here on, frames
    either    -> other      REFUSED    the reason

Between computers all of this is under TLS, which has proven on both sides that they belong to the
job, and under which name (`certificates`): a process that introduces itself under a name that its
certificate does not carry is refused. On one computer, the file of a Unix socket is for its owner
alone, whose processes are not protected from each other, and the keys tell jobs apart. Each side
has a key of its own: a process that was only called learns nothing with which to answer as one that
was called.
"""

import hmac
import re
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from agileml.errors import BadArgument, BadSecret, PeerRefused

KEY_BYTES = 32
SHORTEST_SECRET = 16
_MESSAGE = struct.Struct("<4sBH")
_MAGIC = b"AgH1"
_MAX_BYTES = 1024
_NAME = re.compile(r"[A-Za-z0-9._:@/+-]{1,128}")


class Reason(IntEnum):
    """Why a side refuses. Only the number is sent, so that an unknown process cannot write text
    into our log.
    """

    SECRET = 1
    VERSION = 2
    NAME = 3
    CROSSING = 4
    """Both sides connect at once: the attempt of the smaller name wins."""
    MALFORMED = 5
    TAKEN = 6
    """Another process has joined the job under this name."""
    SHUT_OUT = 7
    """The node of this name has broken the rules, or was given up."""
    NOT_NOW = 8
    """The controller has not named the process to this one yet, or it has too many links here."""


class _Step(IntEnum):
    HELLO = 1
    ANSWER = 2
    CONFIRM = 3
    WELCOME = 4
    REFUSED = 5


_EXPLANATIONS = {
    Reason.SECRET: "the two processes have different job secrets",
    Reason.VERSION: "it runs another version of the code",
    Reason.TAKEN: "another process has joined the job under this name; a node that joins again needs a new name",
    Reason.NAME: "one of the two does not have the expected name",
    Reason.CROSSING: "it is connecting in the other direction",
    Reason.MALFORMED: "it does not support this handshake",
    Reason.NOT_NOW: "it is not known there as a node that takes part, or has too many links",
    Reason.SHUT_OUT: "the job goes on without the node of this name; a node that joins again needs a new name",
}

BLOB_CLIENT = "blobs/"
"""The names of links for blobs begin with this, followed by the node's name. No node's name has a
slash or an @."""


def node_of(process: str) -> str:
    """The node for which a process speaks: itself, or the one whose helper `node@...` or link for
    blobs it is.
    """
    if process.startswith(BLOB_CLIENT):
        return process.split("/")[1]
    return process.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Identity:
    """A process's name in the job, which process of this name it is, and the version of its code.

    The version must be the same for all. A restarted process has another `instance`.
    """

    name: str
    instance: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        for what, text in (
            ("name", self.name),
            ("instance", self.instance or "-"),
            ("version", self.version or "-"),
        ):
            if not _NAME.fullmatch(text):
                raise BadArgument(f"{what} {text[:40]!r}: use 1 to 128 letters, digits and ._:@/+-")


class Names(Protocol):
    """Which processes own the names of a job. The first one that is linked under a name gets it."""

    def refusal(self, peer: Identity) -> Reason | None:
        """Why a process may not have its name: it belongs to another process, or its node is shut
        out.
        """
        ...

    def give(self, peer: Identity) -> None:
        """The process belongs to the job, and its name is not taken."""
        ...


def new_instance() -> str:
    """Tells a process from others of its name."""
    return secrets.token_hex(8)


class Failure(PeerRefused):
    """A failed handshake: its `reason`, and `refusal`, the bytes that inform the other side."""

    def __init__(self, text: str, reason: Reason, *, inform: bool = True) -> None:
        super().__init__(text)
        self.reason = reason
        if inform:
            self.refusal = _message(_Step.REFUSED, bytes([reason]))
        else:
            self.refusal = b""


def check_secret(secret: bytes) -> None:
    """Raises BadSecret for a secret that could be guessed from what follows from it."""
    if len(secret) < SHORTEST_SECRET:
        raise BadSecret(
            f"the job's secret has {len(secret)} bytes: use at least {SHORTEST_SECRET} random bytes"
        )


class Handshake:
    """One side of a handshake: pass it `wanted` bytes at a time and send its answers. Raises
    Failure.
    """

    def __init__(
        self,
        me: Identity,
        job: bytes,
        *,
        expected: str | None = None,
        refusal: Callable[[Identity], Reason | None] | None = None,
    ) -> None:
        """An initiator knows the `expected` name of its peer; an acceptor may have a reason to
        refuse a process.

        `job` is what all processes of the job have in common.
        """
        self._me = me
        self._expected = expected
        self._refusal = refusal
        keys = [
            hmac.digest(job, b"agileml link, " + side, "sha256")
            for side in (b"initiator", b"acceptor")
        ]
        self.proven: str | None = None
        """The node whose certificate the peer has shown; None on one computer."""
        self._own_key, self._their_key = keys if expected is not None else keys[::-1]
        self._step: _Step | None = None
        self.peer: Identity | None = None
        """The identity that the peer claims; it belongs to the job once `done`."""
        self.done = False
        self.wanted = _MESSAGE.size

    def opening(self) -> bytes:
        """The initiator's HELLO; empty for an acceptor."""
        if self._expected is None:
            return b""
        return self._introduction(_Step.HELLO)

    def receive(self, data: bytes) -> bytes:
        """The answer to exactly `wanted` bytes; empty if there is none."""
        if self._step is None:
            self._step, self.wanted = self._announced(data)
            if self.wanted:
                return b""
            data = b""

        step = self._step
        self._step = None
        self.wanted = _MESSAGE.size
        match step:
            case _Step.HELLO:
                self._meet(data)
                assert self.peer is not None
                if self.peer.name == self._me.name:
                    raise Failure(
                        f"the peer claims the name {self.peer.name!r}, which is ours", Reason.NAME
                    )
                self._refuse()
                return self._introduction(_Step.ANSWER)
            case _Step.ANSWER:
                self._meet(data)
                assert self.peer is not None
                self._check_version(self.peer)
                if self.peer.name != self._expected:
                    raise Failure(
                        f"{self.peer.name!r} answered where {self._expected!r} was expected",
                        Reason.NAME,
                    )
                return _message(_Step.CONFIRM, b"")
            case _Step.CONFIRM:
                assert self.peer is not None
                self._check_version(self.peer)
                # The link may cross another one that has been begun since the answer.
                self._refuse()
                self.done = True
                return _message(_Step.WELCOME, b"")
            case _Step.WELCOME:
                self.done = True
                return b""
            case _Step.REFUSED:
                raise self._refused(data)

    def _announced(self, data: bytes) -> tuple[_Step, int]:
        magic, code, length = _MESSAGE.unpack(data)
        if magic != _MAGIC or length > _MAX_BYTES:
            raise Failure("received data that is not a handshake", Reason.MALFORMED)

        awaited = {_Step.HELLO} if self.peer is None else {_Step.CONFIRM}
        if self._expected is not None:
            awaited = {_Step.ANSWER} if self.peer is None else {_Step.WELCOME}
        if code not in awaited | {_Step.REFUSED}:
            raise Failure("the handshake's messages are out of order", Reason.MALFORMED)

        return _Step(code), length

    def _refused(self, data: bytes) -> Failure:
        if len(data) != 1 or data[0] not in set(Reason):
            return Failure(
                "the peer refused without a valid reason", Reason.MALFORMED, inform=False
            )

        reason = Reason(data[0])
        both = (
            f": {self.peer.version!r}, here {self._me.version!r}"
            if reason is Reason.VERSION and self.peer
            else ""
        )

        name = f" {self.peer.name!r}" if self.peer else ""
        return Failure(
            f"the peer{name} refused: {_EXPLANATIONS[reason]}{both}", reason, inform=False
        )

    def _introduction(self, step: _Step) -> bytes:
        # No newline is in a name.
        about = "\n".join((self._me.name, self._me.instance, self._me.version))
        return _message(step, self._own_key + about.encode())

    def _meet(self, data: bytes) -> None:
        """Reads who the peer is, which must hold the job's secret."""
        key = data[:KEY_BYTES]
        about = data[KEY_BYTES:]
        try:
            name, instance, version = about.decode("ascii").split("\n")
            self.peer = Identity(name, instance, version)
        except ValueError as error:
            raise Failure(
                "the peer introduces itself as another version of the code does", Reason.VERSION
            ) from error

        if not hmac.compare_digest(key, self._their_key):
            raise Failure(
                f"the process named {self.peer.name!r} does not hold this job's secret",
                Reason.SECRET,
            )
        if self.proven is not None and node_of(self.peer.name) != self.proven:
            raise Failure(f"{self.proven!r} introduced itself as {self.peer.name!r}", Reason.NAME)

    def _check_version(self, peer: Identity) -> None:
        if peer.version != self._me.version:
            raise Failure(
                f"{peer.name!r} runs version {peer.version!r} of the code, we run "
                f"{self._me.version!r}: install the same version everywhere",
                Reason.VERSION,
            )

    def _refuse(self) -> None:
        assert self.peer is not None
        reason = None if self._refusal is None else self._refusal(self.peer)
        if reason is not None:
            raise Failure(f"{self.peer.name!r} is refused: {_EXPLANATIONS[reason]}", reason)


def _message(step: _Step, payload: bytes) -> bytes:
    return _MESSAGE.pack(_MAGIC, step, len(payload)) + payload
