"""Blobs over a link: the same store as on the controller's computer, also when the link or the
controller is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agileml.errors import ControllerUnreachable, PeerRefused
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.blob_store import PIECE_BYTES, FileBlobStore
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.remote_blobs import (
    BLOB_MESSAGES,
    BlobError,
    BlobNames,
    BlobPiece,
    BlobRequest,
    BlobServer,
    LinkedBlobStore,
    NextPiece,
)
from agileml.runtime.rendezvous import FolderRendezvous, LinkedRendezvous
from agileml.transport import (
    Connected,
    Endpoint,
    FrameLimits,
    LinkEvent,
    Lost,
    TcpAddress,
    TransportSettings,
)
from tests.agileml.engines.attached_jobs import free_port
from tests.agileml.runtime.blob_store_suite import BlobStoreSuite, Damage, content

SECRET = b"0123456789abcdef0123456789abcdef"


# Fields of a rendezvous.
def store_of(at: TcpAddress, **other: Any) -> LinkedBlobStore:  # noqa: ANN401
    known = LinkedRendezvous(at, SECRET, "1", 60.0, Path("/nowhere"))
    return LinkedBlobStore(replace(known, **other))


class Controller:
    """A thread that serves the blobs of a folder as a controller's process does; it can be lost and
    restarted.
    """

    def __init__(self, folder: Path) -> None:
        self.at = TcpAddress("127.0.0.1", free_port())
        self.folder = folder
        self.frame_bytes = FrameLimits().body_bytes
        self._rendezvous = FolderRendezvous(folder, SECRET, self.at, "1")
        self.requests: list[tuple[str, object]] = []
        self.lose_after = -1
        self.start()

    def start(self) -> None:
        limited = TransportSettings(FrameLimits(body_bytes=self.frame_bytes))
        self._mailbox = Mailbox(self._rendezvous, CONTROLLER, limited, messages=BLOB_MESSAGES)
        self._mailbox.open()
        self._going_on = True
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        server = BlobServer(self._rendezvous.blobs, self._mailbox.wake)
        while self._going_on:
            for event in self._mailbox.receive(0.05):
                if isinstance(event, Envelope):
                    self.requests.append((event.sender, event.message))
                    if len(self.requests) == self.lose_after:
                        self._mailbox._endpoint.drop(event.sender, "lost")
                    else:
                        server.handle(event.sender, event.message)
                elif isinstance(event, Lost):
                    server.drop(event.peer)
            for client, answer in server.answers():
                self._mailbox.send(client, answer)

    def stop(self) -> None:
        self._going_on = False
        self._thread.join()
        self._mailbox.close()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    (tmp_path / "b").mkdir()
    controller = Controller(tmp_path / "b")
    yield controller
    controller.stop()


@pytest.fixture
def linked(controller: Controller) -> Iterator[LinkedBlobStore]:
    with closing(store_of(controller.at)) as store:
        yield store


def test_links_are_kept_for_later_uses(controller: Controller, linked: LinkedBlobStore) -> None:
    for number in range(3):
        linked.put("x", [b"%d" % number])
        assert content(linked, "x") == b"%d" % number
    assert len({client for client, _ in controller.requests}) == 1


def test_pieces_may_be_larger_than_a_frame(controller: Controller) -> None:
    controller.stop()
    controller.frame_bytes = 4096
    controller.start()
    written = np.random.default_rng(0).integers(0, 256, PIECE_BYTES + 5, np.uint8).tobytes()
    with closing(store_of(controller.at, frame_bytes=4096)) as store:
        store.put("x", [written])
        assert content(store, "x") == written


class TestLinked(BlobStoreSuite):
    @pytest.fixture
    def store(self, linked: LinkedBlobStore) -> LinkedBlobStore:
        return linked

    @pytest.fixture
    def damage(self, controller: Controller) -> Damage:
        def change(name: str, how: Callable[[bytes], bytes]) -> None:
            path = controller.folder / name
            path.write_bytes(how(path.read_bytes()))

        return change


def test_a_reader_connects_again_and_goes_on_where_it_was(
    controller: Controller, linked: LinkedBlobStore
) -> None:
    written = np.random.default_rng(0).integers(0, 256, 9 * PIECE_BYTES + 5, np.uint8).tobytes()
    FileBlobStore(controller.folder).put("x", [written])
    controller.lose_after = 3
    assert content(linked, "x") == written
    assert len({client for client, _ in controller.requests}) == 2


def test_a_reader_waits_for_a_restarted_controller(
    controller: Controller, linked: LinkedBlobStore
) -> None:
    FileBlobStore(controller.folder).put("x", [b"a" * 2 * PIECE_BYTES])
    reader = linked.get("x")
    first = next(reader)
    controller.stop()
    restart = threading.Timer(0.3, controller.start)
    restart.start()
    assert first + b"".join(reader) == b"a" * 2 * PIECE_BYTES
    restart.join()


def test_a_writer_whose_link_breaks_leaves_the_earlier_blob(
    controller: Controller, linked: LinkedBlobStore
) -> None:
    """An OSError, as if the disk had failed: a node keeps its older checkpoint and goes on."""
    linked.put("x", [b"kept"])
    controller.lose_after = len(controller.requests) + 3
    with pytest.raises(ConnectionError, match="the link to the controller broke"):
        linked.put("x", [b"one", b"two", b"three"])
    assert content(linked, "x") == b"kept"
    assert linked.list() == ["x"]


def test_a_link_that_is_lost_as_soon_as_it_is_open_is_a_broken_link(
    linked: LinkedBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that ends has closed it before its opening was reported; checkpoints that were
    on their way then must not look like a broken job."""
    poll = Endpoint.poll

    def report_late(endpoint: Endpoint, seconds: float) -> list[LinkEvent]:
        events = list(poll(endpoint, seconds))
        if any(isinstance(event, Connected) and event.peer == CONTROLLER for event in events):
            endpoint.drop(CONTROLLER, "over")
            events += poll(endpoint, 0.0)
        return events

    monkeypatch.setattr(Endpoint, "poll", report_late)
    with pytest.raises(ConnectionError, match="the link to the controller broke"):
        linked.put("x", [b"one"])


