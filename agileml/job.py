"""A training job as an engine is given it, and what an engine gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.params.layout import Params
from agileml.policies.policy import Policy
from agileml.policies.stage import StageByRatio, Thresholds
from agileml.roles.node import JobSettings
from agileml.stopping import Stopping


@dataclass(frozen=True, slots=True)
class Job:
    """What to train, on how many nodes at the start, until when.

    Without a policy of its own the stage goes by the thresholds.
    """

    source: TrainerSource
    reliable: int
    transient: int
    stopping: Stopping
    settings: JobSettings = field(default_factory=JobSettings)
    thresholds: Thresholds = field(default_factory=Thresholds)
    heartbeat_timeout: float = 1.0
    checkpoint_every: int = 0
    stage: Policy | None = None

    @property
    def policy(self) -> Policy:
        """The policy that chooses the stage."""
        return self.stage or StageByRatio(self.thresholds)


@dataclass(frozen=True, slots=True)
class Counters:
    """What became of the updates of a job; an update is what a chunk brought to a partition."""

    sent: int
    applied: int
    lost: int
    doubled: int


@dataclass(frozen=True, slots=True)
class Trained:
    """How a job ended: its model, and what happened on the way."""

    clocks: int
    model: Params
    counters: Counters
    evictions: int
    failures: int


Listener = Callable[[Iteration], None]
"""Called for each finished clock."""
