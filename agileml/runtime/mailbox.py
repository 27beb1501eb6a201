"""Messages between the processes of a job, addressed by name, over links that are opened when
needed; and what follows when links break.

`ControllerConnection` is the way back to the controller. `BrokenLinks` is about nodes that reach
the controller but not each other.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace

from agileml.core.events import ClockRepeated, Failed, Iteration, NodeLost, StopJob
from agileml.core.members import Members, heartbeat_name
from agileml.errors import BadMessage, BrokenConnection
from agileml.protocol import messages
from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.protocol.messages import Unlinked
from agileml.runtime.outbox import Outbox
from agileml.runtime.output import Printed
from agileml.runtime.rendezvous import AddressBook, Directory, LinkedRendezvous, Rendezvous
from agileml.runtime.results import (
    Acknowledged,
    Attendance,
    ModelPart,
    RepeatedIteration,
    Result,
    Settle,
)
from agileml.runtime.rights import MISCONDUCT, may_say
from agileml.transport import (
    BadAddress,
    Connected,
    Endpoint,
    Identity,
    LinkEvent,
    Lost,
    Names,
    Received,
    Rejected,
    TcpAddress,
    TransportSettings,
    new_instance,
)
from agileml.transport.codec import BUCKET, Assembly, Codec, Encoded
from agileml.transport.handshake import BLOB_CLIENT, Reason, node_of
from agileml.transport.link import PATIENT

FULL_PAUSE = 0.01
"""Seconds between attempts to send messages that a full queue holds back."""

MAX_LINKS = 20
"""Links of one node to the controller at the same time: its own, its heartbeats', and those for
blobs."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with its sender."""

    sender: str
    message: object


