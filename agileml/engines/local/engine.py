"""The `local` engine: each machine is a process of this computer, and one that is taken away is really killed."""

from __future__ import annotations

import secrets

from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.local.job_runner import JobRunner
from agileml.engines.local.processes import Machines
from agileml.engines.script import Script
from agileml.job import Job, Listener, Trained
from agileml.params.commit import CommitRule
from agileml.params.declarations import Declarations
from agileml.params.layout import Layout
from agileml.runtime.controller_client import Result
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import counted, model_of
from agileml.runtime.role_specs import ControllerRole, NodeRole
from agileml.trainer import initial_model, plan_of
from agileml.work.plan import WorkPlan

SECRET_BYTES = 32


class LocalEngine:
    """Runs jobs on processes of this computer."""

    def run(self, job: Job, chaos: Chaos, listener: Listener) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        return self.play(job, FaultSchedule(chaos), listener)

    def play(self, job: Job, script: Script, listener: Listener) -> Trained:
        """The same with what the script has happen."""
        trainer = job.source.load()
        plan = plan_of(trainer, trainer.shards())
        layout = Layout.cut(initial_model(trainer, job.settings.seed), job.settings.partitions)
        with Machines() as machines:
            rendezvous = FolderRendezvous(machines.folder, secrets.token_bytes(SECRET_BYTES))
            provider = JobRunner(
                machines,
                controller_role(job, plan, layout, rendezvous),
                node_role(job, plan, layout, rendezvous),
                script,
                listener,
            )
            result = provider.run()
        return trained(result, plan, CommitRule(layout, Declarations.of(trainer)))


def controller_role(job: Job, plan: WorkPlan, layout: Layout, rendezvous: FolderRendezvous) -> ControllerRole:
    """What a job's controller is told."""
    return ControllerRole(
        rendezvous,
        rendezvous.folder / "controller.jsonl",
        plan,
        layout.partition_bytes(),
        job.source.code(),
        job.reliable,
        job.transient,
        job.stopping,
        job.heartbeat_timeout,
        job.checkpoint_every,
        job.policy,
    )


def node_role(job: Job, plan: WorkPlan, layout: Layout, rendezvous: FolderRendezvous) -> NodeRole:
    """What each of a job's nodes is told, but for its name and kind."""
    return NodeRole("", False, rendezvous, job.source, plan, layout, job.settings, job.heartbeat_timeout)


def trained(result: Result, plan: WorkPlan, rule: CommitRule) -> Trained:
    """A job's end as its caller wants it."""
    counters = counted(plan, result.clock, result.versions)
    return Trained(result.clock, model_of(rule, result.versions), counters, result.evictions, result.failures)
