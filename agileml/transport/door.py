"""How links come about: listening, connecting, TLS, and the handshake. What passes is handed to the endpoint."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agileml.transport import sockets
from agileml.transport.addresses import Address, TcpAddress
from agileml.transport.errors import BadAddress
from agileml.transport.events import Rejected
from agileml.transport.handshake import Failure, Handshake, Identity, Reason
from agileml.transport.link import Link, Phase
from agileml.transport.loop import READ, WRITE, Loop
from agileml.transport.settings import Settings
from agileml.transport.streams import PlainStream

_ACCEPTED_AT_ONCE = 64
_PERMANENT = {Reason.SECRET, Reason.VERSION}
_NOTHING_TO_SPARE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass(frozen=True, slots=True)
class House:
    """What the door says to its endpoint, and asks it."""

    report: Callable[[Rejected], None]
    opened: Callable[[Link], None]
    linked: Callable[[str], bool]
    clock: Callable[[], float]


class Door:
    """Connections that are not links yet.

    When two processes connect to each other at once, the attempt of the smaller name counts. Its owner refuses the
    other attempt (`CROSSING`), whose owner waits for the one that counts; so one link comes about, and no message is
    ever sent on one that goes away.
    """

    def __init__(
        self,
        identity: Identity,
        secret: bytes,
        settings: Settings,
        loop: Loop,
        house: House,
    ) -> None:
        self._identity, self._secret, self._settings, self._loop = identity, secret, settings, loop
        self._report, self._opened, self._linked, self._clock = house.report, house.opened, house.linked, house.clock
        self._listeners: dict[socket.socket, Address] = {}
        self._resting: list[socket.socket] = []
        """Listeners left alone until the next look, because the process has no descriptor to spare."""
        self._strangers: dict[Link, None] = {}
        self._attempts: dict[str, Link] = {}
        self._awaited: dict[str, tuple[str, float]] = {}
        """Whose attempt crossed ours and counts: the address tried, and until when it has to have come."""
        self.full = False
        """Whether to turn strangers away, because there are as many links as may be."""

    def listen(self, address: Address) -> Address:
        """Takes connections at an address; returns it with the port that the system chose."""
        tls = self._settings.tls
        if isinstance(address, TcpAddress) and tls is not None and tls.server is None:
            raise BadAddress(f"cannot listen at {address}: TLS is set without a context for the server's side")
        sock, address = sockets.listen(address)
        self._listeners[sock] = address
        self._loop.watch(sock.fileno(), READ, partial(self._on_listener, sock))
        return address

    def connect(self, peer: str, address: Address) -> None:
        """Begins to connect, unless that is under way."""
        if peer in self._attempts or peer in self._awaited:
            return
        tls = self._settings.tls
        if isinstance(address, TcpAddress) and tls is not None and tls.client is None:
            raise BadAddress(f"cannot connect to {address}: TLS is set without a context for the client's side")
        try:
            sock = sockets.dial(address, self._settings.buffer_bytes(address))
        except (OSError, BadAddress) as error:
            self._report(Rejected(peer, str(address), f"cannot connect: {error}"))
            return
        handshake = Handshake(self._identity, self._secret, expected=peer)
        self._attempts[peer] = link = Link(PlainStream(sock), address, peer, handshake, self._clock())
        self._loop.watch(link.descriptor, WRITE, partial(self._on_link, link))

    def look(self) -> None:
        """Ends what takes too long, and goes on accepting after a pause."""
        now = self._clock()
        late = now - self._settings.handshake_seconds
        for link in [*self._attempts.values(), *self._strangers]:
            if link.began <= late:
                self._end(link, f"no handshake within {self._settings.handshake_seconds:g} s")
        for peer, (address, until) in list(self._awaited.items()):
            if now >= until:
                del self._awaited[peer]
                self._report(Rejected(peer, address, "it said that it was connecting to us, and did not"))
        for sock in self._resting:
            self._loop.watch(sock.fileno(), READ, partial(self._on_listener, sock))
        self._resting.clear()

    def close(self) -> None:
        """Ends everything at once."""
        for link in [*self._attempts.values(), *self._strangers]:
            link.close(self._loop)
        for sock, address in self._listeners.items():
            sock.close()
            sockets.remove(address)
        self._listeners.clear()

    # -- strangers ----------------------------------------------------------------------------------------------------

    def _on_listener(self, listener: socket.socket, _: int) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, where = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Anything else concerns one connection that went away before it was accepted.
                if error.errno in _NOTHING_TO_SPARE:
                    self._loop.forget(listener.fileno())
                    self._resting.append(listener)
                return
            here = self._listeners[listener]
            self._accept(sock, TcpAddress(where[0], where[1]) if isinstance(here, TcpAddress) else here)

    def _accept(self, sock: socket.socket, address: Address) -> None:
        if self.full:
            sock.close()
            self._report(Rejected(None, str(address), f"{self._settings.max_links} links stand, the most there may be"))
            return
        if len(self._strangers) >= self._settings.max_handshakes:
            self._end(next(iter(self._strangers)), f"made way: {len(self._strangers)} strangers are in their handshake")
        try:
            sockets.tune(sock, self._settings.buffer_bytes(address))
        except OSError as error:
            sock.close()
            self._report(Rejected(None, str(address), f"it went at once: {error}"))
            return
        handshake = Handshake(self._identity, self._secret, admit=self._admits)
        link = Link(PlainStream(sock), address, None, handshake, self._clock())
        self._strangers[link] = None
        self._loop.watch(link.descriptor, WRITE, partial(self._on_link, link))

    def _admits(self, name: str) -> bool:
        return not (name in self._attempts and self._identity.name < name)

    # -- handshakes ---------------------------------------------------------------------------------------------------

    def _on_link(self, link: Link, mask: int) -> None:
        if link.phase is Phase.CLOSED:
            return
        try:
            self._go_on(link, mask)
        except Failure as failure:
            self._refuse(link, failure)
        except OSError as error:
            self._gone(link, f"cannot connect: {error}" if link.phase is Phase.CONNECTING else f"it broke: {error}")

    def _go_on(self, link: Link, mask: int) -> None:
        if link.phase is Phase.CONNECTING:
            link.stream.establish()
            tls = self._settings.tls
            if tls is not None and isinstance(link.address, TcpAddress):
                link.secure(tls)
            else:
                link.prove()
        if link.phase is Phase.SECURING:
            if not link.stream.establish():
                self._loop.change(link.descriptor, WRITE if link.stream.wants_write else READ)
                return
            link.prove()
        self._prove(link, mask)

    def _prove(self, link: Link, mask: int) -> None:
        while not link.handshake.done:
            link.outgoing.send_through(link.stream)
            heard = link.hear() if mask & READ else None
            if heard is None:
                self._loop.change(link.descriptor, READ | WRITE if link.outgoing else READ)
                return
            if not heard:
                self._gone(link, "it ended the connection during the handshake")
                return
        self._take_out(link)
        assert link.handshake.peer is not None
        link.peer = link.handshake.peer.name
        self._awaited.pop(link.peer, None)
        if (crossed := self._attempts.pop(link.peer, None)) is not None:
            crossed.close(self._loop)
        self._opened(link)

    def _refuse(self, link: Link, failure: Failure) -> None:
        link.bid_farewell(failure.farewell)
        crossing = failure.reason is Reason.CROSSING
        self._end(link, str(failure), report=not crossing, permanent=failure.reason in _PERMANENT)
        if crossing and link.initiated and link.peer is not None and not self._linked(link.peer):
            self._awaited[link.peer] = (str(link.address), self._clock() + self._settings.handshake_seconds)

    def _gone(self, link: Link, reason: str) -> None:
        claimed = link.handshake.peer
        # Who said nothing is nobody; and an attempt that crossed ours gives way.
        quiet = claimed is None or claimed.name in self._attempts or self._linked(claimed.name)
        self._end(link, reason, report=link.initiated or not quiet)

    def _take_out(self, link: Link) -> None:
        self._strangers.pop(link, None)
        if link.initiated and link.peer is not None and self._attempts.get(link.peer) is link:
            del self._attempts[link.peer]

    def _end(self, link: Link, reason: str, *, report: bool = True, permanent: bool = False) -> None:
        self._take_out(link)
        link.close(self._loop)
        if report:
            self._report(Rejected(link.peer, str(link.address), reason, permanent))
