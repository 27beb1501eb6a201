"""Jobs between the facts and their plans, as frozen values: the machines that fit, and the share of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from bidbrain.gavel.arrays import FloatArray
from pricing_data.units import HOUR
from spotctl.files.job.programs import Command
from spotctl.home.quotas import Quota
from spotctl.planning.job import Demand, Job
from spotctl.planning.market_history import ChosenStrategy
from spotctl.planning.offers import MachineKind
from spotctl.planning.quota_use import QuotaGroup
from spotctl.planning.share import JobShare
from spotctl.planning.turns import QuotaPart
from spotctl.planning.work import TypeSpeed


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


@dataclass(frozen=True, slots=True, eq=False)
class JobCandidates:
    """A job with its demand for the kinds of machines that fit it, the number of matching markets, and the rows of
    unusable ones."""

    job: Job
    demand: Demand
    rates: Mapping[str, TypeSpeed]
    fitting: int
    unusable: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlanCandidates:
    """The machines that fit some jobs: each job's demand, in columns that all jobs share."""

    jobs: tuple[JobCandidates, ...]
    columns: KindColumns


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """A quota that a job's machines count against, the part that the job may use, and the parts of all jobs that were
    planned together, the first turn first. The quota `is_enough` if it holds all that the jobs could use together."""

    quota: Quota
    part: Quota
    parts: tuple[QuotaPart, ...]
    is_enough: bool


@dataclass(frozen=True, slots=True, eq=False)
class AllocatedJob(JobCandidates):
    """A job with its share of Gavel's allocation, and its part of each quota of spot and of on-demand machines.
    `strategy` replaces the strategy of the job file."""

    share: JobShare
    quotas: tuple[QuotaShare, ...]
    on_demand_quotas: tuple[Quota, ...] = ()
    strategy: ChosenStrategy | None = None

    def work_amount(self, most_nu: float) -> float:
        """The work in microseconds times nu, if all machines together do `most_nu` per hour."""
        length = self.demand.work
        return HOUR * (length.amount(most_nu) if length.timed else self.demand.amount)

    def work_left(self, most_nu: float) -> float:
        """The work as `work_amount` counts it; infinite if the job's length is unknown."""
        return inf if self.demand.work.assumed else self.work_amount(most_nu)

    @property
    def saves(self) -> bool:
        """Whether the program has a checkpoint path, without which spotctl cannot sync its checkpoints."""
        program = self.job.spec.program
        return isinstance(program, Command) and program.checkpoint is not None
