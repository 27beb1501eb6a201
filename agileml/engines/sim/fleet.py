"""The `sim` engine: a job on simulated machines in virtual time, repeatable to the last line of its
log.

`Simulation` is a training on them, with the real code of workers and servers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from agileml.apps.registry import TrainerSource
from agileml.core.controller import Controller
from agileml.core.events import ControllerInstruction, ControllerSettings, Iteration
from agileml.engines.base import ControllerLink, FleetEvent, Gone, Joined, MachineFleet
from agileml.engines.chaos import Script
from agileml.engines.job_loop import JobLoop
from agileml.engines.sim.job import JobSimulation, Machines, infrequent_collection
from agileml.job import Listener, Observation, Stopping, Trained, TrainingJob
from agileml.params.layout import Layout
from agileml.protocol.actions import CONTROLLER, Compute, Fetch, Save
from agileml.protocol.messages import Warned
from agileml.roles.node import JobSettings, Node
from agileml.runtime.node_process import NOT_ADMITTED
from agileml.runtime.output import Output, Printed, show
from agileml.runtime.prepared_job import JobShape, PreparedJob, RunnableJob, start_note
from agileml.runtime.results import Clocks, Result, observation_of
from agileml.runtime.role_specs import controller_settings
from agileml.slowdowns import Slowdown, Slowness, SlowServer
from agileml.trainer import Trainer, initial_model, plan_of, shards_of


class Simulation(JobSimulation[Node, Controller]):
    """A training on simulated nodes. `observe` is called after each event."""

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
        self.shards = list(shards_of(trainer))
        self.plan = plan_of(trainer, self.shards)
        self.layout = Layout.cut(initial_model(trainer, job.seed), job.partitions)
        self._slowdowns = slowdowns
        self._slowness: dict[str, Slowness] = {}
        control = partial(Controller.resume, self.plan, self.layout.partition_bytes(), settings)
        super().__init__(settings, control, self._node, machines, seed, job.frame_bytes, observe)

    def _node(self, name: str) -> Node:
        return Node(
            name, self.trainer, self.shards, self.plan, self.job, self.layout, lambda: self.time.now
        )

    def describe(self) -> str:
        """The job's state, for the message that says that it is stuck."""
        controller = self.controller
        return (
            f"{controller.epochs.mode.value} in epoch {controller.epoch}, "
            f"stable {controller.clocks.stable},"
            f" {controller.planned.assignment}, nodes {sorted(self.nodes)}"
        )

    def _tick(self) -> None:
        ledger = self.controller.clocks.ledger
        for name, node in self.nodes.items():
            if self.controller.members.get(name) is not None:
                ledger.note_underway(name, node.worker.contributions.unreported)
        super()._tick()

    def _carry_out(self, instruction: ControllerInstruction) -> None:
        if isinstance(instruction, Iteration) and not self.log:
            owners = sorted(set(self.controller.table.owners))
            for slowdown in self._slowdowns:
                if isinstance(slowdown, SlowServer):
                    slow = dict.fromkeys(owners[: slowdown.count], slowdown.to)
                    self._wire.slow.update(slow)
                    if slowdown.until < inf:
                        self.time.at(slowdown.until, self._wire.slow.clear)
        super()._carry_out(instruction)

    def _begin(self, name: str, action: Compute | Save | Fetch) -> None:
        if isinstance(action, Compute):
            seconds = (
                self.machines.seconds_per_chunk + self.machines.seconds_per_item * action.work.items
            )
            if self._slowdowns:
                slowness = self._slowness.setdefault(
                    name, Slowness(self._slowdowns, self.job.seed, name)
                )
                seconds *= slowness.factor(action.work.clock, seconds, self.time.now)
            node = self.nodes[name]
            work = action.work

            def computed() -> None:
                if self.nodes.get(name) is node:
                    result = node.worker.chunk_runner.run(work)
                    self._act(name, node.take_result(replace(result, seconds=seconds)))

            self.time.later(seconds, computed)
        else:
            super()._begin(name, action)


RESTART_SECONDS = 0.2
"""Virtual seconds until a new controller runs in place of a killed one."""


AnySimulation = JobSimulation[Any, Any]
StopRule = Callable[[Iteration], bool]


