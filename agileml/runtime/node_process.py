"""The process of a node that works and serves: one thread for messages and decisions, and one that
computes.
"""

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock

from agileml.errors import AgileMLError, BadTrainer
from agileml.params.layout import Layout, Params
from agileml.protocol.actions import CONTROLLER, Action, Compute, Send, WorkUnit
from agileml.protocol.messages import Broken, Ready, Recover, Version
from agileml.roles.node import Node
from agileml.runtime.node_loop import NodeLoop, T, described
from agileml.runtime.results import model_of
from agileml.runtime.role_specs import NodeRole, Vitals
from agileml.slowdowns import Slowness
from agileml.trainer import shards_of
from agileml.user_code import beginning_of, users_traceback, whereabouts
from agileml.work import WorkPlan

NOT_ADMITTED, UNREACHABLE = 113, 114
"""Statuses of a node that the job did not admit, and of one that found no controller. User code,
which may end its process with any status, has failed then, and seldom uses one as large."""

COMPUTE = "compute"
COMPUTE_THREAD = f"{COMPUTE}_0"
"""The name that the executor gives to its first thread."""

MAX_BYTES, MAX_GROWTH = 16 << 20, 16
"""The most bytes of a message of another node: these, and this many for each of the model's and of
each update of a clock, which a partition can have when it moves."""

SWITCH_SECONDS = 0.0005
"""With Python's default, a chunk that computes in Python delays messages by 5 ms at each of their
system calls."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRole(NodeRole):
    """A machine that works, serves partitions and keeps backups."""

    work: WorkPlan
    layout: Layout

    def process(self, vitals: Vitals) -> "NodeProcess":
        return NodeProcess(self, vitals)

    def model(self, versions: Sequence[Version]) -> Params:
        return model_of(self.layout, versions)


class NodeProcess(NodeLoop[Node]):
    """A node and its threads: the one in `run` handles messages and carries out actions, another
    computes.

    The node decides on both, one at a time: the computing thread goes from one piece of work to the
    next by itself.
    """

    begins_epoch = Recover

    def __init__(self, role: TrainerRole, vitals: Vitals) -> None:
        copies = (
            sum(role.work.chunks(place, 1) for place in range(len(role.work.lengths)))
            + role.job.settings.keeps
        )
        model = sum(role.layout.partition_bytes())
        super().__init__(role, vitals, most_bytes=MAX_BYTES + MAX_GROWTH * model * copies)
        self._trainer_role = role
        self._computing = ThreadPoolExecutor(1, COMPUTE)
        self._deciding = Lock()
        """Held while the node decides, on whichever thread, so that its actions are queued in that
        order."""
        self._actions: deque[Action] = deque()
        self._begun_shards: set[int] = set()
        slowdowns = role.job.slowdowns
        self._slowness: Slowness | None = None
        if slowdowns:
            self._slowness = Slowness(slowdowns, role.job.settings.seed, role.name)

    def run(self) -> bool:
        sys.setswitchinterval(SWITCH_SECONDS)
        return super().run()

    def _begin(self) -> None:
        self._later(self._computing, self._load, self._take_node)

    def _end_turn(self) -> None:
        super()._end_turn()
        if self._node is not None:
            self._vitals.note_unreported(self._node.worker.contributions.unreported)

    def _decide(self, decide: Callable[..., Iterable[Action]], *arguments: object) -> None:
        """Has the node decide, and carries out what was decided until now, on whichever thread, in
        order.
        """
        with self._deciding:
            self._actions.extend(self._decisions(decide, *arguments))
        while self._actions:
            self._carry_out(self._actions.popleft())

    def _decisions(
        self, decide: Callable[..., Iterable[Action]], *arguments: object
    ) -> list[Action]:
        """The node's actions; if it cannot go on, neither can the job, unless that is another
        node's fault.
        """
        try:
            return list(decide(*arguments))
        except AgileMLError as error:
            if (
                self._node is not None
                and decide == self._node.handle
                and arguments[-1] != CONTROLLER
            ):
                raise
            return self._report_broken(error)

    def _report_broken(self, error: BaseException) -> list[Action]:
        users = users_traceback(error)
        # For an error in the user's code, only the user's part of the traceback matters.
        log.error("the job is broken: %s", described(error), exc_info=None if users else error)
        if not isinstance(error, BadTrainer):
            # Shown with what the user's code prints. A violated contract needs no more than its one
            # line.
            sys.stderr.write(users)
        return [Send(CONTROLLER, Broken(self._role.name, described(error)))]

    def _position(self) -> str:
        frames = sys._current_frames()
        computing = [
            frames.get(thread.ident or 0)
            for thread in threading.enumerate()
            if thread.name == COMPUTE_THREAD
        ]
        place = next(filter(None, map(whereabouts, computing)), "")
        return f"; it was in {place}" if place else ""

    # -- the computing thread ----------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Compute) and self._node is not None:
            self._later(self._computing, partial(self._work, self._node, action.work), lambda _: [])
        else:
            super()._carry_out(action)

    def _finish(self, future: Future[T], then: Callable[[T], Iterable[Action]]) -> None:
        error = future.exception()
        if error is None:
            self._decide(then, future.result())
        else:
            self._decide(self._report_broken, error)

    def _work(self, node: Node, work: WorkUnit) -> None:
        """Does pieces of work as long as the next follows from the last, which takes no help of the
        other thread.
        """
        while True:
            # The first work on a shard may also load its data.
            first = work.data not in self._begun_shards
            with self._vitals.step(first=first, at=(work.clock, work.data)):
                result = node.worker.chunk_runner.run(work)
                if self._slowness is not None:
                    factor = self._slowness.factor(work.clock, result.seconds, time.monotonic())
                    time.sleep(result.seconds * (factor - 1))
                    result = replace(result, seconds=result.seconds * factor)
            self._begun_shards.add(work.data)
            with self._deciding:
                actions = self._decisions(node.take_result, result)
                self._vitals.note_unreported(node.worker.contributions.unreported)
                match actions:
                    case [Compute(work=following)] if not self._leaving:
                        work = following
                    case _:
                        self._actions.extend(actions)
                        return

    def _load(self) -> Node:
        role = self._trainer_role
        with self._vitals.step(first=True):
            trainer = role.job.source.load()
            node = Node(
                role.name, trainer, shards_of(trainer), role.work, role.job.settings, role.layout
            )
            # On this thread, because the other one must go on handling messages.
            node.load()

        self._vitals.note_loaded(beginning_of(trainer.step))
        return node

    def _take_node(self, node: Node) -> list[Action]:
        self._node = node
        return [Send(CONTROLLER, Ready(self._role.name))]
