"""What the controller hears besides messages, what it wants done, and what it is told at the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agileml.policies.report import Clocked
from agileml.policies.stage import StagePolicy, Thresholds
from agileml.protocol.messages import Version


@dataclass(frozen=True, slots=True)
class Lost:
    """A node is gone without having said good-bye."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Send:
    """Tell a node."""

    to: str
    message: object


@dataclass(frozen=True, slots=True)
class Iteration:
    """A clock is complete; `events` are those since the one before."""

    clock: int
    seconds: float
    stage: int
    reliable: int
    transient: int
    sums: Clocked
    redone: int
    events: tuple[str, ...]

    @property
    def loss(self) -> float | None:
        """The mean loss before the clock, on what was sampled; None if nothing was."""
        return self.sums.loss_sum / self.sums.loss_count if self.sums.loss_count else None


@dataclass(frozen=True, slots=True)
class Finished:
    """The job is done, and this is its model, by partition."""

    clock: int
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The job cannot go on."""

    why: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Write this down, as JSON, before anything else is done: whoever takes over begins from the latest."""

    record: dict[str, Any]


Instruction = Remember | Send | Iteration | Finished | Failed


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controller is told. `stop` looks at each finished clock and says whether to end.

    Without a policy of its own the stage goes by the thresholds.
    """

    reliable: int
    transient: int
    clocks: int
    code: str = ""
    thresholds: Thresholds = field(default_factory=Thresholds)
    heartbeat_timeout: float = 1.0
    checkpoint_every: int = 0
    stop: Callable[[Iteration], bool] = lambda _: False
    stage: StagePolicy | None = None
