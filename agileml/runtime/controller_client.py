"""The provider's end of a job: tells the controller who is warned and who is gone, and hears how far the job is."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agileml.core.events import Failed, Iteration, NodeLost
from agileml.errors import AgileMLError
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Version, Warned
from agileml.runtime.mailbox import PROVIDER, Again, Ended, Envelope, Heard, Lifeline, Mailbox, ModelPart
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.results import Clocks, Result

GONE = "its machine is gone"

HEARD_EVERY = 16
"""Clocks after which the controller is told that they need not be told again."""

KNOWN_LOST = 5.0
"""Seconds after which a controller has made a note of who is gone; if not, it finds out by their silence."""


class ControllerClient:
    """Speaks for the machines, wherever they are. What it said it says again to a controller that was started anew."""

    def __init__(self, rendezvous: Rendezvous, clocks: Clocks) -> None:
        self._clocks = clocks
        self._mailbox = Mailbox(rendezvous, PROVIDER)
        self._lifeline = Lifeline(self._mailbox)
        self._deadlines: dict[str, float] = {}
        self._lost: dict[str, float] = {}
        """Who is gone, and when the controller that is there now was told."""
        self._linked = False
        self._parts: dict[int, Version] = {}
        self._ended: Ended | None = None

    @property
    def last_clock(self) -> int:
        """The last finished clock that was passed on."""
        return self._clocks.last

    @property
    def result(self) -> Result | None:
        """The model and the counts, once the job is done."""
        if self._ended is None:
            return None
        versions = tuple(version for _, version in sorted(self._parts.items()))
        return Result(self._ended.clock, versions, self._ended.evictions, self._ended.failures)

    def listen(self, longest: float) -> Iterator[Iteration]:
        """New clocks, from what comes within so many seconds; raises if the job cannot go on."""
        now = time.monotonic()
        self._lifeline.keep(now)
        for event in self._mailbox.receive(max(self._lifeline.wait(now, longest), 0.0)):
            if isinstance(event, Envelope):
                if (iteration := self._hear(event.message)) is not None:
                    yield iteration
            elif event.peer == CONTROLLER:
                self._linked = self._lifeline.hear(event, time.monotonic())
                if self._linked:
                    self._tell_again()
        self._forget_lost(now - KNOWN_LOST)

    def warn(self, name: str, seconds: float) -> None:
        """A machine will be taken."""
        self._deadlines[name] = time.monotonic() + seconds
        self._mailbox.send(CONTROLLER, Warned(name, seconds))

    def lose(self, name: str) -> None:
        """A machine is gone."""
        self.forget(name)
        self._lost[name] = time.monotonic()
        self._mailbox.send(CONTROLLER, NodeLost(name, GONE))

    def forget(self, name: str) -> None:
        """A machine has left, as it was to."""
        self._deadlines.pop(name, None)

    def close(self) -> None:
        """Hangs up."""
        self._mailbox.close()

    def _hear(self, message: object) -> Iteration | None:
        match message:
            case Again() if message.iteration.clock > self._clocks.last:
                return self._hear(message.iteration)
            case Iteration() if self._clocks.accept(message):
                if message.clock % HEARD_EVERY == 0:
                    self._mailbox.send(CONTROLLER, Heard(message.clock))
                return message
            case Failed():
                raise AgileMLError(message.why)
            case ModelPart():
                self._parts[message.partition] = message.version
            case Ended():
                self._ended = message
        return None

    def _forget_lost(self, before: float) -> None:
        """A controller that was told a while ago, and is still there, need not be told again, nor any after it."""
        if self._linked:
            self._lost = {name: told for name, told in self._lost.items() if told >= before}

    def _tell_again(self) -> None:
        """A controller that was started anew may not have heard who is gone, who will be taken, and what we heard."""
        now = time.monotonic()
        self._mailbox.send(CONTROLLER, Heard(self._clocks.last))
        for name in self._lost:
            self._lost[name] = now
            self._mailbox.send(CONTROLLER, NodeLost(name, GONE))
        for name, at in self._deadlines.items():
            self._mailbox.send(CONTROLLER, Warned(name, max(0.0, at - now)))
