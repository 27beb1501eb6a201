"""Blobs of another computer: a store that reads and writes through the job's controller, and what
serves it there.

Each use has a link of its own: over the node's own link, large blobs would delay its messages.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadArgument, ControllerUnreachable, PeerRefused
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.blob_store import (
    PIECE_BYTES,
    BlobBytes,
    BlobStore,
    FileBlobStore,
    UnreadableBlob,
)
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.rendezvous import FolderRendezvous, LinkedRendezvous, Rendezvous
from agileml.transport import Connected, FrameLimits, Lost, Rejected, TransportSettings
from agileml.transport.handshake import BLOB_CLIENT, node_of

_PAUSE = 0.25
_WRITE_PATIENCE = 5.0
"""Seconds in which to reach the controller for writing. A checkpoint that is not written now is
soon obsolete."""
_ANSWER_SECONDS = 120.0
"""The disk of the controller's computer may be busy."""
_AHEAD = 4
"""Pieces that are sent before an answer to the first of them: on busy computers, an answer to each
takes longer than the piece itself."""
_MAX_WAITING = 2 * _AHEAD
"""Requests and pieces of a client that wait here, at most: an honest one waits for answers."""
_MAX_LINKS = 16
"""Links of a node at the same time: as many as it has threads that read and write, and those that
are kept."""
_MAX_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class BlobRequest:
    """Reading is answered by the pieces of the blob, writing by `NextPiece`, after which pieces
    follow; each piece is answered by `NextPiece`, and at most `_AHEAD` are on the way.

    A list, of the blobs whose names begin with `name`, is answered by `BlobNames`, deleting by
    `NextPiece`.
    """

    kind: Literal["read", "write", "list", "delete"]
    name: str


@dataclass(frozen=True, slots=True)
class BlobPiece:
    """Part of a blob's content; the last piece is empty, and has the checksum of the whole content.

    Links are sealed against changes: the checksum finds accidents, and a blob that was replaced
    while it was read. Stores keep digests of their own.
    """

    content: NDArray[np.uint8]
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class NextPiece:
    """The last piece, or a request without an answer of its own, has been carried out."""


