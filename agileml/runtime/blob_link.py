"""Blobs of another computer: a store that reads and writes through the job's controller, over links of its own.

Over the node's own link, large blobs would delay its messages.
"""

import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadArgument, ControllerUnreachable, PeerRefused
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.blob_store import PIECE_BYTES, BlobBytes, UnreadableBlob
from agileml.transport import (
    Connected,
    Endpoint,
    FrameLimits,
    Identity,
    LinkEvent,
    Lost,
    NotConnected,
    Received,
    Rejected,
    TcpAddress,
    TransportSettings,
)
from agileml.transport.buckets import BUCKET, Assembly, Encoded, split
from agileml.transport.codec import Codec

BLOB_CLIENT = "blobs/"
"""The names of blob links begin with this. No node's name contains a slash."""

FRAME_BYTES = FrameLimits().body_bytes

_PAUSE = 0.25
_WRITE_PATIENCE = 5.0
"""Seconds in which to reach the controller for writing. A checkpoint that is not written now is soon obsolete."""
_ANSWER_SECONDS = 120.0
"""The disk of the controller's computer may be busy."""


@dataclass(frozen=True, slots=True)
class ReadBlob:
    """Answered by the first piece."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadMore:
    """Answered by the next piece."""


@dataclass(frozen=True, slots=True)
class WriteBlob:
    """Pieces follow, and then EndOfBlob; each is answered."""

    name: str


@dataclass(frozen=True, slots=True)
class BlobPiece:
    """Part of a blob's content."""

    content: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class EndOfBlob:
    """The blob is complete; this is the SHA-256 of its content."""

    digest: str


@dataclass(frozen=True, slots=True)
class ListBlobs:
    """Answered by BlobNames."""

    prefix: str


@dataclass(frozen=True, slots=True)
class BlobNames:
    """The names of blobs."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteBlob:
    """Answered when the blob is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class BlobDone:
    """The request has been carried out."""


@dataclass(frozen=True, slots=True)
class BlobError:
    """The request has failed. `kind` says which error the store raised."""

    kind: Literal["unreadable", "argument", "system"]
    message: str


BLOB_MESSAGES = (
    ReadBlob, ReadMore, WriteBlob, BlobPiece, EndOfBlob, ListBlobs, BlobNames, DeleteBlob, BlobDone, BlobError,
)  # fmt: skip

_ERRORS: dict[str, type[Exception]] = {"unreadable": UnreadableBlob, "argument": BadArgument, "system": OSError}


