"""Messages between the processes of a job, addressed by name, over links that are opened when needed."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass

from agileml.core.events import ClockRepeated, Failed, Iteration, NodeLost, StopJob
from agileml.errors import BrokenConnection
from agileml.protocol import messages
from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.protocol.messages import Version
from agileml.runtime.blob_link import BLOB_MESSAGES
from agileml.runtime.broken_links import Unlinked
from agileml.runtime.output import Printed
from agileml.runtime.rendezvous import AddressBook, Directory, ListeningAt, Rendezvous
from agileml.transport import (
    Address,
    BadAddress,
    Connected,
    Endpoint,
    Identity,
    LinkEvent,
    Lost,
    Names,
    NotConnected,
    QueueFull,
    Received,
    Rejected,
    TransportSettings,
    new_instance,
)
from agileml.transport.buckets import BUCKET, Assembly, Encoded, split
from agileml.transport.codec import Codec
from agileml.transport.settings import PATIENT

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between attempts to reach the controller; each pause is twice as long as the one before."""

FULL_PAUSE = 0.01
"""Seconds between attempts to send messages that a full queue holds back."""


MAX_WAITING_OUTPUT = 256
"""Messages that may wait for the job loop; if more do, the output of nodes is left out."""


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A partition of the finished model, for the job loop."""

    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class RepeatedIteration:
    """A finished clock that an earlier controller may have reported already."""

    iteration: Iteration


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """From the job loop: every clock up to this one has arrived and need not be repeated."""

    clock: int


@dataclass(frozen=True, slots=True)
class Settle:
    """From the job loop: answer with `Settled` once what has arrived before was handled."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to `Settle`."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is done, and every partition of its model has been sent before this message."""

    clock: int
    evictions: int
    failures: int
    loss: float | None = None
    tally: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Attendance:
    """From the controller to the job loop: the nodes that are linked to it, and the chunks that workers reported."""

    nodes: tuple[str, ...]
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with its sender."""

    sender: str
    message: object


@dataclass(slots=True)
class SentInPart:
    """A message in frames; `next` is the first frame that is not queued yet."""

    next: Encoded | None
    others: Iterator[Encoded]


