"""The job loop's connection to the controller: reports warned and lost machines, receives finished
clocks.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

from agileml.core.events import ClockRepeated, Failed, Iteration, NodeLost, StopJob
from agileml.errors import JobFailed
from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.protocol.messages import Version, Warned
from agileml.runtime.mailbox import ControllerConnection, Envelope, Mailbox
from agileml.runtime.output import Output, Printed
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.results import (
    Acknowledged,
    Attendance,
    Clocks,
    ModelPart,
    RepeatedIteration,
    Result,
    Settle,
)
from agileml.transport import TransportSettings

GONE = "its machine is gone"

ACKNOWLEDGE_EVERY = 16
"""Clocks between acknowledgements."""

REPEAT_LOST_SECONDS = 5.0
"""How long a lost machine is reported to restarted controllers; later ones know it, or notice the
silence."""


class ControllerClient:
    """Reports on the machines, wherever they run. A restarted controller is told again what it may
    have missed.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        clocks: Clocks,
        output: Output,
        settings: TransportSettings | None = None,
    ) -> None:
        self._clocks = clocks
        self._output = output
        self._mailbox = Mailbox(rendezvous, JOB_LOOP, settings)
        self._connection = ControllerConnection(self._mailbox)
        self._deadlines: dict[str, float] = {}
        self._lost: dict[str, float] = {}
        """Lost machines, and when the current controller learned of them."""
        self._linked = False
        self._parts: dict[int, Version] = {}
        self._ended: Result | None = None
        self.progress = 0
        """Grows whenever a clock is finished or workers report more work, also of a clock that is
        done again."""
        self._chunks = 0
        """Chunks that workers have reported to the controller, as of its last word."""
        self.linked_nodes: tuple[str, ...] = ()
        """The nodes that are linked to the controller, as it has last reported."""
        self.expelled: tuple[str, ...] = ()
        """The nodes that broke the rules."""
        self._failure = ""
        self._has_failed = False
        self._stopped: StopJob | None = None
        self._settled = 0

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
        return replace(self._ended, versions=versions)

    def listen(self, longest: float) -> Iterator[Iteration]:
        """Newly finished clocks; waits up to `longest` seconds. Raises AgileMLError if the job
        cannot go on.
        """
        now = time.monotonic()
        self._connection.maintain(now)
        for event in self._mailbox.receive(max(self._connection.timeout(now, longest), 0.0)):
            if isinstance(event, Envelope):
                iteration = self._handle(event.message)
                if iteration is not None:
                    yield iteration
            elif event.peer == CONTROLLER:
                self._linked = self._connection.handle(event, time.monotonic())
                if self._linked:
                    self._repeat()

        if self._linked:
            # The current controller has known the others for a while: it has written them to its
            # memory.
            self._lost = {
                name: at for name, at in self._lost.items() if at >= now - REPEAT_LOST_SECONDS
            }

        if self._failure:
            # Not earlier: what arrived with it is what the nodes printed before.
            why = self._failure
            self._failure = ""
            raise JobFailed(why)

    def settle(self, seconds: float) -> None:
        """Waits, up to `seconds`, for what has arrived at the controller by now."""
        deadline = time.monotonic() + seconds
        # With the second answer, everything has been passed on that had arrived before the first.
        for needed in (1, 2):
            self._mailbox.send(CONTROLLER, Settle())
            while self._settled < needed and self._linked and time.monotonic() < deadline:
                for _ in self.listen(deadline - time.monotonic()):
                    pass
        self._settled = 0

    def stop(self, *, finish: bool = False) -> None:
        """Ends the job with its last stable model, or with the clock in progress if it may `finish`
        that.
        """
        self._stopped = StopJob(finish)
        self._mailbox.send(CONTROLLER, self._stopped)

    def warn(self, name: str, seconds: float) -> None:
        """A machine will be taken away in `seconds`."""
        self._deadlines[name] = time.monotonic() + seconds
        self._mailbox.send(CONTROLLER, Warned(name, seconds))

    def lose(self, name: str) -> None:
        """A machine is gone."""
        self.forget(name)
        self._lost[name] = time.monotonic()
        self._mailbox.send(CONTROLLER, NodeLost(name, GONE))

    def forget(self, name: str) -> None:
        """A machine has left as the controller told it to."""
        self._deadlines.pop(name, None)

    def close(self) -> None:
        """Closes the connection."""
        self._mailbox.close()

    def _handle(self, message: object) -> Iteration | None:
        match message:
            case RepeatedIteration() if message.iteration.clock > self._clocks.last:
                return self._accept(message.iteration)
            case ClockRepeated():
                self.progress += 1
            case Iteration():
                return self._accept(message)
            case Failed():
                # Sent again after a link was lost: a failure is raised once.
                self._failure = "" if self._has_failed else message.why or "the job failed"
                self._has_failed = True
            case Settle():
                self._settled += 1
            case Printed():
                self._output(message)
            case Attendance():
                self.linked_nodes = message.nodes
                self.expelled = message.expelled
                self.progress += message.chunks > self._chunks
                self._chunks = message.chunks
            case ModelPart():
                self._parts[message.partition] = message.version
            case Result():
                self._ended = message
        return None

    def _accept(self, iteration: Iteration) -> Iteration | None:
        """The iteration, if it is new."""
        if not self._clocks.accept(iteration):
            return None
        self.progress += 1
        if iteration.clock % ACKNOWLEDGE_EVERY == 0:
            self._mailbox.send(CONTROLLER, Acknowledged(iteration.clock))
        return iteration

    def _repeat(self) -> None:
        """A restarted controller may not know which clocks arrived, which machines are lost and
        which are warned.
        """
        now = time.monotonic()
        self._mailbox.send(CONTROLLER, Acknowledged(self._clocks.last))
        if self._stopped is not None:
            self._mailbox.send(CONTROLLER, self._stopped)
        for name in self._lost:
            self._lost[name] = now
            self._mailbox.send(CONTROLLER, NodeLost(name, GONE))

        for name, at in self._deadlines.items():
            warned = Warned(name, max(0.0, at - now))
            self._mailbox.send(CONTROLLER, warned)