class LinkedBlobStore:
    """The blobs of the controller's computer. A broken link is an OSError when writing; a reader connects again.

    `patience`: seconds in which to reach the controller. Links are kept for later uses.
    """

    def __init__(
        self, controller: TcpAddress, secret: bytes, version: str, patience: float, frame_bytes: int = FRAME_BYTES
    ) -> None:
        self._controller = controller
        self._secret = secret
        self._version = version
        self._patience = patience
        self._limits = FrameLimits(body_bytes=frame_bytes)
        self._idle: list[_BlobLink] = []
        """Links for the next uses; appending to a list and popping from it are safe without a lock."""

    def put(self, name: str, pieces: Iterable[BlobBytes]) -> None:
        """Sends the pieces one after another. The controller's store writes them as one blob."""
        digest = sha256()
        with self._linked(min(self._patience, _WRITE_PATIENCE)) as link:
            link.ask(WriteBlob(name))
            for piece in pieces:
                whole = memoryview(piece).cast("B")
                for start in range(0, len(whole), PIECE_BYTES):
                    part = whole[start : start + PIECE_BYTES]
                    digest.update(part)
                    link.ask(BlobPiece(np.frombuffer(part, np.uint8)))
            link.ask(EndOfBlob(digest.hexdigest()))

    def get(self, name: str) -> Iterator[bytes]:
        """Asks for one piece at a time."""
        digest = sha256()
        passed_on = 0
        while True:
            try:
                with self._linked(self._patience) as link:
                    for number, piece in enumerate(link.pieces(name)):
                        if number == passed_on:
                            passed_on += 1
                            digest.update(piece)
                            yield piece
                    if link.digest != digest.hexdigest():
                        raise UnreadableBlob(f"blob {name} has changed while it was read")
                    return
            except _LinkLost:
                time.sleep(_PAUSE)

    def list(self, prefix: str = "") -> list[str]:
        """Asks the controller's store."""
        with self._linked(self._patience) as link:
            answer = link.ask(ListBlobs(prefix))
        assert isinstance(answer, BlobNames)
        return list(answer.names)

    def delete(self, name: str) -> None:
        """Asks the controller's store."""
        with self._linked(self._patience) as link:
            link.ask(DeleteBlob(name))

    def close(self) -> None:
        """Closes the links that are kept for later uses."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _linked(self, patience: float) -> "Iterator[_BlobLink]":
        """A link. Raises ControllerUnreachable after `patience` seconds, PeerRefused if it never comes about."""
        link = self._kept() or _BlobLink(self._secret, self._version, self._limits)
        try:
            link.open(self._controller, patience)
            yield link
        except BaseException:
            # An answer may be on the way.
            link.close()
            raise
        self._idle.append(link)

    def _kept(self) -> "_BlobLink | None":
        """A link from an earlier use, if it still works."""
        while self._idle:
            link = self._idle.pop()
            if link.is_open:
                return link
            link.close()
        return None


class _LinkLost(ConnectionError):
    """The controller has gone away; another one may take its place."""


class _BlobLink:
    """A link for one use of the store."""

    def __init__(self, secret: bytes, version: str, limits: FrameLimits) -> None:
        token = secrets.token_hex(8)
        identity = Identity(BLOB_CLIENT + token, token, version)
        self._endpoint = Endpoint(identity, secret, TransportSettings(limits))
        self._limits, self._assembly = limits, Assembly(FrameLimits())
        self._codec = Codec(BLOB_MESSAGES)
        self._events: deque[LinkEvent] = deque()
        self.digest = ""
        """The digest of the blob that was read to its end."""

    @property
    def is_open(self) -> bool:
        """Whether the controller is still there."""
        self._events += self._endpoint.poll(0.0)
        return not self._events

    def open(self, controller: TcpAddress, patience: float) -> None:
        """Tries to connect, if there is no link yet, until `patience` seconds have passed."""
        if self._endpoint.peers:
            return
        deadline = time.monotonic() + patience
        while True:
            self._endpoint.connect(CONTROLLER, controller)
            event = self._next(deadline)
            if isinstance(event, Connected):
                return
            reason = event.reason if isinstance(event, Rejected) else "it does not answer"
            if isinstance(event, Rejected) and event.permanent:
                raise PeerRefused(f"the controller at {controller} refused this node: {reason}")
            if time.monotonic() + _PAUSE >= deadline:
                raise ControllerUnreachable(f"no controller reached at {controller} in {patience:g} s: {reason}")
            time.sleep(_PAUSE)

    def pieces(self, name: str) -> Iterator[bytes]:
        """The blob's content."""
        answer = self.ask(ReadBlob(name))
        while isinstance(answer, BlobPiece):
            yield answer.content.tobytes()
            answer = self.ask(ReadMore())
        assert isinstance(answer, EndOfBlob)
        self.digest = answer.digest

    def ask(self, request: object) -> Any:  # noqa: ANN401 - each request has its own kind of answer
        """Sends a request and returns the answer. Raises what the store has raised, or _LinkLost."""
        try:
            for frame in split(self._codec.encode(request), self._limits):
                self._endpoint.send(CONTROLLER, *frame)
        except NotConnected as error:
            # The link may be lost before its opening is reported.
            raise _LinkLost(f"the link to the controller broke: {error}") from None
        answer = self._codec.decode(*self._received())
        if isinstance(answer, BlobError):
            raise _ERRORS[answer.kind](answer.message)
        return answer

    def close(self) -> None:
        """Closes the link."""
        self._endpoint.close()

    def _received(self) -> Encoded:
        """The next message, which may come in buckets."""
        while True:
            event = self._next(time.monotonic() + _ANSWER_SECONDS)
            if not isinstance(event, Received):
                reason = event.reason if isinstance(event, Lost) else f"it has not answered for {_ANSWER_SECONDS:g} s"
                raise _LinkLost(f"the link to the controller broke: {reason}")
            if event.kind != BUCKET:
                return event.kind, event.header, event.arrays
            message = self._assembly.add(event.header, event.arrays)
            if message is not None:
                return message

    def _next(self, deadline: float) -> LinkEvent | None:
        """The next event; None if there is none before the deadline."""
        while not self._events:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._events += self._endpoint.poll(left)
        return self._events.popleft()
