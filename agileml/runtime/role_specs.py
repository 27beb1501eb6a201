"""What the processes of a job are told when they start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agileml.apps.registry import TrainerSource
from agileml.params.layout import Layout
from agileml.policies.policy import Policy
from agileml.roles.node import JobSettings
from agileml.runtime.rendezvous import Rendezvous
from agileml.stopping import Stopping
from agileml.work.plan import WorkPlan


@dataclass(frozen=True, slots=True)
class NodeRole:
    """A machine of the job."""

    name: str
    reliable: bool
    rendezvous: Rendezvous
    source: TrainerSource
    plan: WorkPlan
    layout: Layout
    settings: JobSettings
    heartbeat_timeout: float


@dataclass(frozen=True, slots=True)
class ControllerRole:
    """The job's controller. `memory` is the file from which a restarted controller resumes."""

    rendezvous: Rendezvous
    memory: Path
    plan: WorkPlan
    partition_bytes: tuple[int, ...]
    code: str
    reliable: int
    transient: int
    stopping: Stopping
    heartbeat_timeout: float
    checkpoint_every: int
    policy: Policy


Role = NodeRole | ControllerRole