class SimulableJob(RunnableJob, ABC):
    """A job without workers and servers that can be simulated."""

    @abstractmethod
    def simulation(self, machines: Machines, stop: StopRule) -> AnySimulation:
        """The job on such machines; `stop` is asked after each clock whether to end."""


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """Runs jobs on simulated machines, whose computations are real."""

    machines: Machines = field(default_factory=Machines)

    def run(
        self,
        job: TrainingJob | SimulableJob,
        script: Script,
        listener: Listener,
        output: Output = show,
    ) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot.

        The user's code runs, and prints, in this process.
        """
        simulation: AnySimulation
        plan: RunnableJob
        if isinstance(job, SimulableJob):
            simulation = job.simulation(self.machines, _StopRule(job.job.stopping))
            plan = job
        else:
            trainer = job.source.load()
            code = job.source.code()
            settings = controller_settings(job, code, _StopRule(job.stopping))
            seed = job.settings.seed
            note = start_note(trainer, seed)
            if note:
                output(Printed("job", note))
            training = Simulation(
                trainer, settings, job.settings, self.machines, seed, slowdowns=job.slowdowns
            )
            simulation = training
            plan = PreparedJob(job, JobShape(training.plan, training.layout, code))

        fleet = SimulatedFleet(simulation, plan.job.source)
        link = SimulatedLink(simulation, Clocks(listener))
        with infrequent_collection():
            loop = JobLoop(fleet, link, script, output, least=plan.least_nodes)
            result = loop.run(plan.job.reliable, plan.job.transient)

        return plan.trained(result, simulation.load)


class _StopRule:
    """The job's stopping criterion over all clocks so far."""

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._history: list[Observation] = []

    def __call__(self, iteration: Iteration) -> bool:
        self._history.append(observation_of(iteration, self._history))
        return self._stopping.reason(self._history) is not None


class SimulatedFleet(MachineFleet):
    """The machines of a simulation, which come and go at once, in virtual time. None has anything
    to close.
    """

    def __init__(self, simulation: AnySimulation, source: TrainerSource) -> None:
        self._simulation = simulation
        self._source = source
        self._running: dict[str, None] = {}
        self._events: list[FleetEvent] = []

    @property
    def seconds(self) -> float:
        """Virtual seconds."""
        return self._simulation.time.now

    def start_controller(self) -> None:
        """Has a new controller take over; the first is part of the simulation."""
        if self._simulation.away:
            self._simulation.time.later(RESTART_SECONDS, self._simulation.take_over)

    def start_node(self, name: str, *, reliable: bool) -> None:
        """Adds a machine with the trainer's code as it is now."""
        self._simulation.join(reliable=reliable, name=name, code=self._source.code())
        self._running[name] = None
        self._events.append(Joined(name, reliable))

    def stop(self, name: str, notice: float | None = None) -> None:
        """Removes a machine; with notice, its node hears the warning before."""
        simulation = self._simulation
        if name == CONTROLLER and not simulation.away:
            # With all messages in flight from it or to it.
            simulation.away = True
            simulation.messages.lose(CONTROLLER)
            self._events.append(Gone(CONTROLLER))
        elif name in simulation.nodes and notice is None:
            simulation.kill(name)
        elif name in simulation.nodes and name not in simulation.warned:
            simulation.warn(name, notice or 0.0)
            self._events.append(Warned(name, notice or 0.0))

    def events(self) -> Sequence[FleetEvent]:
        """The changes that were made to machines, and the nodes that left by themselves."""
        nodes = self._simulation.nodes
        if len(nodes) != len(self._running):
            for name in [name for name in self._running if name not in nodes]:
                del self._running[name]
                status = NOT_ADMITTED if name in self._simulation.refused else 0
                self._events.append(Gone(name, None if name in self._simulation.killed else status))
        events = self._events
        self._events = []
        return events


class SimulatedLink(ControllerLink):
    """The link to a simulated controller: listening lets the simulation advance.

    Here time is virtual, and so this is where the engines differ: a turn of the loop is one event
    of the simulation, and the simulation itself decides when its controller notices a warning or a
    lost node. So `warn`, `lose` and `forget` do nothing, nor has `settle` anything to wait for: a
    simulated node prints in this process.
    """

    def __init__(self, simulation: AnySimulation, clocks: Clocks) -> None:
        self._simulation = simulation
        self._clocks = clocks
        self._reported = 0

    @property
    def last_clock(self) -> int:
        """The last finished clock."""
        return self._clocks.last

    @property
    def progress(self) -> int:
        """Grows whenever a clock is finished, also one that is done again."""
        return len(self._simulation.log) + self._simulation.repeated

    @property
    def result(self) -> Result | None:
        """The model and the counts, once the job is done."""
        return self._simulation.result

    # A simulation does not wait.
    def listen(self, longest: float) -> Iterator[Iteration]:  # noqa: ARG002
        """Runs the next event of the simulation. Raises an AgileMLError if the job cannot go on."""
        self._simulation.advance()
        log = self._simulation.log
        while self._reported < len(log):
            iteration = log[self._reported]
            self._reported += 1
            if self._clocks.accept(iteration):
                yield iteration

    def stop(self) -> None:
        """Ends the job with its last stable model."""
        self._simulation.stop()
