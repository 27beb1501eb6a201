"""The simulated network: links that keep their order, network cards that take time, delays that
differ.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from math import exp

import numpy as np

from agileml.params.deltas import nbytes
from agileml.params.layout import state_bytes
from agileml.protocol.messages import Collected, Handover, Patch, Push, Restore, Snapshot
from agileml.runtime.mailbox import codec
from agileml.transport import FrameLimits
from agileml.transport.codec import Assembly, Encoded, split

HEADER_BYTES = 64
"""Bytes of a message without its arrays."""


@dataclass(frozen=True, slots=True)
class MessageBucket:
    """A part of a message that is larger than a frame; `whole` is the message itself, for observers
    of a simulation.
    """

    frame: Encoded
    whole: object


_CARRIERS = {Push, Snapshot, Patch, Restore, Collected, Handover, MessageBucket}
"""Messages with arrays. Most have none."""

_OF_SERVERS = (Snapshot, Patch, Handover)


def size_of(message: object) -> int:
    """Bytes of a message: the arrays it carries, and a header."""
    if type(message) not in _CARRIERS:
        return HEADER_BYTES

    # Pushes and snapshots come first: nearly all messages with arrays are one of them.
    size = HEADER_BYTES
    if isinstance(message, Push):
        size += sum([nbytes(entry.delta) for part in message.parts for entry in part.entries])
    elif isinstance(message, (Snapshot, Patch)):
        size += nbytes(message.values)
    elif isinstance(message, (Restore, Collected)):
        size += state_bytes(message.version.state)
    elif isinstance(message, Handover):
        size += sum(nbytes(entry.delta) for push in message.pending for entry in push.entries)
        size += sum(state_bytes(version.state) for version in message.versions)
    elif isinstance(message, MessageBucket):
        size += sum(piece.nbytes for piece in message.frame[2])

    return size


@dataclass(frozen=True, slots=True)
class Network:
    """The bandwidth of a node's card in bytes per second and direction (0: unlimited), latency, and
    random delay.

    `jitter` is the mean of an exponential delay, drawn for each message; messages of one link still
    keep their order. `skew` makes links differ: each multiplies its jitter by a log-normal factor
    with this standard deviation. `weigh` returns the bytes of a message, so that a simulated large
    job need not hold its arrays.
    """

    bytes_per_second: float = 0.0
    latency: float = 0.0001
    jitter: float = 0.0
    skew: float = 0.0
    weigh: Callable[[object], int] = size_of


@dataclass(slots=True)
class Wire:
    """Computes when messages arrive. A card sends one message at a time, and receives one at a
    time.

    `slow`: nodes whose server has only a fraction of the card's bandwidth, for pushes to it and
    what it sends.
    """

    network: Network
    rng: np.random.Generator
    slow: dict[str, float] = field(default_factory=dict)
    _sending: dict[str, float] = field(default_factory=dict)
    _receiving: dict[str, float] = field(default_factory=dict)
    _last: dict[tuple[str, str], float] = field(default_factory=dict)
    _factors: dict[tuple[str, str], float] = field(default_factory=dict)

    def reached(
        self, sender: str, receiver: str, message: object, size: int, now: float
    ) -> tuple[float, float]:
        """When a message of this size that is sent now starts to arrive, and how many seconds
        receiving it takes.
        """
        network = self.network
        at = now + network.latency
        seconds = 0.0
        if network.jitter and sender != receiver:
            delay = self.rng.exponential(network.jitter)
            if network.skew and (sender, receiver) not in self._factors:
                self._factors[sender, receiver] = exp(network.skew * self.rng.standard_normal())
            at += delay * self._factors.get((sender, receiver), 1.0)

        if network.bytes_per_second and sender != receiver:
            seconds = (
                size if network.weigh is size_of else network.weigh(message)
            ) / network.bytes_per_second
            sends = receives = 1.0
            if self.slow:
                kind = type(message.whole if isinstance(message, MessageBucket) else message)
                sends = self.slow.get(sender, 1.0) if kind in _OF_SERVERS else 1.0
                receives = self.slow.get(receiver, 1.0) if kind is Push else 1.0
            left = self._sending.get(sender, now)
            if left > now:
                at += left - now
            else:
                left = now
            self._sending[sender] = left + seconds / sends
            seconds /= min(sends, receives)

        link = (sender, receiver)
        last = self._last.get(link, at)
        if last > at:
            return last, seconds

        self._last[link] = at
        return at, seconds

    def received(self, receiver: str, seconds: float, now: float) -> float:
        """When a message that starts to arrive now has been received."""
        before = self._receiving.get(receiver, now)
        done = self._receiving[receiver] = (before if before > now else now) + seconds
        return done


Callback = Callable[[], None]


@dataclass(slots=True)
class VirtualTime:
    """Events to come, in the order of time; those of the same time in the order in which they were
    added.

    Nodes in step have thousands of events at the same moment: only the moments are sorted.
    """

    now: float = 0.0
    stops: bool = False
    """Set by an event that is the last for now."""
    _moments: list[float] = field(default_factory=list)
    _coming: dict[float, deque[Callback]] = field(default_factory=dict)

    def at(self, when: float, act: Callback) -> None:
        """Calls `act` at a virtual time."""
        acts = self._coming.get(when)
        if acts is None:
            self._coming[when] = deque((act,))
            heapq.heappush(self._moments, when)
        else:
            acts.append(act)

    def later(self, seconds: float, act: Callback) -> None:
        """Calls `act` after some seconds."""
        self.at(self.now + seconds, act)

    def coming(self) -> Iterator[Callback]:
        """The events to come, in order."""
        return chain.from_iterable(self._coming[when] for when in sorted(self._moments))

    def advance(self, *, moment: bool = False) -> None:
        """Goes on to the next event; with `moment`, to all of its moment, also added ones, up to
        one that `stops`.
        """
        self.stops = not moment
        self.now = self._moments[0]
        acts = self._coming[self.now]
        acts.popleft()()
        while acts and not self.stops:
            acts.popleft()()
        if not acts:
            del self._coming[heapq.heappop(self._moments)]


class Messages:
    """Messages in flight between processes. `deliver` takes a sender, a receiver and a whole
    message.
    """

    def __init__(
        self,
        time: VirtualTime,
        wire: Wire,
        limits: FrameLimits,
        deliver: Callable[[str, str, object], None],
    ) -> None:
        self.delivered = 0
        self.last: tuple[str, str, object] | None = None
        """The last message, or bucket of one, that was delivered."""
        self._time = time
        self._wire = wire
        self._limits = limits
        self._deliver = deliver
        self._codec = codec()
        self._assemblies: dict[tuple[str, str], Assembly] = {}

    def send(self, sender: str, receiver: str, message: object) -> None:
        """Puts a message on the wire, in buckets if it is larger than a frame."""
        size = size_of(message) if sender != receiver else 0
        if size > self._limits.body_bytes and not isinstance(message, MessageBucket):
            for frame in split(self._codec.encode(message), self._limits):
                self.send(sender, receiver, MessageBucket(frame, message))
            return

        at, seconds = self._wire.reached(sender, receiver, message, size, self._time.now)
        self._time.at(at, _Delivery(self, sender, receiver, message, seconds))

    def in_flight(self) -> Iterator[tuple[str, str, object]]:
        """Messages in flight: sender, receiver, message."""
        for act in self._time.coming():
            if isinstance(act, _Delivery) and not act.lost:
                message = act.message
                yield (
                    act.sender,
                    act.receiver,
                    message.whole if isinstance(message, MessageBucket) else message,
                )

    def lose(self, process: str) -> None:
        """Loses all messages in flight from or to a process."""
        for act in self._time.coming():
            if isinstance(act, _Delivery) and process in (act.sender, act.receiver):
                act.lost = True

    def cut(self, sender: str, lose: Callable[[object], bool], receiver: str = "") -> None:
        """Breaks a sender's links, or one of them: on each, messages are lost from the first that
        `lose` selects.
        """
        broken: set[str] = set()
        # In the order of each link: first the messages that the receiver's card is already
        # receiving.
        in_flight = [
            act
            for act in self._time.coming()
            if isinstance(act, _Delivery)
            and act.sender == sender
            and receiver in ("", act.receiver)
        ]

        for act in sorted(in_flight, key=lambda act: act.seconds > 0):
            if act.receiver in broken or lose(act.message):
                broken.add(act.receiver)
                act.lost = True

    def arrive(self, sender: str, receiver: str, message: object) -> None:
        """A message, or a bucket of one, has arrived."""
        self.delivered += 1
        self.last = (sender, receiver, message)
        if isinstance(message, MessageBucket):
            _, header, pieces = message.frame
            encoded = self._assemblies.setdefault((sender, receiver), Assembly(self._limits)).add(
                header, pieces
            )
            message = None if encoded is None else self._codec.decode(*encoded)
            if message is None:
                return
            self.last = (sender, receiver, message)

        self._deliver(sender, receiver, message)


@dataclass(slots=True)
class _Delivery:
    """A message in flight; `seconds` is how long receiving it takes."""

    messages: Messages
    sender: str
    receiver: str
    message: object
    seconds: float
    lost: bool = False

    def __call__(self) -> None:
        if self.lost:
            return
        messages = self.messages
        if self.seconds:
            # It starts to arrive, and is delivered once the receiver's card has received it.
            at = messages._wire.received(self.receiver, self.seconds, messages._time.now)
            self.seconds = 0.0
            messages._time.at(at, self)
        else:
            messages.arrive(self.sender, self.receiver, self.message)
