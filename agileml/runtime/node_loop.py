"""The message loop of a node: its link to the controller, warnings, and its end, whatever work the node does."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic

from agileml.errors import AgileMLError, ControllerUnreachable, DeclaredLost, PeerRefused
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Broken, Leave, Unlinked, Warned
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.reconnection import ControllerConnection
from agileml.runtime.role_specs import NodeRole, NodeT
from agileml.runtime.vitals import Vitals
from agileml.transport import Connected, Lost, Rejected

LONGEST_TURN = 1.0
"""Seconds within which a node that has nothing to do shows that its message loop runs."""

CLOSE_SECONDS = 2.0
"""Time for the last messages to be sent."""

log = logging.getLogger(__name__)


class NodeLoop(ABC, Generic[NodeT]):
    """Handles messages on one thread until the node leaves."""

    def __init__(self, role: NodeRole, vitals: Vitals, messages: Sequence[type] = ()) -> None:
        """`messages` are kinds of messages that only jobs of this kind have."""
        self._role = role
        self._vitals = vitals
        transport, instance = role.job.transport, role.instance
        self._mailbox = Mailbox(role.rendezvous, role.name, transport, instance=instance, messages=messages)
        self._connection = ControllerConnection(self._mailbox)
        self._longest_turn = min(LONGEST_TURN, role.job.hang_timeout / 4)
        self._node: NodeT | None = None
        """None until it has loaded what it needs."""
        self._leaving = False
        self._given_up = ""
        """Why the controller has declared this node lost."""
        self._notice: float | None = None
        """Seconds that this machine has left, if it is to be taken away; None once the controller has been told."""
        self._was_warned = False
        self._rejection = ""
        """Why the controller could not be reached, as it was last logged."""

    @abstractmethod
    def _begin(self) -> None:
        """Called once this process listens."""

    @abstractmethod
    def _greet(self) -> None:
        """Introduces the node to the controller: at the start, and to a restarted controller."""

    @abstractmethod
    def _handle(self, message: object) -> None:
        """Handles a message of another process."""

    @abstractmethod
    def _end_turn(self) -> None:
        """Called after the messages of a turn."""

    def run(self) -> bool:
        """Runs until the node is told to leave; False if the job did not admit it.

        Raises PeerRefused if the controller will never accept this process, DeclaredLost if it has given it up,
        ControllerUnreachable if there has been no controller for too long. Any other error ends the job, which says
        why: it would go on with fewer machines, or end the next one as well.
        """
        self._mailbox.open()
        try:
            self._begin()
            while not self._leaving:
                self._turn()
        except (PeerRefused, ControllerUnreachable):
            raise
        except Exception as error:
            self._mailbox.send(CONTROLLER, Broken(self._role.name, f"{self._role.name} failed: {described(error)}"))
            self._mailbox.close(CLOSE_SECONDS)
            raise
        self._vitals.leave()
        self._mailbox.close(CLOSE_SECONDS)
        if self._given_up:
            raise DeclaredLost(self._given_up)
        return self._was_warned or (self._node is not None and self._node.epoch > 0)

    def warn(self, seconds: float) -> None:
        """This machine will be taken away in `seconds`. May be called from any thread, or by a signal handler."""
        self._notice, self._was_warned = seconds, True
        self._mailbox.wake()

    def _turn(self) -> None:
        now = time.monotonic()
        self._connection.maintain(now)
        patience = self._role.rendezvous.patience
        if self._connection.away(now) > patience:
            self._mailbox.close()
            (address,) = self._role.rendezvous.addresses(CONTROLLER)
            why = self._rejection or "the link to it broke"
            raise ControllerUnreachable(f"no controller reached at {address} for {patience:g} s: {why}")
        if self._notice is not None and self._connection.linked:
            self._mailbox.send(CONTROLLER, Warned(self._role.name, self._notice))
            self._notice = None
        self._vitals.note_turn(now)
        for event in self._mailbox.receive(self._connection.timeout(now, self._longest_turn)):
            if isinstance(event, Envelope):
                self._handle(event.message)
            else:
                self._handle_link(event)
            # Large messages take time: a node that handles many of them must not look as if it hung.
            self._vitals.note_turn(time.monotonic())
        if (reason := self._vitals.given_up) and not self._leaving:
            self._handle(Leave(reason, lost=True))
        self._end_turn()

    def _handle_link(self, event: Connected | Lost | Rejected) -> None:
        """Raises PeerRefused if the controller will never accept this process."""
        if isinstance(event, Rejected) and event.peer == CONTROLLER:
            if event.permanent:
                self._mailbox.close()
                raise PeerRefused(f"the controller at {event.address} refused this node: {event.reason}")
            if event.reason != self._rejection:
                self._rejection = event.reason
                log.info("cannot reach the controller at %s yet: %s", event.address, event.reason)
        elif isinstance(event, Lost | Rejected) and event.peer is not None and tells_of_a_broken_link(event):
            self._mailbox.send(CONTROLLER, Unlinked(self._role.name, event.peer, event.reason))
        if self._connection.handle(event, time.monotonic()):
            self._rejection = ""
            self._greet()


def described(error: BaseException) -> str:
    return str(error) if isinstance(error, AgileMLError) else f"{type(error).__name__}: {error}"


def tells_of_a_broken_link(event: Lost | Rejected) -> bool:
    """Whether there is no link to another node; one that does not answer may only be busy."""
    return event.peer != CONTROLLER and not (isinstance(event, Rejected) and event.no_answer)
