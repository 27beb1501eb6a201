"""A process's network endpoint: links to peers by name, frames in and out.

An endpoint belongs to one thread, which calls `poll` repeatedly; only `wake` may be called from
another. Only `poll` and `flush` wait. On each link, messages arrive in the order of `send`. "Sent"
means handed to the operating system: whether the peer has received a message is known only from its
answer.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from agileml.errors import BadAddress, BadFrame, NotConnected, QueueFull
from agileml.transport.addresses import Address
from agileml.transport.connector import Connector, EndpointCallbacks
from agileml.transport.framing import Array, BufferPool, FrameReader, encode, scratch_for
from agileml.transport.handshake import Identity, Names, check_secret, node_of
from agileml.transport.link import (
    Connected,
    Link,
    LinkEvent,
    Lost,
    Phase,
    Received,
    TransportSettings,
)
from agileml.transport.sockets import READ, WRITE, Loop


class Endpoint:
    """This process's links. Peers know it by `identity.name`; all processes of a job share the
    `secret`.
    """

    def __init__(
        self,
        identity: Identity,
        secret: bytes,
        settings: TransportSettings | None = None,
        *,
        names: Names | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`names` says which process owns a name; without it, a new process replaces the one before
        it.
        """
        check_secret(secret)
        self.identity = identity
        self._names = names
        self._settings = settings = settings or TransportSettings()
        self._clock = clock
        self._pool = BufferPool(settings.pooled_bytes)
        self._scratch = scratch_for(settings.limits)
        self._links: dict[str, Link] = {}
        self._written: dict[Link, None] = {}
        """Links with new data to send."""
        self._buffered: dict[Link, None] = {}
        """Links whose TLS layer holds decrypted data that the selector does not see."""
        self._events: list[LinkEvent] = []
        self._check_every = min(settings.handshake_seconds, settings.stall_seconds) / 5
        self._next_check = clock()
        self._loop = Loop()
        callbacks = EndpointCallbacks(
            self._events.append, self._opened, self._links.__contains__, names, clock
        )
        self._connector = Connector(identity, secret, settings, self._loop, callbacks)

    def listen(self, address: Address) -> Address:
        """Accepts connections at an address; returns it with the port that the system chose."""
        return self._connector.listen(address)

    def connect(self, peer: str, address: Address) -> None:
        """Starts connecting; `Connected` or `Rejected` follows, unless a link or an attempt exists
        already.
        """
        if peer == self.identity.name:
            raise BadAddress(f"{peer!r} is this process itself: it cannot connect to itself")
        if peer not in self._links:
            self._connector.connect(peer, address)

    def send(self, peer: str, kind: str, header: bytes = b"", arrays: Sequence[Array] = ()) -> int:
        """Queues a message and returns the mark that `sent(peer)` reaches once it is sent.

        Arrays are sent from their own memory: do not change them before that. Only arrays that are
        not contiguous or not little-endian are copied. Raises QueueFull if too much is queued for
        this peer already.
        """
        link = self._links.get(peer)
        if link is None:
            raise NotConnected(f"{kind} to {peer!r}: no link is open")

        pieces, nbytes = encode(kind, header, arrays, self._settings.limits)
        waiting = len(link.outgoing)
        most = self._settings.max_queued_bytes
        if waiting and waiting + nbytes > most:
            raise QueueFull(
                f"{kind} to {peer!r}: {waiting:,} bytes are queued, {nbytes:,} more exceed the "
                f"limit of {most:,}"
            )

        self._written[link] = None
        return link.outgoing.add(pieces, nbytes)

    def sent(self, peer: str) -> int:
        """The link's progress: messages whose mark is not above it are sent, and their arrays may
        be changed again.

        A lost link has released all arrays.
        """
        return self._link(peer).outgoing.sent

    @property
    def peers(self) -> frozenset[str]:
        """The names of all linked peers."""
        return frozenset(self._links)

    def poll(self, timeout: float | None = None) -> list[LinkEvent]:
        """Sends and receives until an event occurs, `wake` is called or `timeout` seconds have
        passed.
        """
        deadline = self._deadline(timeout)
        self._turn(timeout)
        self._turns(deadline, lambda: bool(self._events) or self._loop.woken)
        self._loop.woken = False
        events = self._events.copy()
        self._events.clear()
        return events

    def flush(self, timeout: float | None = None, peer: str | None = None) -> bool:
        """Sends until nothing is queued (for this peer, if given); False if `timeout` seconds have
        passed before.

        What happens meanwhile, `poll` reports afterwards.
        """

        def done() -> bool:
            links = self._links.values() if peer is None else filter(None, [self._links.get(peer)])
            return not any(link.outgoing for link in links)

        deadline = self._deadline(timeout)
        # Queued data is written at the start of a turn, so this turn need not wait.
        self._turn(0.0)
        return self._turns(deadline, done)

    def wake(self) -> None:
        """Makes `poll` return; may be called from any thread at any time."""
        self._loop.wake()

    def drop(self, peer: str, reason: str) -> None:
        """Closes the link to a misbehaving peer; `Lost` follows."""
        self._end(self._link(peer), reason)

    def close(self) -> None:
        """Closes all links at once. Call `flush` before if the last messages matter."""
        for link in self._links.values():
            link.close(self._loop)
        self._links.clear()
        self._connector.close()
        self._loop.close()

    # -- turns -------------------------------------------------------------------------------------

    def _deadline(self, timeout: float | None) -> float | None:
        if timeout is None:
            return None
        return self._clock() + timeout

    def _turns(self, deadline: float | None, done: Callable[[], bool]) -> bool:
        """Runs turns until `done`; False if the deadline passes before."""
        while not done():
            wait = None if deadline is None else deadline - self._clock()
            if wait is not None and wait <= 0:
                return False
            self._turn(wait)
        return True

    def _turn(self, wait: float | None) -> None:
        written = self._written
        self._written = {}
        for link in written:
            self._guarded(link, self._write)
        until_look = max(self._next_check - self._clock(), 0.0)
        wait = until_look if wait is None else max(min(wait, until_look), 0.0)
        self._loop.turn(0.0 if self._buffered or self._events else wait)
        buffered = self._buffered
        self._buffered = {}
        for link in buffered:
            self._guarded(link, self._read)

        if self._clock() >= self._next_check:
            now = self._clock()
            self._next_check = now + self._check_every
            self._connector.check_deadlines()
            seconds = self._settings.stall_seconds
            for link in list(self._links.values()):
                if link.stalls(now, seconds):
                    self._end(
                        link, f"it started a message and then sent too little for {seconds:g} s"
                    )

    # -- links -------------------------------------------------------------------------------------

    def _opened(self, link: Link) -> None:
        assert link.peer is not None
        assert link.handshake.peer is not None
        if self._names is not None:
            # Before another process of this name can complete its handshake.
            self._names.give(link.handshake.peer)

        former = self._links.get(link.peer)
        if former is not None:
            # A peer connects again only after it has lost its side of the earlier link.
            self._drain(former, "it connected again")

        limits = self._settings.limits
        if node_of(link.peer) != link.peer:
            limits = replace(
                limits, body_bytes=min(limits.body_bytes, self._settings.helper_body_bytes)
            )

        link.phase = Phase.OPEN
        link.reader = FrameReader(limits, self._pool, self._scratch)
        self._links[link.peer] = link
        self._connector.full = len(self._links) >= self._settings.max_links
        self._events.append(Connected(link.peer, link.handshake.peer.instance))
        self._loop.forget(link.descriptor)
        self._loop.watch(link.descriptor, READ, partial(self._on_link, link))
        self._written[link] = self._buffered[link] = None

    def _on_link(self, link: Link, mask: int) -> None:
        if mask & READ:
            self._guarded(link, self._read)
        if mask & WRITE:
            self._guarded(link, self._write)

    def _guarded(self, link: Link, action: Callable[[Link], None]) -> None:
        """Runs an action on a link; an error closes this link only."""
        if link.phase is Phase.CLOSED:
            return
        try:
            action(link)
        except BadFrame as error:
            self._end(link, f"it sent {error}")
        except OSError as error:
            self._drain(link, f"the connection broke: {error}")

    def _read(self, link: Link) -> None:
        frames, ended = link.receive()
        assert link.peer is not None
        self._events += [Received(link.peer, *frame) for frame in frames]
        if ended:
            self._end(
                link,
                "it ended the connection in the middle of a message"
                if link.unfinished
                else "it went away",
            )
        elif link.stream.holds_data:
            self._buffered[link] = None

    def _write(self, link: Link) -> None:
        link.outgoing.send_through(link.stream)
        self._loop.change(link.descriptor, READ | WRITE if link.outgoing else READ)

    def _drain(self, link: Link, reason: str) -> None:
        """Closes a link that can no longer be written to, after reading what has arrived on it."""
        try:
            received = -1
            while link.phase is Phase.OPEN and received < link.received:
                received = link.received
                self._read(link)
        except (BadFrame, OSError):
            # The first error is the one to report.
            pass
        if link.phase is not Phase.CLOSED:
            self._end(link, reason)

    def _end(self, link: Link, reason: str) -> None:
        assert link.peer is not None
        link.close(self._loop)
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
        self._connector.full = False
        self._events.append(Lost(link.peer, reason))

    def _link(self, peer: str) -> Link:
        link = self._links.get(peer)
        if link is None:
            raise NotConnected(f"{peer!r}: no link is open")
        return link
