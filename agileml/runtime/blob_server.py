"""Serves a blob store to nodes of other computers, over their links to the controller's process."""

import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from queue import Empty, SimpleQueue

import numpy as np

from agileml.errors import BadArgument
from agileml.runtime.blob_link import (
    BLOB_MESSAGES,
    BlobDone,
    BlobError,
    BlobNames,
    BlobPiece,
    DeleteBlob,
    EndOfBlob,
    ListBlobs,
    ReadBlob,
    ReadMore,
    WriteBlob,
)
from agileml.runtime.blob_store import BlobStore, UnreadableBlob


class BlobServer:
    """Requests in, answers out. Each client has a thread of its own: disks must not delay the controller's messages."""

    def __init__(self, store: BlobStore, wake: Callable[[], None]) -> None:
        """`wake` is called from another thread when there are new answers."""
        self._store = store
        self._wake = wake
        self._inboxes: dict[str, SimpleQueue[object]] = {}
        self._answers: SimpleQueue[tuple[str, object]] = SimpleQueue()

    def handle(self, client: str, request: object) -> None:
        """Starts carrying out a request."""
        if client not in self._inboxes:
            self._inboxes[client] = SimpleQueue()
            session = _BlobSession(self._store, self._inboxes[client], lambda answer: self._answer(client, answer))
            threading.Thread(target=session.run, name=client, daemon=True).start()
        self._inboxes[client].put(request)

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

    def __init__(self, store: BlobStore, inbox: SimpleQueue[object], answer: Callable[[object], None]) -> None:
        self._store, self._inbox, self._answer = store, inbox, answer

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
            case ReadBlob():
                self._read(request.name)
            case WriteBlob():
                self._store.put(request.name, self._receive_pieces())
                self._answer(BlobDone())
            case ListBlobs():
                self._answer(BlobNames(tuple(self._store.list(request.prefix))))
            case DeleteBlob():
                self._store.delete(request.name)
                self._answer(BlobDone())
            case _:
                self._answer(_out_of_order(request))

    def _read(self, name: str) -> None:
        digest = sha256()
        for piece in self._store.get(name):
            digest.update(piece)
            self._answer(BlobPiece(np.frombuffer(piece, np.uint8)))
            request = self._next()
            if not isinstance(request, ReadMore):
                self._answer(_out_of_order(request))
                return
        self._answer(EndOfBlob(digest.hexdigest()))

    def _receive_pieces(self) -> Iterator[memoryview]:
        """The pieces of a blob as they arrive."""
        digest = sha256()
        self._answer(BlobDone())
        while isinstance(request := self._next(), BlobPiece):
            piece = np.ascontiguousarray(request.content).reshape(-1).data
            digest.update(piece)
            yield piece
            self._answer(BlobDone())
        if not isinstance(request, EndOfBlob) or request.digest != digest.hexdigest():
            raise BadArgument("the content of a blob does not match its digest")

    def _next(self) -> object:
        request = self._inbox.get()
        if request is None:
            raise _ClientGone
        return request


class _ClientGone(OSError):
    """Ends the writing of a blob without its last pieces."""


def _out_of_order(request: object) -> BlobError:
    known = isinstance(request, BLOB_MESSAGES)
    return BlobError("argument", f"unexpected request {type(request).__name__}" if known else "not a request")
