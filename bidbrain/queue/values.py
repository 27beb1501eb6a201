"""A queue of jobs that share quotas, and a round of it: plain values that the scheduler reads and
decides.

Three doors lead here. The log keeps a row for each job that joins or leaves and for each decided
round, and folds them to these values again; a plan makes a waiting job's claim, and plays the queue
forward; a launch decides the next round and takes its part of the quotas. All of them ask
`bidbrain.queue.scheduler`, so that what a plan says is what a launch does. A round is a function of
the queue and the round before it: nothing here may read a clock, a file or a setting.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from bidbrain.errors import BidBrainError

MEAN_COMPLETION = "mean-completion"
"""The policy of a queue that names none."""
ROUND_SECONDS = 360.0
MAX_WAIT_ROUNDS = 240


@cache
def _place(kind: str) -> str:
    """The cloud and region of a type that names them: `cloud/region/type`."""
    return kind.rpartition("/")[0]


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


def merged(quotas: Iterable[QueueQuota]) -> tuple[QueueQuota, ...]:
    """Quotas of the same name as one, with the amount of the last."""
    by_name = dict[str, QueueQuota]()
    for quota in quotas:
        before = by_name.get(quota.name, quota)
        by_name[quota.name] = replace(
            quota, per_machine={**before.per_machine, **quota.per_machine}
        )
    return tuple(by_name.values())


@dataclass(frozen=True, slots=True)
class QueueUser:
    """An owner of jobs: its weight among the users, and the order of its jobs under
    `hierarchical`."""

    weight: float = 1.0
    policy: str = "fairness"


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """How jobs share quotas: by a policy, between users by their weights, in rounds of a length."""

    policy: str = MEAN_COMPLETION
    users: Mapping[str, QueueUser] = field(default_factory=dict)
    round_seconds: float = ROUND_SECONDS
    max_wait_rounds: int = MAX_WAIT_ROUNDS


@dataclass(frozen=True, slots=True)
class QueueJob:
    """One job, running or waiting.

    `rates` is work per hour of one machine, by type; a job runs on these types only. Work counts
    what is left; it is None if the length is unknown, and then `work_low` and `work_high` bound it.
    A job takes from `least` to `most` machines, a gang all of one type, others of one region.
    `received` are machine-seconds since its arrival. `since` is when it began to hold machines, or
    to wait. A swap takes it `swap_seconds`: checkpoint, boot, set-up and load. What it holds is
    paid until `paid_until`. A job that is `timed` ends once it has run for `work` hours, on however
    many machines. One that is not `interruptible` would lose its work with its machines, and keeps
    them until its end. `budget_usd` is what is left of its budget. Times are seconds on the clock
    of `JobQueue.now`.
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
    timed: bool = False
    interruptible: bool = True
    budget_usd: float | None = None

    def later(self, seconds: float) -> "QueueJob":
        """The job on a clock that is ahead by some seconds."""
        deadline = None
        if self.deadline is not None:
            deadline = self.deadline + seconds
        times = (time + seconds for time in (self.arrival, self.since, self.paid_until))
        arrival, since, paid_until = times
        return replace(self, arrival=arrival, since=since, paid_until=paid_until, deadline=deadline)

    def holds(self) -> int:
        return sum(self.held.values())

    def joins(self, kind: str, machines: Mapping[str, float]) -> bool:
        """Whether a machine of a type can work with these: those of a gang are all of one type,
        those of another job in one region."""
        if self.gang:
            return not machines or kind in machines
        return all(_place(kind) == _place(other) for other in machines)

    def is_complete(self) -> bool:
        """Whether it can have no more machines than it holds, because all of its processes began
        together.
        """
        return self.gang and not self.interruptible and bool(self.held)

    def speed(self, machines: Mapping[str, float]) -> float:
        """Work per second on these machines."""
        if self.timed:
            if any(machines.values()):
                return 1 / 3600
            return 0.0
        rates = [self.rates.get(kind, 0.0) * count for kind, count in machines.items()]
        in_all = sum(rates)
        return in_all / 3600


@dataclass(frozen=True, slots=True)
class JobQueue:
    """The jobs under some quotas at one moment, and how they are to share these.

    `usd_per_hour` are the expected prices by type, which only policies of cost need. Without a
    `budget_usd` of its own, the queue has the budgets of its jobs together.
    """

    now: float
    quotas: tuple[QueueQuota, ...]
    jobs: tuple[QueueJob, ...]
    terms: QueueTerms = QueueTerms()
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    budget_usd: float | None = None

    def __post_init__(self) -> None:
        names = [job.name for job in self.jobs]
        if len(set(names)) < len(names):
            repeated = (name for name in names if names.count(name) > 1)
            twice = next(repeated)
            raise BadQueue(f"job {twice!r} is in the queue twice: give each job a name of its own")

    def types(self) -> list[str]:
        """All types that count against a quota."""
        return sorted({kind for quota in self.quotas for kind in quota.per_machine})

    def machines(self, kind: str) -> int:
        """The most machines of a type that the quotas hold."""
        uses = [
            quota.amount / use
            for quota in self.quotas
            if (use := quota.per_machine.get(kind, 0.0)) > 0
        ]
        return int(min(uses, default=0.0) + 1e-6)


@dataclass(frozen=True, slots=True)
class QueueRound:
    """A decided round, with what it was decided from.

    `shares` is X as a mean number of machines by job and type. `owed` are the machine-seconds by
    which a job lags behind its share (negative: is ahead). `machines` are what it holds in this
    round. `order` has the jobs as the default policy would begin them. `kept` names jobs whose
    machines stay because a swap would not pay, and says why.
    """

    queue: JobQueue
    shares: MeanMachines
    owed: MeanMachines
    machines: Mapping[str, Mapping[str, int]]
    order: tuple[str, ...]
    kept: Mapping[str, str]
    remarks: tuple[str, ...] = ()


class FreeQuota:
    """The free part of the quotas while machines are handed out.

    `room` has the number of machines that still fit, for each type with any.
    """

    def __init__(self, queue: JobQueue) -> None:
        self._left = [quota.amount for quota in queue.quotas]
        self._uses: dict[str, list[tuple[int, float]]] = {kind: [] for kind in queue.types()}
        self._kinds: list[list[str]] = [[] for _ in queue.quotas]
        for number, quota in enumerate(queue.quotas):
            for kind, use in quota.per_machine.items():
                if use > 0:
                    self._uses[kind].append((number, use))
                    self._kinds[number].append(kind)

        self.room = dict[str, int]()
        self._count(self._uses)

    def _count(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            count = int(self.amount(kind) + 1e-6)
            if count:
                self.room[kind] = count
            else:
                self.room.pop(kind, None)

    def machines(self, kind: str) -> int:
        """The number of machines of a type that still fit; none of a type without a quota."""
        return self.room.get(kind, 0)

    def amount(self, kind: str) -> float:
        """The machines of a type that still fit, with fractions."""
        uses = self._uses.get(kind, ())
        room = [self._left[number] / use for number, use in uses]
        return max(0.0, min(room, default=0.0))

    def take(self, kind: str, count: float) -> None:
        """Gives machines away, or takes them back."""
        for number, use in self._uses[kind]:
            self._left[number] -= use * count
            self._count(self._kinds[number])

    def uses(self, kind: str) -> list[tuple[int, float]]:
        """The quotas of a type, with what a machine takes of each."""
        return self._uses[kind]

    def left(self, number: int) -> float:
        return max(self._left[number], 0.0)
