"""The `local` engine: each machine is a process of this computer, and an evicted machine is a killed process."""

import secrets
from collections.abc import Sequence
from contextlib import closing

from agileml.engines.base import Fleet
from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.job_loop import JobLoop
from agileml.engines.local.fleet import LocalFleet
from agileml.engines.local.processes import Processes
from agileml.engines.script import Script
from agileml.errors import BadArgument
from agileml.job import Listener, Trained, TrainingJob
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.job_shape import shape_of
from agileml.runtime.output import Output, Printed, show
from agileml.runtime.prepared_job import PreparedJob, RunnableJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import Clocks
from agileml.slowdowns import SlowServer

SECRET_BYTES = 32


class LocalEngine:
    """Runs jobs on processes of this computer."""

    def run(self, job: TrainingJob | RunnableJob, chaos: Chaos, listener: Listener, output: Output = show) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        return self.play(job, FaultSchedule(chaos), listener, output)

    def play(
        self, job: TrainingJob | RunnableJob, script: Script, listener: Listener, output: Output = show
    ) -> Trained:
        """Trains as `run` does, with faults from a script."""
        plan = prepare_job(job, output)
        with closing(Processes()) as processes:
            rendezvous = FolderRendezvous(processes.folder, secrets.token_bytes(SECRET_BYTES))
            return run_job(LocalFleet(plan, processes, rendezvous), rendezvous, plan, script, listener, output)


def prepare_job(job: TrainingJob | RunnableJob, output: Output) -> RunnableJob:
    """Determines the shape of a job, unless that was done before.

    Raises BadArgument if it asks for what only a simulation can do.
    """
    if not isinstance(job, TrainingJob):
        return job
    if any(isinstance(slowdown, SlowServer) for slowdown in job.slowdowns):
        raise BadArgument("chaos: 'slow server' limits a simulated network; use it with the sim engine")
    plan = PreparedJob(job, shape_of(job))
    if plan.shape.note:
        output(Printed("job", plan.shape.note))
    return plan


def run_job(
    fleet: Fleet,
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
    return plan.trained(result, rendezvous.blobs)
