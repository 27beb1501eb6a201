"""The message loop of a node: its link to the controller, checkpoints, warnings, its end, whatever
work it does.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Generic, TypeVar

from agileml.errors import AgileMLError, ControllerUnreachable, DeclaredLost, PeerRefused
from agileml.protocol.actions import CONTROLLER, Action, Exit, Fetch, Save, Send
from agileml.protocol.messages import Broken, Hello, Leave, Ready, Unlinked, Warned
from agileml.roles.server_parts import Forged
from agileml.runtime.checkpoints import WRITERS, CheckpointQueue, ModelCheckpoints
from agileml.runtime.mailbox import ControllerConnection, Envelope, Mailbox
from agileml.runtime.remote_blobs import blobs_of
from agileml.runtime.rights import MISCONDUCT
from agileml.runtime.role_specs import NodeRole, NodeT, Vitals
from agileml.transport import Connected, Lost, Rejected

LONGEST_TURN = 1.0
"""Seconds within which a node that has nothing to do shows that its message loop runs."""

CLOSE_SECONDS = 2.0
"""Time for the last messages to be sent."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class NodeLoop(ABC, Generic[NodeT]):
    """Handles messages and carries out actions on one thread until the node leaves; a few others
    write checkpoints.
    """

    begins_epoch: ClassVar[type]
    """The message with which an epoch begins."""

    def __init__(
        self,
        role: NodeRole,
        vitals: Vitals,
        messages: Sequence[type] = (),
        most_bytes: int | None = None,
    ) -> None:
        """`messages` are kinds of messages that only jobs of this kind have; none is larger than
        `most_bytes`.
        """
        self._role = role
        self._vitals = vitals
        self._code = role.job.source.code()
        transport = role.job.transport
        instance = role.instance

        if most_bytes is not None:
            limits = transport.limits
            body = min(limits.body_bytes, most_bytes)
            message = min(limits.message_bytes, most_bytes)
            limits = replace(limits, body_bytes=body, message_bytes=message)
            transport = replace(
                transport, limits=limits, pooled_bytes=min(transport.pooled_bytes, most_bytes)
            )

        self._mailbox = Mailbox(
            role.rendezvous, role.name, transport, instance=instance, messages=messages
        )
        self._connection = ControllerConnection(self._mailbox)
        self._longest_turn = min(LONGEST_TURN, role.job.hang_timeout / 4)
        self._node: NodeT | None = None
        """None until it has loaded what it needs."""
        self._leaving = False
        self._given_up = ""
        """Why the controller has declared this node lost."""
        self._notice: float | None = None
        """Seconds that this machine has left, if it is to be taken away; None once the controller
        has been told."""
        self._was_warned = False
        self._rejection = ""
        """Why the controller could not be reached, as it was last logged."""
        self._checkpoints = ModelCheckpoints(blobs_of(role.rendezvous))
        self._disk = ThreadPoolExecutor(WRITERS, "disk")
        self._checkpoint_queue = CheckpointQueue()
        self._done: SimpleQueue[tuple[Future[Any], Callable[[Any], Iterable[Action]]]]
        self._done = SimpleQueue()

    @abstractmethod
    def _begin(self) -> None:
        """Called once this process listens."""

    def run(self) -> bool:
        """Runs until the node is told to leave; False if the job did not admit it.

        Raises PeerRefused if the controller will never accept this process, DeclaredLost if it has
        given it up, ControllerUnreachable if there has been no controller for too long. Any other
        error ends the job, which says why: it would go on with fewer machines, or end the next one
        as well.
        """
        self._mailbox.open()
        try:
            self._begin()
            while not self._leaving:
                self._turn()
        except (PeerRefused, ControllerUnreachable):
            raise
        except Exception as error:
            broken = Broken(self._role.name, f"{self._role.name} failed: {described(error)}")
            self._mailbox.send(CONTROLLER, broken)
            self._mailbox.close(CLOSE_SECONDS)
            raise
        finally:
            self._leaving = True
            self._disk.shutdown(wait=False, cancel_futures=True)

        self._vitals.leave()
        self._mailbox.close(CLOSE_SECONDS)
        if self._given_up:
            raise DeclaredLost(self._given_up)
        return self._was_warned or (self._node is not None and self._node.epoch > 0)

    def warn(self, seconds: float) -> None:
        """This machine will be taken away in `seconds`. May be called from any thread, or by a
        signal handler.
        """
        self._notice = seconds
        self._was_warned = True
        self._mailbox.wake()

    def _turn(self) -> None:
        now = time.monotonic()
        self._connection.maintain(now)
        patience = self._role.rendezvous.patience
        if self._connection.away(now) > patience:
            self._mailbox.close()
            (address,) = self._role.rendezvous.addresses(CONTROLLER)
            why = self._rejection or "the link to it broke"
            raise ControllerUnreachable(
                f"no controller reached at {address} for {patience:g} s: {why}"
            )

        if self._notice is not None and self._connection.linked:
            self._mailbox.send(CONTROLLER, Warned(self._role.name, self._notice))
            self._notice = None

        self._vitals.note_turn(now)
        for event in self._mailbox.receive(self._connection.timeout(now, self._longest_turn)):
            if isinstance(event, Envelope):
                self._handle_envelope(event)
            else:
                self._handle_link(event)
            # Large messages take time: a node that handles many of them must not look as if it
            # hung.
            self._vitals.note_turn(time.monotonic())

        reason = self._vitals.given_up
        if reason and not self._leaving:
            self._handle(Leave(reason, lost=True))
        self._end_turn()

    def _handle_envelope(self, envelope: Envelope) -> None:
        """Handles a message; another node whose message makes no sense is shut out, and the
        controller told.
        """
        sender = envelope.sender
        if sender in (CONTROLLER, self._role.name):
            self._handle(envelope.message, sender)
            return

        try:
            self._handle(envelope.message, sender)
        except Exception as error:
            # What the message has changed, the rollback that follows undoes.
            why = f"{MISCONDUCT} {type(envelope.message).__name__}: {described(error)}"
            # Where it is in the code helps only if it was not refused on purpose.
            log.error("%s: %s", sender, why, exc_info=not isinstance(error, Forged))
            self._mailbox.shut_out(sender, why)

    def _handle_link(self, event: Connected | Lost | Rejected) -> None:
        """Raises PeerRefused if the controller will never accept this process."""
        if isinstance(event, Rejected) and event.peer == CONTROLLER:
            if event.permanent:
                self._mailbox.close()
                raise PeerRefused(
                    f"the controller at {event.address} refused this node: {event.reason}"
                )
            if event.reason != self._rejection:
                self._rejection = event.reason
                log.info("cannot reach the controller at %s yet: %s", event.address, event.reason)
        elif (
            isinstance(event, Lost | Rejected)
            and event.peer is not None
            and tells_of_a_broken_link(event)
        ):
            misconduct = event.reason.startswith(MISCONDUCT)
            unlinked = Unlinked(self._role.name, event.peer, event.reason, misconduct)
            self._mailbox.send(CONTROLLER, unlinked)

        if isinstance(event, Lost) and event.peer != CONTROLLER and self._node is not None:
            self._decide(self._node.lose_link)
        if self._connection.handle(event, time.monotonic()):
            self._rejection = ""
            # Introduces the node: at the start, and to a restarted controller.
            name = self._role.name
            reliable = self._role.reliable
            if self._node is None:
                hello = Hello(name, reliable, self._code, 0, 0)
                self._mailbox.send(CONTROLLER, hello)
            else:
                self._mailbox.send(CONTROLLER, self._node.hello(reliable, self._code))
                self._mailbox.send(CONTROLLER, Ready(name))

    def _handle(self, message: object, sender: str = CONTROLLER) -> None:
        """Handles a message of another process."""
        if isinstance(message, Leave) and message.lost and not self._leaving:
            self._given_up = f"{message.reason}{self._position()}"
        if isinstance(message, self.begins_epoch):
            # What was sent in earlier epochs is not wanted any more, and some peers may be gone.
            self._mailbox.begin_epoch()

        if self._node is not None:
            self._decide(self._node.handle, message, sender)
        elif isinstance(message, Leave):
            self._carry_out(Exit(message.reason))

    def _position(self) -> str:
        """Where the user's code is: a node that was given up may hang there."""
        return ""

    # -- actions -----------------------------------------------------------------------------------

    def _decide(self, decide: Callable[..., Iterable[Action]], *arguments: object) -> None:
        """Has the node decide, and carries out each action as soon as it is known."""
        for action in decide(*arguments):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Send):
            self._mailbox.send(action.to, action.message)
            return
        if isinstance(action, Exit):
            log.info("leaving: %s", action.reason)
            self._leaving = True
            return

        node = self._node
        assert node is not None
        match action:
            case Save():
                self._checkpoint_queue.add(action)
                self._write_next(node)
            case Fetch(epoch, partition, clock):
                fetch = partial(self._checkpoints.load, partition, clock)
                self._later(self._disk, fetch, partial(node.take_version, epoch, partition))

    def _write_next(self, node: NodeT) -> None:
        while (save := self._checkpoint_queue.next()) is not None:
            self._later(
                self._disk, partial(self._write, save), partial(self._finish_writing, node, save)
            )

    def _write(self, save: Save) -> bool:
        """Whether the version has been written."""
        try:
            self._checkpoints.save(save.partition, save.version)
        except OSError as error:
            if not self._leaving:
                log.error("cannot write a checkpoint; the previous one is kept: %s", error)
            return False
        return True

    def _finish_writing(self, node: NodeT, save: Save, done: bool) -> Iterable[Action]:
        self._checkpoint_queue.finish(save)
        self._write_next(node)
        if done:
            return node.confirm_saved(save.epoch, save.partition, save.version.clock)
        return []

    def _later(
        self,
        thread: ThreadPoolExecutor,
        work: Callable[[], T],
        then: Callable[[T], Iterable[Action]],
    ) -> None:
        """Has another thread work, and the node decide with the result."""

        def done(future: Future[T]) -> None:
            self._done.put((future, then))
            self._mailbox.wake()

        thread.submit(work).add_done_callback(done)

    def _finish(self, future: Future[T], then: Callable[[T], Iterable[Action]]) -> None:
        self._decide(then, future.result())

    def _end_turn(self) -> None:
        """Goes on with what other threads have finished."""
        with suppress(Empty):
            while True:
                self._finish(*self._done.get_nowait())


def described(error: BaseException) -> str:
    if isinstance(error, AgileMLError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def tells_of_a_broken_link(event: Lost | Rejected) -> bool:
    """Whether there is no link to another node; one that does not answer may only be busy."""
    return event.peer != CONTROLLER and not (isinstance(event, Rejected) and event.no_answer)
