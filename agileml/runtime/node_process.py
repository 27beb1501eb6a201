"""The process of a node: one thread for messages and decisions, one that computes, a few that write checkpoints."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TypeVar

from agileml.errors import AgileMLError, BadTrainer, ControllerUnreachable, DeclaredLost, PeerRefused
from agileml.protocol.actions import CONTROLLER, Action, Compute, Exit, Fetch, Save, Send, WorkUnit
from agileml.protocol.messages import Broken, Hello, Leave, Ready, Recover, Warned
from agileml.roles.chunk_runner import WorkResult
from agileml.roles.node import Node
from agileml.runtime.broken_links import Unlinked
from agileml.runtime.checkpoints import WRITERS, CheckpointQueue, ModelCheckpoints
from agileml.runtime.mailbox import ControllerConnection, Envelope, Mailbox
from agileml.runtime.role_specs import NodeRole
from agileml.runtime.vitals import Vitals
from agileml.slowdowns import Slowness
from agileml.trainer import shards_of
from agileml.transport import Connected, Lost, Rejected
from agileml.user_code import beginning_of, users_traceback, whereabouts

T = TypeVar("T")

REFUSED, UNREACHABLE = 3, 4
"""Exit statuses of a node that the job did not admit, and of one that found no controller."""

NOT_ADMITTED = 113
"""The first of these as fleets report it: user code may end its process with a small status, which is a failure."""

COMPUTE = "compute"
COMPUTE_THREAD = f"{COMPUTE}_0"
"""The name that the executor gives to its first thread."""

LONGEST_TURN = 1.0
"""Seconds within which a node that has nothing to do shows that its message loop runs."""

CLOSE_SECONDS = 2.0
"""Time for the last messages to be sent."""

SWITCH_SECONDS = 0.0005
"""With Python's default, a chunk that computes in Python delays messages by 5 ms at each of their system calls."""

log = logging.getLogger(__name__)