class Mailbox:
    """Sends and receives the messages of one process, also those to itself. Messages to a lost
    process are dropped.
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
        most = min(
            settings.limits.message_bytes, settings.helper_body_bytes + settings.limits.header_bytes
        )
        self._limits_of_helpers = replace(settings.limits, message_bytes=most)
        self._names = names
        self._shut_out: set[str] = set()
        """Nodes with which this process has no more to do."""
        self._endpoint = Endpoint(identity, rendezvous.secret, settings, names=self)
        self._codec = codec(messages)
        self._outbox = Outbox(name, self._endpoint, self._codec, settings.limits)
        self._assemblies: dict[str, Assembly] = {}
        self._own: deque[object] = deque()
        self._book = AddressBook(rendezvous)
        self._for_others: tuple[str, ...] = ()
        self._admitted: set[str] = set()
        """At the controller: the nodes that take part, which have been told of each other."""

    def open(self) -> tuple[str, ...]:
        """Starts listening, so that others can reach this process; returns the addresses."""
        listening = [
            self._endpoint.listen(address) for address in self._rendezvous.listening(self.name)
        ]
        if isinstance(self._rendezvous, LinkedRendezvous):
            # Behind a router that forwards a port, others reach this process elsewhere.
            reached = self._rendezvous.reached
            for_others = [
                reached if reached and isinstance(address, TcpAddress) else address
                for address in listening
            ]
            self._for_others = tuple(map(str, for_others))
        return tuple(map(str, listening))

    def reach(self, peer: str) -> None:
        """Starts connecting, even if there is nothing to send yet. A node must be in the address
        book first.
        """
        address = self._book.next_address(peer)
        if address is not None:
            self._endpoint.connect(peer, address)

    def send(self, to: str, message: object) -> None:
        """Sends a message, now or once there is a link."""
        if to == self.name:
            self._own.append(message)
        elif self._outbox.send(to, message) and self.name != CONTROLLER:
            self.reach(to)

    def receive(self, timeout: float) -> Iterator[Envelope | Connected | Lost | Rejected]:
        """Yields what has arrived, or arrives within `timeout` seconds."""
        if self._outbox.send_waiting():
            timeout = min(timeout, FULL_PAUSE)
        own = self._own
        self._own = deque()
        events = self._endpoint.poll(0.0 if own else timeout)
        self._outbox.note_lost(event.peer for event in events if isinstance(event, Lost))
        for message in own:
            yield Envelope(self.name, message)

        for event in events:
            decoded = self._decode(event)
            if decoded is not None:
                yield decoded

    def _decode(self, event: LinkEvent) -> Envelope | Connected | Lost | Rejected | None:
        match event:
            case Received() if node_of(event.peer) in self._shut_out:
                # It had arrived with what broke the rules.
                return None
            case Received():
                try:
                    return self._open_envelope(event)
                except (BrokenConnection, BadAddress) as error:
                    self.shut_out(event.peer, f"{MISCONDUCT} {error}")
                    return None
            case Connected():
                self._book.note_answer(event.peer)
                tells = event.peer == CONTROLLER and self._for_others
                self._outbox.opened(
                    event.peer, [Directory({self.name: self._for_others})] if tells else []
                )
            case Rejected(peer=str(peer)) if self._book.has_another(peer, event):
                self.reach(peer)
                return None
            case Rejected(peer=str(peer), no_answer=True) if (
                self._outbox.waits(peer) and peer != CONTROLLER
            ):
                # User code may hold the peer's interpreter lock for long. If it is gone,
                # `begin_epoch` ends this.
                self.reach(peer)
            case Lost() | Rejected():
                self._outbox.drop(event.peer or "")
                self._assemblies.pop(event.peer or "", None)
                if isinstance(event, Lost) and self.name == CONTROLLER:
                    self._book.forget(event.peer)
                    self._admitted.discard(event.peer)
        return event

    # -- who may be linked -------------------------------------------------------------------------

    def refusal(self, peer: Identity) -> Reason | None:
        """Why a process may not have a link under its name.

        A node only speaks to those that the controller has named: a stranger's messages do not
        reach it.
        """
        node = node_of(peer.name)
        if node in self._shut_out:
            return Reason.SHUT_OUT

        if self.name == CONTROLLER:
            if peer.name not in (node, heartbeat_name(node)) and not peer.name.startswith(
                BLOB_CLIENT
            ):
                return Reason.NAME
            others = self._endpoint.peers - {peer.name}
            if sum(node_of(linked) == node for linked in others) >= MAX_LINKS:
                return Reason.NOT_NOW
        elif (
            isinstance(self._rendezvous, LinkedRendezvous)
            and peer.name not in self._book.directory.addresses
        ):
            return Reason.NOT_NOW

        if self._names is None:
            return None
        return self._names.refusal(peer)

    def give(self, peer: Identity) -> None:
        """A process has proven its name."""
        if self._names is not None:
            self._names.give(peer)

    def shut_out(self, peer: str, reason: str) -> None:
        """Closes all links to a node, and accepts no more of them; `Lost` follows. The controller
        may come back.
        """
        node = node_of(peer)
        if node not in (CONTROLLER, JOB_LOOP):
            self._shut_out.add(node)
        for linked in [linked for linked in self._endpoint.peers if node_of(linked) == node]:
            self._endpoint.drop(linked, reason)

    def admit(self, node: str) -> None:
        """A node takes part from now on: it and the others that do are told where they listen, and
        may be linked.
        """
        if node in self._admitted:
            return

        known = self._book.directory.addresses
        others = {other: known[other] for other in sorted(self._admitted & known.keys())}
        self._admitted.add(node)
        if others:
            self.send(node, Directory(others))
        for other in others if node in known else ():
            self.send(other, Directory({node: known[node]}))

    def tell_gone(self, node: str) -> None:
        """Has all other nodes shut out a node that is lost: it may still be there, and speak to
        them.
        """
        others = self._book.directory.addresses.keys() - {node}
        self._book.forget(node)
        for other in sorted(others):
            self.send(other, Directory({node: ()}))

    def begin_epoch(self) -> None:
        """Drops the messages for peers to which there is no link yet; all are sent messages
        again."""
        self._outbox.begin_epoch()

    def _open_envelope(self, event: Received) -> Envelope | None:
        """The message of a frame, or the one that a bucket completes. Raises BrokenConnection if it
        is invalid.
        """
        encoded: Encoded | None = event.kind, event.header, event.arrays
        if event.kind == BUCKET:
            limits = self._limits if node_of(event.peer) == event.peer else self._limits_of_helpers
            assembly = self._assemblies.setdefault(event.peer, Assembly(limits))
            encoded = assembly.add(event.header, event.arrays)

        if encoded is None:
            return None

        message = self._codec.decode(*encoded)
        if not may_say(event.peer, self.name, message):
            raise BadMessage(
                f"{type(message).__name__}, which is not for it to say: {message!r:.200}"
            )
        if isinstance(message, Directory):
            self._learn(event.peer, message)
            return None

        return Envelope(event.peer, message)

    def _learn(self, sender: str, directory: Directory) -> None:
        """Notes where nodes listen. The controller passes it on once the node takes part: see
        `admit`.
        """
        if sender == CONTROLLER:
            self._book.learn(directory)
            for name, addresses in directory.addresses.items():
                if not addresses:
                    self.shut_out(name, "the job goes on without it")
                elif self._outbox.waits(name):
                    self.reach(name)
        elif self.name == CONTROLLER:
            if sender in self._book.directory.addresses:
                raise BadMessage("where it listens, for the second time")
            self._book.learn(directory)

    def finish_sending(self, to: str) -> None:
        """Waits until everything for a peer is sent, or its link is lost. What arrives meanwhile,
        `receive` returns.
        """
        while to in self._endpoint.peers:
            self._outbox.send_waiting()
            if self._endpoint.flush(FULL_PAUSE, to) and not self._outbox.waits(to):
                return

    def push(self) -> None:
        """Sends at once what the links can take, because this process may not call `receive` for a
        while.
        """
        self._endpoint.flush(0.0)

    def wake(self) -> None:
        """Interrupts a waiting `receive`; may be called from any thread."""
        self._endpoint.wake()

    def close(self, seconds: float = 0.0) -> None:
        """Sends what is queued, for at most this many seconds, and closes."""
        self._endpoint.flush(seconds)
        self._endpoint.close()


_RUNTIME_MESSAGES = (
    Iteration, ClockRepeated, RepeatedIteration, Acknowledged, Failed, NodeLost, ModelPart, Result, Attendance,
    Directory, Printed, Settle, StopJob,
)  # fmt: skip


def codec(others: Sequence[type] = ()) -> Codec:
    """A codec for everything that the processes of a job send each other."""
    protocol = [
        kind for kind in vars(messages).values() if isinstance(kind, type) and is_dataclass(kind)
    ]
    return Codec([*protocol, *_RUNTIME_MESSAGES, *others])


FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between attempts to reach the controller; each pause is twice as long as the one
before."""


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
            self._pause = FIRST_PAUSE
            self._away_since = None
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
        if self._away_since is None:
            return 0.0
        return now - self._away_since

    def timeout(self, now: float, longest: float) -> float:
        """The longest time to wait for messages without being late for the next attempt."""
        if self._next is None:
            return longest
        return max(0.0, min(longest, self._next - now))