@dataclass(frozen=True, slots=True)
class BlobNames:
    """The names of blobs."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlobError:
    """The request has failed. `kind` says which error the store raised."""

    kind: Literal["unreadable", "argument", "system", "refused"]
    message: str


BLOB_MESSAGES = (BlobRequest, BlobPiece, NextPiece, BlobNames, BlobError)


class BlobRefused(OSError):
    """This node has no right to do what it asked for."""


_ERRORS: dict[str, type[Exception]] = {
    "unreadable": UnreadableBlob,
    "argument": BadArgument,
    "system": OSError,
    "refused": BlobRefused,
}
_NOTHING = np.empty(0, np.uint8)


def blobs_of(rendezvous: Rendezvous) -> "FileBlobStore | LinkedBlobStore":
    """The blobs of a job, from where this process is."""
    if isinstance(rendezvous, FolderRendezvous):
        return rendezvous.blobs
    return LinkedBlobStore(rendezvous)


class LinkedBlobStore:
    """The blobs of the controller's computer. A broken link is an OSError when writing; a reader
    connects again.

    Links are kept for later uses.
    """

    def __init__(self, rendezvous: LinkedRendezvous) -> None:
        self._rendezvous = rendezvous
        self._idle: list[_BlobLink] = []
        """Links for the next uses; appending to a list and popping from it are safe without a
        lock."""

    def put(self, name: str, pieces: Iterable[BlobBytes]) -> None:
        """Sends the pieces one after another. The controller's store writes them as one blob."""
        with self._linked(min(self._rendezvous.patience, _WRITE_PATIENCE)) as link:
            link.ask(BlobRequest("write", name))
            checksum = 0
            on_the_way = 0
            for piece in pieces:
                whole = memoryview(piece).cast("B")
                for start in range(0, len(whole), PIECE_BYTES):
                    part = whole[start : start + PIECE_BYTES]
                    checksum = crc32(part, checksum)
                    if on_the_way == _AHEAD:
                        link.answer()
                    else:
                        on_the_way += 1
                    link.send(BlobPiece(np.frombuffer(part, np.uint8)))
            link.send(BlobPiece(_NOTHING, f"{checksum:08x}"))
            for _ in range(on_the_way + 1):
                link.answer()

    def get(self, name: str) -> Iterator[bytes]:
        """Asks for all pieces, and says which ones have arrived."""
        checksum = 0
        passed_on = 0
        while True:
            try:
                with self._linked(self._rendezvous.patience) as link:
                    for number, piece in enumerate(link.pieces(name)):
                        if number == passed_on:
                            passed_on += 1
                            checksum = crc32(piece, checksum)
                            yield piece
                    if link.checksum != f"{checksum:08x}":
                        raise UnreadableBlob(f"blob {name} has changed while it was read")
                    return
            except _LinkLost:
                time.sleep(_PAUSE)

    def list(self, prefix: str = "") -> list[str]:
        """Asks the controller's store."""
        with self._linked(self._rendezvous.patience) as link:
            answer = link.ask(BlobRequest("list", prefix))
        assert isinstance(answer, BlobNames)
        return list(answer.names)

    def delete(self, name: str) -> None:
        """Asks the controller's store."""
        with self._linked(self._rendezvous.patience) as link:
            link.ask(BlobRequest("delete", name))

    def close(self) -> None:
        """Closes the links that are kept for later uses."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _linked(self, patience: float) -> "Iterator[_BlobLink]":
        """A link. Raises ControllerUnreachable after `patience` seconds, PeerRefused if it never
        comes about.
        """
        # A link from an earlier use, if it still works.
        link: _BlobLink | None = None
        while self._idle and link is None:
            link = self._idle.pop()
            if not link.is_open:
                link.close()
                link = None

        link = link or _BlobLink(self._rendezvous)
        try:
            link.open(patience)
            yield link
        except BaseException:
            # An answer may be on the way.
            link.close()
            raise

        self._idle.append(link)


class _LinkLost(ConnectionError):
    """The controller has gone away; another one may take its place."""


class _BlobLink:
    """A link for one use of the store."""

    def __init__(self, rendezvous: LinkedRendezvous) -> None:
        self._controller = rendezvous.controller
        settings = TransportSettings(FrameLimits(body_bytes=rendezvous.frame_bytes))
        name = f"{BLOB_CLIENT}{rendezvous.node}/{secrets.token_hex(8)}"
        self._mailbox = Mailbox(rendezvous, name, settings, messages=BLOB_MESSAGES)
        self._events: deque[Envelope | Connected | Lost | Rejected] = deque()
        self._linked = False
        self.checksum = ""
        """That of the blob that was read to its end."""

    @property
    def is_open(self) -> bool:
        """Whether the controller is still there."""
        self._events += self._mailbox.receive(0.0)
        return not self._events

    def open(self, patience: float) -> None:
        """Tries to connect, if there is no link yet, until `patience` seconds have passed."""
        deadline = time.monotonic() + patience
        while not self._linked:
            self._mailbox.reach(CONTROLLER)
            event = self._next(deadline)
            if isinstance(event, Connected):
                self._linked = True
                return
            reason = event.reason if isinstance(event, Rejected) else "it does not answer"
            if isinstance(event, Rejected) and event.permanent:
                raise PeerRefused(
                    f"the controller at {self._controller} refused this node: {reason}"
                )
            if time.monotonic() + _PAUSE >= deadline:
                raise ControllerUnreachable(
                    f"no controller reached at {self._controller} in {patience:g} s: {reason}"
                )
            time.sleep(_PAUSE)

    def pieces(self, name: str) -> Iterator[bytes]:
        """The blob's content."""
        piece = self.ask(BlobRequest("read", name))
        while not piece.checksum:
            self.send(NextPiece())
            yield piece.content.tobytes()
            piece = self.answer()
        self.checksum = piece.checksum

    def ask(self, request: object) -> Any:  # noqa: ANN401 - each request has its own kind of answer
        """Sends a request and returns the answer. Raises what the store has raised, or
        _LinkLost."""
        self.send(request)
        return self.answer()

    def send(self, request: object) -> None:
        """Sends a request, or a piece, without waiting."""
        self._mailbox.send(CONTROLLER, request)

    def answer(self) -> Any:  # noqa: ANN401 - each request has its own kind of answer
        """The next answer. Raises what the store has raised, or _LinkLost."""
        event = self._next(time.monotonic() + _ANSWER_SECONDS)
        if not isinstance(event, Envelope):
            reason = (
                event.reason
                if isinstance(event, Lost)
                else f"it has not answered for {_ANSWER_SECONDS:g} s"
            )
            raise _LinkLost(f"the link to the controller broke: {reason}")
        if isinstance(event.message, BlobError):
            raise _ERRORS[event.message.kind](event.message.message)

        return event.message

    def close(self) -> None:
        """Closes the link."""
        self._mailbox.close()

    def _next(self, deadline: float) -> Envelope | Connected | Lost | Rejected | None:
        """The next event; None if there is none before the deadline."""
        while not self._events:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._events += self._mailbox.receive(left)
        return self._events.popleft()


