"""The results of planning, as frozen values: of each step for one job, and the plan that they make
together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.profile.model_profile import ModelProfile
from bidbrain.arrays import Floats
from bidbrain.billing import BillingRule
from bidbrain.cost import CostPerWork
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.decision.mixture_solver import Schedule
from bidbrain.decision.mixture_strategy import Aim
from bidbrain.decision.parts import QuotaPart
from bidbrain.decision.reserved import ReservedOffer
from bidbrain.eviction.estimate import Estimate
from bidbrain.forecast.values import KnownPast, LaunchTimes
from bidbrain.queue.outlook import JobOutlook
from bidbrain.queue.values import JobQueue, QueueJob, QueueQuota, QueueTerms
from bidbrain.strategies.base import ChosenStrategy, Offer, Overheads, Rent
from bidbrain.strategies.regions import ZoneOutlook
from pricing_data.market import Market
from spotctl.files.job.resources import Reservation
from spotctl.files.job.spec import JobSpec, Objective
from spotctl.home.quotas import Quota

SPECIFIED = "as specified"
"""The source of a job's length that the user gave."""
VCPU_SPREAD = 0.5
"""How far throughputs per vCPU of two types differ: the standard deviation of the logarithm of
their ratio."""
CLOCK = "clock"
"""The unit of a training's work, where its machines' throughputs are known."""
ANY_UNIT = "unit of work"
"""The unit in texts of decision objects, which do not know the job's own unit."""
GB = 10**9
RATE_HOURS = 6
"""A job of unknown length is played for this long, for its dollars per hour."""


@dataclass(frozen=True, slots=True)
class TypeSpeed:
    """Work per hour of one machine of a type (nu), and the source in words; `in_units` of the job's
    own work, or not.

    `spread` is the standard deviation of the logarithm of a run's own speed. With `scaling` s, n
    machines do n^(1 + s) times the work of one. `split` is how the job's model is split over the
    devices of its machines, and `least_stages` the number of stages without which it does not fit.
    """

    nu: float
    source: str
    in_units: bool = True
    spread: float = 0.0
    scaling: float = 0.0
    split: ParallelPlan | None = None
    least_stages: int = 1


@dataclass(frozen=True, slots=True)
class JobLength:
    """A job's length: `units` of work, or the work of all machines in `hours`; at most `longest`
    hours.

    With neither, the job ends after `longest`. An assumed amount stands in for an unknown one:
    costs become comparable, but no deadline or budget is checked.
    """

    source: str
    units: float | None = None
    hours: float | None = None
    longest: float = inf
    assumed: bool = False

    def amount(self, nu: float) -> float:
        """The work in machine-hours times nu, if all machines together do `nu` per hour."""
        if self.units is not None:
            return self.units
        return nu * (self.longest if self.hours is None else self.hours)

    @property
    def timed(self) -> bool:
        """Whether the job ends after a fixed time, however much work is done by then."""
        return self.units is None and self.hours is None


