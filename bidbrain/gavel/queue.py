"""A queue of jobs that share quotas, and a round of it: plain values that the scheduler reads and decides."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bidbrain.errors import BidBrainError

MEAN_COMPLETION = "mean-completion"
"""The policy of a queue that names none."""
ROUND_SECONDS = 360.0
MAX_WAIT_ROUNDS = 240

MeanMachines = Mapping[str, Mapping[str, float]]
"""By job and type."""


class BadQueue(BidBrainError):
    """The queue contradicts itself."""


@dataclass(frozen=True, slots=True)
class QueueQuota:
    """An amount that the machines of some types share, and what one machine of each takes of it."""

    name: str
    amount: float
    per_machine: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QueueUser:
    """An owner of jobs: its weight among the users, and the order of its jobs under `hierarchical`."""

    weight: float = 1.0
    policy: str = "fairness"


@dataclass(frozen=True, slots=True)
class QueueJob:
    """One job, running or waiting.

    `rates` is work per hour of one machine, by type; a job runs on these types only. Work counts what is left; it is
    None if the length is unknown, and then `work_low` and `work_high` bound it. A job takes from `least` to `most`
    machines, a gang all of one type. `received` are machine-seconds since its arrival. `since` is when it began to hold
    machines, or to wait. A swap takes it `swap_seconds`: checkpoint, boot, set-up and load. What it holds is paid until
    `paid_until`. Times are seconds on the clock of `JobQueue.now`.
    """

    name: str
    rates: Mapping[str, float]
    arrival: float
    since: float
    user: str = ""
    weight: float = 1.0
    work: float | None = None
    work_low: float = 0.0
    work_high: float | None = None
    least: int = 1
    most: int = 1
    gang: bool = False
    deadline: float | None = None
    received: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    swap_seconds: float = 0.0
    paid_until: float = 0.0

    def holds(self) -> int:
        return sum(self.held.values())

    def speed(self, machines: Mapping[str, float]) -> float:
        """Work per second on these machines."""
        return sum([self.rates.get(kind, 0.0) * count for kind, count in machines.items()]) / 3600


@dataclass(frozen=True, slots=True)
class JobQueue:
    """The jobs under some quotas at one moment, and how they are to share these.

    `usd_per_hour` are the expected prices by type, which only policies of cost need.
    """

    now: float
    quotas: tuple[QueueQuota, ...]
    jobs: tuple[QueueJob, ...]
    policy: str = MEAN_COMPLETION
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    budget_usd: float | None = None
    users: Mapping[str, QueueUser] = field(default_factory=dict)
    round_seconds: float = ROUND_SECONDS
    max_wait_rounds: int = MAX_WAIT_ROUNDS

    def __post_init__(self) -> None:
        names = [job.name for job in self.jobs]
        for name in names:
            if names.count(name) > 1:
                raise BadQueue(f"job {name!r} is in the queue twice: give each job a name of its own")

    def types(self) -> list[str]:
        """All types that count against a quota."""
        return sorted({kind for quota in self.quotas for kind in quota.per_machine})

    def machines(self, kind: str) -> int:
        """The most machines of a type that the quotas hold."""
        uses = [quota.amount / use for quota in self.quotas if (use := quota.per_machine.get(kind, 0.0)) > 0]
        return int(min(uses, default=0.0) + 1e-6)


@dataclass(frozen=True, slots=True)
class QueueRound:
    """A decided round, with what it was decided from.

    `shares` is X as a mean number of machines by job and type. `owed` are the machine-seconds by which a job lags
    behind its share (negative: is ahead). `machines` are what it holds in this round. `order` has the jobs as the
    default policy would begin them. `kept` names jobs whose machines stay because a swap would not pay, and says why.
    """

    queue: JobQueue
    shares: MeanMachines
    owed: MeanMachines
    machines: Mapping[str, Mapping[str, int]]
    order: tuple[str, ...]
    kept: Mapping[str, str]
    remarks: tuple[str, ...] = ()


class FreeQuota:
    """The free part of the quotas while machines are handed out."""

    def __init__(self, queue: JobQueue) -> None:
        self._left = [quota.amount for quota in queue.quotas]
        self._uses: dict[str, list[tuple[int, float]]] = {kind: [] for kind in queue.types()}
        for number, quota in enumerate(queue.quotas):
            for kind, use in quota.per_machine.items():
                if use > 0:
                    self._uses[kind].append((number, use))

    def kinds(self) -> Iterable[str]:
        """The types that count against a quota."""
        return self._uses

    def machines(self, kind: str) -> int:
        """The number of machines of a type that still fit; none of a type without a quota."""
        return int(self.amount(kind) + 1e-6)

    def amount(self, kind: str) -> float:
        """The machines of a type that still fit, with fractions."""
        return max(0.0, min([self._left[number] / use for number, use in self._uses.get(kind, ())], default=0.0))

    def take(self, kind: str, count: float) -> None:
        """Gives machines away, or takes them back."""
        for number, use in self._uses[kind]:
            self._left[number] -= use * count

    def uses(self, kind: str) -> list[tuple[int, float]]:
        """The quotas of a type, with what a machine takes of each."""
        return self._uses[kind]

    def left(self, number: int) -> float:
        return max(self._left[number], 0.0)
