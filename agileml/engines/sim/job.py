"""The simulation of a job, whatever its nodes do: one process, virtual time, repeatable from a
seed.

Nodes compute for real; how long that takes, and how long messages travel, is a model. A node can be
killed at a time or after a message, and what it had sent can be lost from any point on.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np

from agileml.core.events import (
    ClockRepeated,
    ControllerInstruction,
    ControllerSettings,
    Failed,
    Finished,
    Iteration,
    NodeLost,
    Remember,
    RememberCheckpoint,
    RememberDecision,
    StopJob,
    Tick,
)
from agileml.engines.sim.network import Messages, Network, VirtualTime, Wire
from agileml.errors import JobFailed, Unrecoverable
from agileml.protocol.actions import CONTROLLER, JOB_LOOP, Action, Compute, Exit, Fetch, Save, Send
from agileml.protocol.messages import Ready, Unlinked, Version, Warned
from agileml.runtime.mailbox import BrokenLinks
from agileml.runtime.results import Result
from agileml.runtime.role_specs import JobControl, NodeT
from agileml.transport import FrameLimits

TICK_SECONDS = 0.25
COLLECT_AFTER = 200_000
STUCK_SECONDS = 600.0
"""Virtual seconds without a finished clock after which a job counts as stuck."""


@dataclass(frozen=True, slots=True)
class Machines:
    """A model of machines: seconds for work, for loading, until a broken connection is noticed, to
    save a partition.
    """

    seconds_per_item: float = 1e-5
    seconds_per_chunk: float = 0.0
    loading: float = 0.5
    detection: float = 0.05
    saving: float = 0.0
    network: Network = field(default_factory=Network)


ControlT = TypeVar("ControlT", bound=JobControl)


class JobSimulation(Generic[NodeT, ControlT]):
    """A job on simulated machines. `observe` is called after each event."""

    def __init__(
        self,
        settings: ControllerSettings,
        control: Callable[[Mapping[str, Any] | None, float], ControlT],
        start: Callable[[str], NodeT],
        machines: Machines | None = None,
        seed: int = 0,
        frame_bytes: int | None = None,
        observe: Callable[[Any], None] | None = None,
    ) -> None:
        """`control` makes a controller, which continues from the record of an earlier one if there
        is one.

        `start` makes the node of a machine that has just started.
        """
        self.machines = machines or Machines()
        self.settings = settings
        self._new_control = control
        self._start = start
        self.controller = control(None, 0.0)
        self.code = settings.nodes.code
        self.nodes: dict[str, NodeT] = {}
        self.log: list[Iteration] = []
        self.repeated = 0
        """Clocks that were finished again after a rollback."""
        self._observe = observe
        generator = np.random.Generator(np.random.PCG64(seed))
        self._wire = Wire(self.machines.network, generator)
        self.time = VirtualTime()
        limits = FrameLimits() if frame_bytes is None else FrameLimits(body_bytes=frame_bytes)
        self.messages = Messages(self.time, self._wire, limits, self._deliver)
        self._launched: list[str] = []
        self._reliable: dict[str, bool] = {}
        self._loaded: set[str] = set()
        self._remembered: dict[str, Any] | None = None
        self._remembered_checkpoint: int | None = None
        self._decided: list[Any] = []
        self.away = False
        """Whether the controller is gone and no new one has taken over yet."""
        self.warned: set[str] = set()
        self._deadlines: dict[str, float] = {}
        """When warned machines are taken away."""
        self.killed: set[str] = set()
        self.refused: set[str] = set()
        """Nodes that were told to leave before they took part."""
        self._stopped = False
        self._finished: Finished | None = None
        self._failed: str | None = None
        self._progress_at = 0.0
        self._broken_links = BrokenLinks(self.machines.detection)
        self._gaps: dict[tuple[str, str], int] = {}
        """By link that broke, the sender's epoch then: it sends nothing more of that epoch
        there."""
        self._names = count()
        self._checkpoints: dict[tuple[int, int], Version] = {}
        """By partition and clock."""
        self._complete = -1
        """The clock of the newest checkpoint of all partitions."""
        self.time.later(TICK_SECONDS, self._tick)

    # -- faults and machines -----------------------------------------------------------------------

    def join(
        self,
        *,
        reliable: bool,
        loading: float | None = None,
        name: str = "",
        code: str | None = None,
    ) -> str:
        """Adds a machine; its node is ready once it has loaded. `code` is the version that it runs,
        if another.
        """
        name = name or f"{'r' if reliable else 't'}{next(self._names)}"
        self._launched.append(name)
        self.nodes[name] = self._start(name)
        self._reliable[name] = reliable
        self.messages.send(
            name, CONTROLLER, self.nodes[name].hello(reliable, self.code if code is None else code)
        )
        wait = self.machines.loading if loading is None else loading
        self.time.later(wait, lambda: self._ready(name))

        return name

    def _ready(self, name: str) -> None:
        if name in self.nodes:
            self._loaded.add(name)
            self.messages.send(name, CONTROLLER, Ready(name))

    def warn(self, name: str, seconds: float) -> None:
        """Warns a node and takes its machine away after `seconds`."""
        if name in self.nodes:
            self.warned.add(name)
            self._deadlines[name] = self.time.now + seconds
            self.messages.send(JOB_LOOP, CONTROLLER, Warned(name, seconds))
            self.time.later(seconds, lambda: self.kill(name))

    def kill(self, name: str, lose: Callable[[object], bool] | None = None) -> None:
        """Removes a machine at once. On each link, messages in flight are lost from the first that
        `lose` selects.
        """
        if self.nodes.pop(name, None) is None:
            return
        self.killed.add(name)
        if lose is not None:
            self.messages.cut(name, lose)
        self.time.later(
            self.machines.detection, lambda: self._control(NodeLost(name, "its connection broke"))
        )

    def cut_link(self, ends: tuple[str, str], lose: Callable[[object], bool]) -> None:
        """Breaks the link between two processes, which connect again at once, as real ones do.

        Each way, messages in flight are lost from the first that `lose` selects.
        """
        for sender, receiver in (ends, ends[::-1]):
            self.messages.cut(sender, lose, receiver)
        if CONTROLLER not in ends:
            for node, peer in (ends, ends[::-1]):
                self._gaps[node, peer] = self.nodes[node].epoch
                self._broken_links.report(
                    Unlinked(node, peer, "it was cut"), self.controller.epoch, self.time.now
                )
            self.time.later(2 * self.machines.detection, self._give_up_unlinked)
            for node in ends:
                self._act(node, self.nodes[node].lose_link())
            return

        name = ends[ends[0] == CONTROLLER]
        self._control(NodeLost(name, "its connection broke"))
        if name in self.nodes:
            self._greet(name)

    def _give_up_unlinked(self) -> None:
        victim = self._broken_links.victim(
            self.controller.members, self.controller.epoch, self.time.now
        )
        if victim is not None:
            self._control(NodeLost(*victim))

    def _greet(self, name: str) -> None:
        self.messages.send(
            name, CONTROLLER, self.nodes[name].hello(self._reliable[name], self.code)
        )
        if name in self._loaded:
            self.messages.send(name, CONTROLLER, Ready(name))

    def stop(self) -> None:
        """The job is to end with its last stable model."""
        self._stopped = True
        self._control(StopJob())

    def take_over(self) -> None:
        """Has a new controller go on from what the one before remembered."""
        if self._remembered is None:
            self.controller = self._new_control(None, self.time.now)
        else:
            record = json.loads(json.dumps(self._remembered)) | {"accepted": self._decided}
            if self._remembered_checkpoint is not None:
                record["checkpoint"] = self._remembered_checkpoint
            self.controller = self._new_control(record, self.time.now)

        self.away = False
        if self._stopped:
            self._control(StopJob())
        for name in self._launched:
            if name not in self.nodes:
                self._control(NodeLost(name, "it is gone"))

        for name in self.nodes:
            self._greet(name)
            if name in self.warned:
                # The warning may have been lost with the earlier controller.
                warned = Warned(name, max(0.0, self._deadlines[name] - self.time.now))
                self.messages.send(JOB_LOOP, CONTROLLER, warned)

    # -- running -----------------------------------------------------------------------------------

    @property
    def result(self) -> Result | None:
        """The model and the counts, once the job is done."""
        done = self._finished
        if done is None:
            return None
        members = self.controller.members
        return Result(
            done.clock, done.versions, members.evictions, members.failures, done.loss, done.tally
        )

    def load(self, partition: int, clock: int) -> Version:
        """A partition's version in a checkpoint."""
        return self._checkpoints[partition, clock]

    def run(self) -> Result:
        """Runs the job to its end. Raises an AgileMLError if it cannot go on."""
        with infrequent_collection():
            while (result := self.result) is None:
                self.advance(moment=self._observe is None)
        return result

    def advance(self, *, moment: bool = False) -> None:
        """Runs the next event, or all of its moment. Raises an AgileMLError if the job has failed
        or is stuck.
        """
        if self._failed is not None:
            raise JobFailed(self._failed)
        if self.time.now - self._progress_at > STUCK_SECONDS:
            raise Unrecoverable(
                f"no clock finished for {STUCK_SECONDS:g} virtual seconds; {self.describe()}"
            )

        self.time.advance(moment=moment)
        if self._observe is not None:
            self._observe(self)

    def describe(self) -> str:
        """The job's state, for the message that says that it is stuck."""
        return f"epoch {self.controller.epoch}, nodes {sorted(self.nodes)}"

    def _tick(self) -> None:
        for name in self.nodes:
            member = self.controller.members.get(name)
            if member is not None:
                # Heartbeats are not simulated as messages.
                member.last_heard = self.time.now
        self._control(Tick())
        self.time.later(TICK_SECONDS, self._tick)

    def _control(self, event: object, sender: str | None = None) -> None:
        if self.away:
            return
        for instruction in self.controller.handle(event, self.time.now, sender):
            self._carry_out(instruction)

    def _carry_out(self, instruction: ControllerInstruction) -> None:
        match instruction:
            case Remember():
                self._remembered = instruction.record
                self._remembered_checkpoint = None
            case Send():
                self.messages.send(CONTROLLER, instruction.to, instruction.message)
            case RememberCheckpoint():
                self._remembered_checkpoint = instruction.clock
                # The one before stays as well: another node may be reading it.
                for old in [key for key in self._checkpoints if key[1] < self._complete]:
                    del self._checkpoints[old]
                self._complete = instruction.clock
            case RememberDecision():
                self._decided.append(json.loads(json.dumps(instruction.line)))
            case Iteration():
                self._progress_at = self.time.now
                self.log.append(instruction)
            case ClockRepeated():
                self._progress_at = self.time.now
                self.repeated += 1
            case Finished():
                self._finished = instruction
                self.time.stops = True
            case Failed():
                self._failed = instruction.why
                self.time.stops = True

    # -- what nodes do -----------------------------------------------------------------------------

    def _deliver(self, sender: str, receiver: str, message: object) -> None:
        node = self.nodes.get(receiver)
        if node is not None:
            actions = node.handle(message, sender)
            if actions:
                self._act(receiver, actions)
        elif receiver == CONTROLLER:
            self._control(message, sender)

    def _act(self, name: str, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    if (
                        not self._gaps
                        or self._gaps.get((name, action.to)) != self.nodes[name].epoch
                    ):
                        self.messages.send(name, action.to, action.message)
                case Exit():
                    left = self.nodes.pop(name, None)
                    if left is not None and not left.epoch and name not in self.warned:
                        self.refused.add(name)
                case _:
                    self._begin(name, action)

    def _begin(self, name: str, action: Compute | Save | Fetch) -> None:
        """Begins an action that takes time."""
        match action:
            case Save(epoch, partition, version):
                node = self.nodes[name]

                def saved() -> None:
                    if self.nodes.get(name) is node:
                        self._checkpoints[partition, version.clock] = version
                        self._act(name, node.confirm_saved(epoch, partition, version.clock))

                if self.machines.saving:
                    self.time.later(self.machines.saving, saved)
                else:
                    saved()
            case Fetch(epoch, partition, clock):
                self._act(
                    name,
                    self.nodes[name].take_version(epoch, partition, self.load(partition, clock)),
                )


@contextmanager
def infrequent_collection() -> Iterator[None]:
    """Collects garbage less often: millions of messages form no cycles, and the default costs a
    quarter of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