class BrokenLinks:
    """Broken links between nodes that are both alive: one of them has to go, or the job would wait
    for ever.

    What was in flight on them is lost, so a recovery must follow. The end of a process or a machine
    breaks links, too; `grace` is the time in which that becomes known.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._epoch = 0
        self._reports: dict[tuple[str, str], tuple[float, Unlinked]] = {}
        """By link that broke in this epoch, when and what was reported."""
        self._believed: set[str] = set()
        """Nodes because of whose word another node was given up. A second word counts against
        them."""

    def report(self, unlinked: Unlinked, epoch: int, now: float) -> None:
        """Notes a link; the first report of an epoch counts."""
        self._turn(epoch)
        self._reports.setdefault((unlinked.node, unlinked.peer), (now, unlinked))

    def victim(self, members: Members, epoch: int, now: float) -> tuple[str, str] | None:
        """The node to give up, and why: the one with most broken links; of two, the one that the
        other accuses of misconduct; of two transient nodes the younger.

        Which of two nodes lies cannot be told: a node can have one other given up, and is the next
        itself.
        """
        self._turn(epoch)
        for pair in list(self._reports):
            if not all(map(members.alive, pair)):
                del self._reports[pair]
        overdue = [pair for pair, (at, _) in self._reports.items() if now - at > self._grace]
        if not overdue:
            return None

        # Both ends may have reported a link.
        links = {frozenset(pair) for pair in self._reports}
        broken = Counter(name for link in links for name in link)
        accusers = {pair for pair, (_, report) in self._reports.items() if report.misconduct}
        guilty = {node if node in self._believed else peer for node, peer in accusers}
        worst = {}
        for name in {name for pair in overdue for name in pair}:
            member = members[name]
            worst[name] = broken[name], name in guilty, not member.reliable, member.rank
        victim = max(worst, key=worst.__getitem__)

        self._believed.update(node for node, peer in accusers if peer == victim)
        node, peer = next(pair for pair in overdue if victim in pair)
        _, report = self._reports[node, peer]
        return victim, f"no link between {node} and {peer}: {report.reason}"

    def _turn(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            self._reports.clear()
