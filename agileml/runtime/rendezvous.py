"""How the processes of a job find each other: addresses, the shared secret and blobs, all by name.

A process gets its rendezvous as part of its role and never derives a path from a name. There are
two: processes of one computer share a folder; processes elsewhere know only the address of the
controller, and learn the rest from it: each node tells the controller where it listens, which tells
all others.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from pathlib import Path

from agileml.protocol.actions import CONTROLLER
from agileml.runtime.blob_store import FileBlobStore
from agileml.transport import Address, FrameLimits, Rejected, TcpAddress, UnixAddress, parse_address


@dataclass(frozen=True, slots=True)
class FolderRendezvous:
    """Processes of one computer: Unix sockets and files in a folder.

    With `listen`, the controller also accepts processes of other computers, over TLS.
    """

    folder: Path
    secret: bytes = field(repr=False)
    """The key by which the job's processes authenticate each other; empty in a role that is
    published."""
    listen: TcpAddress | None = None
    version: str = ""
    """The version of the code, which both ends of a link must have in common; empty if it cannot
    differ."""
    patience: float = inf
    """Seconds without a controller after which a node gives up."""

    @property
    def blobs(self) -> FileBlobStore:
        """Files in the folder."""
        return FileBlobStore(self.folder)

    def address(self, name: str) -> UnixAddress:
        """A socket in the folder. Raises BadAddress if its path is too long for the system."""
        return UnixAddress(str(self.folder / f"{name}.sock"))

    def listening(self, name: str) -> Sequence[Address]:
        """Where a process listens: at the socket in the folder; the controller also at the TCP
        port.
        """
        socket = self.address(name)
        if self.listen is None or name != CONTROLLER:
            return (socket,)
        return (socket, self.listen)

    def addresses(self, name: str) -> Sequence[Address]:
        """Where to reach a process: the socket in the folder."""
        return (self.address(name),)


@dataclass(frozen=True, slots=True)
class LinkedRendezvous:
    """A node that knows only the controller's address; it tells the controller where it listens
    itself.

    `folder` belongs to this process; its socket there is for nodes of the same computer.
    """

    controller: TcpAddress
    secret: bytes = field(repr=False)
    """This node's credentials."""
    version: str
    patience: float
    folder: Path
    listen: TcpAddress | None = None
    """Where this node listens; not known before it has fetched its role."""
    frame_bytes: int = FrameLimits().body_bytes
    node: str = "node"
    """The name of this node, under which it reads and writes blobs."""
    reached: TcpAddress | None = None
    """Where others reach this node, if that is not where it listens, as behind a router that
    forwards a port."""

    def listening(self, name: str) -> Sequence[Address]:  # noqa: ARG002 - there is only one process
        """A socket for nodes of this computer, and a TCP port for all others."""
        socket = UnixAddress(str(self.folder / "node.sock"))
        if self.listen is None:
            return (socket,)
        return (socket, self.listen)

    def addresses(self, name: str) -> Sequence[Address]:
        """The controller's; all others are in the address book."""
        if name == CONTROLLER:
            return (self.controller,)
        return ()


Rendezvous = FolderRendezvous | LinkedRendezvous
"""Roles carry it to other processes, pickled."""


_DOCUMENTATION_ADDRESS = TcpAddress("192.0.2.1", 9)
"""An address that is reserved for documentation; nothing is ever sent there."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Where nodes listen: from the controller to nodes, and from a node, about itself alone, on
    every new link.

    A node without an address is gone, and may not be spoken to any more.
    """

    addresses: dict[str, tuple[str, ...]]


class AddressBook:
    """The addresses of processes, by name. A node keeps what it has learned while there is no
    controller.

    A peer's addresses are tried in turn.
    """

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._rendezvous = rendezvous
        self._learned: dict[str, tuple[Address, ...]] = {}
        self._failed: dict[str, int] = {}
        """The number of a peer's addresses that did not answer."""

    def learn(self, directory: Directory) -> None:
        """Adds or replaces entries. Raises BadAddress for an invalid one."""
        for name, texts in directory.addresses.items():
            self._learned[name] = tuple(map(parse_address, texts))
            if not texts:
                self.forget(name)

    def forget(self, name: str) -> None:
        """Removes a node."""
        self._learned.pop(name, None)

    @property
    def directory(self) -> Directory:
        """All that was learned."""
        return Directory(
            {name: tuple(map(str, addresses)) for name, addresses in self._learned.items()}
        )

    def next_address(self, peer: str) -> Address | None:
        """Where to try to reach a peer now; None if that is not known."""
        addresses = self.addresses(peer)
        if addresses:
            return addresses[self._failed.get(peer, 0) % len(addresses)]
        return None

    def note_answer(self, peer: str) -> None:
        """The peer was reached: its addresses are tried from the first one again."""
        self._failed.pop(peer, None)

    def has_another(self, peer: str, rejected: Rejected) -> bool:
        """Whether the peer has another address than the one that failed now."""
        failed = self._failed.get(peer, 0) + 1
        if rejected.permanent or failed >= len(self.addresses(peer)):
            self._failed.pop(peer, None)
            return False
        self._failed[peer] = failed
        return True

    def addresses(self, peer: str) -> Sequence[Address]:
        """Where to reach a process, best first: a node over a Unix socket if it is on this
        computer.
        """
        known = self._rendezvous.addresses(peer)
        if known:
            return known

        (controller, *_) = self._rendezvous.addresses(CONTROLLER)
        usable: list[Address] = []
        for address in self._learned.get(peer, ()):
            if isinstance(address, TcpAddress):
                if isinstance(controller, TcpAddress) and (
                    _is_loopback(address.host) or _is(address.host, "is_unspecified")
                ):
                    # The node is on the controller's computer.
                    usable.append(TcpAddress(controller.host, address.port))
                else:
                    usable.append(address)
            else:
                # The path has a random part: a socket there is the node's, unless computers share
                # the folder.
                with suppress(OSError):
                    usable += [address] if Path(address.path).is_socket() else []

        return usable


def listening_host(controller: TcpAddress, controllers_own: TcpAddress) -> str:
    """The host at which a node listens: the address from which it reaches the controller.

    On the controller's computer that may be loopback; then the node listens wherever the controller
    does.
    """
    host = controller.local_host()
    return controllers_own.host if _is_loopback(host) else host


def outward_host() -> str:
    """The address of this computer on its way to others, for a controller that is reached through a
    tunnel.

    Raises BadAddress if it has no network.
    """
    return _DOCUMENTATION_ADDRESS.local_host()


def _is_loopback(host: str) -> bool:
    return _is(host, "is_loopback") or host == "localhost"


def _is(host: str, what: str) -> bool:
    try:
        return bool(getattr(ip_address(host), what))
    except ValueError:
        return False