class BlobServer:
    """Serves a store over the links to a process: requests in, answers out.

    Each client has a thread of its own: disks must not delay the controller's messages. A blob has
    `most_bytes`.
    """

    def __init__(
        self, store: BlobStore, wake: Callable[[], None], most_bytes: int = _MAX_BYTES
    ) -> None:
        """`wake` is called from another thread when there are new answers."""
        self._store = store
        self._wake = wake
        self._most_bytes = most_bytes
        self._inboxes: dict[str, SimpleQueue[object]] = {}
        self._answers: SimpleQueue[tuple[str, object]] = SimpleQueue()

    def handle(self, client: str, request: object, *, allowed: bool = True) -> str:
        """Starts carrying out a request, or refuses one that is not allowed.

        Returns how the client has broken the rules, if it does not wait for answers; empty if it
        does.
        """
        node = node_of(client)
        if client not in self._inboxes:
            if sum(node_of(other) == node for other in self._inboxes) >= _MAX_LINKS:
                return f"requests over more than {_MAX_LINKS} links at once"
            self._inboxes[client] = SimpleQueue()
            answer = partial(self._answer, client)
            session = _BlobSession(self._store, self._inboxes[client], answer, self._most_bytes)
            threading.Thread(target=session.run, name=client, daemon=True).start()

        if self._inboxes[client].qsize() >= _MAX_WAITING:
            return f"{_MAX_WAITING} pieces without waiting for an answer"

        if not allowed:
            blob_error = BlobError("refused", f"{node} has no right to {request!r:.200}")
            self._answer(client, blob_error)
        else:
            self._inboxes[client].put(request)

        return ""

    def drop(self, client: str) -> None:
        """The client is gone; what it has written in part is discarded."""
        inbox = self._inboxes.pop(client, None)
        if inbox is not None:
            inbox.put(None)

    def answers(self) -> Iterator[tuple[str, object]]:
        """Clients, and what to send to them."""
        while True:
            try:
                yield self._answers.get_nowait()
            except Empty:
                return

    def _answer(self, client: str, answer: object) -> None:
        self._answers.put((client, answer))
        self._wake()


class _BlobSession:
    """One client's requests, one after another."""

    def __init__(
        self,
        store: BlobStore,
        inbox: SimpleQueue[object],
        answer: Callable[[object], None],
        most_bytes: int,
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._answer = answer
        self._most_bytes = most_bytes

    def run(self) -> None:
        """Until the client is gone."""
        while (request := self._inbox.get()) is not None:
            try:
                self._carry_out(request)
            except UnreadableBlob as error:
                self._answer(BlobError("unreadable", str(error)))
            except BadArgument as error:
                self._answer(BlobError("argument", str(error)))
            except _ClientGone:
                return
            except OSError as error:
                self._answer(BlobError("system", str(error)))

    def _carry_out(self, request: object) -> None:
        match request:
            case BlobRequest("read", name):
                checksum = 0
                on_the_way = 0
                for piece in self._store.get(name):
                    if on_the_way == _AHEAD:
                        self._require_arrival()
                    else:
                        on_the_way += 1
                    checksum = crc32(piece, checksum)
                    self._answer(BlobPiece(np.frombuffer(piece, np.uint8)))
                self._answer(BlobPiece(_NOTHING, f"{checksum:08x}"))
                for _ in range(on_the_way):
                    self._require_arrival()
            case BlobRequest("write", name):
                self._store.put(name, self._receive_pieces())
                self._answer(NextPiece())
            case BlobRequest("list", prefix):
                self._answer(BlobNames(tuple(self._store.list(prefix))))
            case BlobRequest("delete", name):
                self._store.delete(name)
                self._answer(NextPiece())
            case _:
                what = (
                    f"unexpected request {type(request).__name__}"
                    if isinstance(request, BLOB_MESSAGES)
                    else ""
                )
                self._answer(BlobError("argument", what or "not a request"))

    def _require_arrival(self) -> None:
        """Waits until the client has received one more piece."""
        following = self._next()
        if not isinstance(following, NextPiece):
            raise BadArgument(f"unexpected request {type(following).__name__} while a blob is read")

    def _receive_pieces(self) -> Iterator[memoryview]:
        """The pieces of a blob as they arrive."""
        checksum = 0
        size = 0
        self._answer(NextPiece())
        while isinstance(request := self._next(), BlobPiece) and not request.checksum:
            piece = np.ascontiguousarray(request.content).reshape(-1).data
            checksum = crc32(piece, checksum)
            size += piece.nbytes
            if size > self._most_bytes:
                raise BadArgument(f"the content of a blob has more than {self._most_bytes:,} bytes")
            yield piece
            self._answer(NextPiece())

        if not isinstance(request, BlobPiece) or request.checksum != f"{checksum:08x}":
            raise BadArgument("the content of a blob does not match its checksum")

    def _next(self) -> object:
        request = self._inbox.get()
        if request is None:
            raise _ClientGone
        return request


class _ClientGone(OSError):
    """Ends the writing of a blob without its last pieces."""
