"""Letters between the processes of a job: messages by name, over links that come about when they are needed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass

from agileml.core.events import Failed, Iteration, NodeLost
from agileml.protocol import messages
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Version
from agileml.runtime.rendezvous import Rendezvous
from agileml.transport import (
    BadMessage,
    Connected,
    Endpoint,
    Event,
    Identity,
    Lost,
    QueueFull,
    Received,
    Rejected,
    Settings,
)
from agileml.transport.codec import Codec

PROVIDER = "provider"
"""Who gives machines and takes them away: the process that runs the job."""

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between attempts to reach the controller."""

FULL_PAUSE = 0.01
"""Seconds between looks whether there is room again for what waits."""


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A partition of the finished model, for the provider."""

    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class Again:
    """What may have been said by the controller before this one, of a clock."""

    iteration: Iteration


@dataclass(frozen=True, slots=True)
class Heard:
    """From the provider: every clock up to this one has been told, and need not be told again."""

    clock: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The job is done, and every partition of its model has been sent."""

    clock: int
    evictions: int
    failures: int


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message that came."""

    sender: str
    message: object


class Mailbox:
    """The mail of one process. A envelope to itself arrives, too; one to a process that is gone is dropped.

    What a peer has no room for waits. Only the controller does not wait for nodes: one that leaves so much of its mail
    unread is as good as gone, and hung up on.
    """

    def __init__(self, rendezvous: Rendezvous, name: str, settings: Settings | None = None) -> None:
        self.name = name
        self._rendezvous = rendezvous
        self._endpoint = Endpoint(Identity(name), rendezvous.secret, settings or Settings())
        self._codec = Codec([*_messages(), Iteration, Again, Heard, Failed, NodeLost, ModelPart, Ended])
        self._waiting: dict[str, list[object]] = {}
        self._own: deque[object] = deque()

    def open(self) -> None:
        """From here on others can reach this process."""
        self._endpoint.listen(self._rendezvous.address(self.name))

    def reach(self, peer: str) -> None:
        """Begins to connect, for links that others wait for."""
        self._endpoint.connect(peer, self._rendezvous.address(peer))

    def send(self, to: str, message: object) -> None:
        """Sends, now or once there is a link."""
        if to == self.name:
            self._own.append(message)
        elif to in self._waiting:
            self._waiting[to].append(message)
        elif to in self._endpoint.peers:
            self._hand_over(to, [message])
        elif self._may_wait(to):
            self._waiting[to] = [message]
            if self.name != CONTROLLER:
                self.reach(to)

    def _hand_over(self, to: str, envelopes: list[object]) -> None:
        """Gives envelopes to the link; those for which it has no room wait."""
        for number, message in enumerate(envelopes):
            try:
                self._endpoint.send(to, *self._codec.encode(message))
            except QueueFull as error:
                if self.name == CONTROLLER and to != PROVIDER:
                    self._endpoint.drop(to, f"it does not read what it is sent: {error}")
                else:
                    self._waiting[to] = envelopes[number:]
                return

    def _hand_over_waiting(self) -> bool:
        """Tries again where there is a link; whether envelopes still wait for room."""
        linked = [to for to in self._waiting if to in self._endpoint.peers]
        for to in linked:
            self._hand_over(to, self._waiting.pop(to))
        return any(to in self._waiting for to in linked)

    def _may_wait(self, to: str) -> bool:
        """Whether a envelope is of use later.

        What nodes and controller had to say to each other is void once their link is lost: they begin anew.
        """
        return to == PROVIDER if self.name == CONTROLLER else to != CONTROLLER

    def receive(self, timeout: float) -> Iterator[Envelope | Connected | Lost | Rejected]:
        """What has come, or comes within this time."""
        if self._hand_over_waiting():
            timeout = min(timeout, FULL_PAUSE)
        own, self._own = self._own, deque()
        events = self._endpoint.poll(0.0 if own else timeout)
        for message in own:
            yield Envelope(self.name, message)
        for event in events:
            taken = self._taken(event)
            if taken is not None:
                yield taken

    def _taken(self, event: Event) -> Envelope | Connected | Lost | Rejected | None:
        match event:
            case Received():
                try:
                    return Envelope(event.peer, self._codec.decode(event.kind, event.header, event.arrays))
                except BadMessage as error:
                    if event.peer in self._endpoint.peers:
                        self._endpoint.drop(event.peer, f"it sent {error}")
                    return None
            case Connected():
                self._hand_over(event.peer, self._waiting.pop(event.peer, []))
            case Lost() | Rejected():
                self._waiting.pop(event.peer or "", None)
        return event

    def hurry(self, to: str) -> None:
        """Sends what can be sent to somebody now, before the next `receive`."""
        self._endpoint.flush(0.0, to)

    def wake(self) -> None:
        """Ends a `receive` that waits; from any thread."""
        self._endpoint.wake()

    def close(self, seconds: float = 0.0) -> None:
        """Sends what waits to be sent, for so long at most, and closes."""
        self._endpoint.flush(seconds)
        self._endpoint.close()


class Lifeline:
    """Keeps up the link to the controller: it may be lost and come back."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._pause = FIRST_PAUSE
        self._next: float | None = time.monotonic()

    def keep(self, now: float) -> None:
        """Tries again when the pause is over."""
        if self._next is not None and now >= self._next:
            self._next = None
            self._mailbox.reach(CONTROLLER)

    def hear(self, event: Connected | Lost | Rejected, now: float) -> bool:
        """Whether the link stands again with this event."""
        if event.peer != CONTROLLER:
            return False
        if isinstance(event, Connected):
            self._pause = FIRST_PAUSE
            return True
        self._next = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return False

    def wait(self, now: float, longest: float) -> float:
        """How long to wait for envelopes, so that the next attempt is not late."""
        return longest if self._next is None else max(0.0, min(longest, self._next - now))


def _messages() -> list[type]:
    return [kind for kind in vars(messages).values() if isinstance(kind, type) and is_dataclass(kind)]
