"""A training job, as passed to an engine, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.params.layout import Params
from agileml.policies.policy import TrainingPolicy
from agileml.policies.stage import StageByRatio, Thresholds
from agileml.roles.node import JobSettings
from agileml.stopping import Stopping


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """The trainer, the initial number of nodes, when to stop, and settings.

    Without a `stage` policy, the ratio of nodes determines the stage by the thresholds.
    """

    source: TrainerSource
    reliable: int
    transient: int
    stopping: Stopping
    settings: JobSettings = field(default_factory=JobSettings)
    thresholds: Thresholds = field(default_factory=Thresholds)
    heartbeat_timeout: float = 1.0
    checkpoint_every: int = 1
    stage: TrainingPolicy | None = None

    @property
    def policy(self) -> TrainingPolicy:
        """The policy that chooses the stage."""
        return self.stage or StageByRatio(self.thresholds)


@dataclass(frozen=True, slots=True)
class Counters:
    """The updates of a job; one update is what one chunk contributed to one partition."""

    sent: int
    applied: int
    lost: int
    doubled: int


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a job: its model, and counts of updates, evictions and failures."""

    clocks: int
    model: Params
    counters: Counters
    evictions: int
    failures: int


Listener = Callable[[Iteration], None]
"""Called for each finished clock."""
