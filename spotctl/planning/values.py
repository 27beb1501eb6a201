"""The results of planning, as frozen values: of each step for one job, and the plan that they make together."""

from collections.abc import Mapping
from dataclasses import dataclass

from bidbrain.decision.decider import Decider
from bidbrain.decision.mixture_solver import MixturePhase, Schedule
from bidbrain.decision.mixture_strategy import phases_text
from bidbrain.decision.mixture_terms import Aim
from bidbrain.eviction.estimate import Estimate
from bidbrain.strategies.base import Decision, Rent
from bidbrain.strategies.regions import ZoneOutlook
from pricing_data.market import Market
from spotctl.files.job.programs import Training
from spotctl.planning.allocation import AllocatedJob
from spotctl.planning.checkpoint_interval import CheckpointInterval
from spotctl.planning.expected import JobEstimate
from spotctl.planning.fleet import FleetPlan
from spotctl.planning.job import Job
from spotctl.planning.market_history import ChosenStrategy, MarketHistory
from spotctl.planning.price_dates import PriceDate
from spotctl.planning.work import JobLength, TypeSpeed

CLOCK = "clock"
"""The unit of a training's work, where its machines' throughputs are known."""

_ANY_UNIT = "unit of work"
"""The unit in texts of decision objects, which do not know the job's own unit."""


@dataclass(frozen=True, slots=True, eq=False)
class BuiltDecider:
    """A job's decision object, with the strategy that was chosen for it and the fleet that it decides on.

    `work_left` is the job's work in microseconds times nu, infinite if its length is unknown. `rates` are the speeds of
    the machine types that the decider may rent.
    """

    allocated: AllocatedJob
    fleet_plan: FleetPlan
    strategy: ChosenStrategy
    decider: Decider
    work_left: float
    rates: Mapping[str, TypeSpeed]

    @property
    def market_history(self) -> MarketHistory:
        """The past of the markets that the decider may rent in."""
        return self.fleet_plan.market_history


@dataclass(frozen=True, slots=True)
class PlannedMixture:
    """The mixture of kinds that a job begins with, by the names of its machine types, and what it was chosen for."""

    aim: Aim
    types: tuple[str, ...]
    schedule: Schedule

    def machines(self, phase: MixturePhase) -> dict[str, int]:
        """The machines of a phase by type."""
        counts = zip(self.types, phase.mixture.machines, strict=True)
        return {name: count for name, count in counts if count}

    def words(self) -> str:
        """The phases of the mixture in words."""
        return phases_text(self.schedule, self.types)


@dataclass(frozen=True, slots=True, eq=False)
class FirstDecision:
    """The decision with which a job begins, and the `decider` that made it, at the speed that checkpoints leave.

    `rents` are the purchases, with those in the same market at the same bid combined. `interval` is the time between
    checkpoints of a command; `checkpoints` is the same interval, None if the command keeps no checkpoints. `mixture` is
    the mixture of kinds, if the job needs one. `outlooks` are about the markets between which the job may move.
    """

    decider: Decider
    decision: Decision
    rents: tuple[Rent, ...]
    interval: CheckpointInterval | None
    checkpoints: CheckpointInterval | None
    mixture: PlannedMixture | None
    outlooks: tuple[ZoneOutlook, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """An allocation that would be rented, with its price, eviction probability and cost per unit of work.

    `evidence` is what its eviction rate rests on (`Hazard.kind`), or price if only the price can evict it.
    """

    rent: Rent
    price: int
    beta: Estimate
    usd_per_work: float
    evidence: str = "price"


@dataclass(frozen=True, slots=True)
class RejectedMarket:
    """A market that is not used and the reason; `instead` is the allocation that was considered there, if any.

    `relative_cost` is the cost per unit of work relative to that of the choice; None if the job cannot run there.
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

    `estimate` is the cost if the choice is kept to the end; `forecast_of` plays the job with all its evictions. The
    job may turn to `fallback`. Savings are relative to `on_demand`: the cheapest such machines that are as fast, per
    hour if the length of the job is unknown.
    `rejected` lists markets that were considered, are unusable, or are the best of another kind; `unnamed` counts the
    rest.
    """

    choice: tuple[Choice, ...]
    estimate: JobEstimate
    fallback: OnDemand
    on_demand: OnDemand
    rejected: tuple[RejectedMarket, ...]
    unnamed: int


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """The machines to rent for a job, the reasons, and the expected cost and length: the results of the steps of
    planning. The job's turn begins at the moment `at`. `price_dates` are the ages of the prices that it rests on.
    `reliable_reason` says why the plan has a reliable machine or none, where it had the choice.
    """

    at: int
    built: BuiltDecider
    first: FirstDecision
    cost: PlanCost
    price_dates: tuple[PriceDate, ...] = ()
    reliable_reason: str = ""

    @property
    def allocated(self) -> AllocatedJob:
        """The job with its share of the machines and quotas."""
        return self.built.allocated

    @property
    def launched(self) -> int:
        """The moment of the launch, which is earlier than `at` for a job that waits for its turn."""
        return self.at - self.allocated.share.turn.delay

    @property
    def job(self) -> Job:
        """The job."""
        return self.allocated.job

    @property
    def work(self) -> JobLength:
        """How much work the job is."""
        return self.allocated.demand.work

    @property
    def decider(self) -> Decider:
        """The decision object that a run of the plan asks in every turn."""
        return self.first.decider

    @property
    def choice(self) -> tuple[Choice, ...]:
        """The allocations with which the job begins."""
        return self.cost.choice

    @property
    def unit(self) -> str:
        """The unit of the job's work, wherever a plan or a run names it."""
        if not all(rate.in_units for rate in self.built.rates.values()):
            return "vCPU-hour"
        program = self.job.spec.program
        if isinstance(program, Training):
            return CLOCK
        return _ANY_UNIT if program.parallel is None else "update"

    def worded(self, text: str) -> str:
        """A reason of a decision object or of a comparison, with the unit of this job's work."""
        return text.replace(_ANY_UNIT, self.unit)

    @property
    def scaling(self) -> float:
        """s if n machines do n^(1 + s) times the work of one, as earlier runs measured it."""
        return next((rate.scaling for rate in self.built.rates.values() if rate.scaling), 0.0)

    @property
    def speed_spread(self) -> float:
        """How far the machines' speed may be from what the plan assumes (`TypeSpeed.spread`)."""
        rates = self.built.rates
        return max((rates[choice.rent.offer.market.instance_type].spread for choice in self.choice), default=0.0)
