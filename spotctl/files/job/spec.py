"""`JobSpec`: what a job.yaml asks for, as frozen values. `jobspec.file` reads and writes them.

Spans are microseconds and money is nano-dollars, as in `pricing_data.units`. Paths are absolute: what a file names
beside itself was found from the file's own folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from pricing_data.units import MINUTE, to_datetime, to_micros
from spotctl.errors import BadRequest

Number = TypeVar("Number", int, float)

AUTO = "auto"
"""Left to spotctl to choose."""


class Kind(StrEnum):
    """What is run."""

    AGILEML = "agileml"
    """A trainer, which uses every machine there is and goes on when one is taken."""
    COMMAND = "command"
    """Any program that goes on from its own checkpoint."""


class Objective(StrEnum):
    """What is best; the names are those of Gavel's policies."""

    MIN_COST = "min-cost"
    MAX_THROUGHPUT = "max-throughput"
    MIN_COST_SLO = "min-cost-slo"
    """Needs a deadline."""
    MAKESPAN_WITHIN_BUDGET = "makespan-within-budget"
    """Needs a budget."""


@dataclass(frozen=True, slots=True)
class Range(Generic[Number]):
    """Numbers from `least` to `most`, both included; no `most` means no limit."""

    least: Number
    most: Number | None = None

    def __contains__(self, value: float) -> bool:
        return self.least <= value and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.most == self.least:
            return f"{self.least}"
        return f"{self.least}..{'' if self.most is None else self.most}"


@dataclass(frozen=True, slots=True)
class Accelerators:
    """So many of one model in each machine."""

    model: str
    count: Range[int]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a machine must have; None where it does not matter."""

    vcpus: Range[int] | None = None
    memory_gib: Range[float] | None = None
    accelerators: Accelerators | None = None


@dataclass(frozen=True, slots=True)
class Reliable:
    """Machines that nobody takes back, held from start to end beside the transient ones; any type if none is named."""

    machines: int
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What may be rented. Without `types`, whatever has what is needed; without `regions`, anywhere.

    `types` are names or globs. `machines` counts the transient machines held at one time; a command always has as many
    as it has nodes.
    """

    clouds: tuple[str, ...]
    machines: Range[int]
    reliable: Reliable
    types: tuple[str, ...] = ()
    needs: Needs = Needs()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """When a training is done: the first that holds. `span` counts from when it begins; at least one is given."""

    clocks: int | None = None
    span: int | None = None
    loss: float | None = None
    converged: float | None = None
    """The share by which the loss must still fall."""


@dataclass(frozen=True, slots=True)
class Training:
    """An AgileML job. `app` is a built-in's name, `module:Class` or a Python file, both in the job's `workdir`."""

    app: str
    stop: Stop
    args: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a command keeps its checkpoint, and how often it is asked to; None: as often as evictions make worth it."""

    path: str
    every: int | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command on each of so many nodes, which start, stop and move together."""

    run: str
    nodes: int = 1
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """A deadline so long after the launch."""

    span: int

    def moment(self, now: int, _zone: tzinfo) -> int:
        """When it is over for a job that is launched now."""
        return now + self.span


@dataclass(frozen=True, slots=True)
class ByClock:
    """A deadline at the next such time of day."""

    hour: int
    minute: int

    def moment(self, now: int, zone: tzinfo) -> int:
        """When that is, by the clocks of a time zone, for a job that is launched now."""
        here = to_datetime(now).astimezone(zone)
        today = here.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        # A day is added to the clock's face, not to the moment: days of a change of time have other lengths.
        return to_micros(today if to_micros(today) > now else today + timedelta(days=1))


def data_variable(name: str) -> str:
    """The environment variable that says where data of this name lies.

    >>> data_variable("ratings")
    'DATA_RATINGS'
    """
    return f"DATA_{name.upper().replace('-', '_')}"


def output_variable(name: str) -> str:
    """The environment variable that says where a program leaves its output of this name.

    >>> output_variable("best-model")
    'OUTPUT_BEST_MODEL'
    """
    return f"OUTPUT_{name.upper().replace('-', '_')}"


@dataclass(frozen=True, slots=True)
class Image:
    """What a machine boots. No `ami`: the newest plain one; no `container`: the job runs on the machine itself."""

    ami: str | None = None
    container: str | None = None
    disk_gib: int = 100


@dataclass(frozen=True, slots=True)
class LocalMarket:
    """How the market on this computer is replayed. `speed` is market time over time on the clock.

    `start` is the moment of the history at which it begins (None: the provider's own); `warning` is how long in market
    time a machine is warned, except for a share of `unwarned` evictions; `seed` decides which.
    """

    speed: float = 600.0
    seed: int = 0
    start: int | None = None
    warning: int = 2 * MINUTE
    unwarned: float = 0.2


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job, complete and consistent. `secrets` are names only; their values are nobody's to write down."""

    name: str
    program: Training | Command
    resources: Resources
    workdir: Path
    setup: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    image: Image = Image()
    identity: Mapping[str, str] = field(default_factory=dict)
    """By cloud: an instance profile, a service account, a managed identity."""
    objective: Objective = Objective.MIN_COST
    deadline: Within | ByClock | None = None
    hours: int | None = None
    """How long all its machines take undisturbed, where nothing else says."""
    budget: int | None = None
    """Hard: spending ends before it is passed."""
    throughputs: Mapping[str, float] = field(default_factory=dict)
    """Work per hour of a machine, by type, where it was measured."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """By which costs are grouped."""
    strategy: str = AUTO
    webhook: str | None = None
    local: LocalMarket = LocalMarket()

    @property
    def kind(self) -> Kind:
        """Which of the two it is."""
        return Kind.AGILEML if isinstance(self.program, Training) else Kind.COMMAND

    @property
    def is_local(self) -> bool:
        """Whether it runs on the market of this computer alone."""
        return self.resources.clouds == ("local",)


def check_names(specs: Sequence[JobSpec]) -> None:
    """Refuses two jobs with one name: plans and runs are kept by name."""
    names = [spec.name for spec in specs]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise BadRequest(f"two of the files describe a job named {double!r}; give each job its own name")
