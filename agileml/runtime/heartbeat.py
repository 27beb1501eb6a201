"""The heartbeat process of a node: it tells the controller that the node is alive, whatever the
node's user code does.

User code may hold the interpreter lock for minutes (an import, a call into C), and then no thread
of the node runs. So the heartbeats come from a process that is forked from the node before it
starts, which costs a few pages of memory and some wake-ups a second. Without heartbeats the
controller counts the node as lost. A node that the controller has given up is killed by its
heartbeat process, unless the node ends by itself.
"""

import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agileml.core.events import NodeLost
from agileml.core.members import heartbeat_name
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Heartbeat, Leave
from agileml.runtime.mailbox import ControllerConnection, Envelope, Mailbox
from agileml.runtime.output import OutputTail, Printed
from agileml.runtime.role_specs import NodeRole, Vitals
from agileml.user_code import FATAL_ERROR, condensed

HEARTBEATS = 4
"""Heartbeats within the time after which a silent node counts as lost."""

LONGEST_WAIT = 0.25
"""Seconds between two looks at the node: whether it still runs."""

LEAVE_SECONDS = 3.0
"""Time for a node to begin to leave once the controller has given it up."""

STACK_SECONDS = 1.0
"""Time for a node to print its stacks before it is killed."""

FLUSH_SECONDS = 10.0
"""Time for the last messages to be sent, on a busy computer too; it is rarely used up."""

log = logging.getLogger(__name__)


@contextmanager
def beating(role: NodeRole, output: Path, echo: int | None = None) -> Iterator[Vitals]:
    """Runs a heartbeat process for this process, which is about to become a node; call it before
    starting threads.

    It also passes on what the node prints to the file `output`, and copies that to the descriptor
    `echo`.
    """
    # A crash in C code, and the signal that ends a hung node, print the Python stacks of all
    # threads.
    faulthandler.enable()
    vitals = Vitals()
    node = os.getpid()
    # A node may end before its heartbeat process listens to that signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    pid = os.fork()

    if pid == 0:
        # The child never returns into the node's code.
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _HeartbeatProcess(role, vitals, node, output, echo).run()
        except BaseException:
            # Without heartbeats the controller replaces the node.
            log.exception("the heartbeat process failed")
        finally:
            os._exit(0)

    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    try:
        yield vitals
    finally:
        sys.stdout.flush()
        # The heartbeat process may send its last messages.
        deadline = time.monotonic() + 2 * FLUSH_SECONDS
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGTERM)
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.001)


class _HeartbeatProcess:
    """Sends heartbeats until the node ends. `node` is the process id of the node, the parent of
    this process.
    """

    def __init__(
        self, role: NodeRole, vitals: Vitals, node: int, output: Path, echo: int | None
    ) -> None:
        self._name = role.name
        self._vitals = vitals
        self._node = node
        self._echo = echo
        self._printed = OutputTail(output)
        self._beat_every = role.job.heartbeat_timeout / HEARTBEATS
        self._mailbox = Mailbox(
            role.rendezvous, heartbeat_name(role.name), role.job.transport, instance=role.instance
        )
        self._connection = ControllerConnection(self._mailbox)
        self._linked = False
        self._next_beat = time.monotonic()
        self._stalled = self._missed = 0.0
        """Seconds without progress of the node at the last beat, and how many of them this process
        did not run."""
        self._ending = False
        self._kill_at: float | None = None
        self._stacks_shown = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._on_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        while not self._ending and os.getppid() == self._node:
            now = time.monotonic()
            self._connection.maintain(now)
            if now >= self._next_beat:
                stalled = self._vitals.stalled(now)
                before = self._stalled
                # A busy or suspended computer had no time for the node either.
                self._missed = (self._missed if stalled >= before else 0.0) + now - self._next_beat
                self._stalled = stalled
                self._next_beat = now + self._beat_every
                seconds = max(0.0, stalled - self._missed)
                beat = Heartbeat(
                    self._name, seconds, self._vitals.usual_step, self._vitals.unreported
                )
                self._mailbox.send(CONTROLLER, beat)
            self._enforce(now)
            self._pass_on()
            self._listen(now, min(self._next_beat - now, LONGEST_WAIT))

        # A node that printed something may end before there is a link, and this says why.
        give_up = time.monotonic() + FLUSH_SECONDS
        while not self._linked and self._printed.pending and (now := time.monotonic()) < give_up:
            self._connection.maintain(now)
            self._listen(now, LONGEST_WAIT)

        printed = self._pass_on(last=True)
        if not self._ending:
            # A process that is killed from outside, for example when memory runs out, prints no
            # traceback, and none of its stacks.
            where = "" if FATAL_ERROR in printed else self._vitals.whereabouts
            ended = f"its process ended; {where}" if where else "its process ended"
            if where and self._kill_at is None:
                self._mailbox.send(CONTROLLER, Printed(self._name, ended))
            self._mailbox.send(CONTROLLER, NodeLost(self._name, ended))

        self._mailbox.close(FLUSH_SECONDS)

    def _listen(self, now: float, longest: float) -> None:
        for event in self._mailbox.receive(self._connection.timeout(now, longest)):
            if not isinstance(event, Envelope):
                self._linked = self._connection.handle(event, time.monotonic())
            elif isinstance(event.message, Leave):
                # The node has been told on its own link as well; after a cut, that may carry
                # nothing for many seconds.
                if event.message.lost:
                    self._vitals.give_up(event.message.reason)
                if self._kill_at is None:
                    self._kill_at = time.monotonic() + LEAVE_SECONDS
                    log.info("the node was told to leave: %s", event.message.reason)

    def _on_end(self, *_: object) -> None:
        self._ending = True
        self._mailbox.wake()

    def _pass_on(self, *, last: bool = False) -> str:
        """Sends what the node has printed to the controller; until there is a link, it waits in its
        file.
        """
        text = self._printed.take(last=last) if self._linked or last else ""
        if not text:
            return ""
        self._mailbox.send(CONTROLLER, Printed(self._name, condensed(text)))
        if self._echo is not None:
            with suppress(OSError):
                os.write(self._echo, text.encode(errors="replace"))
        return text

    def _enforce(self, now: float) -> None:
        """Ends a node that does not leave: first with a signal at which it prints its stacks."""
        if self._kill_at is None or now < self._kill_at + (
            FLUSH_SECONDS if self._vitals.leaving else 0.0
        ):
            return
        self._kill_at = now + STACK_SECONDS
        with suppress(ProcessLookupError):
            os.kill(self._node, signal.SIGKILL if self._stacks_shown else signal.SIGABRT)
        self._stacks_shown = True
