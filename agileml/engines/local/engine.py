"""The `local` engine: each machine is a process of this computer, and one that is taken away is really killed."""

from __future__ import annotations

import secrets

from agileml.chaos import Chaos, Course
from agileml.commit import CommitRule
from agileml.core.work import Plan
from agileml.engines.local.desk import Result
from agileml.engines.local.machines import Machines
from agileml.engines.local.post import Office
from agileml.engines.local.provider import Provider
from agileml.engines.local.roles import ControllerRole, NodeRole
from agileml.engines.results import counted, model_of
from agileml.job import Job, Listener, Trained
from agileml.layout import Layout
from agileml.script import Script
from agileml.trainer import Declarations, initial_model, plan_of

SECRET_BYTES = 32


class LocalEngine:
    """Runs jobs on processes of this computer."""

    def run(self, job: Job, chaos: Chaos, listener: Listener) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        return self.play(job, Course(chaos), listener)

    def play(self, job: Job, script: Script, listener: Listener) -> Trained:
        """The same with what the script has happen."""
        trainer = job.source.load()
        plan = plan_of(trainer, trainer.shards())
        layout = Layout.cut(initial_model(trainer, job.settings.seed), job.settings.partitions)
        with Machines() as machines:
            office = Office(machines.folder, secrets.token_bytes(SECRET_BYTES))
            provider = Provider(
                machines, controller_role(job, plan, office), node_role(job, plan, layout, office), script, listener
            )
            result = provider.run()
        return trained(result, plan, CommitRule(layout, Declarations.of(trainer)))


def controller_role(job: Job, plan: Plan, office: Office) -> ControllerRole:
    """What a job's controller is told."""
    return ControllerRole(
        office,
        plan,
        job.settings.partitions,
        job.source.code(),
        job.reliable,
        job.transient,
        job.stopping,
        job.thresholds,
        job.heartbeat_timeout,
        job.checkpoint_every,
        job.stage,
    )


def node_role(job: Job, plan: Plan, layout: Layout, office: Office) -> NodeRole:
    """What each of a job's nodes is told, but for its name and kind."""
    return NodeRole("", False, office, job.source, plan, layout, job.settings, job.heartbeat_timeout)


def trained(result: Result, plan: Plan, rule: CommitRule) -> Trained:
    """A job's end as its caller wants it."""
    counters = counted(plan, result.clock, result.versions)
    return Trained(result.clock, model_of(rule, result.versions), counters, result.evictions, result.failures)
