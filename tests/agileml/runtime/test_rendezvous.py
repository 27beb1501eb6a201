"""Where nodes listen: what they tell the controller, what others learn, and which address they try
first.
"""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Pull
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.rendezvous import (
    AddressBook,
    Directory,
    FolderRendezvous,
    LinkedRendezvous,
    listening_host,
)
from agileml.transport import BadAddress, Rejected, TcpAddress, UnixAddress, parse_host_port
from tests.agileml.engines.attached_jobs import free_port

SECRET = b"0123456789abcdef0123456789abcdef"
CONTROLLER_AT = TcpAddress("10.0.0.1", 7000)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t-") as name:
        yield Path(name)


def book(*addresses: str) -> AddressBook:
    """As a node elsewhere has learned it."""
    book = AddressBook(LinkedRendezvous(CONTROLLER_AT, SECRET, "1", 60.0, Path("/nowhere")))
    book.learn(Directory({"t1": addresses}))
    return book


def test_a_socket_of_this_computer_is_tried_first(folder: Path) -> None:
    here = UnixAddress(str(folder / "node.sock"))
    known = book(str(here), "tcp:10.0.0.2:5000")
    assert known.addresses("t1") == [TcpAddress("10.0.0.2", 5000)]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(here.path)
        assert known.addresses("t1") == [here, TcpAddress("10.0.0.2", 5000)]
    assert known.addresses("t2") == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::]"])
def test_an_address_that_means_this_computer_is_one_of_the_controllers(host: str) -> None:
    """Its node has joined on the controller's computer, and listens as the controller does."""
    assert book(f"tcp:{host}:5000").addresses("t1") == [TcpAddress("10.0.0.1", 5000)]


def test_a_node_that_was_forgotten_or_moved_is_not_reached_at_its_old_address() -> None:
    known = book("tcp:10.0.0.2:5000")
    known.learn(Directory({"t1": ("tcp:10.0.0.3:5000",)}))
    assert known.directory == Directory({"t1": ("tcp:10.0.0.3:5000",)})
    known.forget("t1")
    assert known.directory == Directory({})
    with pytest.raises(BadAddress):
        known.learn(Directory({"t2": ("nonsense",)}))


def test_a_node_listens_at_the_address_that_leads_to_the_controller() -> None:
    assert listening_host(TcpAddress("127.0.0.1", 7000), TcpAddress("0.0.0.0", 7000)) == "0.0.0.0"
    assert (
        listening_host(TcpAddress("127.0.0.1", 7000), TcpAddress("127.0.0.1", 7000)) == "127.0.0.1"
    )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:7000", TcpAddress("10.0.0.1", 7000)),
        ("host.example:1", TcpAddress("host.example", 1)),
        ("[::1]:7000", TcpAddress("::1", 7000)),
    ],
)
def test_host_and_port_are_parsed(text: str, address: TcpAddress) -> None:
    assert parse_host_port(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "host",
        "host:",
        ":7000",
        "host:0",
        "host:65536",
        "host:-1",
        "host:x",
        "[]:7000",
        "::1:7000",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_host_port(text)


# -- mailboxes -------------------------------------------------------------------------------------


@pytest.fixture
def job(folder: Path) -> Iterator[tuple[Mailbox, dict[str, Mailbox]]]:
    """The controller and two nodes that know only where the controller listens."""
    at = TcpAddress("127.0.0.1", free_port())
    with ExitStack() as stack:
        controller = stack.enter_context(
            closing(Mailbox(FolderRendezvous(folder, SECRET, at, "1"), CONTROLLER))
        )
        controller.open()
        nodes = {}
        for name in ("t1", "t2"):
            (folder / name).mkdir()
            here = LinkedRendezvous(
                at, SECRET, "1", 60.0, folder / name, TcpAddress("127.0.0.1", 0)
            )
            nodes[name] = stack.enter_context(closing(Mailbox(here, name)))
            nodes[name].open()
        yield controller, nodes


def turns(job: tuple[Mailbox, dict[str, Mailbox]], until: int) -> list[Envelope | Rejected]:
    """Lets all three work until the nodes have received this many messages."""
    controller, nodes = job
    seen: list[Envelope | Rejected] = []
    for _ in range(20_000):
        list(controller.receive(0.002))
        for name in controller._book.directory.addresses:
            # Nodes are told of each other once both take part.
            controller.admit(name)
        for node in nodes.values():
            seen += [
                event for event in node.receive(0.002) if isinstance(event, Envelope | Rejected)
            ]
        if sum(isinstance(event, Envelope) for event in seen) >= until:
            return seen
    raise AssertionError(f"only {seen} came")


@pytest.mark.parametrize("shared", [True, False])
def test_nodes_find_each_other_through_the_controller(
    job: tuple[Mailbox, dict[str, Mailbox]], folder: Path, shared: bool
) -> None:
    """Over the Unix socket, or over TCP where there is none."""
    _, nodes = job
    if not shared:
        (folder / "t2" / "node.sock").unlink()
    # Before either has an address of the other: the message waits for it.
    nodes["t1"].send("t2", Pull(1, "t1", 0, 0))
    for node in nodes.values():
        node.reach(CONTROLLER)
    assert turns(job, 1) == [Envelope("t1", Pull(1, "t1", 0, 0))]


def test_a_socket_that_does_not_answer_is_given_up_for_tcp(
    job: tuple[Mailbox, dict[str, Mailbox]], folder: Path
) -> None:
    """A folder that two computers share has sockets that only one of them can use."""
    _, nodes = job
    (folder / "t2" / "node.sock").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "t2" / "node.sock"))
    for node in nodes.values():
        node.reach(CONTROLLER)
    nodes["t1"].send("t2", Pull(1, "t1", 0, 0))
    assert turns(job, 1) == [Envelope("t1", Pull(1, "t1", 0, 0))]


class Router:
    """Forwards what connects to its port, and notes how many connections there were."""

    def __init__(self, target: int) -> None:
        self._listener, self._target, self.forwarded = (
            socket.create_server(("127.0.0.1", 0)),
            target,
            0,
        )
        self.at = TcpAddress("127.0.0.1", self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.forwarded += 1
                far = socket.create_connection(("127.0.0.1", self._target))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


def test_a_node_behind_a_router_is_reached_at_the_routers_port(folder: Path) -> None:
    """The port on which it listens stays unknown to others."""
    at, own = TcpAddress("127.0.0.1", free_port()), TcpAddress("127.0.0.1", free_port())
    with ExitStack() as stack:
        controller = stack.enter_context(
            closing(Mailbox(FolderRendezvous(folder, SECRET, at, "1"), CONTROLLER))
        )
        controller.open()
        router = stack.enter_context(closing(Router(own.port)))
        nodes = {}
        for name, reached in (("t1", None), ("t2", router.at)):
            (folder / name).mkdir()
            here = LinkedRendezvous(
                at, SECRET, "1", 60.0, folder / name, TcpAddress("127.0.0.1", 0)
            )
            here = replace(here, listen=own, reached=reached) if reached else here
            nodes[name] = stack.enter_context(closing(Mailbox(here, name)))
            nodes[name].open()
            # Machines behind different routers share no folder.
            (folder / name / "node.sock").unlink()
            nodes[name].reach(CONTROLLER)
        nodes["t1"].send("t2", Pull(1, "t1", 0, 0))
        assert turns((controller, nodes), 1) == [Envelope("t1", Pull(1, "t1", 0, 0))]
        assert router.forwarded == 1
