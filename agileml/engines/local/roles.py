"""What the processes of a job are told when they start."""

from __future__ import annotations

from dataclasses import dataclass

from agileml.apps.registry import TrainerSource
from agileml.core.placement import Thresholds
from agileml.core.stages import StagePolicy
from agileml.core.work import Plan
from agileml.engines.local.post import Office
from agileml.layout import Layout
from agileml.node import JobSettings
from agileml.stopping import Stopping


@dataclass(frozen=True, slots=True)
class NodeRole:
    """A machine of the job."""

    name: str
    reliable: bool
    office: Office
    source: TrainerSource
    plan: Plan
    layout: Layout
    settings: JobSettings
    heartbeat_timeout: float


@dataclass(frozen=True, slots=True)
class ControllerRole:
    """The job's controller."""

    office: Office
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
