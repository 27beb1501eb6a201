"""The `sim` engine: a job on simulated nodes in virtual time, repeatable to the last line of its log."""

from __future__ import annotations

from dataclasses import dataclass, field

from agileml.core.events import ControllerSettings, Iteration
from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.script import Act, Evict, Join, KillController, KillNodes, Machine
from agileml.engines.sim.engine import Machines, Outcome, Simulation
from agileml.job import Job, Listener, Trained
from agileml.params.commit import CommitRule
from agileml.params.declarations import Declarations
from agileml.runtime.results import Clocks, counted, model_of
from agileml.stopping import Observation, Stopping

UNBOUNDED = 10**9
"""Clocks of a job that is stopped by something else."""


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """Runs jobs on machines that are a model; what they compute is real."""

    machines: Machines = field(default_factory=Machines)

    def run(self, job: Job, chaos: Chaos, listener: Listener) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        provider = _Provider(FaultSchedule(chaos), listener)
        simulation = Simulation(
            job.source.load(), _settings(job), job.settings, self.machines, job.settings.seed, provider.look
        )
        provider.join(simulation, Join(job.reliable, reliable=True))
        provider.join(simulation, Join(job.transient))
        return _trained(simulation, simulation.run())


def _settings(job: Job) -> ControllerSettings:
    return ControllerSettings(
        job.reliable,
        job.transient,
        job.stopping.last_clock or UNBOUNDED,
        policy=job.policy,
        heartbeat_timeout=job.heartbeat_timeout,
        checkpoint_every=job.checkpoint_every,
        stop=_Stop(job.stopping),
    )


def _trained(simulation: Simulation, outcome: Outcome) -> Trained:
    rule = CommitRule(outcome.layout, Declarations.of(simulation.trainer))
    counters = counted(simulation.plan, outcome.clock, outcome.versions)
    return Trained(
        outcome.clock, model_of(rule.layout, outcome.versions), counters, outcome.evictions, outcome.failures
    )


class _Stop:
    """The job's stopping criterion over all clocks so far."""

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._history: list[Observation] = []

    def __call__(self, iteration: Iteration) -> bool:
        before = self._history[-1].seconds if self._history else 0.0
        self._history.append(Observation(iteration.clock, before + iteration.seconds, iteration.loss))
        return self._stopping.reason(self._history) is not None


class _Provider:
    """Has the machines of a simulation come and go as the script says; looks at everything that happens."""

    def __init__(self, course: FaultSchedule, listener: Listener) -> None:
        self._course = course
        self._clocks = Clocks(listener)
        self._heard = 0
        self._reliable: set[str] = set()
        self._warned: set[str] = set()

    def look(self, simulation: Simulation) -> None:
        """Something has happened."""
        for iteration in simulation.log[self._heard :]:
            self._clocks.hear(iteration)
        self._heard = len(simulation.log)
        self._replace_reliable(simulation)
        if self._course.is_due(self._clocks.last, simulation.now):
            machines = [Machine(name, name in self._reliable, name in self._warned) for name in simulation.nodes]
            for act in self._course.due(self._clocks.last, simulation.now, machines):
                self._do(simulation, act)

    def join(self, simulation: Simulation, act: Join) -> None:
        """New machines come."""
        for _ in range(act.count):
            name = simulation.join(reliable=act.reliable)
            if act.reliable:
                self._reliable.add(name)

    def _do(self, simulation: Simulation, act: Act) -> None:
        match act:
            case Evict():
                self._warned.update(act.names)
                for name in act.names:
                    simulation.warn(name, act.seconds)
            case KillNodes():
                for name in act.names:
                    simulation.kill(name)
            case Join():
                self.join(simulation, act)
            case KillController():
                simulation.kill_controller()

    def _replace_reliable(self, simulation: Simulation) -> None:
        """Another takes the place of a reliable machine that is gone, as with a provider of such machines."""
        gone = self._reliable - simulation.nodes.keys()
        self._reliable -= gone
        if gone:
            self.join(simulation, Join(len(gone), reliable=True))
