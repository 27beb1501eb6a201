"""What the processes of a job are told when they start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agileml.apps.registry import TrainerSource
from agileml.core.work import Plan
from agileml.params.layout import Layout
from agileml.policies.stage import StagePolicy, Thresholds
from agileml.roles.node import JobSettings
from agileml.runtime.rendezvous import Rendezvous
from agileml.stopping import Stopping


@dataclass(frozen=True, slots=True)
class NodeRole:
    """A machine of the job."""

    name: str
    reliable: bool
    rendezvous: Rendezvous
    source: TrainerSource
    plan: Plan
    layout: Layout
    settings: JobSettings
    heartbeat_timeout: float


@dataclass(frozen=True, slots=True)
class ControllerRole:
    """The job's controller. `memory` is the file from which a restarted controller resumes."""

    rendezvous: Rendezvous
    memory: Path
    plan: Plan
    partitions: int
    code: str
    reliable: int
    transient: int
    stopping: Stopping
    thresholds: Thresholds
    heartbeat_timeout: float
    checkpoint_every: int
    stage: StagePolicy | None


Role = NodeRole | ControllerRole
