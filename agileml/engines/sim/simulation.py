"""The simulation of a job: one process, virtual time, the real role code, repeatable from a seed.

Nodes compute for real; how long that takes, and how long messages travel, is a model. A node can be
killed at a time or after a message, and what it had sent can be lost from any point on.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Any

import numpy as np

from agileml.core.controller import Controller
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
from agileml.errors import AgileMLError, Unrecoverable
from agileml.params.layout import Layout
from agileml.protocol.actions import CONTROLLER, JOB_LOOP, Action, Compute, Exit, Fetch, Save, Send, WorkUnit
from agileml.protocol.messages import Ready, Unlinked, Version, Warned
from agileml.roles.node import JobSettings, Node
from agileml.runtime.reconnection import BrokenLinks
from agileml.runtime.results import Result
from agileml.slowdowns import Slowdown, Slowness, SlowServer
from agileml.trainer import Trainer, initial_model, plan_of, shards_of
from agileml.transport import FrameLimits

TICK_SECONDS = 0.25
COLLECT_AFTER = 200_000
STUCK_SECONDS = 600.0
"""Virtual seconds without a finished clock after which a job counts as stuck."""


@dataclass(frozen=True, slots=True)
class Machines:
    """A model of machines: seconds for work, for loading, until a broken connection is noticed, to save a partition."""

    seconds_per_item: float = 1e-5
    seconds_per_chunk: float = 0.0
    loading: float = 0.5
    detection: float = 0.05
    saving: float = 0.0
    network: Network = field(default_factory=Network)


@dataclass(slots=True)
class Outcome:
    """How a job ended."""

    clock: int
    versions: tuple[Version, ...]
    layout: Layout
    log: list[Iteration]
    seconds: float
    evictions: int
    failures: int
    delivered: int
    loss: float | None


class Simulation:
    """A job on simulated nodes. `observe` is called after each event."""

    def __init__(
        self,
        trainer: Trainer,
        settings: ControllerSettings,
        job: JobSettings,
        machines: Machines | None = None,
        seed: int = 0,
        observe: Callable[[Simulation], None] | None = None,
        slowdowns: Sequence[Slowdown] = (),
    ) -> None:
        self.trainer = trainer
        self.job = job
        self.machines = machines or Machines()
        self.shards = list(shards_of(trainer))
        self.plan = plan_of(trainer, self.shards)
        self.layout = Layout.cut(initial_model(trainer, job.seed), job.partitions)
        self.controller = Controller(self.plan, self.layout.partition_bytes(), settings)
        self.code = settings.nodes.code
        self.nodes: dict[str, Node] = {}
        self.log: list[Iteration] = []
        self.repeated = 0
        """Clocks that were finished again after a rollback."""
        self._observe = observe
        self._slowdowns = slowdowns
        self._slowness: dict[str, Slowness] = {}
        self._wire = Wire(self.machines.network, np.random.Generator(np.random.PCG64(seed)))
        self.time = VirtualTime()
        self.messages = Messages(self.time, self._wire, FrameLimits(body_bytes=job.frame_bytes), self._deliver)
        self._checkpoints: dict[tuple[int, int], Version] = {}
        self._launched: list[str] = []
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
        """By link that broke, the sender's epoch then: it sends nothing more of that epoch there."""
        self._names = count()
        self.time.later(TICK_SECONDS, self._tick)

    # -- faults and machines -----------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.time.now

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Calls `act` at a virtual time."""
        self.time.at(when, act)

    def join(self, *, reliable: bool, loading: float | None = None, name: str = "", code: str | None = None) -> str:
        """Adds a machine; its node is ready once it has loaded. `code` is the version that it runs, if another."""
        name = name or f"{'r' if reliable else 't'}{next(self._names)}"
        self._launched.append(name)
        self.nodes[name] = Node(name, self.trainer, self.shards, self.plan, self.job, self.layout, lambda: self.now)
        self.messages.send(name, CONTROLLER, self.nodes[name].hello(reliable, self.code if code is None else code))
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
            self._deadlines[name] = self.now + seconds
            self.messages.send(JOB_LOOP, CONTROLLER, Warned(name, seconds))
            self.time.later(seconds, lambda: self.kill(name))

    def kill(self, name: str, lose: Callable[[object], bool] = lambda _: False) -> None:
        """Removes a machine at once. On each link, messages in flight are lost from the first that `lose` selects."""
        if self.nodes.pop(name, None) is None:
            return
        self.killed.add(name)
        self.messages.cut(name, lose)
        self.time.later(self.machines.detection, lambda: self._control(NodeLost(name, "its connection broke")))

    def suspect(self, name: str) -> None:
        """Makes the controller count a running node as lost, as after a long silence."""
        if name in self.nodes:
            self._control(NodeLost(name, "it was silent"))

    def cut_link(self, ends: tuple[str, str], lose: Callable[[object], bool]) -> None:
        """Breaks the link between two processes, which connect again at once, as real ones do.

        Each way, messages in flight are lost from the first that `lose` selects.
        """
        for sender, receiver in (ends, ends[::-1]):
            self.messages.cut(sender, lose, receiver)
        if CONTROLLER not in ends:
            for node, peer in (ends, ends[::-1]):
                self._gaps[node, peer] = self.nodes[node].epoch
                self._broken_links.report(Unlinked(node, peer, "it was cut"), self.controller.epoch, self.now)
            self.time.later(2 * self.machines.detection, self._give_up_unlinked)
            return
        name = ends[ends[0] == CONTROLLER]
        self._control(NodeLost(name, "its connection broke"))
        if name in self.nodes:
            self._greet(name)

    def _give_up_unlinked(self) -> None:
        victim = self._broken_links.victim(self.controller.members, self.controller.epoch, self.now)
        if victim is not None:
            self._control(NodeLost(*victim))

    def _greet(self, name: str) -> None:
        self.messages.send(name, CONTROLLER, self.nodes[name].hello(name.startswith("r"), self.code))
        if name in self._loaded:
            self.messages.send(name, CONTROLLER, Ready(name))

    def stop(self) -> None:
        """The job is to end with its last stable model."""
        self._stopped = True
        self._control(StopJob())

    def kill_controller(self, away: float = 0.2) -> None:
        """The controller is gone; another takes over after `away` seconds."""
        self.lose_controller()
        self.restart_controller(away)

    def lose_controller(self) -> None:
        """Removes the controller, with all messages in flight from it or to it."""
        self.away = True
        self.messages.lose(CONTROLLER)

    def restart_controller(self, after: float) -> None:
        """Lets a new controller take over after `after` seconds."""
        self.time.later(after, self._take_over)

    def _take_over(self) -> None:
        settings = self.controller.settings
        if self._remembered is None:
            self.controller = Controller(self.plan, self.layout.partition_bytes(), settings)
        else:
            record = json.loads(json.dumps(self._remembered)) | {"accepted": self._decided}
            if self._remembered_checkpoint is not None:
                record["checkpoint"] = self._remembered_checkpoint
            self.controller = Controller.resume(self.plan, self.layout.partition_bytes(), settings, record, self.now)
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
                self.messages.send(JOB_LOOP, CONTROLLER, Warned(name, max(0.0, self._deadlines[name] - self.now)))

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Runs the job to its end; raises an AgileMLError if it cannot go on."""
        with infrequent_collection():
            while self._finished is None:
                self.advance()
            result = self.result
            assert result is not None
        return Outcome(
            result.clock,
            result.versions,
            self.layout,
            self.log,
            self.now,
            result.evictions,
            result.failures,
            self.messages.delivered,
            result.loss,
        )

    @property
    def result(self) -> Result | None:
        """The model and the counts, once the job is done."""
        done = self._finished
        if done is None:
            return None
        members = self.controller.members
        return Result(done.clock, done.versions, members.evictions, members.failures, done.loss, done.tally)

    def advance(self) -> None:
        """Runs the next event. Raises an AgileMLError if the job has failed or is stuck."""
        if self._failed is not None:
            raise AgileMLError(self._failed)
        if self.time.now - self._progress_at > STUCK_SECONDS:
            raise Unrecoverable(f"no clock finished for {STUCK_SECONDS:g} virtual seconds; {self.describe()}")
        self.time.advance()
        if self._observe is not None:
            self._observe(self)

    def describe(self) -> str:
        """The job's state, for the message that says that it is stuck."""
        controller = self.controller
        return (
            f"{controller.mode.value} in epoch {controller.epoch}, stable {controller.stable},"
            f" {controller.planned.assignment}, nodes {sorted(self.nodes)}"
        )

    def _tick(self) -> None:
        members, ledger = self.controller.members, self.controller.clocks.ledger
        for name, node in self.nodes.items():
            member = members.get(name)
            if member is not None:
                # Heartbeats are not simulated as messages.
                member.last_heard = self.now
                ledger.note_underway(name, node.worker.unreported)
        self._control(Tick())
        self.time.later(TICK_SECONDS, self._tick)

    def _deliver(self, sender: str, receiver: str, message: object) -> None:
        if receiver == CONTROLLER:
            self._control(message, sender)
        elif receiver in self.nodes:
            self._act(receiver, self.nodes[receiver].handle(message))

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
            case RememberDecision():
                self._decided.append(json.loads(json.dumps(instruction.line)))
            case Iteration():
                self._progress_at = self.now
                if not self.log:
                    self._slow_servers_down()
                self.log.append(instruction)
            case ClockRepeated():
                self._progress_at = self.now
                self.repeated += 1
            case Finished():
                self._finished = instruction
            case Failed():
                self._failed = instruction.why

    def _slow_servers_down(self) -> None:
        owners = sorted(set(self.controller.table.owners))
        for slowdown in self._slowdowns:
            if isinstance(slowdown, SlowServer):
                slow = dict.fromkeys(owners[: slowdown.count], slowdown.to)
                self._wire.slow.update(slow)
                if slowdown.until < inf:
                    self.at(slowdown.until, self._wire.slow.clear)

    def _act(self, name: str, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    if not self._gaps or self._gaps.get((name, action.to)) != self.nodes[name].epoch:
                        self.messages.send(name, action.to, action.message)
                case Compute():
                    self._compute(name, action.work)
                case Save():
                    self._save(name, action)
                case Fetch():
                    self._fetch(name, action)
                case Exit():
                    node = self.nodes.pop(name, None)
                    if node is not None and not node.epoch and name not in self.warned:
                        self.refused.add(name)

    def _compute(self, name: str, work: WorkUnit) -> None:
        seconds = self.machines.seconds_per_chunk + self.machines.seconds_per_item * work.items
        if self._slowdowns:
            slowness = self._slowness.setdefault(name, Slowness(self._slowdowns, self.job.seed, name))
            seconds *= slowness.factor(work.clock, seconds, self.now)
        node = self.nodes[name]

        def computed() -> None:
            if self.nodes.get(name) is node:
                result = node.chunk_runner.run(work)
                self._act(name, node.take_result(replace(result, seconds=seconds)))

        self.time.later(seconds, computed)

    def _save(self, name: str, save: Save) -> None:
        node = self.nodes[name]

        def saved() -> None:
            if self.nodes.get(name) is node:
                self._checkpoints[save.partition, save.version.clock] = save.version
                self._act(name, node.confirm_saved(save.epoch, save.partition, save.version.clock))

        if self.machines.saving:
            self.time.later(self.machines.saving, saved)
        else:
            saved()

    def _fetch(self, name: str, fetch: Fetch) -> None:
        node = self.nodes[name]
        version = self._checkpoints[fetch.partition, fetch.clock]
        self._act(name, node.take_version(fetch.epoch, fetch.partition, version))


@contextmanager
def infrequent_collection() -> Iterator[None]:
    """Collects garbage less often: millions of messages form no cycles, and the default costs a quarter of the time."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
