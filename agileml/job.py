"""A training job, as passed to an engine, when it stops, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.errors import BadArgument, Unrecoverable, check_number, check_whole
from agileml.params.layout import Params
from agileml.policies.stage import StageByRatio, Thresholds, TrainingPolicy
from agileml.roles.node import JobSettings
from agileml.slowdowns import Slowdown
from agileml.transport import FrameLimits, TransportSettings
from agileml.transport.link import PATIENT

MAX_NODES = 10_000
"""More would be a typing error."""


LONGEST_TIMEOUT = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """The trainer, the initial number of nodes, when to stop, and settings.

    `slowdowns` make its machines slower than they are, as an experiment.
    Without a `stage` policy, the ratio of nodes determines the stage by the thresholds.

    A node counts as lost after `heartbeat_timeout` seconds without a heartbeat, and as hung if a
    step takes more than `hang_timeout` seconds and more than five times as long as usual. Loading
    the trainer, and the first step on each shard, may take `startup_timeout` seconds. Both are 32 s
    longer for each GiB of the model.
    """

    source: TrainerSource
    reliable: int
    transient: int
    stopping: Stopping
    settings: JobSettings = field(default_factory=JobSettings)
    thresholds: Thresholds = field(default_factory=Thresholds)
    heartbeat_timeout: float = 1.0
    hang_timeout: float = 30.0
    startup_timeout: float = 300.0
    checkpoint_every: int = 1
    stage: TrainingPolicy | None = None
    slowdowns: tuple[Slowdown, ...] = ()

    def __post_init__(self) -> None:
        check_whole("the number of reliable nodes", self.reliable, 0, MAX_NODES)
        check_whole("the number of transient nodes", self.transient, 0, MAX_NODES)
        check_number("heartbeat_timeout", self.heartbeat_timeout, 0.1, LONGEST_TIMEOUT)
        check_number("hang_timeout", self.hang_timeout, 0.1, LONGEST_TIMEOUT)
        check_number("startup_timeout", self.startup_timeout, 0.1, LONGEST_TIMEOUT)
        check_whole("checkpoint_every", self.checkpoint_every, 0)

        if self.settings.deterministic and self.settings.slack != 0:
            raise BadArgument(
                f"deterministic with slack {self.settings.slack}: workers that run ahead see "
                "updates in varying order, so results differ between runs; remove one of the two"
            )
        if self.settings.stragglers.wait_policy is not None and self.settings.slack != 0:
            raise BadArgument(
                f"backup workers with slack {self.settings.slack}: clocks can end without late "
                "work only if workers wait for that end; use slack 0, or leave backup workers out"
            )
        if not isinstance(self.thresholds, Thresholds):
            raise BadArgument(
                f"thresholds is {self.thresholds!r}; it must be Thresholds(second, third)"
            )

    @property
    def policy(self) -> TrainingPolicy:
        """The policy that chooses the stage."""
        return self.stage or StageByRatio(self.thresholds)

    @property
    def transport(self) -> TransportSettings:
        """The settings of every process's endpoint."""
        return replace(PATIENT, limits=FrameLimits(body_bytes=self.settings.frame_bytes))


@dataclass(frozen=True, slots=True)
class Counters:
    """The updates of a job; one update is what one chunk contributed to one partition."""

    sent: int
    applied: int
    lost: int
    doubled: int


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a job: its model, and counts of updates, evictions and failures.

    `interrupted`: Ctrl-C ended it, and the model is that of the last stable clock. `loss` is the
    mean loss of the model over the loss sample; None for an interrupted job, and without a sample.
    `samples`: the items of all its clocks. `history`: the loss of the model before each clock; None
    for a clock without a complete sample.
    """

    clocks: int
    model: Params
    counters: Counters
    evictions: int
    failures: int
    interrupted: bool = False
    loss: float | None = None
    samples: int = 0
    history: tuple[float | None, ...] = ()


class GaveUp(Unrecoverable):
    """Nodes failed again and again. The job ended with its last stable model, in `trained`."""

    def __init__(self, why: str, trained: Trained) -> None:
        super().__init__(why)
        self.trained = trained


Listener = Callable[[Iteration], None]
"""Called for each finished clock."""


MAX_CLOCKS = 10**9
"""More would be a typing error."""


MAX_TOLERANCE = 0.999_999
"""Below 1: no loss improves by its whole value for ever."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The first criterion that is met ends the job."""

    clocks: int | None = None
    seconds: float | None = None
    loss: float | None = None
    converged: Convergence | None = None

    def __post_init__(self) -> None:
        if all(
            criterion is None
            for criterion in (self.clocks, self.seconds, self.loss, self.converged)
        ):
            raise BadArgument("no stopping criterion; set clocks, seconds, loss or converged")

        if self.clocks is not None:
            check_whole("clocks", self.clocks, 1, MAX_CLOCKS)
        if self.seconds is not None:
            check_number("seconds", self.seconds, 0.0, above=True)
        if self.loss is not None:
            check_number("loss", self.loss, -inf)

        if self.converged is not None and not isinstance(self.converged, Convergence):
            raise BadArgument(
                f"converged is {self.converged!r}; it must be a Convergence(tolerance, window)"
            )

    def ending(self, clocks: int) -> Stopping:
        """These criteria, for a trainer with this number of clocks (0: it does not say)."""
        if self.clocks is not None and clocks:
            return replace(self, clocks=min(self.clocks, clocks))
        return self

    def reason(self, history: Sequence[Observation]) -> str | None:
        """Why the job is done, or None if it is not. `history` starts with the first clock."""
        if not history:
            return None

        now = history[-1]
        if self.clocks is not None and now.clock >= self.clocks:
            return f"{self.clocks} clocks done"
        if self.seconds is not None and now.seconds >= self.seconds:
            return f"{now.seconds:.1f} s of {self.seconds:g} s elapsed"
        if self.loss is not None and now.loss is not None and now.loss <= self.loss:
            return f"loss {now.loss:g} reached the target {self.loss:g}"

        losses = [seen.loss for seen in history if seen.loss is not None]
        if self.converged is not None and self.converged.reached(losses):
            return (
                f"loss {losses[-1]:g} fell less than {self.converged.tolerance:g} in "
                f"{self.converged.window} clocks"
            )
        return None


@dataclass(frozen=True, slots=True)
class Convergence:
    """The best of the last `window` losses improves on the best earlier loss by less than the
    fraction `tolerance`.
    """

    tolerance: float = 1e-3
    window: int = 5

    def __post_init__(self) -> None:
        check_number("converged", self.tolerance, 0.0, MAX_TOLERANCE)
        check_whole("the window of converged", self.window, 1)

    def reached(self, losses: Sequence[float]) -> bool:
        """Whether the losses, in order, no longer fall. False for fewer than `window` + 1
        losses."""
        if len(losses) <= self.window:
            return False
        before = min(losses[: -self.window])
        lately = min(losses[-self.window :])
        return before - lately < self.tolerance * abs(before)


@dataclass(frozen=True, slots=True)
class Observation:
    """The time and loss after a clock; the loss is None if it was not computed."""

    clock: int
    seconds: float
    loss: float | None = None
