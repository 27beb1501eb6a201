"""Machines that are processes of this computer. One that is taken away is killed with SIGKILL."""

import secrets
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from agileml.engines.base import FleetEvent, Gone, Joined, MachineFleet
from agileml.engines.chaos import Script
from agileml.engines.job_loop import JobLoop
from agileml.engines.local.processes import Processes
from agileml.errors import BadArgument
from agileml.job import Listener, Trained, TrainingJob
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Warned
from agileml.runtime.checkpoints import ModelCheckpoints
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.output import Output, Printed, show
from agileml.runtime.prepared_job import PreparedJob, RunnableJob, shape_of
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import Clocks
from agileml.runtime.role_specs import Role
from agileml.slowdowns import SlowServer

SECRET_BYTES = 32


class LocalEngine:
    """Runs jobs on processes of this computer."""

    def run(
        self,
        job: TrainingJob | RunnableJob,
        script: Script,
        listener: Listener,
        output: Output = show,
    ) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        plan = prepare_job(job, output)
        with closing(Processes()) as processes:
            rendezvous = FolderRendezvous(processes.folder, secrets.token_bytes(SECRET_BYTES))
            return run_job(
                LocalFleet(plan, processes, rendezvous), rendezvous, plan, script, listener, output
            )


def prepare_job(job: TrainingJob | RunnableJob, output: Output) -> RunnableJob:
    """Determines the shape of a job, unless that was done before.

    Raises BadArgument if it asks for what only a simulation can do.
    """
    if not isinstance(job, TrainingJob):
        return job
    if any(isinstance(slowdown, SlowServer) for slowdown in job.slowdowns):
        raise BadArgument(
            "chaos: 'slow server' limits a simulated network; use it with the sim engine"
        )

    plan = PreparedJob(job, shape_of(job))
    if plan.shape.note:
        output(Printed("job", plan.shape.note))
    return plan


def run_job(
    fleet: MachineFleet,
    rendezvous: FolderRendezvous,
    plan: RunnableJob,
    script: Script,
    listener: Listener,
    output: Output,
    earlier: Sequence[str] = (),
) -> Trained:
    """Runs a job to its end on a fleet; `earlier` are the nodes of a process that has begun it."""
    job = plan.job
    with closing(ControllerClient(rendezvous, Clocks(listener), output, job.transport)) as client:
        loop = JobLoop(fleet, client, script, output, least=plan.least_nodes)
        result = loop.run(job.reliable, job.transient, earlier)
    return plan.trained(result, ModelCheckpoints(rendezvous.blobs).load)


CONTROLLER_MEMORY = "controller.jsonl"
"""The file in the job's folder from which a restarted controller resumes."""


class LocalFleet:
    """The controller and the nodes of a job as processes."""

    starts_nodes = True

    def __init__(
        self, plan: RunnableJob, processes: Processes, rendezvous: FolderRendezvous
    ) -> None:
        self._plan = plan
        self._processes = processes
        self._rendezvous = rendezvous
        self._began = time.monotonic()
        self._deadlines: dict[str, float] = {}
        self._running: set[str] = set()
        self._events: list[FleetEvent] = []

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the fleet was created."""
        return time.monotonic() - self._began

    def start_controller(self) -> None:
        """Forks the controller."""
        memory = self._rendezvous.folder / CONTROLLER_MEMORY
        elsewhere = self._rendezvous.listen is not None
        role = self._plan.controller_role(self._rendezvous, memory)
        # People can start another node in place of one that was lost.
        needs_all = elsewhere and not self.starts_nodes
        self._start(CONTROLLER, replace(role, needs_all=needs_all, may_lack_nodes=elsewhere))

    def start_node(self, name: str, *, reliable: bool) -> None:
        """Forks a node."""
        self._start(name, self._plan.node_role(self._rendezvous, name, reliable=reliable))
        self._events.append(Joined(name, reliable))

    def stop(self, name: str, notice: float | None = None) -> None:
        """Kills the process, after `notice` seconds if given."""
        if name not in self._running:
            return
        if notice is None:
            self._deadlines.pop(name, None)
            self._kill(name)
        elif name not in self._deadlines:
            self._deadlines[name] = time.monotonic() + notice
            self._events.append(Warned(name, notice))

    def events(self) -> Sequence[FleetEvent]:
        """Kills the processes whose notice is over, and reports those that ended."""
        now = time.monotonic()
        for name in [name for name, at in self._deadlines.items() if at <= now]:
            self.stop(name)
        events = self._events
        self._events = []

        for gone in self._ended():
            self._running.discard(gone.name)
            self._deadlines.pop(gone.name, None)
            events.append(gone)
        return events

    def close(self) -> None:
        """Kills what still runs and removes the folder, unless it was given."""
        self._processes.close()

    def _kill(self, name: str) -> None:
        self._processes.stop(name)

    def _ended(self) -> Sequence[Gone]:
        return self._processes.ended()

    def _start(self, name: str, role: Role) -> None:
        self._running.add(name)
        self._processes.start(name, role)