class Mailbox:
    """Sends and receives the messages of one process, also those to itself. Messages to a lost process are dropped.

    A message that is larger than a frame is sent in buckets.

    Messages wait while a peer's queue is full. Only the controller never waits for a node: a node that leaves so much
    unread counts as lost, and its link is closed.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        name: str,
        settings: TransportSettings | None = None,
        *,
        instance: str = "",
        names: Names | None = None,
        messages: Sequence[type] = (),
    ) -> None:
        """`instance` tells processes of one name apart; `names` says which of them owns it.

        `messages` are kinds of messages that only some jobs have.
        """
        self.name = name
        self._rendezvous = rendezvous
        settings = settings or PATIENT
        identity = Identity(name, instance or new_instance(), rendezvous.version)
        self._limits = settings.limits
        self._endpoint = Endpoint(identity, rendezvous.secret, settings, names=names)
        self._codec = codec(messages)
        self._assemblies: dict[str, Assembly] = {}
        self._waiting: dict[str, list[object]] = {}
        self._own: deque[object] = deque()
        self._book = AddressBook()
        self._listening: tuple[str, ...] = ()
        self._failed: dict[str, int] = {}
        """The number of a peer's addresses that did not answer."""
        self._gaps: set[str] = set()
        """Nodes to which messages were lost with a link: they are sent nothing more of that epoch."""

    def open(self) -> None:
        """Starts listening, so that others can reach this process."""
        self._listening = tuple(
            str(self._endpoint.listen(address)) for address in self._rendezvous.listening(self.name)
        )

    def reach(self, peer: str) -> None:
        """Starts connecting, even if there is nothing to send yet. A node must be in the address book first."""
        addresses = self._addresses(peer)
        if addresses:
            self._endpoint.connect(peer, addresses[self._failed.get(peer, 0) % len(addresses)])

    def _addresses(self, peer: str) -> Sequence[Address]:
        known = self._rendezvous.addresses(peer)
        return known or self._book.addresses(peer, self._rendezvous.addresses(CONTROLLER)[0])

    def send(self, to: str, message: object) -> None:
        """Sends a message, now or once there is a link."""
        if isinstance(message, Printed) and len(self._waiting.get(to, ())) >= MAX_WAITING_OUTPUT:
            return
        if to in self._gaps:
            return
        if to == self.name:
            self._own.append(message)
        elif to in self._waiting:
            self._waiting[to].append(message)
        elif to in self._endpoint.peers:
            self._send_all(to, [message])
        elif self._may_wait(to):
            self._waiting[to] = [message]
            if self.name != CONTROLLER:
                self.reach(to)

    def _send_all(self, to: str, pending: list[object]) -> None:
        """Queues messages on the link as far as there is room; the others wait."""
        for number, message in enumerate(pending):
            begun = message if isinstance(message, SentInPart) else self._cut(message)
            try:
                while begun.next is not None:
                    self._endpoint.send(to, *begun.next)
                    begun.next = next(begun.others, None)
            except QueueFull as error:
                if self.name == CONTROLLER and to != JOB_LOOP:
                    self._endpoint.drop(to, f"it does not read its messages: {error}")
                else:
                    self._waiting[to] = [begun, *pending[number + 1 :]]
                return
            except NotConnected:
                # The link was opened and lost before its opening was reported here; `Lost` comes next.
                return

    def _cut(self, message: object) -> SentInPart:
        frames = split(self._codec.encode(message), self._limits)
        return SentInPart(next(frames), frames)

    def _send_waiting(self) -> bool:
        """Tries again where there is a link; whether messages still wait for room."""
        linked = [to for to in self._waiting if to in self._endpoint.peers]
        for to in linked:
            self._send_all(to, self._waiting.pop(to))
        return any(to in self._waiting for to in linked)

    def _may_wait(self, to: str) -> bool:
        """Whether a message is still useful once a link is open.

        Messages between nodes and controller are not: after a lost link both start over.
        """
        return to == JOB_LOOP if self.name == CONTROLLER else to != CONTROLLER

    def receive(self, timeout: float) -> Iterator[Envelope | Connected | Lost | Rejected]:
        """Yields what has arrived, or arrives within `timeout` seconds."""
        if self._send_waiting():
            timeout = min(timeout, FULL_PAUSE)
        own, self._own = self._own, deque()
        events = self._endpoint.poll(0.0 if own else timeout)
        # Before any of what arrived is answered, over a link that may be a new one.
        self._gaps.update(event.peer for event in events if isinstance(event, Lost) and self._may_have_gaps(event.peer))
        for message in own:
            yield Envelope(self.name, message)
        for event in events:
            decoded = self._decode(event)
            if decoded is not None:
                yield decoded

    def _decode(self, event: LinkEvent) -> Envelope | Connected | Lost | Rejected | None:
        match event:
            case Received():
                try:
                    return self._open_envelope(event)
                except (BrokenConnection, BadAddress) as error:
                    if event.peer in self._endpoint.peers:
                        self._endpoint.drop(event.peer, f"it sent {error}")
                    return None
            case Connected():
                self._failed.pop(event.peer, None)
                if event.peer == CONTROLLER and self._listening and not self._rendezvous.addresses(self.name):
                    self._send_all(CONTROLLER, [ListeningAt(self.name, self._listening)])
                self._send_all(event.peer, self._waiting.pop(event.peer, []))
            case Rejected(peer=str(peer)) if self._tries_again(peer, event):
                return None
            case Rejected(peer=str(peer), no_answer=True) if peer in self._waiting and peer != CONTROLLER:
                # User code may hold the peer's interpreter lock for long. If it is gone, `begin_epoch` ends this.
                self.reach(peer)
            case Lost() | Rejected():
                self._drop_waiting(event.peer or "")
                self._assemblies.pop(event.peer or "", None)
                if isinstance(event, Lost) and self.name == CONTROLLER:
                    self._book.forget(event.peer)
        return event

    def _drop_waiting(self, peer: str) -> None:
        if self._waiting.pop(peer, None) and self._may_have_gaps(peer):
            self._gaps.add(peer)

    def _may_have_gaps(self, peer: str) -> bool:
        """Whether messages depend on those before them: with the controller both sides start over instead."""
        return self.name not in (CONTROLLER, JOB_LOOP) and peer != CONTROLLER

    def begin_epoch(self) -> None:
        """Drops the messages for peers to which there is no link yet; all are sent messages again."""
        self._gaps.clear()
        self._waiting = {to: pending for to, pending in self._waiting.items() if to in self._endpoint.peers}

    def _open_envelope(self, event: Received) -> Envelope | None:
        """The message of a frame, or the one that a bucket completes. Raises BrokenConnection if it is invalid."""
        encoded: Encoded | None = event.kind, event.header, event.arrays
        if event.kind == BUCKET:
            assembly = self._assemblies.setdefault(event.peer, Assembly(self._limits))
            encoded = assembly.add(event.header, event.arrays)
        if encoded is None:
            return None
        message = self._codec.decode(*encoded)
        if isinstance(message, ListeningAt | Directory):
            self._learn(event.peer, message)
            return None
        return Envelope(event.peer, message)

    def _tries_again(self, peer: str, rejected: Rejected) -> bool:
        """Whether a peer has another address, to which this process now connects."""
        failed = self._failed.get(peer, 0) + 1
        if rejected.permanent or failed >= len(self._addresses(peer)):
            self._failed.pop(peer, None)
            return False
        self._failed[peer] = failed
        self.reach(peer)
        return True

    def _learn(self, sender: str, message: ListeningAt | Directory) -> None:
        """Notes where nodes listen. The controller passes it on before any message that names the node."""
        if sender == CONTROLLER and isinstance(message, Directory):
            self._book.learn(message)
            for name in message.addresses:
                if name in self._waiting:
                    self.reach(name)
        elif self.name == CONTROLLER and isinstance(message, ListeningAt) and message.node == sender:
            news = Directory({sender: message.addresses})
            for peer in self._book.directory.addresses:
                if peer != sender:
                    self.send(peer, news)
            self._book.learn(news)
            self.send(sender, self._book.directory)

    def finish_sending(self, to: str) -> None:
        """Waits until everything for a peer is sent, or its link is lost. What arrives meanwhile, `receive` returns."""
        while to in self._endpoint.peers:
            self._send_waiting()
            if self._endpoint.flush(FULL_PAUSE, to) and to not in self._waiting:
                return

    def push(self) -> None:
        """Sends at once what the links can take, because this process may not call `receive` for a while."""
        self._endpoint.flush(0.0)

    def wake(self) -> None:
        """Interrupts a waiting `receive`; may be called from any thread."""
        self._endpoint.wake()

    def close(self, seconds: float = 0.0) -> None:
        """Sends what is queued, for at most this many seconds, and closes."""
        self._endpoint.flush(seconds)
        self._endpoint.close()