def test_content_that_was_changed_on_its_way_is_not_stored(
    controller: Controller, linked: LinkedBlobStore
) -> None:
    server = BlobServer(FileBlobStore(controller.folder), lambda: None)
    answers: list[object] = []
    for request in (
        BlobRequest("write", "x"),
        BlobPiece(np.zeros(3, np.uint8)),
        BlobPiece(np.empty(0, np.uint8), "another checksum"),
    ):
        server.handle("blobs/1", request)
        while not (new := [answer for _, answer in server.answers()]):
            time.sleep(0.001)
        answers += new
    assert isinstance(answers[-1], BlobError)
    assert linked.list() == []


class Link:
    """Requests to a server, and its answers."""

    def __init__(self, folder: Path) -> None:
        self._server = BlobServer(FileBlobStore(folder), lambda: None)

    def sends(self, *requests: object, answers: int) -> list[object]:
        """The answers that come: as many, and no more within a moment."""
        for request in requests:
            self._server.handle("blobs/1", request)
        came, until = list[object](), inf
        while len(came) <= answers and time.monotonic() < until:
            came += [answer for _, answer in self._server.answers()]
            until = min(until, time.monotonic() + 0.05) if len(came) == answers else inf
            time.sleep(0.001)
        assert len(came) == answers
        return came


def test_a_reader_gets_some_pieces_ahead_of_its_answers_and_no_more(tmp_path: Path) -> None:
    FileBlobStore(tmp_path).put("x", [b"a" * 7 * PIECE_BYTES])
    link = Link(tmp_path)
    assert all(
        isinstance(piece, BlobPiece) for piece in link.sends(BlobRequest("read", "x"), answers=4)
    )
    link.sends(NextPiece(), answers=1)
    *_, last = link.sends(NextPiece(), NextPiece(), answers=3)
    assert isinstance(last, BlobPiece)
    assert last.checksum
    # The answers to the last pieces belong to this blob, and the link serves another request.
    assert link.sends(*[NextPiece()] * 4, BlobRequest("list", ""), answers=1) == [BlobNames(("x",))]


def test_a_writer_sends_some_pieces_ahead_of_their_answers_and_no_more(
    controller: Controller,
) -> None:
    controller.stop()
    mailbox = Mailbox(
        controller._rendezvous, CONTROLLER, TransportSettings(), messages=BLOB_MESSAGES
    )
    mailbox.open()
    with closing(store_of(controller.at)) as store, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.put, "x", [b"%d" % number for number in range(9)])
        pieces = 0
        while pieces < 4:
            for event in mailbox.receive(0.05):
                if isinstance(event, Envelope) and isinstance(event.message, BlobRequest):
                    mailbox.send(event.sender, NextPiece())
                pieces += isinstance(event, Envelope) and isinstance(event.message, BlobPiece)
        assert not list(mailbox.receive(0.2))
        mailbox.close()
        with pytest.raises(ConnectionError, match="the link to the controller broke"):
            writing.result()
    controller.start()


def test_a_controller_that_is_not_there_or_refuses_is_told_apart(controller: Controller) -> None:
    absent = TcpAddress("127.0.0.1", free_port())
    with pytest.raises(ControllerUnreachable, match=f"no controller reached at {absent} in 0 s"):
        store_of(absent, patience=0.0).list()
    with pytest.raises(PeerRefused, match="runs version '1' of the code, we run '2'"):
        store_of(controller.at, version="2").list()
    with pytest.raises(PeerRefused, match="does not hold this job's secret"):
        store_of(controller.at, secret=SECRET[::-1]).list()