@dataclass(frozen=True, slots=True)
class Job:
    """A job to be planned: its deadline as a moment, and the user's or the measured estimate of its
    length in hours.

    `place` is the cloud and region that a job which already runs must stay in; `hours_from` says
    where `hours` come from. `profiles` describe the model that is split over the machines' devices.
    `save_seconds` is what a checkpoint took in earlier runs, and `save_bytes` its size. `reserved` is the job's part of
    reservations that other jobs name, too; None: all of them.
    """

    spec: JobSpec
    deadline: int | None = None
    hours: float | None = None
    place: tuple[str, str] | None = None
    hours_from: str = SPECIFIED
    profiles: tuple[ModelProfile, ...] = ()
    save_seconds: float | None = None
    save_bytes: float | None = None
    reserved: tuple[Reservation, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A job that asks for machines: nu by kind (0 where it may not run), fewest and most machines,
    its limits, and what else later steps read of the job.

    `hours_left` is the time to the deadline minus start-up; a job that `hurries` is constrained by
    it, which one of unknown length never is. `aim` is that by which machines are chosen.
    `reference_nu` is the work per hour of all machines of the type `reference`, and converts an
    amount given in hours; `names_reference` says whether the job tells which type that is.

    A gang that `saves` has a checkpoint path, without which spotctl cannot sync its checkpoints.
    `save_time` is how long a checkpoint takes, in microseconds of the market's clock, if earlier
    runs or its size tell, and `saved_gb` how large it is. A job that `roams`
    may move between regions. `reservations` are those that have not ended, with the machines that
    the job may use of each, and `reserved` these machines by kind, on top of all quotas; empty if
    there are none. `times` are what a launch takes around its work, and `startup` microseconds what
    each machine takes to start in a forecast, if that differs from what decisions assume.

    Next to other jobs under short quotas, it is one of a `user`, with a `weight`. `pace` is the
    time that its work is forecast to take, as a multiple of that which its machines' speeds say.
    `unit` names the job's work wherever a plan or a run does. `rates` are the speeds of the types
    that fit it; `fitting` markets match it, and `unusable` are the rows of those that it cannot
    use.
    """

    name: str
    objective: Objective
    nu: Floats
    least: int
    most: int
    work: JobLength
    reference_nu: float
    hours_left: float
    budget_usd: float | None
    value_of_time_usd: float | None = None
    hurries: bool = False
    aim: Aim = Aim.LEAST_COST
    gang: bool = False
    roams: bool = False
    saves: bool = False
    save_time: int | None = None
    saved_gb: float | None = None
    reservations: tuple[Reservation, ...] = ()
    reserved: tuple[int, ...] = ()
    times: LaunchTimes = field(default_factory=LaunchTimes)
    startup: int | None = None
    pace: float = 1.0
    user: str = ""
    weight: float = 1.0
    unit: str = ANY_UNIT
    reference: str = ""
    names_reference: bool = True
    rates: Mapping[str, TypeSpeed] = field(default_factory=dict)
    fitting: int = 0
    unusable: tuple[int, ...] = ()

    @property
    def amount(self) -> float:
        """The work in machine-hours times nu."""
        return self.work.amount(self.reference_nu)

    def worded(self, text: str) -> str:
        """A reason of a decision object or of a comparison, with the unit of this job's work."""
        return text.replace(ANY_UNIT, self.unit)


@dataclass(frozen=True, slots=True)
class Turn:
    """When a job begins and ends, in hours from the launch, and the machines of each kind that its
    part is for.

    Its part may change while the turn lasts, and then `parts` are all of them, maybe some without
    machines. A job of unknown length ends at infinity. `begins` and `ends` are bounds, maybe
    infinite, if lengths are unknown.
    """

    begin: float
    end: float
    machines: tuple[int, ...] = ()
    parts: tuple["Turn", ...] = ()
    begins: tuple[float, float] | None = None
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class QuotaSlice:
    """A job's slice of a quota, and the job's turn. `later` has the moments, in hours from the
    launch, from which the slice is another amount."""

    job: str
    amount: int
    turn: Turn
    later: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SlicedQuota:
    """A quota that a job's machines count against, the slice that the job may use, and the slices
    of all jobs that were planned together, the first turn first. The quota `is_enough` if it holds
    all that the jobs could use together."""

    quota: Quota
    slice: Quota
    slices: tuple[QuotaSlice, ...]
    is_enough: bool


@dataclass(frozen=True, slots=True)
class QueueClaim:
    """A job as the queue of its home knows it, with times from its launch, the quotas that its
    machines count against, their expected prices by type, and the terms of the queue."""

    job: QueueJob
    quotas: tuple[QueueQuota, ...]
    usd_per_hour: Mapping[str, float]
    terms: QueueTerms


@dataclass(frozen=True, slots=True, eq=False)
class JobShare:
    """A job's share: the most machines of each kind, the amount of each quota, whether that quota
    is `short` of what all jobs could use, dollars per unit of work by kind, when it holds them, and
    the reason for each kind of which it may rent too few machines. `wait` is the time until its
    turn, in microseconds. Caps and amounts are of the largest of its `parts`, which are those of
    its turn that it can take up: a job does not move between regions. `quotas` and
    `on_demand_quotas` are its parts of those for spot and on-demand machines; under quotas for spot
    machines it has a `claim`. `queue` is that of all jobs, if quotas are short, and `courses` tell
    when they run.
    """

    policy: str
    caps: tuple[int, ...]
    amounts: tuple[int, ...]
    short: tuple[bool, ...]
    usd_per_work: Floats
    turn: Turn
    parts: tuple[Turn, ...] = ()
    wait: int = 0
    lacking: Mapping[int, str] = field(default_factory=dict)
    quotas: tuple[SlicedQuota, ...] = ()
    on_demand_quotas: tuple[Quota, ...] = ()
    queue: JobQueue | None = None
    courses: tuple[JobOutlook, ...] = ()
    claim: QueueClaim | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MachineMix:
    """Machines that a job could be planned on.

    `home` is the kind (column) of most of the first machines. Without a schedule, the job's
    strategy chooses among `home` and kinds that are about as good. With a schedule, the strategy
    follows the best mixture of the kinds in `columns`: the first `used` of them are in the
    schedule, the others may join when time or money gets short. Zones and types in `left_out` would
    make the job more expensive.
    """

    home: int
    columns: tuple[int, ...] = ()
    used: int = 1
    schedule: Schedule | None = None
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class AllocatedJob:
    """A job with its share of Gavel's allocation. `strategy` replaces the strategy of the job
    file. A job that `waits` rents spot machines at their usual prices, while its time allows."""

    job: Job
    demand: Demand
    share: JobShare
    strategy: ChosenStrategy | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """Interval, assumed cost of a checkpoint, and mean time to an eviction, in microseconds.

    `is_fixed` says that the job file sets the interval; `life` is infinite for on-demand machines.
    """

    every: float
    cost: float
    life: float
    is_fixed: bool

    @property
    def useful_share(self) -> float:
        """The share of time that is not spent on checkpoints."""
        return self.every / (self.every + self.cost)


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """Expected length and bill of the whole job, with its first and later hours. `terms` are the
    dollars of each allocation, those of the reliable machines last."""

    hours: float
    terms: tuple[float, ...]
    first: CostPerWork
    later: CostPerWork

    @property
    def usd(self) -> float:
        """The expected bill."""
        return sum(self.terms)


@dataclass(frozen=True, slots=True)
class PriceDate:
    """A price per machine in nano-dollars per hour: the moment when it was last known to hold, and
    its source.
    """

    market: Market
    spot: bool
    price: int
    as_of: int
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """The machines that a job's strategy may rent, with their limits and the history of their
    markets.

    The offers are of one region, unless the job roams. `baseline` are the on-demand machines that
    do the same work per hour (`most_nu`), and `fallback` are as many of them as quotas allow, maybe
    none. `work` is that of the job, in microseconds times nu; infinite if its length is unknown.
    `passed_over` has the reason why other columns are not in the fleet. `prices` are the present
    ones by market, or what a reserved machine costs. `rates` are the speeds of the machine types
    that may be rented. `billing` is the rule of the fleet's cloud. Strategies compare machines by
    their next hour, in which those with longer start-ups than it has would be worthless:
    `within_the_hour` are the overheads with which they do.
    """

    offers: tuple[Offer, ...]
    baseline: Rent
    fallback: Rent
    reliable: Rent | None
    most_nu: float
    work: float
    overheads: Overheads
    within_the_hour: Overheads
    billing: BillingRule
    limits: MachineLimits
    market_history: KnownPast
    prices: Mapping[Market, int]
    passed_over: dict[int, str]
    reserved: tuple[ReservedOffer, ...]
    rates: Mapping[str, TypeSpeed]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class FirstDecision:
    """The decision with which a job begins, its `reason`, and the strategy that made it.

    `rents` are the purchases, with those in the same market at the same bid combined. `interval` is
    the time between checkpoints of a command; `checkpoints` is the same interval, None if the
    command keeps no checkpoints. `mixture` is the schedule of machines of some `types`, if the job
    needs a mixture of kinds. `outlooks` are about the markets between which the job may move.
    `parts` are those of quotas that the job is to have in turn, if these change; the decision is
    within the first.
    """

    strategy: ChosenStrategy
    reason: str
    rents: tuple[Rent, ...]
    interval: CheckpointInterval | None
    checkpoints: CheckpointInterval | None
    mixture: Schedule | None
    types: tuple[str, ...]
    outlooks: tuple[ZoneOutlook, ...]
    parts: tuple[QuotaPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """An allocation that would be rented, with its price, eviction probability and cost per unit of
    work.

    `evidence` is what its eviction rate rests on (`Hazard.kind`), or price if only the price can
    evict it. `beta` is of the hour that begins now, `lasting` of any hour; None: the same.
    """

    rent: Rent
    price: int
    beta: Estimate
    usd_per_work: float = inf
    evidence: str = "price"
    lasting: Estimate | None = None


@dataclass(frozen=True, slots=True)
class RejectedMarket:
    """A market that is not used and the reason; `instead` is the allocation that was considered
    there, if any.

    `relative_cost` is the cost per unit of work relative to that of the choice; None if the job
    cannot run there.
    """

    market: Market
    why: str
    instead: Choice | None = None
    relative_cost: float | None = None


@dataclass(frozen=True, slots=True)
class OnDemand:
    """A job's whole work on on-demand machines: the machines, the dollars and the hours.

    `unworked` is the paid time, in microseconds, in which they start and are returned.
    """

    rent: Rent
    usd: float
    hours: float
    unworked: int


@dataclass(frozen=True, slots=True, eq=False)
class PlanCost:
    """The expected cost of a first decision, and of what could be rented instead.

    `estimate` is the cost if the choice is kept to the end; `forecast_of` plays the job with all
    its evictions. The job may turn to `fallback`. Savings are relative to `on_demand`: the cheapest
    such machines that are as fast, per hour if the length of the job is unknown. `traffic_usd`
    comes on top: what hosts ask for the bytes of checkpoints. `rejected` lists
    markets that were considered, are unusable, or are the best of another kind; `unnamed` counts
    the rest.
    """

    choice: tuple[Choice, ...]
    estimate: JobEstimate
    fallback: OnDemand
    on_demand: OnDemand
    price_dates: tuple[PriceDate, ...]
    traffic_usd: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """The machines to rent for a job, the reasons, and the expected cost and length: the results of
    the steps of planning, in their order. The job's turn begins at the moment `at`. A run of the
    plan asks the `decider` in every turn. `rejected` lists markets that were considered, are
    unusable, or are the best of another kind. `reliable_reason` says why the plan has a reliable
    machine or none, where it had the choice.
    """

    at: int
    job: Job
    demand: Demand
    share: JobShare
    fleet: Fleet
    decider: Decider
    decision: FirstDecision
    cost: PlanCost
    rejected: tuple[RejectedMarket, ...] = ()
    reliable_reason: str = ""

    @property
    def budget_usd(self) -> float | None:
        """The dollars of the budget that traffic leaves for machines; None without a budget."""
        budget = self.demand.budget_usd
        return None if budget is None else budget - self.cost.traffic_usd
