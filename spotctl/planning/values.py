"""The inputs and the results of planning, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agileml.pipeline.profile.model_profile import ModelProfile
from bidbrain.decision.decider import Decider
from bidbrain.decision.mixture_solver import MixturePhase, Schedule
from bidbrain.decision.mixture_strategy import phases_text
from bidbrain.decision.mixture_terms import Aim
from bidbrain.eviction.estimate import Estimate
from bidbrain.gavel.lp import FloatArray
from bidbrain.strategies.base import Decision, Rent
from bidbrain.strategies.regions import ZoneOutlook
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.programs import Training
from spotctl.files.job.spec import JobSpec
from spotctl.home.quotas import Quota
from spotctl.planning.checkpoint_interval import CheckpointInterval
from spotctl.planning.expected import JobEstimate
from spotctl.planning.market_history import ChosenStrategy, HazardOf, MarketHistory
from spotctl.planning.offers import MachineKind, MarketSnapshot
from spotctl.planning.overheads import OVERHEADS
from spotctl.planning.quota_groups import QuotaGroup
from spotctl.planning.share import Demand, JobShare
from spotctl.planning.work import SPECIFIED, JobLength, Measured, TypeSpeed

_ANY_UNIT = "unit of work"
"""The unit in texts of decision objects, which do not know the job's own unit."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job to be planned: its deadline as a moment, and the user's or the measured estimate of its length in hours.

    `place` is the cloud and region that a job which already runs must stay in; `hours_from` says where `hours` come
    from. `profiles` describe the model that is split over the machines' devices.
    """

    spec: JobSpec
    deadline: int | None = None
    hours: float | None = None
    place: tuple[str, str] | None = None
    hours_from: str = SPECIFIED
    profiles: tuple[ModelProfile, ...] = ()

    @property
    def budget_usd(self) -> float | None:
        """The job's budget in dollars; None without one."""
        return None if self.spec.budget is None else self.spec.budget / NANOS_PER_DOLLAR

    @property
    def value_of_time_usd(self) -> float | None:
        """Dollars that an hour less of run time is worth; None if the job does not say."""
        return None if self.spec.value_of_time is None else self.spec.value_of_time / NANOS_PER_DOLLAR


@dataclass(frozen=True, slots=True)
class PlanningInputs:
    """Everything a plan depends on: offers, eviction rates, throughputs that earlier runs measured (by job, then type),
    and known quotas of spot and of on-demand machines."""

    snapshot: MarketSnapshot
    hazard_of: HazardOf = lambda _: None
    earlier: Mapping[str, Mapping[str, Measured]] = field(default_factory=dict)
    quotas: Sequence[Quota] = ()
    on_demand_quotas: Sequence[Quota] = ()
    overheads: Overheads = OVERHEADS


@dataclass(frozen=True, slots=True, eq=False)
class KindColumns:
    """Gavel's columns: kinds by their numbers in the snapshot, the rows of their markets, cheapest first, effective
    prices, the share of the paid time that evictions leave, and the quotas that the kinds count against."""

    numbers: tuple[int, ...]
    kinds: tuple[MachineKind, ...]
    rows: tuple[tuple[int, ...], ...]
    usd_per_hour: FloatArray
    useful: FloatArray
    quotas: tuple[QuotaGroup, ...]


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """A quota that a job's machines count against, the part that it may use, and how many jobs share it."""

    quota: Quota
    part: Quota
    jobs: int


@dataclass(frozen=True, slots=True, eq=False)
class AllocatedJob:
    """A job with its share of Gavel's allocation, the number of matching markets, the rows of unusable ones, and its
    part of each quota of spot and of on-demand machines."""

    job: Job
    demand: Demand
    share: JobShare
    rates: Mapping[str, TypeSpeed]
    fitting: int
    unusable: tuple[int, ...]
    quotas: tuple[QuotaShare, ...]
    on_demand_quotas: tuple[Quota, ...] = ()


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
    """A market that is not used and the reason; `instead` is the allocation that was considered there, if any."""

    market: Market
    why: str
    instead: Choice | None = None


@dataclass(frozen=True, slots=True)
class OnDemand:
    """A job's whole work on on-demand machines: the machines, the dollars and the hours."""

    rent: Rent
    usd: float
    hours: float


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
class JobPlan:
    """The machines to rent for a job, the reasons, and the expected cost and length.

    `estimate` is the cost if the choice is kept to the end; `forecast_of` plays the job with all its evictions.
    `interval` is the time between checkpoints of a command; `checkpoints` is the same interval, None if the command
    keeps no checkpoints. `work_left` is the job's work in microseconds times nu, infinite if its length is unknown.
    `rejected` lists markets that were considered, are unusable, or are the best of another kind; `unnamed` counts the
    rest. `mixture` is the mixture of kinds, if the job needs one. `quotas` limit the job's spot machines, and
    `on_demand_quotas` are its parts of the on-demand quotas. `outlooks` are about the markets between which the job may
    move.
    """

    job: Job
    at: int
    policy: str
    strategy: ChosenStrategy
    decider: Decider
    decision: Decision
    choice: tuple[Choice, ...]
    work: JobLength
    work_left: float
    rates: Mapping[str, TypeSpeed]
    estimate: JobEstimate
    on_demand: OnDemand
    rejected: tuple[RejectedMarket, ...]
    unnamed: int
    market_history: MarketHistory
    interval: CheckpointInterval | None
    checkpoints: CheckpointInterval | None
    mixture: PlannedMixture | None = None
    quotas: tuple[QuotaShare, ...] = ()
    on_demand_quotas: tuple[Quota, ...] = ()
    outlooks: tuple[ZoneOutlook, ...] = ()

    @property
    def unit(self) -> str:
        """The unit of the job's work, wherever a plan or a run names it."""
        if not all(rate.in_units for rate in self.rates.values()):
            return "vCPU-hour"
        program = self.job.spec.program
        if isinstance(program, Training):
            return "clock"
        return _ANY_UNIT if program.parallel is None else "update"

    def worded(self, text: str) -> str:
        """A reason of a decision object or of a comparison, with the unit of this job's work."""
        return text.replace(_ANY_UNIT, self.unit)

    @property
    def scaling(self) -> float:
        """s if n machines do n^(1 + s) times the work of one, as earlier runs measured it."""
        return next((rate.scaling for rate in self.rates.values() if rate.scaling), 0.0)

    @property
    def speed_spread(self) -> float:
        """How far the machines' speed may be from what the plan assumes (`Measured.spread`)."""
        return max((self.rates[choice.rent.offer.market.instance_type].spread for choice in self.choice), default=0.0)
