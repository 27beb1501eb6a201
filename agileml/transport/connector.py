"""Opens links: listening, connecting, TLS over TCP, and the handshake. Links that pass are handed
to the endpoint.
"""

import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agileml.errors import BadAddress
from agileml.transport import sockets
from agileml.transport.addresses import Address, TcpAddress
from agileml.transport.certificates import contexts_of, credentials_of, job_mark
from agileml.transport.handshake import Failure, Handshake, Identity, Names, Reason, node_of
from agileml.transport.link import Link, Phase, Rejected, TransportSettings
from agileml.transport.sockets import READ, WRITE, Loop, PlainStream

_ACCEPTED_AT_ONCE = 64
_PERMANENT = {Reason.SECRET, Reason.VERSION, Reason.TAKEN, Reason.SHUT_OUT}
_NOT_TLS = {"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "HTTP_REQUEST"}
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass(frozen=True, slots=True)
class EndpointCallbacks:
    """The connector's reports to its endpoint, and its questions."""

    report: Callable[[Rejected], None]
    opened: Callable[[Link], None]
    linked: Callable[[str], bool]
    names: Names | None
    clock: Callable[[], float]


class Connector:
    """Connections that are not yet authenticated.

    When two processes connect to each other at once, the attempt of the smaller name wins. Its
    owner refuses the other attempt (`CROSSING`), and the other waits for the winning one. So
    exactly one link is opened, and no message is sent on a link that is about to be closed.
    """

    def __init__(
        self,
        identity: Identity,
        secret: bytes,
        settings: TransportSettings,
        loop: Loop,
        callbacks: EndpointCallbacks,
    ) -> None:
        self._identity = identity
        self._secret = secret
        self._settings = settings
        self._loop = loop
        self._job = job_mark(secret)
        self._report = callbacks.report
        self._opened = callbacks.opened
        self._linked = callbacks.linked

        self._names = callbacks.names
        self._clock = callbacks.clock
        self._listeners: dict[socket.socket, Address] = {}
        self._resting: list[socket.socket] = []
        """Listeners that are paused until the next check, because the process has run out of
        descriptors."""
        self._unauthenticated: dict[Link, None] = {}
        self._attempts: dict[str, Link] = {}
        self._awaited: dict[str, tuple[str, float]] = {}
        """Peers whose crossing attempt wins: the address we tried, and when theirs is overdue."""
        self.full = False
        """Whether to refuse connections because the maximum number of links is open."""

    def listen(self, address: Address) -> Address:
        """Accepts connections at an address; returns it with the port that the system chose."""
        sock, address = sockets.listen(address)
        self._listeners[sock] = address
        self._loop.watch(sock.fileno(), READ, partial(self._on_listener, sock))
        return address

    def connect(self, peer: str, address: Address) -> None:
        """Starts connecting, unless an attempt is in progress."""
        if peer in self._attempts or peer in self._awaited:
            return

        try:
            sock = sockets.dial(address, self._settings.buffer_bytes(address))
        except (OSError, BadAddress) as error:
            rejected = Rejected(peer, str(address), f"cannot connect: {error}")
            self._report(rejected)
            return

        handshake = Handshake(self._identity, self._job, expected=peer)
        self._attempts[peer] = link = Link(
            PlainStream(sock), address, peer, handshake, self._clock()
        )
        self._loop.watch(link.descriptor, WRITE, partial(self._on_link, link))

    def check_deadlines(self) -> None:
        """Ends handshakes that take too long, and resumes paused listeners."""
        now = self._clock()
        late = now - self._settings.handshake_seconds
        for link in [*self._attempts.values(), *self._unauthenticated]:
            if link.began <= late:
                # Over TCP, a computer that can be reached accepts a connection however busy its
                # processes are.
                accepted = link.phase is not Phase.CONNECTING or not isinstance(
                    link.address, TcpAddress
                )
                self._end(
                    link,
                    f"no handshake within {self._settings.handshake_seconds:g} s",
                    no_answer=accepted,
                )

        for peer, (address, until) in list(self._awaited.items()):
            if now >= until:
                del self._awaited[peer]
                reason = "it announced that it was connecting to us, but never did"
                self._report(Rejected(peer, address, reason, no_answer=True))

        for sock in self._resting:
            self._loop.watch(sock.fileno(), READ, partial(self._on_listener, sock))
        self._resting.clear()

    def close(self) -> None:
        """Closes all listeners and unauthenticated connections."""
        for link in [*self._attempts.values(), *self._unauthenticated]:
            link.close(self._loop)
        for sock, address in self._listeners.items():
            sock.close()
            sockets.remove(address)
        self._listeners.clear()

    # -- accepting ---------------------------------------------------------------------------------

    def _on_listener(self, listener: socket.socket, _: int) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, where = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Any other error concerns one connection that was closed before it was accepted.
                if error.errno in _OUT_OF_RESOURCES:
                    self._loop.forget(listener.fileno())
                    self._resting.append(listener)
                return
            here = self._listeners[listener]
            address = TcpAddress(where[0], where[1]) if isinstance(here, TcpAddress) else here
            if self.full:
                sock.close()
                rejected = Rejected(
                    None,
                    str(address),
                    f"the maximum of {self._settings.max_links} links is open",
                )
                self._report(rejected)
                continue
            count = len(self._unauthenticated)
            if count >= self._settings.max_handshakes:
                oldest = next(iter(self._unauthenticated))
                self._end(
                    oldest, f"dropped for a newer connection: {count} were in their handshake"
                )
            try:
                sockets.tune(sock, self._settings.buffer_bytes(address))
            except OSError as error:
                sock.close()
                self._report(Rejected(None, str(address), f"it was closed at once: {error}"))
                continue
            handshake = Handshake(self._identity, self._job, refusal=self._refusal)
            link = Link(PlainStream(sock), address, None, handshake, self._clock())
            self._unauthenticated[link] = None
            self._loop.watch(link.descriptor, WRITE, partial(self._on_link, link))

    def _refusal(self, peer: Identity) -> Reason | None:
        if peer.name in self._attempts and self._identity.name < peer.name:
            return Reason.CROSSING
        if self._names is None:
            return None
        return self._names.refusal(peer)

    # -- handshakes --------------------------------------------------------------------------------

    def _on_link(self, link: Link, mask: int) -> None:
        if link.phase is Phase.CLOSED:
            return
        try:
            self._go_on(link, mask)
        except Failure as failure:
            link.send_now(failure.refusal)
            crossing = failure.reason is Reason.CROSSING
            permanent = failure.reason in _PERMANENT
            later = failure.reason is Reason.NOT_NOW
            self._end(link, str(failure), report=not crossing, permanent=permanent, no_answer=later)
            if (
                crossing
                and link.initiated
                and link.peer is not None
                and not self._linked(link.peer)
            ):
                self._awaited[link.peer] = (
                    str(link.address),
                    self._clock() + self._settings.handshake_seconds,
                )
        except ssl.SSLError as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = (
                    "the process that listens there does not hold this job's secret "
                    f"({error.verify_message})"
                )
                self._end(link, reason, report=True, permanent=link.initiated)
            elif error.reason in _NOT_TLS and link.initiated:
                self._end(
                    link, f"what listens there does not speak TLS ({error.reason})", permanent=True
                )
            else:
                self._lose(link, f"the connection broke: {error}")
        except OSError as error:
            self._lose(
                link,
                f"cannot connect: {error}"
                if link.phase is Phase.CONNECTING
                else f"the connection broke: {error}",
            )

    def _go_on(self, link: Link, mask: int) -> None:
        if link.phase is Phase.CONNECTING:
            link.stream.establish()
            if isinstance(link.address, TcpAddress):
                link.secure(
                    *contexts_of(credentials_of(self._secret, node_of(self._identity.name)))
                )
            else:
                link.prove()

        if link.phase is Phase.SECURING:
            if not link.stream.establish():
                self._loop.change(link.descriptor, WRITE if link.stream.wants_write else READ)
                return
            link.prove()

        while not link.handshake.done:
            link.outgoing.send_through(link.stream)
            received = link.receive_handshake() if mask & READ else None
            if received is None:
                self._loop.change(link.descriptor, READ | WRITE if link.outgoing else READ)
                return
            if not received:
                self._lose(link, "the peer closed the connection during the handshake")
                return

        self._take_out(link)
        assert link.handshake.peer is not None
        link.peer = link.handshake.peer.name
        self._awaited.pop(link.peer, None)
        crossed = self._attempts.pop(link.peer, None)
        if crossed is not None:
            crossed.close(self._loop)
        self._opened(link)

    def _lose(self, link: Link, reason: str) -> None:
        claimed = link.handshake.peer
        # Not worth a report: a connection that never introduced itself, and an attempt that crossed
        # ours.
        quiet = claimed is None or claimed.name in self._attempts or self._linked(claimed.name)
        self._end(link, reason, report=link.initiated or not quiet)

    def _take_out(self, link: Link) -> None:
        self._unauthenticated.pop(link, None)
        if link.initiated and link.peer is not None and self._attempts.get(link.peer) is link:
            del self._attempts[link.peer]

    def _end(
        self,
        link: Link,
        reason: str,
        *,
        report: bool = True,
        permanent: bool = False,
        no_answer: bool = False,
    ) -> None:
        self._take_out(link)
        link.close(self._loop)
        if report:
            rejected = Rejected(link.peer, str(link.address), reason, permanent, no_answer)
            self._report(rejected)