class NodeProcess:
    """A node and its threads: the one in `run` handles messages and carries out actions, another computes.

    The node decides on both, one at a time: the computing thread goes from one piece of work to the next by itself.
    """

    def __init__(self, role: NodeRole, vitals: Vitals) -> None:
        self._role = role
        self._vitals = vitals
        self._code = role.job.source.code()
        self._mailbox = Mailbox(role.rendezvous, role.name, role.job.transport, instance=role.instance)
        self._connection = ControllerConnection(self._mailbox)
        self._checkpoints = ModelCheckpoints(role.rendezvous.blobs)
        self._compute = ThreadPoolExecutor(1, COMPUTE)
        self._disk = ThreadPoolExecutor(WRITERS, "disk")
        self._checkpoint_queue = CheckpointQueue()
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._node: Node | None = None
        self._deciding = Lock()
        """Held while the node decides, on whichever thread, so that its actions are queued in that order."""
        self._actions: deque[Action] = deque()
        self._longest_turn = min(LONGEST_TURN, role.job.hang_timeout / 4)
        self._begun_shards: set[int] = set()
        slowdowns = role.job.slowdowns
        self._slowness = Slowness(slowdowns, role.job.settings.seed, role.name) if slowdowns else None
        self._leaving = False
        self._given_up = ""
        """Why the controller has declared this node lost."""
        self._notice: float | None = None
        """Seconds that this machine has left, if it is to be taken away; None once the controller has been told."""
        self._was_warned = False
        self._rejection = ""
        """Why the controller could not be reached, as it was last logged."""

    def run(self) -> bool:
        """Runs until the node is told to leave; False if the job did not admit it.

        Raises PeerRefused if the controller will never accept this process, DeclaredLost if it has given it up,
        ControllerUnreachable if there has been no controller for too long. Any other error ends the job, which says
        why: it would go on with fewer machines, or end the next one as well.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        self._mailbox.open()
        self._later(self._compute, self._load, self._take_node)
        try:
            while not self._leaving:
                self._turn()
        except (PeerRefused, ControllerUnreachable):
            raise
        except Exception as error:
            self._mailbox.send(CONTROLLER, Broken(self._role.name, f"{self._role.name} failed: {_described(error)}"))
            self._mailbox.close(CLOSE_SECONDS)
            raise
        self._vitals.leave()
        self._mailbox.close(CLOSE_SECONDS)
        self._disk.shutdown(wait=False, cancel_futures=True)
        if self._given_up:
            raise DeclaredLost(self._given_up)
        return self._was_warned or (self._node is not None and self._node.epoch > 0)

    def warn(self, seconds: float) -> None:
        """This machine will be taken away in `seconds`. May be called from any thread, or by a signal handler."""
        self._notice, self._was_warned = seconds, True
        self._mailbox.wake()

    def _pass_warning_on(self) -> None:
        if self._notice is not None and self._connection.linked:
            self._mailbox.send(CONTROLLER, Warned(self._role.name, self._notice))
            self._notice = None

    def _check_patience(self, now: float) -> None:
        patience = self._role.rendezvous.patience
        if self._connection.away(now) > patience:
            self._mailbox.close()
            (address,) = self._role.rendezvous.addresses(CONTROLLER)
            why = self._rejection or "the link to it broke"
            raise ControllerUnreachable(f"no controller reached at {address} for {patience:g} s: {why}")

    def _turn(self) -> None:
        now = time.monotonic()
        self._connection.maintain(now)
        self._check_patience(now)
        self._pass_warning_on()
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
        self._take_results()
        if self._node is not None:
            self._vitals.note_unreported(self._node.worker.unreported)

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

    def _greet(self) -> None:
        """Introduces the node to the controller: at the start, and to a restarted controller."""
        name, reliable = self._role.name, self._role.reliable
        if self._node is None:
            self._mailbox.send(CONTROLLER, Hello(name, reliable, self._code, 0, 0))
        else:
            self._mailbox.send(CONTROLLER, self._node.hello(reliable, self._code))
            self._mailbox.send(CONTROLLER, Ready(name))

    def _handle(self, message: object) -> None:
        if isinstance(message, Leave) and message.lost and not self._leaving:
            self._given_up = f"{message.reason}{self._position()}"
        if isinstance(message, Recover):
            # What was sent in earlier epochs is not wanted any more, and some peers may be gone.
            self._mailbox.begin_epoch()
        if self._node is not None:
            self._decide(self._node.handle, message)
        elif isinstance(message, Leave):
            self._decide(lambda: [Exit(message.reason)])
        self._act()

    def _decide(self, decide: Callable[..., list[Action]], *arguments: object) -> None:
        """Has the node decide, and queues its actions behind those of earlier decisions, of whichever thread."""
        with self._deciding:
            self._actions.extend(self._decisions(decide, *arguments))

    def _decisions(self, decide: Callable[..., list[Action]], *arguments: object) -> list[Action]:
        """The node's actions; if it cannot go on, neither can the job."""
        try:
            return decide(*arguments)
        except AgileMLError as error:
            return self._report_broken(error)

    def _report_broken(self, error: BaseException) -> list[Action]:
        users = users_traceback(error)
        # For an error in the user's code, only the user's part of the traceback matters.
        log.error("the job is broken: %s", _described(error), exc_info=None if users else error)
        if not isinstance(error, BadTrainer):
            # Shown with what the user's code prints. A violated contract needs no more than its one line.
            sys.stderr.write(users)
        return [Send(CONTROLLER, Broken(self._role.name, _described(error)))]

    def _position(self) -> str:
        """Where the user's code is, if it runs: a node that was given up may hang there."""
        frames = sys._current_frames()
        computing = [frames.get(thread.ident or 0) for thread in threading.enumerate() if thread.name == COMPUTE_THREAD]
        place = next(filter(None, map(whereabouts, computing)), "")
        return f"; it was in {place}" if place else ""

    def _act(self) -> None:
        """Carries out what was decided, in order."""
        while self._actions:
            action = self._actions.popleft()
            match action:
                case Send():
                    self._mailbox.send(action.to, action.message)
                case Exit():
                    log.info("leaving: %s", action.reason)
                    self._leaving = True
                case _:
                    self._begin(action)

    def _begin(self, action: Compute | Save | Fetch) -> None:
        """Starts an action that takes time on another thread."""
        node = self._node
        assert node is not None
        match action:
            case Compute():
                self._later(self._compute, partial(self._work, node, action.work), lambda _: [])
            case Save():
                self._checkpoint_queue.add(action)
                self._write_next(node)
            case Fetch():
                fetch = partial(self._checkpoints.load, action.partition, action.clock)
                self._later(
                    self._disk, fetch, lambda version: node.take_version(action.epoch, action.partition, version)
                )

    def _write_next(self, node: Node) -> None:
        while (save := self._checkpoint_queue.next()) is not None:
            self._later(self._disk, partial(self._write, save), partial(self._finish_writing, node, save))

    def _write(self, save: Save) -> bool:
        try:
            self._checkpoints.save(save.partition, save.version)
        except OSError as error:
            if not self._leaving:
                log.error("cannot write a checkpoint; the previous one is kept: %s", error)
            return False
        return True

    def _finish_writing(self, node: Node, save: Save, done: bool) -> list[Action]:
        self._checkpoint_queue.finish(save)
        self._write_next(node)
        return node.confirm_saved(save.epoch, save.partition, save.version.clock) if done else []

    # -- the other threads -------------------------------------------------------------------------------------------

    def _later(self, thread: ThreadPoolExecutor, work: Callable[[], T], then: Callable[[T], list[Action]]) -> None:
        def done(future: Future[T]) -> None:
            self._done.put(lambda: self._finish(future, then))
            self._mailbox.wake()

        thread.submit(work).add_done_callback(done)

    def _take_results(self) -> None:
        while True:
            try:
                finish = self._done.get_nowait()
            except Empty:
                return
            finish()

    def _finish(self, future: Future[T], then: Callable[[T], list[Action]]) -> None:
        error = future.exception()
        if error is None:
            self._decide(then, future.result())
        else:
            self._decide(self._report_broken, error)
        self._act()

    def _work(self, node: Node, work: WorkUnit) -> None:
        """Does pieces of work as long as the next follows from the last, which takes no help of the other thread."""
        while True:
            result = self._run(node, work)
            with self._deciding:
                actions = self._decisions(node.take_result, result)
                self._vitals.note_unreported(node.worker.unreported)
                match actions:
                    case [Compute(work=following)] if not self._leaving:
                        work = following
                    case _:
                        self._actions.extend(actions)
                        return

    def _run(self, node: Node, work: WorkUnit) -> WorkResult:
        """Runs user code; the first work on a shard may also load its data."""
        first = work.data not in self._begun_shards
        with self._vitals.step(first=first, at=(work.clock, work.data)):
            result = node.chunk_runner.run(work)
            if self._slowness is not None:
                factor = self._slowness.factor(work.clock, result.seconds, time.monotonic())
                time.sleep(result.seconds * (factor - 1))
                result = replace(result, seconds=result.seconds * factor)
        self._begun_shards.add(work.data)
        return result

    def _load(self) -> Node:
        role = self._role
        with self._vitals.step(first=True):
            trainer = role.job.source.load()
            node = Node(role.name, trainer, shards_of(trainer), role.plan, role.job.settings, role.layout)
            # On this thread, because the other one must go on handling messages.
            node.load()
        self._vitals.note_loaded(beginning_of(trainer.step))
        return node

    def _take_node(self, node: Node) -> list[Action]:
        self._node = node
        return [Send(CONTROLLER, Ready(self._role.name))]


def _described(error: BaseException) -> str:
    return str(error) if isinstance(error, AgileMLError) else f"{type(error).__name__}: {error}"


def tells_of_a_broken_link(event: Lost | Rejected) -> bool:
    """Whether there is no link to another node; one that does not answer may only be busy."""
    return event.peer != CONTROLLER and not (isinstance(event, Rejected) and event.no_answer)
