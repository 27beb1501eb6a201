"""The controller's events besides messages, the instructions that it returns, and its settings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agileml.errors import BadInput
from agileml.policies.stage import ClockSums, StageByRatio, TrainingPolicy
from agileml.policies.stragglers import Stragglers
from agileml.protocol.actions import Send
from agileml.protocol.messages import Version
from agileml.work import Cover


class Implausible(BadInput):
    """A node reports what it cannot mean, or what another one would have to report. Nothing has
    changed by then.
    """


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node failed without leaving properly."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class StopJob:
    """End the job with the last stable model, without finishing the clocks after it; or with
    `finish`, as its settings would: with the clock in progress and the loss of its model."""

    finish: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. It comes `late` seconds after it was due, in which the controller did not
    run.
    """

    late: float = 0.0


@dataclass(frozen=True, slots=True)
class Iteration:
    """A finished clock. `events`: what happened since the clock before; `accepted`: the chunks that
    make up the clock.

    `redone`: chunks whose work a loss undid since the clock before. For a node that died, the
    chunks count that its last heartbeat reported.
    Logs of earlier versions do not say what was accepted: every chunk was.
    `details`: more for the caller of a job without workers and servers, as JSON.
    """

    clock: int
    seconds: float
    stage: int
    reliable: int
    transient: int
    sums: ClockSums
    redone: int
    events: tuple[str, ...]
    accepted: tuple[Cover, ...] = ()
    details: str = ""

    @property
    def loss(self) -> float | None:
        """Mean loss of the model before the clock, over the sample; None if no complete sample was
        reported.
        """
        if self.sums.loss_count:
            return self.sums.loss_sum / self.sums.loss_count
        return None


@dataclass(frozen=True, slots=True)
class ClockRepeated:
    """A clock that had been finished before a rollback is finished again."""

    clock: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The job is done; the versions are its model, by partition, and `loss` is that of this model.

    `tally` is the number and the fingerprint of the chunks that every partition must contain.
    """

    clock: int
    versions: tuple[Version, ...]
    loss: float | None = None
    tally: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Failed:
    """The job cannot continue."""

    why: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Write this record durably, as JSON, before any other instruction: a new controller resumes
    from the latest.
    """

    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RememberCheckpoint:
    """Add to the record that this checkpoint is complete. Until that is on disk, no older
    checkpoint may be deleted.
    """

    clock: int


@dataclass(frozen=True, slots=True)
class RememberDecision:
    """Add this line to the decisions in the record, before any other instruction is carried out."""

    line: list[Any]


ControllerInstruction = (
    Remember
    | RememberCheckpoint
    | RememberDecision
    | Send
    | Iteration
    | ClockRepeated
    | Finished
    | Failed
)


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Which nodes a job refuses, waits for and gives up. Nodes must run version `code`; an empty
    text: any.

    With `needs_all`, training starts with all nodes, even if some that had joined are lost
    meanwhile; otherwise the job waits for each node only once, whether or not the fleet replaces
    it. With `may_lack_nodes`, the job fails if nodes do not come within `startup_timeout`.
    """

    code: str = ""
    heartbeat_timeout: float = 1.0
    hang_timeout: float = 30.0
    startup_timeout: float = 300.0
    needs_all: bool = False
    may_lack_nodes: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointRules:
    """A checkpoint every `every` clocks (0: none), `pause` seconds apart at least, written in a
    `share` of the time.
    """

    every: int = 1
    pause: float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of the controller. `stop` receives each finished clock and returns whether the job
    should end.

    `loss_sample`: the number of items over which the loss is computed, as nodes do. If `uneven` is
    not 0, half of the nodes get that fraction of the work, as an experiment.
    """

    reliable: int
    transient: int
    clocks: int
    policy: TrainingPolicy = field(default_factory=StageByRatio)
    nodes: NodeRules = NodeRules()
    checkpoints: CheckpointRules = CheckpointRules()
    stop: Callable[[Iteration], bool] = lambda _: False
    loss_sample: int = 0
    stragglers: Stragglers = field(default_factory=Stragglers)
    uneven: float = 0.0