_RUNTIME_MESSAGES = (
    Iteration, ClockRepeated, RepeatedIteration, Acknowledged, Failed, NodeLost, ModelPart, JobEnded, Attendance,
    ListeningAt, Directory, Printed, Settle, Settled, StopJob, Unlinked,
)  # fmt: skip


class ControllerConnection:
    """Keeps a link to the controller open: reconnects, with growing pauses, whenever it is lost."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._pause = FIRST_PAUSE
        self._next: float | None = time.monotonic()
        self._away_since: float | None = self._next

    def maintain(self, now: float) -> None:
        """Connects if the pause after the last failure is over."""
        if self._next is not None and now >= self._next:
            self._next = None
            self._mailbox.reach(CONTROLLER)

    def handle(self, event: Connected | Lost | Rejected, now: float) -> bool:
        """Notes a change of the link; True if it has just been established."""
        if event.peer != CONTROLLER:
            return False
        if isinstance(event, Connected):
            self._pause, self._away_since = FIRST_PAUSE, None
            return True
        self._away_since = now if self._away_since is None else self._away_since
        self._next = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return False

    @property
    def linked(self) -> bool:
        """Whether there is a link."""
        return self._away_since is None

    def away(self, now: float) -> float:
        """Seconds without a link."""
        return 0.0 if self._away_since is None else now - self._away_since

    def timeout(self, now: float, longest: float) -> float:
        """The longest time to wait for messages without being late for the next attempt."""
        return longest if self._next is None else max(0.0, min(longest, self._next - now))


def codec(others: Sequence[type] = ()) -> Codec:
    """A codec for everything that the processes of a job send each other."""
    protocol = [kind for kind in vars(messages).values() if isinstance(kind, type) and is_dataclass(kind)]
    return Codec([*protocol, *_RUNTIME_MESSAGES, *BLOB_MESSAGES, *others])
