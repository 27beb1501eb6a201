"""The `local` engine: each machine is a process of this computer, and one that is taken away is really killed."""

from __future__ import annotations

import secrets

from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.local.job_runner import JobRunner
from agileml.engines.local.processes import Machines
from agileml.engines.script import Script
from agileml.job import Job, Listener, Trained
from agileml.runtime.controller_client import Result
from agileml.runtime.job_shape import JobShape, shape_of
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import counted, model_of
from agileml.runtime.role_specs import ControllerRole, NodeRole

SECRET_BYTES = 32


class LocalEngine:
    """Runs jobs on processes of this computer."""

    def run(self, job: Job, chaos: Chaos, listener: Listener) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        return self.play(job, FaultSchedule(chaos), listener)

    def play(self, job: Job, script: Script, listener: Listener) -> Trained:
        """The same with what the script has happen."""
        shape = shape_of(job)
        with Machines() as machines:
            rendezvous = FolderRendezvous(machines.folder, secrets.token_bytes(SECRET_BYTES))
            provider = JobRunner(
                machines,
                controller_role(job, shape, rendezvous),
                node_role(job, shape, rendezvous),
                script,
                listener,
            )
            result = provider.run()
        return trained(result, shape)


def controller_role(job: Job, shape: JobShape, rendezvous: FolderRendezvous) -> ControllerRole:
    """What a job's controller is told."""
    return ControllerRole(
        rendezvous,
        rendezvous.folder / "controller.jsonl",
        shape.plan,
        shape.layout.partition_bytes(),
        shape.code,
        job.reliable,
        job.transient,
        job.stopping,
        job.heartbeat_timeout,
        job.checkpoint_every,
        job.policy,
    )


def node_role(job: Job, shape: JobShape, rendezvous: FolderRendezvous) -> NodeRole:
    """What each of a job's nodes is told, but for its name and kind."""
    return NodeRole("", False, rendezvous, job.source, shape.plan, shape.layout, job.settings, job.heartbeat_timeout)


def trained(result: Result, shape: JobShape) -> Trained:
    """A job's end as its caller wants it."""
    counters = counted(shape.plan, result.clock, result.versions)
    return Trained(result.clock, model_of(shape.layout, result.versions), counters, result.evictions, result.failures)
